"""Columns of a table with column mapping: a name can become that of another column."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from deltalake import DeltaTable

from floodmark.errors import HistoryGone

MODE = "delta.columnMapping.mode"
PHYSICAL = "delta.columnMapping.physicalName"


def problem(table: DeltaTable, as_of: Callable[[int], DeltaTable], version: int, read: Iterable[str]) -> str | None:
    """What is wrong if a name of the columns `read`, up to a version, is that of another one by now."""
    if version >= table.version() or table.metadata().configuration.get(MODE, "none") == "none":
        return None
    try:
        before = as_of(version)
    except HistoryGone:  # then nothing tells the columns of that time
        return None
    column = _replaced(before, table, {name.lower() for name in read})
    if column is None:
        return None
    return (
        f"column {column}, as it was read up to version {version}, was dropped or renamed since, and another column "
        "has its name now. Start over with `floodmark reset`"
    )


def _replaced(before: DeltaTable, now: DeltaTable, columns: Collection[str]) -> str | None:
    """A column, or a field of one, whose name is that of another one by now."""
    known, found = (dict(_names(json.loads(one.schema().to_json()), ())) for one in (before, now))
    both = (path for path in known if path in found and path[0] in columns)
    return next((".".join(path) for path in both if known[path] != found[path]), None)


def _names(struct: dict[str, Any], of: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path of each column and field, in lower case, and its name in files."""
    for field in struct["fields"]:
        path = (*of, field["name"].lower())
        yield path, field["metadata"].get(PHYSICAL, field["name"])
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _names(field["type"], path)
