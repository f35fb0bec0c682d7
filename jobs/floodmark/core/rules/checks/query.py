"""Checks a rule's SQL: whether it can be folded, and how its state would grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floodmark.core.rules.checks.columns import Problem
from floodmark.core.rules.kinds import sink_can
from floodmark.core.rules.model import Rule
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt

if TYPE_CHECKING:
    from floodmark.core.sql import Query
    from floodmark.core.sql.state.running import Running
    from floodmark.core.sql.state.tops import Top


def check_sql(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    try:
        query = rule.query
    except SqlAt as error:
        yield ("sql",), error
        return
    if query.fault is not None:
        yield ("sql",), query.fault
    for name in rule.streams:
        if name not in query.streams:
            yield ("streams", name), f"expected a stream that the SQL reads, found {name}: read it or remove it"
    for name in rule.lookups:
        if name not in query.lookups:
            yield ("lookups", name), f"expected a lookup table that the SQL reads, found {name}: read it or remove it"
    yield from _moved(rule, query)
    yield from _unbounded(rule, query)
    yield from _windows(rule, query)
    yield from _amending(rule)
    if rule.close_idle_after_us is not None and not (query.windows or query.collected):
        yield ("close_idle_after",), "expected a window or a JOIN in the SQL: nothing else waits to be closed"
    if not (query.windows or query.collected):
        yield from _needless(rule)
        return
    for name in query.streams:
        if rule.streams[name].lateness_us is None:
            yield (
                ("streams", name),
                "expected `lateness` (a duration such as 30 minutes; 0 seconds if rows come in order): a window can "
                "only close if the rule says how late rows may be",
            )


def _needless(rule: Rule) -> Iterator[Problem]:
    """Report keys that say how long to wait, in a rule where nothing waits."""
    for name in (name for name, stream in rule.streams.items() if stream.idle_after_us is not None):
        yield (
            ("streams", name, "idle_after"),
            "expected a window or a JOIN in the SQL: nothing else waits for the watermark",
        )


def _moved(rule: Rule, query: Query) -> Iterator[Problem]:
    """Report lookup tables that decide when a row's results become final: by a newer version of the table, rows of
    results that were written would be in others. A row that meets a table's history by its event time meets the same
    version in each epoch."""
    from floodmark.core.sql.asof import undated

    for cuts, problem in ((query.sessions, _session_problem), (query.full_joins, _full_join_problem)):
        decided = sorted(frozenset().union(*(cut.decided_by for cut in cuts)))
        dated = {"_valid_from", "_valid_to"} <= query.identifiers
        apart = undated(rule.sql, rule.event_times, rule.lookups) if decided and dated else {}
        name = next((name for name in decided if name in apart or not (dated and rule.lookups[name].history)), None)
        if name is not None and not rule.rebuild:
            yield ("sql",), problem(rule, name)


def _session_problem(rule: Rule, name: str) -> str:
    return (
        f"session_window over lookup table {name}: expected sessions that no lookup table decides. Each epoch may "
        f"read another version of {name}, by which a row is counted in two sessions, or in none. Join {name} in a "
        "second rule, and build sessions over its sink. Or write LEFT JOIN in the SELECT of the session_window, "
        "and in its WHERE, GROUP BY and joins of streams only columns of streams, with the stream's name (s.k)"
        f"{_other_ways(rule, name)}"
    )


def _full_join_problem(rule: Rule, name: str) -> str:
    return (
        f"FULL JOIN below which lookup table {name} decides which rows find a partner: each epoch may read another "
        f"version of {name}, by which a row is written without its partner and with it, or not at all. Join {name} "
        f"above the FULL JOIN: FROM (SELECT ... FULL JOIN ...) j JOIN {name} ON ... Or write LEFT JOIN {name} below "
        "it, and name in the WHERE there, and for the columns that the ON compares, only columns of streams, with the "
        f"stream's name (s.k), and no OVER{_other_ways(rule, name)}"
    )


def _other_ways(rule: Rule, name: str) -> str:
    """The way out by a table's history, where it has one, and what each way takes."""
    dated = (
        f". Or join the history of {name} by the stream's unchanged event time: s.at >= {name}._valid_from AND s.at < "
        f"{name}._valid_to"
    )
    reset = ". A rule that has run with other SQL needs `floodmark reset` after any of these edits"
    return f"{dated if rule.lookups[name].history else ''}{reset}"


