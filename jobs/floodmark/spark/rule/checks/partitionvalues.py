"""Check before an epoch's intent that the sinks' partitions can hold the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from floodmark.core.rules.rule import Sink
from floodmark.core.rules.sinks.partitionvalues import Unfit, unfit, which
from floodmark.core.rules.sinks.sinkcolumns import SinkColumns
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import InputFault
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.jvm import jvm_class, materialised

SHOWN = 100  # characters of a value in a message
UNICODE = ("UTF-8", "UTF8")


def with_fit_partitions(results: DataFrame | None, plan: Plan, session: SparkSession) -> DataFrame | None:
    """The same results. Raises InputFault if a value of a `partition_by` column cannot be written unchanged."""
    checks = list(_checks(plan, session)) if results is not None else []
    if not checks or results is None:
        return results
    known = materialised(results, session) if plan.fold.tables else results  # one shuffle for the check and the write
    measures = [measure for i, check in enumerate(checks) for measure in check.measures(i)]
    found = known.selectExpr(*measures).head()
    assert found is not None
    for i, check in enumerate(checks):
        check.refuse(plan.rule.rule, i, found.asDict())
    return known


class _Check:
    def __init__(self, sink: Sink, sink_columns: SinkColumns, unfit: list[Unfit]):
        self._sink, self._sink_columns, self._unfit = sink, sink_columns, unfit

    def measures(self, number: int) -> list[str]:
        """How many results do not fit, and the first in order of its column's position and its value."""
        place = which(self._unfit, self._sink_columns)
        value = "".join(f" WHEN {i} THEN CAST({quoted(one.column)} AS STRING)" for i, one in enumerate(self._unfit))
        one = f"named_struct('place', {place}, 'value', CASE {place}{value} END)"
        return [
            f"count({place}) AS rows{number}",
            f"min(CASE WHEN {place} IS NOT NULL THEN {one} END) AS one{number}",
        ]

    def refuse(self, rule: str, number: int, found: Mapping[str, Any]) -> None:
        rows, one = found[f"rows{number}"], found[f"one{number}"]
        if not rows:
            return
        wrong = self._unfit[one["place"]]
        shown = shown_value(one["value"])
        raise InputFault(
            f"rule {rule}, sink {self._sink.label}: partition_by: expected values that are possible in a directory "
            f"name, found {rows} {'row' if rows == 1 else 'rows'} with others, such as {wrong.column} = {shown}: "
            f"{wrong.why}. Nothing of the epoch was written, and running again will not help. Give {wrong.column} "
            "another value in the SQL (nullif, left, sha2, a CASE), exclude such rows with the sink's `where`, or "
            "with an expectation on the results (`on_fail: drop`): the rule then continues where it stopped"
        )


def shown_value(value: str) -> str:
    """A value in quotes; a long one by its start, with the number of its bytes."""
    if len(value) <= SHOWN:
        return repr(value)
    return f"{value[:SHOWN]!r}... ({len(value.encode(errors='surrogatepass'))} bytes)"


def _checks(plan: Plan, session: SparkSession) -> Iterator[_Check]:
    for sink in plan.tables.values():
        sink_columns = plan.sink_columns(sink)
        key = {name.lower() for name in sink.key}
        found = [
            one
            for name in sink_columns.partitions
            if name in sink_columns.columns
            for one in unfit(name, plan.output[name].dataType.simpleString(), name.lower() in key, _any_name(session))
        ]
        if found:
            yield _Check(sink, sink_columns, found)


def _any_name(session: SparkSession) -> bool:
    said = jvm_class(session, "java.lang.System").getProperty("sun.jnu.encoding")
    return said is None or str(said).upper() in UNICODE
