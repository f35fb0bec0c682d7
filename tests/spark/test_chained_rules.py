"""Rules that read each other's sinks: each row once, in one application or in many, and what a reset does to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flow import START, Flow, event, rows_of
from support.running import crash, reset, run
from test_backfill import backfill

from floodmark.connectors.backlog.news import look
from floodmark.core.rules.rule import load_rule
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.errors import HistoryGone, NotThereYet
from floodmark.views.status.rulestatus import rule_status

CHECKOUT = Path(__file__).parents[2]
PAIRS = "SELECT window.start AS s, k, sum(c) AS c FROM events GROUP BY window(start, '2 minutes'), k"
PORTIONS = [[event(s + 7 * i, "ab"[i % 2]) for i in range(60)] for s in (0, 420)]


def chained(place: Path) -> tuple[Flow, Flow]:
    """Counts by minute; and, by the first rule's name, sums of two minutes. No minute comes after a later one."""
    first = Flow(place, sinks=1, stream={"start": {"version": 0}})
    first.write_rule()
    stream = {"delta": None, "rule": "counted", "event_time": "start", "lateness": "0 seconds"}
    second = Flow(place, "pairs", PAIRS, stream=stream, sinks=1)
    return first, second


def total(rows: list[dict[str, Any]], time: str) -> Counter[tuple[datetime, str]]:
    """Sums of `c` by two minutes and key."""
    found: Counter[tuple[datetime, str]] = Counter()
    for row in rows:
        found[START + (row[time] - START) // timedelta(minutes=2) * timedelta(minutes=2), row["k"]] += row["c"]
    return found


def check(first: Flow, second: Flow) -> None:
    """The second sink has each of its windows once, with what the first sink holds of it."""
    rows, wanted = rows_of(second.sink()), total(rows_of(first.sink()), "start")
    assert rows and len({(row["s"], row["k"]) for row in rows}) == len(rows)
    found = total(rows, "s")
    assert all(wanted[window] == count for window, count in found.items())
    newest = max(start for start, _ in found)
    assert {window for window in wanted if window[0] <= newest} == found.keys(), "all windows that are final are there"


@pytest.mark.prove
def test_each_result_of_one_rule_is_folded_once_by_the_next_however_both_are_killed(
    spark: SparkSession, place: Path
) -> None:
    first, second = chained(place)
    with pytest.raises(NotThereYet):
        run(spark, second)
    first.arrive(PORTIONS[0])
    assert crash(spark, first, "sink0.after"), "the next rule sees the epoch before its ledger does"
    assert crash(spark, second, "sink0.after")
    run(spark, first)
    run(spark, second)
    first.arrive(PORTIONS[1])
    run(spark, first)
    run(spark, second)
    check(first, second)
    assert second.counts()["late"] == 0


@pytest.mark.prove
def test_a_reset_stops_who_has_folded_its_results_until_that_is_reset_too(spark: SparkSession, place: Path) -> None:
    first, second = chained(place)
    first.arrive(PORTIONS[0])
    run(spark, first)
    run(spark, second)
    reset(spark, first)
    with pytest.raises(HistoryGone, match="removes or changes existing rows: rule counted was reset"):
        look(second.rule(), second.home)
    with pytest.raises(HistoryGone):
        run(spark, second)
    run(spark, first)
    reset(spark, second)
    run(spark, second)
    check(first, second)


@pytest.mark.prove
def test_so_does_a_backfill(spark: SparkSession, place: Path) -> None:
    first, second = chained(place)
    first.arrive(PORTIONS[0])
    first.arrive(PORTIONS[1])
    run(spark, first)
    run(spark, second)
    first.arrive([event(5, "late")])
    run(spark, first)
    assert look(second.rule(), second.home).why is None
    backfill(spark, first, 0, 60)
    with pytest.raises(HistoryGone, match="rule counted has replaced the results of an interval, in its backfill 1"):
        look(second.rule(), second.home)
    reset(spark, second)
    run(spark, second)
    check(first, second)
    assert total(rows_of(second.sink()), "s")[START, "late"] == 1


@pytest.mark.prove
def test_a_reset_that_keeps_output_is_told_of_who_reads_it(spark: SparkSession, place: Path) -> None:
    first, second = chained(place)
    first.arrive(PORTIONS[0])
    run(spark, first)
    run(spark, second)
    rule = load_rule(second.write_rule(), os.environ)
    assert [one.delivery for one in delivery(rule)] == ["exactly once"]
    reset(spark, first, keep_output=True)
    [found] = rule_status(rule, second.home).delivery
    assert (found.delivery, found.weakest) == ("at least once", "source")


@pytest.mark.prove
def test_one_application_runs_a_chain_in_order_from_nothing(place: Path) -> None:
    first, second = chained(place)
    second.write_rule()
    for portion in PORTIONS[:2]:
        first.arrive(portion)
    found = _run(place)
    assert {name: rule["result"] for name, rule in found.items()} == {"counted": "done", "pairs": "done"}
    assert found["pairs"]["epochs"][0]["read"] == len(rows_of(first.sink()))
    check(first, second)


def _run(place: Path) -> Any:
    """`floodmark run --all`, in a process of its own."""
    environment = {**os.environ, "FLOODMARK_MASTER": "local[2]", "PYTHONPATH": str(CHECKOUT / "jobs")}
    places = ["--rules", str(place / "rules"), "--home", str(place / "home")]
    words = [sys.executable, "-c", "from floodmark.cli import main; main()", "run", "--all", "--json", *places]
    done = subprocess.run(words, env=environment, cwd=place, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rules"]
