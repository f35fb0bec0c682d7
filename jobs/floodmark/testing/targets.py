"""Checks whether a target of one's own keeps its promise: rows and position together, and no effect of a late call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.python.author import Author, made
from floodmark.connectors.sources.python.options import methods_in
from floodmark.connectors.sources.python.rows import table_of
from floodmark.connectors.targets.python.options import check_target_class
from floodmark.connectors.targets.python.portions import columns_of, no_rows, portion_of
from floodmark.core.application.connections import Connection
from floodmark.core.relay.positions import Position
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import columns_of as declared
from floodmark.errors import FloodmarkError

LEDGER = "check"
TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True)
class CheckedTarget:
    """once: the class keeps its position. counted: how many rows it holds after one batch was sent twice (once: after
    one batch and a late call); None without `rows()`.
    """

    once: bool
    counted: int | None


def check_target(
    found: type,
    schema: str,
    rows: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
    connection: Connection | None = None,
    key: Sequence[str] = (),
) -> CheckedTarget:
    """Check a class with the `settings` of a rule, whose results have these columns, and some `rows` of them, at an
    empty place. Raises AssertionError: what the class does wrong.
    """
    file = Path(inspect.getfile(found))
    code = file.read_text(encoding="utf-8")
    name = found.__name__
    try:
        check_target_class(code, file.name, name)
        check = _Check(
            lambda: made(name, code, str(file), name, dict(settings or {}), connection),
            Layout(declared(schema), tuple(key)),
            rows,
        )
        return check.once() if "position" in methods_in(code, file.name, name) else check.again()
    except (ValueError, FloodmarkError) as fault:
        raise AssertionError(str(fault)) from fault


class _Check:
    """`make`: makes an object of the class."""

    def __init__(self, make: Any, layout: Layout, rows: Sequence[Mapping[str, Any]]):
        self._make, self._layout, self._rows = make, layout, rows
        self._author: Author = make()

    def again(self) -> CheckedTarget:
        batch = self._batch(1)
        self._author.call("apply", batch, f"{LEDGER}/1")
        self._expect_rows("after apply(batch, token)")
        for author in (self._author, self._make()):
            author.call("apply", batch, f"{LEDGER}/1")
        counted = self._counted()
        if self._author.has("remove_between"):
            self._remove(f"{LEDGER}/2")
        if counted == len(self._rows):
            self._repeat()
        if self._author.has("empty"):
            self._author.call("empty", f"{LEDGER}/9")
            assert not self._counted(), f"expected no row after empty(), found {self._counted()}"
        return CheckedTarget(False, counted)

    def once(self) -> CheckedTarget:
        first, second, third = (_position(number).text() for number in (1, 2, 3))
        self._expect(None, "at the start: give the check an empty place")
        self._author.call("apply", self._batch(1), f"{LEDGER}/1", None, first)
        self._expect(first, "after apply(batch, token, None, upto)")
        self._expect_rows("after apply(batch, token, None, upto)")
        self._late("apply", self._batch(2), f"{LEDGER}/2", None, second)
        self._expect(first, "after a call with another `since`, which is to have no effect")
        self._expect_rows("after a call with another `since`, which is to have no effect")
        counted = self._counted()
        self._author.call("apply", no_rows(self._layout), f"{LEDGER}/3", first, third)
        self._expect(third, "after apply() with a batch without rows")
        if self._author.has("remove_between"):
            self._remove(f"{LEDGER}/4", first, third)
        if self._author.has("empty"):
            before = self._counted()
            self._late("empty", f"{LEDGER}/5", first)
            assert self._counted() == before, f"expected {before} rows after a late empty(), found {self._counted()}"
            self._author.call("empty", f"{LEDGER}/5", third)
            self._expect(third, "after empty(), which leaves it as it is")
            assert not self._counted(), f"expected no row after empty(), found {self._counted()}"
        return CheckedTarget(True, counted)

    def _remove(self, token: str, late: str | None = None, since: str | None = None) -> None:
        """Have the rows of one time leave: others stay. late: another `since`, with which the call has no effect."""
        interval = self._interval()
        if interval is None:
            return
        column, at = interval[0], interval[1][0][0]
        before = self._times(column)
        if since is not None:
            self._late("remove_between", *interval, token, late)
            assert self._times(column) == before, "expected no effect of remove_between() with another `since`"
        self._author.call("remove_between", *interval, token, *([] if since is None else [since]))
        stays, found = [one for one in before if one != at], self._times(column)
        problem = f"expected the {len(stays)} rows without {column} = {at} to stay, found {len(found)} rows"
        assert found == stays, problem

    def _interval(self) -> tuple[str, list[tuple[datetime, datetime]]] | None:
        """A column of times, and the shortest interval with one of the rows; None if there is no such column."""
        column = next((one.name for one in self._layout.columns if one.type.name in TIMES), None)
        rows = self._batch(1).to_pylist() if column else []
        at = next((row[column] for row in rows if row[column] is not None), None)
        return None if column is None or at is None else (column, [(at, at + datetime.resolution)])

    def _times(self, column: str) -> list[datetime | None]:
        """Of all rows, in an order; none without `rows()`."""
        if not self._author.has("rows"):
            return []
        found = self._author.rows(self._layout.columns, method="rows").column(column).to_pylist()
        return sorted(found, key=lambda at: (at is not None, at))

    def _repeat(self) -> None:
        """A class that ignores an `apply` whose token it knows has to ignore the call before it, too."""
        interval = self._interval()
        calls = [(4, "empty", ()), *([] if interval is None else [(5, "remove_between", interval)])]
        for number, method, given in calls:
            for _ in range(2 if self._author.has(method) else 0):
                self._author.call(method, *given, f"{LEDGER}/{number}")
                self._author.call("apply", self._batch(number), f"{LEDGER}/{number}")
            problem = (
                f"expected the rows to stay after {method}() and apply() with tokens that the class knows, found none"
            )
            assert self._counted(), problem

    def _batch(self, number: int) -> Any:
        marked = [{**row, **({DELETE_COLUMN: False} if self._layout.key else {})} for row in self._rows]
        plain = table_of(columns_of(self._layout)[:-1], [marked])
        rows, count = (lambda: iter(plain.to_batches())), len(marked)
        one = Operation(f"{LEDGER}/{number}", _position(number), False, None, False, count, rows)
        return portion_of(one, self._layout)

    def _expect(self, text: str | None, when: str) -> None:
        for what, author in (("position()", self._author), ("position() of another object", self._make())):
            found = author.call("position")
            assert found == text, f"expected {what} to be {text!r} {when}, found {found!r}"

    def _expect_rows(self, when: str) -> None:
        """One for each row of the batch; with a key, one for each key."""
        found, key = self._counted(), self._layout.key
        expected = len({repr([row.get(name) for name in key]) for row in self._rows}) if key else len(self._rows)
        assert found in (None, expected), f"expected {expected} rows {when}, found {found}"

    def _late(self, method: str, *given: Any) -> None:
        try:
            self._author.call(method, *given)
        except FloodmarkError:
            return
        raise AssertionError(f"expected {method}() to raise an error, because position() is not `since`; it returned")

    def _counted(self) -> int | None:
        return self._author.rows(self._layout.columns, method="rows").num_rows if self._author.has("rows") else None


def _position(number: int) -> Position:
    return Position(LEDGER, 1, "check", number, number, "hash")
