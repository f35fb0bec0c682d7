"""The status of a rule, as its ledger's rows give it (`following`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Restated, Rewrite
from floodmark.core.protocol.records.rows import (
    Columns,
    Commit,
    Forgetting,
    Intent,
    Life,
    LogSums,
    Pinned,
    Replay,
    Seal,
    Text,
)
from floodmark.core.rules.rule import Process, Rule, Sink


@dataclass(frozen=True)
class Head:
    """The status of a rule: the newest row that ended an epoch, the open intent if any, and a seal still in progress.

    `written`, `commits`: of each table the app transaction and the Delta version of the newest write that is named.
    `lost`: the epochs of this generation without an effect; `abandoned`: those of them that were taken back;
    `abandoning`: whether the open one is to be. `replays`: the epochs of this generation that read dead rows;
    `backfills`: what its backfills have restated, by their numbers; `backfill`: the one that is open. `columns`: of
    each stream, as the epochs read them. `attempt`: at what is open. `name`: the rule's, where it was renamed;
    `retired`: when and by whom, as long as it is; `dropping`: a drop that has not ended; `maintained`: when its tables
    were maintained last, UTC, ISO 8601. `announced_sinks`: that epochs of this generation may have been written to
    which were lost or discarded. `texts`: by which its committed epochs were written, each once. `places`: of the sinks
    that do not lie where their names say, by the ledger's name, where they do; `text_places`: the same when `rule` was
    written; `open_places`: when the text of what is open was. `failed`: the check that what is open failed, as long as
    nobody has decided on it. `corrections`: how many of the backfills corrected a rewritten source; `corrected`: the
    streams that these followed. `skipped`: by stream, how many of its commits that remove rows were passed over.
    `deferred`: by stream, the rewrites that lie before its offset and have yet to be corrected, in their order.
    `forgets`: how often rows of this generation were forgotten; `forgotten`: by table, the commit with which its log
    starts since the last time; `forgetting`: a forget that has not ended. `restated_by`: the class by which a backfill
    of everything has written the state since the newest committed epoch. `quiet_ms`: the clock of the newest epoch that
    folded rows or moved the watermark, if newer ones did neither. `looked_up`: the versions of lookup tables that the
    newest epoch read.
    """

    seq: int
    hash: str
    generation: int
    token: str
    epoch: int
    entry: Entry
    watermark: int | None
    maxima: dict[str, int | None]
    rule: Rule
    begun_with: Commit
    kept_output: bool = False
    written: dict[str, int] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    table_ids: dict[str, str] = field(default_factory=dict)
    lost: tuple[int, ...] = ()
    abandoned: tuple[int, ...] = ()
    abandoning: bool = False
    heard: dict[str, int] = field(default_factory=dict)
    log_sums: LogSums = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    replays: dict[int, Replay] = field(default_factory=dict)
    backfills: dict[int, Restated] = field(default_factory=dict)
    backfill: Backfill | None = None
    open: Intent | None = None
    attempt: int = 0
    seal: Seal | None = None
    announced_sinks: tuple[Sink, ...] = ()
    texts: tuple[Text, ...] = ()
    name: str | None = None
    retired: str | None = None
    dropping: Life | None = None
    maintained: str | None = None
    places: dict[str, str] = field(default_factory=dict)
    text_places: dict[str, str] = field(default_factory=dict)
    open_places: dict[str, str] = field(default_factory=dict)
    failed: str | None = None
    corrections: int = 0
    corrected: tuple[str, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict)
    deferred: dict[str, tuple[Rewrite, ...]] = field(default_factory=dict)
    forgets: int = 0
    forgotten: dict[str, int] = field(default_factory=dict)
    forgetting: Forgetting | None = None
    restated_by: Process | None = None
    quiet_ms: int | None = None
    looked_up: dict[str, Pinned] = field(default_factory=dict)

    @property
    def quiet_since_ms(self) -> int:
        """Since when, by the epochs' clocks, no row has been folded."""
        return self.entry.clock_ms if self.quiet_ms is None else self.quiet_ms

    @property
    def process(self) -> Process | None:
        """The class that has written the state."""
        return self.restated_by or self.rule.process

    @property
    def reads_from(self) -> Entry:
        """The start of the input that is or may be read: an open backfill rereads all that the epochs have read."""
        return self.entry if self.backfill is None else Entry.parse(self.begun_with.entry)

    @property
    def newest_effect(self) -> int:
        """The newest epoch that was neither lost nor abandoned. State that a backfill writes is as of it."""
        return next(epoch for epoch in range(self.epoch, -1, -1) if epoch not in self.lost)

    @property
    def is_rewritten(self) -> bool:
        """Whether rows may have left a source since epochs have read them."""
        return self.corrections > 0 or bool(self.deferred)

    @property
    def followed(self) -> set[str]:
        """The streams whose rewrites are corrected, or yet to be."""
        return {*self.corrected, *self.deferred}

    @property
    def pinned(self) -> dict[str, Pinned]:
        """The versions of lookup tables that what is open reads."""
        what = self.open or self.backfill
        return what.lookups if what else {}

    @property
    def lines(self) -> dict[str, str]:
        """The offset line of each stream, by name. The rule's file may have other streams by now, or another order."""
        return self.lines_of(self.entry)

    @property
    def lines_needed(self) -> dict[str, str]:
        """The offset lines from which on rows may be read again: to correct a rewrite, or for what is open."""
        lines = self.lines_of(self.reads_from)
        return lines if self.backfill else lines | {name: ones[0].since for name, ones in self.deferred.items()}

    def lines_of(self, entry: Entry) -> dict[str, str]:
        """The offset lines of another entry of this generation."""
        return dict(zip(self.rule.streams, entry.offsets, strict=False))
