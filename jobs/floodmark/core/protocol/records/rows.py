"""What the ledger's rows say, as values, and the reading of a whole ledger into its head.

A ledger is a list of rows with sequence numbers 1, 2, 3, … chained by hash. Its kinds:

- `commit`: an epoch has its effect. Epoch 0 begins a generation.
- `intent`: written before an epoch's first effect; a retry appends it again with the next attempt.
- `lost`: at qos 0, the epoch whose intent was met again; it advances like a commit, without effect.
- `abandoning`: the open epoch is to be taken back; from here on nothing else becomes of it. `abandoned`: it is: it has
  no effect, and the next epoch begins where it began.
- `seal`: a generation ends and names its successor; what the change still has to do follows from this row.
- `backfill`: the intent of a backfill; a retry appends it again with the next attempt. `backfilled`: it has its effect.
  Both carry the number of the epoch after which they stand; no epoch begins between them, and no offset moves.
- `life`: the rule itself is retired or comes back, gets another name, loses tables, or its tables were maintained,
  or found at another address; what is open failed a check, or is to be checked again. Whatever is open stays open.
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

# Of the rows' bodies; a reader refuses a newer one. 2: with digests. 3: with rejected and replayed rows. 4: backfills.
# 5: the life of a rule. 6: expectations, upkeep; columns that streams have gained, and what sinks take of a backfill's
# results. 7: where a sink's table lies that was moved. 8: epochs that were abandoned, checks that failed, what an
# attempt ran on
FORMAT = 8
# A ledger that cannot be read cannot be reset either: the reset would have to be written into it.
RESTORE = (
    "put the ledger back from a copy of the home. Where there is none, begin anew: remove the rule's folder in the "
    "home, and name new sinks or remove the old ones"
)
Kind = Literal["commit", "intent", "lost", "abandoning", "abandoned", "seal", "backfill", "backfilled", "life"]
ENDS: tuple[Kind, ...] = ("commit", "lost", "abandoned")  # of an epoch


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failed(Record):
    """Rows that failed an expectation, and those of them whose fate it decided: that it dropped, or made dead."""

    failed: int = 0
    taken: int = 0

    def __add__(self, other: Failed) -> Failed:
        return Failed(failed=self.failed + other.failed, taken=self.taken + other.taken)


class Counts(Record):
    """Rows of one stream in one epoch: read = filtered + dropped + dead + late + folded. `expected`: of those that
    would have been folded, by expectation.

    Without expectations these are left out, so the rows of older ledgers are read, and hash, as they did.
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
        """All of them by PARTS, those that are none included."""
        return {name: getattr(self, name) for name in PARTS}


PARTS = ("read", "filtered", "dropped", "dead", "late", "folded")
# When each stream that can be excused was last heard (`core.protocol.watermark`), in microseconds. Without such
# streams it is left out, so the rows of older ledgers are read, and hash, as they did.
Heard = Annotated[dict[str, int], Field(default_factory=dict, exclude_if=operator.not_)]
Columns = dict[str, list[tuple[str, str]]]  # of each stream: name and type
# SHA-256 of the newest log entry that was read of each stream's table, by which a copy that was put back and written on
# is known. Left out where the entry is gone.
LogSums = dict[str, str]


class Pinned(Record):
    """The version of a lookup table in one epoch; `table`: its id."""

    table: str
    version: int


class Replay(Record):
    """Dead rows that an epoch reads in place of input: those of epochs up to `upto`, of one stream or of all.

    `where`: SQL for those that are meant; `corrected`: SQL for columns, by name.
    """

    upto: int
    stream: str | None = None
    where: str | None = None
    corrected: dict[str, str] = Field(default_factory=dict)


class Intent(Record):
    """Everything of an epoch that is not a function of its input, and what READ found. Times in microseconds.

    `digests`: of each stream's folded rows, in their event time alone. `replay`: where its rows are dead ones.
    `columns`: of each stream, name and type, where they are not those of the epoch before. `engine`: what the first
    attempt ran on, by the names of `core.protocol.engine`.
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
    rule: str
    rule_hash: str
    zone: str
    ansi: bool
    engine: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)

    @property
    def digest(self) -> str:
        """The intent's own hash; attempt, run and time stand outside of it."""
        return sha(self.model_dump_json(exclude={"digests"} if self.format < 2 else None))


class Written(Record):
    """One table's part in an epoch. `version`: app transaction; `commit`: the Delta version that carries it.

    `digest`: of the rows in the files that the commit added; `results`: of those that an upsert merged.
    """

    version: int
    commit: int
    rows: int
    digest: Digest | None = None
    results: Digest | None = None


