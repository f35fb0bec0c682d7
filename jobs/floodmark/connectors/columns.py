"""The columns of its streams that a rule needs, and checks that the tables have them. No JVM."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from floodmark.core.sql.words.function_names import WINDOWING
from floodmark.core.text.tablenames import about_named
from floodmark.errors import SqlRefused, WrongColumn

if TYPE_CHECKING:
    from floodmark.core.rules.rule import EventTime, Process, Rule, Stream

# Types with unambiguous equality, allowed for keys.
KEY_TYPES = ("boolean", "tinyint", "smallint", "int", "bigint", "decimal", "string", "binary", "date", "timestamp",
             "timestamp_ntz")  # fmt: skip
_DELTA_NAMES = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
TIMES = ("timestamp", "timestamp_ntz")
# The expression that converts a column of another type to a time, by Delta type.
MAKES_TIME = {
    "string": "to_timestamp({})",
    "date": "cast({} AS timestamp)",
    "long": "timestamp_millis({})",
    "integer": "timestamp_seconds({})",
}


def needed(rule: Rule, name: str, found: Mapping[str, str]) -> list[str]:
    """Columns of stream `name` that the rule reads, in the table's order. `found`: the table's columns."""
    return list(found) if rule.query.star else named(rule, name, found)


def named(rule: Rule, name: str, found: Mapping[str, str]) -> list[str]:
    """The same without columns that only a `*` reads."""
    stream = rule.streams[name]
    words = set(rule.query.identifiers) | _words(stream.where)
    if stream.event_time:
        words |= _words(stream.event_time.expr or stream.event_time.name)
    return [column for column in found if column.lower() in words]


def with_checked_columns(rule: Rule, name: str, wanted: Collection[str], found: Mapping[str, str]) -> list[str]:
    """The `wanted` columns of stream `name` and those that its expectations read, in the table's order.

    Only the `wanted` ones are folded: expectations may change, but the columns of state may not.
    """
    words = {column.lower() for column in wanted}
    for one in rule.streams[name].expect.values():
        words |= _words(one.check)
    return [column for column in found if column.lower() in words]


def spoken_of(rule: Rule, name: str, found: Mapping[str, str]) -> list[str]:
    """Those of a stream's columns whose name the rule's text has: its SQL, its class's module, or an expectation."""
    text = rule.process.source if rule.process else None
    return with_checked_columns(rule, name, {*named(rule, name, found), *_words(text)}, found)


def _words(text: str | None) -> set[str]:
    quoted = (name.replace("``", "`") for name in re.findall(r"`((?:[^`]|``)+)`", text or ""))
    return {word.lower() for word in (*re.findall(r"\w+", text or ""), *quoted)}


def check_columns(rule: Rule, name: str, found: Mapping[str, str]) -> None:
    """Raise WrongColumn if stream `name` lacks a column that the rule needs, or has one that hides the SQL's window."""
    _check_event_time(name, rule.streams[name], found)
    _check_expectations(name, rule.streams[name], found)
    if rule.process is not None:
        _check_key(rule.process, name, rule.streams[name], found)
    refuse_window_column(rule, f"stream {name}", found)


def _check_expectations(name: str, stream: Stream, found: Mapping[str, str]) -> None:
    """Raise WrongColumn if a check reads a column that does not exist."""
    from floodmark.core.rules.expectations import unknown_column

    columns = [*found, *([stream.event_time.name] if stream.event_time else [])]
    for expectation, one in stream.expect.items():
        problem = unknown_column(one.check, columns, "stream")
        if problem is not None:
            raise WrongColumn(f"stream {name}: expect {expectation}: {problem}")


def refuse_window_column(rule: Rule, table: str, found: Mapping[str, str]) -> None:
    """Raise WrongColumn where a table has a column that hides the SQL's window."""
    hidden = WINDOWING & set(map(str.lower, found))
    if hidden and rule.query.windows:  # in this order: analysing the SQL takes long
        raise WrongColumn(
            f"{table}: expected no column named `{min(hidden)}`, because the window has that name; found "
            f"{', '.join(found)}: rename it in the table"
        )


