"""Which kept rows an open session still needs: no event time tells, only the rows themselves."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from floodmark.core.sql.bounds import HIDDEN, Group, quoted
from floodmark.core.sql.query import Query
from floodmark.core.windows import Instant, needed_from


def live_sessions(
    query: Query, table: str, time: str, rows: Mapping[str, DataFrame], watermark: int, instant: Instant
) -> DataFrame:
    """The rows of `table` that a session, or a window beside it, not final at `watermark` holds.

    `rows`: those kept of each stream. Where it is known which rows a session's keys are made of, those of its own are
    left; else all since the oldest open one began.
    """
    for name, frame in rows.items():
        frame.createOrReplaceTempView(name)
    session = rows[table].sparkSession
    needed = list(_of_windows(query, time, watermark, instant))
    for i, group in enumerate(query.sessions):
        if table in group.streams:
            session.sql(group.open_since(query.sql, watermark, instant)).createOrReplaceTempView(f"{HIDDEN}open{i}")
            needed.append(_of_own(group, i, time) if group.keys is not None else _of_all(i, time, watermark, instant))
    return session.sql(f"SELECT * FROM `{table}` WHERE {' OR '.join(needed)}")  # noqa: S608 - ours


def _of_windows(query: Query, time: str, watermark: int, instant: Instant) -> list[str]:
    others = [spec for spec in query.windows if spec.needed_from(watermark) is not None]
    since = needed_from(others, watermark) if others else None
    return [] if since is None else [f"NOT ({time} < {instant(since, time)})"]


def _of_own(group: Group, number: int, time: str) -> str:
    keys = "".join(f" AND {HIDDEN}key{i} <=> {quoted(key)}" for i, key in enumerate(group.keys or ()))
    return f"EXISTS (SELECT 1 FROM {HIDDEN}open{number} WHERE {HIDDEN}since <= {time}{keys})"  # noqa: S608 - ours


def _of_all(number: int, time: str, watermark: int, instant: Instant) -> str:
    latest = instant(watermark, f"min({HIDDEN}since)")
    return f"{time} >= (SELECT coalesce(min({HIDDEN}since), {latest}) FROM {HIDDEN}open{number})"  # noqa: S608 - ours
