"""Calling a process class: order, the five verbs, timers, lifetimes; that no split into epochs can show."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.process.calls import Caller
from floodmark.core.process.context import Declaration, Times
from floodmark.errors import ProcessFault
from floodmark.testing import Harness

START = datetime(2001, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def row(seconds: float, k: Any = "a", n: int | None = 0) -> dict[str, Any]:
    return {"at": at(seconds), "k": k, "n": n}


class Traced:
    """Says everything that happens to it. A row's `n` says what it does."""

    output = "what STRING, seconds DOUBLE, n BIGINT"
    state: ClassVar = {"last": "n BIGINT, tags ARRAY<STRING>"}
    ttl: ClassVar = {"last": "60 seconds"}

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        for one in rows:
            last = ctx.get_state("last")
            yield f"row {last and last['n']}", (one["at"] - START).total_seconds(), ctx.incr_counter("rows")
            ctx.put_state("last", {"n": one["n"], "tags": ["x"]})
            if one["n"] == 1:
                ctx.set_timer(one["at"] + timedelta(seconds=10), "one")
            if one["n"] == 2:
                ctx.delete_state("last")
            if one["n"] == 3:
                ctx.delete_timer("one")

    def on_timer(self, key: Any, at: datetime, name: str, ctx: Any) -> Iterator[Any]:
        last = ctx.get_state("last")
        yield f"timer {name} {last and last['n']}", (at - START).total_seconds(), ctx.get_counter("rows")
        if name == "one":
            ctx.set_timer(at + timedelta(seconds=5), "two")


class Silent(BaseException):
    def __str__(self) -> str:
        raise ValueError("no text")


def raised(fault: BaseException) -> None:
    raise fault


def harness(kind: type = Traced, **more: Any) -> Harness:
    return Harness(kind, key=["k"], **more)


def told(found: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(one.values()) for one in found]


class Given:
    """It gives the numbers of its rows in the order in which they come."""

    output = "n INT"

    def process(self, key: Any, rows: Any, ctx: Any) -> Any:
        return [(row["n"],) for row in rows]


@pytest.mark.parametrize(
    ("columns", "first", "second"),
    [
        ("", {"b": 2, "a": 1}, {"b": 1, "a": 2}),
        ("m MAP<STRING, INT>", {"b": 2, "a": 1}, {"b": 1, "a": 2}),
        ("m STRUCT<b: INT, a: INT>", {"a": 2, "b": 1}, {"b": 2, "a": 1}),
        ("m STRUCT<b: INT, a: INT>", {"b": None, "a": 2}, {"b": 0, "a": 1}),
        ("m STRUCT<b: INT, a: INT>", {"a": 2}, {"b": 0, "a": 1}),
        ("", [{"b": 1, "a": 2}], [{"b": 2, "a": 1}]),
        ("", {"x": {"b": 1, "a": 2}}, {"x": {"b": 2, "a": 1}}),
        ("m MAP<STRING, STRUCT<b: INT, a: INT>>", {"x": {"a": 2, "b": 1}}, {"x": {"b": 2, "a": 1}}),
    ],
)
def test_rows_of_one_time_are_sorted_as_in_a_run(columns: str, first: Any, second: Any) -> None:
    """Structs by their fields as declared, maps by their sorted entries."""
    tried = harness(Given, columns=columns)
    tried.feed({"k": "a", "at": at(0), "m": second, "n": 2}, {"k": "a", "at": at(0), "m": first, "n": 1})
    assert told(tried.advance(at(1))) == [(1,), (2,)]


def test_rows_wait_for_the_watermark_and_come_in_the_order_of_their_time() -> None:
    one = harness()
    one.feed(row(20, n=8), row(10, n=7), row(30, n=9))
    assert told(one.advance(at(30))) == [("row None", 10.0, 1), ("row 7", 20.0, 2)]
    assert told(one.advance(at(31))) == [("row 8", 30.0, 3)]


