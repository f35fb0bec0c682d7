"""A kind of source that the engine has never seen: one file, one line, and all of a rule's life.

The kind lies beside the port (`connectors/ports/fakes.py`); these tests register it, and change nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import START, STATELESS, Flow, event, rows_of
from support.oracle import ordered, tumbling
from support.running import backfill_killed, crash, run
from support.sourcelives import sink, some, verdict, windows
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.ports import fakes
from floodmark.core.protocol.crashpoints import BACKFILL_POINTS, EPOCH_POINTS
from floodmark.core.rules import kinds
from floodmark.errors import HistoryGone

COLUMNS = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"
MOST = 4  # rows of an epoch


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(kinds.SOURCES, "fake", "floodmark.connectors.ports.fakes:SOURCE")
    yield
    fakes.ROWS.clear()


def flow_of(place: Path, name: str = "counted", **more: Any) -> Flow:
    flow = Flow(place, name, **more)
    flow.stream = {"delta": None, "fake": {"name": name, "columns": COLUMNS}, **flow.stream}
    flow.settings = {"epoch": {"max_rows": MOST}, **flow.settings}
    return flow


OFTEN = ("sink0.after",)  # `make prove` tries all points


def points(every: Sequence[str | None], often: Sequence[str]) -> list[Any]:
    return [pytest.param(one, marks=() if one in often else pytest.mark.prove) for one in every]


@pytest.mark.parametrize("point", points(EPOCH_POINTS, OFTEN))
def test_an_epoch_that_was_killed_goes_on(spark: SparkSession, place: Path, point: str) -> None:
    """Late and dead rows, two sinks: every point of the protocol is reached."""
    flow, events = flow_of(place), some()
    late, dead = event(-600), event(None)
    fakes.append(flow.name, [*events[:9], late, dead, *events[9:14]])
    assert crash(spark, flow, point, 1 if point == "offsets.before" else 2)
    fakes.append(flow.name, events[14:])
    run(spark, flow)

    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert verdict(flow) == "proven"
    counts = flow.counts()
    assert (counts["read"], counts["late"], counts["dead"]) == (len(events) + 2, 1, 1)


@pytest.mark.prove  # `unit/test_source_promises.py`
def test_an_epoch_reads_no_more_rows_than_the_rule_allows(spark: SparkSession, place: Path) -> None:
    flow, events = flow_of(place, sql=STATELESS), some(MOST * 2 + 1)
    fakes.append(flow.name, events)
    done = run(spark, flow)
    assert [epoch.read for epoch in done.epochs] == [MOST, MOST, 1]
    ends = [json.loads(json.loads(row.body)["entry"].split("\n")[2])["rows"]
            for row in flow.ledger().rows if row.kind == "commit"]  # fmt: skip
    assert ends == [0, MOST, MOST * 2, MOST * 2 + 1], "offsets of epochs join on"
    assert not run(spark, flow).epochs
    assert len(rows_of(flow.sink())) == len(events)


def test_without_a_limit_all_rows_are_one_epoch(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS, settings={"epoch": {}})
    fakes.append(flow.name, some(9))
    assert [epoch.read for epoch in run(spark, flow).epochs] == [9]


@pytest.mark.prove
def test_it_is_joined_with_a_table(spark: SparkSession, place: Path) -> None:
    events = some(12)
    sql = """SELECT a.at, a.k, a.n, b.v FROM events a JOIN others b
             ON a.k = b.k AND a.n = b.n AND b.at BETWEEN a.at - INTERVAL 1 MINUTE AND a.at + INTERVAL 1 MINUTE"""
    flow = flow_of(place, sql=sql, sinks=1)
    table = Flow(place, "table")
    for portion in (events[:5], events[5:]):
        table.arrive(portion)
    timed = {"event_time": "at", "lateness": "30 seconds"}
    fake = {"fake": {"name": flow.name, "columns": COLUMNS}, **timed}
    flow.settings = {"streams": {"others": {"delta": table.source, **timed}, "events": fake}}
    fakes.append(flow.name, events[:7])
    assert crash(spark, flow, "sink0.after")
    fakes.append(flow.name, events[7:])
    table.arrive([event(100_000)])
    fakes.append(flow.name, [event(100_000, "z")])
    run(spark, flow)
    assert sink(flow, names=("k", "n", "v")) == ordered((one["k"], one["n"], one["v"]) for one in events)
    assert verdict(flow) == "proven"


@pytest.mark.parametrize("point", points((None, *BACKFILL_POINTS), ("backfill.sink.after",)))
@pytest.mark.prove
def test_a_backfill_reads_it_again(spark: SparkSession, place: Path, point: str | None) -> None:
    flow, events = flow_of(place, sql="SELECT window.start AS start, k, count(*) AS c, sum(v) AS total, max(n) AS top "
                           "FROM events GROUP BY window(at, '1 minute'), k"), some()  # fmt: skip
    flow.settings = {"epoch": {"max_rows": 3 * MOST}}  # two epochs
    late = [event(5, "a", 64.0, 1), event(70, "b", 128.0, 2)]
    fakes.append(flow.name, [*events, event(1000), *late])
    run(spark, flow)
    fakes.append(flow.name, [event(1010)])  # that no epoch has read is no part of it
    low, high = (round(START.timestamp() + seconds) * 1_000_000 for seconds in (0, 180))
    backfill_killed(spark, flow, low, high, point)
    inside = [row for row in tumbling([*events, *late], START.replace(minute=3)) if row[0] >= START]
    assert [row for row in sink(flow) if START <= row[0] < START.replace(minute=3)] == inside
    assert verdict(flow) == "proven"


def test_another_one_in_its_place_is_refused(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS, sinks=1)
    fakes.append(flow.name, some(6))
    run(spark, flow)
    del fakes.ROWS[flow.name]
    fakes.append(flow.name, some(9))
    with pytest.raises(HistoryGone, match="is not the source that was read"):
        run(spark, flow)


def test_every_command_speaks_of_it(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS, sinks=1)
    fakes.append(flow.name, some(6))
    run(spark, flow)
    fakes.append(flow.name, some(3))
    flow.write_rule()
    home, rules = ["--home", str(flow.home)], ["--rules", str(place / "rules")]
    wheres = {"status": home + rules, "plan": home + rules, "audit": home}
    said = {name: told([name, flow.name, *where, "--json"]) for name, where in wheres.items()}
    assert said["plan"]["streams"][0]["address"] == f"fake://{flow.name}"
    assert '"rows": 3' in json.dumps(said["status"])
    assert "proven" in json.dumps(said["audit"]).lower()


def told(words: list[str]) -> Any:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)
