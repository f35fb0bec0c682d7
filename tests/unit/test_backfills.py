"""Which intervals can be backfilled, what of them still stands, and what is said of late rows; in pure code."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.byhand import begun, folded
from support.flow import HOPPING, OVER, PLACES, RUNNING, SESSIONS, SLICED, STATELESS, TWO_WINDOWS, Flow, event

from floodmark.core.lifecycle.backfills import (
    EVER,
    Interval,
    check_text,
    is_requested,
    is_still_valid,
    requested_interval,
    requested_whole,
    restated_in,
    scope_now,
    starting_in,
)
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, LookedUp, Restated, Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Pinned, text_of
from floodmark.core.protocol.recovery import Step, backfill_version, before_backfill, before_write
from floodmark.core.rules.checks.recomputing import Scope
from floodmark.core.rules.rule import load_rule
from floodmark.core.sql import analyse
from floodmark.core.sql.timecolumn import time_column_of
from floodmark.core.sql.windows import Grid, Sizes, WindowSpec
from floodmark.errors import LedgerBroken, Refused, RunFailed, Sealed, SqlAt
from floodmark.spark.rule.backfill.deadcolumns import texts_of, within
from floodmark.spark.session import lock

SECOND, MINUTE = 1_000_000, 60_000_000
FULL = """
SELECT a.at, a.k, b.n FROM events a FULL JOIN events b
ON a.k = b.k AND b.at >= a.at AND b.at < a.at + INTERVAL 10 SECONDS
"""
NESTED = """
SELECT w.start AS s, max(c) AS m
FROM (SELECT window AS w, k, count(*) AS c FROM e GROUP BY window(at, '1 minute'), k) GROUP BY w
"""


def head(rule: Any, watermark: int | None = 10 * MINUTE, **changed: Any) -> Head:
    begun = Commit(entry="v1\n{}", watermark=None, maxima={}, heard={}, rule=rule.to_json())
    found = Head(1, "", 1, "token", 3, Entry(0, ()), watermark, {}, rule, begun)
    ids = {f"sink/{sink.address}": "id" for sink in rule.sinks if sink.address}
    return replace(found, table_ids=ids, **changed)


def flow(root: Path, **how: Any) -> Flow:
    return Flow(root.resolve(), **how)


def asked(made: Flow, begin: int, end: int, watermark: int | None = 10 * MINUTE, **changed: Any) -> Interval:
    rule = made.rule()
    return requested_interval(rule, head(rule, watermark, **changed), begin, end, lambda at: f"{at / MINUTE:g} min")


SIZES = (
    "SELECT window.start AS s, count(*) AS c FROM e GROUP BY window(at, '1 minute') UNION ALL "
    "SELECT window.start, count(*) FROM e GROUP BY window(at, '1 hour')"
)
TOLD = {
    "SELECT window.start, k, count(*) AS c FROM e GROUP BY window(at, '1 minute'), k": ("start", 0),
    "SELECT window.end AS stop, count(*) AS c FROM e GROUP BY window(at, '1 minute', '20 seconds')": ("stop", MINUTE),
    "SELECT window.end AS b, window.start AS a, count(*) AS c FROM e GROUP BY window(at, '1 minute')": ("a", 0),
    NESTED: ("s", 0),
    "SELECT k, count(*) AS c FROM e GROUP BY window(at, '1 minute'), k": None,
    "SELECT window.start + INTERVAL '1' DAY AS s, count(*) AS c FROM e GROUP BY window(at, '1 minute')": None,
    "SELECT * FROM e": ("at", 0),
    "SELECT k, AT AS T FROM e WHERE k > 1": ("t", 0),
    "SELECT * EXCEPT (at) FROM e": None,
    "SELECT date_trunc('DAY', at) AS at FROM e": None,
    SIZES: ("s", 0),
    SIZES.replace("SELECT window.start AS s", "SELECT window.end AS s"): None,
    f"SELECT * FROM ({SIZES})": ("s", 0),
    f"{SIZES} UNION ALL SELECT window.start, 1 FROM e GROUP BY window(at, '7 minutes')": ("s", 0),
    f"{SIZES} UNION ALL SELECT session_window.start, 1 FROM e GROUP BY session_window(at, '7 minutes')": ("s", 0),
    "SELECT session_window.start AS s, count(*) AS c FROM e GROUP BY session_window(at, '7 minutes')": ("s", 0),
    "SELECT session_window.end AS s, count(*) AS c FROM e GROUP BY session_window(at, '7 minutes')": None,
}


def test_the_start_of_windows_of_several_sizes_tells_no_window() -> None:
    with pytest.raises(SqlAt, match="GROUP BY above windows: expected the window"):
        analyse(f"SELECT s, sum(c) AS c FROM ({SIZES}) GROUP BY s", {"e": "at"})


@pytest.mark.parametrize("seed", range(50))
def test_an_interval_of_several_sizes_has_all_windows_around_its_rows(seed: int) -> None:
    rng = Random(seed)
    slides = [rng.randrange(1, 20) for _ in range(rng.randrange(1, 4))]
    sizes = Sizes(tuple(Grid(slide * rng.randrange(1, 4), slide, rng.randrange(slide)) for slide in slides))
    oldest = rng.randrange(-60, 60)
    newest = oldest + rng.choice([0, 1, rng.randrange(90)])
    windows = {
        (start, start + grid.size_us)
        for grid in sizes.grids
        for start in range(grid.start_at(-500), 500, grid.slide_us)
    }
    begin, end = sizes.around(oldest, newest)
    assert {one for one in windows if one[0] <= newest and one[1] > oldest} <= {
        one for one in windows if begin <= one[0] < end
    }
    assert (sizes.start_at(begin), sizes.start_from(end)) == (begin, end)
    assert begin > oldest - 3 * 60 and end <= newest + 20
    assert sizes.end_of(end) == max(last for first, last in windows if first < end)
    live = sizes.live_from(oldest)
    assert all(last <= oldest for first, last in windows if first < live)
    following = live + sizes.longest.slide_us
    assert any(last > oldest for first, last in windows if first < following), "it is the last such bound"


@pytest.mark.parametrize("sql", TOLD)
def test_a_column_tells_where_a_result_lies(sql: str) -> None:
    found = time_column_of(sql, {"e": "at"})
    assert (found and (found.column, found.shift)) == TOLD[sql]


def test_windows_hang_on_rows_to_the_end_of_the_last_one(tmp_path: Path) -> None:
    tumbling, hopping = asked(flow(tmp_path), 0, MINUTE), asked(flow(tmp_path, sql=HOPPING), MINUTE, 2 * MINUTE)
    assert (tumbling.low, tumbling.high) == (0, MINUTE)
    assert (hopping.low, hopping.high) == (MINUTE, 2 * MINUTE + 2 * MINUTE // 3)


def test_rows_that_a_result_looks_at_are_read_and_waited_for(tmp_path: Path) -> None:
    """Each row with those 60 s before it and a second after it: the last one has to be below the watermark."""
    made = flow(tmp_path, sql=OVER)
    found = asked(made, 2 * MINUTE, 3 * MINUTE)
    assert (found.low, found.high, found.windows) == (MINUTE, 3 * MINUTE + SECOND, None)
    assert found.final
    ends = (10 * MINUTE - 2 * SECOND, 10 * MINUTE - 2 * SECOND + 1)
    assert [asked(made, 2 * MINUTE, end).final for end in ends] == [True, False]


@pytest.mark.parametrize(
    ("begin", "end", "nearest"),
    [(1, MINUTE, "0 min --to 1 min"), (0, MINUTE + 1, "0 min --to 2 min"), (-1, 1, "-1 min --to 1 min")],
)
def test_bounds_must_be_starts_of_windows_and_the_nearest_are_told(
    tmp_path: Path, begin: int, end: int, nearest: str
) -> None:
    with pytest.raises(Refused, match=f"nearest interval around them: --from {nearest}"):
        asked(flow(tmp_path), begin, end)


@pytest.mark.parametrize(("begin", "end"), [(MINUTE, MINUTE), (MINUTE, 0)])
def test_an_interval_that_holds_nothing_is_refused(tmp_path: Path, begin: int, end: int) -> None:
    with pytest.raises(Refused, match="expected --from before --to"):
        asked(flow(tmp_path), begin, end)


def test_windows_that_live_runs_may_still_write_are_refused_with_what_they_wait_for(tmp_path: Path) -> None:
    made = flow(tmp_path, sql=HOPPING)
    edge = 10 * MINUTE - MINUTE + MINUTE // 3
    assert asked(made, 0, edge).final
    for watermark, told in (
        (10 * MINUTE - 1, "the last --to that is final: 9 min"),
        (None, "found no watermark yet[.]"),
    ):
        with pytest.raises(Refused, match=f"expected the watermark at 10 min, .*{told}"):
            asked(made, 0, edge, watermark)


def test_rows_of_a_stateless_rule_may_still_come_and_then_no_epoch_may_come_between(tmp_path: Path) -> None:
    made = flow(tmp_path, sql=STATELESS)
    assert [asked(made, 0, end).final for end in (10 * MINUTE, 10 * MINUTE + 1)] == [True, False]
    assert not asked(made, 7, 8, watermark=None).final
    made.stream["lateness"] = None
    assert not asked(made, 7, 8).final, "no row of the stream is ever late, whatever the watermark"


ONLY_WHOLE: list[tuple[dict[str, Any], str]] = [
    ({"process": "totals:Totals"}, "its class"),
    ({"sql": SESSIONS}, "sessions"),
    ({"sql": PLACES, "settings": {"unbounded": True}}, "windows of rows"),
    ({"sql": FULL}, "FULL JOIN"),
    ({"sql": TWO_WINDOWS.replace("window.start", "window.end")}, "expected window.start in"),
    ({"sql": "SELECT k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k"}, "expected window.start"),
    ({"sql": "SELECT k, n FROM events"}, "expected the unchanged event time"),
]


@pytest.mark.parametrize(("how", "reason"), ONLY_WHOLE, ids=[reason for *_, reason in ONLY_WHOLE])
def test_what_no_interval_bounds_is_backfilled_as_a_whole(tmp_path: Path, how: dict[str, Any], reason: str) -> None:
    rule = flow(tmp_path, **how).rule()
    with pytest.raises(Refused, match=f"by interval: .*{reason}.*floodmark backfill counted --all"):
        requested_interval(rule, head(rule), 0, MINUTE, str)
    assert requested_whole(rule, head(rule)).whole
    assert scope_now(rule, head(rule)) is Scope.ALL


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"process": "clocks:Clocks"}, {}, "timers by the clock"),
    ({"process": "clocks:Stamped"}, {}, r"clocks.py:28: context.now"),
    ({"settings": {"sinks": [{"delta": "/lake/merged", "key": ["k"]}]}}, {}, "nothing but the order of epochs"),
    ({"sql": "SELECT at, current_timestamp() AS done FROM events"}, {}, "reads the clock"),
    ({"settings": {"qos": 0}}, {}, "qos 0"),
    ({"settings": {"sinks": [{"console": True, "qos": 1}]}}, {}, "no sink that is a table"),
    ({}, {"kept_output": True}, "rows from before a reset"),
    ({}, {"table_ids": {}}, "is new, and no epoch has written to it"),
]


@pytest.mark.parametrize(("how", "changed", "reason"), REFUSED, ids=[reason for *_, reason in REFUSED])
def test_what_cannot_be_backfilled_is_refused_with_the_reason_and_the_ways(
    tmp_path: Path, how: dict[str, Any], changed: dict[str, Any], reason: str
) -> None:
    made = flow(tmp_path, **how)
    rule = made.rule()
    now = replace(head(rule), **changed)
    with pytest.raises(Refused, match=f"cannot be backfilled: .*{reason}.*floodmark reset counted.*another name"):
        requested_interval(rule, now, 0, MINUTE, str)
    with pytest.raises(Refused, match=f"cannot be backfilled: .*{reason}.*floodmark reset counted.*another name"):
        requested_whole(rule, now)


AT = ["k", "at"]
EDITED: list[tuple[str, str, list[str], bool]] = [
    ("SELECT at, k FROM events", "SELECT upper(k) AS k, at FROM events WHERE k > ''", [], True),
    ("SELECT at, k FROM events", "SELECT at, k FROM events", AT, True),
    ("SELECT k, n FROM events", "SELECT k, n, at FROM events", [], False),
    ("SELECT at + INTERVAL '2' HOUR AS at, k FROM events", "SELECT at, k FROM events", [], False),
    ("SELECT date_trunc('HOUR', at) AS at, k FROM events", "SELECT at, k FROM events", [], False),
    ("SELECT at AS a, at + INTERVAL '1' DAY AS b FROM events", "SELECT at + INTERVAL '1' DAY AS a, at AS b FROM events",
     [], False),
    ("SELECT at, k FROM events", "SELECT at, k FROM events", ["k"], False),
]  # fmt: skip


@pytest.mark.parametrize(("before", "now", "took", "fits"), EDITED)
def test_rows_that_an_older_text_wrote_must_lie_where_todays_says(
    tmp_path: Path, before: str, now: str, took: list[str], fits: bool
) -> None:
    """Else those of the interval would stay beside the new ones, or those of another would go."""
    made = flow(tmp_path, sql=before)
    made.settings["sinks"] = [{"delta": made.sink(), "columns": took, "schema": "add_columns"}] if took else None
    made.settings = {key: value for key, value in made.settings.items() if value}
    older, made.sql = made.rule(), now
    made.settings = {"sinks": [{"delta": made.sink(), "columns": AT, "schema": "add_columns"}]} if took else {}
    check_edit(older, made.rule())
    assert asked(made, 0, MINUTE, texts=(text_of(made.rule()),)).final
    for texts in [(text_of(older),), (text_of(older), text_of(made.rule()))]:
        refused = pytest.raises(Refused, match=r"epochs before an edit.*floodmark backfill counted --all")
        with nullcontext() if fits else refused:
            asked(made, 0, MINUTE, texts=texts)


OLDER = "SELECT e.at, c.city FROM events e LEFT JOIN towns c ON e.k = c.k"


@pytest.mark.parametrize(
    ("before", "fits"),
    [
        (OLDER, True),
        (f"WITH CITIES AS (SELECT * FROM towns) {OLDER.replace('towns', 'cities')}", True),
        (OLDER.replace("e.at,", "e.at + INTERVAL '1' HOUR AS at,"), False),
        (OLDER.replace("c.city", "(SELECT 1) AS city"), False),
    ],
)
def test_an_older_text_may_read_a_lookup_that_the_rule_has_no_more(tmp_path: Path, before: str, fits: bool) -> None:
    """Its SQL is read by its own lookup tables, so a correction and a backfill do not stop at a name of before."""
    made = flow(tmp_path, sql=OLDER.replace("towns", "cities"))
    made.settings["lookups"] = {"cities": {"delta": str(tmp_path / "cities")}}
    now = made.rule()
    known = head(now, 10 * MINUTE, texts=(text_of(now).model_copy(update={"sql": before}), text_of(now)))
    assert scope_now(now, known) is (Scope.INTERVAL if fits else Scope.ALL)


def test_rows_by_key_that_an_older_text_wrote_may_have_other_keys(tmp_path: Path) -> None:
    made = flow(tmp_path, sql="SELECT k, at, n FROM events", stream={"lateness": None})
    made.settings["sinks"] = [{"delta": made.sink(), "key": ["k"], "newest": "at"}]
    older, made.sql = text_of(made.rule()), "SELECT upper(k) AS k, at, n FROM events WHERE n <> 7"
    assert asked(made, 0, MINUTE, texts=(text_of(made.rule()),)).end == MINUTE
    with pytest.raises(Refused, match=r"other SQL.*floodmark backfill counted --all"):
        asked(made, 0, MINUTE, texts=(older, text_of(made.rule())))


def test_running_totals_and_sinks_whose_key_has_no_time_are_refused(tmp_path: Path) -> None:
    totals = flow(tmp_path, sql=RUNNING, settings={"unbounded": True})
    totals.settings["sinks"] = [{"delta": totals.sink(), "key": ["k"]}]
    merged = flow(tmp_path, name="merged")
    merged.settings["sinks"] = [{"delta": merged.sink(), "key": ["k"]}]
    for made, reason in ((totals, "which rows were late is not known"), (merged, "a key without its results' time")):
        with pytest.raises(Refused, match=reason):
            asked(made, 0, MINUTE)
    totals.stream["lateness"] = None
    found = asked(totals, 7, MINUTE)
    assert (found.begin, found.end, found.final) == (7, MINUTE, False)
    merged.settings["sinks"] = [{"delta": merged.sink(), "key": ["START", "k"]}]
    assert asked(merged, 0, MINUTE).end == MINUTE


SPAN = Restated(begin=0, end=MINUTE, high=MINUTE, upto=3)
STANDS = [
    ({}, True, True),
    ({"epoch": 4}, True, True),
    ({"epoch": 4}, False, False),
    ({"generation": 2}, True, False),
    ({"token": "other"}, True, False),
    ({"columns": {"events": [("at", "timestamp"), ("gained", "double")]}}, True, False),
    ({"forgets": 1}, True, False),
    ({"backfills": {1: SPAN}}, True, False),
    ({"backfills": {1: SPAN.model_copy(update={"begin": MINUTE, "end": 2 * MINUTE})}}, True, True),
    ({"backfills": {1: SPAN.model_copy(update={"begin": -5, "end": 0})}}, False, True),
    ({"backfills": {1: SPAN.model_copy(update={"begin": -EVER, "end": EVER, "whole": True})}}, True, False),
    ({"backfills": {1: SPAN.model_copy(update={"begin": -5, "end": 1})}}, False, False),
    ({"backfills": {1: SPAN.model_copy(update={"begin": MINUTE - 1, "end": 2 * MINUTE})}}, False, False),
]


@pytest.mark.parametrize(("since", "final", "expected"), STANDS)
def test_what_was_computed_stands_unless_the_interval_may_have_changed(
    tmp_path: Path, since: dict[str, Any], final: bool, expected: bool
) -> None:
    rule = flow(tmp_path).rule()
    before = head(rule)
    found = replace(requested_interval(rule, before, 0, MINUTE, str), final=final)
    assert is_still_valid(found, before, replace(before, **since)) is expected


def test_rows_that_came_before_an_interval_was_final_are_not_left_out(tmp_path: Path) -> None:
    """Computed when it was not final, and put into the sinks once it is: an epoch between may have had rows of it."""
    rule = flow(tmp_path, sql=STATELESS).rule()
    basis, now = head(rule, 0), head(rule, 10 * MINUTE, epoch=4)
    [before, since] = [requested_interval(rule, one, 0, MINUTE, str) for one in (basis, now)]
    assert (before.final, since.final) == (False, True)
    assert not is_still_valid(before, basis, now)


def test_a_backfill_does_not_put_an_older_text_in_the_place_of_todays(tmp_path: Path) -> None:
    """It waits for a run that holds the rule, and that may commit epochs by a text that was edited meanwhile."""
    [old, mended, newest] = [flow(tmp_path, sql=f"SELECT at, n + {i} AS n FROM events").rule() for i in range(3)]
    check_text(old, head(old), head(old))
    check_text(mended, head(old), head(old))
    check_text(mended, head(old), head(mended, epoch=4))
    for rule, basis, now in ((old, old, mended), (mended, old, newest)):
        with pytest.raises(RunFailed, match=r"epoch 4 was written by the new version.*[.] Start the backfill again"):
            check_text(rule, head(basis), head(now, epoch=4))


def test_nor_does_it_put_results_of_a_variable_s_older_value_there(tmp_path: Path) -> None:
    """The values of variables are in a rule's text, and not in its hash."""
    ran = flow(tmp_path, sql="SELECT at, n * ${RATE} AS n FROM events")
    [old, dearer, dearest] = [load_rule(ran.write_rule(), {"RATE": rate}) for rate in ("1.08", "1.10", "1.12")]
    assert old.hash == dearer.hash
    check_text(old, head(old), head(old, epoch=4))
    check_text(dearer, head(old), head(old, epoch=4))
    check_text(dearer, head(old), head(dearer, epoch=4))
    for rule, basis, now in ((old, old, dearer), (dearer, old, dearest)):
        with pytest.raises(RunFailed, match=r"its file, or a variable in it, was edited .* epoch 4"):
            check_text(rule, head(basis), head(now, epoch=4))


