"""Every way of writing a sink, under every course of crashed attempts: on a sink in memory, in milliseconds.

The same body runs on Delta tables in `tests/spark/test_sink_courses.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from support.sinkkinds import (
    DIES_AFTER,
    DIES_BEFORE,
    ENDS,
    EPOCHS,
    SinkUnderTest,
    courses,
    expected,
    ways,
    written_once,
)

from floodmark.connectors.ports.fakes import FakeTable, FakeWrite, FakeWriter
from floodmark.core.protocol.recovery import ATTEMPTS, SEAL
from floodmark.core.rules.sinks.upserts import Upsert
from floodmark.errors import Fenced, LedgerBroken, Sealed, VerifyFailed
from floodmark.spark.write import sites
from floodmark.spark.write.sites import Attempt, Site, Work

FIRST = Attempt(1, 1, "intent 1")
ROWS = list(EPOCHS[0])


def under_test(**how: Any) -> tuple[FakeTable, SinkUnderTest]:
    table = FakeTable(columns=("k", "v"))
    site = Site("sink", "sink0", "fake://sink", "app", opens=lambda site: FakeWriter(lambda: table, site), **how)
    return table, SinkUnderTest(site, list, table.rows)


WAYS = {**ways(under_test()[1].site), "merged": under_test(upsert=Upsert(key=("k",)))[1].site}


@pytest.mark.parametrize("way", WAYS)
def test_each_epoch_has_its_effect_once(way: str) -> None:
    """Three epochs, each of at most three attempts: all 343 courses."""
    for plans in product(courses(3), repeat=len(EPOCHS)):
        table, sink = under_test()
        sink = replace(sink, site=replace(WAYS[way], opens=sink.site.opens))
        written = written_once(sink, plans)
        assert sorted(table.rows()) == expected(sink.site, plans), plans
        assert [one and one.rows for one in written] == [2, 2, 0 if sink.site.whole else None], plans
        assert {one.commit for one in written if one} <= table.settled, plans


def interleaved(sink: SinkUnderTest, one: Attempt, other: Attempt) -> tuple[Any, Any]:
    """Two drivers of one epoch: both have written their files before either commits."""
    first = sites.prepare(Work(sink.site, sink.frame(ROWS)), one)
    second = sites.prepare(Work(sink.site, sink.frame(ROWS)), other)
    return sites.finish(first, one), lambda: sites.finish(second, other)


@pytest.mark.parametrize("way", WAYS)
def test_a_twin_finds_the_write_done(way: str) -> None:
    table, sink = under_test()
    sink = replace(sink, site=replace(WAYS[way], opens=sink.site.opens))
    done, late = interleaved(sink, FIRST, FIRST if sink.site.writes_again else Attempt(1, 2, "intent 1"))
    assert (late().commit, len(table.writes)) == (done.commit, 1)


def test_at_least_once_a_newer_attempt_fences_an_older_one() -> None:
    table, sink = under_test(writes_again=True)
    done, late = interleaved(sink, Attempt(1, 2, "intent 1"), FIRST)
    assert done.version == ATTEMPTS + 2
    with pytest.raises(Fenced):
        late()
    assert len(table.writes) == 1


def test_somebody_elses_write_in_between_is_no_matter_to_rows_that_are_added() -> None:
    table, sink = under_test()
    prepared = sites.prepare(Work(sink.site, sink.frame(ROWS)), FIRST)
    table.writes.append(FakeWrite("", 0, ((9, "z"),), (), {}))
    assert sites.finish(prepared, FIRST) is not None
    table, sink = under_test(whole=True)
    prepared = sites.prepare(Work(sink.site, sink.frame(ROWS)), FIRST)
    table.writes.append(FakeWrite("", 0, ((9, "z"),), (), {}))
    with pytest.raises(Fenced):
        sites.finish(prepared, FIRST)


def test_an_interval_is_replaced_once() -> None:
    table, sink = under_test()
    written_once(sink, [(ENDS,)] * len(EPOCHS))
    site, backfill = (
        replace(sink.site, span=SimpleNamespace(column="k", low=2, high=3, gaps=())),
        Attempt(3, 1, "intent 4", backfill=1),
    )
    for _ in range(3):
        assert sites.write(Work(site, sink.frame([(2, "z")])), backfill) is not None
    assert sorted(table.rows()) == [(1, "a"), (2, "z"), (3, "d")]


def tampered(what: Callable[[FakeTable], None], again: Any = ROWS, intent: str = "intent 1") -> None:
    """Retry an epoch whose write is there, after something has been done to it."""
    table, sink = under_test()
    sites.write(Work(sink.site, sink.frame(ROWS)), FIRST)
    what(table)
    sites.write(Work(sink.site, again), Attempt(1, 2, intent))


def edited(table: FakeTable) -> None:
    table.writes[0] = replace(table.writes[0], added=((1, "a"), (2, "edited")))


def lost(table: FakeTable) -> None:
    table.writes[0] = replace(table.writes[0], added=((1, "a"),))


def taken(table: FakeTable) -> None:
    table.writes.append(FakeWrite("", 0, (), ((2, "b"),), {}))


@pytest.mark.parametrize(
    ("what", "again", "intent", "says"),
    [
        (edited, ROWS, "intent 1", "its files contain other rows than it wrote"),
        (lost, ROWS, "intent 1", "wrote 1 rows; computed again, it has 2"),
        (taken, ROWS, "intent 1", r"commit 1 \(DELETE\)"),
        (lambda _: None, [(1, "a"), (2, "x")], "intent 1", "computed again, its rows differ"),
        (lambda _: None, [(1, "a")], "intent 1", "wrote 2 rows; computed again, it has 1"),
        (lambda _: None, None, "intent 1", "wrote 2 rows; computed again, it has 0"),
        (lambda _: None, ROWS, "intent 9", "was written for another intent"),
    ],
)
def test_a_write_that_is_there_is_compared_in_full(
    what: Callable[[FakeTable], None], again: Any, intent: str, says: str
) -> None:
    tampered(lambda _: None)
    with pytest.raises(VerifyFailed, match=says):
        tampered(what, again, intent)


def test_a_commit_that_moved_other_rows_than_it_says_is_noticed() -> None:
    table, sink = under_test(whole=True)
    sites.write(Work(sink.site, sink.frame(ROWS)), FIRST)
    table.writes[0] = replace(table.writes[0], added=(*ROWS, (9, "z")))
    with pytest.raises(VerifyFailed, match="according to its log, commit 0 added 3 rows and removed 0"):
        sites.write(Work(sink.site, sink.frame(ROWS)), Attempt(1, 2, "intent 1"))


def test_newer_writers_are_noticed_before_anything_is_written() -> None:
    for version, fault in ((SEAL, Sealed), (3 * ATTEMPTS, LedgerBroken)):
        table, sink = under_test()
        table.writes.append(FakeWrite("app", version, (), (), {}))
        with pytest.raises(fault):
            sites.prepare(Work(sink.site, sink.frame(ROWS)), FIRST)


def test_courses_have_attempts_that_die_on_both_sides_of_the_commit() -> None:
    assert len([*courses(3)]) == 7
    assert (DIES_BEFORE, DIES_AFTER, ENDS) in [*courses(3)]
