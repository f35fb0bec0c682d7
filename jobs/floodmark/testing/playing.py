"""Play a case with the real engine: run a copy of the rule in a scratch folder, by epochs, and compare its tables.

The case sets the clock; without one, the clock does not move during the case. So each epoch of a case is one epoch of
the rule, plus one if it closes what is open.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pyspark.sql import SparkSession

from floodmark.core.cases.casefile import Row, WrittenCaseEpoch, WrittenExpected
from floodmark.core.cases.differences import TableDifference, compared
from floodmark.core.cases.typedrows import named, texts, typed
from floodmark.core.cases.validation import in_zone
from floodmark.core.lifecycle.zones import zoned
from floodmark.core.rules.rule import Rule
from floodmark.core.text.ddl import Column
from floodmark.core.text.yamltree import Path as At
from floodmark.errors import Refused, message
from floodmark.ledger.home import Home
from floodmark.proving.scratch import Scratch, placed
from floodmark.spark.rule.epochs.reports import RunReport
from floodmark.spark.rule.run import RuleRun
from floodmark.testing import casetables
from floodmark.testing.cases import Case
from floodmark.testing.deltatypes import declared
from floodmark.testing.inputs import Arriving, Inputs
from floodmark.views.formats import iso


@dataclass
class Result:
    """`epoch`: the case's epoch, counted from 1, with an unexpected result; None if there is none."""

    case: Case
    epoch: int | None = None
    watermark: str | None = None
    differences: list[TableDifference] = field(default_factory=list)
    fault: Exception | None = None
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return self.fault is None and not self.differences

    def text(self) -> str:
        """The differences between found and expected rows, or the error."""
        of = f"epoch {self.epoch} of {len(self.case.written.epochs)}"
        if self.fault is not None:
            return message(self.fault) if self.epoch is None else f"{of}: {message(self.fault)}"
        told = "\n".join(one.text() for one in self.differences)
        return f"{of}, at watermark {self.watermark or 'none yet'}\n{told}"


def play(root: SparkSession, case: Case, folder: Path, inputs: Inputs | None = None) -> Result:
    """Run the case in a folder of its own. It ends at the first epoch with an unexpected result.

    inputs: those of the case's file, if they are read already.
    """
    result, begun = Result(case), time.monotonic()
    try:
        _Play(root, case, Scratch(folder), result, inputs).run()
    except Exception as fault:  # whatever it is: the other cases go on
        result.fault = fault
    result.seconds = time.monotonic() - begun
    return result


class _Play:
    def __init__(self, root: SparkSession, case: Case, scratch: Scratch, result: Result, inputs: Inputs | None):
        self._root, self._case, self._scratch, self._result = root, case, scratch, result
        self._inputs = inputs or Inputs(case.rule, case.file)
        self._rule = copy_for_case(case.rule, scratch)
        self._zone = ZoneInfo(case.rule.timezone)
        self._clock_ms = time.time_ns() // 1_000_000
        self._apart: dict[str, tuple[list[Row], At]] = {"late": ([], ()), "dead": ([], ())}

    def run(self) -> None:
        self._make()
        for i, epoch in enumerate(self._case.written.epochs):
            self._result.epoch = i + 1
            self._arrive(self._inputs.cases[self._case.number][i], first=i == 0)
            self._on_epoch(self._fold(epoch))
            self._result.differences = list(self._compared(epoch, ("cases", self._case.number, "epochs", i, "expect")))
            if self._result.differences:
                return
        self._result.epoch = None

    def _make(self) -> None:
        for name, columns in self._inputs.columns.items():
            casetables.make(self._scratch.input(name), columns)

    def _arrive(self, what: Arriving, first: bool) -> None:
        for name, rows in what.lookups.items():
            casetables.replace(self._scratch.input(name), rows)
        for name in self._rule.streams if first else what.streams:  # every stream begins with a version 1
            casetables.append(self._scratch.input(name), what.streams.get(name, []))

    def _fold(self, epoch: WrittenCaseEpoch) -> RunReport:
        if epoch.now is not None:
            self._clock_ms = round(in_zone(epoch.now, self._rule).timestamp() * 1000)
        home, quiet = self._scratch.home, lambda _: None
        return RuleRun(self._root, self._rule, home, "test", quiet, epoch.close_until, self._clock_ms).run()

    def _on_epoch(self, report: RunReport) -> None:
        assert report.head is not None
        self._result.watermark = iso(report.head.watermark, zoned(self._rule, report.head))

    def _compared(self, epoch: WrittenCaseEpoch, at: At) -> Iterator[TableDifference]:
        for table, address, rows, place in (
            *self._sinks(epoch.expect, at),
            *self._quarantine_differences(epoch.expect, at),
        ):
            difference = self._table(table, address, rows, place)
            if difference is not None:
                yield difference

    def _sinks(self, expect: WrittenExpected, at: At) -> Iterator[tuple[str, str, list[Row], At]]:
        for i, sink in enumerate(self._rule.sinks):
            rows = expect.sink if expect.sinks is None else expect.sinks[i]
            if rows is not None:
                name = "sink" if len(self._rule.sinks) == 1 else f"sinks[{i}]"
                place: At = (*at, "sink") if expect.sinks is None else (*at, "sinks", i)
                yield name, str(sink.address), rows, place

    def _quarantine_differences(self, expect: WrittenExpected, at: At) -> Iterator[tuple[str, str, list[Row], At]]:
        home = Home(self._scratch.home, self._rule.rule)
        for name, address, said in (("late", home.late, expect.late), ("dead", home.dead, expect.dead)):
            if said is not None:
                self._apart[name] = (said, (*at, name))
            yield name, address, *self._apart[name]

    def _table(self, name: str, address: str, expected: list[Row], at: At) -> TableDifference | None:
        schema, found = casetables.rows_of(address)
        columns, problems = _declared(name, schema), self._case.file.problems()
        rows = typed(expected, columns, self._zone, problems, at)
        problems.raise_any()
        shown = named(expected, columns) if expected else columns
        names = [column.name for column in shown]
        return compared(name, names, texts(rows, shown, self._zone), texts(found, shown, self._zone))


def _declared(name: str, schema: str) -> tuple[Column, ...]:
    try:
        return declared(schema)
    except ValueError as fault:
        raise Refused(f"{name}: a case cannot state what it expects of this table: {fault}") from None


def copy_for_case(rule: Rule, scratch: Scratch) -> Rule:
    """The rule over the scratch folder. Each sink, whatever its kind, is a table that can be read: so a case needs
    neither a target's client nor its connection."""
    found = placed(rule, rule.rule, scratch, None)
    table: dict[str, Any] = {"kind": "delta", "options": {}, "outbox": None, "outbox_bytes": None}
    sinks = tuple(
        sink.model_copy(update={**table, "address": scratch.sink(rule.rule, i)}) for i, sink in enumerate(rule.sinks)
    )
    lookups = {name: one.model_copy(update={"address": scratch.input(name)}) for name, one in rule.lookups.items()}
    return found.model_copy(update={"sinks": sinks, "lookups": lookups})
