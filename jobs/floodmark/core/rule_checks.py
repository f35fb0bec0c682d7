"""What a single field cannot show: whether a rule's parts fit each other, and whether rules fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from floodmark.core.addresses import same_address, within
from floodmark.core.delivery import delivery
from floodmark.core.expectation_checks import expected
from floodmark.core.names import CHANGE_FEED, has_feed, of_feed, reserved
from floodmark.core.rule_file import UPSTREAM
from floodmark.core.rule_model import Process, Rule, Sink
from floodmark.core.sql import SqlAt
from floodmark.core.tableproperties import unfit_property
from floodmark.core.takings import STAMPS, appends_only
from floodmark.core.windows import WindowSpec
from floodmark.core.yamltree import Path as Field
from floodmark.errors import SqlRefused

if TYPE_CHECKING:
    from floodmark.core.sql import Query
    from floodmark.core.sql.running import Running
    from floodmark.core.sql.tops import Top

Problem = tuple[Field, str]


def check(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """Every problem of a rule whose fields are valid one by one: the field it concerns, and what is wrong."""
    yield from _names(rule)
    yield from _streams(rule)
    yield from _lookups(rule)
    yield from _late(rule)
    yield from _idle(rule)
    yield from _sinks(rule)
    yield from _upserts(rule)
    yield from _takings(rule)
    yield from _never_replaced(rule)
    yield from _growing(rule)
    yield from _epoch(rule)
    yield from _schedule(rule)
    yield from _freshness(rule)
    yield from expected(rule)
    found = list(_sql(rule) if rule.process is None else _process(rule, rule.process))
    yield from found
    if not found:
        yield from _rebuild(rule)
        yield from _rows_per_window(rule)


def _names(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """Names that Floodmark, Delta or Spark give to columns of their own."""
    for kind, names in (("streams", rule.streams), ("lookups", rule.lookups)):
        yield from (((kind, name), f"expected another name: {why}") for name, why in reserved(names))
    for name, stream in rule.streams.items():
        made = [stream.event_time.name] if stream.event_time else []
        for time, why in reserved(made):
            yield ("streams", name, "event_time"), f"expected another name than {time}: {why}"
    for field, text in [*_expressions(rule), *([(("sql",), rule.sql)] if rule.process is None else [])]:
        if (fault := _reserved_in(text)) is not None:
            yield field, fault
    if rule.process is not None:
        for column, why in reserved(_given_by(rule.process)):
            yield ("process",), f"output: expected another name than {column}: {why}; rename it in {rule.process.file}"


def _reserved_in(text: str) -> SqlAt | None:
    from floodmark.core.sql.naming import reserved_name

    try:
        return reserved_name(text)
    except SqlAt:  # no SQL at all, which others tell
        return None


def _given_by(process: Process) -> list[str]:
    from floodmark.core.ddl import columns_of

    return [column.name for column in columns_of(process.output)]


def _streams(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    for name, stream in rule.streams.items():
        for key, value in (("lateness", stream.lateness_us), ("max_ahead", stream.max_ahead_us)):
            if value is not None and stream.event_time is None:
                yield ("streams", name, key), f"expected `event_time` beside it: {key} is measured in event time"
        if stream.distinct is not None and stream.event_time is None:
            yield ("streams", name, "distinct"), "expected `event_time` beside it: a horizon is measured in event time"
        if stream.distinct is not None and rule.process is not None:
            yield (
                ("streams", name, "distinct"),
                "expected `sql` beside it; a class remembers what it has seen: get_state, put_state and a ttl",
            )
        expressions = {("where",): stream.where, ("event_time", "expr"): stream.event_time and stream.event_time.expr}
        for path, expression in expressions.items():
            if expression:
                yield from _expression(("streams", name, *path), expression)


def _lookups(rule: Rule) -> Iterator[Problem]:
    streams = {name.lower(): name for name in rule.streams}
    for name in rule.lookups:
        if name.lower() in streams:
            yield ("lookups", name), f"expected a name that no stream has, found that of stream {streams[name.lower()]}"
        if rule.process is not None:
            yield ("lookups", name), "expected `sql` beside it: for a class lookup tables are not there yet"


def _late(rule: Rule) -> Iterator[Problem]:
    if rule.late == "drop" and all(stream.lateness_us is None for stream in rule.streams.values()):
        yield ("late",), "expected a stream with `lateness` beside it: without one no row is late"


def _idle(rule: Rule) -> Iterator[Problem]:
    """A stream can be excused only where another one goes on, and something waits for the watermark."""
    timed = [name for name, stream in rule.streams.items() if stream.event_time and stream.lateness_us is not None]
    for name in (name for name, stream in rule.streams.items() if stream.idle_after_us is not None):
        if name not in timed:
            yield (
                ("streams", name, "idle_after"),
                "expected `event_time` and `lateness` beside it: else it is never waited for",
            )
        elif len(timed) < 2:
            yield (
                ("streams", name, "idle_after"),
                "expected another stream with `event_time` and `lateness`, found none: to close windows while all "
                "streams are silent there is `close_idle_after`, a key of the rule",
            )


def _expression(path: Field, expression: str) -> Iterator[tuple[Field, SqlAt]]:
    from floodmark.core.sql import analyse_expression

    try:
        analyse_expression(expression, clock=path[-1] == "expr")
    except SqlAt as error:
        yield path, error


def check_expressions(rule: Rule) -> None:
    """Raise SqlRefused for an expression over rows that is not allowed, as `query` does for the SQL.

    For rules out of a ledger: these checks may be newer than the row is.
    """
    for path, expression in _expressions(rule):
        for field, problem in _expression(path, expression):
            raise SqlRefused(f"rule {rule.rule}: {'.'.join(map(str, field))}: {problem}")


def _expressions(rule: Rule) -> Iterator[tuple[Field, str]]:
    for name, stream in rule.streams.items():
        at = ("streams", name)
        yield from (((*at, "expect", key), one.check) for key, one in stream.expect.items())
        if stream.where:
            yield (*at, "where"), stream.where
        if stream.event_time and stream.event_time.expr:
            yield (*at, "event_time", "expr"), stream.event_time.expr
    for i, sink in enumerate(rule.sinks):
        texts = {"where": sink.where, "delete": sink.delete}
        yield from ((("sinks", i, key), text) for key, text in texts.items() if text)
    yield from ((("expect", key), one.check) for key, one in rule.expect.items())


def _upserts(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    for i, sink in enumerate(rule.sinks):
        for key, value in (("newest", sink.newest), ("delete", sink.delete)):
            if value is not None and not sink.key:
                yield ("sinks", i, key), f"expected `key` beside it: {key} is about the rows of one key"
        if sink.key and sink.kind != "delta":
            yield ("sinks", i, "key"), f"expected a delta sink, for only a table can be merged into; found {sink.kind}"
        if sink.newest is not None and sink.delete is not None:
            yield (
                ("sinks", i, "delete"),
                "expected `newest` or `delete`, found both: a row that was taken away would leave nothing to tell how "
                "new it was",
            )
        if sink.newest is not None and sink.where is not None:
            yield (
                ("sinks", i, "where"),
                "expected `newest` or `where`, found both: a row that is not the sink's any more would leave nothing "
                "to tell how new it was; if only such rows count, write the condition into the SQL's WHERE",
            )
        if sink.delete:
            yield from _expression(("sinks", i, "delete"), sink.delete)


def _takings(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """What a sink takes of the results, and how its table is laid out."""
    for i, sink in enumerate(rule.sinks):
        of_a_table = {
            "properties": sink.properties,
            "partition_by": sink.partition_by,
            "cluster_by": sink.cluster_by,
            "schema": sink.adds_columns,
            "epoch_columns": sink.epoch_columns,
        }
        for key in (key for key, given in of_a_table.items() if given and sink.kind != "delta"):
            yield ("sinks", i, key), f"expected a delta sink, for only a table has any; found {sink.kind}"
        yield from _properties(i, sink)
        yield from _feed(rule, i, sink)
        yield from _stamped(rule, i, sink)
        if sink.partition_by and sink.cluster_by:
            yield (
                ("sinks", i, "cluster_by"),
                "expected `partition_by` or `cluster_by`, found both: Delta lays a table out by one of them",
            )
        if sink.where:
            yield from _expression(("sinks", i, "where"), sink.where)
        yield from _left_out(i, sink)


def _properties(place: int, sink: Sink) -> Iterator[Problem]:
    for name, value in sink.properties.items():
        if why := unfit_property(name, value):
            yield ("sinks", place, "properties", name), f"expected no {name} of a sink: {why}"
        if (twin := next(one for one in sink.properties if one.lower() == name.lower())) != name:
            yield ("sinks", place, "properties", name), f"expected one property of that name, found {twin}, too"


def _feed(rule: Rule, place: int, sink: Sink) -> Iterator[Problem]:
    """Columns whose names the change feed of the sink's table has for its own."""
    for name in of_feed(sink.columns or _results(rule)) if has_feed(sink.properties) else ():
        yield (
            ("sinks", place, "properties"),
            f"expected no column {name} beside {CHANGE_FEED}, for the table's change feed adds one of that name; name "
            "it otherwise in the SQL, with AS",
        )


