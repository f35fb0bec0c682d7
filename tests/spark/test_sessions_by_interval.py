"""Sessions are recomputed by interval: those that rows touched, and those that late rows have joined since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.corrected import CORRECT, flow_of, newest_backfill, proven, same_as_batch, sink, watermark
from support.corrected import SESSIONS as SQL
from support.crash import Crash, crash_at
from support.flow import START, Flow, event, rows_of
from support.oracle import ordered
from support.running import backfill, backfill_all, backfill_killed, rehearse_backfill, run

from floodmark.core.protocol.crashpoints import CORRECTION_POINTS, DEFER_POINTS
from floodmark.errors import Refused

GAP, LATENESS = 40, 30  # seconds
SECOND = 1_000_000  # microseconds


def micros(seconds: float) -> int:
    return round((START.timestamp() + seconds) * SECOND)


def parts(flow: Flow) -> list[tuple[int, int]]:
    """The intervals of the newest backfill or correction, in whole seconds; none if it was of everything."""
    found = newest_backfill(flow)
    each = [] if found.whole else found.parts
    return [
        (begin // SECOND - round(START.timestamp()), end // SECOND - round(START.timestamp())) for begin, end in each
    ]


def rows_at(*seconds: float, k: str = "a") -> list[dict[str, Any]]:
    return [event(one, k, 1.0, round(one)) for one in seconds]


def read(spark: SparkSession, place: Path, *rows: dict[str, Any], newest: float = 9000) -> Flow:
    """A rule that has read these rows, and one of another key that makes the sessions before it final."""
    flow = flow_of(place, "sessions", sinks=1)
    flow.arrive([*rows, event(newest, "z")])
    run(spark, flow)
    return flow


def is_corrected(spark: SparkSession, flow: Flow, changed: str) -> list[tuple[int, int]]:
    """The source is changed. What the next run's correction has recomputed."""
    spark.sql(changed.replace("{}", f"delta.`{flow.source}`"))
    assert len(run(spark, flow).corrections) == 1
    same_as_batch(spark, flow)
    proven(flow)
    return parts(flow)


# Two keys with two sessions each, and a row by itself.
SESSIONS = (*rows_at(100, 120, 201, 220), *rows_at(100, 120, 201, 220, k="b"), *rows_at(7, k="c"))
TO = "UPDATE {} SET k = 'a', at = TIMESTAMP'2001-01-01T00:0%sZ' WHERE k = 'c'"
CHANGES = [
    ("DELETE FROM {} WHERE k = 'a' AND n = 120", [(100, 121)]),
    ("DELETE FROM {} WHERE k = 'a' AND n = 201", [(201, 221)]),
    ("UPDATE {} SET v = 9 WHERE k = 'a' AND n = 100", [(100, 121)]),
    ("UPDATE {} SET k = 'b' WHERE k = 'a' AND n > 150", [(201, 221)]),
    ("UPDATE {} SET at = at + INTERVAL 41 SECONDS WHERE k = 'a' AND n = 120", [(100, 221)]),
    ("DELETE FROM {} WHERE k = 'a'", [(100, 121), (201, 221)]),
    (TO % "2:40", [(7, 8), (100, 161)]),
    (TO % "2:41", [(7, 8), (161, 221)]),
]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [*(pytest.param(*one, marks=pytest.mark.prove) for one in CHANGES[:-1]), CHANGES[-1]],
)
def test_what_was_touched_joined_or_split_is_recomputed_and_no_more(
    spark: SparkSession, place: Path, changed: str, expected: list[tuple[int, int]]
) -> None:
    assert is_corrected(spark, read(spark, place, *SESSIONS), changed) == expected


