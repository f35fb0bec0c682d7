"""A source and a sink in this process's memory. Only tests use them, to check what every kind promises.

To have them in rules, name them: `SOURCES["fake"] = "floodmark.connectors.ports.fakes:SOURCE"`, and `SINKS` likewise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from floodmark.connectors.ports.sink import Account, Accounted, Layout, Status, Transaction, Way, Write, Writer
from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.core.protocol.digests import LOW, MIDDLE, Digest, digest_of
from floodmark.core.protocol.presence import Presence
from floodmark.core.rules.kinds import SinkCan, SinkKind, SourceCan, SourceKind
from floodmark.core.rules.sinks.upserts import Effect
from floodmark.core.text.ddl import columns_of, delta_name
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import HistoryGone, NotOwned, NotThereYet, WrongColumn
from floodmark.ledger.comparing import Committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules import rule as rules
    from floodmark.core.rules.rule import EpochLimits, Stream

Row: TypeAlias = tuple[Any, ...]

EPOCH = datetime(1970, 1, 1)  # as Spark hands out a TIMESTAMP in a process whose zone is UTC


@dataclass
class Rows:
    """The rows under a name. `id`: differs once other rows have replaced them."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid4()))


ROWS: dict[str, Rows] = {}


def append(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to those under a name."""
    ROWS.setdefault(name, Rows()).rows.extend(rows)


class FakeConfig(BaseModel):
    """`name`: of its rows; `columns`: as in `CREATE TABLE`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    columns: str


class FakeSource(Stepped):
    """Rows in memory; an offset is how many of them come before it."""

    def __init__(self, name: str, stream: Stream, keep: Path | None = None):
        self.name, self.address = name, stream.address
        self._said, self._starts_at = FakeConfig.model_validate(stream.options), stream.start

    @property
    def _rows(self) -> Rows:
        if self._said.name not in ROWS:
            raise NotThereYet(f"stream {self.name}: expected rows under {self.address}, found none")
        return ROWS[self._said.name]

    def _line(self, count: int) -> str:
        return json.dumps({"of": self._rows.id, "rows": count})

    def columns(self) -> dict[str, str]:
        return {column.name: delta_name(column.type) for column in columns_of(self._said.columns)}

    def start(self) -> str:
        return self.end() if self._starts_at == "latest" else self._line(0)

    def end(self) -> str:
        return self._line(len(self._rows.rows))

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        most = _count(since) + (limits.max_rows or len(self._rows.rows))
        return self._line(min(most, _count(upto)))

    def identity(self, offset: str) -> str:
        return str(json.loads(offset)["of"])

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        return self.identity(offset) != self._rows.id or _count(offset) > len(self._rows.rows)

    def news(self, since: str, upto: str | None = None) -> bool:
        return _count(since) < _count(upto or self.end())

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        rows = len(self._rows.rows) - _count(since)
        return Backlog(rows, "rows", f"{rows} rows" if rows else "nothing new", {"rows": rows})

    def describe(self, offset: str) -> str:
        return f"{_count(offset)} rows"

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        names = list(self.columns())
        rows = self._rows.rows[_count(begin) : _count(end)]
        return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], self._said.columns)


def _count(offset: str) -> int:
    return int(json.loads(offset)["rows"])


SOURCE = SourceKind(
    written=FakeConfig,
    summary="rows in memory, for tests",
    can=SourceCan(rereads=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_rows"})),
    address=lambda said: f"fake://{said.name}",
    open=FakeSource,
)


# --- A sink


@dataclass(frozen=True)
class FakeWrite:
    """One write: by which app, as which version, which rows it added and removed, and its metadata."""

    app: str
    version: int
    added: tuple[Row, ...]
    removed: tuple[Row, ...]
    metadata: Mapping[str, Any]


@dataclass
class FakeTable:
    """What a sink holds: its writes, in order. `schema`: Spark's, of the rows; `settled`: the writes that would survive
    the loss of power."""

    columns: tuple[str, ...] = ()
    owner: str | None = None
    schema: Any = None
    id: str = field(default_factory=lambda: str(uuid4()))
    writes: list[FakeWrite] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)

    def rows(self) -> list[Row]:
        return [row for rows in self.remaining() for row in rows]

    def remaining(self) -> list[list[Row]]:
        """Of each write the rows that no later one took."""
        found = list[list[Row]]()
        for one in self.writes:
            for row in one.removed:
                next(rows for rows in reversed(found) if row in rows).remove(row)
            found.append(list(one.added))
        return found


