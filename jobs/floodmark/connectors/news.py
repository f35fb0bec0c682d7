"""Is there anything to do for a rule? Answered from ledger and source logs, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.connectors.registry import sources
from floodmark.core.changes import check_edit
from floodmark.errors import RunFailed
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.records import Head
    from floodmark.core.rules import Rule


@dataclass(frozen=True)
class News:
    """Why a run is needed (None: it is not), the last committed epoch, and each source's newest version as seen now.

    `backlog`: bytes of input that wait.
    """

    why: str | None
    epoch: int
    seen: dict[str, int]
    backlog: int


def look(rule: Rule, root: Path) -> News:
    """Compare a rule's ledger with its sources. Raises what a run would raise for a missing table or a bad edit."""
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    head = ledger.head if ledger else None
    seen = {name: source.newest() for name, source in sources(rule).items()}
    why = _why(rule, head)
    return News(why, head.epoch if head else 0, seen, _backlog(rule, head) if why else 0)


def _backlog(rule: Rule, head: Head | None) -> int:
    """Bytes to read. A generation that has yet to begin may read all of its sources."""
    lines = [None] * len(rule.streams) if head is None or head.seal is not None else head.entry.offsets
    return sum(source.waiting(line) for source, line in zip(sources(rule).values(), lines, strict=True))


def _why(rule: Rule, head: Head | None) -> str | None:
    if head is None:
        return "the rule has not run yet"
    if head.seal is not None:
        return f"a {head.seal.why} has not finished"
    if head.open is not None:
        return f"epoch {head.epoch + 1} is open"
    check_edit(head.rule, rule)
    fresh = [name for name, behind in _behind(rule, head).items() if behind]
    if fresh:
        return f"new data in {', '.join(fresh)}"
    return None


def _behind(rule: Rule, head: Head, seen: dict[str, int] | None = None) -> dict[str, bool]:
    found = {}
    for (name, source), line in zip(sources(rule).items(), head.entry.offsets, strict=True):
        source.check_identity(line)
        found[name] = source.news(line, (seen or {}).get(name))
    return found


def check_reached(rule: Rule, root: Path, seen: dict[str, int]) -> int:
    """The epoch now committed; RunFailed unless the ledger has folded everything up to the versions `seen`."""
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    head = ledger.head if ledger else None
    if head is None or head.open is not None or head.seal is not None:
        raise RunFailed(f"rule {rule.rule}: the run ended, yet its ledger says that {_why(rule, head)}")
    short = [name for name, behind in _behind(rule, head, seen).items() if behind]
    if short:
        raise RunFailed(
            f"rule {rule.rule}: the run ended, yet the ledger has not reached the end of {', '.join(short)}"
        )
    return head.epoch
