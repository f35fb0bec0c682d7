"""Which versions of lookup tables the epochs of a generation have read, by the ledger's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import LookedUp
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Intent, LogSums, Pinned, Row


@dataclass(frozen=True)
class SameVersions:
    """Epochs in a row, `first` to `upto`, that read the same version of each lookup table.

    begin, end: the sources' offsets before and after them. low, high: the watermarks before and after them, in
    microseconds: results became final in these epochs from after `low` up to `high`. newest: no row that is folded or
    late in them has a later event time; None: no row has one. log_sums: of these versions, as far as their intents have
    them.
    """

    first: int
    upto: int
    begin: Entry
    end: Entry
    low: int | None
    high: int | None
    newest: int | None
    lookups: dict[str, Pinned]
    log_sums: LogSums = field(default_factory=dict)

    @property
    def recorded(self) -> LookedUp:
        return LookedUp(first=self.first, upto=self.upto, lookups=self.lookups)

    def read_as(self, other: SameVersions) -> bool:
        """Whether the other epochs read the same versions. A log sum that one lacks may be any."""
        both = self.log_sums.keys() & other.log_sums.keys()
        return self.lookups == other.lookups and all(self.log_sums[name] == other.log_sums[name] for name in both)

    def followed_by(self, one: SameVersions) -> SameVersions:
        """With the next epochs, which read the same. Older intents lack log sums."""
        sums = {**self.log_sums, **one.log_sums}
        return replace(self, upto=one.upto, end=one.end, high=one.high, newest=one.newest, log_sums=sums)


def versions_read(rows: Sequence[Row], head: Head) -> list[SameVersions]:
    """The committed epochs of the head's generation, up to its own, by the versions that they read; oldest first.

    rows: the whole ledger.
    """
    own = [row for row in rows if row.generation == head.generation and row.epoch <= head.epoch]
    intents = {row.epoch: row.body for row in own if row.kind == "intent"}
    commits = [row for row in own if row.kind == "commit"]
    found: list[SameVersions] = []
    for before, row in pairwise(commits):
        one = _of_epoch(before, row, Intent.model_validate_json(intents[row.epoch]))
        if found and found[-1].read_as(one):
            found[-1] = found[-1].followed_by(one)
        else:
            found.append(one)
    return found


def _of_epoch(before: Row, row: Row, intent: Intent) -> SameVersions:
    begin, end = (Entry.parse(Commit.model_validate_json(each.body).entry) for each in (before, row))
    newest = max((at for at in (intent.watermark, *intent.maxima.values()) if at is not None), default=None)
    low, high = intent.watermark_before, intent.watermark
    names = {pinned.sum_of(name) for name, pinned in intent.lookups.items()}
    sums = {name: intent.log_sums[name] for name in names if name in intent.log_sums}
    return SameVersions(row.epoch, row.epoch, begin, end, low, high, newest, intent.lookups, sums)
