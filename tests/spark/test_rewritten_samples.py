"""The rewrite of a sample: which rows leave and come, and that none comes that the rule would not take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.flow import SCHEMA, Flow, event
from support.oracle import ordered

from floodmark.core.rules.rule import Rule
from floodmark.ledger.home import Home
from floodmark.proving.faultplan import REFERENCE
from floodmark.proving.play.rewriting import Rewriting, prepare, rewrite
from floodmark.proving.play.sampling import commit
from floodmark.proving.scratch import Scratch, corrected_copy

COMMITS, EACH = 6, 7
ROWS = [event(10 * i, "ab"[i % 2], i / 4, i) for i in range(COMMITS * EACH)]
# Of seven rows, the first, fourth and seventh leave, and the second comes: in the third commit and in the last.
LEAVE = [at * EACH + place for at in (2, 5) for place in (0, 3, 6)]
COME = [at * EACH + 1 for at in (2, 5)]


@pytest.fixture
def scratch(place: Path) -> Scratch:
    """A sample, and an undisturbed run in which no row was dead."""
    found = Scratch(place / "scratch")
    write_deltalake(found.input("events"), pa.Table.from_pylist([], SCHEMA))
    for number in range(COMMITS):
        file = place / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS[number * EACH : (number + 1) * EACH], SCHEMA), file)
        commit(found.input("events"), number, [file])
    dead(found, [])
    return found


def dead(scratch: Scratch, rows: list[dict[str, Any]]) -> None:
    told = [{**row, "_epoch": 1, "_stream": "events", "_reason": "wrong", "_source": None} for row in rows]
    more = [("_epoch", pa.int64()), ("_stream", pa.string()), ("_reason", pa.string()), ("_source", pa.string())]
    table = pa.Table.from_pylist(told, pa.schema([*SCHEMA, *(pa.field(*one) for one in more)]))
    write_deltalake(Home(scratch.home, REFERENCE).dead, table, mode="overwrite")


def rule_of(place: Path, **event_time: Any) -> Rule:
    rule = Flow(place).rule()
    stream = rule.streams["events"]
    assert stream.event_time is not None
    timed = stream.model_copy(update={"event_time": stream.event_time.model_copy(update=event_time)})
    return rule.model_copy(update={"streams": {"events": timed}})


def numbers(address: str) -> list[tuple[Any, ...]]:
    return ordered((one,) for one in DeltaTable(address).to_pyarrow_table()["n"].to_pylist())


def without(*gone: int) -> list[tuple[Any, ...]]:
    return ordered((i,) for i in range(len(ROWS)) if i not in gone)


def test_rows_leave_and_come_once(spark: SparkSession, place: Path, scratch: Scratch) -> None:
    rule = rule_of(place)
    assert prepare(spark, rule, scratch) == [Rewriting("events", len(ROWS) - 2, 6, 2)]
    copied = corrected_copy(rule, "Case", scratch, 2)
    address = copied.streams["events"].address
    assert numbers(address) == without(*COME)
    for _ in range(2):
        rewrite(copied, scratch)
        assert (numbers(address), DeltaTable(address).version()) == (without(*LEAVE), COMMITS + 1)
    assert numbers(scratch.input("events")) == without(), "other copies read it"


@pytest.mark.parametrize("expr", [None, "at + INTERVAL 1 SECOND"])
def test_no_row_comes_that_was_dead(spark: SparkSession, place: Path, scratch: Scratch, expr: str | None) -> None:
    """A dead row has the event time that was computed."""
    [kept] = (ROWS[at] for at in COME[:1])
    seconds = 10 * COME[0] + (1 if expr else 0)
    dead(scratch, [{**kept, "at": event(seconds)["at"]}, ROWS[LEAVE[0]]])
    found = prepare(spark, rule_of(place, expr=expr), scratch)
    assert found == [replace(found[0], rows=len(ROWS) - 1, left=6, came=1)]


def test_an_input_of_few_rows_loses_one(spark: SparkSession, place: Path) -> None:
    scratch = Scratch(place / "scratch")
    write_deltalake(scratch.input("events"), pa.Table.from_pylist([], SCHEMA))
    for number in range(3):
        pq.write_table(pa.Table.from_pylist(ROWS[number : number + 1], SCHEMA), place / f"{number}.parquet")
        commit(scratch.input("events"), number, [place / f"{number}.parquet"])
    assert prepare(spark, rule_of(place), scratch) == [Rewriting("events", 3, 2, 0)]
    copied = corrected_copy(rule_of(place), "Case", scratch, 1)
    rewrite(copied, scratch)
    assert numbers(copied.streams["events"].address) == [(0,)]