def _windows(rule: Rule, query: Query) -> Iterator[tuple[Field, str | SqlAt]]:
    if rule.windows is not None and not query.windows:
        yield ("windows",), "expected a window(...) in the SQL: this key says how windows are stored"
    elif rule.windows == "slices":
        try:
            if rule.slices is None and rule.max_rows_per_window is None:
                yield ("windows",), "expected windows of one size for `slices`, found others; remove it"
        except SqlAt as error:
            yield ("windows",), f"`slices` cannot be: {error}"


def _unbounded(rule: Rule, query: Query) -> Iterator[Problem]:
    """Report state that grows with every new key, unless the rule says `unbounded: true`."""
    if rule.unbounded and not (query.running or query.top or query.collected or query.lasts):
        yield (
            ("unbounded",),
            "expected a GROUP BY without a window, an OVER by rows or a JOIN without a bound in the SQL: no other "
            "state grows without bound",
        )
    if query.top is not None:
        yield from _tops(rule, query.top)
    if query.collected is not None and not rule.unbounded:
        yield (
            ("sql",),
            f"{query.collected.name} keeps the rows of every key's open window, however long it stays open: allow it "
            "with `unbounded: true`, or group by window(...)",
        )
    if query.lasts and not rule.unbounded:
        kept = "every row" if any(last.rows is None for last in query.lasts) else "the last rows of every key"
        yield (
            ("sql",),
            f"OVER by rows keeps {kept} forever: bound it by event time (RANGE BETWEEN INTERVAL ... PRECEDING AND "
            "CURRENT ROW) or by a window, or allow it with `unbounded: true`",
        )
    if query.running is not None and not rule.unbounded:
        yield (
            ("sql",),
            "GROUP BY without a window keeps a row for every key forever: add a window(...) over the event time, or "
            "allow it with `unbounded: true`",
        )
    elif query.running is not None:
        yield from _totals(rule, query.running)


def _tops(rule: Rule, top: Top) -> Iterator[Problem]:
    """Check the sinks' keys: a row replaces the row before it at its key and place, so sinks need both as key."""
    if not rule.unbounded:
        yield (
            ("sql",),
            f"row_number() by an order of its own keeps {top.rows} rows of every key forever: add a window to its "
            "PARTITION BY, or allow it with `unbounded: true`",
        )
    needed, what = list(zip(top.keys, top.outputs, strict=True)), "every column of the PARTITION BY"
    if top.rows > 1:
        needed, what = [*needed, ("row_number()", top.place)], f"{what} and the place"
    yield from _known_by(rule, needed, what)


def _amending(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """Check that sinks identify results by window and key, because an amended result replaces the one before."""
    from floodmark.core.sql.state.amending import amended_of

    if rule.amend_us is None:
        return
    if rule.windows == "slices":
        yield ("windows",), "expected `rows` or nothing: with `late: {amend: ...}`, windows are stored as rows"
    if any(stream.distinct for stream in rule.streams.values()):
        yield (
            ("late",),
            "expected no `distinct` beside {amend: ...}: a late row would turn rows that were already read into "
            "duplicates",
        )
    try:
        needed = amended_of(rule.sql, rule.event_times, rule.lookups.keys())
    except SqlAt as error:
        yield ("sql",), error
        return
    yield from _known_by(rule, needed, "the window and every column of the GROUP BY")


def _totals(rule: Rule, running: Running) -> Iterator[Problem]:
    """Check the sinks' keys: each epoch's totals replace those before, so a key needs the columns of the GROUP BY."""
    yield from _known_by(rule, list(zip(running.keys, running.outputs, strict=True)), "every column of the GROUP BY")


def _known_by(rule: Rule, needed: list[tuple[str, str | None]], what: str) -> Iterator[Problem]:
    """Report sinks whose key is not these columns, each by the name under which the result shows it."""
    if rule.rebuild:  # a result is never replaced by that of a later epoch
        return
    hidden = [key for key, name in needed if name is None]
    if hidden:
        yield ("sql",), f"expected {what} in the SELECT for the sinks' key; add {hidden[0]}"
        return
    shown = {str(name).lower() for _, name in needed}
    for i, sink in enumerate(rule.sinks):
        if sink_can(sink.kind).stores_rows and {name.lower() for name in sink.key} != shown:
            found = f"key: [{', '.join(sink.key)}]" if sink.key else "none"
            yield ("sinks", i), f"expected `key: [{', '.join(sorted(shown))}]`, {what}, found {found}"
        if sink.newest is not None:
            yield ("sinks", i, "newest"), "expected no `newest`: of a key's results the last is always the one to stay"
