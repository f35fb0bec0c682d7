"""The rows of keys that a transaction changes, and what they do to the rows that a table has. Pure but for Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from floodmark.connectors.ports.target import Layout
from floodmark.core.relay.ranks import rank

Key: TypeAlias = tuple[Any, ...]


@dataclass
class _Entry:
    """What becomes of a key: row `row` takes its place, or nothing does (`gone`). whole: whatever the table has; else
    only the place of an older row."""

    row: int
    gone: bool
    whole: bool
    is_older: bool = False  # than the table's


class Staged:
    """At most one row for each key: what operations, in order, make of it.

    `schema`: Arrow's, of the layout's columns as the table has them.
    """

    def __init__(self, layout: Layout, schema: pa.Schema):
        self._layout, self._schema = layout, schema
        self._rows = schema.empty_table()
        self._order: list[Any] = []  # of each row, by `newest`
        self._entries = dict[Key, _Entry]()

    def add(self, rows: pa.Table, gone: Sequence[bool], whole: bool) -> None:
        """The rows of one operation, each with its key once. gone: of each row, whether it takes its key's row away."""
        first = len(self._rows)
        self._rows = pa.concat_tables([self._rows, rows])
        self._order += self._newest(rows)
        for i, key in enumerate(self._keys(rows)):
            self._entries[key] = self._after(self._entries.get(key), first + i, gone[i], whole)

    def _after(self, found: _Entry | None, row: int, gone: bool, whole: bool) -> _Entry:
        if gone or whole or found is None:
            return _Entry(row, gone, gone or whole)
        if found.gone:
            return _Entry(row, False, True)
        newer = self._is_newer(row, self._order[found.row], lambda: _only(self._rows, found.row))
        return _Entry(row, False, found.whole) if newer else found

    def _is_newer(self, row: int, order: Any, other: Callable[[], dict[str, Any]]) -> bool:
        """Whether a row takes the place of another with its key. order, other: that row's."""
        if self._layout.newest is None:
            return True
        if self._order[row] != order:
            return bool(self._order[row] > order)
        ours, theirs = _only(self._rows, row), other()
        return [rank(ours[name]) for name in sorted(ours)] > [rank(theirs[name]) for name in sorted(ours)]

    def stays(self, there: pa.Table) -> pa.Array:
        """Of each row that the table has, whether it stays. What stays because it is newer keeps our row out."""
        found = self._candidates(there)
        mask, rows = np.ones(len(there), dtype=bool), there.select(self._schema.names).take(found)
        order = self._newest(rows)
        for i, key in enumerate(self._keys(rows)):
            mask[found[i].as_py()] = self._outlives(self._entries.get(key), order[i], rows, i)
        return pa.array(mask)

    def _outlives(self, entry: _Entry | None, order: Any, rows: pa.Table, i: int) -> bool:
        if entry is None:
            return True
        if entry.gone or entry.whole or self._is_newer(entry.row, order, lambda: _only(rows, i)):
            return False
        entry.is_older = True
        return True

    def _candidates(self, there: pa.Table) -> pa.Array:
        """The numbers of the rows that may have one of our keys."""
        mask = pa.array(np.full(len(there), bool(self._entries)))
        for name in self.plain_key:
            ours = self._rows[name].combine_chunks()
            mask = pc.and_(mask, pc.is_in(there[name], value_set=ours).combine_chunks())
        return pc.indices_nonzero(mask)

    @property
    def plain_key(self) -> list[str]:
        """The columns of the key whose values Arrow compares as Spark does."""
        return [name for name in self._layout.key if is_plain(self._schema.field(name).type)]

    def column(self, name: str) -> pa.ChunkedArray:
        """Of all rows, also of those that others replaced."""
        return self._rows[name]

    def rows(self) -> pa.Table:
        """The rows that take their keys' places."""
        kept = [one.row for one in self._entries.values() if not one.gone and not one.is_older]
        return self._rows.take(pa.array(kept, pa.int64()))

    def _newest(self, rows: pa.Table) -> list[Any]:
        name = self._layout.newest
        return [None] * len(rows) if name is None else [rank(value) for value in rows[name].to_pylist()]

    def _keys(self, rows: pa.Table) -> Iterable[Key]:
        columns = (rows[name] for name in self._layout.key)
        values = (one.to_pylist() if is_plain(one.type) else map(rank, one.to_pylist()) for one in columns)
        return zip(*values, strict=True)


def is_plain(kind: pa.DataType) -> bool:
    """Whether two values of a type are equal exactly if Arrow says so, and are ordered in one way only."""
    return not at.is_nested(kind) and not at.is_floating(kind)


def _only(rows: pa.Table, i: int) -> dict[str, Any]:
    found: dict[str, Any] = rows.slice(i, 1).to_pylist()[0]
    return found
