"""Writes deduplication by keys within a horizon into the SQL, at each read of the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from floodmark.core.sql.forms.bounds import HIDDEN
from floodmark.core.sql.times import micros_between
from floodmark.core.sql.tree.shape import Shape
from floodmark.core.sql.words.lexis import quoted

DAY = 86_400_000_000  # µs: from here on Spark moves a frame's bound by days of the calendar, at most one day off
Horizon = tuple[Sequence[str], int]  # the key's columns, and for how long a row makes others of its key duplicates: µs


def reach_us(within_us: int) -> int:
    """How far before a row its frame begins, at most."""
    return within_us + DAY if within_us >= DAY else within_us


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
    frame = f"RANGE BETWEEN {_interval(reach_us(within_us))} PRECEDING AND {_interval(1)} PRECEDING"
    latest = f"max({at}) OVER (PARTITION BY {by} ORDER BY {at} {frame}) AS {before}"
    places = f"row_number() OVER (PARTITION BY {by}, {at} ORDER BY {at}) AS {place}"
    inner = f"SELECT *, {latest}, {places} FROM {quoted(name)}"  # noqa: S608 - ours, of names that are declared
    alone = f"{before} IS NULL" + (f" OR {_apart(before, at)} > {within_us}L" if within_us >= DAY else "")
    return f"(SELECT * EXCEPT ({before}, {place}) FROM ({inner}) WHERE ({alone}) AND {place} = 1)"  # noqa: S608


def _apart(before: str, at: str) -> str:
    """SQL for how many microseconds lie between two times. Other ways to subtract them go by the zone's calendar."""
    plain = (f"CAST({time} AS TIMESTAMP_NTZ)" for time in (before, at))
    return (
        f"CASE WHEN typeof({at}) = 'timestamp_ntz' THEN {micros_between(*plain)} "
        f"ELSE unix_micros({at}) - unix_micros({before}) END"
    )


def _interval(us: int) -> str:
    return f"INTERVAL '{us}' MICROSECOND"
