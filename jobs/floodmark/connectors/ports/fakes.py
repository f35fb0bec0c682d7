"""A source in this process's memory. It is used by tests alone: what every kind of source promises is tried on it.

To have it in rules, name it: `SOURCES["fake"] = "floodmark.connectors.ports.fakes:SOURCE"`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.core.rules.kinds import SourceCan, SourceKind
from floodmark.core.text.ddl import columns_of
from floodmark.errors import NotThereYet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.rule import EpochLimits, Stream

_AS_DELTA = {"bigint": "long", "int": "integer", "smallint": "short", "tinyint": "byte"}


@dataclass
class Rows:
    """What there is under a name. `id`: another one where somebody has put other rows in its place."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    id: str = field(default_factory=lambda: str(uuid4()))


ROWS: dict[str, Rows] = {}


def append(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Add rows to those that are there under a name."""
    ROWS.setdefault(name, Rows()).rows.extend(rows)


class Said(BaseModel):
    """`name`: of its rows; `columns`: as `CREATE TABLE` has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    columns: str


class FakeSource(Stepped):
    """Rows in memory; an offset is how many of them come before it."""

    def __init__(self, name: str, stream: Stream):
        self.name, self.address = name, stream.address
        self._said, self._starts_at = Said.model_validate(stream.options), stream.start

    @property
    def _there(self) -> Rows:
        if self._said.name not in ROWS:
            raise NotThereYet(f"stream {self.name}: expected rows under {self.address}, found none")
        return ROWS[self._said.name]

    def _line(self, count: int) -> str:
        return json.dumps({"of": self._there.id, "rows": count})

    def columns(self) -> dict[str, str]:
        spelt = ((column.name, str(column.type)) for column in columns_of(self._said.columns))
        return {name: _AS_DELTA.get(kind.lower(), kind.lower()) for name, kind in spelt}

    def start(self) -> str:
        return self.end() if self._starts_at == "latest" else self._line(0)

    def end(self) -> str:
        return self._line(len(self._there.rows))

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        most = _count(since) + (limits.max_rows or len(self._there.rows))
        return self._line(min(most, _count(upto)))

    def identity(self, offset: str) -> str:
        return str(json.loads(offset)["of"])

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        return self.identity(offset) != self._there.id or _count(offset) > len(self._there.rows)

    def news(self, since: str, upto: str | None = None) -> bool:
        return _count(since) < _count(upto or self.end())

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        rows = len(self._there.rows) - _count(since)
        return Backlog(rows, "rows", f"{rows} rows" if rows else "nothing new", {"rows": rows})

    def say(self, offset: str) -> str:
        return f"{_count(offset)} rows"

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        names = list(self.columns())
        rows = self._there.rows[_count(begin) : _count(end)]
        return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], self._said.columns)


def _count(offset: str) -> int:
    return int(json.loads(offset)["rows"])


SOURCE = SourceKind(
    written=Said,
    says="rows in memory, for tests",
    can=SourceCan(rereads=True, starts=frozenset({"earliest", "latest"}), limits=frozenset({"max_rows"})),
    address=lambda said: f"fake://{said.name}",
    open=FakeSource,
)
