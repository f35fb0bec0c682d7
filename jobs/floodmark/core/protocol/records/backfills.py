"""Records of backfills, and of corrections, which are backfills of what a rewrite of a source touched."""

from __future__ import annotations

import operator

from pydantic import Field

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.rows import FORMAT, Counts, Failed, LogSums, Pinned, Record, Written, sha

Gaps = tuple[tuple[int, int], ...]


class Restated(Record):
    """Results in [begin, end) of event time, computed again from the input of the epochs up to `upto`.

    They depend on rows of event times from `first` to before `high`. Microseconds. low: `first`, unless it is `begin`.
    gaps: intervals in between, in order, whose results were left as they are. whole: all results, of any time, or of
    none; the interval holds every time.
    """

    begin: int
    end: int
    low: int | None = Field(default=None, exclude_if=lambda at: at is None)
    high: int
    upto: int
    gaps: Gaps = Field(default=(), exclude_if=operator.not_)
    whole: bool = Field(default=False, exclude_if=operator.not_)

    @property
    def is_bounded(self) -> bool:
        """Whether an interval of time says which results it has."""
        return not self.whole and not self.is_empty

    @property
    def is_empty(self) -> bool:
        """Of a correction by key, or of one that touched no result."""
        return self.begin == self.end

    @property
    def first(self) -> int:
        return self.begin if self.low is None else self.low

    @property
    def parts(self) -> list[tuple[int, int]]:
        """The intervals of results, without the gaps."""
        edges = [self.begin, *(edge for gap in self.gaps for edge in gap), self.end]
        return list(zip(edges[::2], edges[1::2], strict=True))

    @property
    def reads(self) -> list[tuple[int, int]]:
        """The intervals of event time with the rows on which the parts depend."""
        before, after = self.begin - self.first, self.high - self.end
        return [(begin - before, end + after) for begin, end in self.parts]


class Rewrite(Record):
    """Commits in a row that remove or change rows of a source. `since`: the offset before them, `upto`: behind them.

    commits: what each is, for people.
    """

    since: str
    upto: str
    commits: tuple[str, ...]


class Deferred(Record):
    """Rewrites, by stream, that are to be corrected later. entry: the offsets, behind these rewrites; no other moves.

    log_sums: as in a commit.
    """

    format: int = FORMAT
    entry: str
    rewrites: dict[str, Rewrite]
    log_sums: LogSums = Field(default_factory=dict, exclude_if=operator.not_)


class Rewritten(Rewrite):
    """Rewrites of a stream's source that a correction follows, from the first to the last.

    left, came: the rows that the rule reads, less those that both left and came, in all columns that it reads or
    that its dead rows hold.
    """

    left: Digest
    came: Digest


class LookedUp(Record):
    """The version of each lookup table that epochs in a row, from `first` to `upto`, have read."""

    first: int
    upto: int
    lookups: dict[str, Pinned]


class Replaced(Record):
    """The rows of a state table that a correction replaces: `column` in [begin, end), microseconds."""

    column: str
    begin: int
    end: int


class Backfill(Restated):
    """Everything of a backfill that is not a function of its input, and the computed results.

    entry: the sources' offsets as of which it reads, after epoch `upto`. watermark: of that time. column: the result
    column whose value less `shift` is a result's event time. counts: of the rows from `first` to `high`. restated: by
    stream, those of them that had been late. digests: of each stream's folded rows, in their event time alone; results:
    of the results; taken: of those that a sink takes, by the ledger's name, if it does not take all of them unchanged,
    and of the rows that a state table gets. expected: as in a commit. engine, lookups: as in an intent.
    then: the versions that epochs have read, in whose place none of `lookups` is read; oldest first.

    A correction also has: rewrites, by stream. state: what is replaced there, by the ledger's name. maxima, log_sums:
    as in a commit, once it has taken effect; log_sums in formats up to 9 only, where the correction itself moves the
    offsets behind the rewrites. keys: of one by key, how many results were touched in each sink, and how
    many keys in each state table, by the ledger's name; it reads rows of any time, and its interval is empty. of_keys:
    of one by key, whether counts and digests are of the rows of touched keys alone; else they are of all rows.
    """

    format: int = FORMAT
    number: int
    entry: str
    watermark: int | None = Field(default=None, exclude_if=lambda at: at is None)
    column: str
    shift: int
    counts: dict[str, Counts]
    restated: dict[str, int]
    digests: dict[str, Digest]
    results: Digest
    taken: dict[str, Digest] = Field(default_factory=dict, exclude_if=operator.not_)
    rule: str
    rule_hash: str
    expected: dict[str, Failed] = Field(default_factory=dict, exclude_if=operator.not_)
    engine: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    lookups: dict[str, Pinned] = Field(default_factory=dict, exclude_if=operator.not_)
    then: tuple[LookedUp, ...] = Field(default=(), exclude_if=operator.not_)
    rewrites: dict[str, Rewritten] = Field(default_factory=dict, exclude_if=operator.not_)
    state: dict[str, Replaced] = Field(default_factory=dict, exclude_if=operator.not_)
    maxima: dict[str, int | None] = Field(default_factory=dict, exclude_if=operator.not_)
    log_sums: LogSums = Field(default_factory=dict, exclude_if=operator.not_)
    keys: dict[str, int] = Field(default_factory=dict, exclude_if=operator.not_)
    of_keys: bool = Field(default=False, exclude_if=operator.not_)

    @property
    def joined(self) -> str | None:
        """With lookup tables as they were `then` or are `now`; None: it looks nothing up."""
        return "then" if self.then else "now" if self.lookups else None

    @property
    def digest(self) -> str:
        """The backfill's own hash, which every commit carries."""
        return sha(self.model_dump_json())

    def of(self, sink: str) -> Digest:
        """The digest of the results that a sink takes; `sink`: the ledger's name."""
        return self.taken.get(sink, self.results)

    def versions_of(self, lookup: str) -> set[int]:
        """The versions of a lookup table that it reads."""
        return {one[lookup].version for one in [self.lookups, *(one.lookups for one in self.then)] if lookup in one}

    @property
    def most_keys(self) -> int | None:
        """Of a correction by key, how many results were touched in the sink with the most; None of an interval."""
        return max((self.keys[name] for name in self.keys if name.startswith("sink/")), default=None)

    @property
    def span(self) -> Restated:
        return Restated(**{name: getattr(self, name) for name in Restated.model_fields})


class Backfilled(Record):
    """The only commit point of a backfill.

    removed: rows that were removed, by table. table_ids: of state that an edit has added, and no epoch written yet.
    """

    format: int = FORMAT
    number: int
    intent: str
    tables: dict[str, Written]
    removed: dict[str, int]
    table_ids: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    seconds: dict[str, float] = Field(default_factory=dict)
