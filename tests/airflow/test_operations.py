"""Operations by the form of a manual run: what is submitted, and what is believed; spark-submit is a script."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.definitions.param import process_params
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors
from deltalake import write_deltalake
from test_dags import parse, write
from test_operator import arrive, fold_all, spark_submit, task_of

from floodmark.core.lifecycle.abandoning import abandoned_row
from floodmark.core.protocol.records.rows import Commit, Intent, Replay, Seal
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.assets import asset
from floodmark_airflow.dags.dag_factory import build
from floodmark_airflow.naming import OUTCOME
from floodmark_airflow.tasks.operators import RuleRunOperator
from floodmark_airflow.triggers.forms import OPERATIONS, check_fields, check_known, filled_in, form


@pytest.fixture
def rule(rules: Path, place: Path) -> Rule:
    path = write(rules, "one")
    arrive(place)
    found = load_rule(path, os.environ)
    fold_all(found, place / "home")
    return found


def dead_rows(place: Path) -> None:
    rows = pa.table(
        {"_epoch": pa.array([0], pa.int64()), "_stream": ["events"], "_reason": ["where"], "_source": ["-"]}
    )
    write_deltalake(Home(place / "home", "one").dead, rows)


def execute(rule: Rule, tries: int = 1, given: dict[str, Any] | None = None, **params: Any) -> RuleRunOperator:
    """`given`: what else Airflow says of the try. The task that it was."""
    task = task_of(rule)
    given = {
        "run_id": "m1",
        "ti": SimpleNamespace(try_number=tries, max_tries=3),
        "dag_run": SimpleNamespace(run_type="manual", clear_number=0),
        "params": params,
        "outlet_events": OutletEventAccessors(),
        **(given or {}),
    }
    task.render_template_fields(given)
    task.execute(given)
    return task


def submitted(path: Path) -> list[str]:
    """The words after the job's file."""
    words = (path / "arguments").read_text().splitlines()
    job = next(at for at, word in enumerate(words) if word.endswith("/applications/operate_rule.py"))
    return words[job + 1 :]


def begun_anew(place: Path, run: str, ended_by: str | None = None, name: str = "one") -> None:
    """What a real reset would leave in the ledger. ended_by: the run that has finished it, if `run` was killed."""
    ledger = Ledger.open(Home(place / "home", name).ledger, run)
    assert ledger.head is not None
    new = ledger.head.generation + 1
    ledger.seal(Seal(why="reset", successor=new, token="other", keep_output=False, discarded=None))
    first = Commit(entry=ledger.head.entry.text(), watermark=None, maxima={}, rule=ledger.head.begun_with.rule)
    ledger = Ledger.open(ledger.address, ended_by or run)
    ledger.begin(new, "other", first)


def opened(place: Path, run: str) -> Ledger:
    """What a killed run leaves in the ledger."""
    ledger = Ledger.open(Home(place / "home", "one").ledger, run)
    head = ledger.head
    assert head is not None
    intent = Intent(
        entry=head.entry.text(), watermark_before=None, watermark=None, maxima={}, counts={}, rule=head.rule.to_json(),
        rule_hash="h", zone="UTC", ansi=True,
    )  # fmt: skip
    ledger.intend(intent)
    return ledger


def replayed(place: Path, run: str, ended_by: str | None = None, **asked: Any) -> None:
    """What a real replay would leave in the ledger; `asked`: what of the rows, and how corrected."""
    ledger = Ledger.open(Home(place / "home", "one").ledger, run)
    head = ledger.head
    assert head is not None
    intent = Intent(
        entry=head.entry.text(), watermark_before=None, watermark=None, maxima={}, counts={}, rule=head.rule.to_json(),
        rule_hash="h", zone="UTC", ansi=True, replay=Replay(upto=0, **asked),
    )  # fmt: skip
    ledger.intend(intent)
    ledger = Ledger.open(ledger.address, ended_by or run)
    ledger.commit(Commit(intent=intent.digest, entry=head.entry.text(), watermark=None, maxima={}))


def test_every_rule_has_the_form(rules: Path) -> None:
    write(rules, "one")
    params = parse().dags["rule.one"].params
    assert params.dump() == {
        "operation": "run", "from": None, "to": None, "all": False, "lookups": None,
        "where": None, "stream": None, "set": [],
        "confirm": None,
        "keep_output": False, "dry_run": False, "skip": False, "streams": [],
        "table": None, "rename_to": None, "as_is": False,
        "drop": None, "leave_others": False,
    }  # fmt: skip
    operations = ["run", "backfill", "correct", "replay dead rows", "recheck", "abandon", "reset"]
    lives = ["adopt", "rename", "retire", "bring back", "drop"]
    assert params.get_param("operation").schema["enum"] == [*operations, *lives]


