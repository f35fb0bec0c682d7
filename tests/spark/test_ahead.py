"""What the next epoch would give is what it then gives; to look ahead leaves everything as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import STATELESS, TUMBLING, Flow, event, rows_of
from support.running import crash, run

from floodmark.errors import Refused, RuleChanged
from floodmark.spark.look.ahead import NextEpoch, look_ahead


def files(flow: Flow) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in flow.root.rglob("*") if path.is_file()}


def ahead(spark: SparkSession, flow: Flow, rows: int = 20) -> NextEpoch:
    rule, before = flow.rule(), files(flow)
    found = look_ahead(spark, rule, flow.home, rows)
    assert files(flow) == before
    return found


def counted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(row[1:] for row in rows)


@pytest.mark.prove
def test_the_next_epoch_is_told_before_it_is_folded(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=TUMBLING)
    flow.arrive([event(0, "a", 1.0, 1), event(70, "b")])
    first = ahead(spark, flow)
    assert (first.epoch, first.rows, first.before) == (1, [], None)
    run(spark, flow)
    flow.arrive([event(45, "a", 2.5, 7), event(100, "b"), event(None)])
    found = ahead(spark, flow)
    assert [name for name, _ in found.columns] == ["start", "k", "c", "total", "top"]
    assert counted(found.rows) == [("a", 2, 3.5, 7)]
    assert (found.epoch, found.counts.read, found.counts.dead) == (2, 3, 1)
    run(spark, flow)
    assert counted([tuple(row.values()) for row in rows_of(flow.sink())]) == counted(found.rows)
    head = flow.ledger().head
    assert head is not None
    assert head.watermark == found.after
    flow.arrive([event(20, "a")])
    assert ahead(spark, flow).counts.late == 1


@pytest.mark.prove
def test_nothing_new_is_no_row_and_many_are_cut(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS)
    flow.arrive([event(second) for second in range(5)])
    found = ahead(spark, flow, rows=3)
    assert (len(found.rows), found.more) == (3, True)
    run(spark, flow)
    assert (ahead(spark, flow).rows, ahead(spark, flow).counts.read) == ([], 0)


def test_what_a_run_would_finish_first_or_refuse_is_refused(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=TUMBLING)
    flow.arrive([event(0)])
    assert crash(spark, flow, "intent.after")
    with pytest.raises(Refused, match="a run would finish that first"):
        ahead(spark, flow)
    run(spark, flow)
    flow.sql = TUMBLING.replace("1 minute", "2 minutes")
    with pytest.raises(RuleChanged):
        ahead(spark, flow)
