"""Columns of a table over its versions: a name can become that of another, and files can be partitioned by others."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from floodmark.errors import HistoryGone
from floodmark.ledger.delta.tablelog import logged

MODE = "delta.columnMapping.mode"
PHYSICAL = "delta.columnMapping.physicalName"
_INNER = {"array": ("element",), "map": ("key", "value")}  # Delta's names for the types in a type


def problem(table: DeltaTable, as_of: Callable[[int], DeltaTable], version: int, read: Iterable[str]) -> str | None:
    """What is wrong if a name of the columns `read`, up to a version, is that of another one by now."""
    if version >= table.version() or table.metadata().configuration.get(MODE, "none").lower() == "none":
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
        yield from _within(field["type"], path)


def _within(kind: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The same of the fields in a type: of a struct, and of those in arrays and maps."""
    if not isinstance(kind, dict):
        return
    if kind["type"] == "struct":
        yield from _names(kind, path)
    for inner in _INNER.get(kind["type"], ()):
        yield from _within(kind[f"{inner}Type"], (*path, inner))


@dataclass(frozen=True)
class Layout:
    """The columns of a table from a version on, by name with their type, and those that partition it.

    All are named as in files, which keep their names when a column is renamed.
    """

    version: int
    columns: Mapping[str, str]
    partitions: tuple[str, ...]

    @classmethod
    def of(cls, version: int, schema: str, partitions: Iterable[str]) -> Layout:
        fields = {field["name"]: field for field in json.loads(schema)["fields"]}
        names = {name: str(field["metadata"].get(PHYSICAL, name)) for name, field in fields.items()}
        kinds = {names[name]: json.dumps(field["type"], sort_keys=True) for name, field in fields.items()}
        return cls(version, kinds, tuple(names[name] for name in partitions))

    @classmethod
    def at(cls, table: DeltaTable) -> Layout:
        return cls.of(table.version(), table.schema().to_json(), table.metadata().partition_columns)

    def is_split_otherwise(self, then: Layout) -> str | None:
        """How the partition columns of an earlier layout differ from these; None if they do not."""
        if then.partitions == self.partitions:
            return None
        was, now = (", ".join(one.partitions) or "none" for one in (then, self))
        return f"the partition columns of version {then.version} ({was}), found others ({now})"

    def lacks(self, then: Layout) -> str | None:
        """What an earlier layout has that Spark's stream does not find in this one; None: nothing."""
        gone = next((name for name in then.columns if name not in self.columns), None)
        other = self.is_split_otherwise(then)
        return other if other or gone is None else f"column {gone} of version {then.version}, found none"

    def fits(self, then: Layout) -> bool:
        """Whether Spark's stream surely reads rows of an earlier layout by this one."""
        return self.partitions == then.partitions and then.columns.items() <= self.columns.items()


def layouts(
    address: str, first: int, now: DeltaTable, as_of: Callable[[int], DeltaTable], upto: int | None = None
) -> list[Layout]:
    """The layout of version `first`, those that followed up to `upto`, and that of now. It is one if none followed.

    Raises HistoryGone if the log no longer tells.
    """
    later = logged(address, range(first + 1, now.version() + 1))
    said = [(version, one["metaData"]) for version, actions in later for one in actions if "metaData" in one]
    changed = [Layout.of(version, one["schemaString"], one["partitionColumns"]) for version, one in said]
    if not changed:
        return [Layout.at(now)]
    read = [one for one in changed[:-1] if upto is None or one.version <= upto]
    return [Layout.at(as_of(first)), *read, changed[-1]]


def relaid(address: str, version: int, now: DeltaTable, as_of: Callable[[int], DeltaTable]) -> str | None:
    """How files since a version are partitioned by other columns than those of now; None if they are not.

    A table keeps its partition columns until it is overwritten, or restored to an older version.
    """
    return _problem(layouts(address, max(version, 0), now, as_of), Layout.is_split_otherwise)


def known_layouts(
    address: str, first: int, now: DeltaTable, as_of: Callable[[int], DeltaTable], upto: int | None = None
) -> list[Layout]:
    """The same; only that of now, if the log no longer tells, or the first version is yet to come."""
    try:
        return layouts(address, min(first, now.version()), now, as_of, upto)
    except HistoryGone:
        return [Layout.at(now)]


def unreadable(found: Sequence[Layout], way: str = "Start") -> str | None:
    """Why Spark's stream cannot read on from the first of these layouts to the last, that of now; None: it can.

    way: how a reset is introduced, after other ways on.
    """
    problem = _problem(found, Layout.lacks)
    if problem is None:
        return None
    return (
        f"{problem}: Spark does not read rows from before together with later ones. {way} over with `floodmark "
        "reset`; a stream with `start: {version: N}` needs a version since then"
    )


def _problem(found: Sequence[Layout], lacks: Callable[[Layout, Layout], str | None]) -> str | None:
    """The newest of the layouts that lacks something by the last one, that of now."""
    told = [lacks(found[-1], one) for one in found]
    at = max((i for i, one in enumerate(told) if one), default=None)
    return None if at is None else f"expected {told[at]} since version {found[at + 1].version}"
