"""Every crash point, by real SIGKILL of every process of a real run; then new input, then a cold recovery.

Many rules share one application, each waiting at a crash point of its own; one kill takes them all. A point that was
not reached fails the test that owns it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.flow import START, Flow, event, rows_of
from support.oracle import latest_but_gone, newest_by_key, ordered, running, sessions, totals, tumbling
from support.roomy import INTERPRETED, QUIET

from floodmark.core.protocol.crashpoints import BEGIN_POINTS, COMPACT_POINTS, EPOCH_POINTS, LOST_POINTS, RESET_POINTS
from floodmark.ledger.ledger import LedgerReader
from floodmark.proving.play.processes import kill_all, started, wait_until
from floodmark.reading import read

pytestmark = pytest.mark.timeout(3600)  # the script is one fixture
CHECKOUT = Path(__file__).parents[2]
FIRST = [event(s, k) for s, k in ((0, "a"), (10, "b"), (50, "a"), (70, "a"), (100, "b"), (130, "a"))]
SECOND = [event(105), event(110, "b", 2.5, 4), event(200, "a", None, 9), event(250, None, 3.0, None)]
APART = [event(20), event(None), {**event(0), "at": START.replace(year=2999)}]
THIRD = [event(260), event(300, "b"), event(390)]
FINAL = START + timedelta(seconds=360)
# Rows for upserts: keys that come again, older than before, changed, and marked as gone (n = 9).
KEYED = [
    [event(0, "a", 1.0, 1), event(10, "a", 2.0, 1), event(0, "b", 1.0, 1), event(0, None, 1.0, 1)],
    [event(5, "a", 3.0, 2), event(0, "b", 2.0, 9), event(20, None, 2.0, 2), event(0, "c", 1.0, 1)],
    [event(0, "b", 3.0, 3), event(10, "a", 4.0, 9), event(30, "c", 2.0, 1)],
]
TUMBLING = ("start", "k", "c", "total", "top")
TOTALS = ("k", "at", "what", "n", "v")
RUNNING = "SELECT k, count(*) AS c, sum(v) AS total, max(n) AS top FROM events GROUP BY k"
SESSIONS = """SELECT session_window.start AS start, k, count(*) AS c, sum(v) AS total, max(n) AS top FROM events
GROUP BY session_window(at, '40 seconds'), k"""
LIMIT = 900.0  # seconds for one phase of the script; some forty rules share two cores


@dataclass(frozen=True)
class Case:
    """A rule that crashes at `point` while it does `how`, at `qos`; `also`: a second crash, in the recovery."""

    point: str
    qos: int = 2
    how: str = "run"
    also: str | None = None
    upserts: bool = False

    @property
    def rule(self) -> str:
        again = f"_{self.also}" if self.also else ""
        kind = "_upsert" if self.upserts else ""
        return f"q{self.qos}_{self.how}_{self.point}{again}{kind}".replace(".", "_")

    @property
    def portions(self) -> list[list[dict[str, Any]]]:
        return KEYED if self.upserts else [FIRST, SECOND + APART, THIRD]

    def __str__(self) -> str:
        return self.rule


# `make prove` sets this: every point, more crashes in a row, and a cold application for each recovery. Without it the
# points are those behind a step: what is on disk before a step is what was there behind the one before it. Of
# steps that are taken in one way (late and dead rows as state), it is one. Steps of a beginning and a reset that write
# to the ledger alone, and those that leave nothing but Spark's own checkpoint, are crashed in
# `tests/unit/test_programs.py` and `tests/spark/test_programs_by_spark.py` in each commit.
ALIKE = ("late.after", "dead.after", "reset.tables.after")
# A second kill, of the rule that was killed behind its first sink. At qos 0 a rule is killed behind the intent and
# again as the epoch is lost; another one, which recovers at once, behind a sink.
IN_RECOVERY = ("sink1.after",)
IN_MEMORY = ("offsets.after", "sparkcommit.after", "compact.after", "begin.ledger.after", "begin.commit.after",
             "reset.seal.after", "reset.commit.after")  # fmt: skip
MORE_POINTS = ("intent.after", "sink0.before", "sink0.after", "compact.before")
FULL = bool(os.environ.get("FLOODMARK_PROVE"))


def _points(points: tuple[str, ...]) -> list[str]:
    elsewhere = ALIKE + IN_MEMORY + IN_RECOVERY
    return [point for point in points if FULL or (point.endswith(".after") and point not in elsewhere)]


CASES = [
    *(Case(point) for point in _points(EPOCH_POINTS + COMPACT_POINTS) if FULL or point != "sink0.after"),
    *(Case(point, how="begin") for point in _points(BEGIN_POINTS)),
    *(Case(point, how="reset") for point in _points(RESET_POINTS)),
    Case("sink0.after", also="sink1.after"),  # the first kill is that of the case without `also`
    Case("sink0.after", qos=1),
    Case("sink0.after", qos=0),
    *(Case("intent.after", qos=0, also=point) for point in _points(LOST_POINTS)),
    Case("compact.after", how="running"),
]
UPSERTS = [Case("sink0.after", also="commit.before", upserts=True)]
if FULL:
    UPSERTS += [Case(point, upserts=True) for point in ("sink0.before", "sink0.after", "sink1.before", "sink1.after")]
    UPSERTS += [Case("commit.before", qos=1, upserts=True)]
CASES += UPSERTS
if FULL:
    CASES += [Case("state.after", how="running"), Case("intent.after", qos=0)]
    CASES += [Case("compact.after", how=how) for how in ("sessions", "slices", "process")]
    CASES += [Case("state.after", also="commit.before"), Case("commit.before", qos=1), Case("commit.after", qos=1)]
    CASES += [Case(point, how=how) for how in ("running", "sessions", "process") for point in MORE_POINTS]
    CASES += [Case("state.after", how=how) for how in ("sessions", "slices", "process")]


# One cold application recovers them all; `make prove` starts one for each.
RECOVERED_TOGETHER = [[case] for case in CASES] if FULL else [CASES]


def _flow(root: Path, case: Case) -> Flow:
    """One file an epoch, so that the epochs are the portions whatever the crash did."""
    flow = Flow(root, case.rule, stream={"start": {"version": 0}}, process=_class(case))
    flow.settings = {"qos": case.qos, "epoch": {"max_files": 1}, "spark": {"conf": {} if FULL else INTERPRETED}}
    if case.upserts:
        flow.sql, flow.stream["lateness"] = "SELECT k, at, v, n FROM events", None
        newest, gone = {"key": ["k"], "newest": "at"}, {"key": ["k", "at"], "delete": "n = 9"}
        flow.settings["sinks"] = [{"delta": flow.sink(i), **how} for i, how in enumerate((newest, gone))]
    if case.how == "sessions":
        flow.sql = SESSIONS
    if case.how == "slices":
        flow.settings["windows"] = "slices"
    if case.how == "running":
        flow.sql, sinks = RUNNING, [{"delta": flow.sink(i), "key": ["k"]} for i in (0, 1)]
        flow.settings |= {"unbounded": True, "sinks": sinks}
    return flow


def _class(case: Case) -> str | None:
    return "totals:Totals" if case.how == "process" else None


def _planned(case: Case) -> str:
    """In the second epoch, which has late and dead rows; before the query starts there is no second one."""
    return case.point if case.how == "begin" or case.point == "offsets.before" else f"{case.point}@2"


class Crashed:
    """The whole script, once: first input, crash, kill, (reset or second crash, kill,) new input, recovery."""

    def __init__(self, root: Path):
        self.root = root
        self.marks = root / "marks"
        self.marks.mkdir()
        self.flows = {case: _flow(root, case) for case in CASES}
        self.fired: set[tuple[Case, str]] = set()
        self.recovered: list[int] = []
        self.seen: dict[Case, tuple[int, int, list[list[dict[str, Any]]]]] = {}
        self.newest: dict[Case, list[list[dict[str, Any]]]] = {}

    def play(self) -> None:
        for case, flow in self.flows.items():
            for portion in case.portions[:2]:
                flow.arrive(portion)
            flow.write_rule()
        self._crash(CASES, {case: _planned(case) for case in CASES if case.how != "reset"})
        resets, again = [case for case in CASES if case.how == "reset"], [case for case in CASES if case.also]
        points = {case: case.point for case in resets} | {case: str(case.also) for case in again}
        self._crash([*points], points, resets)
        for case, flow in self.flows.items():
            self._read(case, flow)
            flow.arrive(case.portions[2])
        self.recovered = [self._recover(cases) for cases in RECOVERED_TOGETHER]

    def _read(self, case: Case, flow: Flow) -> None:
        """What a reader of the rule's sinks sees while everything lies as the kill has left it."""
        ledger = LedgerReader.load(flow.place.ledger)
        if ledger is not None and ledger.head is not None:
            found = read(flow.name, flow.home)
            self.seen[case] = (found.generation, found.epoch, [one.arrow().to_pylist() for one in found])
            self.newest[case] = [rows_of(one.address) for one in found]

    def _recover(self, cases: list[Case]) -> int:
        with self._many([case.rule for case in cases], {}) as process:
            return process.wait(LIMIT)

    def _crash(self, cases: list[Case], points: dict[Case, str], resets: Collection[Case] = ()) -> None:
        """Start all, wait until each has reached its point or, having none, its end; then kill every process."""
        words = [f"{case.rule}:reset" if case in resets else case.rule for case in cases]
        marks = {case: self.marks / f"{case.rule}.{point.split('@')[0]}" for case, point in points.items()}
        at = ",".join(f"{case.rule}:{point}" for case, point in points.items())
        others = [case for case in cases if case not in points]
        with self._many(words, {"FLOODMARK_CRASH_AT": at, "FLOODMARK_CRASH_MARKS": str(self.marks)}) as process:
            wait_until(lambda: all(mark.exists() for mark in marks.values()) and self._done(others), process, LIMIT)
            kill_all(process.pid)
        self.fired |= {(case, points[case].split("@")[0]) for case, mark in marks.items() if mark.exists()}

    def _done(self, cases: list[Case]) -> bool:
        said = set((self.root / "log.txt").read_text().splitlines())
        return all(f"done {case.rule}" in said for case in cases)

    def _many(self, words: list[str], env: dict[str, str]) -> Any:
        command = [sys.executable, "-m", "support.many", "run", str(self.root), *words]
        paths = f"{CHECKOUT / 'jobs'}:{CHECKOUT / 'tests'}"
        quiet = {"JDK_JAVA_OPTIONS": QUIET, "PYTHONPATH": paths, "TZ": "UTC"}
        return started(command, {**quiet, **env}, self.root / "log.txt")

    def log(self) -> str:
        return (self.root / "log.txt").read_text()[-20_000:]


