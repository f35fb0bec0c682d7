"""Lists column names that Floodmark, Delta or Spark add to rows, which a rule's own columns cannot have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

OURS = "_floodmark_"  # prefix of the names of Floodmark's own columns and views
# Columns that Delta adds for its change feed and deletion vectors, and Spark for a row's position in a file.
DELTAS = frozenset(
    "__is_cdc __delta_internal_row_index __delta_internal_is_row_deleted _tmp_metadata_row_index "
    "_databricks_internal_edge_computed_column_skip_row".split()
)
CHANGE_FEED = "delta.enableChangeDataFeed"
FEED_BEFORE = "delta.enableChangeDataCapture"  # its older name, which Delta reads where the other is not set
FEED = frozenset("_change_type _commit_version _commit_timestamp".split())  # columns that a table's change feed adds


def why_reserved(name: str) -> str | None:
    """Why no column, stream or lookup table of a rule may have this name; None if one may."""
    low = name.lower()
    if low.startswith(OURS):
        return f"names that start with {OURS} are reserved for Floodmark's columns"
    return "Delta and Spark add a column of that name to rows" if low in DELTAS else None


def reserved(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The reserved names, each with the reason."""
    yield from ((name, why) for name in names if (why := why_reserved(name)))


def has_feed(properties: Mapping[str, str]) -> bool:
    """Whether a table with these properties has a change feed; Delta ignores the case of its property names."""
    known = {name.lower(): value.lower() for name, value in properties.items()}
    return known.get(CHANGE_FEED.lower(), known.get(FEED_BEFORE.lower())) == "true"


def of_feed(names: Iterable[str]) -> list[str]:
    """The names that a table with a change feed cannot have."""
    return [name for name in names if name.lower() in FEED]
