"""Build an epoch's intent: a retry takes facts that depend on time from the open intent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pyspark.sql import SparkSession

from floodmark.connectors.delta.lookups import log_sums, pinned_after
from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns, Intent, Pinned, Replay
from floodmark.core.protocol.ticks import watermark_of
from floodmark.core.protocol.watermark import advance, hear, holding, later, merge
from floodmark.core.rules.sinks.sinkcolumns import grows
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.spark.read.batch import Batch
from floodmark.spark.rule.generation import Plan, columns_of
from floodmark.spark.session.session import engine_of


class Intents:
    """Builds the intents of one query's epochs. `ticks`, `replay`: what the first records, if it is such an epoch."""

    def __init__(
        self,
        session: SparkSession,
        plan: Plan,
        home: Home,
        ledger: Ledger,
        ticks: tuple[str, ...],
        replay: Replay | None,
    ):
        self._session, self._plan, self._home, self._ledger = session, plan, home, ledger
        self._ticks, self._replay = ticks, replay

    @property
    def head(self) -> Head:
        return self._ledger.begun

    def of(self, entry: Entry, batch: Batch) -> Intent:
        """The intent of the epoch that is being read."""
        rule = self._plan.rule
        maxima = merge(self.head.maxima, batch.maxima)
        heard = self._heard(entry, batch)
        lateness = holding(rule, heard, entry.clock_ms * 1000)
        idle = heard.keys() - lateness.keys()
        lines = zip(sources(rule, self._home).items(), entry.offsets, strict=True)
        in_snapshot = any(source.in_snapshot(line) for (name, source), line in lines if name not in idle)
        ticks = self._ticks_of(entry)
        pinned = self._pinned()
        reached = advance(self.head.watermark, maxima, lateness, in_snapshot)
        return Intent(
            entry=entry.text(),
            watermark_before=self.head.watermark,
            watermark=later(reached, watermark_of(ticks)),
            ticks=ticks,
            replay=self.replay_of(entry),
            lookups=pinned,
            columns=self._columns(),
            skipped=self._skipped(entry),
            maxima=maxima,
            heard=heard,
            counts=batch.counts,
            digests=batch.digests,
            log_sums=self._log_sums(entry, pinned),
            rule=self.head.open.rule if self.head.open else rule.to_json(),  # an older Floodmark's has fewer fields
            rule_hash=self.head.open.rule_hash if self.head.open else rule.hash,
            zone=rule.timezone,
            ansi=rule.ansi,
            engine=self.engine,
        )

    @cached_property
    def engine(self) -> dict[str, str]:
        """The engine on which this attempt runs."""
        return engine_of(self._session)

    def _columns(self) -> Columns:
        """The columns of all streams, if they differ from those of the previous epoch."""
        now, before = columns_of(self._plan.fold.shape.streams), self.head.columns
        if not grows(self._plan.rule):
            opened = self.head.open
            known = (opened.columns if opened else {}) or before
            now = known_columns(now, known, self._plan.rule.query.star or opened is not None)
        return now if now != before else {}

    def _pinned(self) -> dict[str, Pinned]:
        """The versions of lookup tables that the epoch reads; a retry uses those of the first attempt."""
        return dict(self.head.open.lookups) if self.head.open is not None else pinned_after(self._plan.rule, self.head)

    def _skipped(self, entry: Entry) -> dict[str, tuple[str, ...]]:
        """By stream, the commits that the epoch passes over; a retry uses its intent's, as log entries may be gone."""
        if self.head.open is not None:
            return self.head.open.skipped
        lines = zip(sources(self._plan.rule, self._home).items(), self.head.entry.offsets, entry.offsets, strict=True)
        found = {name: source.passed_over(one, other) for (name, source), one, other in lines}
        return {name: commits for name, commits in found.items() if commits}

    def _log_sums(self, entry: Entry, pinned: Mapping[str, Pinned]) -> dict[str, str]:
        """The log sums of what the epoch has read; a retry uses those of its intent, because entries may be gone."""
        if self.head.open is not None:
            return self.head.open.log_sums
        lines = zip(sources(self._plan.rule, self._home).items(), entry.offsets, strict=True)
        found = {name: source.log_sum(line) for (name, source), line in lines}
        found |= log_sums(self._plan.rule, pinned)
        return {name: one for name, one in found.items() if one is not None}

    def _heard(self, entry: Entry, batch: Batch) -> dict[str, int]:
        """When each stream that may become idle last had input. A stream with unread input is not idle.

        Unread input depends on the time of the check, so a retry uses what its intent recorded.
        """
        if self.head.open is not None:
            return self.head.open.heard
        lines = zip(sources(self._plan.rule, self._home).items(), entry.offsets, strict=True)
        waiting = {name for (name, source), line in lines if name in self.head.heard and source.news(line)}
        speaking = waiting if self.replay_of(entry) else waiting | batch.speaking
        return hear(self.head.heard, speaking, entry.clock_ms * 1000)

    def _ticks_of(self, entry: Entry) -> tuple[str, ...]:
        """The epoch's ticks. A tick reads nothing: no other epoch ends at the offsets where it started."""
        if self.head.open is not None:
            return self.head.open.ticks
        ticking = entry.offsets == self.head.entry.offsets or self._plan.rule.rebuild  # which has one epoch for all
        return self._ticks if ticking else ()

    def replay_of(self, entry: Entry) -> Replay | None:
        """The dead rows that the epoch reads, if it is a replay. Like a tick, it ends where it started."""
        if self.head.open is not None:
            return self.head.open.replay
        return self._replay if entry.offsets == self.head.entry.offsets else None


def known_columns(now: Columns, before: Columns, closed: bool) -> Columns:
    """The columns that epochs have read, with today's types, and those that an edit of the rule reads for the first
    time. There are none if the columns are `closed`: a `*` means those of the generation's start, and a retry reads
    those of its intent."""
    types = {name: dict(columns) for name, columns in now.items()}
    found = {
        name: [(column, types.get(name, {}).get(column, kind)) for column, kind in columns]
        for name, columns in before.items()
    }
    if closed:
        return found
    return {name: [*columns, *_new(now.get(name, []), columns)] for name, columns in found.items()}


def _new(now: list[tuple[str, str]], known: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names = {column.lower() for column, _ in known}
    return [(column, kind) for column, kind in now if column.lower() not in names]
