"""What becomes of a rule as a whole, by the form: the real commands, behind a spark-submit that only starts them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from deltalake import DeltaTable
from support.byhand import intent
from support.flow import Flow, rows_of
from support.lives import by_hand, lived
from test_operations import execute, submitted
from test_operator import execute as run_of
from test_operator import spark_submit
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.core.protocol.records.backfills import Deferred, Rewrite
from floodmark.core.protocol.records.rows import Counts, Life
from floodmark.ledger.delta import tables
from floodmark_airflow.triggers.lives import Drop, Retire

pytestmark = pytest.mark.usefixtures("rules")
STARTED = 'while [ "${1##*/}" != operate_rule.py ]; do shift; done\nexec '


@pytest.fixture
def flow(place: Path, fake_path: Path) -> Flow:
    spark_submit(fake_path, f'{STARTED} {sys.executable} "$@"')
    return Flow(place, "one")


def test_each_asks_for_the_name_of_the_rule(flow: Flow, fake_path: Path) -> None:
    lived(flow)
    for asked in (
        {"operation": "retire"},
        {"operation": "rename", "rename_to": "two"},
        {"operation": "drop", "drop": "all"},
        {"operation": "adopt", "table": flow.sink()},
    ):
        with pytest.raises(AirflowFailException, match="expected the rule's name, one, found 'other'"):
            execute(flow.rule(), **asked, confirm="other")
    with pytest.raises(AirflowFailException, match="expected a name of letters"):
        execute(flow.rule(), operation="rename", rename_to="--yes", confirm="one")
    with pytest.raises(AirflowFailException, match="expected state, sinks or all, found None"):
        execute(flow.rule(), operation="drop", confirm="one")
    assert not (fake_path / "arguments").exists()


def test_a_retirement_says_which_corrections_are_given_up(flow: Flow) -> None:
    ledger = lived(flow)
    asked = Retire(as_is=True)
    assert asked.preview(flow.rule()) == "the rule no longer runs after epoch 1"
    rewrite = Rewrite(since="1", upto="2", commits=("version 1 (DELETE)",))
    ledger.defer(Deferred(entry=ledger.begun.entry.text(), rewrites={"events": rewrite}))
    assert "rewrites of events have yet to be corrected" in asked.preview(flow.rule())


def test_a_retired_rule_is_skipped_by_its_dag_until_it_is_back(flow: Flow, fake_path: Path) -> None:
    lived(flow)
    rule = flow.rule()
    with pytest.raises(AirflowSkipException, match="dry run"):
        execute(rule, operation="retire", dry_run=True)
    assert execute(rule, operation="retire", confirm="one").outlets == [], "no row was written: nobody is woken"
    assert submitted(fake_path)[:3] == ["retire", "one", "--yes"]
    assert execute(rule, 2, operation="retire", confirm="one").outlets == []
    with pytest.raises(AirflowSkipException, match="was retired"):
        run_of(rule)
    with pytest.raises(AirflowSkipException, match="already retired"):
        execute(rule, operation="retire", confirm="one")
    execute(rule, operation="bring back")
    with pytest.raises(AirflowSkipException, match="is not retired"):
        execute(rule, operation="bring back")
    with pytest.raises(AirflowSkipException, match="nothing new since epoch 1"):
        run_of(rule)


def test_a_check_that_failed_fails_the_dag_without_spark_until_it_is_to_be_repeated(
    flow: Flow, fake_path: Path
) -> None:
    ledger, rule = lived(flow), flow.rule()
    with pytest.raises(AirflowSkipException, match="no check has failed"):
        execute(rule, operation="recheck")
    ledger.intend(intent(flow, 3, None, 0, Counts(read=1, folded=1)))
    ledger.live(Life(what="failed", said="rows are doubled"))
    with pytest.raises(AirflowFailException, match="rows are doubled"):
        run_of(rule)
    assert not (fake_path / "arguments").exists(), "nothing was submitted"
    execute(rule, operation="recheck")
    assert submitted(fake_path)[:3] == ["recheck", "one", "--yes"]
    head = flow.ledger().head
    assert head is not None and head.failed is None and head.open is not None


def test_a_rename_is_believed_by_its_home(flow: Flow) -> None:
    before = lived(flow)
    execute(flow.rule(), operation="rename", rename_to="two", confirm="one")
    execute(flow.rule(), 2, operation="rename", rename_to="two", confirm="one")
    assert Flow(flow.root, "two").ledger().id == before.id
    with pytest.raises(AirflowFailException, match="has not run yet"):
        execute(flow.rule(), operation="retire", confirm="one")


def test_the_first_step_of_a_rename_is_taken_back_by_a_retry_too(flow: Flow, fake_path: Path) -> None:
    lived(flow).live(Life(what="renamed", name="two"))
    for tries in (2, 3):
        execute(flow.rule(), tries, operation="rename", rename_to="one", confirm="one")
        head = flow.ledger().head
        assert head is not None and head.name == "one"
    assert submitted(fake_path)[:2] == ["rename", "one"]


def test_who_drops_all_is_told_that_the_next_run_begins_anew(flow: Flow, fake_path: Path) -> None:
    lived(flow)
    rule = flow.rule()
    execute(rule, operation="retire", confirm="one")
    said = "the next scheduled run begins anew"
    with pytest.raises(AirflowFailException, match=said):
        execute(rule, operation="drop", drop="all", confirm="other")
    assert said in Drop(what="all", leave_others=False).preview(rule)
    assert said not in Drop(what="state", leave_others=False).preview(rule)


def test_a_drop_is_believed_by_what_is_gone(flow: Flow, fake_path: Path) -> None:
    lived(flow)
    rule = flow.rule()
    with pytest.raises(AirflowFailException, match="retire it first with `floodmark retire one`"):
        execute(rule, operation="drop", drop="state", confirm="one")
    execute(rule, operation="retire", confirm="one")
    with pytest.raises(AirflowSkipException, match="dry run"):
        execute(rule, operation="drop", drop="state", dry_run=True)
    assert CliRunner().invoke(app, ["drop", "one", "--state", "--yes"]).exit_code == 0
    with pytest.raises(AirflowSkipException, match="no such table exists"):
        execute(rule, operation="drop", drop="state", confirm="one")
    by_hand(flow.sink())
    with pytest.raises(AirflowException, match="refused"):
        execute(rule, operation="drop", drop="all", confirm="one")
    execute(rule, operation="drop", drop="all", leave_others=True, confirm="one")
    execute(rule, 2, operation="drop", drop="all", leave_others=True, confirm="one")
    assert not flow.place.path.exists()
    assert (len(rows_of(flow.sink(0))), Path(flow.sink(1)).exists()) == (2, False)


def test_what_is_no_address_fails_for_good(flow: Flow) -> None:
    rule = flow.rule()
    for table in ("http://[x", "a\0b"):
        with pytest.raises(AirflowFailException, match=r"table: expected an address of a sink, found "):
            execute(rule, operation="adopt", table=table, confirm="one")


def test_an_adoption_is_believed_by_the_table(flow: Flow) -> None:
    flow.arrive([])
    by_hand(flow.sink())
    rule = flow.rule()
    execute(rule, operation="adopt", table=flow.sink(), confirm="one")
    assert tables.adopted_at(DeltaTable(flow.sink())) == 0
    with pytest.raises(AirflowSkipException, match="nothing to adopt"):
        execute(rule, operation="adopt", table=flow.sink(), confirm="one")
    with pytest.raises(AirflowFailException, match="no Delta sink at"):
        execute(rule, operation="adopt", table=flow.source, confirm="one")
