"""Retire, rename, drop and adopt by the command line, on real tables and without Spark; killed at every point."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from support.byhand import intent
from support.flow import Flow, rows_of
from support.lives import an_epoch, by_hand, lived
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.cli.commands import recheck, retire
from floodmark.cli.shared import rulechange
from floodmark.connectors.backlog.news import look
from floodmark.connectors.delta import adopting
from floodmark.connectors.delta.sink import DeltaSink
from floodmark.connectors.ports import releasing
from floodmark.connectors.preflight import check_tables, check_without_jvm
from floodmark.connectors.relay.aside import Aside
from floodmark.connectors.relay.memory import check_home, recall, remember_fault
from floodmark.core.protocol import crashpoints
from floodmark.core.protocol.records.rows import Counts, Life, Seal
from floodmark.errors import (
    Busy,
    Fenced,
    FloodmarkError,
    HomeUnfit,
    LedgerBroken,
    NotOwned,
    Refused,
    Retired,
    RunFailed,
)
from floodmark.ledger import dropping, renaming
from floodmark.ledger.delta import tables
from floodmark.ledger.holder import flock_asking, holder_in, holder_pid, holder_text, is_orphan, owner_file, relay_lock
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.ledger.locking import held
from floodmark.spark.session import lock
from floodmark.views.homes import homes

POINTS = {
    what: [point for point in crashpoints.LIFE_POINTS if point.startswith(what)]
    for what in ("retire", "rename", "drop", "adopt")
}


@pytest.fixture
def flow(place: Path) -> Flow:
    return Flow(place)


def call(flow: Flow, *words: str, code: int = 0) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), "COLUMNS": "200"}
    found = CliRunner().invoke(app, [*words], env=places)
    assert found.exit_code == code, found.output
    return found.output


def facts(flow: Flow, *words: str) -> Any:
    return json.loads(call(flow, *words, "--json"))


def crashed(flow: Flow, point: str, *words: str) -> None:
    """The command, ended at this point."""
    with _planted(point) as fired:
        call(flow, *words, code=1)
    assert fired, f"{point} was not reached"


@contextmanager
def _planted(point: str) -> Iterator[list[str]]:
    fired: list[str] = []

    def reach(rule: str, at: str, epoch: int | None = None) -> None:
        if at == point and not fired:
            fired.append(at)
            raise OSError(f"planted at {at}")

    with pytest.MonkeyPatch.context() as patch:
        for module in (adopting, dropping, recheck, renaming, retire):
            patch.setattr(module, "reach", reach)
        yield fired


# ---------------------------------------------------------------------------------------------------- retire


def test_a_retired_rule_is_run_by_nobody_and_keeps_its_data(flow: Flow) -> None:
    ledger = lived(flow)
    assert "it no longer runs after epoch 1" in call(flow, "retire", "counted", "--dry-run")
    assert "--yes" in call(flow, "retire", "counted", code=2)
    assert flow.ledger().head.retired is None  # type: ignore[union-attr]
    call(flow, "retire", "counted", "--yes", "--run-id", "me")
    for words in (["run", "counted"], ["reset", "counted", "--yes"], ["dead", "replay", "counted"]):
        assert "was retired" in call(flow, *words, code=2)
    assert "was retired" in str(look(flow.rule(), flow.home).retired)
    with pytest.raises(Retired):
        an_epoch(flow, Ledger.open(flow.place.ledger, "late"))
    assert len(rows_of(flow.sink())) == 1
    assert "by me" in call(flow, "status", "counted")
    assert "already retired" in call(flow, "retire", "counted", "--yes")
    assert ledger.id == flow.ledger().id


def test_a_live_twin_of_the_run_cannot_write_any_more_once_the_rule_is_retired(flow: Flow) -> None:
    twin = lived(flow)
    call(flow, "retire", "counted", "--yes")
    with pytest.raises(Fenced):
        an_epoch(flow, twin)


def test_all_leaves_retired_rules_out_and_goes_on_with_the_others(flow: Flow) -> None:
    lived(flow)
    call(flow, "retire", "counted", "--yes")
    found = facts(flow, "run", "--all")
    assert (found["exit_code"], found["rules"]["counted"]["result"]) == (0, "retired")
    assert "was retired" in call(flow, "run", "--all")


def test_a_rule_with_an_open_epoch_is_retired_only_as_it_is(flow: Flow) -> None:
    ledger = lived(flow)
    an_open_epoch(flow, ledger)
    assert "`floodmark run counted` finishes it first" in call(flow, "retire", "counted", "--yes", code=2)
    assert "epoch 2 is open" in call(flow, "retire", "counted", "--as-is", "--yes")
    call(flow, "retire", "counted", "--undo", "--yes")
    head = flow.ledger().head
    assert head is not None and head.open is not None and head.attempt == 1


def an_open_epoch(flow: Flow, ledger: Ledger) -> None:
    ledger.intend(intent(flow, 3, None, 0, Counts(read=1, folded=1)))


@pytest.mark.parametrize("point", ["recheck.before", "recheck.after"])
def test_a_check_that_failed_stops_every_run_until_it_is_to_be_repeated(flow: Flow, point: str) -> None:
    ledger = lived(flow)
    assert "no check has failed" in call(flow, "recheck", "counted", "--yes")
    an_open_epoch(flow, ledger)
    ledger.live(Life(what="failed", said="rows are doubled"))
    assert "rows are doubled" in call(flow, "run", "counted", code=3)
    assert "rows are doubled" in call(flow, "status", "counted")
    assert "--yes" in call(flow, "recheck", "counted", code=2)
    assert facts(flow, "recheck", "counted", "--dry-run")["failed"] == "rows are doubled"

    crashed(flow, point, "recheck", "counted", "--yes")
    call(flow, "recheck", "counted", "--yes")
    assert flow.ledger().head.failed is None  # type: ignore[union-attr]


def test_a_rule_that_is_back_goes_on_where_it_stood(flow: Flow) -> None:
    lived(flow)
    call(flow, "retire", "counted", "--yes")
    assert "is back" in call(flow, "retire", "counted", "--yes", "--undo")
    assert "is not retired" in call(flow, "retire", "counted", "--undo", "--yes")
    ledger = Ledger.open(flow.place.ledger, "again")
    an_epoch(flow, ledger)
    assert len(rows_of(flow.sink())) == 2


@pytest.mark.parametrize("point", POINTS["retire"])
@pytest.mark.parametrize("undo", [False, True])
def test_a_retire_that_was_killed_is_taken_again(flow: Flow, point: str, undo: bool) -> None:
    lived(flow)
    words = ["retire", "counted", "--yes"]
    if undo:
        call(flow, *words)
        words.append("--undo")
    crashed(flow, point, *words)
    call(flow, *words)
    head = flow.ledger().head
    assert head is not None and (head.retired is None) == undo
    assert len([row for row in flow.ledger().rows if row.kind == "life"]) == 1 + undo


def test_the_ledger_takes_no_turn_that_does_not_fit(flow: Flow) -> None:
    ledger = lived(flow)
    for what in ("returned", "dropping", "dropped"):
        with pytest.raises(LedgerBroken, match=f"cannot be {what}"):
            ledger.live(Life(what=what))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------- rename


def renamed(flow: Flow) -> Flow:
    """The same tables under the rule's new name; the rule file follows."""
    sinks = {"sinks": [{"delta": flow.sink(i)} for i in range(flow.sinks)], "streams": flow.text()["streams"]}
    (flow.root / "rules" / "counted.yaml").unlink()
    return Flow(flow.root, "other", settings=sinks)


