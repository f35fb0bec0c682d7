"""Read a rule's state from its state tables, without a JVM."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.errors import Refused
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.datafiles import query
from floodmark.views.contents.openwindows import SLICES, state_table, still_needed, timed
from floodmark.views.contents.tablerows import committed, plain, quoted

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Process, Rule
    from floodmark.core.sql.state.collected import Collected
    from floodmark.core.sql.state.partials import Aggregated

TOTALS = "totals"  # the state table of a running aggregate
_HIDDEN = ("_newest", "_deleted", "_held")


@dataclass(frozen=True)
class StateTable:
    """A state table. `live`: the `FROM ...` of its live rows; `order`: of these; `what`: a name for them."""

    table: DeltaTable
    live: str
    order: str
    what: str


def state_of(rule: Rule, head: Head, root: Path) -> dict[str, StateTable]:
    """The state in each of a rule's state tables; missing tables are left out."""
    return state_in(rule, head, {name: state_table(rule, head, root, name) for name in state_tables(rule)})


def state_in(rule: Rule, head: Head, opened: Mapping[str, DeltaTable | None]) -> dict[str, StateTable]:
    """The state as of `head`, from state tables that hold at least that."""
    return {name: _state_table(rule, head, name, table) for name, table in opened.items() if table is not None}


def state_tables(rule: Rule) -> tuple[str, ...]:
    """Names of a rule's state tables."""
    if rule.rebuild:
        return ()
    if rule.process is not None:
        return (*rule.streams, *rule.process.tables)
    if rule.query.running is not None:
        return (TOTALS,)
    if rule.query.top is not None:
        return (rule.query.top.stream,)
    if rule.query.collected is not None:
        return (rule.query.collected.stream, rule.query.collected.held)
    if rule.query.windows and rule.slices is not None:
        return (SLICES, *timed(rule))  # input rows, if averages of decimals prevent slices
    return tuple(timed(rule)) if rule.query.windows else ()


def first_rows(one: StateTable, keys: Sequence[str], limit: int) -> tuple[int, list[dict[str, Any]], str]:
    """The number of rows, the first `limit` of them, and a name for them. `keys`: COLUMN=VALUE each."""
    live = f"FROM (SELECT * {one.live})"
    if keys:
        live += " WHERE " + " AND ".join(_equals(one.table, key) for key in keys)
    count = query(one.table, f"SELECT count(*) AS rows {live}")[0]["rows"]
    rows = query(one.table, f"SELECT * {live} ORDER BY {one.order} LIMIT {limit}")
    plain_rows = [{name: plain(value) for name, value in row.items() if name not in _HIDDEN} for row in rows]
    return count, plain_rows, one.what


def _equals(table: DeltaTable, key: str) -> str:
    name, equals, value = key.partition("=")
    if not equals:
        raise Refused(f"--key: expected COLUMN=VALUE, found {key}")
    text = value.replace("'", "''")
    return f"CAST({quoted(_spelt(table, name))} AS VARCHAR) = '{text}'"


def _state_table(rule: Rule, head: Head, name: str, table: DeltaTable) -> StateTable:
    if rule.process is not None and name in rule.process.tables:
        return _values(rule.process, head, name, table)
    if rule.query.running is not None:
        return _totals(rule.query.running, committed(head), table)
    if name == SLICES and rule.slices is not None:
        return _totals(rule.slices, still_needed(rule, head, name, table), table)
    collected = rule.query.collected
    if collected is not None and name == collected.held:
        return _held(collected, head, table)
    if rule.process is not None or collected is not None:
        return _waiting(rule, head, name, table)
    if rule.query.top is not None:
        what = f"rows of stream {name}, among them the first of each key"
        return StateTable(table, f"FROM t WHERE {committed(head)}", "_epoch", what)
    return StateTable(
        table, f"FROM t WHERE {still_needed(rule, head, name, table)}", "_epoch", f"rows of stream {name} kept"
    )


def _values(process: Process, head: Head, name: str, table: DeltaTable) -> StateTable:
    """The newest value of each key, in the order of the keys."""
    names = [_spelt(table, column) for column in process.key] + ([] if name in process.state else ["name"])
    by = ", ".join(map(quoted, names))
    rank = f"row_number() OVER (PARTITION BY {by} ORDER BY _epoch DESC) AS _newest"
    newest = f"SELECT *, {rank} FROM t WHERE {committed(head)}"  # noqa: S608 - all of it is ours
    live = f"FROM ({newest}) WHERE _newest = 1 AND NOT _deleted{_alive(process, head, name)}"
    return StateTable(table, live, by, f"values of {name}")


def _held(how: Collected, head: Head, table: DeltaTable) -> StateTable:
    """The rows of each key's open window."""
    by = ", ".join(quoted(_spelt(table, key)) for key in how.keys)
    rank = f"rank() OVER ({f'PARTITION BY {by} ' if by else ''}ORDER BY _epoch DESC) AS _newest"
    newest = f"SELECT *, {rank} FROM t WHERE {committed(head)}"  # noqa: S608 - all of it is ours
    live = f"FROM ({newest}) WHERE _newest = 1 AND _held"
    return StateTable(table, live, by or "_epoch", f"rows of stream {how.stream} in open windows")


def _totals(aggregated: Aggregated, needed: str, table: DeltaTable) -> StateTable:
    """The partial aggregates of each key, merged."""
    by = ", ".join(quoted(_spelt(table, key)) for key in aggregated.keys)
    merged = "".join(f", {p.merge}({quoted(p.name)}) AS {quoted(p.name)}" for p in aggregated.partials)
    live = f"FROM (SELECT {by}{merged} FROM t WHERE {needed} GROUP BY {by})"  # noqa: S608 - ours
    return StateTable(table, live, by, "keys with their partial aggregates")


def _waiting(rule: Rule, head: Head, name: str, table: DeltaTable) -> StateTable:
    """The rows of a stream that the watermark has not passed."""
    time = rule.streams[name].event_time
    assert time is not None
    column = quoted(_spelt(table, time.name))
    ahead = "" if head.watermark is None else f" AND CAST({column} AS BIGINT) >= {head.watermark}"
    return StateTable(table, f"FROM t WHERE {committed(head)}{ahead}", column, f"rows of stream {name} waiting")


def _alive(process: Process, head: Head, table: str) -> str:
    ttl = process.ttl_us.get(table)
    return "" if ttl is None or head.watermark is None else f" AND CAST(_at AS BIGINT) > {head.watermark - ttl}"


def _spelt(table: DeltaTable, name: str) -> str:
    columns = {column.lower(): column for column in tables.columns_of(table)}
    if name.lower() in columns:
        return columns[name.lower()]
    near = difflib.get_close_matches(name.lower(), columns, 1)
    hint = f"; did you mean {columns[near[0]]}?" if near else ""
    raise Refused(f"expected a column out of {', '.join(columns.values())}, found {name}{hint}")