def test_a_timer_comes_after_the_rows_of_its_time_and_before_those_that_follow() -> None:
    one = harness()
    one.feed(row(0, n=1), row(10, n=5), row(10.000001, n=6), row(20))
    assert [what for what, _, _ in told(one.advance(at(30)))] == [
        "row None", "row 1", "timer one 5", "row 5", "timer two 6", "row 6",
    ]  # fmt: skip


def test_a_timer_waits_for_a_watermark_beyond_it() -> None:
    one = harness()
    one.feed(row(0, n=1))
    assert told(one.advance(at(10))) == [("row None", 0.0, 1)]
    assert one.timers("a") == {"one": at(10)}
    assert told(one.advance(at(10.000001))) == [("timer one 1", 10.0, 1)]
    assert one.timers("a") == {"two": at(15)}


def test_a_timer_that_was_deleted_does_not_fire() -> None:
    one = harness()
    one.feed(row(0, n=1), row(5, n=3))
    assert [what for what, _, _ in told(one.advance(at(60)))] == ["row None", "row 1"]
    assert one.timers("a") == {}


def test_a_value_that_outlived_its_ttl_reads_as_absent() -> None:
    one = harness()
    one.feed(row(0, n=7), row(59.999999, n=8), row(119.999999, n=9))
    assert told(one.advance(at(200))) == [("row None", 0.0, 1), ("row 7", 59.999999, 2), ("row None", 119.999999, 3)]


def test_deleted_state_is_gone_and_counters_are_not() -> None:
    one = harness()
    one.feed(row(0, n=2), row(1, n=2))
    assert told(one.advance(at(2))) == [("row None", 0.0, 1), ("row None", 1.0, 2)]
    assert one.state("last", "a") is None
    assert one.counter("rows", "a") == 2


def test_keys_do_not_see_each_other() -> None:
    one = harness()
    one.feed(row(0, "a", 7), row(1, None, 8), row(2, "a", 9))
    assert [what for what, _, _ in told(one.advance(at(3)))] == ["row None", "row None", "row 7"]


def test_a_late_row_is_refused() -> None:
    one = harness()
    one.advance(at(10))
    with pytest.raises(ValueError, match="expected a row at or after the watermark"):
        one.feed(row(9.999999))


class Sloppy:
    """Keeps what it should not: on itself, in a local variable, and what it changes after it was put."""

    output = "n BIGINT, held BIGINT, length BIGINT"
    state: ClassVar = {"list": "items ARRAY<BIGINT>"}

    def __init__(self) -> None:
        self.held = 0

    def process(self, key: Any, rows: Any, ctx: Any) -> list[Any]:
        found = []
        for count, _ in enumerate(list(rows)):
            self.held += 1
            kept = ctx.get_state("list") or {"items": []}
            found.append((count, self.held, len(kept["items"])))
            ctx.put_state("list", kept)
            kept["items"].append(1)
        return found


ROWS = st.lists(
    st.builds(row, st.sampled_from([0, 1, 1, 5, 10, 15, 20, 60]), st.sampled_from(["a", "b", None]), st.integers(0, 4)),
    max_size=12,
)


@given(rows=ROWS, marks=st.lists(st.sampled_from([0.5, 1, 1.000001, 5, 10.5, 15, 40, 61]), max_size=4))
def test_where_epochs_end_does_not_show(rows: list[dict[str, Any]], marks: list[float]) -> None:
    for kind in (Traced, Sloppy):
        one, many = harness(kind), harness(kind)
        one.feed(*rows)
        many.feed(*rows)
        whole = one.advance(at(200))
        for mark in sorted(marks):
            many.advance(at(mark))
        many.advance(at(200))
        assert sorted(map(repr, whole)) == sorted(map(repr, many.output))
        for key in ("a", "b", None):
            assert one.timers(key) == many.timers(key)
            assert one.counter("rows", key) == many.counter("rows", key)