def test_values_that_change_no_result_are_no_other_text(tmp_path: Path) -> None:
    """Another spelling of an address, an installation's limit, memory."""
    stream, spark = {"delta": "${LAKE}/in"}, {"driver_memory": "${MEMORY}"}
    ran = flow(tmp_path, sql=STATELESS, stream=stream, settings={"sinks": [{"delta": "${LAKE}/out"}], "spark": spark})
    path = ran.write_rule()
    [old, now] = [
        load_rule(path, {"LAKE": lake, "MEMORY": memory, "FLOODMARK_EPOCH_MAX_FILES": most})
        for lake, memory, most in (("lake", "1g", "1"), ("/lake", "2g", "2"))
    ]
    assert old != now
    check_text(old, head(old), head(now, epoch=4))


def test_texts_with_other_values_of_a_variable_are_two_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They share the hash of the file, and may read other columns of the dead rows."""
    ran = flow(tmp_path, sql="SELECT at, k FROM events WHERE ${COLUMN} IS NOT NULL", sinks=1)
    monkeypatch.setenv("COLUMN", "k")
    ledger = begun(ran)
    for epoch, column in enumerate(("k", "k", "v"), 1):
        monkeypatch.setenv("COLUMN", column)
        ran.arrive([event(epoch)])
        folded(ran, ledger, epoch, epoch, None)
    found = texts_of(ran.place, ledger.begun)
    assert [(one.first, one.rule.sql.split()[-4]) for one in found] == [(1, "k"), (3, "v")]


def test_installations_that_run_a_rule_in_turn_have_one_text_for_each_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill analyses each text, and there may be as many turns as epochs."""
    ran = flow(tmp_path, sql="SELECT at, k FROM events WHERE ${COLUMN} IS NOT NULL", sinks=1)
    monkeypatch.setenv("COLUMN", "k")
    ledger = begun(ran)
    turns = [("k", "1"), ("k", "2"), ("k", "1"), ("v", "2"), ("v", "1"), ("k", "1"), ("k", "2")]
    for epoch, (column, most) in enumerate(turns, 1):
        monkeypatch.setenv("COLUMN", column)
        monkeypatch.setenv("FLOODMARK_EPOCH_MAX_FILES", most)
        ran.arrive([event(epoch)])
        folded(ran, ledger, epoch, epoch, None)
    first, other, again = texts_of(ran.place, ledger.begun)
    assert [one.first for one in (first, other, again)] == [1, 4, 6]
    assert again.rule is first.rule, "it is analysed once"


