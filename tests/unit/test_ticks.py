"""When a tick is due, and how far it moves the watermark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from support.flow import Flow
from support.joins import TwoStreams

from floodmark.core.lifecycle.zones import micros_of
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.protocol.ticks import onwards, tick, tick_target, watermark_of
from floodmark.core.rules.rule import Rule
from floodmark.spark.look.ahead import watermark_after

SECOND = 1_000_000
HOUR = 3_600_000  # in milliseconds
CLOCK = 1_700_000_000_000  # milliseconds: when the head's epoch was
SQL = "SELECT window.end AS e, count(*) AS n FROM events GROUP BY window(at, '1 minute')"
BOTH = SQL.replace("events", "(SELECT at FROM events UNION ALL SELECT at FROM others)")
SESSIONS = (
    "SELECT count(*) AS n FROM events GROUP BY session_window(at, CASE WHEN k = 'x' THEN '5 minutes' ELSE '1 hour' END)"
)
OVER = """SELECT k, sum(n) OVER (ORDER BY at RANGE BETWEEN INTERVAL '3600' SECONDS PRECEDING
          AND INTERVAL '20' SECONDS FOLLOWING) AS s FROM events"""


def head_of(flow: Flow, watermark: int | None, newest: int | None) -> Head:
    entry = Entry(CLOCK, ("-",))
    begun = Commit(entry=entry.text(), watermark=None, maxima={}, rule="{}")
    return Head(1, "", 1, "t", 3, entry, watermark, {"events": newest}, flow.rule(), begun)


def flow_of(place: object, sql: str = SQL, after: str | None = "10 minutes") -> Flow:
    return Flow(place, sql=sql, settings={"close_idle_after": after} if after else {})  # type: ignore[arg-type]


def asked(flow: Flow, quiet: int, watermark: int | None = 0, newest: int | None = 30 * SECOND) -> int | None:
    return tick_target(flow.rule(), head_of(flow, watermark, newest), (CLOCK * 1000) + quiet * SECOND, None)


def test_silence_counts_as_event_time_from_the_declared_length_on(tmp_path: object) -> None:
    flow = flow_of(tmp_path)
    assert asked(flow, 599) is None
    assert asked(flow, 600, watermark=-540 * SECOND) == 60 * SECOND
    assert asked(flow, 4000, watermark=-4000 * SECOND) == 0


@pytest.mark.parametrize("quiet", [600, 24 * 3600, 54 * 365 * 24 * 3600])
def test_no_silence_reaches_beyond_what_is_open(tmp_path: object, quiet: int) -> None:
    """As after an epoch under a clock that was behind: rows of the time after the last window are not late."""
    assert asked(flow_of(tmp_path), quiet) == 90 * SECOND + 1


def test_an_epoch_that_only_passes_commits_without_rows_puts_nothing_off(tmp_path: object) -> None:
    """Sources are optimized, and the offsets follow their logs."""
    flow = flow_of(tmp_path)
    head = replace(head_of(flow, 0, 30 * SECOND), quiet_ms=CLOCK - 599_000)
    assert tick_target(flow.rule(), head, CLOCK * 1000, None) is None
    assert tick_target(flow.rule(), head, CLOCK * 1000 + SECOND, None) == 90 * SECOND + 1


def test_without_the_declaration_or_a_watermark_nothing_is_due(tmp_path: object) -> None:
    assert asked(flow_of(tmp_path, after=None), 10**6) is None
    assert asked(flow_of(tmp_path), 10**6, watermark=None) is None


DAY = 24 * 3600  # seconds
COLUMN = SESSIONS.replace("'1 hour'", "gap")


@pytest.mark.parametrize(
    ("sql", "last"),
    [
        (SQL, 90),
        (SESSIONS, 30 + 3600),
        (SESSIONS.replace("1 hour", "3 days"), 30 + 4 * DAY),  # where clocks change, a day may be longer
        (COLUMN, 30 + 31 * DAY),
        (COLUMN.replace("gap", "concat(n, ' minutes')"), 30 + 31 * DAY),
        (OVER, 30 + 20),
    ],
)
def test_what_is_closed_is_not_closed_again(tmp_path: object, sql: str, last: int) -> None:
    """`last`: the second up to which something that the newest row, of second 30, is part of may be open."""
    flow = flow_of(tmp_path, sql)
    assert asked(flow, 600, watermark=last * SECOND) is not None
    assert asked(flow, 600, watermark=last * SECOND + 2) is None


def test_what_somebody_asks_for_is_due_unless_the_watermark_is_there(tmp_path: object) -> None:
    flow = flow_of(tmp_path, after=None)
    assert tick_target(flow.rule(), head_of(flow, 5, 9), CLOCK * 1000, 7) == 7
    assert tick_target(flow.rule(), head_of(flow, None, None), CLOCK * 1000, 7) == 7
    assert tick_target(flow.rule(), head_of(flow, 7, 9), CLOCK * 1000, 7) is None


def two_streams(place: object, others: int | None, **settings: str) -> tuple[Rule, Head]:
    """Two streams, events up to second 300 and others up to second `others`, heard with the head's epoch."""
    flow = TwoStreams(place, sql=BOTH, settings=settings, more={"idle_after": "10 minutes"})  # type: ignore[arg-type]
    tops = {"events": 300 * SECOND, "others": None if others is None else others * SECOND}
    mark = None if others is None else (others - 30) * SECOND
    return flow.rule(), replace(head_of(flow, mark, None), maxima=tops, heard={"others": CLOCK * 1000})


