"""Finds where rows of a rule's sources were removed or changed since it has read them, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Deferred
from floodmark.core.protocol.ticks import due_watermark
from floodmark.core.rules.checks.recomputing import check_rewrites
from floodmark.errors import HistoryGone, Refused

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from floodmark.core.protocol.records.backfills import Rewrite
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.model import OnRewrite
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home


def spans_rewrite(rule: Rule, home: Home, begin: Entry, end: Entry) -> bool:
    """Whether rows were removed from a source between two entries, and the rule corrects that."""
    lines = zip(rule.streams.values(), sources(rule, home).values(), begin.offsets, end.offsets, strict=True)
    corrected = ((source, one, other) for stream, source, one, other in lines if stream.on_rewrite == "correct")
    return any(source.rewrite(one, other) is not None for source, one, other in corrected)


def unread(rule: Rule, home: Home, head: Head) -> dict[str, Rewrite]:
    """By stream that does not skip rewrites, the first beyond what was read, whatever the rule does about it."""
    return _beyond(rule, home, head, "stop", "correct")


def rewrites(rule: Rule, home: Home, head: Head) -> dict[str, Rewrite]:
    """Those of them that the rule corrects. The logs of other streams are not read: each run asks.

    Raises HistoryGone if a commit beyond what was read is one that no correction can follow.
    """
    found = _beyond(rule, home, head, "correct")
    opened = sources(rule, home)
    for name in found:
        opened[name].check_appended(head.lines[name])
    return found


def check_followed(rule: Rule, home: Home, head: Head) -> None:
    """Raise Refused where a run would correct rewrites, and the rule's progress does not let it."""
    found = rewrites(rule, home, head)
    if head.deferred or found:
        from floodmark.core.lifecycle.corrections import check_correctable  # reads SQL, which an idle run need not

        check_correctable(rule, head, rewritten=found)


def deferred(rule: Rule, home: Home, head: Head, found: Mapping[str, Rewrite]) -> Deferred:
    """The ledger's record of these rewrites. All rows before them are folded."""
    lines, read = head.lines | {name: one.upto for name, one in found.items()}, sources(rule, home)
    entry = Entry(head.entry.clock_ms, tuple(lines[name] for name in rule.streams))
    sums = head.log_sums | {name: read[name].log_sum(lines[name]) for name in found}
    known = {name: one for name, one in sums.items() if one is not None}
    return Deferred(entry=entry.text(), rewrites=dict(found), log_sums=known)


def _beyond(rule: Rule, home: Home, head: Head, *answers: OnRewrite) -> dict[str, Rewrite]:
    lines = zip(sources(rule, home).items(), head.entry.offsets, strict=True)
    found = {name: source.rewrite(line) for (name, source), line in lines if rule.streams[name].on_rewrite in answers}
    return {name: one for name, one in found.items() if one is not None}


def watermark_due(rule: Rule, head: Head) -> int | None:
    """How far the watermark is to advance because a correction has brought newer rows; None: it is not.

    It waits for first snapshots, as it does in every epoch.
    """
    lines = zip(sources(rule, None).values(), head.entry.offsets, strict=True)
    if not head.corrections or any(source.in_snapshot(line) for source, line in lines):
        return None
    return due_watermark(rule, head)


def stopped(rule: Rule, home: Home, head: Head) -> list[str]:
    """The streams that were rewritten and say `stop`."""
    return [name for name in unread(rule, home, head) if rule.streams[name].on_rewrite == "stop"]


def answered(rule: Rule, home: Home, head: Head, answer: OnRewrite, streams: Collection[str] | None = None) -> Rule:
    """The rule as if its file gave this answer at these streams; None: at each that was rewritten and says `stop`.

    Raises Refused where the answer is none for such a rule, and HistoryGone where it is none for such a commit.
    """
    names = stopped(rule, home, head) if streams is None else streams
    found = _answering(rule, answer, names)
    for _, problem in check_rewrites(found):
        ways = f"start over with `floodmark reset {rule.rule}`"
        skippable = answer == "correct" and not any(name in head.corrected for name in names)
        skippable = skippable and _can_be_passed_over(rule, home, head, names)
        other = f", or pass the commits over with `floodmark correct {rule.rule} --skip`" if skippable else ""
        raise Refused(f"rule {rule.rule} cannot be corrected: {problem}. Instead, {ways}{other}")
    rewrites(found, home, head)
    if answer == "skip":
        _check_passed_over(found, home, head, names)
    return found


def _answering(rule: Rule, answer: OnRewrite, names: Collection[str]) -> Rule:
    answers = {name: rule.streams[name].model_copy(update={"on_rewrite": answer}) for name in names}
    return rule.model_copy(update={"streams": {**rule.streams, **answers}})


def _can_be_passed_over(rule: Rule, home: Home, head: Head, names: Collection[str]) -> bool:
    try:
        _check_passed_over(_answering(rule, "skip", names), home, head, names)
    except HistoryGone:
        return False
    return True


def _check_passed_over(rule: Rule, home: Home, head: Head, names: Collection[str]) -> None:
    """Raise HistoryGone where a run would stop although these streams say `skip`, as at a RESTORE that only adds."""
    passing = {name: source for name, source in sources(rule, home).items() if name in names}
    for name, source in passing.items():
        source.check_appended(head.lines[name])