@pytest.fixture(scope="module")
def crashed() -> Iterator[Crashed]:
    import shutil
    from uuid import uuid4

    root = CHECKOUT / ".cache" / "tests" / uuid4().hex
    root.mkdir(parents=True)
    script = Crashed(root)
    script.play()
    yield script
    shutil.rmtree(root, ignore_errors=True)


def sink(flow: Flow, number: int, names: tuple[str, ...] = TUMBLING) -> list[tuple[Any, ...]]:
    return ordered(tuple(row[name] for name in names) for row in rows_of(flow.sink(number)))


def test_every_recovery_ends_well(crashed: Crashed) -> None:
    assert set(crashed.recovered) == {0}, crashed.log()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_planned_crash_fired(crashed: Crashed, case: Case) -> None:
    planned = {(case, case.point)} | ({(case, case.also)} if case.also else set())
    assert planned <= crashed.fired, crashed.log()


def _expected(case: Case, events: list[dict[str, Any]]) -> tuple[list[tuple[Any, ...]], tuple[str, ...]]:
    if case.how == "process":
        return totals(events, FINAL), TOTALS
    if case.how == "running":
        return running(events), TUMBLING[1:]
    return (sessions if case.how == "sessions" else tumbling)(events, FINAL), TUMBLING


@pytest.mark.parametrize("case", [case for case in CASES if case.qos == 2 and not case.upserts], ids=str)
def test_at_qos_2_nothing_is_lost_or_doubled(crashed: Crashed, case: Case) -> None:
    flow = crashed.flows[case]
    expected, columns = _expected(case, FIRST + SECOND + THIRD)
    assert sink(flow, 0, columns) == expected
    assert sink(flow, 1, columns) == expected
    counts = flow.counts()
    folded = len(FIRST + SECOND + THIRD)
    assert counts == {"read": folded + len(APART), "filtered": 0, "folded": folded, "late": 1, "dead": 2}
    assert len(rows_of(flow.place.late)) == 1
    assert len(rows_of(flow.place.dead)) == 2


