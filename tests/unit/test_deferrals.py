"""Rewrites that are deferred: how the ledger's head and the auditor follow them, and when what was computed holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.corrected import CORRECT, KEYED
from support.flow import STATELESS, Flow
from support.pretend import MemoryLedger

from floodmark.audit.evidence import Row as AuditedRow
from floodmark.audit.ledger.balance import deferred, refilled
from floodmark.audit.ledger.chain import chained
from floodmark.audit.ledger.story import Story
from floodmark.core.lifecycle.corrections import still_valid
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Deferred, Restated, Rewrite, Rewritten
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Life, Replay, Row
from floodmark.core.rules.rule import Rule
from floodmark.errors import LedgerBroken

MINUTE = 60_000_000
NONE = Digest()
COUNTS: dict[str, Any] = {"events": {}}


def rule_of(place: Path, **how: Any) -> Rule:
    return Flow(place.resolve(), **{"stream": CORRECT, **how}).rule()


def line(version: int) -> str:
    return json.dumps({"reservoirId": "t", "reservoirVersion": version, "index": -1, "isStartingVersion": False})


def entry(version: int) -> str:
    return Entry(0, (line(version),)).text()


def rewrite(since: int, upto: int) -> Rewrite:
    return Rewrite(since=line(since), upto=line(upto), commits=tuple(f"version {one}" for one in range(since, upto)))


def moved(since: int, upto: int) -> Deferred:
    return Deferred(entry=entry(upto), rewrites={"events": rewrite(since, upto)})


def correction(rule: Rule, number: int, first: int, behind: int, reached: int | None = 9, **how: Any) -> Backfill:
    followed = Rewritten(**dict(rewrite(first, behind)), left=NONE, came=NONE)
    body = {"number": number, "upto": 0, "begin": 0, "end": 0, "high": 0, "column": "", "shift": 0, "counts": COUNTS}
    body |= {"restated": {}, "digests": {}, "results": NONE, "rule": rule.to_json(), "rule_hash": rule.hash}
    body |= {"entry": entry(behind), "rewrites": {"events": followed}, "maxima": {"events": reached}}
    return Backfill.model_validate(body | how)


def done(intent: Backfill) -> Backfilled:
    return Backfilled(number=intent.number, intent=intent.digest, tables={}, removed={})


@pytest.fixture
def rule(tmp_path: Path) -> Rule:
    return rule_of(tmp_path)


@pytest.fixture
def ledger(rule: Rule) -> MemoryLedger:
    made = MemoryLedger([], "run")
    made.begin(1, "token", Commit(entry=entry(3), watermark=None, maxima={"events": 5}, heard={}, rule=rule.to_json()))
    return made


def correct(ledger: MemoryLedger, intent: Backfill) -> Head:
    ledger.start_backfill(intent)
    return ledger.end_backfill(done(intent))


def test_the_offsets_are_behind_a_rewrite_before_its_correction(ledger: MemoryLedger, rule: Rule) -> None:
    head = ledger.defer(moved(3, 4))
    assert (head.lines, head.deferred) == ({"events": line(4)}, {"events": (rewrite(3, 4),)})
    assert (head.is_rewritten, head.lines_needed, head.corrections) == (True, {"events": line(3)}, 0)
    head = correct(ledger, correction(rule, 1, 3, 4))
    assert (head.lines, head.deferred, head.maxima, head.corrections) == ({"events": line(4)}, {}, {"events": 9}, 1)
    assert head.lines_needed == {"events": line(4)}


def test_the_streams_are_known_whose_rewrites_are_corrected(ledger: MemoryLedger, rule: Rule) -> None:
    """Rewrites of another stream may still be passed over."""
    assert ledger.defer(moved(3, 4)).followed == {"events"}
    assert ledger.live(Life(what="skipped", streams=("events",))).followed == set()
    ledger.defer(moved(4, 5))
    head = correct(ledger, correction(rule, 1, 4, 5))
    assert (head.corrected, head.followed) == (("events",), {"events"})
    ledger.defer(moved(5, 6))
    assert correct(ledger, correction(rule, 2, 5, 6)).corrected == ("events",)


def test_they_are_followed_in_their_order(ledger: MemoryLedger, rule: Rule) -> None:
    """Also where one right behind another was deferred while the correction of that one computed."""
    for since, upto in ((3, 4), (4, 6), (8, 9)):
        head = ledger.defer(moved(since, upto))
    assert head.deferred == {"events": (rewrite(3, 4), rewrite(4, 6), rewrite(8, 9))}
    head = correct(ledger, correction(rule, 1, 3, 4, reached=4))
    assert (head.deferred, head.lines) == ({"events": (rewrite(4, 6), rewrite(8, 9))}, {"events": line(9)})
    assert head.maxima == {"events": 5}, "the correction was computed before newer epochs"
    assert correct(ledger, correction(rule, 2, 4, 9)).deferred == {}


def test_one_correction_follows_several(ledger: MemoryLedger, rule: Rule) -> None:
    for since, upto in ((3, 4), (6, 7), (8, 9)):
        ledger.defer(moved(since, upto))
    assert correct(ledger, correction(rule, 1, 3, 7)).deferred == {"events": (rewrite(8, 9),)}


@pytest.mark.parametrize(("since", "upto"), [(6, 7), (3, 5), (4, 7), (3, 8)])
def test_a_correction_of_what_was_not_deferred_is_none(ledger: MemoryLedger, rule: Rule, since: int, upto: int) -> None:
    for one in (moved(3, 4), moved(6, 7)):
        ledger.defer(one)
    with pytest.raises(LedgerBroken, match="which were not deferred"):
        correct(ledger, correction(rule, 1, since, upto))


def test_an_older_correction_moves_the_offsets_itself(ledger: MemoryLedger, rule: Rule) -> None:
    head = correct(ledger, correction(rule, 1, 3, 4, format=9))
    assert head.followed == {"events"}
    assert (head.lines, head.deferred, head.maxima, head.corrections) == ({"events": line(4)}, {}, {"events": 9}, 1)


def test_what_is_skipped_is_counted_and_not_corrected(ledger: MemoryLedger) -> None:
    for one in (moved(3, 5), moved(6, 7)):
        ledger.defer(one)
    head = ledger.live(Life(what="skipped", streams=("events",)))
    assert (head.deferred, head.skipped, head.lines) == ({}, {"events": 3}, {"events": line(7)})
    with pytest.raises(LedgerBroken):
        ledger.live(Life(what="skipped", streams=("events",)))


def test_nothing_is_deferred_while_a_backfill_is_open(ledger: MemoryLedger, rule: Rule) -> None:
    ledger.defer(moved(3, 4))
    ledger.start_backfill(correction(rule, 1, 3, 4))
    with pytest.raises(LedgerBroken, match="while backfill 1 was open"):
        ledger.defer(moved(6, 7))
    with pytest.raises(LedgerBroken):
        ledger.live(Life(what="skipped", streams=("events",)))


def whats(ledger: MemoryLedger) -> list[str]:
    """What an auditor finds in the ledger's rows."""
    rows = [AuditedRow(**row.__dict__) for row in ledger.rows]
    story = Story(rows)
    found = [*chained(rows), *story.findings]
    for generation in story.generations:
        found += [*refilled(generation), *deferred(generation)]
    return [one.what for one in found]


