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
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from floodmark.core.digests import Digest
from floodmark.core.entry import Entry
from floodmark.core.rules import Rule
from floodmark.errors import LedgerBroken

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


# When each stream that can be excused was last heard (`core.watermark`), in microseconds. Without such
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
    attempt ran on, by the names of `core.engine`.
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
        return _sha(self.model_dump_json(exclude={"digests"} if self.format < 2 else None))


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
        return _sha(self.model_dump_json())

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
        return _sha("{" + text + "}")


HASHED = sorted(one.name for one in fields(Row) if one.name != "hash")


@dataclass(frozen=True)
class Head:
    """Where a rule stands: the newest row that ended an epoch, the open intent if any, and a seal still at work.

    `written`, `commits`: of each table the app transaction and the Delta version of the newest write that is named.
    `lost`: the epochs of this generation without an effect; `abandoned`: those of them that were taken back;
    `abandoning`: whether the open one is to be. `replays`: the epochs of this generation that read dead rows;
    `backfills`: what its backfills have restated, by their numbers; `backfill`: the one that is open. `columns`: of
    each stream, as the epochs read them. `attempt`: at what is open. `name`: the rule's, where it was renamed;
    `retired`: when and by whom, as long as it is; `dropping`: a
    drop that has not ended; `maintained`: when its tables were maintained last, UTC, ISO 8601. `announced`: addresses
    of the sinks that epochs of this generation may have been written to which were lost or discarded. `texts`: by which
    its committed epochs were written, each once. `places`: of the sinks that do not lie where their names say, by the
    ledger's name, where they do. `failed`: the check that what is open failed, as long as nobody has decided on it.
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
    announced: tuple[str, ...] = ()
    texts: tuple[Text, ...] = ()
    name: str | None = None
    retired: str | None = None
    dropping: Life | None = None
    maintained: str | None = None
    places: dict[str, str] = field(default_factory=dict)
    failed: str | None = None

    @property
    def reads_from(self) -> Entry:
        """Where what is yet to be read, once more or at all, begins: an open backfill reads all that epochs have."""
        return self.entry if self.backfill is None else Entry.parse(self.begun_with.entry)

    @property
    def lines(self) -> dict[str, str]:
        """By stream, the line of its offset. A rule's file may name other streams by now, or in another order."""
        return self.lines_of(self.entry)

    def lines_of(self, entry: Entry) -> dict[str, str]:
        """The same of another entry of this generation."""
        return dict(zip(self.rule.streams, entry.offsets, strict=False))


def read_head(rows: Iterable[Row], head: Head | None = None) -> Head | None:
    """The head of a whole ledger, oldest row first, or of the rows that follow on `head`; None for an empty one.

    Raises LedgerBroken where sequence, chain or order of the rows does not hold.
    """
    for row in rows:
        head = follow(head, row)
    return head


def head_at(rows: Sequence[Row], epoch: int) -> Head:
    """The head of the newest generation as it was when `epoch`, one of its own, had just ended."""
    ends = (row.kind in ENDS and (row.generation, row.epoch) == (rows[-1].generation, epoch) for row in rows)
    head = read_head(rows[: list(ends).index(True) + 1])
    assert head is not None
    return head


def follow(head: Head | None, row: Row) -> Head:
    """The head after one more row. Raises LedgerBroken where the row does not follow."""
    _check_chain(row, *((head.seq + 1, head.hash) if head else (1, "")))
    return _fold(head, row)


def check_chained(rows: Sequence[Row], first: int = 1, before: str = "") -> None:
    """Raise LedgerBroken unless these are the rows of a ledger from number `first` on, each as it was written.

    `before`: hash of the row before.
    """
    for seq, row in enumerate(rows, first):
        _check_row(row, seq, before)
        before = row.hash


def remembered(head: Head) -> str:
    """A head as text, so that a long ledger need not be read again to know it."""
    text = _heads().dump_json(head).decode()
    return f"{_sha(_SHAPE + text)}\n{text}"


def recalled(text: str) -> Head | None:
    """The head in what `remembered` wrote; None where that was changed, or written by another version."""
    checksum, _, body = text.partition("\n")
    return _heads().validate_json(body) if checksum == _sha(_SHAPE + body) else None


@cache
def _heads() -> TypeAdapter[Head]:
    return TypeAdapter(Head)


_SHAPE = f"{FORMAT} {[one.name for one in fields(Head)]}"


def _check_chain(row: Row, expected: int, previous: str) -> None:
    _check_row(row, expected, previous)
    if json.loads(row.body).get("format", 0) > FORMAT:
        raise LedgerBroken(f"ledger row {row.seq} was written by a newer Floodmark: use that one")


def _check_row(row: Row, expected: int, previous: str) -> None:
    if row.seq != expected or row.prev != previous or row.hash != row.digest():
        raise LedgerBroken(
            f"the ledger's row {expected} is missing or was changed (found sequence number {row.seq}); {RESTORE}"
        )