def _stamped(rule: Rule, place: int, sink: Sink) -> Iterator[Problem]:
    taken = [name for name in (_results(rule) if sink.epoch_columns else ()) if name.lower() in STAMPS]
    if taken:
        yield (
            ("sinks", place, "epoch_columns"),
            f"expected a result without {' and '.join(taken)}, for the sink gets {' and '.join(STAMPS)}: name it "
            "otherwise in the SQL, with AS",
        )


def _results(rule: Rule) -> list[str]:
    """The columns of the result, as far as the text tells them."""
    from floodmark.core.sql.query import output_columns

    if rule.process is not None:
        return _given_by(rule.process)
    try:
        return output_columns(rule.sql, rule.event_times, rule.lookups.keys()) or []
    except SqlAt:  # told by `_sql`
        return []


def _never_replaced(rule: Rule) -> Iterator[Problem]:
    """A table that only grows takes neither a newer row of a key nor other rows for all of them."""
    for i, sink in enumerate(rule.sinks):
        if (sink.key or rule.rebuild) and (name := appends_only(sink.properties)):
            why = "a sink with `key`" if sink.key else "a rule that each run rebuilds"
            yield ("sinks", i, "properties"), f"expected no {name} of {why}, for its rows are replaced; take it out"


def _left_out(place: int, sink: Sink) -> Iterator[Problem]:
    """Columns that the table needs must be among those that it has; where it has all, only Spark knows them."""
    there = {name.lower() for name in sink.columns} | (set(STAMPS) if sink.epoch_columns else set())
    needed = {
        "key": sink.key,
        "newest": (sink.newest,) if sink.newest else (),
        "partition_by": sink.partition_by,
        "cluster_by": sink.cluster_by,
    }
    for key, names in needed.items() if sink.columns else ():
        for name in (name for name in names if name.lower() not in there):
            yield ("sinks", place, key), f"expected columns out of `columns`, found {name}: add it to `columns`"
    if sink.columns and {name.lower() for name in sink.partition_by} == there:
        yield ("sinks", place, "partition_by"), "expected a column beside those of partition_by, found none"