def check_names(rule: Rule, found: Mapping[str, Iterable[str]]) -> None:
    """Raise SqlRefused if the SQL, or a stream's expression, reads a column that no table has.

    `found`: the columns of each stream and lookup table. This loads the SQL parser, which takes half a second.
    """
    from floodmark.core.sql.tree.unknown import unknown_column, unknown_in_expression

    columns = {name: [*found[name], *_made(rule.streams.get(name))] for name in found}
    for name, stream in rule.streams.items():
        for key, text in (("event_time", stream.event_time and stream.event_time.expr), ("where", stream.where)):
            missing = unknown_in_expression(text, columns[name]) if text else None
            if missing is not None:
                raise SqlRefused(f"stream {name}: {key}: {missing}")
    missing = unknown_column(rule.sql, [*dict.fromkeys(chain(*columns.values()))]) if rule.process is None else None
    if missing is not None:
        raise SqlRefused(f"rule {rule.rule}: {missing}")


def _made(stream: Stream | None) -> list[str]:
    """The column that an expression adds to those of the table."""
    time = stream.event_time if stream else None
    return [time.name] if time and time.expr else []


def is_key_type(kind: str) -> bool:
    """Whether equality of two values of the type (as Spark writes it) is unambiguous."""
    return kind.partition("(")[0] in KEY_TYPES


def _check_made_time(name: str, time: EventTime, found: Mapping[str, str]) -> None:
    """Raise WrongColumn if a column of the table has the name of the computed event time."""
    if time.name.lower() in map(str.lower, found):
        raise WrongColumn(
            f"stream {name}: event_time: expected a name that no column of the table has, found {time.name!r}: dead "
            f"rows keep the column as it came; name the time {time.name}_time, say, and use that in the SQL"
        )


def _check_key(process: Process, name: str, stream: Stream, found: Mapping[str, str]) -> None:
    """Raise WrongColumn if a key column is missing, or has a type that cannot be compared."""
    types = {column.lower(): _DELTA_NAMES.get(kind, kind) for column, kind in found.items()}
    if stream.event_time and stream.event_time.expr:
        types[stream.event_time.name.lower()] = "timestamp"
    for column in process.key:
        kind = types.get(column.lower())
        if kind is None:
            raise WrongColumn(f"stream {name}: expected the key column {column!r}, found columns {', '.join(found)}")
        if not is_key_type(kind):
            raise WrongColumn(
                f"stream {name}: expected key column {column!r} of one of the types {', '.join(KEY_TYPES)}, found "
                f"{kind}"
            )


def _check_event_time(name: str, stream: Stream, found: Mapping[str, str]) -> None:
    """Raise WrongColumn if the event time is missing or not a time; the message has the `expr` to write."""
    time = stream.event_time
    if time is None:
        return
    if time.expr is not None:
        return _check_made_time(name, time, found)
    types = {column.lower(): kind for column, kind in found.items()}
    kind = types.get(time.name.lower())
    if kind is None:
        raise WrongColumn(
            f"stream {name}: expected the event-time column {time.name!r}, found columns {', '.join(found)}"
        )
    if kind not in TIMES:
        made = MAKES_TIME.get(kind, "cast({} AS timestamp)").format(time.name)
        raise WrongColumn(
            f"stream {name}: expected event time {time.name!r} of type timestamp or timestamp_ntz, found {kind}; write "
            f"`event_time: {{name: {time.name}_time, expr: {made}}}` and use {time.name}_time in the SQL"
        )


def differing(sink: str, columns: Mapping[str, tuple[str | None, str | None]]) -> WrongColumn:
    """The error for a sink whose table has other columns. `columns`: what the table has of each, and the rule."""
    shown = "; ".join(f"{one}: table {has or 'none'}, rule {gives or 'none'}" for one, (has, gives) in columns.items())
    return WrongColumn(
        about_named(
            sink,
            f"the table's columns differ from the rule's ({shown}). Name another sink, change the SQL "
            "(`CAST(x AS TYPE) AS x` restores a column's type, `CAST(NULL AS TYPE) AS x` its place), or start over "
            "with `floodmark reset`",
        )
    )
