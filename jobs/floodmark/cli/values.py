"""What a class or a running aggregate keeps by key, read from the state tables without a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.cli.openwindows import state_table
from floodmark.cli.tablerows import committed, plain, quoted
from floodmark.ledger import tables
from floodmark.ledger.tables import query

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from floodmark.core.records import Head
    from floodmark.core.rules import Process, Rule
    from floodmark.core.sql.running import Running

TOTALS = "totals"  # the state table of a running aggregate
Found = tuple[int, list[dict[str, Any]]]


def values(rule: Rule, process: Process, head: Head, root: Path, table: str, limit: int) -> Found:
    """How many values a state table holds for its keys, and the first of them in the order of the keys."""
    opened = state_table(rule, head, root, table)
    if opened is None:
        return 0, []
    names = [_spelt(opened, name) for name in process.key] + ([] if table in process.state else ["name"])
    by = ", ".join(map(quoted, names))
    rank = f"row_number() OVER (PARTITION BY {by} ORDER BY _epoch DESC) AS _newest"
    newest = f"SELECT *, {rank} FROM t WHERE {committed(head)}"  # noqa: S608 - all of it is ours
    live = f"FROM ({newest}) WHERE _newest = 1 AND NOT _deleted{_alive(process, head, table)}"
    return _found(opened, live, by, limit)


def totals(rule: Rule, running: Running, head: Head, root: Path, limit: int) -> Found:
    """How many keys a running aggregate has, and the partial aggregates of the first of them."""
    opened = state_table(rule, head, root, TOTALS)
    if opened is None:
        return 0, []
    by = ", ".join(quoted(_spelt(opened, key)) for key in running.keys)
    merged = "".join(f", {p.merge}({quoted(p.name)}) AS {quoted(p.name)}" for p in running.partials)
    live = f"FROM (SELECT {by}{merged} FROM t WHERE {committed(head)} GROUP BY {by})"  # noqa: S608 - ours
    return _found(opened, live, by, limit)


def waiting(rule: Rule, head: Head, root: Path, stream: str, limit: int) -> Found:
    """How many rows of a stream the watermark has not passed, and the first of them."""
    opened, time = state_table(rule, head, root, stream), rule.streams[stream].event_time
    if opened is None or time is None:
        return 0, []
    column = quoted(_spelt(opened, time.name))
    ahead = "" if head.watermark is None else f" AND CAST({column} AS BIGINT) >= {head.watermark}"
    return _found(opened, f"FROM t WHERE {committed(head)}{ahead}", column, limit)


def _alive(process: Process, head: Head, table: str) -> str:
    ttl = process.ttl_us.get(table)
    return "" if ttl is None or head.watermark is None else f" AND CAST(_at AS BIGINT) > {head.watermark - ttl}"


def _spelt(table: DeltaTable, name: str) -> str:
    return next(column for column in tables.columns_of(table) if column.lower() == name.lower())


def _found(table: DeltaTable, live: str, order: str, limit: int) -> Found:
    count = query(table, f"SELECT count(*) AS rows {live}")[0]["rows"]
    rows = query(table, f"SELECT * {live} ORDER BY {order} LIMIT {limit}")
    hidden = ("_newest", "_deleted")
    return count, [{name: plain(value) for name, value in row.items() if name not in hidden} for row in rows]
