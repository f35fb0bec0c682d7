"""Writes deduplication by keys within a horizon into the SQL, at each read of the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.core.sql.forms.bounds import HIDDEN
from floodmark.core.sql.tree.shape import Shape
from floodmark.core.sql.words.lexis import quoted

Horizon = tuple[Sequence[str], int]  # the key's columns, and for how long a row makes others of its key duplicates: µs


def deduplicated(shape: Shape, distinct: Mapping[str, Horizon]) -> str:
    """The SQL that reads each of these streams without its duplicates."""
    sql = shape.sql
    for start, end, name, named in sorted(shape.places, reverse=True):
        if name in distinct:
            alias = "" if named else f" AS {quoted(name)}"
            sql = f"{sql[:start]}{_first_ones(name, str(shape.declared[name]), *distinct[name])}{alias}{sql[end:]}"
    return sql


def _first_ones(name: str, time: str, keys: Sequence[str], within_us: int) -> str:
    """Rows that no row of their key precedes within the horizon; of those with one event time, the first."""
    before, place = f"{HIDDEN}before", f"{HIDDEN}place"
    by, at = ", ".join(map(quoted, keys)), quoted(time)
    frame = f"RANGE BETWEEN {_interval(within_us)} PRECEDING AND {_interval(1)} PRECEDING"
    counts = f"count(*) OVER (PARTITION BY {by} ORDER BY {at} {frame}) AS {before}"
    places = f"row_number() OVER (PARTITION BY {by}, {at} ORDER BY {at}) AS {place}"
    inner = f"SELECT *, {counts}, {places} FROM {quoted(name)}"  # noqa: S608 - ours, of names that are declared
    return f"(SELECT * EXCEPT ({before}, {place}) FROM ({inner}) WHERE {before} = 0 AND {place} = 1)"  # noqa: S608


def _interval(us: int) -> str:
    return f"INTERVAL '{us}' MICROSECOND"