def test_a_rename_keeps_everything_but_the_name(flow: Flow) -> None:
    before = lived(flow)
    said = call(flow, "rename", "counted", "other", "--dry-run")
    assert "counted.yaml to" in said and "write `rule: other` in it" in said
    assert flow.place.path.exists()
    call(flow, "rename", "counted", "other", "--yes")
    assert not flow.place.path.exists()
    again = renamed(flow)
    ledger = Ledger.open(again.place.ledger, "after")
    assert ledger.id == before.id
    again.write_rule()
    assert look(again.rule(), flow.home).why is None
    DeltaSink(flow.sink()).check(ledger.id)
    certificate = audit("other", flow.home, deep=False)
    assert certificate is not None
    assert not [one for one in certificate.findings if "life" in one.what]
    assert "counted is already named other" in call(flow, "rename", "counted", "other", "--yes")
    assert "never" in call(flow, "rename", "never", "other", "--yes", code=2)
    call(flow, "rename", "other", "third", "--yes")
    assert "counted is already named third" in call(flow, "rename", "counted", "third", "--yes")


@pytest.mark.parametrize("point", POINTS["rename"])
def test_a_rename_that_was_killed_runs_under_neither_name_until_it_is_taken_again(flow: Flow, point: str) -> None:
    before = lived(flow)
    crashed(flow, point, "rename", "counted", "other", "--yes")
    if point == "rename.intent.after":
        assert "continues it" in call(flow, "run", "counted", code=2)
        assert "rename counted other" in call(flow, "retire", "counted", "--yes", code=2)
        assert "renamed" in call(flow, "status", "counted")
    call(flow, "rename", "counted", "other", "--yes")
    again = renamed(flow)
    again.write_rule()
    head = again.ledger().head
    assert head is not None and (again.ledger().id, head.name) == (before.id, "other")
    assert look(again.rule(), flow.home).why is None
    assert [row.kind for row in again.ledger().rows].count("life") == 1


def test_a_rename_that_has_begun_can_be_turned_back(flow: Flow) -> None:
    lived(flow)
    crashed(flow, "rename.intent.after", "rename", "counted", "other", "--yes")
    call(flow, "rename", "counted", "counted", "--yes")
    assert look(flow.rule(), flow.home).why is None


def test_a_name_that_is_taken_and_a_rule_file_that_does_not_fit_are_refused(flow: Flow) -> None:
    lived(flow)
    other = Flow(flow.root, "other")
    other.arrive([])
    other.write_rule()
    assert "sinks (one was removed)" in call(flow, "rename", "counted", "other", "--yes", code=2)
    lived(Flow(flow.root, "third"))
    assert "already exists" in call(flow, "rename", "counted", "third", "--yes", code=2)
    assert "did you mean 'counted'" in call(flow, "rename", "couted", "fourth", "--yes", code=2)
    assert "letters, digits and _" in call(flow, "rename", "counted", "../x", "--yes", code=2)
    for name in ("1a", "Counted", "_x", "x" * 64):
        assert "expected a name of at most 63 lowercase letters" in call(
            flow, "rename", "counted", name, "--yes", code=2
        )


@pytest.mark.parametrize("is_link", [False, True])
def test_a_rename_takes_the_place_of_an_empty_folder(flow: Flow, is_link: bool) -> None:
    lived(flow)
    if is_link:
        flow.place.path.rename(flow.root / "disk")
        flow.place.path.symlink_to(flow.root / "disk")
    (flow.home / "fresh").mkdir()
    call(flow, "rename", "counted", "fresh", "--yes")
    assert (flow.home / "fresh" / "ledger").is_dir() and (flow.home / "fresh").is_symlink() == is_link


def test_a_rename_onto_a_link_is_refused_before_the_ledger_has_it(flow: Flow) -> None:
    lived(flow)
    (flow.root / "empty").mkdir()
    (flow.home / "fresh").symlink_to(flow.root / "empty")
    assert "found a link" in call(flow, "rename", "counted", "fresh", "--yes", code=2)
    assert flow.ledger().head.name is None  # type: ignore[union-attr]


def begins(flow: Flow, name: str) -> None:
    """A rule of this name passes the checks before its first run; its sinks are not those of `flow`."""
    rule = flow.rule()
    sinks = tuple(one.model_copy(update={"address": f"{one.address}_{name}"}) for one in rule.sinks)
    check_without_jvm(rule.model_copy(update={"rule": name, "sinks": sinks}), flow.home)