@pytest.mark.parametrize("case", UPSERTS, ids=str)
def test_an_upserted_table_holds_one_row_for_each_key(crashed: Crashed, case: Case) -> None:
    flow = crashed.flows[case]
    found = [[tuple(row[name] for name in ("k", "at", "v", "n")) for row in rows_of(flow.sink(i))] for i in (0, 1)]
    assert [ordered(rows) for rows in found] == [newest_by_key(KEYED), latest_but_gone(KEYED)]


READ = [case for case in CASES if case.qos > 0 and (case.upserts or case.how in ("run", "begin", "reset"))]


def _as_of(case: Case, generation: int, epoch: int) -> list[list[tuple[Any, ...]]]:
    """Each sink when so many epochs were committed."""
    if case.upserts:
        return [newest_by_key(KEYED[:epoch]), latest_but_gone(KEYED[:epoch])]
    ends = [START, START + timedelta(seconds=100), START + timedelta(seconds=220)]
    return [tumbling((FIRST + SECOND) if epoch else [], ends[0 if generation > 1 else epoch])] * 2


@pytest.mark.parametrize("case", READ, ids=str)
def test_a_reader_sees_all_sinks_at_the_last_committed_epoch_before_anything_is_mended(
    crashed: Crashed, case: Case
) -> None:
    if case not in crashed.seen:
        assert case.point.startswith("begin."), "every other rule had begun"
        return
    generation, epoch, sinks = crashed.seen[case]
    names = ("k", "at", "v", "n") if case.upserts else TUMBLING
    found = [ordered(tuple(row[name] for name in names) for row in rows) for rows in sinks]
    assert found == _as_of(case, generation, epoch)
    if case.point == "sink0.after" and case.also in (None, "sink1.after"):
        assert epoch == 1
        assert len(crashed.newest[case][0]) > len(sinks[0]), "the first sink has more than what is committed"


