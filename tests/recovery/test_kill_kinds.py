"""Every crash point by every kind of fault, for every shape of rule, at every qos; and kills at random moments.

The seed of the random moments is printed; FLOODMARK_SEED takes it again.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.flow import Flow, event, rows_of
from support.killing import (
    CHECKOUT,
    FAULTS,
    FINAL,
    LATE_AND_DEAD,
    LIMIT,
    PORTIONS,
    SHAPES,
    Case,
    Script,
    expected,
    flow_of,
)
from support.oracle import ordered

from floodmark.core.protocol.crashpoints import EPOCH_POINTS
from floodmark.proving.play.processes import kill_all, started, wait_until

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]
SEED = int(os.environ.get("FLOODMARK_SEED") or random.SystemRandom().randrange(2**32))
ALL = [one for portion in PORTIONS for one in portion]
# A rule without windows or keys keeps no state, so that it never comes to write it.
STATELESS = tuple(point for point in EPOCH_POINTS if not point.startswith("state."))
POINTS = dict.fromkeys(SHAPES, EPOCH_POINTS) | {"stateless": STATELESS}
# Points between the intent and the commit row: there the epoch is open, and at qos 0 it is lost.
OPEN = EPOCH_POINTS[EPOCH_POINTS.index("intent.after") : EPOCH_POINTS.index("commit.after")]
ONE_ATTEMPT = ("stopped",)  # faults after which the driver itself goes on: nothing is tried twice
KILLS = 200


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    root = CHECKOUT / ".cache" / "tests" / uuid4().hex
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_point(scratch: Path, fault: str, shape: str) -> None:
    cases = [Case(shape, qos, point) for qos in (0, 1, 2) for point in POINTS[shape]]
    script = Script(scratch / f"{fault}-{shape}", cases, fault, SEED)
    script.play()
    print(f"{fault}, {shape}, seed {SEED}: {len(script.fired)} faults of {len(cases)} planned; exits {script.codes}")
    assert script.fired == set(cases)
    assert script.codes.pop("recovery") == 0, script.said("recovery")[-20_000:]
    _judge_exits(script)
    assert script.changed == {}, "a woken driver changed what another had gone on from"
    wrong = {str(case): found for case in cases if (found := _wrong(script, case))}
    for case, found in wrong.items():
        print(case, *found, sep="\n  ")
    assert not wrong


def _judge_exits(script: Script) -> None:
    if script.fault == "jvm":
        assert script.codes["held"] not in (0, None), "a driver without its JVM must not end well"
    if script.fault == "stopped":
        assert script.codes == {"retry": 1, "held": 0}, "the retry is refused while the driver lives, even stopped"
        assert "done " not in script.said("retry")
    if script.fault == "overtaken":
        assert script.codes["retry"] == 0, script.said("retry")[-20_000:]
        assert script.codes["held"] not in (0, None), "an overtaken driver is told so"


def _wrong(script: Script, case: Case) -> list[Any]:
    """What the case's sinks and counts have that they must not have; nothing where all is well."""
    qos = 2 if script.fault in ONE_ATTEMPT else case.qos
    flow, right = script.flows[case], expected(case.shape, ALL, FINAL)
    found: list[Any] = [flow.counts() for _ in [0] if not _balanced(flow)]
    for number in (0, 1):
        rows = script.sink(case, number)
        if not _as_promised(rows, right, qos, case, script.fault):
            found.append((number, rows, right))
    return found


def _as_promised(rows: list[Any], right: list[Any], qos: int, case: Case, fault: str) -> bool:
    if qos == 2:
        return rows == right
    if qos == 1:
        return set(rows) == set(right)
    kept = expected(case.shape, PORTIONS[0] + PORTIONS[2], FINAL)
    names = Counter(row[: 2 if case.shape != "stateless" else None] for row in rows)
    doubled = [name for name, count in names.items() if count > 1]
    if not _may_be_open(case, fault):
        return rows == right
    return not doubled and (case.shape == "keyed" or set(rows) <= {*right, *kept})


def _may_be_open(case: Case, fault: str) -> bool:
    """Whether the fault may have met the epoch open. Python, which outlives its JVM, still writes the intent."""
    return case.point in OPEN or fault == "during" or (fault == "jvm" and case.point == "intent.before")


def _balanced(flow: Flow) -> bool:
    """Every row that arrived is counted once, and what is set apart is there once."""
    counts = flow.counts()
    parts = sum(counts.get(part, 0) for part in ("filtered", "folded", "late", "dead", "lost"))
    arrived = len(ALL + LATE_AND_DEAD)
    apart = [len(rows_of(address)) for address in (flow.place.late, flow.place.dead)]
    lost = bool(flow.ledger().head.lost)  # type: ignore[union-attr]
    return counts["read"] == arrived == parts if not lost else apart <= [1, 2]


def test_kills_at_random_moments(scratch: Path) -> None:
    """Rules of each shape at qos 2; new input before each start, and a kill at some moment of each run."""
    chance, root = random.Random(SEED), scratch / "random"
    flows = {f"{shape}{i}": flow_of(root, f"{shape}{i}", shape, 2) for shape in SHAPES for i in range(7)}
    arrived: list[dict[str, Any]] = []
    killed = rounds = 0
    while killed < KILLS:
        portion = _portion(chance, rounds)
        arrived += portion
        for flow in flows.values():
            flow.arrive(portion)
            flow.write_rule()
        killed += _killed_after(root, list(flows), chance.uniform(0, 30))
        rounds += 1
    print(f"seed {SEED}: {killed} rules killed at work in {rounds} runs")
    with _many(root, flows, "recovery") as driver:
        assert driver.wait(LIMIT) == 0, (root / "recovery.txt").read_text()[-20_000:]
    final = max(one["at"] for one in arrived) - timedelta(seconds=30)
    for name, flow in flows.items():
        shape = name.rstrip("0123456789")
        right = expected(shape, arrived, final)
        found = [
            ordered(tuple(row[column] for column in SHAPES[shape]) for row in rows_of(flow.sink(i))) for i in (0, 1)
        ]
        assert found == [right, right], name
        assert flow.counts()["folded"] == len(arrived)


def _portion(chance: random.Random, number: int) -> list[dict[str, Any]]:
    """Rows of 90 seconds, of which the next portion has the last 30, too: none is late, no two have one time."""
    seconds = (60 * number + tenth / 10 + number / 1000 for tenth in chance.sample(range(900), 12))
    return [event(at, chance.choice("abc"), chance.randrange(8) / 4, chance.randrange(9)) for at in seconds]


def _killed_after(root: Path, rules: list[str], seconds: float) -> int:
    """Kill a run so many seconds after its first epoch; how many rules it had not done."""
    log = root / "killed.txt"
    log.unlink(missing_ok=True)
    with _many(root, rules, "killed") as driver:
        wait_until(lambda: "EpochReport" in log.read_text(), driver, LIMIT)
        wait_until(lambda: False, driver, seconds)
        at_work = driver.poll() is None
        kill_all(driver.pid)
    done = sum(f"done {rule}\n" in log.read_text() for rule in rules)
    return len(rules) - done if at_work else 0


def _many(root: Path, rules: Iterable[str], log: str) -> Any:
    command = [sys.executable, "-m", "support.many", "run", str(root), *rules]
    paths = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
    return started(command, {"PYTHONPATH": paths, "TZ": "UTC"}, root / f"{log}.txt")
