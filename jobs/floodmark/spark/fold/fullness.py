"""Count the rows of windows, and refuse too many of them before anything of the epoch is written."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.rules.rule import Rule
from floodmark.core.sql.windows import Spec, WindowSpec
from floodmark.core.text.durations import format_duration
from floodmark.errors import InputFault


def reach(windows: Iterable[Spec]) -> int:
    """How long before a row its windows can start, in microseconds."""
    return max(spec.size_us for spec in _sizes(windows))


def refuse_full(rule: Rule, name: str, rows: DataFrame, column: str, windows: Iterable[Spec]) -> None:
    """Raise InputFault if a window has more rows of a stream than the rule allows.

    `rows`: all rows of the windows that this epoch's rows are in; `column`: their event time, quoted.
    """
    most = rule.max_rows_per_window
    assert most is not None
    for spec in _sizes(windows):
        sizes = (f"{us} microseconds" for us in (spec.size_us, spec.slide_us, spec.offset_us % spec.slide_us))
        counted = rows.groupBy(F.window(F.col(column), *sizes).alias("w")).count().where(f"count > {most}")
        found = counted.orderBy("w").selectExpr("CAST(w.start AS STRING) AS start", "count").head()
        if found is not None:
            raise InputFault(
                f"rule {rule.rule}: expected at most {most} rows of stream {name} in a window "
                f"(`max_rows_per_window`), found {found['count']} in that of {format_duration(spec.size_us)} from "
                f"{found['start']} ({rule.timezone}) on. Nothing of the epoch was written. Raise the limit, or leave "
                "rows out by the stream's `where`"
            )


def _sizes(windows: Iterable[Spec]) -> list[WindowSpec]:
    found = {spec for spec in windows if isinstance(spec, WindowSpec)}
    return sorted(found, key=lambda spec: (spec.size_us, spec.slide_us, spec.offset_us))
