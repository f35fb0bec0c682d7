"""What rules would do one after the other, if each followed what the one before it would change. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.life import retired_at
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import Gate, at_the_gate
from floodmark.core.rules.rule import Rule
from floodmark.core.text.addresses import identity
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.spark.read.frames import Foreseen
from floodmark.spark.rule.backfill.rehearsing import Rehearsed, foreseen
from floodmark.spark.rule.run import RuleRun


class Cascade:
    """The tables as they would be after the rules so far, by `identity`."""

    def __init__(self, root: SparkSession, home: Path):
        self._root, self._home = root, home
        self._tables: dict[str, Foreseen] = {}
        self._held: list[Rehearsed] = []

    def take(self, found: Rehearsed) -> None:
        """Count what a rule would change as done, for those after it."""
        self._held.append(found)
        self._tables |= {identity(address): one for address, one in foreseen(found.done).items()}

    def follow(self, rule: Rule, streams: Mapping[str, str]) -> Rehearsed:
        """The correction of a rule that has read all of its input. streams: the changed table of each, by name.

        Raises what the correction itself would raise.
        """
        read = {name: self._tables[identity(address)] for name, address in streams.items()}
        found = RuleRun(self._root, rule, self._home, "look", lambda _: None).rehearse_correction(read)
        assert found is not None
        self.take(found)
        return found

    def release(self) -> None:
        """Free the rows that are kept."""
        for found in self._held:
            found.done.release()


def idle(rule: Rule, home: Path) -> str | None:
    """Why a rule has no results that could change; None for one that has run.

    Raises Refused for a rule that is being renamed.
    """
    head = _head(Home(home, rule.rule))
    if head is None:
        return "it has not run yet: its first run reads the table as it is then"
    return "it is retired: nothing runs it" if retired_at(head, rule.rule) else None


def behind(rule: Rule, home: Path) -> str | None:
    """Why a rule that has run has more to do than to follow; None if it has read all of its input."""
    place = Home(home, rule.rule)
    head = _head(place)
    assert head is not None
    return next(_behind(rule, place, head), None)


def _head(home: Home) -> Head | None:
    known = LedgerReader.load(home.ledger)
    return None if known is None else known.head


def _behind(rule: Rule, home: Home, head: Head) -> Iterator[str]:
    gate = at_the_gate(head)
    if gate is not Gate.PLAN:
        yield f"its next run has something else to do first: {gate.value}"
    for name in head.deferred:
        yield f"it has yet to correct its results after rewrites of stream {name}: run it first"
    for name, source in sources(rule, home).items():
        if name not in head.lines:
            yield f"stream {name} is new, and the rule has not read it yet"
        elif source.news(head.lines[name]):
            yield f"it has not read all of stream {name} yet: run it first"
