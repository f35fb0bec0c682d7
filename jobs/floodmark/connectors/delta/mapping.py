"""Columns of a table with column mapping: a name can become that of another column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from deltalake import DeltaTable

MODE = "delta.columnMapping.mode"
PHYSICAL = "delta.columnMapping.physicalName"


def is_mapped(table: DeltaTable) -> bool:
    """Whether the table's columns have names of their own in its files."""
    return table.metadata().configuration.get(MODE, "none") != "none"


def replaced(before: DeltaTable, now: DeltaTable, read: Iterable[str]) -> str | None:
    """A column, or a field of one, whose name is that of another one by now; `read`: the columns that matter."""
    columns = {name.lower() for name in read}
    known = dict(_names(json.loads(before.schema().to_json()), ()))
    found = dict(_names(json.loads(now.schema().to_json()), ()))
    both = (path for path in known if path in found and path[0] in columns)
    return next((".".join(path) for path in both if known[path] != found[path]), None)


def _names(struct: dict[str, Any], of: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The path of each column and field, in lower case, and its name in files."""
    for field in struct["fields"]:
        path = (*of, field["name"].lower())
        yield path, field["metadata"].get(PHYSICAL, field["name"])
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _names(field["type"], path)
