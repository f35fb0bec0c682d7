"""Checks names and SQL expressions that a rule file has beside its SQL."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.rules.model import Process, Rule
from floodmark.core.sql.tree.names import reserved
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt, SqlRefused

Problem = tuple[Field, str]


def check_names(rule: Rule) -> Iterator[tuple[Field, str | SqlAt]]:
    """Report names that Floodmark, Delta or Spark use for columns of their own."""
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
        for column, why in reserved(given_by(rule.process)):
            yield ("process",), f"output: expected another name than {column}: {why}; rename it in {rule.process.file}"


def _reserved_in(text: str) -> SqlAt | None:
    from floodmark.core.sql.tree.resultnames import reserved_name

    try:
        return reserved_name(text)
    except SqlAt:  # no SQL at all; other checks report it
        return None


def given_by(process: Process) -> list[str]:
    from floodmark.core.text.ddl import columns_of

    return [column.name for column in columns_of(process.output)]


def check_expression(path: Field, expression: str) -> Iterator[tuple[Field, SqlAt]]:
    from floodmark.core.sql import analyse_expression

    try:
        analyse_expression(expression, clock=path[-1] == "expr")
    except SqlAt as error:
        yield path, error


def check_expressions(rule: Rule) -> None:
    """Raise SqlRefused for an expression over rows that is not allowed, as `query` does for the SQL.

    For rules from a ledger: these checks may be newer than the row is.
    """
    for path, expression in _expressions(rule):
        for field, problem in check_expression(path, expression):
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