def test_at_qos_1_a_retry_writes_again(crashed: Crashed) -> None:
    expected = tumbling(FIRST + SECOND + THIRD, FINAL)
    again = sink(crashed.flows[Case("sink0.after", qos=1)], 0)
    assert set(again) == set(expected)
    assert len(again) > len(expected)
    for case in (case for case in CASES if case.qos == 1 and not case.upserts):
        assert len(rows_of(crashed.flows[case].place.late)) == 1


@pytest.mark.parametrize("case", [c for c in CASES if c.qos == 0], ids=str)
def test_at_qos_0_the_open_epoch_is_lost_and_counted(crashed: Crashed, case: Case) -> None:
    flow = crashed.flows[case]
    lost = [json.loads(row.body) for row in flow.ledger().rows if row.kind == "lost"]
    assert [one["lost"] for one in lost] == [len(SECOND + APART)]
    second = START + timedelta(seconds=220)
    first = START + timedelta(seconds=100)
    kept = tumbling(FIRST + THIRD, FINAL)
    due = [row for row in tumbling(FIRST + SECOND + THIRD, second) if row not in tumbling(FIRST, first)]
    written = [sink(flow, number) for number in (0, 1)]
    missing = [row for row in kept if not first < row[0] + timedelta(minutes=1) <= second]
    for rows in written:
        assert rows in (missing, ordered(missing + due)), "a lost epoch's results are there wholly or not at all"
    if case.point == "intent.after":
        assert written == [missing, missing]
    assert flow.ledger().head.lost == (2,)
