"""Decide from ledger and source logs whether a rule has pending work, without a JVM."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.connectors.delta.lookups import changed_since
from floodmark.connectors.places import check_same_sinks, head_now, is_moved
from floodmark.connectors.planning.rewrites import watermark_due
from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.changes import BESIDE
from floodmark.core.lifecycle.life import left_to, retired_at
from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.protocol.places import moves, places_of
from floodmark.core.protocol.records.rows import Intent
from floodmark.core.protocol.recovery import Gate, at_the_gate, check_unfailed
from floodmark.core.protocol.ticks import tick_target
from floodmark.core.text.addresses import identity
from floodmark.errors import NotThereYet, RunFailed
from floodmark.ledger.delta.damage import HELD
from floodmark.ledger.delta.tables import has_own_held
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from floodmark.connectors.ports.source import Source
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import LogSums, Pinned
    from floodmark.core.rules.rule import Rule


@dataclass(frozen=True)
class News:
    """Why a run is needed (None: it is not), the last committed epoch, and each source's present end.

    `backlog`: bytes of unread input; `seq`: the ledger's newest row, 0 without one. `retired`: for a retired rule, why
    it needs no runs. `notices`: what people should know of the sources, and of work that others do.
    """

    why: str | None
    epoch: int
    seen: dict[str, str]
    backlog: int
    seq: int = 0
    retired: str | None = None
    notices: tuple[str, ...] = ()


def look(rule: Rule, root: Path, close_until: datetime | None = None) -> News:
    """Compare a rule's ledger with its sources. Raises what a run would raise before it reads.

    `close_until`: the time up to which input is to be treated as complete, if requested.
    """
    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    head = ledger.head if ledger else None
    retired = retired_at(head, rule.rule)
    if head is not None and retired is not None:
        return News(None, head.epoch, {}, 0, head.seq, retired)
    opened, lines = sources(rule, home), _lines(rule, head)
    seen = _ends(opened, lines, head)
    why = _why(rule, home, ledger) or _tick(rule, head, close_until)
    backlog = _backlog(rule, home, head) if why else 0
    notices = (
        tuple(one for name, line in lines.items() for one in opened[name].notices(line))
        + _left(home, ledger)
        + _corrected_by(home, head)
    )
    return News(why, head.epoch if head else 0, seen, backlog, head.seq if head else 0, None, notices)


def _lines(rule: Rule, head: Head | None) -> dict[str, str]:
    """The offset line of each stream that was read, and that the next epoch reads on from there."""
    if head is None or head.seal is not None or rule.rebuild:
        return {}
    return {name: line for name, line in head.lines.items() if name in rule.streams}


def _left(home: Home, ledger: LedgerReader | None) -> tuple[str, ...]:
    """Copies of logs in the sinks' folders that nobody works on. Another ledger's upkeep may be at work on its own."""
    head = ledger.head if ledger else None
    if ledger is None or head is None or holder_pid(home.lock) is not None:
        return ()
    return tuple(
        f"{root / HELD} holds a copy of the table's log, left by an upkeep that was killed. The next run or upkeep "
        "puts back what the log lacks, and removes the copy. If the folder stays, give Floodmark the right to remove it"
        for root in map(Path, places_of(head).values())
        if _has_copy(root, ledger.id)
    )


def _has_copy(root: Path, ledger: str) -> bool:
    """Whether a copy of the log is there. A place out of reach may be that of a sink which the rule's file no longer
    has, and a reset is to be completed without it."""
    try:
        return has_own_held(root, ledger)
    except (OSError, RunFailed):
        return False


def _corrected_by(home: Home, head: Head | None) -> tuple[str, ...]:
    """The run that computes the correction for which no other is started."""
    if head is None or not head.deferred or holder_pid(home.correcting) is None:
        return ()
    return (left_to(head, holder_text(home.correcting)),)


def _ends(opened: Mapping[str, Source], lines: Mapping[str, str], head: Head | None) -> dict[str, str]:
    """Where each source ends now. Of one that is not there and that was read, `check_identity` says why that is."""
    found = {}
    for name, source in opened.items():
        try:
            found[name] = source.end()
        except NotThereYet:
            if head is not None and name in lines:
                source.check_identity(lines[name], head.log_sums.get(name))
            raise
    return found


def look_after(rule: Rule, root: Path, before: Sequence[Rule]) -> News:
    """The same for a rule that reads what others are about to write: its work is assumed to be pending.

    Streams that they write are not in `seen`, because their ends are known only once these rules have finished.
    """
    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    head = ledger.head if ledger else None
    epoch, seq = (head.epoch, head.seq) if head else (0, 0)
    retired = retired_at(head, rule.rule)
    if retired is not None:
        return News(None, epoch, {}, 0, seq, retired)
    written = {identity(sink.address) for one in before for sink in one.sinks if sink.address}
    waits = {name for name, stream in rule.streams.items() if identity(stream.address) in written}
    others = {name: found for name, found in sources(rule, home).items() if name not in waits}
    seen = {name: source.end() for name, source in others.items()}
    return News(f"it reads from {', '.join(one.rule for one in before)}, which may write new rows", epoch, seen, 0, seq)


def _backlog(rule: Rule, home: Home, head: Head | None) -> int:
    """Bytes to read; for a source that is not read yet, or a generation that has not started, all of its data."""
    lines = {} if head is None or head.seal is not None else head.lines
    sums = head.log_sums if head else {}
    return sum(
        source.waiting(_known(source, lines.get(name), sums.get(name))) for name, source in sources(rule, home).items()
    )


def _known(source: Source, line: str | None, log_sum: str | None) -> str | None:
    """The line of an offset, if it refers to the source that is at the address now."""
    return None if line is None or source.is_another(line, log_sum) else line


def still_due(rule: Rule, root: Path, seen: dict[str, str]) -> str | None:
    """Why a failed run is still needed; None: another run has done the work that LOOK found. Raises as LOOK does.

    Only data up to the offsets `seen` counts; for a source without one, all data.
    """
    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    head = ledger.head if ledger else None
    if retired_at(head, rule.rule) is not None:
        return None
    return _why(rule, home, ledger, seen) or _tick(rule, head, None)


def _why(rule: Rule, home: Home, ledger: LedgerReader | None, seen: dict[str, str] | None = None) -> str | None:
    head = ledger.head if ledger else None
    if ledger is None or head is None:
        return "the rule has not run yet"
    if head.seal is not None:
        return f"a {head.seal.why} has not finished"
    check_unfailed(head)
    if head.forgetting is not None and holder_pid(home.lock) is None:
        _check_forget_ended(home, head)
    if head.backfill is not None:
        return f"backfill {head.backfill.number} is open"
    if head.abandoning:
        return f"epoch {head.epoch + 1} is being abandoned"
    if head.open is not None:
        return f"epoch {head.epoch + 1} is open"
    if rule.rebuild:
        return rebuild_due(rule, home, ledger, seen)
    if moves(head, check_same_sinks(head, rule, ledger.id)):
        return "a sink was moved: the ledger has to record its new place"
    fresh = [name for name, behind in _behind(rule, home, head, seen).items() if behind]
    if fresh:
        return f"new data in {', '.join(fresh)}"
    idle = [name for name, one in sources(rule, home).items() if one.is_to_follow(head.lines[name], _now_us())]
    if idle:
        return f"old commits without new rows in {', '.join(idle)}: the offset has to pass them"
    if head.deferred and holder_pid(home.correcting) is None:
        return f"rewrites of {', '.join(head.deferred)} are to be corrected"
    if watermark_due(rule, head) is not None:
        return "a correction has brought newer rows, so windows may be final"
    return None


def _check_forget_ended(home: Home, head: Head) -> None:
    from floodmark.ledger.forgetting import check_forget_ended  # an idle run needs none of it

    check_forget_ended(home, head)


def _tick(rule: Rule, head: Head | None, close_until: datetime | None) -> str | None:
    """Why a tick is due; None: it is not."""
    if rule.rebuild:
        return None if close_until is None else f"to close windows up to {close_until}"
    if head is None or (close_until is None and rule.close_idle_after_us is None and not head.heard):
        return None
    asked = None if close_until is None else micros_of(close_until, rule, zoned(rule, head))
    until = tick_target(rule, head, _now_us(), asked)
    if until is not None and until == asked:
        return f"to close windows up to {close_until}"
    return None if until is None else "the input has been idle for so long that the watermark advances"


def _now_us() -> int:
    return time.time_ns() // 1000


ROWS = 64  # newest rows of a ledger, which nearly always include the newest epoch's intent


def rebuild_due(rule: Rule, home: Home, ledger: LedgerReader, seen: dict[str, str] | None = None) -> str | None:
    """Why a rule that each run rebuilds is to be rebuilt now; None if its sinks would hold the same.

    `seen`: offsets beyond which new data does not count.
    """
    head = ledger.head
    if head is None or head.epoch == 0 or not head.rule.rebuild:
        return "the sinks have yet to be filled"
    if is_moved(head, rule):
        there = not is_moved(head_now(head, rule, ledger.id), rule)
        return "a sink was moved: the ledger has to record its new place" if there else "a sink is another table"
    if head.lost:
        return "the last run was abandoned" if head.epoch in head.abandoned else "the last run was lost"
    if _answers(head.rule) != _answers(rule):
        return "the rule was changed"
    for name, source in sources(rule, home).items():
        line = head.lines[name]
        if source.is_another(line, head.log_sums.get(name)) or source.news(line, (seen or {}).get(name)):
            return f"new data in {name}"
    other = changed_since(rule, *_looked_up(ledger)) if rule.lookups else None
    return None if other is None else f"lookup table {other} was changed"


def _answers(rule: Rule) -> tuple[dict[str, object], bool]:
    """The part of a rule that affects its results."""
    return rule.model_dump(exclude=BESIDE), rule.ansi


def _looked_up(ledger: LedgerReader) -> tuple[dict[str, Pinned], LogSums]:
    """The versions of lookup tables that the newest epoch read, and its log sums; none if that was many rows ago."""
    intents = [row for row in ledger.newest(ROWS) if row.kind == "intent"]
    found = Intent.model_validate_json(intents[-1].body) if intents else None
    return (found.lookups, found.log_sums) if found else ({}, {})


def _behind(rule: Rule, home: Home, head: Head, seen: dict[str, str] | None = None) -> dict[str, bool]:
    found = {}
    for name, source in sources(rule, home).items():
        line = head.lines.get(name)
        if line is None or (rule.rebuild and source.is_another(line, head.log_sums.get(name))):
            found[name] = True
            continue
        source.check_identity(line, head.log_sums.get(name))
        found[name] = source.news(line, (seen or {}).get(name))
        if found[name] and not rule.rebuild:
            source.check_appended(line)
    return found


def check_reached(rule: Rule, root: Path, seen: dict[str, str]) -> int:
    """The last committed epoch. Raises RunFailed unless the ledger has reached the offsets `seen`.

    What is open belongs to the run that holds the lock: another one may have begun since.
    """
    home = Home(root, rule.rule)
    held = holder_pid(home.lock) is not None
    ledger = LedgerReader.load(home.ledger)
    head = ledger.head if ledger else None
    if head is None or (at_the_gate(head) is not Gate.PLAN and not held and holder_pid(home.lock) is None):
        raise RunFailed(f"rule {rule.rule}: the run ended, but its ledger says that {_why(rule, home, ledger)}")
    short = [name for name, behind in _behind(rule, home, head, seen).items() if behind]
    if short:
        raise RunFailed(
            f"rule {rule.rule}: the run ended, but the ledger has not reached the end of {', '.join(short)}"
        )
    return head.epoch