def _growing(rule: Rule) -> Iterator[Problem]:
    """Columns that the results gain reach the sinks that ask for them, and no other."""
    growing = [i for i, sink in enumerate(rule.sinks) if sink.adds_columns]
    if not growing:
        return
    if rule.process is not None:
        yield ("sinks", growing[0], "schema"), "expected `fail` beside `process`: the class says which columns it gives"
        return
    if any(stream.distinct for stream in rule.streams.values()) or _is_stateful(rule):
        yield (
            ("sinks", growing[0], "schema"),
            "expected `fail`, or SQL without state: what this rule keeps of older rows has not the new columns. "
            "Begin anew with `floodmark reset` to take them in",
        )
    for i, sink in enumerate(rule.sinks):
        if sink.kind == "delta" and not sink.adds_columns and not sink.columns:
            yield (
                ("sinks", i),
                f"expected `schema: add_columns` as sink {growing[0] + 1} has it, or `columns`, found neither: a "
                "column that the results gain would have no place here",
            )


def _sinks(rule: Rule) -> Iterator[Problem]:
    named = [sink.name for sink in rule.sinks if sink.name]
    for i, sink in enumerate(rule.sinks):
        if sink.name and named.count(sink.name) > 1:
            yield ("sinks", i, "name"), f"expected a name that no other sink of the rule has, found {sink.name}"
        if sink.qos > rule.qos:
            yield (
                ("sinks", i, "qos"),
                f"expected at most the rule's qos {rule.qos}, found {sink.qos}: lower it, or raise that of the rule",
            )
        for j, earlier in enumerate(rule.sinks[:i]):
            if sink.address and earlier.address and same_address(sink.address, earlier.address):
                yield (
                    ("sinks", i, sink.kind),
                    f"expected another address than that of sink {j + 1}, found {sink.address}: leave one of them out",
                )
            elif sink.address and earlier.address and _nested(sink.address, earlier.address):
                yield ("sinks", i, sink.kind), _beside(f"sink {j + 1}", sink.address)
        for name, address in _inputs(rule).items():
            if sink.address and same_address(sink.address, address):
                yield (
                    ("sinks", i, sink.kind),
                    f"expected another address than that of {name}, found {sink.address}: a rule cannot write what it "
                    "reads; give the sink a table of its own",
                )
            elif sink.address and _nested(sink.address, address):
                yield ("sinks", i, sink.kind), _beside(name, sink.address)
    for i, one in enumerate(delivery(rule)):
        if one.fix is not None and rule.sinks[i].qos <= rule.qos and one.refused:
            yield (
                ("sinks", i),
                f"expected a sink that can do {one.wanted} (qos {rule.sinks[i].qos}), found {one.sink}: {one.fix}",
            )