def test_no_rule_begins_under_a_name_that_another_one_had(flow: Flow) -> None:
    lived(flow)
    begins(flow, "other")
    call(flow, "rename", "counted", "other", "--yes")
    with pytest.raises(Refused, match=r"counted was renamed to other, .*`rule: other`.*`floodmark drop counted --all`"):
        begins(flow, "counted")
    call(flow, "rename", "other", "third", "--yes")
    for name in ("counted", "other"):
        with pytest.raises(Refused, match="was renamed to third"):
            begins(flow, name)
    call(flow, "rename", "third", "counted", "--yes")
    begins(flow, "counted")
    assert homes(flow.home) == ["counted"]


@pytest.mark.parametrize("point", POINTS["rename"])
def test_no_rule_begins_under_either_name_of_a_rename_that_was_killed(flow: Flow, point: str) -> None:
    lived(flow)
    crashed(flow, point, "rename", "counted", "other", "--yes")
    if point != "rename.intent.before":
        with pytest.raises(Refused, match="renamed"):
            begins(flow, "counted")
    call(flow, "rename", "counted", "other", "--yes")
    with pytest.raises(Refused, match="was renamed to other"):
        begins(flow, "counted")


def test_an_older_name_is_free_once_it_is_dropped(flow: Flow) -> None:
    lived(flow)
    call(flow, "rename", "counted", "other", "--yes")
    said = call(flow, "drop", "counted", "--all", "--dry-run")
    assert "renamed to other" in said and Home(flow.home, "counted").renamed.exists()
    assert "the name is free" in call(flow, "drop", "counted", "--all", "--yes")
    begins(flow, "counted")
    assert Path(Home(flow.home, "other").ledger).is_dir()


def test_older_names_are_free_once_the_rule_is_dropped(flow: Flow) -> None:
    lived(flow)
    call(flow, "rename", "counted", "other", "--yes")
    renamed(flow).write_rule()
    call(flow, "retire", "other", "--yes")
    call(flow, "drop", "other", "--all", "--yes")
    begins(flow, "counted")