def test_epochs_of_texts_that_follow_each_other_are_one_condition() -> None:
    assert within([(1, 1)]) == "_epoch BETWEEN 1 AND 1"
    assert within([(1, 2), (3, 3), (4, 9), (12, 15), (16, 20)]) == "_epoch BETWEEN 1 AND 9 OR _epoch BETWEEN 12 AND 20"


def test_a_home_that_is_gone_is_not_made_anew_to_be_locked(tmp_path: Path) -> None:
    """A backfill that waited for the rule's lock, while the rule was renamed or dropped."""
    there: Any = None  # no JVM is asked
    gone = tmp_path / "renamed" / "lock"
    with pytest.raises(Refused, match="renamed or dropped"), lock.waited_for(there, gone, "me", 60, print):
        raise AssertionError
    assert not gone.parent.exists()


def test_backfills_that_were_known_already_do_not_count(tmp_path: Path) -> None:
    rule = flow(tmp_path).rule()
    before = head(rule, backfills={1: SPAN})
    assert is_still_valid(requested_interval(rule, before, 0, MINUTE, str), before, before)


def test_what_was_left_open_is_what_is_asked_for_if_it_joined_the_same_versions(tmp_path: Path) -> None:
    """Otherwise a backfill after a lookup table was corrected would be answered with the results of before."""
    rule, now = flow(tmp_path).rule(), {"cities": Pinned(table="id", version=1)}
    wanted = asked(flow(tmp_path), 0, MINUTE)
    found = Backfill(number=1, begin=0, end=MINUTE, high=MINUTE, upto=0, entry="", column="start", shift=0, counts={},
                     restated={}, digests={}, results=Digest(), rule=rule.to_json(), rule_hash="",
                     lookups=now)  # fmt: skip
    then = found.model_copy(update={"then": (LookedUp(first=1, upto=1, lookups={}),), "lookups": {}})
    rewritten = {"events": Rewritten(since="", upto="", commits=(), left=Digest(), came=Digest())}
    assert is_requested(found, rule, wanted, now)
    assert not is_requested(found, rule, wanted, {"cities": Pinned(table="id", version=2)})
    assert not is_requested(found, rule, wanted, {"cities": Pinned(table="another", version=1)})
    assert not is_requested(found.model_copy(update={"end": MINUTE - 1}), rule, wanted, now)
    assert not is_requested(found.model_copy(update={"rewrites": rewritten}), rule, wanted, now)
    assert not is_requested(then, rule, wanted, now)
    assert is_requested(then, rule, replace(wanted, then=True), now)


