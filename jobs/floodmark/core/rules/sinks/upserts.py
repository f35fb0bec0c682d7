"""A sink that keeps one row for each key: what of it can be decided without Spark."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from floodmark.core.rules.model import Sink
from floodmark.errors import WrongColumn

FEW_TIMES = 4  # a file with at most so many times the rows that change is written anew: small files do not pile up


@dataclass(frozen=True)
class Upsert:
    """Columns as the result names them. `newest`: of two rows of one key that with the larger value stays, else the
    later epoch's; `delete`: SQL over a result row, and where it is true the row takes its key's row away. `columns`:
    those that the table has (None: all of the result); `stamps`: of these, those that say nothing of a row's age."""

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
    def said(cls, metadata: Mapping[str, Any]) -> Effect | None:
        """What a commit's metadata says of its effect; None of a plain append, which says nothing of it."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: int(metadata[name]) for name in names}) if metadata.keys() >= set(names) else None

    @property
    def changed(self) -> int:
        """Keys whose row is another one afterwards."""
        return self.inserted + self.updated + self.deleted

    def with_written(self, rows: int, marked: int = 0) -> Effect:
        """The same where so many rows of the table were written; `marked`: that stay where others were marked."""
        return replace(self, copied=rows - self.inserted - self.updated + marked)

    def agrees(self, added: int, removed: int) -> bool:
        """Whether this is what files with so many rows, added to the table and removed from it, do."""
        comes, goes = self.inserted + self.updated, self.updated + self.deleted
        return (added, removed) == (comes + self.copied, goes + self.copied)


def is_marked(held: int, there: int, goes: int, changed: int) -> bool:
    """Whether a file's rows that go are marked in its deletion vector, else it is written anew without them.

    `held`: rows in the file, `there`: those not marked yet; `goes`: of these; `changed`: rows that the epoch changes.
    A file is marked as long as most of what it holds stays, and as writing it anew would cost more than the rest.
    """
    stays = there - goes
    return stays > FEW_TIMES * changed and 2 * stays >= held


def upsert_of(sink: Sink, columns: Sequence[str]) -> Upsert | None:
    """How the sink is merged into, its columns named as the result names them; None for a sink that is appended to.

    Raises WrongColumn where the result lacks one of them.
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
            f"sink {sink.address}: {field}: expected a column of the result out of {', '.join(named.values())}, "
            f"found {name}{hint}"
        )
    return found
