"""Rules over PostgreSQL, and the server itself, killed at random moments while others write: each row is folded once.

The seed of the random moments is printed; FLOODMARK_SEED takes it again.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support import postgres
from support.flow import STATELESS, Flow, rows_of
from support.postgres import Server, Writers

from floodmark.audit.certificate import audit
from floodmark.proving.play.processes import kill_all, started, wait_until

pytestmark = [pytest.mark.prove, pytest.mark.timeout(7200)]
CHECKOUT = Path(__file__).parents[2]
SEED = int(os.environ.get("FLOODMARK_SEED") or random.SystemRandom().randrange(2**32))
KILLS, RULES = 200, 8
LIMIT = 900.0  # seconds for one application


def _flow(place: Path, table: str) -> Flow:
    flow = Flow(place, table, sql=STATELESS, sinks=1)
    by = {"by": "snapshots"} if table.endswith("0") else {}
    flow.stream = {"delta": None, "postgres": {"connection": "shop", "table": table, **by}, "lateness": "1 day"}
    flow.write_rule()
    return flow


@contextmanager
def _writing(server: Server, tables: list[str], chance: random.Random) -> Iterator[None]:
    """Writers to each table, side by side, for as long as the context lasts; what the server loses is not made up."""
    done = threading.Event()

    def write(table: str, seed: int) -> None:
        writers = Writers(server, table, random.Random(seed), most=3, first=seed << 20)
        while not done.wait(0.05):
            try:
                writers.act(5)
            except psycopg.Error:
                writers.forget()  # the server was killed
        writers.forget()

    threads = [threading.Thread(target=write, args=(table, chance.randrange(1 << 20))) for table in tables]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        done.set()
        for one in threads:
            one.join()


def _application(place: Path, flows: dict[str, Flow], log: str) -> Any:
    command = [sys.executable, "-m", "support.many", "run", str(place), *flows]
    paths = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
    return started(command, {"PYTHONPATH": paths, "TZ": "UTC"}, place / f"{log}.txt")


def _killed(place: Path, flows: dict[str, Flow], server: Server, chance: random.Random) -> int:
    """Kill the rules or the server, or one and then the other, while rules work; how many rules were not done."""
    log = place / "killed.txt"
    log.unlink(missing_ok=True)
    with _application(place, flows, "killed") as driver:
        wait_until(lambda: "Landed" in log.read_text() or "EpochReport" in log.read_text(), driver, LIMIT)
        wait_until(lambda: False, driver, chance.uniform(0, 15))
        if chance.random() < 0.4:
            server.kill()
            server.start()
            wait_until(lambda: False, driver, chance.uniform(0, 10))
        kill_all(driver.pid)
    return len(flows) - sum(f"done {name}\n" in log.read_text() for name in flows)


def test_each_committed_row_is_folded_once_whatever_is_killed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, killed, rounds = random.Random(SEED), 0, 0
    with postgres.started(place / "server") as server:
        monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)
        flows = {f"t{i}": _flow(place, f"t{i}") for i in range(RULES)}
        for table in flows:
            server.run(f"CREATE TABLE {table} (at timestamptz, k text, v float8, n bigint PRIMARY KEY)",
                       f"INSERT INTO {table} SELECT now(), 'a', 1, -i FROM generate_series(1, 2000) i")  # fmt: skip
        while killed < KILLS:
            with _writing(server, list(flows), chance):
                killed += _killed(place, flows, server, chance)
            rounds += 1
        print(f"seed {SEED}: {killed} rules killed at work in {rounds} runs")
        for _ in range(2):  # the first one lands what a killed one had begun, the second one what came behind it
            with _application(place, flows, "recovery") as driver:
                assert driver.wait(LIMIT) == 0, (place / "recovery.txt").read_text()[-20_000:]
        for table, flow in flows.items():
            held = sorted(n for (n,) in server.ask(f"SELECT n FROM {table}"))
            assert sorted(row["n"] for row in rows_of(flow.sink())) == held and len(held) > 2000, table
            found = audit(flow.name, flow.home, deep=True)
            assert found is not None and (found.verdict, found.findings) == ("proven", []), table