def test_the_form_marks_no_field_as_required_but_the_operation() -> None:
    """By what Airflow's UI asks: whether the type of a field takes null."""
    assert [name for name, param in form().items() if "null" not in param.schema["type"]] == ["operation"]


def test_each_operation_has_a_section_with_its_fields_and_only_these() -> None:
    """Airflow opens the first section, without a name, and folds the others."""
    sections: dict[str, list[str]] = {}
    for name, param in form().items():
        sections.setdefault(param.schema.get("section", ""), []).append(name)
    assert next(iter(sections.items())) == ("", ["operation", "confirm", "dry_run"])
    assert {name: fields for name, fields in sections.items() if name} == {
        f"Fields of {name}": list(one.params()) for name, one in OPERATIONS.items() if one.params()
    }
    assert sections["Fields of backfill"] == ["from", "to", "all", "lookups"]
    assert sections["Fields of reset"] == ["keep_output"]


def test_the_form_says_which_fields_an_operation_requires() -> None:
    required = [name for name, param in form().items() if str(param.description).startswith("Required: ")]
    assert required == ["table", "rename_to", "drop"]
    asking = "abandon, reset, adopt, rename, retire and drop"
    assert f"for {asking}. Others do not" in str(form()["confirm"].description)


def test_the_operations_are_offered_with_what_they_do() -> None:
    schema = form()["operation"].schema
    assert list(schema["values_display"]) == schema["enum"] == ["run", *OPERATIONS]
    assert schema["values_display"]["retire"] == "retire: stop running the rule; all its data stays"


FILLED = {
    "from": "2001-01-01T00:00:00Z", "to": "2001-01-02T00:00:00Z", "all": True, "lookups": "then",
    "where": "n = 1", "stream": "events", "set": ["n=1"],
    "keep_output": True, "table": "lake/t", "rename_to": "two", "as_is": True, "drop": "all", "leave_others": True,
    "skip": True, "streams": ["events"],
}  # fmt: skip


def test_a_field_of_an_operation_that_was_not_chosen_is_refused() -> None:
    assert FILLED.keys() == {field for one in OPERATIONS.values() for field in one.params()}
    for field, value in FILLED.items():
        of = [name for name, one in OPERATIONS.items() if field in one.params()]
        for name in of:
            check_fields({"operation": name, field: value, "confirm": "one"})
        for name in {"run", *OPERATIONS}.difference(of):
            said = f"{field}: expected no value with `operation: {name}`, which takes .*: it is a field of {of[0]}"
            with pytest.raises(AirflowFailException, match=said):
                check_fields({"operation": name, field: value})


def test_a_form_as_it_is_to_begin_with_asks_for_any_operation() -> None:
    empty = {name: param.value for name, param in form().items()}
    for name in ("run", *OPERATIONS):
        check_fields({**empty, "operation": name, "dry_run": True})
        check_fields({**empty, "operation": name, "where": " ", "from": "", "set": None})
    check_fields({})


def test_a_field_that_the_form_does_not_have_stops_the_operation(rule: Rule) -> None:
    """Also where Airflow leaves it out of the parameters."""
    reset = {"operation": "reset", "confirm": "one"}
    with pytest.raises(AirflowFailException, match=r"dry-run: expected a field of the form.*did you mean dry_run\?"):
        execute(rule, **reset, **{"dry-run": True})
    with pytest.raises(AirflowFailException, match="dry-run: expected a field"):
        execute(rule, **{"dry-run": True})
    of_another = SimpleNamespace(run_type="manual", clear_number=0, conf={"requested_by": "a DAG"})
    check_known({}, of_another.conf)
    run = SimpleNamespace(run_type="manual", clear_number=0, conf={**reset, "keep-output": True})
    with pytest.raises(AirflowFailException, match="keep-output: expected a field"):
        execute(rule, given={"dag_run": run}, **reset)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        ({"dry_run": True}, "dry_run"),
        ({"operation": "reset", "confirm": "one"}, "operation"),
        ({"operation": "run", "all": True}, "all"),
    ],
)
def test_a_form_that_airflow_ignores_stops_each_task(
    rules: Path, fake_path: Path, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any], named: str
) -> None:
    """By its own setting, Airflow gives the tasks the defaults of the form."""
    spark_submit(fake_path, "exit 0")
    stream = {"delta": "${LAKE}/events", "event_time": "at"}
    fresh = {"max_lag": "1 hour", "on_exceed": "fail"}
    target = {"files": {"path": "${LAKE}/out"}}
    dag = build(load_rule(write(rules, "one", sinks=[target], freshness=fresh, streams={"events": stream}), os.environ))
    run = SimpleNamespace(run_type="manual", clear_number=0, conf=conf)
    monkeypatch.setenv("AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS", "False")
    said = f"^{named}: expected .* found .*dag_run_conf_overrides_params"
    tasks = [one for one in dag.tasks if one.task_id != OUTCOME]
    assert len(tasks) == 3
    for task in tasks:
        given: Any = {"params": process_params(dag, task, conf, suppress_exception=False), "dag_run": run}
        assert given["params"]["operation"] == "run" and not given["params"]["dry_run"]
        with pytest.raises(AirflowFailException, match=said):
            task.execute({"run_id": "m1", "ti": SimpleNamespace(try_number=1, max_tries=3), **given})
    assert not (fake_path / "arguments").exists()


