"""Windows of rows, first rows and duplicates of a key: random events, epochs, crashes and rewrites, against Python."""

from __future__ import annotations

import shutil
from typing import Any
from unittest import mock
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from support.compared import CACHE, same, without
from support.drawn import STEPS, play
from support.flow import Flow, event, rows_of
from support.rowsofkeys import KINDS, micros
from support.running import crash, run

from floodmark.core.lifecycle import cleanup

DRAWN = given(
    steps=STEPS,
    name=st.sampled_from(sorted(KINDS)),
    max_files=st.sampled_from([None, 1]),
    compacts=st.booleans(),
)
FIRST = [event(s, k, 1.0, n) for s, k, n in ((0, "a", -1), (1, "a", 2), (1, "a", 2), (2, "b", 0), (90, "a", 3),
                                            (91, "b", -2), (92, "b", 1), (93, "a", -1))]  # fmt: skip
SECOND = [event(s, k, 2.0, n) for s, k, n in ((95, "a", 5), (96, "b", 4), (97, "a", 2), (98, "b", -3), (150, "b", 3),
                                             (151, "a", -1), (152, "a", 3), (20, "a", 5))]  # fmt: skip
IN_SHORT = ("top",)  # the kind that `make test` tries too: several rows of a key
LAST = [event(s, k, 3.0, n) for s, k, n in ((153, "a", -1), (154, "b", -1), (155, "b", 5), (400, "a", 0))]


@pytest.mark.parametrize(
    "name", [name if name in IN_SHORT else pytest.param(name, marks=pytest.mark.prove) for name in sorted(KINDS)]
)
def test_each_kind_equals_the_model(spark: SparkSession, name: str) -> None:
    steps = [(FIRST, "intent.after", False), (SECOND, "state.after", False), (LAST, "commit.before", False)]
    found, fired = _check(spark, steps, name, None, compacts=True)
    assert found
    assert fired == [True, True, True]


@pytest.mark.prove
@DRAWN
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_rows_of_keys_equal_the_model_many_times(spark: SparkSession, **drawn: Any) -> None:
    _check(spark, **drawn)


def _check(
    spark: SparkSession, steps: list[Any], name: str, max_files: int | None, compacts: bool
) -> tuple[list[tuple[Any, ...]], list[bool]]:
    root, kind = CACHE / uuid4().hex, KINDS[name]
    root.mkdir(parents=True)
    limits = {"epoch": {"max_files": max_files}} if max_files else {}
    flow = Flow(root, sql=kind.sql, stream={"start": {"version": 0}, **kind.stream}, sinks=1)
    flow.settings |= {**limits, **kind.settings}
    if kind.key:
        flow.settings["sinks"] = [{"delta": flow.sink(), "key": list(kind.key)}]
    try:
        with mock.patch.object(cleanup, "MAX_FILES", 1 if compacts else cleanup.MAX_FILES):
            fired = play(spark, flow, steps)
        return _compared(flow, name, [one for events, _, _ in steps for one in events]), fired
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _compared(flow: Flow, name: str, arrived: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    folded = without(arrived, [*rows_of(flow.place.late), *rows_of(flow.place.dead)])
    head = flow.ledger().head
    assert head is not None
    mark = head.watermark
    if KINDS[name].passed:
        folded = [row for row in folded if mark is not None and micros(row["at"]) < mark]
    found = [tuple(row.values()) for row in rows_of(flow.sink())]
    expected = list(KINDS[name].answer(folded))
    if KINDS[name].windows:
        expected = [row for row in expected if mark is not None and micros(row[0]) + 60_000_000 <= mark]
    same(found, expected)
    return found


def test_a_window_of_rows_goes_on_where_a_crash_left_it(spark: SparkSession, place: Any) -> None:
    kind = KINDS["count"]
    flow = Flow(place, sql=kind.sql, settings=kind.settings, sinks=1)
    for second in range(6):
        flow.arrive([event(second * 40, "a", n=2)])
        if second == 3:
            assert crash(spark, flow, "commit.before")
    run(spark, flow)
    assert [(row["c"], row["total"]) for row in rows_of(flow.sink())] == [(3, 6)] * 2