LATE = rows_at(150, 180)  # join both sessions of their key


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((190, 230), (100, 230)),
        pytest.param((90, 121), (90, 221), marks=pytest.mark.prove),
        pytest.param((121, 190), (100, 221), marks=pytest.mark.prove),
    ],
)
def test_a_backfill_is_widened_to_sessions_that_a_late_row_has_joined(
    spark: SparkSession, place: Path, asked: tuple[int, int], expected: tuple[int, int]
) -> None:
    flow = read(spark, place, *SESSIONS)
    flow.arrive(LATE)
    run(spark, flow)
    before = sink(flow)
    far = backfill(spark, flow, micros(300), micros(2000)).intent
    assert (parts(flow), sink(flow)) == ([(300, 2000)], before), "what is not in the interval stays"
    low, high = map(micros, asked)
    ((gained, lost),) = rehearse_backfill(spark, flow, low, high).sinks.values()
    done = backfill(spark, flow, low, high)
    assert (list(done.sinks.values()), parts(flow)) == ([(gained, lost)], [expected])
    assert far.restated == {"events": 0} and done.intent.restated == {"events": 2}
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_a_correction_is_widened_to_them_too(spark: SparkSession, place: Path) -> None:
    flow = read(spark, place, *SESSIONS)
    flow.arrive(LATE)
    run(spark, flow)
    assert is_corrected(spark, flow, "DELETE FROM {} WHERE k = 'b' AND n = 120") == [(100, 221)]


BACKFILLED = [point for point in CORRECTION_POINTS if point not in DEFER_POINTS and ".state." not in point]


@pytest.mark.prove
@pytest.mark.parametrize("point", BACKFILLED)
def test_a_backfill_that_is_killed_is_finished_once(spark: SparkSession, place: Path, point: str) -> None:
    flow = read(spark, place, *SESSIONS)
    flow.arrive(LATE)
    run(spark, flow)
    backfill_killed(spark, flow, micros(190), micros(230), point)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize("newest", [220 + GAP + LATENESS, 220 + GAP + LATENESS + 1])
def test_sessions_that_may_go_on_are_corrected_and_not_backfilled(
    spark: SparkSession, place: Path, newest: float
) -> None:
    """A session that ends at the watermark is open."""
    flow = read(spark, place, *SESSIONS, newest=newest)
    is_open = newest == 220 + GAP + LATENESS
    found = is_corrected(spark, flow, "DELETE FROM {} WHERE k = 'a' AND n = 220")
    assert found == [(201, newest if is_open else 221)], "from the first that is open to the newest row"
    _ = backfill(spark, flow, micros(90), micros(201))
    if is_open:
        ends = micros(220 + GAP)
        with pytest.raises(Refused, match=f"the watermark after {ends}, where .* ends, found {ends}[.]"):
            _ = backfill(spark, flow, micros(90), micros(201) + 1)
    flow.arrive([event(220 + GAP, "b", 5.0, 2)] if is_open else [event(9000, "y")])
    run(spark, flow)
    flow.arrive([event(9500, "x")])
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.parametrize("point", [None, pytest.param("backfill.state.after", marks=pytest.mark.prove)])
def test_what_is_open_is_corrected_in_the_state_and_what_lies_before_stays(
    spark: SparkSession, place: Path, point: str | None
) -> None:
    """Rows of one customer over hours, the last in a session that is open. A late row joins others that are final."""
    others = rows_at(*(at + more for at in range(0, 9000, 300) for more in (0, 25, 50)), k="b")
    flow = read(spark, place, *rows_at(10, 20, 3000, 3030, 8990, 9010), *others, newest=9000)
    flow.arrive([event(4560, "b"), event(4590, "b", n=1)])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'a' AND n IN (20, 3000, 9010)")
    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            run(spark, flow)
        assert planned.fired
    run(spark, flow)
    assert parts(flow) == [(10, 21), (3000, 3031), (8990, 9011)]
    assert newest_backfill(flow).state["state/events"].begin == micros(8990)
    proven(flow)
    flow.arrive([event(9011, "a", n=3), event(9700, "z")])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'b' AND n IN (0, 1) AND at > '2001-01-01T01:00:00Z'")
    run(spark, flow)  # the late rows go
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_a_session_is_followed_as_far_as_it_goes(spark: SparkSession, place: Path) -> None:
    """Each of its rows lies a gap after the one before, the last one beyond; a session of another key never ends."""
    chain = [GAP * i for i in range(60)]
    beats = rows_at(*range(0, 9000, 35), k="beat")
    flow = read(spark, place, *rows_at(*chain, chain[-1] + GAP + 1e-6), *beats)
    found = is_corrected(spark, flow, "DELETE FROM {} WHERE k = 'a' AND n = 1200")
    assert found == [(-1, 9000)], "the one that never ends starts within it"
    flow = read(spark, place / "later", *rows_at(*(40 + one for one in chain), 40 + chain[-1] + GAP + 1e-6), *beats)
    found = is_corrected(spark, flow, "DELETE FROM {} WHERE k = 'a' AND n = 1240")
    assert found == [(40, 40 + chain[-1] + 1)]