def _fold(head: Head | None, row: Row) -> Head:
    if row.kind == "commit" and row.epoch == 0:
        return _begin(head, row)
    if head is None or row.generation != head.generation:
        raise LedgerBroken(f"ledger row {row.seq} ({row.kind}) belongs to a generation that never began")
    if head.retired is not None and row.kind != "life":
        raise LedgerBroken(f"ledger row {row.seq}: {row.kind} of a rule that was retired {head.retired}")
    changed = _FOLLOWS[row.kind](head, row)
    return replace(changed, seq=row.seq, hash=row.hash)


def _begin(head: Head | None, row: Row) -> Head:
    commit = Commit.model_validate_json(row.body)
    if head is not None and (
        head.seal is None or head.retired or (row.generation, row.token) != (head.seal.successor, head.seal.token)
    ):
        raise LedgerBroken(f"ledger row {row.seq} begins generation {row.generation}, which no seal announced")
    if commit.rule is None:
        raise LedgerBroken(f"ledger row {row.seq} begins a generation without its rule")
    return Head(
        seq=row.seq,
        hash=row.hash,
        generation=row.generation,
        token=row.token,
        epoch=0,
        entry=Entry.parse(commit.entry),
        watermark=commit.watermark,
        maxima=commit.maxima,
        rule=Rule.from_json(commit.rule),
        begun_with=commit,
        kept_output=commit.kept_output,
        written={name: written.version for name, written in commit.tables.items()},
        commits={name: written.commit for name, written in commit.tables.items()},
        table_ids=commit.table_ids,
        heard=commit.heard,
        columns=commit.columns,
        name=head.name if head else None,
        places=_still_placed(head, commit) if head else {},
        maintained=head.maintained if head else None,
    )


def _still_placed(head: Head, commit: Commit) -> dict[str, str]:
    """Where sinks lie that a new generation goes on with; one whose table it has made lies where its name says."""
    ids = {name: (commit.table_ids.get(name), head.table_ids.get(name)) for name in head.places}
    return {name: place for name, place in head.places.items() if ids[name][0] in (None, ids[name][1])}


def _expect_next(head: Head, row: Row) -> None:
    if head.seal is not None or head.backfill is not None or row.epoch != head.epoch + 1:
        what = f"epoch {head.epoch + 1}" if head.backfill is None else f"the end of backfill {head.backfill.number}"
        raise LedgerBroken(f"ledger row {row.seq}: expected {what}, found {row.kind} of epoch {row.epoch}")


