"""What a correction recomputes, how the ledger's head follows it, and what is refused; in pure code."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import HOPPING, SESSIONS, SLICED, STATELESS, TUMBLING, TWO_WINDOWS, Flow

from floodmark.connectors.delta.rewrites import FileChanges, as_added, rewriting
from floodmark.core.lifecycle.backfills import (
    EVER,
    EVERYTHING,
    Interval,
    as_computed,
    holds,
    requested_interval,
    restated_in,
    scope_now,
    windows_of,
)
from floodmark.core.lifecycle.changes import check_edit, check_keeps_corrections
from floodmark.core.lifecycle.corrections import (
    MOST_GAPS,
    check_correctable,
    check_uncut,
    grain_of,
    has_passed_over,
    keep_late,
    may_be_cut,
    nothing_touched,
    of_sessions,
    parted,
    settled_at,
    spanning,
    still_there,
    still_valid,
    times_of,
    touched_interval,
    uncut,
    without_results,
)
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Restated, Rewrite
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Counts
from floodmark.core.protocol.ticks import due_watermark
from floodmark.core.rules.checks.recomputing import Scope, narrow_reasons
from floodmark.core.rules.rule import Rule
from floodmark.errors import HistoryGone, Refused, RuleChanged, RuleInvalid
from floodmark.ledger.delta.tablelog import DataCommit

SECOND, MINUTE = 1_000_000, 60_000_000
NO_LIMIT = (1 << 63) - 1
CORRECT = {"on_rewrite": "correct"}
DISTINCT = {"key": ["k"], "within": "1 minute"}


def rule_of(root: Path, **how: Any) -> Rule:
    return Flow(root.resolve(), **{"stream": CORRECT, **how}).rule()


def head(rule: Rule, watermark: int | None = 10 * MINUTE, **changed: Any) -> Head:
    begun = Commit(entry="v1\n{}", watermark=None, maxima={}, heard={}, rule=rule.to_json())
    return replace(Head(1, "", 1, "token", 3, Entry(0, ()), watermark, {}, rule, begun), **changed)


@pytest.mark.parametrize("sql", [TUMBLING, HOPPING, SLICED])
@pytest.mark.parametrize(
    ("oldest", "newest"),
    [
        (0, 0),
        (59 * SECOND, MINUTE),
        (MINUTE - 1, MINUTE - 1),
        (MINUTE, 2 * MINUTE - 1),
        (MINUTE + 1, MINUTE + 1),
        (5 * SECOND - 1, 5 * SECOND - 1),
        (5 * SECOND, 250 * SECOND),
        (64 * SECOND, 65 * SECOND),
    ],
)
def test_every_window_that_holds_a_touched_row_is_recomputed_and_no_window_beside(
    tmp_path: Path, sql: str, oldest: int, newest: int
) -> None:
    rule = rule_of(tmp_path, sql=sql)
    found, windows = touched_interval(rule, [(oldest, newest)], NO_LIMIT), windows_of(rule)
    assert windows is not None
    (window,) = windows.grids
    starts = range(window.offset_us - 100 * window.slide_us, 10 * MINUTE, window.slide_us)
    touched = [at for at in starts if at <= newest and at + window.size_us > oldest]
    assert [at for at in starts if found.begin <= at < found.end] == touched
    assert found.high == touched[-1] + window.size_us, "all rows of these windows are read"


def test_of_a_stateless_rule_the_rows_of_the_touched_times_are_recomputed(tmp_path: Path) -> None:
    found = touched_interval(rule_of(tmp_path, sql=STATELESS), [(5, 9)], NO_LIMIT)
    assert (found.begin, found.end, found.high) == (5, 10, 10)
    none = nothing_touched(rule_of(tmp_path, sql=STATELESS))
    assert none.begin == none.end == none.high


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sql", [TUMBLING, HOPPING, SLICED])
def test_windows_between_touched_ones_stay_as_they_are(tmp_path: Path, sql: str, seed: int) -> None:
    rng, rule = Random(seed), rule_of(tmp_path, sql=sql)
    windows = windows_of(rule)
    assert windows is not None
    (window,) = windows.grids
    rows = sorted(rng.randrange(-30 * MINUTE, 30 * MINUTE) for _ in range(rng.randrange(1, 9)))
    needed = rng.choice([NO_LIMIT, None, rng.randrange(-40 * MINUTE, 40 * MINUTE)])
    grain = grain_of(rule, rows[0], rows[-1])
    found = touched_interval(rule, times_of({row // grain for row in rows}, grain), needed)
    span = Restated(begin=found.begin, end=found.end, high=found.high, upto=1, gaps=found.gaps)
    starts = range(window.offset_us - 100 * window.slide_us * 60, 60 * MINUTE, window.slide_us)
    recomputed = {at for at in starts if any(begin <= at < end for begin, end in span.parts)}
    near = [(row - row % grain, row - row % grain + grain) for row in rows]  # rows are told apart by the grain
    for at in starts:
        ends = at + window.size_us
        if any(at <= row < ends for row in rows):
            assert at in recomputed
        elif needed is NO_LIMIT and not any(begin < ends and at < end for begin, end in near):
            assert at not in recomputed
        if at in recomputed:
            assert any(low <= at and ends <= high for low, high in _joined(span.reads)), "all of its rows are read"
    if needed is None:
        assert not found.gaps
    for begin, end in found.gaps:
        assert (begin - window.offset_us) % window.slide_us == (end - window.offset_us) % window.slide_us == 0
        assert needed is not None and end + (found.high - found.end) <= needed, "state gets all rows that it needs"


def _joined(reads: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for low, high in sorted(reads):
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return found


def test_only_the_widest_gaps_are_kept(tmp_path: Path) -> None:
    rule, times = rule_of(tmp_path, sql=STATELESS), [(at * at * SECOND, at * at * SECOND) for at in range(100)]
    found = touched_interval(rule, times, NO_LIMIT)
    assert len(found.gaps) == MOST_GAPS
    assert found.gaps[-1] == (98 * 98 * SECOND + 1, 99 * 99 * SECOND)
    assert found.gaps == tuple(sorted(found.gaps))
    span = Restated(begin=found.begin, end=found.end, high=found.high, upto=1, gaps=found.gaps)
    assert all(any(low <= at < high for low, high in span.reads) for at, _ in times)


def test_a_late_row_in_a_gap_was_not_restated() -> None:
    span = Restated(begin=0, end=100, low=-5, high=110, upto=3, gaps=((20, 60),))
    assert span.parts == [(0, 20), (60, 100)]
    assert span.reads == [(-5, 30), (55, 110)]
    told = {at: restated_in(at, 1, {1: span}) for at in (-6, -5, 9, 10, 14, 15, 29, 30, 54, 55, 70, 94, 95, 109, 110)}
    assert [at for at, what in told.items() if what is None] == [-6, 30, 54, 110]
    assert [at for at, what in told.items() if what == "1"] == [10, 14, 70, 94]


AROUND = """
SELECT at, k, count(*) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL '40' SECONDS PRECEDING
       AND INTERVAL '1' SECOND FOLLOWING) AS c FROM events