@pytest.mark.prove
def test_what_its_streams_expected_decides_whether_an_interval_will_do(spark: SparkSession, place: Path) -> None:
    """A row that joined two sessions is not read by today's file: nothing says which of them it was in."""
    flow = read(spark, place, *rows_at(100, 130, 160, 190))
    flow.stream["expect"] = {"not": {"check": "n <> 130", "on_fail": "drop"}}
    flow.arrive([event(9100, "z")])
    run(spark, flow)
    with pytest.raises(Refused, match=r"a stream had another `expect` .*`floodmark backfill counted --all"):
        _ = backfill(spark, flow, micros(150), micros(200))
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 3 WHERE n = 190")
    run(spark, flow)
    assert newest_backfill(flow).whole
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 130")  # for the oracle
    same_as_batch(spark, flow)
    proven(flow)


Session = list[Mapping[str, Any]]  # its rows, in order


@pytest.mark.prove
@pytest.mark.parametrize("how", ["dead", "drop"])
def test_a_row_that_is_in_no_session_joins_none(spark: SparkSession, place: Path, how: str) -> None:
    """It lies between two sessions, and the second one goes on beyond the interval."""
    flow = flow_of(place, "sessions", sinks=1)
    flow.stream["expect"] = {"not": {"check": "n <> 130", "on_fail": how}}
    flow.arrive([*rows_at(100, 130, 165, 190, 225), *rows_at(160, k="b"), event(9000, "z")])
    run(spark, flow)
    before = sink(flow)
    _ = backfill(spark, flow, micros(150), micros(170))
    assert (parts(flow), sink(flow)) == ([(100, 226)], before)
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 3 WHERE k = 'b'")
    run(spark, flow)
    assert parts(flow) == [(100, 226)]
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE n = 130")  # for the oracle
    same_as_batch(spark, flow)
    proven(flow)


