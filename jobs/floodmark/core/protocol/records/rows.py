"""Defines the ledger's rows and the records in their bodies.

A ledger is a list of rows with sequence numbers 1, 2, 3, … chained by hash. Its kinds:

- `commit`: an epoch has taken effect. Epoch 0 starts a generation.
- `intent`: written before an epoch's first effect; a retry appends it again with the next attempt.
- `lost`: at qos 0, an epoch whose intent was found open; it advances like a commit, without effect.
- `abandoning`: the open epoch will be taken back, and can no longer end otherwise. `abandoned`: it was taken back; it
  has no effect, and the next epoch starts where it started.
- `seal`: a generation ends and names its successor; this row defines the rest of the change.
- `backfill`: the intent of a backfill; a retry appends it again with the next attempt. `backfilled`: it took effect.
  Both carry the number of the epoch that they follow; no epoch starts between them, and no offset moves. A correction
  is a backfill of what rewrites of a source touched.
- `deferred`: the offsets move behind rewrites of sources, between two epochs. Epochs go on, and the correction follows.
- `life`: the rule is retired, returned, renamed or dropped; its tables were maintained or have moved; an open epoch or
  backfill failed a check, or will be checked again. An open epoch or backfill stays open. `forgetting` announces that
  rows leave the rule's own tables, and `forgot` ends that; nothing else but a seal comes between them.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from floodmark.core.protocol.digests import Digest
from floodmark.core.rules.rule import Rule

# Format of the rows' bodies; a reader refuses newer ones. 2: digests. 3: rejected and replayed rows. 4: backfills. 5:
# rule lifecycle. 6: expectations, upkeep; new columns of streams, and what sinks take of a backfill's results. 7:
# addresses of sinks' tables that have moved. 8: abandoned epochs, failed checks, an attempt's engine. 9: corrections,
# commits that were passed over; rows that were forgotten; rows that a target gets after all. 10: rewrites that are
# corrected later. 11: backfills of everything. 12: backfills by key that read the rows of touched keys alone.
# 13: backfills that read lookup tables as each epoch read them.
FORMAT = 13
Kind = Literal[
    "commit", "intent", "lost", "abandoning", "abandoned", "seal", "backfill", "backfilled", "deferred", "life"
]
ENDS: tuple[Kind, ...] = ("commit", "lost", "abandoned")  # of an epoch


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failed(Record):
    """Rows that failed an expectation, and those of them that it dropped or made dead."""

    failed: int = 0
    taken: int = 0

    def __add__(self, other: Failed) -> Failed:
        return Failed(failed=self.failed + other.failed, taken=self.taken + other.taken)


class Counts(Record):
    """Rows of one stream in one epoch: read = filtered + dropped + dead + late + folded.

    expected: by expectation, of those that would have been folded. Without expectations the fields for them are left
    out, so the rows of older ledgers can be read and have the same hashes.
    """

    read: int = 0
    filtered: int = 0
    dropped: int = Field(default=0, exclude_if=operator.not_)
    dead: int = 0
    late: int = 0
    folded: int = 0
    expected: dict[str, Failed] = Field(default_factory=dict, exclude_if=operator.not_)

    @property
    def parts(self) -> dict[str, int]:
        """All counts by PARTS, including zeros."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = ("read", "filtered", "dropped", "dead", "late", "folded")
# When each stream with `idle_after` was last heard (`core.protocol.watermark`), in microseconds. Left out without such
# streams, so that the rows of older ledgers can be read and have the same hashes.
Heard = Annotated[dict[str, int], Field(default_factory=dict, exclude_if=operator.not_)]
Columns = dict[str, list[tuple[str, str]]]  # of each stream: name and type
# SHA-256 of the newest log entry read of each stream's table, by the stream's name, and of each lookup table, by
# `Pinned.sum_of`. It reveals a table that was restored from a copy and then written to. Left out if the entry is gone.
LogSums = dict[str, str]


class Pinned(Record):
    """The version of a lookup table in one epoch; `table`: its id."""

    table: str
    version: int

    def sum_of(self, name: str) -> str:
        """The name of its log sum. It has the version: an epoch that is lost leaves its sums, and no versions read."""
        return f"{name}@{self.version}"


class Replay(Record):
    """Dead rows that an epoch reads in place of input: those of epochs up to `upto`, of one stream or of all.

    where: SQL that selects the rows. corrected: SQL for columns, by name.
    """

    upto: int
    stream: str | None = None
    where: str | None = None
    corrected: dict[str, str] = Field(default_factory=dict)