def outstanding(ledger: MemoryLedger) -> int:
    return len(Story([AuditedRow(**row.__dict__) for row in ledger.rows]).generations[-1].outstanding)


def test_the_auditor_follows_them(ledger: MemoryLedger, rule: Rule) -> None:
    for since, upto in ((3, 4), (4, 6), (8, 9)):
        ledger.defer(moved(since, upto))
    assert (whats(ledger), outstanding(ledger)) == ([], 3)
    correct(ledger, correction(rule, 1, 3, 6, entry=entry(9)))
    assert (whats(ledger), outstanding(ledger)) == ([], 1)
    ledger.live(Life(what="skipped", streams=("events",)))
    assert (whats(ledger), outstanding(ledger)) == ([], 0)


def forged(ledger: MemoryLedger, kind: Any, body: Any) -> None:
    """A row that the ledger itself would not take."""
    last = ledger.rows[-1]
    row = Row(last.seq + 1, kind, 1, "token", 0, 1, "run", last.at, body.model_dump_json(), last.hash).sealed()
    ledger.rows.append(row)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (
            Deferred(entry=entry(5), rewrites={"events": rewrite(4, 6)}),
            "its offset is not where the rewrites have left",
        ),
        (Deferred(entry=entry(6), rewrites={}), "its offset is not where the rewrites have left"),
        (moved(2, 3), "does not follow version 4"),
        (moved(5, 5), "does not follow version 4"),
    ],
)
def test_the_auditor_finds_offsets_that_are_not_behind_the_rewrites(
    ledger: MemoryLedger, body: Deferred, what: str
) -> None:
    ledger.defer(moved(3, 4))
    forged(ledger, "deferred", body)
    assert any(what in found for found in whats(ledger)), whats(ledger)


