"""Checks cases against their rule: names of streams, lookup tables and sinks, and the rule's capabilities."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from zoneinfo import ZoneInfo

from floodmark.core.cases.casefile import CaseFile, WrittenCase, WrittenCaseEpoch
from floodmark.core.rules.model import Rule
from floodmark.core.text.problems import Problems, unknown
from floodmark.core.text.yamltree import Path as Field


def check_against(file: CaseFile, rule: Rule) -> None:
    """Raise RuleInvalid with everything in the file that does not fit the rule."""
    written, problems = file.written, file.problems()
    for name in written.columns:
        _check_name("stream or lookup", name, [*rule.streams, *rule.lookups], problems, ("schema",))
    names: set[str] = set()
    for i, case in enumerate(written.cases):
        if case.case in names:
            problems.add(("cases", i, "case"), f"expected each name once, found {case.case!r} a second time")
        names.add(case.case)
        for j, epoch in enumerate(case.epochs):
            _check_epoch(epoch, rule, problems, ("cases", i, "epochs", j))
        _check_clock(case, problems, ("cases", i, "epochs"), rule)
    problems.raise_any()


def _check_epoch(epoch: WrittenCaseEpoch, rule: Rule, problems: Problems, at: Field) -> None:
    for name in epoch.input:
        _check_name("stream", name, rule.streams, problems, (*at, "input"))
    for name in epoch.lookups:
        _check_name("lookup", name, rule.lookups, problems, (*at, "lookups"))
        if name in rule.lookups and rule.lookups[name].history:
            text = "expected a lookup without `history`: a case cannot say when its versions were written"
            problems.add((*at, "lookups", name), text)
    expect, field = epoch.expect, (*at, "expect", "sinks")
    if expect.sinks is not None and expect.sink is not None:
        problems.add(field, "expected either `sink` (rows of every sink) or `sinks` (of each its own), found both")
    if expect.sinks is not None and len(expect.sinks) != len(rule.sinks):
        problems.add(field, f"expected {len(rule.sinks)} lists, one for each sink of the rule, in its order, found "
                            f"{len(expect.sinks)}")  # fmt: skip
    if epoch.close_until is not None and rule.process is None and not rule.query.windows:
        problems.add((*at, "close_until"), "the rule has no window and no JOIN, so there is nothing to close")
    if rule.late == "drop" and expect.late:
        problems.add((*at, "expect", "late"), "the rule has `late: drop`, so late rows are counted and not stored")


def _check_name(what: str, name: str, known: Collection[str], problems: Problems, at: Field) -> None:
    if name not in known:
        problems.add((*at, name), unknown(what, name, list(known)))


def _check_clock(case: WrittenCase, problems: Problems, at: Field, rule: Rule) -> None:
    """Check that the clock is set from the first epoch on and never goes back."""
    before: datetime | None = None
    for j, epoch in enumerate(case.epochs):
        if epoch.now is None:
            continue
        now, field = in_zone(epoch.now, rule), (*at, j, "now")
        if before is None and j > 0:
            problems.add(field, "expected `now` in the first epoch, too: until this epoch, the clock is this machine's")
        if before is not None and now < before:
            problems.add(field, f"expected a clock that does not go back from {before.isoformat()}, found {epoch.now}")
        before = now


def in_zone(moment: datetime, rule: Rule) -> datetime:
    """The moment; without a zone of its own, in the rule's zone."""
    return moment if moment.tzinfo else moment.replace(tzinfo=ZoneInfo(rule.timezone))