"""
WINDOWED = f"SELECT window.start AS start, k, sum(c) AS c FROM ({AROUND}) GROUP BY window(at, '1 minute'), k"


def test_results_that_look_around_a_row_are_touched_as_far_as_they_look(tmp_path: Path) -> None:
    found = touched_interval(rule_of(tmp_path, sql=AROUND), [(MINUTE, 2 * MINUTE)], NO_LIMIT)
    assert (found.begin, found.end) == (MINUTE - SECOND, 2 * MINUTE + 40 * SECOND + 1)
    assert (found.low, found.high) == (found.begin - 40 * SECOND, found.end + SECOND)


@pytest.mark.parametrize("at", [0, SECOND - 1, SECOND, 20 * SECOND - 1, 20 * SECOND])
def test_windows_over_such_results_are_touched_with_them(tmp_path: Path, at: int) -> None:
    found = touched_interval(rule_of(tmp_path, sql=WINDOWED), [(MINUTE + at, MINUTE + at)], NO_LIMIT)
    assert (found.begin, found.end) == (0 if at < SECOND else MINUTE, 3 * MINUTE if at >= 20 * SECOND else 2 * MINUTE)
    assert (found.low, found.high) == (found.begin - 40 * SECOND, found.end + SECOND)


def test_newer_rows_that_came_advance_the_watermark_once(tmp_path: Path) -> None:
    rule = rule_of(tmp_path)  # a lateness of 30 seconds
    before = head(rule, MINUTE, maxima={"events": MINUTE + 30 * SECOND}, corrections=1)
    assert due_watermark(rule, before) is None
    raised = replace(before, maxima={"events": 5 * MINUTE})
    assert due_watermark(rule, raised) == 5 * MINUTE - 30 * SECOND
    assert due_watermark(rule, replace(raised, corrections=0)) is None, "only a correction raises them alone"
    assert due_watermark(rule, replace(raised, open=object())) is None  # type: ignore[arg-type]


NEVER_LATE = {**CORRECT, "lateness": None}
TOTALS = "SELECT k, count(*) AS c FROM events GROUP BY k"


def keyed(*keys: str | None) -> dict[str, Any]:
    """Settings with a sink for each key; None: without one."""
    sinks = [{"delta": f"/lake/{i}", **({"key": [key]} if key else {})} for i, key in enumerate(keys)]
    return {"sinks": sinks}


REFUSED = {
    "windows by another key": (
        {"settings": keyed("k")},
        "a key without its results' time",
    ),
    "qos": ({"settings": {"qos": 0}}, "at qos 0"),
    "start": ({"stream": {**CORRECT, "start": "latest"}}, "has not read all rows that can be removed"),
    "rebuild": ({"settings": {"rebuild": True, "epoch": "none"}}, "each run reads what the source holds now"),
    "word": ({"stream": {"on_rewrite": "undo"}}, "expected stop"),
}


ENTIRE: dict[str, dict[str, Any]] = {
    "sessions": {"sql": SESSIONS},
    "late totals": {"sql": TOTALS, "settings": {**keyed("k"), "unbounded": True}},
    "keys with lookups": {
        "sql": "SELECT e.k, name FROM events e JOIN names ON e.k = names.k",
        "settings": {**keyed("k"), "lookups": {"names": {"delta": "/lake/names"}}},
        "stream": NEVER_LATE,
    },
    "a sink without a key": {"sql": STATELESS, "settings": keyed("k", None), "stream": NEVER_LATE},
}


@pytest.mark.parametrize("what", ENTIRE)
def test_what_neither_an_interval_nor_keys_bound_is_corrected_as_a_whole(tmp_path: Path, what: str) -> None:
    rule = rule_of(tmp_path, **ENTIRE[what])
    assert scope_now(rule, head(rule)) is Scope.ALL


LONE = "SELECT session_window.start AS s, k, count(*) AS c FROM events GROUP BY session_window(at, '40 seconds'), k"
OTHERS = {
    LONE.replace("'40 seconds'", "CASE WHEN n < 0 THEN '20 seconds' ELSE '40 seconds' END"): "a gap of each row",
    LONE.replace("FROM events", "FROM (SELECT * FROM events)"): "rows of a query",
    LONE.replace("session_window.start", "session_window.end"): "no start",
    f"{LONE} UNION ALL {LONE.replace('40', '20')}": "two gaps",
    f"{LONE} UNION ALL SELECT window.start, k, 0 FROM events GROUP BY window(at, '1 minute'), k": "windows beside it",
}


@pytest.mark.parametrize(
    "sql",
    [
        LONE,
        LONE.replace(", k", ", upper(k) AS k", 1).replace(", k", ", upper(k)"),
        f"{LONE} HAVING count(*) > 1",
        f"SELECT s, c + 1 AS c FROM ({LONE})",
        f"WITH a AS ({LONE}) SELECT * FROM a",
    ],
)
def test_sessions_with_one_gap_are_corrected_by_interval(tmp_path: Path, sql: str) -> None:
    rule = rule_of(tmp_path, sql=sql)
    assert scope_now(rule, head(rule)) is Scope.INTERVAL
    found = rule.query.lone_sessions
    assert found is not None and found[1] == 40 * SECOND


@pytest.mark.parametrize(("gap", "longest"), [("23 hours", 23), ("1 day", 48), ("2 days", 72)])
def test_a_gap_of_days_may_last_longer_by_the_calendar(tmp_path: Path, gap: str, longest: int) -> None:
    found = rule_of(tmp_path, sql=LONE.replace("40 seconds", gap)).query.lone_sessions
    assert found is not None and found[1] == longest * 3600 * SECOND


@pytest.mark.parametrize("sql", OTHERS, ids=OTHERS.values())
def test_other_sessions_are_corrected_as_a_whole(tmp_path: Path, sql: str) -> None:
    rule = rule_of(tmp_path, sql=sql)
    assert scope_now(rule, head(rule)) is Scope.ALL


@pytest.mark.parametrize("seed", range(40))
def test_parts_hold_all_that_was_found_with_the_widest_gaps_between_them(seed: int) -> None:
    rng = Random(seed)
    found = [(at, at + rng.randrange(1, 9)) for at in rng.sample(range(3000), rng.choice([1, 5, 200]))]
    apart = rng.randrange(1, 12)
    parts = parted(found, apart)
    covered = {at for begin, end in found for at in range(begin, end)}
    free = [at for at in range(parts[0][0], parts[-1][1]) if not any(begin <= at < end for begin, end in parts)]
    assert not covered & set(free)
    assert (parts[0][0], parts[-1][1]) == (min(covered), max(covered) + 1)
    gaps = [other[0] - one[1] for one, other in pairwise(parts)]
    assert all(gap >= apart for gap in gaps)
    edges = sorted(covered)
    wide = [other - one - 1 for one, other in pairwise(edges) if other - one > apart]
    assert sorted(gaps) == sorted(wide)[-MOST_GAPS:]


def test_each_part_is_read_with_what_lies_around_it() -> None:
    span = spanning([(10, 20), (50, 60), (90, 91)], before=3, after=7, upto=5)
    assert span.reads == [(7, 27), (47, 67), (87, 98)]
    assert (span.parts, span.upto) == ([(10, 20), (50, 60), (90, 91)], 5)


@pytest.mark.parametrize(
    ("until", "watermark", "final"), [(5, 6, True), (5, 5, False), (5, None, False), (None, None, True)]
)
def test_sessions_that_ended_before_the_watermark_are_final(
    tmp_path: Path, until: int | None, watermark: int | None, final: bool
) -> None:
    rule = rule_of(tmp_path, sql=LONE)
    found = of_sessions(rule, spanning([(1, 3)], 2, 4, 1), until, watermark)
    assert (found.begin, found.end, found.low, found.high, found.final) == (1, 3, -1, 7, final)


def test_a_wider_backfill_of_sessions_holds_the_one_that_was_asked_for(tmp_path: Path) -> None:
    rule, asked = rule_of(tmp_path, sql=LONE), replace(EVERYTHING, begin=10, end=20, whole=False)
    done = Restated(begin=5, end=20, high=30, upto=1)
    assert [holds(done, replace(asked, begin=at)) for at in (4, 5)] == [False, True]
    assert [holds(done, replace(asked, end=at)) for at in (20, 21)] == [True, False]
    found = as_computed(rule, asked, done)
    assert (found.begin, found.end, found.final) == (5, 20, True)
    assert as_computed(rule, EVERYTHING, done) == EVERYTHING
    assert as_computed(rule_of(tmp_path, sql=TUMBLING), asked, done) == asked


@pytest.mark.parametrize(
    "how", [{"sql": TWO_WINDOWS}, {"sql": STATELESS, "stream": {**CORRECT, "distinct": DISTINCT}}], ids=str
)
def test_windows_of_several_sizes_and_rows_without_duplicates_are_corrected_by_interval(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    rule = rule_of(tmp_path, **how)
    assert scope_now(rule, head(rule)) is Scope.INTERVAL


def test_a_row_decides_about_rows_of_its_key_within_the_horizon_behind_it(tmp_path: Path) -> None:
    rule = rule_of(tmp_path, sql=STATELESS, stream={**CORRECT, "distinct": DISTINCT})
    found = touched_interval(rule, [(5 * MINUTE, 6 * MINUTE)], NO_LIMIT)
    assert (found.begin, found.end) == (5 * MINUTE, 7 * MINUTE + 1)
    assert (found.low, found.high) == (4 * MINUTE, 7 * MINUTE + 1)


def test_results_of_all_times_hold_until_the_next_epoch(tmp_path: Path) -> None:
    rule = rule_of(tmp_path, sql=SESSIONS)
    done = Restated(begin=-EVER, end=EVER, high=EVER, upto=3, whole=True)
    basis = head(rule)
    assert still_valid(rule, done, basis, basis) is True
    assert still_valid(rule, done, basis, replace(basis, epoch=basis.epoch + 1)) is False


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_corrected_is_refused_where_it_is_written(tmp_path: Path, what: str) -> None:
    how, why = REFUSED[what]
    with pytest.raises(RuleInvalid, match=rf"streams\.events\.on_rewrite: .*{why}"):
        rule_of(tmp_path, **how)


def test_progress_that_cannot_be_corrected_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    rule = rule_of(tmp_path)
    check_correctable(rule, head(rule))
    with pytest.raises(Refused, match=r"rows from before a reset.*floodmark reset counted.*on_rewrite: skip"):
        check_correctable(rule, head(rule, kept_output=True))


KEEP = {"on_reset": "keep"}
DROPS = {"expect": {"good": {"check": "n > 0", "on_fail": "drop"}}}


@pytest.mark.parametrize(
    ("how", "sink", "scope", "refused"),
    [
        ({}, KEEP, Scope.INTERVAL, True),
        ({}, {}, Scope.INTERVAL, False),
        ({"sql": SESSIONS}, KEEP, Scope.ALL, True),
        ({"sql": STATELESS, "stream": {**CORRECT, "lateness": None}}, KEEP, Scope.KEYS, False),
        ({"sql": STATELESS, "stream": {**CORRECT, "lateness": None}}, {**KEEP, "newest": "n"}, Scope.KEYS, True),
        ({"sql": STATELESS, "stream": {**CORRECT, "lateness": None, **DROPS}}, KEEP, Scope.KEYS, True),
        ({"sql": STATELESS, "stream": {**CORRECT, "lateness": None, **DROPS}}, {}, Scope.KEYS, False),
    ],
    ids=str,
)
def test_rows_that_a_reset_has_kept_are_not_taken_away_by_a_correction(
    tmp_path: Path, how: dict[str, Any], sink: dict[str, Any], scope: Scope, refused: bool
) -> None:
    settings = keyed("k") if scope is Scope.KEYS else {"sinks": [{"delta": "/lake/0"}]}
    rule = rule_of(tmp_path, **how, settings=settings)
    emptied, rule = rule, rule.model_copy(update={"sinks": (rule.sinks[0].model_copy(update=sink),)})
    check_correctable(rule, head(rule), scope)
    check_correctable(rule, head(emptied, generation=2), scope)
    if not refused:
        check_correctable(rule, head(rule, generation=2), scope)
        return
    with pytest.raises(Refused, match=r"rows from before a reset \(`on_reset: keep`\), which would go, too"):
        check_correctable(rule, head(rule, generation=2), scope)


def test_a_generation_that_began_behind_rows_is_not_corrected_whatever_the_file_says_now(tmp_path: Path) -> None:
    """An edit of `start` counts from the next reset: until then, rows are read as they came."""
    began, rule = rule_of(tmp_path, stream={"start": "latest"}), rule_of(tmp_path)
    with pytest.raises(Refused, match=r"began with another `start` of stream events.*floodmark reset counted"):
        check_correctable(rule, head(began))
    now = head(began, table_ids={f"sink/{sink.address}": "id" for sink in rule.sinks})
    requested_interval(rule, now, 0, MINUTE, str)
    with pytest.raises(Refused, match="began with another `start` of stream events"):
        requested_interval(rule, replace(now, corrections=1), 0, MINUTE, str)


@pytest.mark.parametrize(("old", "new"), list(permutations(("stop", "skip", "correct"), 2)))
def test_what_a_rewrite_means_may_be_edited(tmp_path: Path, old: str, new: str) -> None:
    check_edit(*(rule_of(tmp_path, stream={"on_rewrite": how}) for how in (old, new)))


def test_what_was_corrected_cannot_be_skipped_afterwards(tmp_path: Path) -> None:
    skipping = rule_of(tmp_path, stream={"on_rewrite": "skip"})
    check_keeps_corrections(skipping, ())
    check_keeps_corrections(skipping, {"others"})
    check_keeps_corrections(rule_of(tmp_path), {"events"})
    with pytest.raises(
        RuleChanged, match=r"expected `on_rewrite: correct` or `on_rewrite: stop` at stream events, fou"
    ):
        check_keeps_corrections(skipping, {"events"})


CLOCKED: list[dict[str, Any]] = [
    {"process": "clocks:Stamped"},
    {"sql": "SELECT at, k, current_timestamp() AS now FROM events"},
]


@pytest.mark.parametrize("how", CLOCKED, ids=str)
def test_a_correction_that_waits_is_refused_once_the_rule_reads_the_clock(tmp_path: Path, how: dict[str, Any]) -> None:
    """The file may say `stop` by then: with `correct`, such a text is refused."""
    edited = rule_of(tmp_path, **how, stream={"on_rewrite": "stop"})
    waits = head(edited, deferred={"events": (Rewrite(since="a", upto="b", commits=("version 1",)),)})
    with pytest.raises(
        Refused,
        match=r"cannot be corrected: .* differed in each epoch.*`floodmark reset counted` recomputes.*"
        r"`floodmark correct counted --skip --stream events` gives the correction up",
    ):
        check_correctable(edited, waits)


@pytest.mark.parametrize("how", CLOCKED, ids=str)
def test_only_answers_are_named_that_a_rule_with_a_correction_may_give(tmp_path: Path, how: dict[str, Any]) -> None:
    with pytest.raises(RuleInvalid, match=r"on_rewrite: expected stop, or skip unless .*: its? "):
        rule_of(tmp_path, **how)
    with pytest.raises(RuleChanged, match=r"expected `on_rewrite: stop` at stream events, found skip"):
        check_keeps_corrections(rule_of(tmp_path, **how, stream={"on_rewrite": "skip"}), {"events"})


@pytest.mark.parametrize(
    ("how", "skipped", "found"),
    [
        ("stop", {"events": 1}, True),
        ("correct", {"events": 1}, True),
        ("skip", {"events": 1}, False),
        ("stop", {}, False),
    ],
)
def test_rows_may_have_left_by_commits_that_were_passed_over_once(
    tmp_path: Path, how: str, skipped: dict[str, int], found: bool
) -> None:
    """A stream that says skip reads the removed rows all the same."""
    rule = rule_of(tmp_path, stream={"on_rewrite": how})
    assert has_passed_over(rule, head(rule, skipped=skipped)) is found


def test_of_late_rows_no_more_are_restated_than_a_rewritten_source_holds() -> None:
    counts = {"a": Counts(read=3, folded=2), "b": Counts(read=3, dropped=1, folded=1), "c": Counts()}
    assert still_there({"a": 1, "b": 5, "c": 2}, counts) == {"a": 1, "b": 2, "c": 0}


def commit(version: int, removes: bool) -> DataCommit:
    return DataCommit(version, 1, 1, removes, {})


@pytest.mark.parametrize(
    ("removes", "versions"), [([], []), ([0, 0], []), ([0, 1], [1]), ([1, 1, 0, 1], [0, 1]), ([0, 1, 1], [1, 2])]
)
def test_rewrites_in_a_row_are_one(removes: list[int], versions: list[int]) -> None:
    found = rewriting(commit(version, bool(one)) for version, one in enumerate(removes))
    assert [one.version for one in found] == versions


def add(path: str, vector: str | None = None) -> dict[str, Any]:
    return {"add": {"path": path, "size": 1, **({"deletionVector": {"p": vector}} if vector else {})}}


def remove(path: str, vector: str | None = None) -> dict[str, Any]:
    return {"remove": add(path, vector)["add"]}


FOLLOWED = {
    "copied": ([[remove("a"), add("b")]], ["a"], ["b"]),
    "passed through": ([[remove("a"), add("b")], [remove("b"), add("c")]], ["a"], ["c"]),
    "put back": ([[remove("a")], [add("a")]], [], []),
    "added and removed": ([[add("a")], [remove("a")]], [], []),
    "marked": ([[remove("a"), add("a", "v")]], ["a"], ["a"]),
    "marked twice": ([[remove("a"), add("a", "v")], [remove("a", "v"), add("a", "w")]], ["a"], ["a"]),
    "the order in a commit does not matter": ([[add("a", "v"), remove("a")]], ["a"], ["a"]),
}


@pytest.mark.parametrize("what", FOLLOWED)
def test_files_that_only_pass_through_are_not_compared(what: str) -> None:
    commits, left, came = FOLLOWED[what]
    found = FileChanges()
    for actions in commits:
        found.follow(actions)
    assert ([path for path, _ in found.left], [path for path, _ in found.came]) == (left, came)


def test_a_removed_file_is_read_as_one_that_was_added(tmp_path: Path) -> None:
    rows = pa.table({"p": ["1"], "n": [1]})
    write_deltalake(tmp_path, rows, partition_by=["p"])
    table = DeltaTable(tmp_path)
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    file = {"path": "a", "partitionValues": {"p": "1"}, "size": 7, "deletionVector": vector}
    (line,) = as_added(table, str(tmp_path), [file], unasked)
    assert '"partitionValues": {"p": "1"}' in line and '"pathOrInlineDv": "x"' in line and '"dataChange": true' in line
    with pytest.raises(HistoryGone, match="expected the partition of a in the log entry that removes it"):
        list(as_added(table, str(tmp_path), [{"path": "a", "size": 7}], unasked))


def unasked() -> DeltaTable:
    raise AssertionError("the log says all that is needed")


def test_a_removed_file_without_a_size_has_that_with_which_it_was_added(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"p q": ["1", "2"], "n": [1, 2]}), partition_by=["p q"])
    table = DeltaTable(tmp_path)
    files = sorted(tmp_path.rglob("*.parquet"))
    removed = [
        {"path": quote(str(one.relative_to(tmp_path))), "partitionValues": {"p q": str(at)}}
        for at, one in enumerate(files)
    ]
    found = [json.loads(line)["add"]["size"] for line in as_added(table, str(tmp_path), removed, lambda: table)]
    assert found == [one.stat().st_size for one in files]
    unknown = {"path": "a", "partitionValues": {"p q": "1"}}
    with pytest.raises(HistoryGone, match="expected the size of a in the log entry that removes it, found none"):
        list(as_added(table, str(tmp_path), [unknown], lambda: table))


def test_a_dead_row_without_an_event_time_touches_nothing() -> None:
    assert times_of({None, 3, 4, 7}, 10) == [(30, 49), (70, 79)]
    assert times_of({None}, 10) == []


ONCE = {"sql": STATELESS, "stream": {**CORRECT, "distinct": DISTINCT}}
BY_MINUTE = {**ONCE, "sql": TUMBLING}


@pytest.mark.parametrize(
    ("how", "pair", "part", "wider"),
    [
        (ONCE, (50, 70), (60, 80), (50, 80)),
        (ONCE, (50, 70), (40, 60), (40, 70 + 1e-6)),
        (ONCE, (50, 70), (40, 70), (40, 70 + 1e-6)),
        (ONCE, (50, 70), (50, 70 + 1e-6), (50, 70 + 1e-6)),
        (ONCE, (50, 70), (40, 50), (40, 50)),
        (ONCE, (50, 70), (70 + 1e-6, 90), (70 + 1e-6, 90)),
        (BY_MINUTE, (50, 70), (0, 60), (0, 120)),
        (BY_MINUTE, (50, 70), (60, 180), (0, 180)),
        (BY_MINUTE, (50, 59), (0, 60), (0, 60)),
    ],
)
def test_a_late_row_and_its_duplicate_are_recomputed_together(
    tmp_path: Path, how: Any, pair: tuple[float, float], part: tuple[float, float], wider: tuple[float, float]
) -> None:
    rule = rule_of(tmp_path, **how)
    at, asked, expected = ([round(one * SECOND) for one in each] for each in (pair, part, wider))
    assert uncut(rule, [(asked[0], asked[1])], [(at[0], at[1])]) == [tuple(expected)]
    if asked != expected:
        late = [(at[0], at[0] + 1)]
        assert may_be_cut(rule, [(asked[0], asked[1])], late) == late, "rows are looked at"


def test_late_rows_far_from_the_bounds_cost_nothing(tmp_path: Path) -> None:
    rule, part = rule_of(tmp_path, **ONCE), (10 * MINUTE, 20 * MINUTE)
    far = [(9 * MINUTE - SECOND, 9 * MINUTE), (12 * MINUTE, 13 * MINUTE), (20 * MINUTE, 21 * MINUTE)]
    assert may_be_cut(rule, [part], far) == []
    assert settled_at(rule, [part], far) == 14 * MINUTE
    assert settled_at(rule, [part], far[:1]) is None


@pytest.mark.parametrize(
    ("part", "kept", "alone"),
    [
        ((130, 200), (100, 200), True),
        ((130, 200), (120, 200), True),
        ((130, 200), (121, 200), False),
        ((130, 200), (60, 115), False),
        ((115, 200), (100, 200), False),
        ((116, 200), (100, 200), True),
        ((60, 120), (100, 200), True),
        ((60, 121), (100, 200), False),
    ],
)
def test_late_rows_without_results_are_no_rows_of_the_state(
    tmp_path: Path, part: tuple[int, int], kept: tuple[int, int], alone: bool
) -> None:
    late = [(115 * SECOND, 121 * SECOND)]
    asked = ([(begin * SECOND, end * SECOND)] for begin, end in (part, kept))
    assert without_results(rule_of(tmp_path, **ONCE), next(asked), late, next(asked)) == (late if alone else [])


def test_what_would_part_them_is_refused_with_the_way(tmp_path: Path) -> None:
    rule = rule_of(tmp_path, **ONCE)
    interval = Interval.of(rule, 0, MINUTE)
    check_uncut(rule, interval, [(0, MINUTE)], 2 * MINUTE, 2 * MINUTE + 1)
    for wider, settled, told in [
        (None, None, "late rows were dropped"),
        ([(-5, MINUTE + 7)], None, f"--from -5 --to {MINUTE + 7}, or recompute everything with `floodmark backfill"),
        ([(0, MINUTE)], 2 * MINUTE, f"expected the watermark after {2 * MINUTE}, where .* ends, found {2 * MINUTE}[.]"),
    ]:
        with pytest.raises(Refused, match=told):
            check_uncut(rule, interval, wider, settled, 2 * MINUTE)


@pytest.mark.parametrize("how", [ONCE, {"sql": LONE}])
def test_without_its_late_rows_nothing_bounds_what_they_join(tmp_path: Path, how: Any) -> None:
    rule = rule_of(tmp_path, **how)
    dropping = rule.model_copy(update={"late": "drop"})
    assert (scope_now(rule, head(rule)), scope_now(dropping, head(dropping))) == (Scope.INTERVAL, Scope.ALL)
    assert next(narrow_reasons(dropping)).startswith("late rows were dropped")
    assert (keep_late([rule]), keep_late([rule, dropping])) == (True, False)
