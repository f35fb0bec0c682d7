"""Checks, as far as the text shows, whether a rule's expectations can be evaluated and their actions be done."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from floodmark.core.rules.model import Expectation, Rule
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import SqlAt

Problem = tuple[Field, str | SqlAt]
OF_ONE_ROW = "a check is a condition on one row by itself"
DEAD_RESULT = (
    "expected fail, drop or warn: a result is not a row of a stream, so there would be nothing to replay; write the "
    "check over the input, in the `expect` of its stream, with `on_fail: dead`"
)


def expected(rule: Rule) -> Iterator[Problem]:
    """Every problem of its expectations: the field that it concerns, and what is wrong."""
    for name, stream in rule.streams.items():
        yield from _conditions(("streams", name, "expect"), stream.expect, None, "stream")
    yield from _conditions(("expect",), rule.expect, _results(rule) if rule.expect else None, "result")
    for name, one in rule.expect.items():
        if one.on_fail == "dead":
            yield ("expect", name, "on_fail"), DEAD_RESULT
        elif one.on_fail == "drop" and replaced(rule):
            yield ("expect", name, "on_fail"), _replaced(one.check)


def replaced(rule: Rule) -> bool:
    """Whether a result replaces an earlier one, which would stay if the new one were left out.

    If each run replaces the whole table, none stays.
    """
    if rule.process is not None or rule.rebuild:
        return False
    return rule.amend_us is not None or _totals(rule)


def _totals(rule: Rule) -> bool:
    try:
        return rule.query.running is not None or rule.query.top is not None
    except SqlAt:  # reported for the SQL
        return False


def _replaced(check: str) -> str:
    gone = f"not coalesce({' '.join(check.split())}, false)"
    return (
        "expected fail or warn: a result of this rule replaces the previous one, which would stay if the new one "
        f"were dropped. To keep neither, write `delete: {gone}` on the sink"
    )


def _conditions(
    at: Field, expect: Mapping[str, Expectation], columns: Collection[str] | None, what: str
) -> Iterator[Problem]:
    """Check each condition; `columns`: those that exist, None if unknown here."""
    from floodmark.core.sql import analyse_expression

    for name, one in expect.items():
        field = (*at, name, "check")
        try:
            analyse_expression(one.check)
            problem = unknown_column(one.check, columns, what)
        except SqlAt as fault:
            yield field, SqlAt(f"{fault.problem}; {OF_ONE_ROW}", fault.line, fault.column)
        else:
            if problem is not None:
                yield field, problem


def unknown_column(check: str, columns: Collection[str] | None, what: str) -> str | None:
    """The message for the first column that a check reads and `columns` does not have; None if it has all.

    A check that reads no column is an error, too: it would be true for all rows, or for none.
    """
    from floodmark.core.sql import columns_in

    read = columns_in(check)
    if not read:
        return f"expected a condition that reads a column of the {what}, found {check!r}"
    known = columns if columns is None else {column.lower(): column for column in columns}
    missing = None if known is None else next((name for name in read if name not in known), None)
    if known is None or missing is None:
        return None
    near = difflib.get_close_matches(missing, list(known), 1)
    hint = f"did you mean {near[0]}?" if near else f"columns: {', '.join(known)}"
    return f"expected columns of the {what}, found {missing}; {hint}"


def _results(rule: Rule) -> list[str] | None:
    """The columns of the results; None if the text does not show them."""
    from floodmark.core.sql import output_columns
    from floodmark.core.text.ddl import columns_of

    if rule.process is not None:
        return [column.name for column in columns_of(rule.process.output)]
    try:
        return output_columns(rule.sql, rule.event_times, rule.lookups.keys())
    except SqlAt:  # reported for the SQL
        return None
