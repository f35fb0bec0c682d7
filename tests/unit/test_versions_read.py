"""Which epochs have read which versions of lookup tables, and which of them an interval needs; in pure code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.flow import START, Flow

from floodmark.core.lifecycle.backfills import (
    EVERYTHING,
    MOST_VERSIONS,
    Interval,
    check_versions,
    may_have_written,
    requested_whole,
)
from floodmark.core.protocol.digests import Digest, combined
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.lookedup import SameVersions, versions_read
from floodmark.core.protocol.records.rows import Commit, Counts, Failed, Intent, Pinned, Row
from floodmark.core.protocol.tally import of_both
from floodmark.errors import Refused

MINUTE = 60_000_000
WINDOWS = """SELECT window.start AS start, count(*) AS c FROM events e JOIN cities c ON e.k = c.k
             GROUP BY window(at, '1 minute')"""
SINGLE = "SELECT at, city FROM events e JOIN cities c ON e.k = c.k"
JOIN = """SELECT e.at, city FROM events e JOIN (SELECT at, k FROM events) f ON e.k = f.k
          AND f.at BETWEEN e.at AND e.at + INTERVAL '5' MINUTES JOIN cities c ON e.k = c.k"""


def _row(kind: Any, epoch: int, body: Any, generation: int = 1) -> Row:
    return Row(epoch, kind, generation, "token", epoch, 1, "run", str(START), body.model_dump_json(), "")


def _entry(at: int) -> Entry:
    return Entry(at, (f'{{"at":{at}}}',))


def _epoch(epoch: int, version: int, watermark: int | None = None, generation: int = 1, log_sum: str = "") -> list[Row]:
    """Its intent and its commit. log_sum: of the version; intents of older Floodmarks have only those of streams."""
    pins = {"cities": Pinned(table="t", version=version)}
    before = None if watermark is None or epoch == 1 else watermark - 10
    common: dict[str, Any] = {"entry": _entry(epoch).text(), "watermark": watermark, "heard": {}, "counts": {}}
    intent = Intent(
        **common,
        watermark_before=before,
        maxima={"e": 7 * epoch},
        lookups=pins,
        log_sums={"e": f"of epoch {epoch}"} | ({f"cities@{version}": log_sum} if log_sum else {}),
        rule="",
        rule_hash="",
        zone="",
        ansi=True,
    )
    return [
        _row("intent", epoch, intent, generation),
        _row("commit", epoch, Commit(**common, maxima={}), generation),
    ]


def _begin(generation: int = 1) -> Row:
    return _row("commit", 0, Commit(entry=_entry(0).text(), watermark=None, maxima={}, heard={}), generation)


def _head(rule: Any, epoch: int, **changed: Any) -> Head:
    begun = Commit(entry=_entry(0).text(), watermark=None, maxima={}, heard={}, rule=rule.to_json())
    ids = {f"sink/{sink.address}": "id" for sink in rule.sinks}
    found = Head(1, "", 1, "token", epoch, _entry(epoch), None, {}, rule, begun, table_ids=ids)
    return replace(found, **changed)


def _rule(root: Path, sql: str, **stream: Any) -> Any:
    lookups = {"lookups": {"cities": {"delta": str(root / "cities")}}} if "cities" in sql else {}
    return Flow(root.resolve(), sql=sql, settings=lookups, stream=stream).rule()


def test_epochs_in_a_row_that_read_the_same_are_one(tmp_path: Path) -> None:
    rule = _rule(tmp_path, SINGLE)
    undone = _epoch(4, 9)[:1]  # an epoch that was taken back has no commit
    rows = [
        _begin(),
        *_epoch(1, 5, 10),
        *_epoch(2, 5, 20),
        *_epoch(3, 6, 30),
        *undone,
        *_epoch(5, 6, 40),
        *_epoch(6, 5, 50),
    ]
    found = versions_read([_begin(0), *_epoch(1, 8, generation=0), *rows], _head(rule, 6))
    shown = [(one.first, one.upto, one.lookups["cities"].version) for one in found]
    assert shown == [(1, 2, 5), (3, 5, 6), (6, 6, 5)]
    assert [(one.low, one.high, one.newest) for one in found] == [(None, 20, 20), (20, 40, 40), (40, 50, 50)]
    assert [(one.begin, one.end) for one in found] == [(_entry(at), _entry(to)) for at, to in ((0, 2), (2, 5), (5, 6))]
    assert [one.upto for one in versions_read(rows, _head(rule, 3))] == [2, 3]
    assert versions_read([_begin()], _head(rule, 0)) == []
    (alone,) = versions_read([_begin(), *_epoch(1, 5)], _head(rule, 1))
    assert (alone.low, alone.high, alone.newest) == (None, None, 7)


@pytest.mark.parametrize(
    ("sums", "shown"),
    [
        (("", "B", "B"), [(1, 3, "B")]),
        (("B", "", "B"), [(1, 3, "B")]),
        (("A", "B", "B"), [(1, 1, "A"), (2, 3, "B")]),
        (("", "A", "B"), [(1, 2, "A"), (3, 3, "B")]),
        (("A", "", "B"), [(1, 2, "A"), (3, 3, "B")]),
        (("", "", ""), [(1, 3, None)]),
    ],
)
def test_a_version_that_became_another_commit_is_another_one(
    tmp_path: Path, sums: tuple[str, ...], shown: list[tuple[int, int, str | None]]
) -> None:
    """An older copy of the table has grown back to its number."""
    epochs = [row for at, log_sum in enumerate(sums, 1) for row in _epoch(at, 5, 10 * at, log_sum=log_sum)]
    found = versions_read([_begin(), *epochs], _head(_rule(tmp_path, SINGLE), 3))
    assert [(one.first, one.upto, one.log_sums.get("cities@5")) for one in found] == shown


def _of(low: int | None, high: int | None, newest: int | None = None) -> SameVersions:
    return SameVersions(1, 1, _entry(0), _entry(1), low, high, newest, {})


@pytest.mark.parametrize(
    ("sql", "low", "high", "needed"),
    [
        (WINDOWS, None, None, False),
        (WINDOWS, None, 10 * MINUTE - 1, False),
        (WINDOWS, None, 10 * MINUTE, True),
        (WINDOWS, 11 * MINUTE, 30 * MINUTE, True),
        (WINDOWS, 11 * MINUTE + 1, 30 * MINUTE, False),
        (JOIN, 16 * MINUTE, 30 * MINUTE, True),  # the partners of the interval's rows are up to 5 minutes later
        (JOIN, 16 * MINUTE + 1, 30 * MINUTE, False),
    ],
)
def test_an_interval_needs_epochs_in_which_its_windows_became_final(
    tmp_path: Path, sql: str, low: int | None, high: int | None, needed: bool
) -> None:
    rule = _rule(tmp_path, sql)
    interval = Interval.of(rule, 10 * MINUTE, 11 * MINUTE)
    assert may_have_written(rule, interval, _of(low, high)) == needed
    assert may_have_written(rule, EVERYTHING, _of(low, high)) == (high is not None)


@pytest.mark.parametrize(("newest", "needed"), [(None, False), (MINUTE - 1, False), (MINUTE, True)])
def test_an_interval_needs_epochs_that_may_have_read_its_rows(tmp_path: Path, newest: int | None, needed: bool) -> None:
    rule = _rule(tmp_path, SINGLE)
    assert may_have_written(rule, Interval.of(rule, MINUTE, 2 * MINUTE), _of(None, None, newest)) == needed
    assert may_have_written(rule, EVERYTHING, _of(None, None, newest))


def test_too_many_versions_are_refused(tmp_path: Path) -> None:
    rule = _rule(tmp_path, SINGLE)
    check_versions(rule, [_of(None, None)] * MOST_VERSIONS)
    with pytest.raises(Refused, match=f"have read {MOST_VERSIONS + 1} different versions"):
        check_versions(rule, [_of(None, None)] * (MOST_VERSIONS + 1))


RUNNING = "SELECT k, count(*) AS n FROM (SELECT e.k FROM events e JOIN cities c ON e.k = c.k) GROUP BY k"


@pytest.mark.parametrize(
    ("sql", "changed", "why"),
    [
        ("SELECT at, k FROM events", {}, "it has none"),
        (SINGLE, {"corrections": 1}, "rows of its sources were changed since"),
    ],
)
def test_what_is_not_known_is_refused(tmp_path: Path, sql: str, changed: dict[str, Any], why: str) -> None:
    rule = _rule(tmp_path, sql)
    with pytest.raises(Refused, match=f"as each epoch read them: {why}.* Leave out `lookups`"):
        requested_whole(rule, _head(rule, 1, **changed), then=True)
    assert not requested_whole(rule, _head(rule, 1, **changed)).then


def test_windows_of_changed_sources_are_known_by_watermarks(tmp_path: Path) -> None:
    rule = _rule(tmp_path, WINDOWS)
    assert requested_whole(rule, _head(rule, 1, corrections=1), then=True).then


def test_running_totals_of_several_versions_are_refused(tmp_path: Path) -> None:
    lookups = {"lookups": {"cities": {"delta": str(tmp_path / "cities")}}}
    made = Flow(
        tmp_path.resolve(), sql=RUNNING, settings={**lookups, "unbounded": True}, stream={"lateness": None}, sinks=1
    )
    made.settings["sinks"] = [{"delta": made.sink(), "key": ["k"]}]
    rule = made.rule()
    with pytest.raises(Refused, match="a result depends on rows of several epochs, each joined as of its own"):
        requested_whole(rule, _head(rule, 1), then=True)


def test_counts_and_digests_of_parts_add_up() -> None:
    one = {"a": Counts(read=3, folded=2, dead=1, expected={"x": Failed(failed=1, taken=1)}), "b": Counts()}
    two = {"a": Counts(read=4, folded=4, expected={"y": Failed(failed=2)}), "b": Counts(read=1, late=1)}
    assert of_both(one, two) == {
        "a": Counts(read=7, folded=6, dead=1, expected={"x": Failed(failed=1, taken=1), "y": Failed(failed=2)}),
        "b": Counts(read=1, late=1),
    }
    halves = [{"a": Digest(rows=1, high=str(1 << 40), low="5")}, {"a": Digest(rows=2, high="7", low="6")}]
    assert combined(halves) == {"a": Digest(rows=3, high=str((1 << 40) + 7), low="11")}
    assert combined([]) == {}
