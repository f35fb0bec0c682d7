"""A class of one's own as a source. Only the methods that take a session need a JVM."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.connectors.sources.python.author import Author, made
from floodmark.connectors.sources.python.offsets import beyond, line, parsed, reaches
from floodmark.connectors.sources.python.options import WrittenPython
from floodmark.connectors.sources.python.rows import frame_of, schema_of
from floodmark.core.process.values import short
from floodmark.core.rules.kinds import CODE
from floodmark.core.text.ddl import columns_of, delta_name
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.rules.model import Stream
    from floodmark.core.rules.rule import EpochLimits


class PythonSource(Stepped):
    """Rows that an author's class reads, between offsets that it gives."""

    def __init__(self, name: str, stream: Stream):
        self.name, self.address, self._starts_at = name, stream.address, stream.start
        options = dict(stream.options)
        self._code = str(options.pop(CODE))
        self._said = WrittenPython.model_validate(options)
        self._columns = columns_of(self._said.declared)

    @cached_property
    def _author(self) -> Author:
        said = self._said
        opened = None if said.connection is None else connection(said.connection)
        return made(f"stream {self.name}: {said.named}", self._code, said.file, said.name, said.settings, opened)

    def _line(self, at: Any) -> str:
        author = self._author
        return line(str(author.call("identity")) if author.has("identity") else self.address, at)

    def _latest(self, since: str) -> Any:
        """The furthest offset. Raises SourceBroken if it is before `since`."""
        read, now = parsed(since)[1], self._author.offset("latest")
        if not self._reaches("latest", read, now):
            problem = f"expected an offset at or beyond {short(read)}, which was read, found {short(now)}"
            raise self._author.broken("latest", f"{problem}. A source must never go back")
        return now

    def _reaches(self, method: str, low: Any, high: Any) -> bool:
        try:
            return reaches(low, high)
        except ValueError as fault:
            raise self._author.broken(method, str(fault)) from None

    def columns(self) -> dict[str, str]:
        return {column.name: delta_name(column.type) for column in self._columns}

    def start(self) -> str:
        return self.end() if self._starts_at == "latest" else self._line(self._author.offset("earliest"))

    def end(self) -> str:
        return self._line(self._author.offset("latest"))

    def take_end(self, since: str) -> str:
        return self._line(self._latest(since))

    @property
    def splits(self) -> bool:
        return self._author.has("split")

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        of, low = parsed(since)
        high = parsed(upto)[1]
        if limits.max_rows is None:
            return upto
        if not self._author.has("split"):
            raise Refused(
                f"stream {self.name}: expected a method split(begin, end, most) of {self._said.named}, because "
                "`epoch` has max_rows, found none: write it, or leave max_rows out"
            )
        found = self._author.offset("split", low, high, limits.max_rows)
        if found == low or not (self._reaches("split", low, found) and self._reaches("split", found, high)):
            problem = f"expected an offset beyond {short(low)} and at most {short(high)}, found {short(found)}"
            raise self._author.broken("split", problem)
        return line(of, found)

    def identity(self, offset: str) -> str:
        return parsed(offset)[0]

    def check_spelt(self, offset: str) -> None:
        parsed(offset)  # to describe it is the author's code

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        return self._author.has("identity") and parsed(offset)[0] != str(self._author.call("identity"))

    def news(self, since: str, upto: str | None = None) -> bool:
        return beyond(parsed(since)[1], self._latest(since) if upto is None else parsed(upto)[1])

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        read, now = parsed(since)[1], self._latest(since)
        waits = int(beyond(read, now))
        text = f"input up to {self._shown(now)}" if waits else "nothing new"
        return Backlog(waits, "ranges", text, {"from": read, "to": now})

    def check_appended(self, since: str) -> None:
        self._latest(since)

    def describe(self, offset: str) -> str:
        return self._shown(parsed(offset)[1])

    def _shown(self, at: Any) -> str:
        return str(self._author.call("describe", at)) if self._author.has("describe") else short(at)

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        low, high = parsed(begin)[1], parsed(end)[1]
        if low == high:
            return self.typed(spark)
        return frame_of(spark, self._author.rows(self._columns, low, high), self._columns)

    def typed(self, spark: SparkSession) -> DataFrame:
        return frame_of(spark, schema_of(self._columns).empty_table(), self._columns)
