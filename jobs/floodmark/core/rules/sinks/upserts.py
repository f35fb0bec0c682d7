"""Decides, without Spark, how a sink with one row per key is updated."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from floodmark.core.rules.model import Sink
from floodmark.errors import WrongColumn

FEW_TIMES = 4  # a file with at most this many times the changed rows is rewritten, so small files do not pile up


@dataclass(frozen=True)
class Upsert:
    """How results are merged by key; columns as the result names them.

    newest: of two rows of one key the one with the larger value stays, else the later epoch's. delete: SQL over a
    result row; if it is true, the row with its key is removed. columns: those that the table has (None: all of the
    result). stamps: of these, those that do not show a row's age.
    """

    key: tuple[str, ...]
    newest: str | None = None
    delete: str | None = None
    columns: tuple[str, ...] | None = None
    stamps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Effect:
    """What one epoch does to the table. `rows`: results; `copied`: rows that stay, of files that lose others."""

    rows: int
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    copied: int = 0

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Effect | None:
        """The effect in a commit's metadata; None for a plain append, which records none."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: int(metadata[name]) for name in names}) if metadata.keys() >= set(names) else None

    @property
    def changed(self) -> int:
        """Keys whose row is a different one afterwards."""
        return self.inserted + self.updated + self.deleted

    def with_written(self, rows: int, marked: int = 0) -> Effect:
        """The same, with `copied` by the rows that were written; `marked`: those that stay beside marked ones."""
        return replace(self, copied=rows - self.inserted - self.updated + marked)

    def agrees(self, added: int, removed: int) -> bool:
        """Whether the effect matches files with so many rows, added to the table and removed from it."""
        comes, goes = self.inserted + self.updated, self.updated + self.deleted
        return (added, removed) == (comes + self.copied, goes + self.copied)


def is_marked(held: int, total: int, goes: int, changed: int) -> bool:
    """Whether a file's removed rows are marked in its deletion vector; otherwise the file is rewritten without them.

    held: rows in the file. there: those not marked yet. goes: of these, the removed ones. changed: rows that the epoch
    changes. A file is marked as long as most of its rows stay, and while rewriting it would cost more than the rest.
    """
    stays = total - goes
    return stays > FEW_TIMES * changed and 2 * stays >= held


def upsert_of(sink: Sink, columns: Sequence[str]) -> Upsert | None:
    """How results are merged into the sink, with columns named as in the result; None for a sink that is appended to.

    Raises WrongColumn if the result lacks one of them.
    """
    if not sink.key:
        return None
    named = {column.lower(): column for column in columns}
    key = tuple(column_of(sink, "key", name, named) for name in sink.key)
    newest = None if sink.newest is None else column_of(sink, "newest", sink.newest, named)
    return Upsert(key, newest, sink.delete)


def column_of(sink: Sink, field: str, name: str, named: Mapping[str, str]) -> str:
    """A column that a sink names, as the result names it (`named`: by lower case). Raises WrongColumn."""
    found = named.get(name.lower())
    if found is None:
        near = difflib.get_close_matches(name.lower(), list(named), 1)
        hint = f"; did you mean {named[near[0]]}?" if near else ""
        raise WrongColumn(
            f"sink {sink.label}: {field}: expected one of the result columns {', '.join(named.values())}, found "
            f"{name}{hint}"
        )
    return found
