"""Read the rows of a case's streams and lookup tables, typed by the tables that the rule reads, or by the case file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from deltalake import DeltaTable

from floodmark.connectors.delta.changes import ADDED
from floodmark.core.cases.casefile import CaseFile, Row, WrittenCaseEpoch
from floodmark.core.cases.typedrows import typed
from floodmark.core.rules.kinds import declared_columns, tables_read
from floodmark.core.rules.rule import Rule
from floodmark.core.text.addresses import location
from floodmark.core.text.ddl import Column
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import RunFailed, TableBroken
from floodmark.ledger.delta import tables
from floodmark.testing.deltatypes import declared

Columns = tuple[Column, ...]


@dataclass(frozen=True)
class Arriving:
    """The input of one epoch of a case: rows of streams, and lookup tables that change."""

    streams: dict[str, list[Row]]
    lookups: dict[str, list[Row]]


class Inputs:
    """Columns of each stream and lookup table, and for each case the input of each epoch.

    Raises RuleInvalid with every value of the file that does not fit.
    """

    def __init__(self, rule: Rule, file: CaseFile):
        self.columns = columns_of_inputs(rule, file)
        self._zone, self._problems = ZoneInfo(rule.timezone), file.problems()
        self.cases = [
            [self._arriving(epoch, ("cases", i, "epochs", j)) for j, epoch in enumerate(case.epochs)]
            for i, case in enumerate(file.written.cases)
        ]
        self._problems.raise_any()

    def _arriving(self, epoch: WrittenCaseEpoch, at: Field) -> Arriving:
        return Arriving(self._rows(epoch.input, (*at, "input")), self._rows(epoch.lookups, (*at, "lookups")))

    def _rows(self, given: dict[str, list[Row]], at: Field) -> dict[str, list[Row]]:
        return {
            name: typed(rows, self.columns[name], self._zone, self._problems, (*at, name))
            for name, rows in given.items()
        }


def columns_of_inputs(rule: Rule, file: CaseFile) -> dict[str, Columns]:
    """Columns by stream and lookup table. The file's declarations come first, and must agree with those of the rule, or
    with an existing table.

    Raises RuleInvalid; and RunFailed or TableBroken for a table that is needed, and cannot be read.
    """
    found, problems = {}, file.problems()
    for kind, name, address in _read(rule):
        try:
            more = ADDED if kind == "stream" and rule.streams[name].changes else ()
            given, own = file.written.columns.get(name), None
            if kind == "stream":
                own = declared_columns(rule.streams[name])
            found[name] = _columns(kind, name, address, given, more) if own is None else _of_rule(name, own, given)
        except ValueError as fault:
            problems.add(("schema", name), str(fault))
    problems.raise_any()
    return found


def _read(rule: Rule) -> Iterator[tuple[str, str, str | None]]:
    """Kind and name of each stream and lookup table, and the address if it is a table."""
    addresses = tables_read(rule)
    yield from (("stream", name, addresses.get(name)) for name in rule.streams)
    yield from (("lookup", name, lookup.address) for name, lookup in rule.lookups.items())


def _of_rule(name: str, own: Columns, given: Columns | None) -> Columns:
    if given is not None:
        _check_agrees(given, own, f"that the rule declares for stream {name}")
    return own if given is None else given


def _columns(kind: str, name: str, address: str | None, given: Columns | None, more: Columns) -> Columns:
    """`more`: columns that a stream has beside those of its table."""
    way = _way(name)
    if address is None:
        if given is None:
            raise ValueError(f"{kind} {name}: expected declared columns, because it is not a table; {way}")
        return given
    table = _table(kind, name, address, given is not None)
    if table is None and given is None:
        raise ValueError(f"{kind} {name}: expected a table at {address} with its columns, found none; {way}")
    if table is None:
        return given or ()
    schema = table.schema().to_json()
    if given is not None:
        there = (*declared(schema, [column.name for column in given]), *more)
        _check_agrees(given, there, f"of the table at {address}")
        return given
    try:
        return (*declared(schema), *more)
    except ValueError as fault:
        raise ValueError(f"{kind} {name}: {address}: {fault}; {way} without it") from None


def _table(kind: str, name: str, address: str, declares: bool) -> DeltaTable | None:
    """The table at an address; None if there is none, or if it cannot be read and the case file declares its columns.

    A case with declared columns needs no table: where cases run, the store may be out of reach.
    """
    try:
        return tables.open_table(location(address))
    except (RunFailed, TableBroken) as fault:
        if declares:
            return None
        raise type(fault)(f"{kind} {name}: {fault}; or {_way(name)}, and the table is not needed") from fault


def _way(name: str) -> str:
    return f"declare the columns: `schema: {{{name}: 'column TYPE, ...'}}`"


def _check_agrees(given: Sequence[Column], there: Sequence[Column], whose: str) -> None:
    """Raise ValueError for a column that is not there, or of another type: such a case would show what no run does.

    SQL finds a column in whatever case it is written.
    """
    known = {column.name.lower(): column for column in there}
    for column in given:
        own = known.get(column.name.lower())
        if own is None or own.type != column.type:
            found = own or "no such column"
            raise ValueError(f"expected columns {whose}, declared {column}, found {found} there")