class Intent(Record):
    """Everything of an epoch that is not a function of its input, and the results of READ. Times in microseconds.

    digests: of each stream's folded rows, in their event time alone. replay: set if its rows are dead ones. columns: of
    each stream, name and type, if they differ from the epoch before. engine: what the first attempt ran on, by the
    names of `core.protocol.engine`. skipped: by stream, the commits of its range that remove rows and were passed over.
    """

    format: int = FORMAT
    entry: str
    watermark_before: int | None
    watermark: int | None
    maxima: dict[str, int | None]
    heard: Heard
    counts: dict[str, Counts]
    digests: dict[str, Digest] = Field(default_factory=dict)
    log_sums: LogSums = Field(default_factory=dict, exclude_if=operator.not_)
    ticks: tuple[str, ...] = ()
    replay: Replay | None = Field(default=None, exclude_if=operator.not_)
    lookups: dict[str, Pinned] = Field(default_factory=dict)
    columns: Columns = Field(default_factory=dict, exclude_if=operator.not_)
    skipped: dict[str, tuple[str, ...]] = Field(default_factory=dict, exclude_if=operator.not_)
    rule: str
    rule_hash: str
    zone: str
    ansi: bool
    engine: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)

    @property
    def digest(self) -> str:
        """The intent's own hash; attempt, run and time are not part of it."""
        return sha(self.model_dump_json(exclude={"digests"} if self.format < 2 else None))


class Written(Record):
    """One table's part in an epoch. `version`: app transaction; `commit`: the Delta version that carries it.

    digest: of the rows in the files that the commit added. results: of those that an upsert merged.
    """

    version: int
    commit: int
    rows: int
    digest: Digest | None = None
    results: Digest | None = None


class Commit(Record):
    """The only commit point of an epoch.

    lost_epochs: all of this generation, including abandoned ones, so that a reader needs no other row. digests: the
    intent's; those of the tables are in `tables`. rejected: by stream, rows folded in this epoch or an earlier one that
    the rule's class has rejected now; they are in the dead table. expected: of the results, by expectation; results
    that it dropped are not in `output_rows`. adopted: tables in `table_ids` that existed before the rule, and the
    version from which on they are its own. ledger: at the start of a generation, the ledger's id, which its log has
    only once, and unchecked.
    """

    format: int = FORMAT
    intent: str | None = None
    entry: str
    watermark: int | None
    maxima: dict[str, int | None]
    heard: Heard
    counts: dict[str, Counts] = Field(default_factory=dict)
    rejected: dict[str, int] = Field(default_factory=dict, exclude_if=operator.not_)
    expected: dict[str, Failed] = Field(default_factory=dict, exclude_if=operator.not_)
    log_sums: LogSums = Field(default_factory=dict, exclude_if=operator.not_)
    tables: dict[str, Written] = Field(default_factory=dict)
    table_ids: dict[str, str] = Field(default_factory=dict)
    adopted: dict[str, int] = Field(default_factory=dict, exclude_if=operator.not_)
    ledger: str | None = Field(default=None, exclude_if=operator.not_)
    columns: Columns = Field(default_factory=dict)
    rule: str | None = None
    kept_output: bool = False
    lost_epochs: tuple[int, ...] = ()
    output_rows: int = 0
    digests: dict[str, Digest] = Field(default_factory=dict)
    seconds: dict[str, float] = Field(default_factory=dict)


class Lost(Record):
    """An epoch that qos 0 did not redo. `due`: the results in (from, to] of event time were not computed again."""

    format: int = FORMAT
    intent: str
    entry: str
    watermark: int | None
    maxima: dict[str, int | None]
    heard: Heard
    counts: dict[str, Counts]
    lost: int
    lost_epochs: tuple[int, ...]
    due: tuple[int | None, int | None]
    log_sums: LogSums = Field(default_factory=dict, exclude_if=operator.not_)


class Abandoning(Record):
    """The open epoch will be taken back. `intent`: its hash."""

    format: int = FORMAT
    intent: str


class Undone(Record):
    """The commit that took an epoch back in one sink. `version`: app transaction; `commit`: its Delta version.

    undoes: the commits of the epoch's attempts, the oldest first; empty if the sink had none of them. table_id: the
    sink's table; None if a Floodmark that did not record it wrote the row.
    """

    version: int
    commit: int
    undoes: tuple[int, ...] = ()
    table_id: str | None = Field(default=None, exclude_if=operator.not_)


class Abandoned(Record):
    """An epoch that was taken back. The rule's offsets and watermark are those before it.

    tables: each sink, by the ledger's name, whether it had anything of the epoch or not. lost_epochs: those of this
    generation that have no effect, including this one.
    """

    format: int = FORMAT
    intent: str
    entry: str
    watermark: int | None
    maxima: dict[str, int | None]
    heard: Heard
    lost_epochs: tuple[int, ...]
    tables: dict[str, Undone] = Field(default_factory=dict)


class Seal(Record):
    """The row's generation ends; generation `successor` follows with `token`."""

    format: int = FORMAT
    why: str
    successor: int
    token: str
    keep_output: bool
    discarded: int | None