class Timed:
    """Clock timers, and the clock."""

    output = "what STRING, now TIMESTAMP"

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        for _ in rows:
            ctx.set_clock_timer(ctx.now + timedelta(hours=1), "hour")
            yield "row", ctx.now

    def on_clock(self, key: Any, at: datetime, name: str, ctx: Any) -> Iterator[Any]:
        yield name, at
        ctx.set_clock_timer(at, "again")


def test_a_clock_timer_fires_in_the_first_later_epoch_whose_clock_has_reached_it() -> None:
    one = harness(Timed)
    one.feed(row(0), row(50))
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert told(one.advance(at(1), now=noon)) == [("row", noon)]
    assert told(one.advance(at(2), now=noon + timedelta(minutes=59))) == []
    later = noon + timedelta(minutes=60)
    assert told(one.advance(at(3), now=later)) == [("hour", later)]
    assert told(one.advance(at(60), now=later)) == [("again", later), ("row", later)]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.get_state("lost"), "expected a state among last, found 'lost': did you mean 'last'?"),
        (lambda ctx: ctx.put_state("last", {"m": 1}), "expected columns n, tags, found 'm'"),
        (lambda ctx: ctx.put_state("last", {"n": "1"}), "n: expected a whole number that fits BIGINT, found '1'"),
        (lambda ctx: ctx.put_state("last", {"n": 1 << 63}), "n: expected a whole number that fits BIGINT"),
        (lambda ctx: ctx.put_state("last", {"tags": [1]}), "tags: expected text, found 1"),
        (lambda ctx: ctx.put_state("last", (1,)), r"expected a dict or a tuple of n, tags, found \(1,\)"),
        (lambda ctx: ctx.incr_counter("c", 0.5), "expected a whole number, found 0.5"),
        (lambda ctx: ctx.set_timer(at(-1)), "expected a timer not before the current row"),
        (lambda ctx: ctx.set_timer(datetime(2001, 1, 1)), "expected a datetime with a time zone"),
        (lambda ctx: ctx.set_clock_timer(at(5)), r"expected a method on_clock\("),
        (lambda ctx: ctx.put_state("last", {"tags": ["\ud800"]}), "tags: expected text that UTF-8 can have"),
        (lambda ctx: ctx.set_timer(at(5), "\udcff"), "expected text that UTF-8 can have"),
        (lambda ctx: 1 / 0, "ZeroDivisionError"),
        (lambda ctx: sys.exit(3), "SystemExit: 3"),
        (lambda ctx: raised(Silent("x")), "Silent: its text cannot be made .ValueError."),
        (lambda ctx: raised(ValueError("a\ud800")), r"ValueError: a\?"),
    ],
)
def test_a_wrong_call_is_told_with_key_and_time(call: Any, said: str) -> None:
    class Wrong(Traced):
        def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
            for _ in rows:
                call(ctx)
            yield from ()

    one = harness(Wrong)
    one.feed(row(0))
    with pytest.raises(ProcessFault, match=rf"process fails for key \('a',\), event time 2001-01-01.*: .*{said}"):
        one.advance(at(1))


def test_a_timer_that_sets_itself_again_at_its_own_time_is_refused() -> None:
    class Endless(Traced):
        def on_timer(self, key: Any, at: datetime, name: str, ctx: Any) -> Iterator[Any]:
            ctx.set_timer(at, name)
            yield from ()

    one = harness(Endless)
    one.feed(row(0, n=1))
    with pytest.raises(ProcessFault, match="expected a timer after the timer's own time"):
        one.advance(at(20))


def test_an_epoch_that_failed_takes_no_row_and_changes_no_state() -> None:
    class Failing(Traced):
        fails: ClassVar = True

        def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
            given = list(rows)
            if self.fails and key == ("b",):
                given[0].pop("n")
                raise OSError
            yield from super().process(key, iter(given), ctx)

    one = harness(Failing)
    one.feed(row(0, "a"), row(0, "b"))
    with pytest.raises(ProcessFault, match="OSError"):
        one.advance(at(1))
    assert (one.counter("rows", "a"), one.output) == (0, [])
    Failing.fails = False
    assert len(one.advance(at(1))) == 2
    assert (one.counter("rows", "a"), one.counter("rows", "b")) == (1, 1)


