"""What `plan` and `validate --connect` know of a run that would be refused, without Spark."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.byhand import begun
from support.flow import Flow, event
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.shared.doctorchecks import _ledger
from floodmark.cli.shared.selection import not_run
from floodmark.connectors.backlog.news import look
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.preflight import check_result_names, check_without_jvm
from floodmark.core.lifecycle.backfills import Interval, requested_whole
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Forgetting, Forgotten, Left, Life
from floodmark.errors import Busy, LedgerBroken, Refused, Retired, WrongColumn
from floodmark.ledger.delta.tables import OWNER, create
from floodmark.ledger.forgetting import check_forget_ended
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.spark.look.ahead import look_ahead
from floodmark.spark.rule.run import RuleRun
from floodmark.views.ruleplan import plan_of
from floodmark.views.status.glance import glance
from floodmark.views.status.rulestatus import rule_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = "SELECT at, k, v, n FROM events"


def flow_of(place: Path, sql: str = ALL, **sink: Any) -> Flow:
    flow = Flow(place, sql=sql, sinks=1, stream={"lateness": None})
    flow.settings = {"sinks": [{"delta": flow.sink(), **sink}]}
    flow.write_rule()
    return flow


def has(flow: Flow, *columns: str) -> None:
    write_deltalake(flow.sink(), pa.table({name: pa.array([], pa.int64()) for name in columns}))


@pytest.mark.parametrize(
    ("sql", "sink", "table", "wrong"),
    [
        (ALL, {}, ("at", "K", "v", "n"), None),
        ("SELECT * FROM events", {}, ("at", "k"), None),
        (ALL, {}, ("at", "k", "v"), "n: table none, rule given"),
        (ALL, {"schema": "add_columns"}, ("at", "k", "v"), None),
        (ALL, {}, ("at", "k", "v", "n", "r"), "r: table long, rule none"),
        (ALL, {"schema": "add_columns"}, ("at", "k", "v", "n", "r"), "r: table long, rule none"),
        (ALL, {"columns": ["k", "n"]}, ("k", "n"), None),
        (ALL, {"columns": ["k", "n"]}, ("k", "v"), "v: table long, rule none; n: table none, rule given"),
        (ALL, {"epoch_columns": True}, ("at", "k", "v", "n", "_generation", "_epoch"), None),
        (ALL, {"epoch_columns": True}, ("at", "k", "v", "n", "_epoch"), "_generation: table none, rule given"),
        (ALL, {}, (), None),
    ],
)
def test_names_of_results_are_those_of_the_table(
    place: Path, sql: str, sink: dict[str, Any], table: tuple[str, ...], wrong: str | None
) -> None:
    flow = flow_of(place, sql, **sink)
    if table:
        has(flow, *table)
    if wrong is None:
        check_result_names(flow.rule())
    else:
        with pytest.raises(WrongColumn, match=f"columns differ from the rule's \\({wrong}\\)"):
            check_result_names(flow.rule())


def next_run(flow: Flow) -> str:
    return plan_of(flow.rule(), flow.root / "rules", flow.home, checks=True).next_run


def test_a_plan_says_that_the_next_run_would_stop(place: Path) -> None:
    flow = flow_of(place, "SELECT at, nope FROM events")
    flow.arrive([event(1)])
    said = next_run(flow)
    assert said.startswith("would stop: ") and "nope" in said
    assert next_run(flow_of(place)).startswith("continues from epoch 0")
    write_deltalake(flow.sink(), pa.table({"at": [1]}))
    said = next_run(flow)
    assert said.startswith("would stop: ") and "rows that no ledger accounts for" in said, said


def test_a_plan_says_that_rewrites_cannot_be_corrected(place: Path) -> None:
    flow = Flow(place, sinks=1, stream={"on_rewrite": "correct"})
    flow.arrive([event(1, "a"), event(2, "b")])
    flow.write_rule()
    rule, table = flow.rule(), DeltaTable(flow.source)
    entry = Entry(0, (sources(rule, flow.place)["events"].end(),)).text()
    begin = Commit(entry=entry, watermark=None, maxima={"events": None}, rule=rule.to_json(), kept_output=True)
    Ledger.open(flow.place.ledger, "by hand").begin(1, "token", begin)
    assert next_run(flow).startswith("has nothing to do")
    table.delete("k = 'a'")
    said = next_run(flow)
    assert said.startswith("would stop: ") and "rows from before a reset" in said, said


def column(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


def test_a_plan_passes_over_an_added_table_that_the_next_run_makes_anew(place: Path) -> None:
    flow = flow_of(place)
    flow.arrive([event(1)])
    rule = flow.rule()
    ledger = Ledger.open(flow.place.ledger, "by hand")
    entry = Entry(0, (sources(rule, flow.place)["events"].end(),)).text()
    ledger.begin(
        1, "token", Commit(entry=entry, watermark=None, maxima={"events": None}, heard={}, rule=rule.to_json())
    )
    older = pa.table({"old": [1], "n": [1]})
    made = json.dumps({"type": "struct", "fields": [column(name) for name in older.column_names]})
    create(flow.sink(), made, {OWNER: ledger.id}, ["old"])
    assert next_run(flow).startswith("has nothing to do")
    write_deltalake(flow.sink(), older, mode="append")
    assert "columns differ from the rule's" in next_run(flow)


FORGETTING = Life(what="forgetting", forgetting=Forgetting(number=1, condition="c", tables={"late": 1}))


def begun_with_news(place: Path, *lives: Life) -> Flow:
    """A rule with unread input, whose ledger ends with these rows."""
    flow = Flow(place, sinks=1)
    ledger = begun(flow)
    for life in lives:
        ledger.live(life)
    flow.arrive([event(2)])
    return flow


def test_a_plan_says_what_stops_a_run_before_it_reads(place: Path) -> None:
    assert next_run(begun_with_news(place / "none")) == "continues from epoch 0: new data in events"
    retired = begun_with_news(place / "retired", Life(what="retired"))
    assert next_run(retired).startswith("would stop: rule counted was retired ")
    forgets = begun_with_news(place / "forgets", FORGETTING)
    assert next_run(forgets).startswith("would stop: rule counted: a forget has not finished: ")


@pytest.mark.parametrize(("life", "fault"), [(Life(what="retired"), Retired), (FORGETTING, Refused)])
def test_no_next_epoch_is_shown_where_no_run_starts(place: Path, life: Life, fault: type[Exception]) -> None:
    flow = begun_with_news(place, life)
    with pytest.raises(fault, match=r"was retired|a forget has not finished"):
        look_ahead(cast("SparkSession", None), flow.rule(), flow.home, 1)


@pytest.mark.parametrize(
    "words",
    [
        ["backfill", "counted", "--all"],
        ["backfill", "counted", "--all", "--dry-run"],
        ["correct", "counted"],
        ["dead", "replay", "counted"],
    ],
)
def test_after_a_killed_forget_nothing_is_computed_again(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """Some tables still have the rows, others do not. Nor does Spark start for that."""
    flow = begun_with_news(place, FORGETTING)
    flow.write_rule()
    monkeypatch.setattr("floodmark.spark.session.session.root_session", None)
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    found = CliRunner().invoke(app, words, env=places)
    assert found.exit_code == 2 and "a forget has not finished" in found.output, found.output


def test_a_forget_that_was_killed_meanwhile_stops_what_is_computed_without_the_lock(place: Path) -> None:
    flow = begun_with_news(place, FORGETTING)
    run = RuleRun(cast("SparkSession", None), flow.rule(), flow.home, "one", lambda _: None)
    for compute in (partial(run.rehearse_backfill, requested_of), run.rehearse_correction):
        with pytest.raises(Refused, match="a forget has not finished"):
            compute()


def requested_of(head: Head) -> Interval:
    return requested_whole(head.rule, head, False)


def test_a_forget_that_was_killed_stops_a_run_that_has_nothing_to_read(place: Path) -> None:
    flow = Flow(place, sinks=1)
    begun(flow).live(FORGETTING)
    with pytest.raises(Refused, match="a forget has not finished"):
        look(flow.rule(), flow.home)


def test_while_a_forget_is_at_work_a_run_waits_for_it(place: Path) -> None:
    flow = begun_with_news(place, FORGETTING)
    with locked(flow.place.lock):
        assert look(flow.rule(), flow.home).why == "new data in events", "the lock refuses it"
        with pytest.raises(Busy, match="holds"):
            check_forget_ended(flow.place, LedgerReader.load(flow.place.ledger).begun)


def test_a_forget_that_has_just_ended_stops_nothing(place: Path) -> None:
    flow = Flow(place, sinks=1)
    ledger = begun(flow)
    ledger.live(FORGETTING)
    during = ledger.begun
    left = Left(version=2, commit=4, gone=1, rows=3, digest=Digest())
    ledger.live(Life(what="forgot", forgotten=Forgotten(number=1, tables={"late": left})))
    check_forget_ended(flow.place, during)


@pytest.mark.parametrize("left", ["late", "dead", "state", "landing"])
def test_a_ledger_that_is_gone_is_told_by_all_that_look_for_it(place: Path, left: str) -> None:
    """Without it, the rule would look as if it had not run yet, and a run would deliver everything again."""
    flow = begun_with_news(place)
    shutil.rmtree(flow.place.ledger)
    assert next_run(flow).startswith("continues from epoch 0")
    (flow.place.path / left).mkdir()
    told = f"the ledger {flow.place.ledger} is gone, but the rule's other tables exist"
    assert next_run(flow).startswith(f"would stop: {told}")
    assert str(rule_status(flow.rule(), flow.home).fault).startswith(told)
    assert str(glance(flow.rule(), flow.home).fault).startswith(told)
    assert str(_ledger(flow.home, "counted")).startswith(told)
    for ask in (partial(check_without_jvm, flow.rule(), flow.home), partial(not_run, flow.home, "counted")):
        with pytest.raises(LedgerBroken, match="is gone, but the rule's other tables exist"):
            ask()


@contextmanager
def locked(lock: Path) -> Iterator[None]:
    """The lock, held by another process."""
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    with Popen([sys.executable, "-c", code, str(lock)], stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout is not None and other.stdin is not None
        other.stdout.readline()
        yield
        other.stdin.close()