def test_a_form_with_its_defaults_may_be_ignored() -> None:
    empty = {name: param.value for name, param in form().items()}
    for conf in ({**empty, "from": "", "set": None}, {"requested_by": "a DAG"}):
        assert filled_in({"params": empty, "dag_run": SimpleNamespace(conf=conf)}) == empty
    assert filled_in({"params": empty}) == empty


def test_a_run_with_an_interval_is_no_ordinary_run(rule: Rule, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(
        AirflowFailException,
        match=r"from: .* which takes only dry_run, found .* it is a field of backfill\. Choose another",
    ):
        execute(rule, operation="run", **{"from": "2001-01-01T00:00:00Z", "to": "2001-01-02T00:00:00Z"})
    with pytest.raises(
        AirflowFailException, match=r"confirm: .*`operation: run`, .* found 'one': it is for operations"
    ):
        execute(rule, operation="run", confirm="one")
    assert not (fake_path / "arguments").exists()


@pytest.mark.parametrize("confirm", [None, "", "two", "one "])
def test_a_reset_asks_for_the_name_of_the_rule(rule: Rule, fake_path: Path, confirm: str | None) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowFailException, match="expected the rule's name, one, found"):
        execute(rule, operation="reset", confirm=confirm)
    assert not (fake_path / "arguments").exists()


def test_a_reset_is_believed_by_its_new_generation(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowException, match="reset ended, but the rule's ledger has none by this run"):
        execute(rule, operation="reset", confirm="one")
    assert submitted(fake_path)[:3] == ["reset", "one", "--yes"]
    assert submitted(fake_path)[-2:] == ["--run-id", "m1.try1"]
    begun_anew(place, "m1.try1")
    assert execute(rule, operation="reset", confirm="one").outlets, "who reads its sinks is woken"


def test_who_is_woken_by_a_reset_learns_of_its_generation(rule: Rule, place: Path, fake_path: Path) -> None:
    """Also by a retry, where the try that has done it was lost."""
    shutil.copytree(place / "home", place / "later" / "home")
    begun_anew(place / "later", "m1.try1")
    spark_submit(fake_path, f"rm -r {place}/home/one; mv {place}/later/home/one {place}/home/one")
    (sink,) = rule.sinks
    for tries in (1, 2):
        events = OutletEventAccessors()
        execute(rule, tries, {"outlet_events": events}, operation="reset", confirm="one")
        extra = {"rule": "one", "generation": 2, "epoch": 0, "epochs": 0, "rows": 0, "watermark": None}
        assert events[asset(sink.address)].extra == extra, tries


def test_the_epoch_of_a_replay_is_told_of(rule: Rule, place: Path, fake_path: Path) -> None:
    dead_rows(place)
    shutil.copytree(place / "home", place / "later" / "home")
    replayed(place / "later", "m1.try1")
    spark_submit(fake_path, f"rm -r {place}/home/one; mv {place}/later/home/one {place}/home/one")
    events = OutletEventAccessors()
    execute(rule, given={"outlet_events": events}, operation="replay dead rows")
    (sink,) = rule.sinks
    assert events[asset(sink.address)].extra["epochs"] == 1