def _nested(one: str, other: str) -> bool:
    return within(one, other) or within(other, one)


def _beside(name: str, found: str) -> str:
    return (
        f"expected an address beside that of {name}, found {found}: a table inside another would lose its files to the "
        "other's clean-up"
    )


def _inputs(rule: Rule) -> dict[str, str]:
    """The addresses that it reads."""
    streams = {f"stream {name}": stream.address for name, stream in rule.streams.items()}
    return {**streams, **{f"lookup {name}": lookup.address for name, lookup in rule.lookups.items()}}


def _is_stateful(rule: Rule) -> bool:
    try:
        return rule.query.stateful
    except SqlAt:  # told by `_sql`
        return False


def _epoch(rule: Rule) -> Iterator[Problem]:
    if rule.epoch.max_rows is not None and any(stream.kind == "delta" for stream in rule.streams.values()):
        yield ("epoch", "max_rows"), "Delta streams cannot count rows before they read them: use max_files or max_bytes"


_REPLACED = "expected no `key` beside `rebuild: true`: each run replaces the whole table"
_AT_ONCE = "beside `rebuild: true`: each run reads everything at once, and keeps nothing for the next one"
ROWS_PER_WINDOW: Field = ("max_rows_per_window",)


def _rebuild(rule: Rule) -> Iterator[Problem]:
    """Where everything is read again at once nothing is kept, so nothing can hang on what was before."""
    if not rule.rebuild:
        return
    for i, sink in enumerate(rule.sinks):
        if sink.key:
            yield ("sinks", i, "key"), f"{_REPLACED}, found {', '.join(sink.key)}"
    for name, stream in rule.streams.items():
        if stream.start == "latest":
            yield ("streams", name, "start"), "expected earliest, a version or a time: each run would read nothing"
        if stream.idle_after_us is not None:
            yield ("streams", name, "idle_after"), f"expected none {_AT_ONCE}"
    if rule.amend_us is not None:
        yield ("late",), f"expected no {{amend: ...}} {_AT_ONCE}, so no row is late"
    if rule.close_idle_after_us is not None:
        yield ("close_idle_after",), f"expected none {_AT_ONCE}; `run --close-until T` closes windows"
    if rule.process is not None and rule.process.clock_timers:
        yield ("process",), f"expected a class without clock timers {_AT_ONCE}"


def _rows_per_window(rule: Rule) -> Iterator[Problem]:
    if rule.max_rows_per_window is None:
        return
    windows = () if rule.process is not None else rule.query.windows
    if not windows or not all(isinstance(one, WindowSpec) for one in windows):
        yield (
            ROWS_PER_WINDOW,
            "expected SQL with windows of fixed sizes, `window(...)`, and no others: of a row alone nothing else tells "
            "which window it is in",
        )
    elif rule.windows == "slices":
        yield ROWS_PER_WINDOW, "expected `windows: rows` beside it: slices do not tell how many rows are in a window"