TABLES: dict[str, FakeTable] = {}


class Name(BaseModel):
    """`name`: of the table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str


class FakeSink(Accounted):
    """A table in memory, as a rule writes it."""

    def __init__(self, sink: rules.Sink, outbox: Path | None = None):
        self.address, self._name = str(sink.address), Name.model_validate(sink.options).name

    @property
    def _table(self) -> FakeTable | None:
        return TABLES.get(self._name)

    def id(self) -> str | None:
        return None if self._table is None else self._table.id

    def check(self, owner: str | None) -> None:
        if self._table is not None and self._table.owner != owner:
            raise NotOwned(about_sink(self.address, f"expected a table of {owner}, found one of {self._table.owner}"))

    def writer(self, way: Way) -> FakeWriter:
        return FakeWriter(lambda: self._table, way)

    def check_columns(self, spark: SparkSession, layout: Layout) -> None:
        if self._table is not None and self._table.columns != tuple(layout.columns.names):
            raise WrongColumn(
                about_sink(self.address, f"expected columns {self._table.columns}, found {layout.columns.names}")
            )

    def make(self, spark: SparkSession, layout: Layout, owner: str) -> None:
        self.check(owner)
        TABLES.setdefault(self._name, FakeTable(tuple(layout.columns.names), owner, layout.columns))

    def empty(self, spark: SparkSession, layout: Layout, app: str, metadata: str) -> None:
        table = self._table
        assert table is not None
        if all((one.app, one.version) != (app, 0) for one in table.writes):
            table.writes.append(FakeWrite(app, 0, (), tuple(table.rows()), json.loads(metadata)))
            table.columns, table.schema = tuple(layout.columns.names), layout.columns

    def frame(self, spark: SparkSession) -> DataFrame:
        table = self._table
        assert table is not None
        return spark.createDataFrame(table.rows(), table.schema)

    def account(self, deep: bool) -> Account | None:
        table = self._table
        if table is None:
            return None
        return Account(
            table.id, [_accounted(deep, *one) for one in zip(count(), table.writes, table.remaining(), strict=False)]
        )


def _accounted(deep: bool, commit: int, one: FakeWrite, left: list[Row]) -> Write:
    whole = len(left) == len(one.added)
    held = digest_of_rows(left).model_dump(mode="json") if deep and whole else None
    return Write(commit, one.app or None, one.version, one.metadata, len(one.added), len(one.removed), held)


class FakeWriter(Writer):
    """A table in memory, as one writer sees it. Rows are merged by their first column."""

    def __init__(self, table: Callable[[], FakeTable | None], way: Way):
        self._lookup, self._way = table, way

    @property
    def _table(self) -> FakeTable:
        table = self._lookup()
        assert table is not None
        return table

    def status(self) -> Status | None:
        table = self._lookup()
        return None if table is None else Status(table.id, self.recorded_version())

    def recorded_version(self) -> int | None:
        writes = () if self._lookup() is None else self._table.writes
        return max((one.version for one in writes if one.app == self._way.app), default=None)

    def begin(self, frame: Any, where: str) -> FakeTransaction:
        return FakeTransaction(self._table, self._way)

    def seal(self, spark: SparkSession, version: int, metadata: str) -> int | None:
        return FakeTransaction(self._table, self._way).commit(version, metadata)

    def committed(self, version: int) -> Committed:
        for commit in range(len(self._table.writes)):
            found = self.committed_at(commit, version)
            if found is not None:
                return found
        raise HistoryGone(f"expected version {version} of {self._way.app}, found none")

    def committed_at(self, commit: int, version: int) -> Committed | None:
        one = self._table.writes[commit]
        if (one.app, one.version) != (self._way.app, version):
            return None
        rows = int(one.metadata.get("rows", len(one.added)))
        return Committed(commit, rows, len(one.added), len(one.removed), one.metadata)

    def presence(self, commit: int) -> Presence:
        added = self._table.writes[commit].added
        for later, one in enumerate(self._table.writes[commit + 1 :], commit + 1):
            if not one.app and {*one.removed} & {*added}:
                return Presence(None, removed_by=(later, "DELETE"))
        return Presence(frozenset())

    def lacks_files(self, commit: int) -> bool:
        return False

    def settle(self, commit: int) -> None:
        self._table.settled.add(commit)


class FakeTransaction(Transaction):
    """One write to a table in memory. It sees the table as it was when the transaction started."""

    def __init__(self, table: FakeTable, way: Way):
        self._table, self._way = table, way
        self._seen = len(table.writes)
        self._before = table.rows()
        self._added: tuple[Row, ...] = ()
        self._removed: tuple[Row, ...] = ()
        self.effect: Effect | None = None
        self.digest = Digest()
        self.results: Digest | None = None

    @property
    def _rewrites(self) -> bool:
        return bool(self._way.whole or self._way.span or self._way.upsert)

    def check_types(self, name: str, frame: Any) -> None:
        """A table in memory accepts rows of any types."""

    def write(self, frame: Any) -> int:
        rows = _rows_of(frame)
        self._added, self._removed = tuple(rows), tuple(row for row in self._before if self._is_removed(row, rows))
        if self._way.upsert:
            updated = len(self._removed)
            self.effect = Effect(len(rows), inserted=len(rows) - updated, updated=updated)
        elif self._rewrites:
            self.effect = Effect(len(rows), inserted=len(rows), deleted=len(self._removed))
        self.digest = digest_of_rows(rows)
        return self.compute(rows)

    def _is_removed(self, row: Row, rows: Sequence[Row]) -> bool:
        if self._way.upsert:
            return row[0] in {one[0] for one in rows}
        return self._way.whole or (self._way.span is not None and self._is_within(row))

    def _is_within(self, row: Row) -> bool:
        span = self._way.span
        if span.column is None:
            return True
        at = _micros(row[self._position(span)])
        return span.low <= at < span.high and not any(low <= at < high for low, high in span.gaps)

    def _position(self, span: Any) -> int:
        return self._table.columns.index(span.column)

    def compute(self, frame: Any) -> int:
        rows = _rows_of(frame)
        if self._way.whole or not self._rewrites:
            self.digest = digest_of_rows(rows)
        else:
            self.results = digest_of_rows(rows)
        return len(rows)

    def moves(self) -> tuple[int, int]:
        return len(self._added), len(self._removed)

    def expected_effect(self) -> Effect:
        return self.effect or Effect(self.digest.rows, inserted=self.digest.rows)

    def facts(self) -> dict[str, Any]:
        results = {} if self.results is None else {"results": self.results.model_dump()}
        return {"digest": self.digest.model_dump(), **results, **(asdict(self.effect) if self.effect else {})}

    def commit(self, version: int, metadata: str) -> int | None:
        since = self._table.writes[self._seen :]
        if any(one.app == self._way.app or self._rewrites for one in since):
            return None
        said = json.loads(metadata)
        self._table.writes.append(FakeWrite(self._way.app, version, self._added, self._removed, said))
        return len(self._table.writes) - 1

    def digest_of_commit(self, commit: int) -> Digest:
        return digest_of_rows(self._table.writes[commit].added)


def _rows_of(frame: Any) -> list[Row]:
    """Of a frame of Spark's, or of rows as they are."""
    return list(frame) if isinstance(frame, list | tuple) else [tuple(row) for row in frame.collect()]


def _micros(value: Any) -> int:
    """Of a time, since 1970; other values are as they are."""
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else int(value)


def digest_of_rows(rows: Sequence[Row]) -> Digest:
    """A digest of the same form as Spark's, with another hash."""
    hashes = [int.from_bytes(sha256(repr(row).encode()).digest()[:8], "big") for row in rows]
    high, low = (sum((one >> shift & LOW) - MIDDLE for one in hashes) for shift in (32, 0))
    return digest_of(len(hashes), high, low, {})


SINK = SinkKind(
    written=Name,
    summary="a table in memory, for tests",
    can=SinkCan(qos=2, replaces=True),
    address=lambda said: f"fake://{said.name}",
    open=FakeSink,
)