class Tended(Record):
    """The upkeep of a table: small files merged, files removed that no version needs; where its log starts now."""

    compacted: int = 0
    removed: int = 0
    log_from: int = 0


class Forgetting(Record):
    """Rows are to leave the rule's own tables. `number`: of this forget in the generation, from 1.

    condition: a digest of the condition, never its text, which may name a person. tables: by the ledger's name, each
    table whose old files and log entries go, with the number of its rows that match. removed: tables of earlier
    generations, by name with the generation, which go as a whole. copies: the same as `tables` of landings and
    outboxes, by their folder in the home.
    """

    number: int
    condition: str
    tables: dict[str, int]
    removed: tuple[str, ...] = ()
    copies: dict[str, int] = Field(default_factory=dict, exclude_if=operator.not_)


class Left(Record):
    """A table after rows were forgotten. `version`: app transaction; `commit`: the first that its log still has.

    gone: rows that left it, those that a newer row of state had replaced included. rows, digest: of all that stayed.
    """

    version: int
    commit: int
    gone: int
    rows: int
    digest: Digest


class Forgotten(Record):
    """The rows have left; `tables`: by the ledger's name."""

    number: int
    tables: dict[str, Left]


class Redelivery(Record):
    """Rows that a target refused, which it is to get after all. target: the ledger's name of its sink. rows: each by
    the ledger's row of the portion, and its number there; in this order they come. whole: each takes its key's place,
    as new as the target's own or not.
    """

    target: str
    rows: tuple[tuple[int, int], ...]
    whole: bool = Field(default=False, exclude_if=operator.not_)


class Life(Record):
    """A step in the rule's lifecycle; `what`: which one. A retired rule cannot run until it has `returned`.

    renamed: `name`, its new name. dropping: the tables to drop, table -> id, by the ledger's names (of state with the
    generation); it is the intent that the row `dropped` completes. maintained: `tended`, by table. moved: `places`, the
    new addresses of sinks that have moved, by the ledger's names. failed: `said`, which check of the open epoch or
    backfill failed, and how; no run retries it until somebody has decided (recheck, a reset). forgetting: the intent
    that the row `forgot`, with `forgotten`, completes. redelivered: `redelivery`, what a relay ships once more.
    skipped: `streams`, whose deferred rewrites will not be corrected; `over`: those of which the same run passes over
    unread ones, too (None: unknown).
    """

    format: int = FORMAT
    what: Literal[
        "retired", "returned", "renamed", "dropping", "dropped", "maintained", "moved", "failed", "recheck",
        "forgetting", "forgot", "redelivered", "skipped",
    ]  # fmt: skip
    name: str | None = Field(default=None, exclude_if=operator.not_)
    tables: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    tended: dict[str, Tended] = Field(default_factory=dict, exclude_if=operator.not_)
    places: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    said: str | None = Field(default=None, exclude_if=operator.not_)
    forgetting: Forgetting | None = Field(default=None, exclude_if=operator.not_)
    forgotten: Forgotten | None = Field(default=None, exclude_if=operator.not_)
    redelivery: Redelivery | None = Field(default=None, exclude_if=operator.not_)
    streams: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    over: tuple[str, ...] | None = Field(default=None, exclude_if=lambda names: names is None)


class Text(Record):
    """The part of a rule that defines how to read its sinks' rows: its SQL, and each sink's address and columns.

    No columns: all of them.
    """

    sql: str
    columns: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Row:
    """One row of the ledger. `at`: UTC, ISO 8601. `body`: JSON of the record of its kind."""

    seq: int
    kind: Kind
    generation: int
    token: str
    epoch: int
    attempt: int
    run: str
    at: str
    body: str
    prev: str
    hash: str = ""

    def sealed(self) -> Row:
        """The same row with its hash over all its other fields."""
        return Row(**{**self.__dict__, "hash": self.digest()})

    def digest(self) -> str:
        """SHA-256 of the other fields as JSON with sorted keys.

        The text is built directly, because a long ledger has many rows to check.
        """
        values = ((name, getattr(self, name)) for name in HASHED)
        text = ", ".join(f'"{name}": {quoted(value) if isinstance(value, str) else value}' for name, value in values)
        return sha("{" + text + "}")


HASHED = sorted(one.name for one in fields(Row) if one.name != "hash")


def text_of(rule: Rule) -> Text:
    """The text of the rule's sinks that are tables."""
    return Text(sql=rule.sql, columns=tuple((str(sink.address), sink.columns) for sink in rule.sinks if sink.address))


def total(counts: Mapping[str, Counts]) -> Counts:
    """Counts over all streams, without those of expectations, which belong to one stream each."""
    return Counts(**{name: sum(getattr(one, name) for one in counts.values()) for name in PARTS})


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