def _schedule(rule: Rule) -> Iterator[Problem]:
    from croniter import croniter  # type: ignore[import-untyped]  # what Airflow reads schedules with

    if rule.schedule == UPSTREAM:
        if all(stream.rule is None for stream in rule.streams.values()):
            yield (
                ("schedule",),
                "expected a stream that names the rule it reads (`rule: NAME`) beside `upstream`, found none: name "
                "one, or give {assets: [uri]} or cron",
            )
    elif not isinstance(rule.schedule, str) or rule.schedule.startswith("@"):
        return
    elif not croniter.is_valid(rule.schedule):
        yield (
            ("schedule",),
            (
                "expected cron with five fields (minute, hour, day of month, month, day of week), each within its "
                f"bounds, such as '*/5 * * * *', found {rule.schedule!r}"
            ),
        )
    elif not _ever(rule.schedule):
        yield ("schedule",), f"expected cron with days that there are in its months, found {rule.schedule!r}"


def _ever(cron: str) -> bool:
    """Whether it has a moment before and after any day; Airflow asks for both."""
    from croniter import CroniterBadDateError, croniter

    try:
        for look in (croniter.get_next, croniter.get_prev):
            look(croniter(cron, datetime(2024, 1, 1)))
    except CroniterBadDateError:
        return False
    return True


def _freshness(rule: Rule) -> Iterator[Problem]:
    if rule.freshness is None:
        return
    if rule.freshness.max_lag_us is not None and not any(stream.event_time for stream in rule.streams.values()):
        yield ("freshness", "max_lag"), "expected a stream with `event_time` beside it: lag is measured in event time"
    if rule.freshness.max_late_percent is not None and all(s.lateness_us is None for s in rule.streams.values()):
        yield ("freshness", "max_late"), "expected a stream with `lateness` beside it: without one no row is late"


def _process(rule: Rule, process: Process) -> Iterator[Problem]:
    if rule.amend_us is not None:
        yield ("late",), "expected keep or drop beside `process`: what a class has done is not amended"
    if rule.close_idle_after_us is not None:
        yield ("close_idle_after",), "expected `sql` with a window beside it: for a class it is not there yet"
    for name, stream in rule.streams.items():
        if stream.event_time is None or stream.lateness_us is None:
            yield (
                ("streams", name),
                "expected `event_time` and `lateness` (a duration such as 30 minutes; 0 seconds where rows come in "
                "order): a class gets its rows in the order of event time, once no earlier one can come",
            )
        if name.lower() in map(str.lower, process.tables):
            yield ("process",), f"expected names of state that no stream has, found {name}: rename it in {process.file}"
    yield from _key(process)
    if rule.qos == 2:
        yield from _unstable(process)


def _key(process: Process) -> Iterator[Problem]:
    from floodmark.core.ddl import columns_of
    from floodmark.core.process.reading import OWN_COLUMNS

    key = {name.lower(): name for name in process.key}
    taken = [name for column, name in key.items() if column in OWN_COLUMNS or column.startswith("_")]
    if taken:
        yield ("key",), f"expected columns without a leading _ and none of {', '.join(OWN_COLUMNS)}, found {taken[0]}"
    for state, ddl in process.state.items():
        for column in (column.name for column in columns_of(ddl) if column.name.lower() in key):
            yield ("process",), f"state[{state!r}]: expected columns beside those of the key, found {column}: rename it"


def _unstable(process: Process) -> Iterator[Problem]:
    from floodmark.core.process.stable import unstable

    yield from ((("process",), problem) for problem in unstable(process.source, process.file))