@pytest.mark.parametrize("since", [2, 4])
def test_the_auditor_finds_a_correction_of_what_was_not_deferred(ledger: MemoryLedger, rule: Rule, since: int) -> None:
    ledger.defer(moved(3, 4))
    intent = correction(rule, 1, since, 4)
    forged(ledger, "backfill", intent)
    forged(ledger, "backfilled", done(intent))
    assert "stream events: a correction of rewrites that were not deferred" in whats(ledger)
    forged(ledger, "life", Life(what="skipped", streams=("other",)))
    assert "stream other: there was no deferred rewrite to skip" in whats(ledger)


def test_the_auditor_finds_a_correction_that_has_read_elsewhere(ledger: MemoryLedger, rule: Rule) -> None:
    ledger.defer(moved(3, 4))
    correct(ledger, correction(rule, 1, 3, 4, entry=entry(7)))
    assert whats(ledger) == ["backfill 1: its sources are not where epoch 0 ended"]


def test_the_auditor_finds_rewrites_that_are_deferred_while_a_backfill_is_open(
    ledger: MemoryLedger, rule: Rule
) -> None:
    ledger.defer(moved(3, 4))
    ledger.start_backfill(correction(rule, 1, 3, 4))
    forged(ledger, "deferred", moved(6, 7))
    assert "a row (deferred) while backfill 1 was open" in whats(ledger)


# By default the correction reads rows before 00:05, and the rule was at epoch 3.
SPAN = Restated(begin=0, end=4 * MINUTE, high=5 * MINUTE, upto=3)


def valid(
    rule: Rule, watermark: int | None = 10 * MINUTE, now: dict[str, Any] | None = None, **span: Any
) -> bool | None:
    """Whether a correction computed at one head holds at another, which differs by `now`."""
    begun = Commit(entry="v1\n{}", watermark=None, maxima={}, heard={}, rule=rule.to_json())
    basis = replace(Head(1, "", 1, "token", 3, Entry(0, ()), watermark, {}, rule, begun), deferred={"events": ()})
    intent = correction(rule, 1, 3, 4, **{**SPAN.model_dump(), **span})
    return still_valid(rule, intent, basis, replace(basis, **{"epoch": 4, **(now or {})}))


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [(None, None), (5 * MINUTE - 1, None), (5 * MINUTE, True), (5 * MINUTE + 1, True)],
)
def test_what_was_final_when_it_was_computed_holds(rule: Rule, watermark: int | None, expected: bool | None) -> None:
    assert valid(rule, watermark) is expected
    closed = {"watermark": 9 * MINUTE}
    assert valid(rule, watermark, closed) is (expected or False), "windows may have closed in between"


def test_without_newer_epochs_it_holds(rule: Rule) -> None:
    assert valid(rule, None, {"epoch": 3}) is True
    assert valid(rule, None, {"epoch": 3, "deferred": {"events": (rewrite(6, 7),)}}) is True


@pytest.mark.parametrize(
    "now",
    [{"generation": 2}, {"token": "other"}, {"forgets": 1}, {"columns": {"events": []}}, {"backfills": {1: SPAN}}],
)
def test_it_does_not_hold_for_other_tables_or_after_another_backfill(rule: Rule, now: dict[str, Any]) -> None:
    for epoch in (3, 4):
        assert valid(rule, 10 * MINUTE, {"epoch": epoch, **now}) is False


@pytest.mark.parametrize("now", [{"replays": {4: Replay(upto=3)}}, {"deferred": {"events": (rewrite(6, 7),)}}])
def test_rows_that_are_not_in_the_range_of_the_newer_epochs_are_not_guessed(rule: Rule, now: dict[str, Any]) -> None:
    assert valid(rule, 5 * MINUTE - 1, now) is False
    assert valid(rule, 5 * MINUTE, now) is True


def test_what_touches_no_result_holds(rule: Rule) -> None:
    assert valid(rule, None, end=0) is True


def test_single_rows_and_keys_hold_where_no_newer_row_touches_them(tmp_path: Path) -> None:
    assert valid(rule_of(tmp_path, sql=STATELESS), 4 * MINUTE, {"watermark": 5 * MINUTE}) is None
    totals = Flow(tmp_path.resolve(), sql=KEYED["totals"].sql, stream={**CORRECT, "lateness": None})
    totals.settings |= {"unbounded": True, "sinks": [{"delta": totals.sink(), "key": ["k"]}]}
    for watermark in (None, 10 * MINUTE):
        assert valid(totals.rule(), watermark, end=0) is None
    assert valid(totals.rule(), None, {"epoch": 3}, end=0) is True
