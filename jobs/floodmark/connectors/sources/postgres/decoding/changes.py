"""Turns the messages of a slot into rows: those of one table, of transactions within a range. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from floodmark.connectors.sources.postgres.decoding.pgoutput import (
    UNCHANGED,
    Begin,
    Change,
    Relation,
    Truncate,
    Value,
    Values,
    lsn_text,
    message,
)

_SOME = 60  # bytes of a value that are shown
FULL = "ALTER TABLE ... REPLICA IDENTITY FULL"


class Row(NamedTuple):
    """`values`: as text, in the order of the columns. `problem`: why it is malformed. `lsn`: of the commit."""

    values: tuple[str | None, ...]
    problem: str | None
    kind: str
    lsn: int
    seq: int
    at_us: int


@dataclass
class Changes:
    """The changes of a table (`oid`) by transactions that were committed from `since` on, and before `upto`.

    columns: those wanted, by name. key: those of the primary key. whole: whether deletes have all values of their row.
    sure: columns, of the table as it was, that each delete has a value of.
    """

    oid: int
    columns: Sequence[str]
    key: Collection[str]
    since: int
    upto: int
    whole: bool = False
    sure: Collection[str] = ()
    _tables: dict[int, Relation] = field(default_factory=dict)
    _begin: Begin | None = None
    _seq: int = 0

    def rows(self, messages: Iterable[bytes]) -> Iterator[Row]:
        for data in messages:
            found = message(data)
            if isinstance(found, Begin):
                self._begin, self._seq = found, 0
            elif isinstance(found, Relation):
                self._tables[found.oid] = found
            elif isinstance(found, Change) and found.oid == self.oid and self._is_wanted:
                yield from self._changed(found)
            elif isinstance(found, Truncate) and self.oid in found.oids and self._is_wanted:
                yield self._row("truncate", (None,) * len(self.columns), TRUNCATED)

    @property
    def _is_wanted(self) -> bool:
        assert self._begin is not None
        return self.since <= self._begin.lsn < self.upto

    def _row(self, kind: str, values: tuple[str | None, ...], problem: str | None) -> Row:
        assert self._begin is not None
        row = Row(values, problem, kind, self._begin.lsn, self._seq, self._begin.at_us)
        self._seq += 1
        return row

    def _changed(self, change: Change) -> Iterator[Row]:
        """One row; for an update of the key two: the row with the old key is deleted, another one inserted."""
        table = self._tables[change.oid]
        if change.new is None:
            yield self._deleted(table, change)
        elif change.old is not None and self._is_other_key(table, change):
            yield self._deleted(table, change)
            yield self._one("insert", table, change.new, change.old if change.whole else None)
        else:
            yield self._one(change.kind, table, change.new, change.old if change.whole else None)

    def _deleted(self, table: Relation, change: Change) -> Row:
        assert change.old is not None
        row = self._one("delete", table, change.old, None)
        return row._replace(problem=row.problem or self._lacking(table, change.old, change.whole))

    def _lacking(self, table: Relation, old: Values, is_whole: bool) -> str | None:
        if is_whole or self.whole:
            return None if is_whole else KEY_ALONE
        gone = [name for name, value in zip(table.columns, old, strict=True) if name in self.sure and value is None]
        return f"column {gone[0]}: {OTHER_KEY}" if gone else None

    def _is_other_key(self, table: Relation, change: Change) -> bool:
        assert change.old is not None and change.new is not None
        if not change.whole:
            return True
        places = [i for i, name in enumerate(table.columns) if name in self.key]
        return any(change.new[i] is not UNCHANGED and change.new[i] != change.old[i] for i in places)

    def _one(self, kind: str, table: Relation, found: Values, before: Values | None) -> Row:
        """A row of these values; `before`: all values of the row before, if they are known."""
        known = dict(zip(table.columns, found, strict=True))
        if before is not None:
            old = dict(zip(table.columns, before, strict=True))
            known = {name: old[name] if value is UNCHANGED else value for name, value in known.items()}
        problem = self._altered(table) or self._unknown(known) or self._undecoded(known)
        return self._row(kind, tuple(_text(known.get(name)) for name in self.columns), problem)

    def _altered(self, table: Relation) -> str | None:
        """Why the table that was changed cannot be the table as it is: names differ in both ways, or in their order."""
        gone = [name for name in table.columns if name not in self.columns]
        come = [name for name in self.columns if name not in table.columns]
        if not gone or not come:
            return self._swapped(table)
        return (
            f"expected the columns of the table as it is now, found {', '.join(gone)} in place of {', '.join(come)}: "
            "columns were renamed, or dropped and added, after this change"
        )

    def _swapped(self, table: Relation) -> str | None:
        """A column keeps its place for as long as the table has it, so others have the names of those that move."""
        before = [name for name in table.columns if name in self.columns]
        now = [name for name in self.columns if name in table.columns]
        if before == now:
            return None
        return (
            f"expected the columns {', '.join(now)} in that order, found {', '.join(before)}: after this change, "
            "columns were given the names of others"
        )

    def _unknown(self, known: dict[str, Value]) -> str | None:
        name = next((name for name in self.columns if known.get(name) is UNCHANGED), None)
        if name is None:
            return None
        return (
            f"column {name}: expected its value, found none: the update left the long value unchanged, and PostgreSQL "
            f"doesn't send it again: {FULL}"
        )

    def _undecoded(self, known: dict[str, Value]) -> str | None:
        found = ((name, known.get(name)) for name in self.columns)
        return next((undecoded(name, value) for name, value in found if isinstance(value, bytes)), None)


def undecoded(column: str, value: bytes) -> str:
    """The problem of a value whose bytes are no text. Only a database that checks none holds such bytes."""
    return (
        f"column {column}: expected text in UTF-8, found {value[:_SOME]!r}, which a database with the encoding "
        "SQL_ASCII takes unchecked: write the value in UTF-8"
    )


KEY_ALONE = (
    "expected all values of the row that was removed, found those of its key alone: the table had another replica "
    "identity than FULL by then"
)
OTHER_KEY = (
    "expected its value in the row that was removed, found none: the table had a replica identity without it by then"
)
TRUNCATED = "the table was emptied by TRUNCATE: what it removed isn't known"


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def placed(row: Row, problem: str) -> str:
    """A problem with its place."""
    return f"LSN {lsn_text(row.lsn)}, change {row.seq} ({row.kind}): {problem}"
