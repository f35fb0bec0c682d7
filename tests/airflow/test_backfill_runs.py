"""Airflow's own backfill over a day of hours, by a real scheduler, while the schedule goes on and input arrives.

The rule's schedule is hourly when the backfill is made, so Airflow makes a run for each hour; then it is every minute,
so that scheduled runs come between them.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from local_airflow import LocalAirflow
from support.flow import START, Flow, event, rows_of
from support.oracle import tumbling
from support.postgres import served
from support.waiting import wait
from test_faults import DONE

from floodmark.audit.certificate import audit
from floodmark.ledger.ledger import LedgerReader

pytestmark = [pytest.mark.prove, pytest.mark.timeout(5400)]
SQL = """
SELECT window.start AS start, k, count(*) AS c, sum(v) AS total, max(n) AS top FROM events
GROUP BY window(at, '1 hour'), k
"""
HOURS, AT_ONCE = 24, 4
DAY = datetime(2024, 3, 5, tzinfo=UTC)
LATENESS = timedelta(minutes=30)
DAG = "rule.hours"
LIMIT = 4500.0  # seconds; 48 runs of Spark one after the other, maybe beside other tests


@dataclass
class Day:
    """A rule of hourly windows, and all that has arrived for it."""

    airflow: LocalAirflow
    flow: Flow
    dice: random.Random
    arrived: list[dict[str, Any]] = field(default_factory=list)

    def arrive(self, hours: list[float]) -> None:
        """One file with an event at each of these hours of the day."""
        since = (DAY - START).total_seconds()
        events = [event(since + round(3600 * at), self.dice.choice("abc"), float(round(at)), 1) for at in hours]
        self.flow.arrive(events)
        self.arrived += events

    def spread(self, first: float, last: float, count: int) -> list[float]:
        return [self.dice.uniform(first, last) for _ in range(count)]

    def rows(self) -> list[Any]:
        found = LedgerReader.load(self.flow.place.ledger)
        return found.rows if found else []

    def is_folded(self) -> bool:
        """Whether all that has arrived stands in committed epochs, and nothing is open."""
        rows = self.rows()
        if not rows or rows[-1].kind not in ("commit", "backfilled"):
            return False
        counts = self.flow.counts()
        return counts.get("folded", 0) + counts.get("late", 0) == len(self.arrived)

    def runs(self, kind: str) -> list[dict[str, Any]]:
        found = self.airflow.find("dags", DAG, "dagRuns") or {"dag_runs": []}
        return [run for run in found["dag_runs"] if run["run_type"] == kind]

    def answer(self) -> dict[datetime, list[Any]]:
        """What plain Python makes of all that has arrived, by hour."""
        return by_hour(tumbling(self.arrived, max(one["at"] for one in self.arrived) - LATENESS, minutes=60))


def by_hour(rows: list[tuple[Any, ...]]) -> dict[datetime, list[Any]]:
    rows = sorted(rows, key=repr)
    return {start: list(found) for start, found in groupby(rows, key=lambda row: row[0])}


@pytest.fixture
def day(place: Path) -> Iterator[Day]:
    seed = int(os.environ.get("FLOODMARK_SEED") or random.SystemRandom().getrandbits(32))
    print(f"FLOODMARK_SEED={seed}")
    flow = Flow(place, "hours", sql=SQL, stream={"lateness": "30 minutes", "start": {"version": 0}}, sinks=1)
    schedule(flow, "@hourly")
    airflow = LocalAirflow(place / "airflow", place / "rules", place / "home", place / "lake")
    with served(place) as database, airflow:  # in SQLite the new runs and a busy scheduler lock each other out
        airflow._environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database
        airflow._environment["AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"] = "5"
        airflow.prepare()
        found = Day(airflow, flow, random.Random(seed))
        found.arrive([*range(HOURS + 1), *found.spread(0, HOURS + 1, 100), HOURS + 2])
        found.arrive(found.spread(0, HOURS, 40))
        airflow.start()
        airflow.wait_healthy()
        yield found


def schedule(flow: Flow, cron: str) -> None:
    flow.settings = {"schedule": cron, "epoch": {"max_files": 1}}
    flow.write_rule()


def airflow_cli(airflow: LocalAirflow, *words: str) -> str:
    call = [sys.executable, "-m", "airflow", *words]
    found = subprocess.run(call, env=airflow._environment, cwd=airflow.folder, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_airflows_own_backfill_over_24_hours_beside_the_schedule(day: Day) -> None:
    wait(day.is_folded)
    late = day.flow.counts()["late"]
    assert late > 0
    begin, end = (at.strftime("%Y-%m-%dT%H:%M:%S") for at in (DAY, DAY + timedelta(hours=HOURS - 1)))
    airflow_cli(day.airflow, "backfill", "create", "--dag-id", DAG, "--from-date", begin, "--to-date", end,
                "--max-active-runs", str(AT_ONCE))  # fmt: skip
    assert len(day.runs("backfill")) == HOURS
    schedule(day.flow, "* * * * *")
    most, arrival, hour = 0, 0.0, HOURS + 2.0

    def ended() -> bool:
        nonlocal most, arrival, hour
        if time.monotonic() > arrival:
            day.arrive(day.spread(hour, hour + 0.4, 3))
            arrival, hour = time.monotonic() + day.dice.uniform(2, 40), hour + 0.2
        states = [run["state"] for run in day.runs("backfill")]
        most = max(most, states.count("running"))
        return all(state in DONE for state in states)

    wait(ended, limit=LIMIT)
    wait(day.is_folded)
    assert [run["state"] for run in day.runs("backfill")] == ["success"] * HOURS
    assert most == AT_ONCE
    judge(day, late)


def judge(day: Day, late: int) -> None:
    """Each hour once, all late rows in it, live epochs between; the sink is the batch answer, and it is proven."""
    rows = day.rows()
    done = [at for at, row in enumerate(rows) if row.kind == "backfilled"]
    asked = [json.loads(row.body) for row in rows if row.kind == "backfill"]
    between = [row for row in rows[done[0] : done[-1]] if row.kind == "commit"]
    print(json.dumps({"backfills": len(done), "epochs between": len(between), "rows arrived": len(day.arrived),
                      "by": sorted({row.run.split("__")[0] for row in between})}))  # fmt: skip
    assert sorted({one["begin"] for one in asked}) == [
        round((DAY + timedelta(hours=at)).timestamp()) * 1_000_000 for at in range(HOURS)
    ]
    assert len(done) == HOURS
    assert sum(one["restated"].get("events", 0) for one in asked) == late
    assert len(between) >= 3 and all(row.run.startswith("scheduled__") for row in between)
    found, expected = by_hour([tuple(row.values()) for row in rows_of(day.flow.sink())]), day.answer()
    assert found.keys() == expected.keys()
    assert {at: rows for at, rows in found.items() if rows != expected[at]} == {}
    certificate = audit(day.flow.name, day.flow.home, deep=True)
    assert certificate is not None
    assert (certificate.verdict, certificate.findings) == ("proven", [])