def test_older_names_are_free_once_a_drop_that_was_killed_is_repeated(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise RunFailed("killed")

    lived(flow)
    call(flow, "rename", "counted", "other", "--yes")
    renamed(flow).write_rule()
    call(flow, "retire", "other", "--yes")
    with monkeypatch.context() as patched:
        patched.setattr(dropping, "free_names", killed)
        call(flow, "drop", "other", "--all", "--yes", code=1)
    call(flow, "drop", "other", "--all", "--yes")
    begins(flow, "counted")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ledger": "1"}'])
def test_a_note_that_a_power_loss_left_empty_stops_its_own_name_alone(flow: Flow, text: str) -> None:
    lived(flow)
    note = Home(flow.home, "third").renamed
    note.parent.mkdir()
    note.write_text(text)
    (note.parent / "gone.json").symlink_to("nowhere")  # as of a file that vanishes before it is read
    call(flow, "rename", "counted", "other", "--yes")
    with pytest.raises(Refused, match=r"third\.json cannot be read: expected the name that rule third has now"):
        renaming.renamed_to(Home(flow.home, "third"))
    renamed(flow).write_rule()
    call(flow, "retire", "other", "--yes")
    call(flow, "drop", "other", "--all", "--yes")
    begins(flow, "counted")


def test_a_note_is_on_disk_before_the_home_moves(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(flow)
    synced, sync = list[str](), os.fsync

    def watch(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().name)
        assert flow.place.path.exists()
        sync(handle)

    monkeypatch.setenv("FLOODMARK_SYNC", "1")
    monkeypatch.setattr(os, "fsync", watch)
    call(flow, "rename", "counted", "other", "--yes")
    assert {"counted.json.new", "counted.json", ".renamed", flow.home.name} <= set(synced)


def test_a_relay_that_was_at_work_does_not_make_a_renamed_home_again(flow: Flow) -> None:
    lived(flow)
    folder = flow.place.path / "outbox" / "t"
    remember_fault(folder, "no route to host")
    assert recall(folder).fault == "no route to host"
    call(flow, "rename", "counted", "other", "--yes")
    remember_fault(folder, "no route to host")
    with pytest.raises(FileNotFoundError):
        Aside("postgres://shop/t", flow.place.path / "undelivered" / "t").add([])
    with pytest.raises(RunFailed, match="renamed or dropped while a relay was at work"):
        check_home(folder, OSError())
    assert not flow.place.path.exists()
    assert "counted is already named other" in call(flow, "rename", "counted", "other", "--yes")


RELAY = """
import sys
from contextlib import closing
from pathlib import Path
from floodmark.connectors.relay.alone import Alone
with closing(Alone(Path(sys.argv[1]))) as alone:
    alone.take()
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("words", [("rename", "counted", "other"), ("drop", "counted", "--all")])
def test_no_home_moves_or_goes_while_a_relay_holds_a_target(flow: Flow, words: tuple[str, ...]) -> None:
    lived(flow)
    (outbox := flow.place.path / "outbox" / "postgres-1a").mkdir(parents=True)
    call(flow, "retire", "counted", "--yes")
    rows = len(flow.ledger().rows)
    command = [sys.executable, "-c", RELAY, str(outbox)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert "another relay ships to target postgres, since" in call(flow, *words, "--yes", code=1)
        other.communicate("")
    assert len(flow.ledger().rows) == rows and flow.place.path.exists()
    call(flow, *words, "--yes")
    assert not flow.place.path.exists()
    assert not [*flow.home.glob("*/outbox/*.owner")], "which would name who held it before the move"


def test_a_relay_names_the_run_that_moves_its_home(flow: Flow) -> None:
    lived(flow)
    (outbox := flow.place.path / "outbox" / "postgres-1a").mkdir(parents=True)
    with held(relay_lock(outbox), "one"):
        assert "run one holds the rule, since" in holder_text(relay_lock(outbox))


def test_a_folder_without_a_ledger_is_told_apart_from_a_rules_home(flow: Flow) -> None:
    lived(flow)
    (flow.home / "third" / "outbox").mkdir(parents=True)
    assert "has files, and no ledger" in call(flow, "rename", "counted", "third", "--yes", code=2)


# ---------------------------------------------------------------------------------------------------- drop


def retired(flow: Flow) -> Ledger:
    ledger = lived(flow)
    call(flow, "retire", "counted", "--yes")
    return ledger


def test_a_rule_that_can_run_is_not_dropped(flow: Flow) -> None:
    lived(flow)
    assert "retire it first with `floodmark retire counted`" in call(flow, "drop", "counted", "--all", "--yes", code=2)
    expected = "expected --state, --sinks or both, or only --all, found"
    assert f"{expected} none: choose" in call(flow, "drop", "counted", "--yes", code=2)
    assert f"{expected} --state and --all: --all includes" in call(flow, "drop", "counted", "--state", "--all", code=2)


def test_state_that_only_a_backfill_has_written_is_known_too() -> None:
    bodies = {"commit": {"state/one": "a"}, "backfilled": {"state/new": "b"}, "intent": {"state/none": "c"}}
    rows = [
        SimpleNamespace(kind=kind, generation=2, body=json.dumps({"table_ids": ids})) for kind, ids in bodies.items()
    ]
    found = dropping.known(SimpleNamespace(rows=rows, head=None), Home(Path("/home"), "counted"))  # type: ignore[arg-type]
    assert [(one.name, one.id) for one in found] == [("state/g2/one", "a"), ("state/g2/new", "b")]


def test_a_dry_run_names_every_table_and_who_reads_it(flow: Flow) -> None:
    retired(flow)
    reader = Flow(flow.root, "reader", stream={"delta": flow.sink(1), "event_time": None, "lateness": None},
                  sql="SELECT k, c FROM events")  # fmt: skip
    reader.write_rule()
    found = facts(flow, "drop", "counted", "--sinks", "--dry-run")
    assert [one["address"] for one in found["tables"]] == [flow.sink(0), flow.sink(1)]
    assert [(one["rule"], one["sink"]) for one in found["downstream"]] == [("reader", flow.sink(1))]
    assert "rule reader reads counted_out1" in call(flow, "drop", "counted", "--sinks", "--dry-run")
    assert Path(flow.sink(0)).exists()


def test_state_and_sinks_go_and_the_ledger_says_so(flow: Flow) -> None:
    retired(flow)
    call(flow, "drop", "counted", "--state", "--yes")
    assert not (flow.place.path / "state").exists() and Path(flow.sink()).exists()
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not Path(flow.sink(0)).exists() and not Path(flow.sink(1)).exists()
    assert Path(flow.place.late).exists()
    certificate = audit("counted", flow.home, deep=True)
    assert certificate is not None
    gone = [one for one in certificate.findings if "was dropped" in one.what]
    assert sorted(str(one.table) for one in gone) == [f"sink/{flow.sink(0)}", f"sink/{flow.sink(1)}"]
    assert {one.verdict for one in gone} == {"unknown"}
    assert not [one for one in certificate.findings if "no table at" in one.what]
    assert "nothing: no such table exists" in call(flow, "drop", "counted", "--sinks", "--yes")
    epochs = call(flow, "epochs", "counted")
    assert "retired" in epochs and "dropped" in epochs


def test_all_leaves_nothing_and_list_shows_homes_without_a_rule_file(flow: Flow) -> None:
    retired(flow)
    (flow.root / "rules" / "counted.yaml").unlink()
    assert "counted: no rule file; epoch 1 of generation 1; retired" in call(flow, "list")
    assert [one["rule"] for one in facts(flow, "list")["homes_without_rule"]] == ["counted"]
    call(flow, "drop", "counted", "--all", "--yes")
    assert sorted(path.name for path in flow.home.iterdir()) == []
    assert [path.name for path in Path(flow.source).parent.iterdir()] == ["counted_events"]
    assert "no home of rule 'counted'" in call(flow, "drop", "counted", "--all", "--yes", code=2)


ALL = ("--all",)
DROPS = [(ALL, point) for point in POINTS["drop"]]
DROPS += [(("--state", "--sinks"), point) for point in POINTS["drop"] if not point.startswith("drop.home")]


@pytest.mark.parametrize(("options", "point"), DROPS)
def test_a_drop_that_was_killed_is_finished_and_no_reader_meets_half_a_table(
    flow: Flow, options: tuple[str, ...], point: str
) -> None:
    retired(flow)
    words = ["drop", "counted", *options, "--yes"]
    crashed(flow, point, *words)
    for sink in (flow.sink(0), flow.sink(1)):
        assert not Path(sink).exists() or len(rows_of(sink)) == 1
    if flow.place.path.exists() and flow.ledger().head.dropping:  # type: ignore[union-attr]
        assert "has not finished" in call(flow, "retire", "counted", "--undo", "--yes", code=2)
    call(flow, *words)
    assert not Path(flow.sink(0)).exists() and not Path(flow.sink(1)).exists()
    left = [path.name for folder in (flow.home, Path(flow.sink()).parent) for path in folder.iterdir()]
    assert sorted(left) == ["counted_events"] if options == ALL else ["counted", "counted_events"]
    if options != ALL:
        assert not (flow.place.path / "state").exists()
        head = flow.ledger().head
        assert head is not None and head.dropping is None


def others_wrote(flow: Flow, ledger: Ledger) -> str:
    by_hand(flow.sink())
    return "others have written to it"


def others_wrote_without_a_word(flow: Flow, ledger: Ledger) -> str:
    """Of the commit the log says nothing but what it did, as Delta's protocol allows."""
    by_hand(flow.sink())
    newest = max((Path(flow.sink()) / "_delta_log").glob("*.json"))
    newest.write_text("".join(line for line in newest.open() if '"commitInfo"' not in line))
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return "others have written to it"


def others_own(flow: Flow, ledger: Ledger) -> str:
    DeltaTable(flow.sink()).alter.set_table_properties({tables.OWNER: "somebody"}, raise_if_not_exists=False)
    return "belongs to another ledger"


def was_there(flow: Flow, ledger: Ledger) -> str:
    DeltaTable(flow.sink()).alter.set_table_properties({tables.ADOPTED: "0"}, raise_if_not_exists=False)
    return "was there before the rule"


def other_inside(flow: Flow, ledger: Ledger) -> str:
    by_hand(f"{flow.sink()}/more/inside")
    return "it contains another table"


def other_files(flow: Flow, ledger: Ledger) -> str:
    """Of a table in another format, as its writers name them."""
    for name in ("notes.csv", "ice/data/part-0.parquet", "ice/metadata/v1.metadata.json", "export.parquet"):
        file = Path(flow.sink()) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    return "export.parquet, ice/data/part-0.parquet, ice/metadata/v1.metadata.json and 1 more. Move them elsewhere"


def other_rule(flow: Flow, ledger: Ledger) -> str:
    Flow(flow.root, "twin", settings={"sinks": [{"delta": flow.sink()}]}).write_rule()
    (flow.root / "rules" / "counted.yaml").unlink()
    return "rule twin writes it, too"


PLANTS = [others_wrote, others_wrote_without_a_word, others_own, was_there, other_inside, other_files, other_rule]


@pytest.mark.parametrize("plant", PLANTS)
def test_a_table_that_is_not_the_rules_own_is_never_removed(flow: Flow, plant: Any) -> None:
    why = plant(flow, retired(flow))
    said = call(flow, "drop", "counted", "--sinks", "--yes", code=2)
    assert why in said and Path(flow.sink(1)).exists()
    call(flow, "drop", "counted", "--all", "--leave-others", "--yes")
    assert Path(flow.sink(0)).exists() and not Path(flow.sink(1)).exists()
    assert rows_of(flow.sink(0))


def test_a_drop_tells_what_stays_and_not_that_nothing_does(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    others_own(flow, retired(flow))
    monkeypatch.setattr(releasing, "release", lambda *_: {"events": "stream events: busy. Not removed: slot s"})
    old = flow.root / "old"
    shutil.copytree(flow.home, old)
    found = facts(flow, "drop", "counted", "--all", "--leave-others", "--yes")["left"]
    assert sorted(found) == [f"sink/{flow.sink(0)}", "stream/events"] and "slot s" in found["stream/events"]
    (old / "counted").rename(flow.place.path)
    said = call(flow, "drop", "counted", "--all", "--leave-others", "--yes")
    assert "Not removed: slot s" in said and "nothing is left of it but what is named above" in said


@pytest.mark.parametrize("name", [
    "part-0-of-a-killed-run.snappy.parquet", "k=a/part-0.parquet", "aB/part-0.parquet", "deletion_vector_1.bin",
    "_change_data/cdc-0.parquet", "_temporary/0/x", ".part-0.parquet.crc", "_SUCCESS",
])  # fmt: skip
def test_what_writers_of_the_table_leave_beside_its_files_goes_with_it(flow: Flow, name: str) -> None:
    retired(flow)
    file = Path(flow.sink()) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not Path(flow.sink()).exists()


def test_commits_that_move_no_rows_make_a_table_nobody_elses(flow: Flow) -> None:
    """As `CLUSTER BY` of the rule's own layout: its operation has a name of its own."""
    retired(flow)
    entry = {"commitInfo": {"operation": "CLUSTER BY", "timestamp": 0}}
    log = Path(flow.sink()) / "_delta_log"
    (log / f"{DeltaTable(flow.sink()).version() + 1:020}.json").write_text(json.dumps(entry))
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not Path(flow.sink()).exists()


def test_a_sink_that_is_not_where_the_ledger_knows_it_is_named_and_not_passed_over(flow: Flow) -> None:
    """A lake that was moved while the rule was retired: no run could record the new place."""
    retired(flow)
    Path(flow.sink(0)).rename(f"{flow.sink(0)}.moved")
    said = call(flow, "drop", "counted", "--all", "--yes", code=2)
    assert "sink counted_out0: the table with id" in said and "is not there: it was moved, or removed" in said
    assert "`floodmark retire counted --undo` and run the rule once" in said
    by_hand(flow.sink(0))
    assert "is not there" in call(flow, "drop", "counted", "--all", "--yes", code=2)
    assert Path(flow.sink(1)).exists() and flow.place.path.exists()
    call(flow, "drop", "counted", "--sinks", "--leave-others", "--yes")
    assert not Path(flow.sink(1)).exists()
    assert len(rows_of(flow.sink(0))) == 1 and rows_of(f"{flow.sink(0)}.moved")


def test_what_others_wrote_to_since_a_drop_was_announced_stays(flow: Flow) -> None:
    retired(flow)
    crashed(flow, "drop.intent.after", "drop", "counted", "--sinks", "--yes")
    assert "with the same options" in call(flow, "maintain", "counted", "--yes", code=2)
    assert "--undo" not in call(flow, "status", "counted")
    by_hand(flow.sink(1))
    assert "others have written" in call(flow, "drop", "counted", "--sinks", "--yes", code=2)
    call(flow, "drop", "counted", "--sinks", "--leave-others", "--yes")
    assert not Path(flow.sink(0)).exists() and len(rows_of(flow.sink(1))) == 2
    head = flow.ledger().head
    assert head is not None and head.dropping is None


def test_files_that_others_put_into_a_sink_since_a_drop_was_announced_stay(flow: Flow) -> None:
    retired(flow)
    crashed(flow, "drop.intent.after", "drop", "counted", "--sinks", "--yes")
    notes = Path(flow.sink(1)) / "notes.csv"
    notes.write_text("x")
    assert "files that are not the table's: notes.csv" in call(flow, "drop", "counted", "--sinks", "--yes", code=2)
    found = facts(flow, "drop", "counted", "--sinks", "--leave-others", "--yes")
    assert notes.exists() and not Path(flow.sink(0)).exists()
    assert "notes.csv" in found["left"][f"sink/{flow.sink(1)}"]


def test_files_that_others_put_into_a_sink_just_now_are_told(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    retired(flow)
    notes = Path(flow.sink(1)) / "notes.csv"
    monkeypatch.setattr(dropping, "reach", lambda *_: notes.write_text("x"))
    said = call(flow, "drop", "counted", "--sinks", "--yes")
    assert "not removed: sink counted_out1: its folder has files that are not the table's: notes.csv" in said
    assert notes.exists() and not Path(flow.sink(0)).exists()


def test_an_old_copy_of_a_home_drops_no_sink_that_another_goes_on_with(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = lived(flow)
    old = flow.root / "old"
    shutil.copytree(flow.home, old)
    an_epoch(flow, ledger)
    words = ["--home", str(old), "--yes"]
    call(flow, "retire", "counted", *words)
    found = call(flow, "drop", "counted", "--all", *words, code=2)
    assert "sink counted_out0: it is ahead of this ledger, which ends at epoch 1" in found
    assert "remove this copy of the home by hand" in found
    call(flow, "drop", "counted", "--sinks", "--leave-others", *words)
    assert len(rows_of(flow.sink(0))) == len(rows_of(flow.sink(1))) == 2
    asked = list[bool]()
    monkeypatch.setattr(releasing, "release", lambda rule, home, leave, is_older: asked.append(is_older) or {})
    call(flow, "drop", "counted", "--all", "--leave-others", *words)
    assert asked == [True], "the slot of a source would be gone"
    call(flow, "retire", "counted", "--yes")
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not Path(flow.sink(0)).exists()


def test_a_home_on_another_disk_goes_and_so_does_the_link_to_it(flow: Flow) -> None:
    retired(flow)
    disk = flow.root / "disk"
    flow.place.path.rename(disk)
    flow.place.path.symlink_to(disk)
    crashed(flow, "drop.home.moved", "drop", "counted", "--all", "--yes")
    call(flow, "drop", "counted", "--all", "--yes")
    assert not disk.exists() and not list(flow.home.iterdir())


@pytest.mark.parametrize("point", ["drop.intent.before", "drop.table.moved"])
def test_a_sink_on_another_disk_goes_and_so_does_the_link_to_it(flow: Flow, point: str) -> None:
    retired(flow)
    disk = flow.root / "disk"
    Path(flow.sink(0)).rename(disk)
    Path(flow.sink(0)).symlink_to(disk)
    crashed(flow, point, "drop", "counted", "--sinks", "--yes")
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not disk.exists() and not Path(flow.sink(0)).is_symlink() and not Path(flow.sink(1)).exists()
    assert not list(Path(flow.sink(0)).parent.glob(f"{dropping.TRASH}*"))


def linked(flow: Flow) -> Path:
    """The first sink's folder, to which a link leads now."""
    disk = flow.root / "disk"
    Path(flow.sink(0)).rename(disk)
    Path(flow.sink(0)).symlink_to(disk)
    return disk


def test_another_table_at_the_target_of_a_link_stays(flow: Flow) -> None:
    """Somebody uses the disk after a kill: its rows are not the rule's."""
    retired(flow)
    disk = linked(flow)
    crashed(flow, "drop.table.moved", "drop", "counted", "--sinks", "--yes")
    shutil.rmtree(disk)
    by_hand(str(disk))
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert len(rows_of(str(disk))) == 1 and not Path(flow.sink(1)).exists()
    assert not list(Path(flow.sink(0)).parent.glob(f"{dropping.TRASH}*"))


def test_files_of_others_behind_a_link_stay_and_are_named(flow: Flow) -> None:
    retired(flow)
    disk = linked(flow)
    crashed(flow, "drop.table.moved", "drop", "counted", "--sinks", "--yes")
    (disk / "notes.csv").write_text("x")
    found = facts(flow, "drop", "counted", "--sinks", "--yes")["left"][f"sink/{flow.sink(0)}"]
    assert "files that are not the table's: notes.csv" in found and f"It is at {disk}; only the link" in found
    assert (disk / "notes.csv").exists() and len(rows_of(str(disk))) == 1 and not Path(flow.sink(1)).exists()
    assert not list(Path(flow.sink(0)).parent.glob(f"{dropping.TRASH}*"))


def test_half_a_table_at_the_target_of_a_link_goes(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    retired(flow)
    disk = linked(flow)
    real = shutil.rmtree

    def killed(path: Path, **how: Any) -> None:
        real(Path(path) / "_delta_log")
        raise OSError(errno.EIO, "killed")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        call(flow, "drop", "counted", "--sinks", "--yes", code=1)
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not disk.exists() and not list(flow.root.rglob(f"{dropping.TRASH}*"))


@pytest.mark.parametrize("is_readable", [True, False])
def test_another_home_at_the_target_of_a_link_stays(flow: Flow, is_readable: bool) -> None:
    retired(flow)
    disk = flow.root / "disk"
    flow.place.path.rename(disk)
    flow.place.path.symlink_to(disk)
    crashed(flow, "drop.home.moved", "drop", "counted", "--all", "--yes")
    shutil.rmtree(disk)
    lived(flow)
    flow.place.path.rename(disk)
    if not is_readable:
        min((disk / "ledger" / "_delta_log").glob("*.json")).write_text("{")
    said = call(flow, "drop", "counted", "--all", "--yes")
    assert f"not removed: {disk}: a link led there" in said.replace("\n", " ")
    assert (disk / "ledger").is_dir() and not list(flow.home.glob(f"{dropping.TRASH}*"))


def test_half_a_home_at_the_target_of_a_link_goes(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    retired(flow)
    disk = flow.root / "disk"
    flow.place.path.rename(disk)
    flow.place.path.symlink_to(disk)
    real = shutil.rmtree

    def killed(path: Path, **how: Any) -> None:
        if Path(path).name.startswith(f"{dropping.TRASH}counted-"):
            real(Path(path) / "ledger" / "_delta_log")
            raise OSError(errno.EIO, "killed")
        real(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        call(flow, "drop", "counted", "--all", "--yes", code=1)
    call(flow, "drop", "counted", "--all", "--yes")
    assert not disk.exists() and not list(flow.root.rglob(f"{dropping.TRASH}*"))


def test_state_that_cannot_be_removed_is_named_and_the_drop_goes_on_once_it_can(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired(flow)
    left = flow.place.path / "state" / "of nobody"
    left.mkdir(parents=True, exist_ok=True)
    plain = shutil.rmtree

    def rmtree(path: Path, *how: Any, **more: Any) -> None:
        if path == left.parent:
            raise PermissionError(errno.EACCES, "Permission denied", str(left))
        plain(path, *how, **more)

    monkeypatch.setattr(dropping.shutil, "rmtree", rmtree)
    said = call(flow, "drop", "counted", "--state", "--yes", code=1)
    assert f"{left} cannot be removed: Permission denied" in said.replace("\n", "") and left.exists(), said
    monkeypatch.undo()
    call(flow, "drop", "counted", "--state", "--yes")
    assert not left.parent.exists()


def test_a_folder_that_cannot_be_moved_is_refused_before_anything_is_announced(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired(flow)
    released = list[str]()
    monkeypatch.setattr(releasing, "release", lambda rule, *_: released.append(rule.rule) or {})
    monkeypatch.setattr(Path, "is_mount", lambda path: str(path) == flow.sink(1))
    said = call(flow, "drop", "counted", "--all", "--yes", code=2)
    assert (
        "sink counted_out1: its folder cannot be moved aside" in said
        and f"Table: {flow.sink(1)}" in said
        and "a mount point" in said
    )
    head = flow.ledger().head
    assert head is not None and head.dropping is None and Path(flow.sink(0)).exists()
    assert released == [], "the slot of a source would be gone"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_home_that_cannot_be_moved_is_refused_before_anything_is_dropped(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, is_link: bool
) -> None:
    retired(flow)
    disk = flow.root / "disk" if is_link else flow.place.path
    if is_link:
        flow.place.path.rename(disk)
        flow.place.path.symlink_to(disk)
    monkeypatch.setattr(releasing, "release", lambda *_: pytest.fail("the slot of a source would be gone"))
    monkeypatch.setattr(Path, "is_mount", lambda path: path == disk)
    said = call(flow, "drop", "counted", "--all", "--yes", code=2).replace("\n", " ")
    assert f"home {flow.place.path}: its folder cannot be moved aside" in said and "a mount point" in said
    head = flow.ledger().head
    assert head is not None and head.dropping is None and Path(flow.sink(0)).exists()


def test_a_rule_that_was_brought_back_during_the_question_is_not_dropped(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired(flow)
    monkeypatch.setattr(releasing, "release", lambda *_: pytest.fail("the slot of a source would be gone"))
    back = Ledger.open(flow.place.ledger, "me")
    monkeypatch.setattr(rulechange, "confirm", lambda *_: back.live(Life(what="returned")))
    assert "can run: retire it first" in call(flow, "drop", "counted", "--all", "--yes", code=2)
    assert flow.place.path.exists() and Path(flow.sink(0)).exists()


def test_a_store_that_does_not_let_a_folder_be_moved_is_told_with_the_way_on(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired(flow)
    rename = Path.rename

    def busy(path: Path, to: Path) -> Path:
        if str(path) == flow.sink(1):
            raise OSError(errno.EBUSY, "Device or resource busy", str(path))
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", busy)
        said = call(flow, "drop", "counted", "--sinks", "--yes", code=1)
    assert f"{flow.sink(1)} cannot be moved aside: Device or resource busy. Once it can, `floodmark drop`" in said
    call(flow, "drop", "counted", "--sinks", "--yes")
    assert not Path(flow.sink(1)).exists()


def test_another_table_at_an_old_address_stays(flow: Flow) -> None:
    retired(flow)
    call(flow, "drop", "counted", "--sinks", "--yes")
    by_hand(flow.sink())
    call(flow, "drop", "counted", "--all", "--yes")
    assert len(rows_of(flow.sink())) == 1


# ---------------------------------------------------------------------------------------------------- adopt


def test_a_sink_with_rows_is_refused_until_it_is_adopted(flow: Flow) -> None:
    flow.arrive([])
    flow.write_rule()
    by_hand(flow.sink(), 3)
    with pytest.raises(NotOwned, match="floodmark adopt"):
        DeltaSink(flow.sink()).check(None)
    assert "adopts" in call(flow, "adopt", "counted", flow.sink(), "--dry-run")
    assert not flow.home.exists()
    assert "belongs to the rule from version 1 on" in call(flow, "adopt", "counted", flow.sink(), "--yes")
    ledger = lived(flow)
    DeltaSink(flow.sink()).check(ledger.id)
    assert len(rows_of(flow.sink())) == 4
    assert json.loads(ledger.rows[0].body)["adopted"] == {f"sink/{flow.sink()}": 1}
    for refused in (DeltaSink(flow.sink()).check_can_be_emptied, DeltaSink(flow.sink()).check_replaceable):
        with pytest.raises(NotOwned, match="adopted with rows"):
            refused()
    assert "with --keep-output" in call(flow, "reset", "counted", "--yes", code=2)
    call(flow, "reset", "counted", "--keep-output", "--dry-run")
    assert "nothing to do" in call(flow, "adopt", "counted", flow.sink(), "--yes")


def test_a_sink_that_only_grows_is_neither_emptied_nor_merged_into(flow: Flow) -> None:
    """Said before anything is written: a seal without the emptying would leave the reset half done."""
    ledger = lived(flow)
    DeltaTable(flow.sink()).alter.set_table_properties({"delta.appendOnly": "true"})
    before = len(flow.ledger().rows)
    for words in (["--yes"], ["--dry-run"]):
        assert "delta.appendOnly is set" in " ".join(call(flow, "reset", "counted", *words, code=2).split())
    assert len(flow.ledger().rows) == before
    call(flow, "reset", "counted", "--keep-output", "--dry-run")
    check_tables(flow.rule(), flow.place, ledger.id)
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": ["k", "start"]}]
    with pytest.raises(Refused, match=r"delta.appendOnly is set.*to false"):
        check_tables(flow.rule(), flow.place, ledger.id)


@pytest.mark.parametrize(("start", "earliest"), [("earliest", ["events"]), ({"version": 1}, [])])
def test_an_adoption_names_the_streams_that_are_read_from_the_beginning(
    flow: Flow, start: Any, earliest: list[str]
) -> None:
    """Their old results may be in the table already."""
    flow.arrive([])
    flow.stream |= {"start": start}
    flow.write_rule()
    by_hand(flow.sink(), 1)
    said = call(flow, "adopt", "counted", flow.sink(), "--dry-run")
    assert ("reads all rows of events (`start: earliest`)" in said) == bool(earliest)
    assert facts(flow, "adopt", "counted", flow.sink(), "--dry-run")["earliest"] == earliest
    assert facts(flow, "adopt", "counted", flow.sink(), "--yes")["earliest"] == earliest
    assert facts(flow, "adopt", "counted", flow.sink(), "--yes")["earliest"] == []  # nothing is adopted


@pytest.mark.parametrize("point", POINTS["adopt"])
def test_an_adoption_that_was_killed_is_taken_again(flow: Flow, point: str) -> None:
    lived(flow)
    flow.sinks = 3
    flow.write_rule()
    by_hand(flow.sink(2))
    crashed(flow, point, "adopt", "counted", flow.sink(2), "--yes")
    call(flow, "adopt", "counted", flow.sink(2), "--yes")
    DeltaSink(flow.sink(2)).check(flow.ledger().id)
    assert tables.adopted_at(DeltaTable(flow.sink(2))) == 0


def test_what_is_no_sink_of_the_rule_or_somebody_elses_is_not_adopted(flow: Flow) -> None:
    ledger = lived(flow)
    assert "no Delta sink at" in call(flow, "adopt", "counted", flow.source, "--yes", code=2)
    others_own(flow, ledger)
    assert "belongs to another rule's ledger" in call(flow, "adopt", "counted", flow.sink(), "--yes", code=2)
    ledger.seal(Seal(why="reset", successor=2, token="new", keep_output=True, discarded=None))
    said = call(flow, "adopt", "counted", flow.sink(1), "--yes", code=2)
    assert "a reset has not finished; `floodmark run counted` continues it" in said
    keyed = Flow(flow.root, "keyed", settings={"sinks": [{"delta": f"{flow.root}/lake/k", "key": ["k"]}]})
    keyed.write_rule()
    by_hand(f"{flow.root}/lake/k")
    assert "upserted by key" in call(flow, "adopt", "keyed", f"{flow.root}/lake/k", "--yes", code=2)


# ---------------------------------------------------------------------------------------------------- the lock


HOLDER = """
import fcntl, os, sys
handle = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(handle, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


OPEN = Path.open


def only_read(path: Path, mode: str = "r", **more: Any) -> Any:
    """As on a read-only home."""
    if set(mode) & set("wax+"):
        raise OSError(errno.EROFS, "Read-only file system", str(path))
    return OPEN(path, mode, **more)


@pytest.mark.parametrize(("platform", "size", "kind", "pid"), [("linux", 32, 0, 24), ("darwin", 24, 20, 16)])
def test_the_holder_of_a_lock_is_asked_by_the_systems_own_struct(platform: str, size: int, kind: int, pid: int) -> None:
    """By the offsets of `l_type` and `l_pid` in `fcntl.h` of Linux and of macOS."""
    asked = flock_asking(platform)
    assert (len(asked), asked[kind : kind + 2]) == (size, fcntl.F_WRLCK.to_bytes(2, sys.byteorder))
    answer = bytearray(asked)
    answer[pid : pid + 4] = (4321).to_bytes(4, sys.byteorder)
    assert holder_in(bytes(answer), platform) == 4321
    answer[kind : kind + 2] = fcntl.F_UNLCK.to_bytes(2, sys.byteorder)
    assert holder_in(bytes(answer), platform) is None


def test_a_command_without_a_jvm_and_a_run_exclude_each_other(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(flow)
    with held(flow.place.lock, "one"):
        with pytest.raises(Busy, match="this process"), held(flow.place.lock, "two"):
            pass
        assert "run one holds the rule" in holder_text(flow.place.lock)
        for torn in (b"\xff\xfe", b"", b"{}", b"[]", b"12", b'{"run": "x"}'):
            owner_file(flow.place.lock).write_bytes(torn)
            assert "another run holds" in holder_text(flow.place.lock)
            assert not is_orphan(flow.place.lock)
    command = [sys.executable, "-c", HOLDER, str(flow.place.lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        assert holder_pid(flow.place.lock) == other.pid
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", only_read)
            assert holder_pid(flow.place.lock) == other.pid, "whoever may read the home may ask"
        for words in (["retire", "counted"], ["rename", "counted", "other"]):
            assert "another run holds" in call(flow, *words, "--yes", code=1)
        other.communicate("")
    assert flow.place.path.exists()
    call(flow, "retire", "counted", "--yes")


@pytest.mark.parametrize(
    ("number", "error", "told"),
    [
        (errno.EACCES, Busy, "another run holds"),
        (errno.EAGAIN, Busy, "another run holds"),
        (errno.ENOLCK, RunFailed, "cannot be used now: No locks available; fix the disk or the store"),
        (errno.EOPNOTSUPP, HomeUnfit, "cannot be used: Operation not supported"),
    ],
)
def test_only_a_lock_that_is_taken_is_busy(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, number: int, error: type[FloodmarkError], told: str
) -> None:
    lived(flow)

    def fails(handle: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", fails)
    with pytest.raises(error, match=told), held(flow.place.lock, "one"):
        pass


def test_a_lock_file_of_another_user_is_told_before_a_jvm_opens_it(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(flow)

    def fails(path: Path, *_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "open", fails)
    opened = list[object]()
    monkeypatch.setattr(lock, "_open", lambda *given: opened.append(given))
    problem = r"cannot be used: Permission denied \(.*/lock\); run as the user that owns it, or let this"
    with pytest.raises(HomeUnfit, match=problem), lock.held(cast("Any", None), flow.place.lock, "one"):
        pass
    assert opened == []


def test_a_lock_in_a_home_that_was_moved_meanwhile_is_not_taken(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(flow)
    real = fcntl.lockf

    def moved_before(handle: int, how: int) -> None:
        flow.place.path.rename(flow.home / "elsewhere")
        real(handle, how)

    monkeypatch.setattr(fcntl, "lockf", moved_before)
    with pytest.raises(Busy, match="was just moved or removed"), held(flow.place.lock, "late"):
        pass
