"""The command line without Spark: what it prints, refuses and answers from ledger and tables."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.byhand import begun, commit, folded, intent, keep, set_apart
from support.flow import HOPPING, OVER, SESSIONS, TUMBLING, Flow, event
from typer.testing import CliRunner

import floodmark
from floodmark.cli import main
from floodmark.cli.app import app
from floodmark.cli.runs.stopping import Stopping
from floodmark.cli.shared import output
from floodmark.cli.shared.rehearsals import check_shown
from floodmark.connectors.delta.opening import open_existing
from floodmark.core.application.failure import FailureFile
from floodmark.core.protocol.records.rows import FORMAT, Counts, Lost
from floodmark.errors import NotThereYet, Refused, RunFailed
from floodmark.testing import cases
from floodmark.views.contents.openwindows import open_windows
from floodmark.views.formats import iso

CHECKOUT = Path(__file__).parents[2]
MINUTE = 60_000_000
START = 978_307_200_000_000  # 2001-01-01T00:00:00Z


def call(flow: Flow, *words: str, code: int = 0) -> str:
    """Standard output and error of a command; it must end with `code`."""
    found = CliRunner().invoke(app, [*words], env=_places(flow))
    assert found.exit_code == code, found.output
    return found.output


def facts(flow: Flow, *words: str, code: int = 0) -> Any:
    found = CliRunner().invoke(app, [*words, "--json"], env=_places(flow))
    assert found.exit_code == code, found.output
    document = json.loads(found.stdout)
    assert document["format"] == 1
    return document


def _places(flow: Flow) -> dict[str, str]:
    return {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), "COLUMNS": "200"}


def test_it_says_its_version() -> None:
    found = CliRunner().invoke(app, ["--version"])
    assert (found.exit_code, found.stdout) == (0, f"floodmark {floodmark.__version__} (ledger format {FORMAT})\n")


@pytest.fixture
def flow(place: Path) -> Flow:
    return Flow(place)


def test_help_imports_nothing_heavy() -> None:
    heavy = "pyspark pandas pyarrow deltalake sqlglot pydantic".split()
    text = f"import sys, floodmark.cli.app; print([name for name in {heavy} if name in sys.modules])"
    paths = {**os.environ, "PYTHONPATH": str(CHECKOUT / "jobs")}
    found = subprocess.run([sys.executable, "-c", text], env=paths, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_command_explains_itself_with_an_example(flow: Flow) -> None:
    commands = "validate plan preview run reset list status epochs state late init test adopt rename retire drop"
    for command in commands.split():
        assert f"floodmark {command}" in call(flow, command, "--help")
    assert "dead list departure_delays" in call(flow, "dead", "list", "--help")


def test_validate_tells_good_files_and_every_error_of_bad_ones(flow: Flow) -> None:
    flow.write_rule()
    (flow.root / "rules" / "bad.yaml").write_text("rule: bad\nstreem: {}\n")
    said = call(flow, "validate", code=2)
    assert "OK  " in said
    assert "did you mean 'streams'" in said
    files = facts(flow, "validate", code=2)["files"]
    assert [file["ok"] for file in files] == [False, True]
    call(flow, "validate", str(flow.root / "rules" / "counted.yaml"))


def test_validate_goes_on_past_what_is_not_there(flow: Flow) -> None:
    flow.write_rule()
    missing, empty = flow.root / "missing.yaml", flow.root / "empty"
    empty.mkdir()
    rules = flow.root / "rules"
    files = facts(flow, "validate", str(missing), str(empty), str(rules), code=2)["files"]
    assert [file["ok"] for file in files] == [False, False, True]
    assert "found nothing" in files[0]["error"]["message"]
    assert "no rule file" in files[1]["error"]["message"]


def test_a_file_whose_name_is_no_utf_8_is_told_as_others_are(flow: Flow) -> None:
    flow.write_rule()
    odd = flow.root / "rules" / os.fsdecode(b"caf\xe9.yaml")
    odd.write_text("rule: x\n")
    for words in ((), (str(odd),)):
        assert r"caf\xe9.yaml:1: " in call(flow, "validate", *words, code=2)
        files = [Path(found["file"]).name for found in facts(flow, "validate", *words, code=2)["files"]]
        assert r"caf\xe9.yaml" in files
    assert r"caf\xe9" in call(flow, "list") and r"caf\xe9" in call(flow, "list", "--graph")
    call(flow, "status")
    for command in ("status", "run"):
        assert "no rule" in call(flow, command, odd.stem, code=2)


def test_validate_compares_files_of_several_places(flow: Flow) -> None:
    flow.write_rule()
    one = flow.root / "rules" / "counted.yaml"
    other = flow.root / "other" / "again.yaml"
    other.parent.mkdir()
    other.write_text(one.read_text().replace("rule: counted", "rule: again"))
    assert "a sink belongs to one rule" in call(flow, "validate", str(one), str(other), code=2)
    call(flow, "validate", str(one), str(one.parent))


def test_validate_connect_wants_the_tables(flow: Flow) -> None:
    flow.write_rule()
    assert "no Delta table" in call(flow, "validate", "--connect", code=1)
    flow.arrive([event(1)])
    call(flow, "validate", "--connect")
    flow.stream, flow.sql = {"event_time": "n"}, TUMBLING.replace("at,", "n,")
    flow.write_rule()
    assert "timestamp_millis(n)" in call(flow, "validate", "--connect", code=2)


def test_a_column_named_window_is_refused_without_spark(flow: Flow) -> None:
    flow.arrive([event(1)])
    write_deltalake(flow.source, pa.table({"Window": ["x"]}), mode="append", schema_mode="merge")
    flow.write_rule()
    assert "expected no column named `window`" in call(flow, "validate", "--connect", code=2)


def test_validate_prints_the_schema(flow: Flow) -> None:
    assert json.loads(call(flow, "validate", "--schema"))["type"] == "object"


def test_an_unknown_rule_is_refused_with_the_nearest_name(flow: Flow) -> None:
    flow.write_rule()
    for words in (["plan", "conted"], ["run", "conted"], ["epochs", "conted"], ["reset", "conted", "--yes"]):
        assert "did you mean 'counted'" in call(flow, *words, code=2)


def test_a_bad_file_is_an_error_only_for_who_names_it(flow: Flow) -> None:
    ledger = begun(flow)
    folded(flow, ledger, 1, START, None)
    (flow.root / "rules" / "bad.yaml").write_text("rule: bad\n")
    assert "nothing new since epoch 1" in call(flow, "run", "counted")
    assert "nothing new since epoch 1" in call(flow, "run", "--all", code=2)
    call(flow, "run", "counted", "bad", code=2)
    call(flow, "status")
    call(flow, "status", "bad", code=2)
    assert "bad rule file" in call(flow, "list")


def test_run_wants_exactly_one_way_of_naming_rules(flow: Flow) -> None:
    flow.write_rule()
    call(flow, "run", code=2)
    call(flow, "run", "counted", "--all", code=2)
    assert "tags found: none" in call(flow, "run", "--tag", "x", code=2)
    for path in (flow.root / "rules").iterdir():
        path.unlink()
    assert "no rule file" in call(flow, "run", "--all", code=2)


@pytest.mark.parametrize(("tag", "code"), [("nightly", 2), ("daily", 0)])
def test_a_bad_file_that_may_carry_the_tag_is_no_rule_that_ran(flow: Flow, tag: str, code: int) -> None:
    flow.settings["airflow"] = {"tags": ["nightly", "daily"]}
    folded(flow, begun(flow), 1, START, None)
    (flow.root / "rules" / "bad.yaml").write_text("rule: bad\nairflow: {tags: [nightly]}\n")
    said = call(flow, "run", "--tag", tag, code=code)
    assert "nothing new since epoch 1" in said
    assert ("bad" in said) == bool(code)


def test_an_idle_run_starts_no_spark(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    folded(flow, begun(flow), 1, START, None)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = facts(flow, "run", "counted")
    assert found["rules"]["counted"]["result"] == "idle"
    assert found["exit_code"] == 0


def test_an_idle_run_imports_neither_the_sql_parser_nor_what_it_would_write_with(flow: Flow) -> None:
    folded(flow, begun(flow), 1, START, None)
    heavy = "pyspark pandas numpy pyarrow sqlglot rich.console".split()
    text = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print([name for name in {heavy} if name in sys.modules]))\n"
        "from floodmark.cli import main\nmain(['run', 'counted'])"
    )
    paths = {**os.environ, **_places(flow), "PYTHONPATH": str(CHECKOUT / "jobs")}
    found = subprocess.run([sys.executable, "-c", text], env=paths, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == ["counted: nothing new since epoch 1", "[]"]


@pytest.mark.parametrize(("sql", "said"), [("SELECT FROM", "sql"), (HOPPING, "reset")])
def test_an_edited_rule_is_checked_even_where_nothing_is_new(flow: Flow, sql: str, said: str) -> None:
    folded(flow, begun(flow), 1, START, None)
    flow.sql = sql
    flow.write_rule()
    assert said in call(flow, "run", "counted", code=2)


def test_a_missing_table_is_told_before_spark_and_leaves_other_rules_alone(flow: Flow) -> None:
    folded(flow, begun(flow), 1, START, None)
    Flow(flow.root, "other").write_rule()
    found = facts(flow, "run", "--all", code=1)["rules"]
    assert found["counted"]["result"] == "idle"
    assert found["other"]["error"]["type"] == "NotThereYet"


def test_an_empty_folder_is_not_proposed_in_its_own_place(flow: Flow) -> None:
    Path(flow.source).mkdir(parents=True)
    with pytest.raises(NotThereYet, match=r"yet\. Write it first"):
        open_existing("stream events", flow.source)
    (Path(flow.source) / "_delta_log").mkdir()
    with pytest.raises(NotThereYet, match=r"yet\. Found a _delta_log without a commit: restore the log"):
        open_existing("stream events", flow.source)


def test_failures_that_are_known_before_spark_are_told_to_the_file(flow: Flow) -> None:
    flow.write_rule()
    (flow.root / "rules" / "bad.yaml").write_text("rule: bad\n")
    file = FailureFile(flow.root / "failures")
    call(flow, "run", "counted", "bad", "--failures", str(file.path), code=1)
    found = file.read()
    assert {name: failure.exit_code for name, failure in found.items()} == {"counted": 1, "bad": 2}
    assert "no Delta table" in found["counted"].message
    assert [failure.is_final for failure in found.values()] == [True, False]


@pytest.mark.parametrize(("name", "why"), [("", "Is a directory"), ("none/x", "No such file or directory")])
def test_a_file_of_failures_that_cannot_be_written_is_refused_at_once(flow: Flow, name: str, why: str) -> None:
    flow.write_rule()
    path = flow.root / name
    said = call(flow, "run", "counted", "--failures", str(path), code=2)
    assert f"expected a file that can be appended to at {path}, found: {why}. Name another file" in said


def test_a_file_of_failures_that_goes_missing_hides_no_error(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FailureFile, "add", full)
    flow.write_rule()
    said = call(flow, "run", "counted", "--failures", str(flow.root / "failures"), code=1)
    assert "no Delta table" in said and "for rule counted: No space left on device" in said


def test_a_file_where_a_rules_home_must_be_is_refused_by_every_command(flow: Flow) -> None:
    flow.arrive([event(1)])
    flow.write_rule()
    flow.home.mkdir(parents=True, exist_ok=True)
    flow.place.path.write_text("x")
    said = f"expected a folder at {flow.place.path}, found a file"
    for words in (["run", "counted"], ["status", "counted"], ["sql", "counted"]):
        assert said in call(flow, *words, code=2), words
    assert said in call(flow, "plan", "counted", code=2)


def test_a_file_as_the_home_of_all_rules_is_refused_by_every_command(flow: Flow) -> None:
    flow.arrive([event(1)])
    flow.write_rule()
    flow.home.write_text("x")
    for words in (["run", "counted"], ["status", "counted"], ["plan", "counted"]):
        assert f"expected a folder at {flow.home}, found a file" in call(flow, *words, code=2), words


def test_a_file_where_a_folder_must_be_is_told_to_init_and_page(flow: Flow) -> None:
    (flow.root / "afile").write_text("x")
    folder, said = flow.root / "afile", "found a file: name another folder"
    assert f"expected a folder at {folder}, {said}" in call(flow, "init", str(folder), code=2)
    with pytest.raises(Refused, match="--page: expected the name of a file to write, found the folder"):
        check_shown(dry_run=True, cascade=False, page=flow.root)


def test_plan_says_delivery_settings_and_the_next_run(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.sinks, flow.settings = 1, {"epoch": {"max_files": 7}}
    flow.arrive([event(1)])
    path = flow.write_rule()
    path.write_text(path.read_text().replace(flow.source, "${EVENTS}").replace("30 seconds", "${LATE:-30 seconds}"))
    monkeypatch.setenv("EVENTS", flow.source)
    found = facts(flow, "plan", "counted")
    assert found["delivery"][0]["delivery"] == "exactly once"
    settings = {setting["name"]: (setting["value"], setting["origin"]) for setting in found["settings"]}
    assert settings["epoch.max_files"] == (7, "file")
    assert settings["qos"] == (2, "default")
    assert found["environment"] == {"EVENTS": "from the environment", "LATE": "its default"}
    assert "has not run yet" in found["next_run"]
    assert "windows of 1 minute" in call(flow, "plan", "counted")


def test_plan_says_what_becomes_of_a_row_for_which_something_raises(flow: Flow) -> None:
    flow.arrive([event(1)])
    flow.sql = "SELECT at, CAST(k AS INT) AS i FROM events"
    flow.write_rule()
    stops, alone = facts(flow, "plan", "counted")["errors"]
    assert stops.endswith("stops the run; nothing is written: CAST(k AS INT)")
    assert alone.startswith("an error above an aggregate")
    flow.settings["on_error"] = "dead"
    flow.write_rule()
    assert "raises an error goes to the dead table: CAST(k AS INT)" in call(flow, "plan", "counted")


def test_plan_says_how_a_sink_is_merged_into(flow: Flow) -> None:
    flow.arrive([event(1)])
    flow.settings = {"sinks": [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "key": ["k"], "delete": "c = 0"}]}
    flow.write_rule()
    added, merged = facts(flow, "plan", "counted")["sinks"]
    assert (added["key"], added["rows"]) == ([], "added")
    assert (merged["address"], merged["key"], merged["newest"], merged["delete"]) == (
        flow.sink(1),
        ["k"],
        None,
        "c = 0",
    )
    assert "rows one for each (k), replaced by the next one; deleted where c = 0" in call(flow, "plan", "counted")


def test_open_windows_are_those_of_committed_rows_that_end_after_the_watermark(flow: Flow) -> None:
    ledger = begun(flow)
    keep(flow, 1, 10, 70, 130)
    keep(flow, 2, 600)  # an epoch that is not committed
    folded(flow, ledger, 1, START + 150_000_000, START + 2 * MINUTE)
    assert ledger.head is not None
    found = open_windows(flow.rule(), ledger.head, flow.home)
    assert found is not None
    assert found.count == 1  # those of second 10 and 70 ended at or before the watermark
    assert found.oldest == (START + 2 * MINUTE, START + 3 * MINUTE)
    assert found.held.by == "events"
    assert found.held.needs == START + 3 * MINUTE + 30_000_000


def test_hopping_windows_are_each_counted_once(flow: Flow) -> None:
    flow.sql = HOPPING
    ledger = begun(flow)
    keep(flow, 1, 0, 5, 59)
    folded(flow, ledger, 1, START, None)
    assert ledger.head is not None
    found = open_windows(flow.rule(), ledger.head, flow.home)
    assert found is not None
    assert found.count == 5  # they start at -40, -20, 0, 20 and 40 seconds
    assert found.oldest == (START - 40_000_000, START + 20_000_000)


@pytest.mark.parametrize(
    ("more", "rows", "oldest", "until"),
    [
        ({"sql": OVER}, 2, 119, 120.000001),
        ({"sql": SESSIONS}, 3, 80, 120.000001),
        ({"process": "totals:Totals"}, 1, 130, 130.000001),
    ],
)
def test_status_tells_which_rows_wait_for_which_watermark(
    flow: Flow, more: dict[str, str], rows: int, oldest: float, until: float
) -> None:
    """The watermark is at second 120: a gap of 40 seconds after second 79 is over, one after second 80 is not quite."""
    for name, value in more.items():
        setattr(flow, name, value)
    ledger = begun(flow)
    keep(flow, 1, 79, 80, 119, 130)
    keep(flow, 2, 120)  # an epoch that is not committed
    folded(flow, ledger, 1, START + 150_000_000, START + 2 * MINUTE)
    found = facts(flow, "status", "counted")["rules"]["counted"]
    assert found["open_windows"] is None
    at = {"oldest": iso(START + round(oldest * 1e6)), "until": iso(START + round(until * 1e6))}
    needs = iso(START + round(until * 1e6) + 30_000_000)
    assert {**at, "rows": rows, "held_by": "events", "needs_event_time": needs}.items() <= found["waiting"].items()
    assert f"of {at['oldest']}. Results that depend on it are final at watermark {at['until']}" in call(flow, "status")


def test_status_tells_lag_totals_state_and_what_is_open(flow: Flow) -> None:
    ledger = begun(flow)
    keep(flow, 1, 130)
    folded(flow, ledger, 1, START + 150_000_000, START + 2 * MINUTE)
    flow.arrive([event(200)])
    flow.arrive([event(201)])
    ledger.intend(intent(flow, 2, START + 2 * MINUTE, START + 150_000_000, Counts(read=1, folded=1)))
    found = facts(flow, "status", "counted")["rules"]["counted"]
    assert found["lag"]["events"]["commits"] == 2
    assert found["totals"] == {"read": 3, "filtered": 0, "dropped": 0, "folded": 2, "late": 1, "dead": 0, "rejected": 0,
                               "lost": 0, "output": 1}  # fmt: skip
    assert found["state"]["events"]["rows"] == 1
    assert found["open"] == {"epoch": 2, "attempts": 1}
    assert found["watermark"] == "2001-01-01T00:02:00Z"
    assert (found["open_windows"]["count"], found["waiting"]) == (1, None)
    assert "the next run finishes it" in call(flow, "status")


def test_status_of_a_rule_without_runs(flow: Flow) -> None:
    flow.write_rule()
    assert "has not run yet" in call(flow, "status")


def test_epochs_lists_committed_lost_and_open_ones(flow: Flow) -> None:
    ledger = begun(flow)
    folded(flow, ledger, 1, START, None)
    flow.settings = {"qos": 0}
    lost = intent(flow, 1, None, START, Counts(read=4, filtered=1, folded=3))
    ledger.intend(lost)
    body = {"intent": lost.digest, "entry": lost.entry, "watermark": None, "maxima": lost.maxima, "counts": lost.counts}
    ledger.lose(Lost(**body, lost=3, lost_epochs=(2,), due=(None, None)))  # type: ignore[arg-type]
    ledger.intend(intent(flow, 1, None, START, Counts(read=9, folded=9)))
    ledger.intend(intent(flow, 1, None, START, Counts(read=9, folded=9)))
    found = facts(flow, "epochs", "counted")["epochs"]
    assert [epoch["result"] for epoch in found] == ["begun", "committed", "lost", "open"]
    assert (found[2]["read"], found[2]["filtered"], found[2]["folded"], found[2]["lost"]) == (4, 1, 0, 3)
    assert found[3]["attempts"] == 2
    assert len(facts(flow, "epochs", "counted", "--last", "2")["epochs"]) == 2


def test_late_and_dead_leave_out_what_is_not_committed(flow: Flow) -> None:
    folded(flow, begun(flow), 1, START, None)
    set_apart(flow.place.late, 1, 1, 2)
    set_apart(flow.place.dead, 1, 2)
    assert facts(flow, "late", "counted", "--limit", "1")["rows"] == 2
    assert facts(flow, "dead", "list", "counted")["rows"] == 1
    assert facts(flow, "dead", "counted", "list")["shown"][0]["_reason"] == "r"


def test_late_says_where_late_rows_are_not_kept(flow: Flow) -> None:
    folded(flow, begun(flow), 1, START, None)
    assert "counted but not kept" not in call(flow, "late", "counted")
    flow.settings = {"late": "drop"}
    flow.write_rule()
    assert "with `late: drop`, they are counted but not kept" in call(flow, "late", "counted")
    assert "counted but not kept" not in call(flow, "dead", "list", "counted")


def test_state_shows_what_a_window_still_needs(flow: Flow) -> None:
    ledger = begun(flow)
    keep(flow, 1, 10, 130)
    folded(flow, ledger, 1, START + 150_000_000, START + 2 * MINUTE)
    found = facts(flow, "state", "counted")["streams"]["events"]
    assert found["rows"] == 1
    assert found["shown"][0]["at"] == "2001-01-01T00:02:10Z"


def test_state_of_one_key(flow: Flow) -> None:
    ledger = begun(flow)
    keep(flow, 1, 10, 130)
    folded(flow, ledger, 1, START + 150_000_000, START)
    found = facts(flow, "state", "counted", "--key", "K=a", "--key", "_epoch=1")["streams"]["events"]
    assert found["rows"] == 2
    assert facts(flow, "state", "counted", "--key", "k=it's")["streams"]["events"]["rows"] == 0
    assert "did you mean k?" in call(flow, "state", "counted", "--key", "kk=a", code=2)
    assert "expected COLUMN=VALUE" in call(flow, "state", "counted", "--key", "k", code=2)


def test_commands_about_a_rule_that_has_not_run_are_refused(flow: Flow) -> None:
    flow.write_rule()
    for words in (["state", "counted"], ["epochs", "counted"], ["late", "counted"], ["reset", "counted", "--yes"]):
        assert "has not run yet" in call(flow, *words, code=2)


def test_reset_asks_and_refuses_without_anybody_to_ask(flow: Flow) -> None:
    folded(flow, begun(flow), 1, START, None)
    assert "--yes" in call(flow, "reset", "counted", code=2)
    said = facts(flow, "reset", "counted", "--dry-run")
    assert (said["done"], said["ended_generation"], said["emptied"][-1]) == (False, 1, flow.sink(1))
    assert flow.sink(0) not in facts(flow, "reset", "counted", "--dry-run", "--keep-output")["emptied"]


def test_reset_says_which_targets_keep_their_rows(flow: Flow) -> None:
    folded(flow, begun(flow), 1, START, None)
    target = {"kafka": {"connection": "shop", "topic": "rows"}, "on_reset": "keep"}
    flow.settings["sinks"] = [{"delta": flow.sink()}, target]
    flow.write_rule()
    assert facts(flow, "reset", "counted", "--dry-run")["emptied"][3:] == [flow.sink()]
    assert "kept: the rows of target rows" in call(flow, "reset", "counted", "--dry-run")


def test_a_rule_that_another_run_holds_is_refused_before_spark_and_names_it(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded(flow, begun(flow), 1, START, None)
    flow.arrive([event(2)])
    flow.place.lock.with_name("lock.owner").write_text(
        '{"run": "other", "host": "h", "since": "s", "driver_pid": 1, "jvm_pid": 2}'
    )
    hold = (
        "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print(flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", hold, str(flow.place.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert other.stdout
        other.stdout.readline()
        monkeypatch.setitem(sys.modules, "pyspark", None)
        assert "run other holds the rule" in call(flow, "run", "counted", code=1)
        assert "run other holds" in facts(flow, "status", "counted")["rules"]["counted"]["holder"]
    finally:
        other.communicate()


def test_a_signal_cancels_what_spark_does_and_is_seen_between_epochs() -> None:
    context, levels = SimpleNamespace(cancelled=threading.Event()), list[str]()
    context.cancelAllJobs, context.setLogLevel = context.cancelled.set, levels.append
    with Stopping() as stopping:
        stopping.check()
        stopping.application(SimpleNamespace(sparkContext=context))  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGTERM)
        assert context.cancelled.wait(5)
        assert levels == ["OFF"], "what is cancelled is no error that anybody looks for"
        with pytest.raises(RunFailed, match="the next run finishes"):
            stopping.check()
    assert stopping.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("when", ["loading", "starting"])
def test_an_interrupt_before_the_command_ends_quietly(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    loaded: Any = SimpleNamespace(app=interrupted)
    if when == "loading":
        loaded = type("Loading", (), {"__getattr__": interrupted})()
    monkeypatch.setitem(sys.modules, "floodmark.cli.app", loaded)
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 130


def test_init_writes_a_rule_that_is_valid_and_overwrites_nothing(flow: Flow) -> None:
    said = call(flow, "init", str(flow.root / "mine"))
    assert "floodmark run hello" in said
    assert "OK" in call(flow, "validate", str(flow.root / "mine" / "rules"))
    assert [str(case) for case in cases(flow.root / "mine" / "rules")] == [
        "hello: a minute is written once no event can change it any more"
    ]
    before = (flow.root / "mine" / "rules" / "hello.yaml").read_text()
    assert "not overwritten" in call(flow, "init", str(flow.root / "mine"), code=2)
    assert (flow.root / "mine" / "rules" / "hello.yaml").read_text() == before


def test_an_unexpected_error_is_told_in_one_line(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    flow.write_rule()
    monkeypatch.setattr("floodmark.cli.shared.selection.load_folder", broken)
    assert call(flow, "list", code=1).strip() == "error: ZeroDivisionError: by nothing"


def test_a_backfill_ends_where_a_run_has_gone_on_by_an_edited_text_while_it_waited(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = begun(flow)
    folded(flow, ledger, 1, START, None)

    def waited(wanted: Any, wait: float, say: Any) -> None:
        assert ledger.head is not None
        wanted(ledger.head)
        flow.sql = TUMBLING.replace("max(n)", "min(n)")
        folded(flow, ledger, 2, START, None)
        wanted(ledger.head)

    monkeypatch.setattr("floodmark.core.lifecycle.backfills.requested_interval", lambda *_: None)
    monkeypatch.setattr("floodmark.cli.commands.backfill.with_spark", lambda rule, master, work, others: work(None))
    monkeypatch.setattr("floodmark.cli.commands.backfill._job", lambda *_: SimpleNamespace(backfill=waited))
    times = ["--from", "2001-01-01T00:00Z", "--to", "2001-01-01T00:01Z"]
    assert "Start the backfill again" in call(flow, "backfill", "counted", *times, code=1)


def test_a_backfill_finds_a_sink_that_was_moved_since_the_last_run(flow: Flow) -> None:
    flow.sinks, moved = 1, flow.root / "moved"
    ledger = begun(flow)
    write_deltalake(flow.sink(), pa.table({"c": [1]}))
    ids = {f"sink/{flow.sink()}": str(DeltaTable(flow.sink()).metadata().id)}
    found = intent(flow, 0, START, START, Counts())
    ledger.intend(found)
    ledger.commit(commit(found).model_copy(update={"table_ids": ids}))
    Path(flow.sink()).rename(moved)
    flow.settings = {"sinks": [{"delta": str(moved)}]}
    flow.write_rule()
    times = ("--from", "2001-01-01T00:00Z", "--to", "2001-01-01T00:01Z")
    assert "are not final: expected the watermark at" in call(flow, "backfill", "counted", *times, code=2)


def test_a_table_for_a_caller_that_has_closed_stdout_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert not output.is_terminal()
    output.table(["rule"], [["counted"]])