class Commit(Record):
    """The only commit point of an epoch. `lost_epochs`: all of this generation, so that a reader needs no other row;
    those that were abandoned are among them.

    `digests`: the intent's; those of the tables stand in `tables`. `rejected`: by stream, rows that were folded, in
    this epoch or an earlier one, and that the rule's class has rejected now: they stand in the dead table.
    `expected`: of the results, by expectation; those that it has taken were dropped, and are no `output_rows`.
    `adopted`: of the tables in `table_ids`, those that were there before the rule, and the version from which on they
    are its own. `ledger`: where a generation begins, the ledger's id, which its log has only once, and unchecked.
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
    """The open epoch is to be taken back. `intent`: its hash."""

    format: int = FORMAT
    intent: str


class Undone(Record):
    """What took an epoch back in one sink. `version`: app transaction; `commit`: the Delta version that carries it.

    `undoes`: the commits of the epoch's attempts, the oldest first; none where nothing of it was there.
    """

    version: int
    commit: int
    undoes: tuple[int, ...] = ()


class Abandoned(Record):
    """An epoch that was taken back. Where the rule stands is as it was before it.

    `tables`: each sink, by the ledger's name, whether anything of the epoch was there or not. `lost_epochs`: those of
    this generation that have no effect, this one included.
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
    """Generation `generation` of the row ends; `successor` follows with `token`."""

    format: int = FORMAT
    why: str
    successor: int
    token: str
    keep_output: bool
    discarded: int | None


class Restated(Record):
    """Results in [begin, end) of event time, computed again from what the epochs up to `upto` have read.

    They hang on rows of event times from `begin` to before `high`. Microseconds.
    """

    begin: int
    end: int
    high: int
    upto: int


class Backfill(Restated):
    """Everything of a backfill that is not a function of its input, and what was computed.

    `entry`: where the sources stood after epoch `upto`. `column`: of the results, whose value less `shift` tells where
    a result lies. counts: of the rows from `begin` to `high`. `restated`: by stream, those of them that had been late.
    digests: of each stream's folded rows, in their event time alone; `results`: of the results; `taken`: of those that
    a sink takes, by the ledger's name, where these are not all as they are; `expected`: as in a commit; `engine`: as in
    an intent.
    """

    format: int = FORMAT
    number: int
    entry: str
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

    @property
    def digest(self) -> str:
        """Its own hash, which every commit carries."""
        return sha(self.model_dump_json())

    def of(self, sink: str) -> Digest:
        """Of what goes to a sink, by the ledger's name."""
        return self.taken.get(sink, self.results)

    @property
    def span(self) -> Restated:
        return Restated(begin=self.begin, end=self.end, high=self.high, upto=self.upto)


class Backfilled(Record):
    """The only commit point of a backfill. `removed`: rows that went, by table."""

    format: int = FORMAT
    number: int
    intent: str
    tables: dict[str, Written]
    removed: dict[str, int]
    seconds: dict[str, float] = Field(default_factory=dict)


class Tended(Record):
    """What was done to a table: small files made one, files removed that no version needs; where its log begins now."""

    compacted: int = 0
    removed: int = 0
    log_from: int = 0


class Life(Record):
    """A turn in the life of a rule. `what`: which. A retired rule cannot run until it has `returned`.

    renamed: `name`, its name from here on. dropping: the tables that are to go, table → id, by the ledger's names (of
    state with the generation); it is the intent of what the row `dropped` ends. maintained: `tended`, by table.
    moved: `places`, where sinks lie from here on that lay elsewhere, by the ledger's names. failed: `said`, which check
    of what is open failed, and how; until somebody has decided (recheck, a reset), nothing of it is tried again.
    """

    format: int = FORMAT
    what: Literal["retired", "returned", "renamed", "dropping", "dropped", "maintained", "moved", "failed", "recheck"]
    name: str | None = Field(default=None, exclude_if=operator.not_)
    tables: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    tended: dict[str, Tended] = Field(default_factory=dict, exclude_if=operator.not_)
    places: dict[str, str] = Field(default_factory=dict, exclude_if=operator.not_)
    said: str | None = Field(default=None, exclude_if=operator.not_)


class Text(Record):
    """What of a rule's text says how rows in its sinks are to be read: its SQL, and each sink's address with the
    columns that it takes (none: all)."""

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
        """SHA-256 of the other fields as JSON with sorted keys, written out: a long ledger has many rows to check."""
        values = ((name, getattr(self, name)) for name in HASHED)
        text = ", ".join(f'"{name}": {quoted(value) if isinstance(value, str) else value}' for name, value in values)
        return sha("{" + text + "}")


HASHED = sorted(one.name for one in fields(Row) if one.name != "hash")


def text_of(rule: Rule) -> Text:
    """Of the sinks that are tables."""
    return Text(sql=rule.sql, columns=tuple((str(sink.address), sink.columns) for sink in rule.sinks if sink.address))


def total(counts: Mapping[str, Counts]) -> Counts:
    """Counts over all streams, without those of expectations, which belong to one stream each."""
    return Counts(**{name: sum(getattr(one, name) for one in counts.values()) for name in PARTS})


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