def test_a_stream_that_falls_silent_lets_the_watermark_go_on_without_input(tmp_path: object) -> None:
    for others in (0, None):
        rule, head = two_streams(tmp_path, others)
        assert tick_target(rule, head, (CLOCK + 599_999) * 1000, None) is None
        assert tick_target(rule, head, (CLOCK + 600_000) * 1000, None) == 270 * SECOND
        there = replace(head, watermark=270 * SECOND)
        assert tick_target(rule, there, (CLOCK + 10**9) * 1000, None) is None, "once is enough"


def test_silence_of_one_stream_and_of_all_go_by_what_is_further(tmp_path: object) -> None:
    rule, head = two_streams(tmp_path, 0, close_idle_after="10 minutes")
    assert tick_target(rule, head, (CLOCK + 600_000) * 1000, None) == 360 * SECOND + 1
    rule, head = two_streams(tmp_path, 0, close_idle_after="11 minutes")
    assert tick_target(rule, head, (CLOCK + 600_000) * 1000, None) == 270 * SECOND


def test_a_look_ahead_waits_again_for_a_silent_stream_with_new_rows(tmp_path: object) -> None:
    rule, head = two_streams(tmp_path, 0)
    clock = (CLOCK + 600_000) * 1000
    both: Any = SimpleNamespace(speaking={"events", "others"}, maxima={"events": 900 * SECOND, "others": 20 * SECOND})
    one: Any = SimpleNamespace(speaking={"events"}, maxima={"events": 900 * SECOND, "others": None})
    assert watermark_after(rule, head, both, clock) == -10 * SECOND
    assert watermark_after(rule, head, one, clock) == 870 * SECOND


def test_an_intent_says_how_far_a_tick_goes() -> None:
    assert watermark_of(tick(-12)) == -12
    assert watermark_of(()) is None


def test_a_moment_is_what_the_rule_means_by_it(tmp_path: object) -> None:
    flow = flow_of(tmp_path)
    flow.settings["timezone"] = "Europe/Berlin"
    rule, naive = flow.rule(), datetime(2001, 7, 1, 12)
    aware = datetime(2001, 7, 1, 10, tzinfo=UTC)
    assert micros_of(naive, rule, zoned=True) == micros_of(aware, rule, zoned=True) == 993_981_600 * SECOND
    assert micros_of(naive, rule, zoned=False) == micros_of(aware, rule, zoned=False) == 993_988_800 * SECOND


@pytest.mark.parametrize(
    ("event_time", "clocks"),
    [
        ({"name": "at", "expr": "current_timestamp()"}, {-1: 0, 0: 0, 1: 1, -HOUR: 0, -HOUR - 1: -HOUR - 1}),
        ({"name": "at", "expr": "date_trunc('minute', NOW())"}, {-1: 0, 0: 0, 1: 1}),
        ({"name": "at", "expr": "to_timestamp(k)"}, {-1: -1, 0: 0, 1: 1}),
        ("at", {-1: -1, 0: 0, 1: 1}),
    ],
)
def test_a_clock_that_is_an_event_time_does_not_go_back(
    tmp_path: object, event_time: object, clocks: dict[int, int]
) -> None:
    flow = Flow(tmp_path, sql=SQL, stream={"event_time": event_time})  # type: ignore[arg-type]
    head = head_of(flow, None, None)
    found = {ms: onwards(flow.rule(), head, Entry(CLOCK + ms, ("x",))) for ms in clocks}
    assert found == {ms: Entry(CLOCK + kept, ("x",)) for ms, kept in clocks.items()}