def _sql(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
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
    yield from _unbounded(rule, query)
    yield from _windows(rule, query)
    yield from _amending(rule)
    if rule.close_idle_after_us is not None and not (query.windows or query.collected):
        yield ("close_idle_after",), "expected a window or a JOIN in the SQL beside it: nothing else waits to be closed"
    if not (query.windows or query.collected):
        yield from _needless(rule)
        return
    for name in query.streams:
        if rule.streams[name].lateness_us is None:
            yield (
                ("streams", name),
                "expected `lateness` (a duration such as 30 minutes; 0 seconds where rows come in order): "
                "a window can only close when it is known how late rows may come",
            )


def _needless(rule: Rule) -> Iterator[Problem]:
    """What says how long to wait, where nothing waits."""
    for name in (name for name, stream in rule.streams.items() if stream.idle_after_us is not None):
        yield (
            ("streams", name, "idle_after"),
            "expected a window or a JOIN in the SQL beside it: nothing else waits for the watermark",
        )


def _windows(rule: Rule, query: Query) -> Iterator[tuple[Field, str | SqlAt]]:
    if rule.windows is not None and not query.windows:
        yield ("windows",), "expected a window(...) in the SQL beside it: it says how windows are kept"
    elif rule.windows == "slices":
        try:
            if rule.slices is None and rule.max_rows_per_window is None:
                yield ("windows",), "expected windows of one size for `slices`, found others; leave it out"
        except SqlAt as error:
            yield ("windows",), f"`slices` cannot be: {error}"


def _unbounded(rule: Rule, query: Query) -> Iterator[Problem]:
    """State that grows with every new key is what the rule's author has asked for, or it is not kept."""
    if rule.unbounded and not (query.running or query.top or query.collected or query.lasts):
        yield (
            ("unbounded",),
            "expected a GROUP BY without a window, an OVER by rows or a JOIN without a bound beside it: no other state "
            "grows without bound",
        )
    if query.top is not None:
        yield from _tops(rule, query.top)
    if query.collected is not None and not rule.unbounded:
        yield (
            ("sql",),
            f"{query.collected.name} keeps the rows of every key's open window, however long it stays open: say that "
            "it may with `unbounded: true`, or group by window(...)",
        )
    if query.lasts and not rule.unbounded:
        kept = "every row" if any(last.rows is None for last in query.lasts) else "the last rows of every key"
        yield (
            ("sql",),
            f"OVER by rows keeps {kept}, for ever: bound it by event time (RANGE BETWEEN INTERVAL ... PRECEDING AND "
            "CURRENT ROW) or by a window, or say that it may with `unbounded: true`",
        )
    if query.running is not None and not rule.unbounded:
        yield (
            ("sql",),
            "GROUP BY without a window keeps a row for every key, for ever: add a window(...) over the event time, or "
            "say that it may with `unbounded: true`",
        )
    elif query.running is not None:
        yield from _totals(rule, query.running)


def _tops(rule: Rule, top: Top) -> Iterator[Problem]:
    """A row that comes to a place of a key takes that of the row before it: a sink must know it by key and place."""
    if not rule.unbounded:
        yield (
            ("sql",),
            f"row_number() by an order of its own keeps {top.rows} rows of every key, for ever: put a window among its "
            "PARTITION BY, or say that it may with `unbounded: true`",
        )
    needed = [*zip(top.keys, top.outputs, strict=True), *([("row_number()", top.place)] if top.rows > 1 else [])]
    yield from _known_by(rule, needed, "every column of the PARTITION BY, and the place,")


def _amending(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """A result that is amended takes the place of the one before: a sink must know it by window and key."""
    from floodmark.core.sql.amending import amended_of

    if rule.amend_us is None:
        return
    if rule.windows == "slices":
        yield ("windows",), "expected `rows` or nothing: with `late: {amend: ...}` windows are kept by their rows"
    if any(stream.distinct for stream in rule.streams.values()):
        yield (
            ("late",),
            "expected no `distinct` beside {amend: ...}: a late row would make rows that were read duplicates",
        )
    try:
        needed = amended_of(rule.sql, rule.event_times, rule.lookups.keys())
    except SqlAt as error:
        yield ("sql",), error
        return
    yield from _known_by(rule, needed, "the window and every column of the GROUP BY")


def _totals(rule: Rule, running: Running) -> Iterator[Problem]:
    """Each epoch's totals take the place of those before: a sink must know a result by the columns of the GROUP BY."""
    yield from _known_by(rule, list(zip(running.keys, running.outputs, strict=True)), "every column of the GROUP BY")


def _known_by(rule: Rule, needed: list[tuple[str, str | None]], what: str) -> Iterator[Problem]:
    """The sinks' keys must be these columns, each by the name under which the result shows it."""
    if rule.rebuild:  # a result is never replaced by that of a later epoch
        return
    hidden = [key for key, name in needed if name is None]
    if hidden:
        yield ("sql",), f"expected {what} in the SELECT, for the sinks' key; add {hidden[0]}"
        return
    shown = {str(name).lower() for _, name in needed}
    for i, sink in enumerate(rule.sinks):
        if sink.kind != "console" and {name.lower() for name in sink.key} != shown:
            found = f"key: [{', '.join(sink.key)}]" if sink.key else "none"
            yield ("sinks", i), f"expected `key: [{', '.join(sorted(shown))}]`, {what}, found {found}"
        if sink.newest is not None:
            yield ("sinks", i, "newest"), "expected no `newest`: of a key's results the last is always the one to stay"
