"""State rows that are needed where event time does not decide: those of open sessions, and the last rows of a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.core.sql.forms.bounds import HIDDEN, Last
from floodmark.core.sql.query import Query
from floodmark.core.sql.windows import Instant, needed_from
from floodmark.core.sql.words.lexis import quoted
from floodmark.spark.session.views import put_view


def live_rows(
    query: Query, table: str, time: str, rows: Mapping[str, DataFrame], watermark: int, instant: Instant
) -> DataFrame:
    """The rows of `table` that results not final at `watermark` need. `rows`: the state rows of each stream.

    If the key columns of a session, or of rows that look back, are unknown, more rows than needed remain.
    """
    lasts = [last for last in query.lasts if table in last.streams]
    if any(last.rows is None or last.keys is None for last in lasts):
        return rows[table]
    for name, frame in rows.items():
        put_view(frame, name)
    session, since = rows[table].sparkSession, _since(query, watermark)
    needed = [] if since is None else [f"NOT ({time} < {instant(since, time)})"]
    needed += _of_sessions(session, query, table, time, watermark, instant, rows[table].schema)
    needed += _of_lasts(session, query.sql, lasts, time, watermark if since is None else since, instant)
    return session.sql(f"SELECT * FROM `{table}` WHERE {' OR '.join(needed)}")  # noqa: S608 - ours


def _since(query: Query, watermark: int) -> int | None:
    """An event time before which only windows that merge, and what looks back by rows, need anything."""
    others = [spec for spec in query.windows if not spec.merges]
    return needed_from(others, watermark) if others else None


def _of_sessions(
    session: SparkSession, query: Query, table: str, time: str, watermark: int, instant: Instant, kind: StructType
) -> Iterator[str]:
    for i, group in enumerate(query.sessions):
        if table in group.streams:
            view = f"{HIDDEN}open{i}"
            put_view(session.sql(group.open_since(query.sql, watermark, instant)), view)
            latest = instant(watermark, f"min({HIDDEN}since)")
            keys = comparable(group.keys, kind)
            yield _all_since(view, time, latest) if keys is None else _of_own(view, keys, time)


def comparable(keys: Sequence[str] | None, kind: StructType) -> Sequence[str] | None:
    """The keys, columns of this type; None if they are unknown, or one has a map: Spark groups by maps, and compares
    none."""
    maps = {field.name.lower() for field in kind if "map<" in field.dataType.simpleString()}
    return None if keys is None or any(key.lower() in maps for key in keys) else keys


def _all_since(view: str, time: str, latest: str) -> str:
    """Condition: rows from the start of the oldest open session on, and those from the watermark on.

    A row may come into no session before another one comes, such as its partner in a join on equal event times.
    """
    return f"{time} >= (SELECT least({latest}, min({HIDDEN}since)) FROM {view})"  # noqa: S608 - ours


def _of_lasts(
    session: SparkSession, sql: str, lasts: Sequence[Last], time: str, before: int, instant: Instant
) -> Iterator[str]:
    for i, last in enumerate(lasts):
        view = f"{HIDDEN}last{i}"
        put_view(session.sql(last.since(sql, before, instant)), view)
        yield _of_own(view, last.keys or (), time)


def _of_own(view: str, keys: Sequence[str], time: str) -> str:
    """Condition: rows from the time on that the view has for their key."""
    same = "".join(f" AND {HIDDEN}key{i} <=> {quoted(key)}" for i, key in enumerate(keys))
    return f"EXISTS (SELECT 1 FROM {view} WHERE {HIDDEN}since <= {time}{same})"  # noqa: S608 - ours