def test_a_late_row_is_told_by_the_newest_backfill_that_has_read_it() -> None:
    hopping = Restated(begin=0, end=60, high=100, upto=5)  # windows of 60 every 20
    told = [restated_in(at, 5, {1: hopping}) for at in (-1, 0, 39, 40, 59, 60, 99, 100)]
    assert told == [None, "1 in part", "1 in part", "1", "1", "1 in part", "1 in part", None]
    later = Restated(begin=40, end=60, high=60, upto=6)
    assert restated_in(10, 5, {1: hopping, 2: later}) == "1 in part"
    assert [restated_in(50, epoch, {1: hopping, 2: later}) for epoch in (5, 6, 7)] == ["2", "2", None]


def test_in_part_is_what_windows_say(tmp_path: Path) -> None:
    spec, span = WindowSpec(60, 20, 0), Restated(begin=40, end=120, high=160, upto=1)
    for at in range(0, 200):
        starts = [start for start in range(-100, 200, spec.slide_us) if start <= at < start + spec.size_us]
        within = [span.begin <= start < span.end for start in starts]
        expected = None if not any(within) else "1" if all(within) else "1 in part"
        assert restated_in(at, 1, {1: span}) == expected, at


def test_a_sinks_version_of_a_backfill_lies_between_those_of_two_epochs() -> None:
    versions = [backfill_version(2, 1), backfill_version(2, 2), backfill_version(3, 3)]
    assert versions == sorted(versions)
    assert before_write(versions[1], 3, 1, True) is Step.WRITE
    assert before_backfill(versions[0], 2, 2) is Step.WRITE
    assert before_backfill(versions[1], 2, 2) is Step.COMPARE
    with pytest.raises(LedgerBroken, match="backfill 1"):
        before_backfill(versions[1], 2, 1)
    with pytest.raises(Sealed):
        before_backfill((1 << 63) - 1, 2, 1)


def test_the_windows_that_start_in_an_interval_fall_to_one_of_several_that_meet(tmp_path: Path) -> None:
    rule, quarter = flow(tmp_path).rule(), MINUTE // 4
    found = [starting_in(rule, at, at + quarter) for at in range(-MINUTE, 2 * MINUTE, quarter)]
    assert [span for span in found if span[0] < span[1]] == [(at, at + MINUTE) for at in (-MINUTE, 0, MINUTE)]
    assert starting_in(rule, 1, 2 * MINUTE + 1) == (MINUTE, 3 * MINUTE)
    sliced = flow(tmp_path, sql=SLICED).rule()  # windows start every 15 seconds, 5 after the minute
    assert starting_in(sliced, 0, MINUTE // 3) == (MINUTE // 12, MINUTE // 3)
    assert starting_in(flow(tmp_path, sql=STATELESS).rule(), 1, 2) == (1, 2)