class Life:
    """Rows of two keys, some late; then some are removed, moved, or get another key. Each has its own `n`.

    held: the sessions whose results the sink is to hold.
    """

    def __init__(self, spark: SparkSession, place: Path, seed: int):
        self.spark, self.rng, self.flow = spark, Random(seed), flow_of(place, "sessions", sinks=1)
        self.late: set[int] = set()
        self.number = self.newest = 0
        self.held: list[Session] = []

    def arrive(self) -> None:
        known = watermark(self.flow) if self.number else START
        rows = [self._row() for _ in range(self.rng.randrange(4, 15))]
        self.late |= {one["n"] for one in rows if one["at"] < known}
        self.flow.arrive(rows)
        run(self.spark, self.flow)
        assert self.flow.counts()["late"] == len(self.late)

    def _row(self) -> dict[str, Any]:
        self.number += 1
        seconds = max(0, self.newest + self.rng.randrange(-300, 250))
        self.newest = max(self.newest, seconds)
        return event(seconds, self.rng.choice("ab"), 1.0, self.number)

    def rewrite(self) -> None:
        some = ", ".join(str(self.rng.randrange(self.number) + 1) for _ in range(self.rng.randrange(1, 4)))
        how = self.rng.choice(
            ["DELETE FROM {}", "UPDATE {} SET k = 'b'", "UPDATE {} SET at = at - INTERVAL 50 SECONDS"]
        )
        self.spark.sql(
            f"{how.replace('{}', f'delta.`{self.flow.source}`')} WHERE n IN ({some}) AND at > '2001-01-01T00:01:00Z'"
        )
        if run(self.spark, self.flow).corrections:
            self.take()

    def backfill(self) -> None:
        low = self.rng.randrange(self.newest)
        try:
            _ = backfill(self.spark, self.flow, micros(low), micros(low + self.rng.randrange(1, 200)))
        except Refused as fault:
            if "not final" not in str(fault):
                raise
        else:
            self.take()

    def take(self) -> None:
        """In the interval the sink is to hold what batch gives; elsewhere what it held."""
        whole, spans = newest_backfill(self.flow).whole, parts(self.flow)

        def within(one: Session) -> bool:
            start = (one[0]["at"] - START).total_seconds()
            return whole or any(begin <= start < end for begin, end in spans)

        now = [one for one in self.sessions(self.rows()) if self.is_final(one)]
        self.held = [one for one in self.held if not within(one)] + [one for one in now if within(one)]

    def rows(self) -> list[dict[str, Any]]:
        return rows_of(self.flow.source)

    def sessions(self, rows: Iterable[Mapping[str, Any]]) -> list[Session]:
        found: list[Session] = []
        for one in sorted(rows, key=lambda row: (row["k"], row["at"])):
            last = found[-1][-1] if found else None
            if last is not None and last["k"] == one["k"] and one["at"] <= last["at"] + timedelta(seconds=GAP):
                found[-1].append(one)
            else:
                found.append([one])
        return found

    def is_final(self, one: Session) -> bool:
        return bool(one[-1]["at"] + timedelta(seconds=GAP) < watermark(self.flow))

    def check(self) -> None:
        """No row that was not late is lost or counted twice at the bounds of an interval."""
        shown = (
            (one[0]["at"], one[0]["k"], len(one), float(len(one)), max(row["n"] for row in one)) for one in self.held
        )
        assert sink(self.flow) == ordered((at.replace(tzinfo=None), *rest) for at, *rest in shown)
        often = Counter(row["n"] for one in self.held for row in one)
        assert not often or max(often.values()) == 1
        final = {row["n"] for one in self.sessions(self.rows()) if self.is_final(one) for row in one}
        assert final - self.late <= often.keys()
        proven(self.flow)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(1, 25))
def test_in_the_interval_late_rows_count_and_elsewhere_all_is_as_it_was(
    spark: SparkSession, place: Path, seed: int
) -> None:
    life = Life(spark, place, seed)
    for _ in range(3):
        life.arrive()
    life.held = [
        one for one in life.sessions(row for row in life.rows() if row["n"] not in life.late) if life.is_final(one)
    ]
    life.check()
    for step in (life.rewrite, life.backfill, life.rewrite):
        step()
        life.check()
    life.newest += 1000
    life.arrive()
    _ = backfill_all(spark, life.flow)
    same_as_batch(spark, life.flow)
    proven(life.flow)


def test_a_gap_of_a_day_is_counted_by_the_calendar(spark: SparkSession, place: Path) -> None:
    """In Berlin, 28 October 2001 has 25 hours: its first row and one 24 and a half hours later are one session."""
    first = (datetime(2001, 10, 27, 22, tzinfo=UTC) - START).total_seconds()
    later = first + 24.5 * 3600
    sql = SQL.replace("40 seconds", "1 day")
    flow = Flow(place, sql=sql, settings={"timezone": "Europe/Berlin"}, stream=CORRECT, sinks=1)
    flow.arrive([*rows_at(first, later), event(later + 9 * 86_400, "z")])
    run(spark, flow)
    before = sink(flow)
    assert [count for _, _, count, *_ in before] == [2]
    backfill(spark, flow, micros(later - 900), micros(later + 9000))
    assert sink(flow) == before