def _open(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    _expect_kept(head, row)
    intent = Intent.model_validate_json(row.body)
    if head.open is not None and head.open.digest != intent.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was planned anew while an intent was open")
    return replace(head, open=intent, attempt=row.attempt)


def _commit(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    _expect_kept(head, row)
    commit = Commit.model_validate_json(row.body)
    if head.open is None or commit.intent != head.open.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was committed without its intent")
    rule = Rule.from_json(head.open.rule)
    return replace(
        _advanced(head, commit, row),
        rule=rule,
        texts=tuple(dict.fromkeys((*head.texts, text_of(rule)))),
        written={**head.written, **{name: table.version for name, table in commit.tables.items()}},
        commits={**head.commits, **{name: table.commit for name, table in commit.tables.items()}},
        table_ids={**head.table_ids, **commit.table_ids},
    )


def text_of(rule: Rule) -> Text:
    """Of the sinks that are tables."""
    return Text(sql=rule.sql, columns=tuple((str(sink.address), sink.columns) for sink in rule.sinks if sink.address))


def _lose(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    _expect_kept(head, row)
    lost = Lost.model_validate_json(row.body)
    return replace(_advanced(head, lost, row), lost=lost.lost_epochs, announced=_announced(head))


def _expect_kept(head: Head, row: Row) -> None:
    """An epoch that is to be taken back gets no other end."""
    if head.abandoning:
        raise LedgerBroken(f"ledger row {row.seq}: {row.kind} of epoch {row.epoch}, which is to be abandoned")


def _abandon(head: Head, row: Row) -> Head:
    _expect_next(head, row)
    _expect_kept(head, row)
    if head.open is None or Abandoning.model_validate_json(row.body).intent != head.open.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} is to be abandoned, and is not open")
    return replace(head, abandoning=True, failed=None)


def _taken_back(head: Head, row: Row) -> Head:
    """Where the rule stands stays as it is, but for the number of the epoch."""
    _expect_next(head, row)
    done = Abandoned.model_validate_json(row.body)
    if not head.abandoning or head.open is None or done.intent != head.open.digest:
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was abandoned without a row that announced it")
    if (Entry.parse(done.entry), done.watermark) != (head.entry, head.watermark):
        raise LedgerBroken(f"ledger row {row.seq}: epoch {row.epoch} was abandoned, yet its offsets or watermark moved")
    return replace(
        head,
        epoch=row.epoch,
        lost=done.lost_epochs,
        abandoned=(*head.abandoned, row.epoch),
        abandoning=False,
        announced=_announced(head),
        written={**head.written, **{name: table.version for name, table in done.tables.items()}},
        commits={**head.commits, **{name: table.commit for name, table in done.tables.items()}},
        open=None,
        attempt=0,
    )


def _advanced(head: Head, record: Commit | Lost, row: Row) -> Head:
    return replace(
        head,
        epoch=row.epoch,
        entry=Entry.parse(record.entry),
        watermark=record.watermark,
        maxima=record.maxima,
        heard=record.heard,
        log_sums=record.log_sums,
        columns=(head.open.columns if head.open else {}) or head.columns,
        replays=head.replays | ({row.epoch: head.open.replay} if head.open and head.open.replay else {}),
        open=None,
        attempt=0,
        failed=None,
    )


def _seal(head: Head, row: Row) -> Head:
    seal = Seal.model_validate_json(row.body)
    return replace(
        head,
        seal=seal,
        announced=_announced(head),
        open=None,
        abandoning=False,
        backfill=None,
        attempt=0,
        failed=None,
    )


def _announced(head: Head) -> tuple[str, ...]:
    """`announced` once the open epoch, if any, is over without a commit."""
    if head.open is None:
        return head.announced
    found = (str(sink.address) for sink in Rule.from_json(head.open.rule).sinks if sink.kind == "delta")
    return tuple(dict.fromkeys((*head.announced, *found)))


def _start_backfill(head: Head, row: Row) -> Head:
    _expect_between(head, row)
    backfill = Backfill.model_validate_json(row.body)
    if head.backfill is not None and head.backfill.digest != backfill.digest:
        raise LedgerBroken(f"ledger row {row.seq}: another backfill than {head.backfill.number}, which is open, begins")
    if backfill.number != len(head.backfills) + 1:
        raise LedgerBroken(
            f"ledger row {row.seq}: expected backfill {len(head.backfills) + 1}, found backfill {backfill.number}"
        )
    return replace(head, backfill=backfill, attempt=row.attempt)


def _end_backfill(head: Head, row: Row) -> Head:
    _expect_between(head, row)
    done = Backfilled.model_validate_json(row.body)
    if head.backfill is None or done.intent != head.backfill.digest:
        raise LedgerBroken(f"ledger row {row.seq}: a backfill was committed without its intent")
    return replace(
        head,
        written={**head.written, **{name: table.version for name, table in done.tables.items()}},
        commits={**head.commits, **{name: table.commit for name, table in done.tables.items()}},
        backfills={**head.backfills, head.backfill.number: head.backfill.span},
        backfill=None,
        attempt=0,
        failed=None,
    )


def _expect_between(head: Head, row: Row) -> None:
    """A backfill stands between two epochs."""
    if head.seal is not None or head.open is not None or row.epoch != head.epoch:
        raise LedgerBroken(
            f"ledger row {row.seq}: expected what follows on epoch {head.epoch}, found {row.kind} of epoch {row.epoch}"
        )


def _live(head: Head, row: Row) -> Head:
    life = Life.model_validate_json(row.body)
    fits = {
        "retired": head.retired is None,
        "returned": head.retired is not None and head.dropping is None,
        "renamed": bool(life.name) and head.dropping is None,
        "dropping": head.retired is not None and head.dropping is None,
        "dropped": head.dropping is not None,
        "maintained": head.dropping is None and head.seal is None,
        "moved": head.dropping is None and life.places.keys() <= head.table_ids.keys(),
        "failed": bool(life.said) and (head.open or head.backfill) is not None,
        "recheck": head.failed is not None,
    }
    if row.epoch != head.epoch or not fits[life.what]:
        raise LedgerBroken(f"ledger row {row.seq}: the rule cannot be {life.what} after epoch {head.epoch}")
    changes: dict[str, dict[str, Any]] = {
        "retired": {"retired": f"{row.at} by {row.run}"},
        "returned": {"retired": None},
        "renamed": {"name": life.name},
        "dropping": {"dropping": life},
        "dropped": {"dropping": None},
        "maintained": {"maintained": row.at},
        "moved": {"places": {**head.places, **life.places}},
        "failed": {"failed": life.said},
        "recheck": {"failed": None},
    }
    return replace(head, **changes[life.what])


_FOLLOWS = {
    "intent": _open,
    "commit": _commit,
    "lost": _lose,
    "abandoning": _abandon,
    "abandoned": _taken_back,
    "seal": _seal,
    "backfill": _start_backfill,
    "backfilled": _end_backfill,
    "life": _live,
}


def total(counts: Mapping[str, Counts]) -> Counts:
    """Counts over all streams, without those of expectations, which belong to one stream each."""
    return Counts(**{name: sum(getattr(one, name) for one in counts.values()) for name in PARTS})


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
