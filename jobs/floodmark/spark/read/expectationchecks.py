"""Run expectations on rows: which of them a row fails, as bits of a number, and how many rows fail each.

The first expectation has the lowest bit. Expectations are in the order in which they decide, so the lowest bit that is
set decides a row's outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.protocol.expectations import ordered, reason
from floodmark.core.protocol.records.rows import Failed
from floodmark.core.rules.rule import Expectation
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import InputFault, SqlRefused
from floodmark.spark.read.rowchecks import risky_of, tried
from floodmark.spark.session.jvm import materialised

FAILED = "_floodmark_failed"  # the column of the number, beside a row's own columns
SAMPLE = 3  # rows in a message
ROW = 400  # characters of a row in a message
WAY_OUT = (
    "Nothing of the epoch was written, and running again will not help. Change the expectation (another check, or "
    "`on_fail: dead`, which sets such rows aside): the rule then continues where it stopped. To change or delete rows "
    "in the source does not help, because they are read as they came"
)


@dataclass(frozen=True)
class ExpectationChecks:
    """The expectations of one stream, or of the results. `risky`: the checks that may raise for a row."""

    expected: tuple[tuple[str, Expectation], ...] = ()
    risky: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.expected)

    def failed(self, frame: DataFrame) -> Column:
        """The number for a row of `frame`. A check that is null or raises counts as failed."""
        return reduce(Column.bitwiseOR, (self._bit(frame, i, one) for i, (_, one) in enumerate(self.expected)))

    def _bit(self, frame: DataFrame, place: int, one: Expectation) -> Column:
        met = tried(frame, one.check)["v"] if one.check in self.risky else F.expr(f"({one.check}\n)")
        return F.when(F.coalesce(met, F.lit(False)), F.lit(0)).otherwise(F.lit(1 << place)).cast("long")

    def bits(self, on_fail: str) -> int:
        """The bits of the expectations with this `on_fail`; 0: there are none."""
        return sum(1 << i for i, (_, one) in enumerate(self.expected) if one.on_fail == on_fail)

    def decided(self, number: str, place: int) -> str:
        """SQL: whether the expectation at this position decides a row's outcome."""
        return f"({number} & {(2 << place) - 1}L) = {1 << place}L"

    def measures(self, number: str, only: str, taken: str, after: str = "") -> list[str]:
        """SQL of what `counts` reads. `only`: condition of the rows to count; `taken`: of the rows that are removed."""
        found = []
        for i in range(len(self.expected)):
            found.append(f"count_if({only} AND ({number} & {1 << i}L) <> 0) AS failed{i}{after}")
            found.append(f"count_if({taken} AND {self.decided(number, i)}) AS taken{i}{after}")
        return found

    def counts(self, found: Mapping[str, Any], after: str = "") -> dict[str, Failed]:
        """The counts, by name of the expectation."""
        return {
            name: Failed(failed=found[f"failed{i}{after}"], taken=found[f"taken{i}{after}"])
            for i, (name, _) in enumerate(self.expected)
        }

    def reason(self, number: str) -> Column:
        """The reason for a row that fails an expectation; null if it fails none."""
        said: Column = F.lit(None).cast("string")
        for i, (name, one) in reversed(list(enumerate(self.expected))):
            said = F.when(F.expr(self.decided(number, i)), F.lit(reason(name, one.check))).otherwise(said)
        return said

    def strict(self) -> ExpectationChecks:
        """The same, if rows can no longer be quarantined: `on_fail: dead` becomes `fail`."""
        stops = tuple(
            (name, one.model_copy(update={"on_fail": "fail"}) if one.on_fail == "dead" else one)
            for name, one in self.expected
        )
        return replace(self, expected=stops)


def checks_for(frame: DataFrame, expect: Mapping[str, Expectation], where: str) -> ExpectationChecks:
    """The expectations, for rows like those of `frame`. Raises SqlRefused naming the first that Spark cannot compute,
    or that is not a condition."""
    expected = ordered(expect)
    for name, one in expected:
        try:
            [found] = frame.selectExpr(f"({one.check}\n)").schema
        except AnalysisException as fault:
            line = str(fault).strip().split("\n", 1)[0]
            raise SqlRefused(f"{where}: expect {name}: {line}") from fault
        if found.dataType.typeName() != "boolean":
            raise SqlRefused(
                f"{where}: expect {name}: expected a condition (boolean), found {one.check!r} of type "
                f"{found.dataType.simpleString()}"
            )
    return ExpectationChecks(expected, frozenset(risky_of(frame, [one.check for _, one in expected])))


@dataclass(frozen=True)
class CheckedResults:
    """The results that continue to the sinks (None: none is due), and how many failed each expectation."""

    rows: DataFrame | None
    counts: dict[str, Failed] = field(default_factory=dict)


def check_results(
    output: DataFrame | None, checks: ExpectationChecks, rule: str, session: SparkSession
) -> CheckedResults:
    """The results without dropped rows. Raises InputFault if a result fails an expectation that stops the run."""
    if not checks:
        return CheckedResults(output)
    if output is None:
        return CheckedResults(None, {name: Failed() for name, _ in checks.expected})
    known = materialised(output.withColumn(FAILED, checks.failed(output)), session)
    drops = f"({FAILED} & {checks.bits('drop')}L) <> 0"
    measured = known.selectExpr("count(*) AS rows", *checks.measures(FAILED, "true", drops)).head()
    assert measured is not None
    counts = checks.counts(measured.asDict())
    refuse(known, FAILED, checks, counts, f"rule {rule}, results", measured["rows"], output.schema)
    return CheckedResults(known.where(f"NOT ({drops})").drop(FAILED), counts)


def refuse(
    rows: DataFrame,
    number: str,
    checks: ExpectationChecks,
    counts: Mapping[str, Failed],
    where: str,
    of: int,
    shown: StructType,
) -> None:
    """Raise InputFault if rows fail an expectation that stops the run; the message shows some of them.

    `rows`: the checked rows, with their `number`; `of`: how many; `shown`: the columns to show.
    """
    stopping = [(name, one) for name, one in checks.expected if one.on_fail == "fail" and counts[name].failed]
    if not stopping:
        return
    name, first = stopping[0]
    place = next(i for i, (other, _) in enumerate(checks.expected) if other == name)
    some = rows.where(f"({number} & {1 << place}L) <> 0").select(*(quoted(one.name) for one in shown)).take(SAMPLE)
    others = "".join(f"; {other} fails for {_rows(counts[other].failed)}" for other, _ in stopping[1:])
    raise InputFault(
        f"{where}: {reason(name, first.check)}, for {counts[name].failed} of {_rows(of)}{others}. "
        f"Some of them: {'; '.join(_shown(row.asDict()) for row in some)}. {WAY_OUT}"
    )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _shown(row: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name} = {value!r}" for name, value in row.items())
    return f"({text if len(text) <= ROW else f'{text[: ROW - 3]}...'})"