def test_output_is_checked() -> None:
    class Wide(Traced):
        def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
            yield {"what": "x", "second": 1.0}

    one = harness(Wide)
    one.feed(row(0))
    with pytest.raises(ProcessFault, match="output: expected columns what, seconds, n, found 'second': did you mean"):
        one.advance(at(1))


def test_event_times_without_a_zone() -> None:
    one = harness(zoned=False)
    naive = datetime(2001, 1, 1)
    with pytest.raises(ValueError, match="without a time zone"):
        one.feed(row(0))

    class Plain(Traced):
        def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
            for one in rows:
                ctx.set_timer(one["at"] + timedelta(seconds=1))
            yield from ()

        def on_timer(self, key: Any, at: datetime, name: str, ctx: Any) -> Iterator[Any]:
            yield str(at), 0.0, 0

    one = harness(Plain, zoned=False)
    one.feed({"at": naive, "k": "a"})
    assert told(one.advance(naive + timedelta(seconds=2))) == [("2001-01-01 00:00:01", 0.0, 0)]


def test_the_documented_class_does_what_its_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "process.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {"datetime": datetime, "UTC": UTC}
    for block in blocks:
        exec(block, names)
    harness = names["alarm"]
    harness.feed({"device": "a", "at": datetime(2001, 1, 2, tzinfo=UTC), "value": 3.0})
    assert [one["message"] for one in harness.advance(datetime(2001, 1, 2, 0, 5, tzinfo=UTC))] == ["doubled"]


def unreadable() -> Iterator[tuple[int, dict[str, Any]]]:
    yield 1, {"n": 1}
    yield 1, {"n": 2}
    raise OSError("no more input")


class Catching:
    output = "n BIGINT"

    def __init__(self, again: bool) -> None:
        self.again = again

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        try:
            for row in rows:
                yield (row["n"],)
        except Exception:
            if self.again:
                raise KeyError("the class's own") from None


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("rejects", [False, True])
def test_an_error_of_reading_rows_ends_the_epoch_whatever_the_class_makes_of_it(again: bool, rejects: bool) -> None:
    kept = Declaration({}, {}, timers=False, clock_timers=False)
    caller = Caller(lambda: Catching(again), Catching.output, kept, Times(0, 9, 9), rejects=rejects)
    with pytest.raises(OSError, match="no more input"):
        list(caller.turn(("a",), {}, unreadable()))


class Keeping:
    """Does with its rows what it should not: reads them twice, in a later call and of another key, and changes them."""

    output = "read BIGINT, again BIGINT, older BIGINT"
    older: ClassVar[list[Any]] = []

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        older = sum(len(list(one)) for one in self.older)
        first = next(rows)
        first.clear()
        self.older.append(rows)
        if key == ("b",):
            yield 1 + len(list(rows)), len(list(rows)), older


def test_rows_are_given_once_and_to_their_own_call() -> None:
    one = harness(Keeping)
    one.feed(*(row(second, key, n) for key in "abc" for second in (0, 1) for n in (1, 2, 3)))
    assert told(one.advance(at(5))) == [(3, 0, 0), (3, 0, 0)]
    assert told(one.advance(at(9))) == []


class Hoarding:
    """Uses the context of an earlier key."""

    output = "n BIGINT"
    contexts: ClassVar[list[Any]] = []

    def process(self, key: Any, rows: Any, ctx: Any) -> Iterator[Any]:
        self.contexts.append(ctx)
        yield (self.contexts[0].incr_counter("n"),)


def test_a_context_ends_with_its_key() -> None:
    one = harness(Hoarding)
    one.feed(row(0), row(1), row(0, "b"))
    with pytest.raises(ProcessFault, match=r"for key \('b',\), .*expected the ctx of this call, found one of another"):
        one.advance(at(2))
    assert len(Hoarding.contexts) == 3
