"""Many small rules in one Spark application: what a round of a group costs, and one more rule.

    python -m bench.groups [--rules N] [--rows N] [--rounds N]

A round is the very task that Airflow runs, with a real spark-submit: LOOK, one application, CHECK, what is told. Half
of the rules keep windows, half of them nothing; each has a source and a sink of its own, and so many new rows in each
round. The cost of one more rule is what all rules take beyond half of them, for each of these. Beside the time by the
clock stands that of the processors, which other work on the machine swings less.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import yaml
from deltalake import write_deltalake

CHECKOUT = Path(__file__).parents[1]
CACHE = CHECKOUT / ".cache"  # a home in a temporary directory is refused
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SCHEDULE = 300.0  # seconds: all rules within one schedule of 5 minutes
ONE_MORE = 1.0  # seconds
WORK = {
    "windows": "SELECT window.start AS minute, k, count(*) AS n, max(v) AS most FROM events "
    "GROUP BY window(at, '1 minute'), k",
    "rows": "SELECT at, k, v * 2 AS twice FROM events WHERE v > 10",
}


def write_rules(folder: Path, count: int, group: str | None = "small") -> list[str]:
    names = [f"rule_{number:03}" for number in range(count)]
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        text = {
            "rule": name,
            "streams": {"events": {"delta": f"${{LAKE}}/{name}", "event_time": "at", "lateness": "10 seconds"}},
            "sql": list(WORK.values())[number % len(WORK)],
            "sinks": [{"delta": f"${{LAKE}}/{name}_out"}],
            "schedule": "*/5 * * * *",
            **({"group": group} if group else {}),
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(text, sort_keys=False))
    return names


def arrive(table: Path, rows: int, round_: int) -> None:
    """Append ten minutes of events."""
    first = BEGIN + timedelta(minutes=10 * round_)
    data = {
        "at": pa.array([first + timedelta(seconds=600 * row / rows) for row in range(rows)], pa.timestamp("us", "UTC")),
        "k": [str(row % 20) for row in range(rows)],
        "v": [float(row % 100) for row in range(rows)],
    }
    write_deltalake(str(table), pa.table(data), mode="append")


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of processors: of this process and of all that it started."""

    clock: float
    busy: float

    def beyond(self, other: Spent, count: int) -> Spent:
        """The time of each of the `count` rules that only this measurement has."""
        return Spent((self.clock - other.clock) / count, (self.busy - other.busy) / count)


def timed(work: Callable[[], object]) -> Spent:
    begun, before = time.monotonic(), sum(os.times()[:4])
    work()
    return Spent(time.monotonic() - begun, sum(os.times()[:4]) - before)


def play(folder: Path, count: int, rows: int, rounds: int) -> list[Spent]:
    """The time of each round of a group of so many rules, and of a last round without new rows."""
    names = write_rules(folder / "rules", count)
    settle(folder)
    spent = []
    for number in range(rounds):
        for name in names:
            arrive(folder / "lake" / name, rows, number)
        spent.append(timed(partial(task, f"round{number}")))
    return [*spent, timed(partial(task, "idle"))]


def settle(folder: Path) -> None:
    """Set Airflow's environment, which Floodmark's plugin reads when it is called."""
    sys.path.insert(0, str(CHECKOUT / "scripts"))
    import airflow_env

    for name in ("airflow", "rules", "home", "lake"):
        (folder / name).mkdir(exist_ok=True)
    places = (folder / part for part in ("airflow", "rules", "home", "lake"))
    os.environ.update(airflow_env.environment(*places, airflow_env.Ports(), "of this measurement only" * 3))


def task(run: str) -> None:
    """Run the group's task as a process of Airflow's would: build its DAG, then execute the task."""
    from airflow.sdk.exceptions import AirflowSkipException
    from airflow.sdk.execution_time.context import OutletEventAccessors

    from floodmark_airflow.dags.dag_factory import all_dags

    (dag,) = all_dags("group.small")
    work = dag.tasks[0]
    ti = SimpleNamespace(try_number=1, max_tries=0)
    given: Any = {"run_id": run, "ti": ti, "outlet_events": OutletEventAccessors()}
    work.render_template_fields(given)
    try:
        failed = work.execute(given)
    except AirflowSkipException:
        assert run == "idle"
        return
    assert not failed, failed
    assert len(work.outlets) == len(work.rules)


def say(what: str, spent: Spent, aim: float | None = None) -> None:
    judged = "" if aim is None else f"  (aim {aim:.0f} s: {'met' if spent.clock <= aim else 'MISSED'})"
    print(f"  {what:<60} {spent.clock:7.2f} s {spent.busy:8.2f} s of processors{judged}", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rules", type=int, default=100)
    options.add_argument("--rows", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=3, help="the first begins the rules' generations")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        half, whole = (play(Path(folder, str(n)), n, given.rows, given.rounds) for n in (given.rules // 2, given.rules))
    more = given.rules - given.rules // 2
    print(f"{given.rules} rules in one group, {given.rows} rows each a round, {os.cpu_count()} cores")
    for number, (of_half, of_all) in enumerate(zip(half[:-1], whole[:-1], strict=True)):
        say(f"round {number + 1}, all rules", of_all, SCHEDULE)
        say("  half of them", of_half)
        say("  one rule more", of_all.beyond(of_half, more), ONE_MORE)
    say("a round with nothing new", whole[-1])


if __name__ == "__main__":
    main()