def test_what_an_earlier_try_has_done_is_not_done_again(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    dead_rows(place)
    replayed(place, "m1.try1")
    begun_anew(place, "m1.try2")
    execute(rule, 3, operation="reset", confirm="one")
    assert not (fake_path / "arguments").exists()


def test_what_a_killed_try_began_and_another_run_has_finished_is_not_done_again(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    spark_submit(fake_path, "exit 0")
    begun_anew(place, "m1.try1", ended_by="scheduled.try1")
    execute(rule, 2, operation="reset", confirm="one")
    assert not (fake_path / "arguments").exists()
    dead_rows(place)
    replayed(place, "m1.try1", ended_by="scheduled.try1")
    execute(rule, 2, operation="replay dead rows")
    ledger = opened(place, "m1.try1")
    ledger.abandon()
    ended = Ledger.open(ledger.address, "scheduled.try1")
    ended.take_back(abandoned_row(ended.begun, {}))
    execute(rule, 2, operation="abandon", confirm="one")
    assert not (fake_path / "arguments").exists()
    begun_anew(place, "scheduled.try2", ended_by="scheduled.try3")
    with pytest.raises(AirflowException, match="reset ended, but the rule's ledger has none by this run"):
        execute(rule, given={"run_id": "m2"}, operation="reset", confirm="one")


def test_an_abandon_is_believed_by_the_row_that_ends_the_epoch(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowFailException, match="expected an open epoch, found none"):
        execute(rule, operation="abandon", confirm="one")
    ledger = opened(place, "m1.try1")
    with pytest.raises(AirflowFailException, match="expected the rule's name, one, found None"):
        execute(rule, operation="abandon")
    assert not (fake_path / "arguments").exists()
    with pytest.raises(AirflowException, match="abandon ended, but the rule's ledger has none by this run"):
        execute(rule, operation="abandon", confirm="one")
    assert submitted(fake_path)[:3] == ["abandon", "one", "--yes"]
    ledger.take_back(abandoned_row(ledger.abandon(), {}))
    (fake_path / "arguments").unlink()
    execute(rule, 2, operation="abandon", confirm="one")
    assert not (fake_path / "arguments").exists(), "an earlier try has done it"


def test_a_reset_of_the_other_kind_is_refused_while_one_is_under_way(rule: Rule, place: Path, fake_path: Path) -> None:
    """Its seal says what becomes of the sinks' rows; to go on with it would be green and do another thing."""
    ledger = Ledger.open(Home(place / "home", "one").ledger, "killed")
    ledger.seal(Seal(why="reset", successor=2, token="other", keep_output=True, discarded=None))
    with pytest.raises(
        AirflowFailException, match="a reset that keeps the sinks is in progress; expected another of that"
    ):
        execute(rule, operation="reset", confirm="one")
    assert not (fake_path / "arguments").exists()


def test_a_dry_run_of_a_reset_needs_no_confirmation_and_no_row(rule: Rule, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowSkipException, match="dry run"):
        execute(rule, operation="reset", dry_run=True, keep_output=True)
    assert submitted(fake_path)[:5] == ["reset", "one", "--yes", "--keep-output", "--dry-run"]


def test_dead_rows_are_replayed_and_believed_by_their_epoch(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowSkipException, match="no dead row is left"):
        execute(rule, operation="replay dead rows")
    dead_rows(place)
    asked = {"operation": "replay dead rows", "where": "_reason = '--yes'", "set": ["_x=1"]}
    with pytest.raises(AirflowFailException, match="dead rows have no column '_x'"):
        execute(rule, **asked)
    assert not (fake_path / "arguments").exists()
    with pytest.raises(AirflowSkipException, match="there was no dead row to replay"):
        execute(rule, **asked | {"set": []})
    assert submitted(fake_path)[:4] == ["dead", "replay", "one", "--where=_reason = '--yes'"]
    replayed(place, "m1.try1", where="_reason = '--yes'")
    execute(rule, 2, **asked | {"set": []})
    replayed(place, "m1.try1")
    execute(rule, 2, operation="replay dead rows")
    with pytest.raises(AirflowSkipException, match="no dead row is left"):
        execute(rule, operation="replay dead rows")


def test_a_replay_that_somebody_else_had_left_open_is_not_the_one_that_was_asked_for(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    """A try finishes it first, and may end before its own work."""
    spark_submit(fake_path, "exit 0")
    dead_rows(place)
    others = {"where": "_epoch = 0", "stream": "events", "corrected": {"_reason": "''"}}
    replayed(place, "m1.try1", **others)
    for asked in ({"where": "_epoch = 0"}, {"stream": "events"}, {"where": "_epoch = 1", "stream": "events"}):
        (fake_path / "arguments").unlink(missing_ok=True)
        with pytest.raises(AirflowSkipException, match="there was no dead row to replay"):
            execute(rule, 2, operation="replay dead rows", **asked)
        assert (fake_path / "arguments").exists(), asked
    replayed(place, "m1.try1", where="_epoch = 0", stream="events")
    execute(rule, 2, operation="replay dead rows", where=" _epoch = 0 ", stream="events")


def test_a_rule_that_has_not_run_is_refused(rules: Path, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    rule = load_rule(write(rules, "one"), os.environ)
    for asked in ({"operation": "reset", "confirm": "one"}, {"operation": "replay dead rows"}):
        with pytest.raises(AirflowFailException, match="has not run yet"):
            execute(rule, **asked)
