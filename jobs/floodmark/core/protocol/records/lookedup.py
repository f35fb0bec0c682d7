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
    late in them has a later event time; None: no row has one. log_sums: those of an intent among them.
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
        if found and found[-1].lookups == one.lookups:
            found[-1] = replace(found[-1], upto=one.upto, end=one.end, high=one.high, newest=one.newest)
        else:
            found.append(one)
    return found


def _of_epoch(before: Row, row: Row, intent: Intent) -> SameVersions:
    begin, end = (Entry.parse(Commit.model_validate_json(each.body).entry) for each in (before, row))
    newest = max((at for at in (intent.watermark, *intent.maxima.values()) if at is not None), default=None)
    low, high = intent.watermark_before, intent.watermark
    return SameVersions(row.epoch, row.epoch, begin, end, low, high, newest, intent.lookups, intent.log_sums)
