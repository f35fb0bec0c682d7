"""While a correction computes, the rule goes on: runs commit epochs, and the correction takes the lock to end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.corrected import flow_of, proven, same_as_batch, sink
from support.crash import Crash, crash_at
from support.flow import STATELESS, Flow, event
from support.rewrites import FIRST, MORE, delete, move
from support.running import computed_beside, run
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.cli.commands import correct as cli_correct
from floodmark.connectors.backlog.news import look
from floodmark.errors import InputFault, Refused
from floodmark.spark.rule.epochs.reports import RunReport

OLD = [event(1000, "far"), event(1300, "far")]  # windows of FIRST and MORE are final behind these


# In each: the rows that come while it computes, and how often it computes.
MEANWHILE = {
    "slices": ([event(1310, "a", 3.0, 2), event(1700, "b")], 1),
    "over": ([event(1310, "a", 3.0, 2), event(1700, "b")], 1),
    "totals": ([event(1310, "new", 3.0, 2)], 1),
    "newest row": ([event(1310, "new", 3.0, 2)], 1),
    "single rows": ([event(1310, "a", 3.0, 2)], 1),
    "totals of a touched key": ([event(1310, "a", 3.0, 2), event(1320, "new")], 2),
    "newest row of a touched key": ([event(1310, "b", 3.0, 2)], 2),
    "single rows between": ([event(10, "a", 3.0, 2)], 2),
}
IN_CI = ("single rows between",)


@pytest.mark.parametrize(
    "case", [case if case in IN_CI else pytest.param(case, marks=pytest.mark.prove) for case in MEANWHILE]
)
def test_epochs_are_committed_while_it_computes(spark: SparkSession, place: Path, case: str) -> None:
    rows, times = MEANWHILE[case]
    flow = flow_of(place, case.split(" of a ")[0].removesuffix(" between"), sinks=1)
    if case.startswith("single rows"):  # else a row between the others is late
        flow.stream = {**flow.stream, "lateness": None}
    flow.arrive([*FIRST, *MORE, *OLD])
    run(spark, flow)
    delete(spark, flow.source)
    others: list[RunReport] = []

    def another_run() -> None:
        flow.arrive(rows)
        others.append(run(spark, flow))

    done, computed = computed_beside(spark, flow, another_run)
    (other,) = others
    assert (len(other.epochs), other.corrections) == (1, []), "it leaves the correction to the run that computes it"
    assert (len(done.epochs), len(done.corrections), computed) == (0, 1, times)
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.deferred) == (2, {})
    same_as_batch(spark, flow)
    proven(flow)
    flow.arrive([event(2000, "a"), event(2300, "b")])
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_windows_that_close_while_it_computes_are_computed_again(spark: SparkSession, place: Path) -> None:
    """The newest windows are open when it computes. Another run closes them over rows that have left the source, and
    passes over one more rewrite."""
    flow = flow_of(place, "rows", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'a'")

    def another_run() -> None:
        flow.arrive([event(410, "b", 2.0, 4), event(900, "c")])
        move(spark, flow.source)
        run(spark, flow)

    done, computed = computed_beside(spark, flow, another_run)
    assert (len(done.corrections), computed) == (1, 2), "computed again, it follows both rewrites"
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_a_rewrite_that_is_deferred_while_it_computes_is_corrected_next(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    delete(spark, flow.source)

    def another_run() -> None:
        move(spark, flow.source)
        run(spark, flow)

    done, computed = computed_beside(spark, flow, another_run)
    assert ([one.commits for one in done.corrections], computed) == (
        [("version 1 (DELETE)",), ("version 2 (UPDATE)",)],
        2,
    )
    same_as_batch(spark, flow)
    proven(flow)


def test_killed_after_newer_epochs_it_is_finished_as_it_was_computed(spark: SparkSession, place: Path) -> None:
    """The state had rows of the interval when it was computed, and has none any more when it is computed again."""
    flow = flow_of(place, "over", sinks=1)
    flow.arrive([event(10, "a", 1.0, 3), event(300, "a", 2.0, 3), event(350, "b", 2.0, 4), event(415, "a", 2.5, 5)])
    run(spark, flow)
    delete(spark, flow.source)

    def another_run() -> None:
        flow.arrive([event(1000, "c")])
        run(spark, flow)

    with pytest.raises(Crash):
        computed_beside(spark, flow, another_run, crash="backfill.intent.after")
    head = flow.ledger().head
    assert head is not None and head.backfill is not None and head.backfill.upto < head.epoch
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


def said(flow: Flow, *words: str) -> str:
    flow.write_rule()
    words = (*words, "--rules", str(flow.root / "rules"), "--home", str(flow.home))
    done = CliRunner().invoke(app, [words[0], flow.name, *words[1:]])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_correction_that_cannot_succeed_stops_no_epoch_and_can_be_given_up(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_correct, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    spark.sql(f"UPDATE delta.`{flow.source}` SET at = '2999-01-01' WHERE n = 3")
    before = sink(flow)
    for epoch in (1, 2):
        with pytest.raises(InputFault, match="further ahead of the clock"):
            run(spark, flow)
        head = flow.ledger().head
        assert head is not None and head.epoch == epoch
        flow.arrive([event(600 + epoch, "later")])
    assert "events: version 1 (UPDATE); results do not follow yet" in said(flow, "status")
    assert "rewrites of events are to be corrected" not in str(look(flow.rule(), flow.home).why)
    found = audit(flow.name, flow.home, deep=False)
    assert found is not None and found.verdict == "proven"
    assert found.facts()["generations"][-1]["deferred"] == 1
    assert "passed over version 1 (UPDATE)" in said(flow, "correct", "--skip", "--yes")
    head = flow.ledger().head
    assert head is not None and (head.deferred, head.skipped, head.epoch) == ({}, {"events": 1}, 3)
    assert [row for row in sink(flow) if row in before] == before
    assert look(flow.rule(), flow.home).why is None
    proven(flow)


def test_an_edit_that_makes_a_correction_impossible_is_refused_before_epochs(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_correct, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = Flow(place, sql=STATELESS, stream={"on_rewrite": "correct"}, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    delete(spark, flow.source)
    with crash_at("backfill.computed"), pytest.raises(Crash):
        run(spark, flow)
    flow.arrive([event(2000, "a")])
    flow.sql, flow.stream = STATELESS.replace("at,", "coalesce(at, current_timestamp()) AS at,"), {"on_rewrite": "stop"}
    for _ in range(2):
        with pytest.raises(Refused, match=r"it reads the clock.*`floodmark correct counted --skip --stream events`"):
            run(spark, flow)
        head = flow.ledger().head
        assert head is not None and (head.epoch, list(head.deferred)) == (1, ["events"])
    assert "will be given up" in said(flow, "correct", "--skip", "--stream", "events", "--yes")
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.deferred) == (2, {})
    proven(flow)


def test_a_run_that_is_killed_while_it_computes_leaves_the_correction_to_the_next(
    spark: SparkSession, place: Path
) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    delete(spark, flow.source)
    with crash_at("backfill.computed") as planned, pytest.raises(Crash):
        run(spark, flow)
    assert planned.fired
    assert look(flow.rule(), flow.home).why == "rewrites of events are to be corrected"
    assert len(run(spark, flow).corrections) == 1
    same_as_batch(spark, flow)
    proven(flow)


def test_epochs_before_a_rewrite_keep_to_the_limits_of_the_rule(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.settings["epoch"] = {"max_files": 2}
    flow.arrive(FIRST)
    run(spark, flow)
    for row in (*MORE, *OLD):
        flow.arrive([row])
    delete(spark, flow.source)
    done = run(spark, flow)
    assert (len(done.epochs), len(done.corrections)) == (3, 1)
    same_as_batch(spark, flow)
    proven(flow)
