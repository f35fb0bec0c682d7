"""Edits of a class that never came into force: what the class before them has stored is there once they are undone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import Flow, event, rows_of
from support.running import abandon, backfill_all, crash, run

from floodmark.audit.certificate import audit
from floodmark.errors import Fenced, ProcessFault
from floodmark.spark.rule import evolution
from floodmark.spark.session import lock

CLASS = """
class T:
    output = "k STRING, n BIGINT, total BIGINT"
    state = {"s": "%(state)s"}

    def process(self, key, rows, ctx):
        for row in rows:
            total = ((ctx.get_state("s") or {}).get("%(column)s") or 0) + 1
            %(fault)s
            ctx.put_state("s", {"%(column)s": total})
            yield key[0], row["n"], total
"""


def flow_of(place: Path) -> Flow:
    return Flow(place, process="mine:T", stream={"start": {"version": 0}}, sinks=1)


def text(state: str = "total BIGINT", fault: str = "") -> str:
    return CLASS % {"state": state, "column": state.split()[0], "fault": fault}


def arrive(flow: Flow, first: int) -> None:
    """Ten rows; the last four wait until later ones come."""
    flow.arrive([event(second, "a", n=second) for second in range(first, first + 100, 10)])


def totals(flow: Flow) -> list[int]:
    return sorted(row["total"] for row in rows_of(flow.sink()))


def columns(flow: Flow) -> list[str]:
    return [*rows_of(flow.place.state(1, "s"))[0]]


def proven(flow: Flow) -> bool:
    return audit(flow.name, flow.home, deep=True).verdict == "proven"


def begun(place: Path, spark: SparkSession, state: str = "total BIGINT") -> Flow:
    """A rule with its first six rows folded, and ten more to fold."""
    flow = flow_of(place)
    flow.write_class(text(state))
    arrive(flow, 0)
    run(spark, flow)
    return flow


def fails(spark: SparkSession, flow: Flow, state: str) -> None:
    flow.write_class(text(state, fault="1 / 0"))
    arrive(flow, 100)
    with pytest.raises(ProcessFault):
        run(spark, flow)


def idles(spark: SparkSession, flow: Flow, state: str) -> None:
    flow.write_class(text(state))
    run(spark, flow)
    arrive(flow, 100)


def is_abandoned(spark: SparkSession, flow: Flow, state: str) -> None:
    flow.write_class(text(state))
    arrive(flow, 100)
    assert crash(spark, flow, "commit.before")
    abandon(spark, flow)


RENAMED, WIDENED = ("total BIGINT", "sum BIGINT"), ("total INT", "total BIGINT")


@pytest.mark.parametrize(
    ("edit", "before", "edited"),
    [
        (fails, *RENAMED),
        *(
            pytest.param(edit, *how, marks=pytest.mark.prove)
            for edit in (fails, idles, is_abandoned)
            for how in (RENAMED, WIDENED)
            if (edit, how) != (fails, RENAMED)
        ),
    ],
)
def test_state_is_as_it_was_once_an_edit_is_undone(
    spark: SparkSession, place: Path, edit: Callable[[SparkSession, Flow, str], None], before: str, edited: str
) -> None:
    flow = begun(place, spark, before)
    edit(spark, flow, edited)
    flow.write_class(text(before))
    run(spark, flow)
    assert totals(flow) == list(range(1, 17))
    assert columns(flow)[1] == "total" and "sum" not in columns(flow)
    assert proven(flow)


@pytest.mark.prove
def test_a_dropped_column_goes_with_the_first_epoch_of_the_edited_class(spark: SparkSession, place: Path) -> None:
    """Its values do not come back with a later edit."""
    flow = begun(place, spark)
    fails(spark, flow, "sum BIGINT")
    assert {"total", "sum"} <= {*columns(flow)}
    flow.write_class(text("sum BIGINT"))
    run(spark, flow)
    assert totals(flow) == sorted([*range(1, 7), *range(1, 11)])
    assert "total" not in columns(flow)
    flow.write_class(text())
    arrive(flow, 200)
    run(spark, flow)
    assert totals(flow) == sorted([*range(1, 7), *range(1, 11), *range(1, 11)])
    assert proven(flow)


@pytest.mark.prove
def test_values_of_an_edit_that_was_abandoned_do_not_come_with_the_next_one(spark: SparkSession, place: Path) -> None:
    flow = begun(place, spark)
    is_abandoned(spark, flow, "sum BIGINT")
    flow.write_class(text("sum BIGINT"))
    run(spark, flow)
    assert totals(flow) == sorted([*range(1, 7), *range(1, 11)])


def test_what_a_backfill_of_everything_has_stored_is_there_for_the_next_epoch(spark: SparkSession, place: Path) -> None:
    """No epoch of the edited class was committed before, and the column that it drops is still in the table."""
    flow = begun(place, spark)
    flow.write_class(text("sum BIGINT"))
    _ = backfill_all(spark, flow)
    arrive(flow, 100)
    run(spark, flow)
    assert totals(flow) == list(range(1, 17))
    assert "total" not in columns(flow)
    assert proven(flow)


def test_a_driver_that_was_overtaken_leaves_the_state_alone(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = begun(place, spark)
    arrive(flow, 100)
    monkeypatch.setattr(lock, "held", lambda *_: nullcontext())
    real = evolution.fit_state

    def overtaken(*given: Any) -> bool:
        monkeypatch.setattr(evolution, "fit_state", real)
        flow.write_class(text("total BIGINT, more INT"))
        run(spark, flow)
        return real(*given)

    monkeypatch.setattr(evolution, "fit_state", overtaken)
    with pytest.raises(Fenced, match="expected no epoch after 1, found 2: another run went on"):
        run(spark, flow)
    assert "more" in columns(flow)
