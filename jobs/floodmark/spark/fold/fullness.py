"""Count the rows of windows, and refuse too many of them before anything of the epoch is written."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.rules.rule import Rule
from floodmark.core.sql.windows import Spec, grids
from floodmark.core.text.durations import format_duration
from floodmark.errors import InputFault


def refuse_full(rule: Rule, name: str, rows: DataFrame, column: str, windows: Iterable[Spec]) -> None:
    """Raise InputFault if a window has more rows of a stream than the rule allows.

    `rows`: all rows of the windows that this epoch's rows are in; `column`: their event time, quoted.
    """
    most = rule.max_rows_per_window
    assert most is not None
    for grid in sorted(grids(windows), key=attrgetter("size_us", "slide_us", "offset_us")):
        sizes = (f"{us} microseconds" for us in (grid.size_us, grid.slide_us, grid.offset_us % grid.slide_us))
        counted = rows.groupBy(F.window(F.col(column), *sizes).alias("w")).count().where(f"count > {most}")
        found = counted.orderBy("w").selectExpr("CAST(w.start AS STRING) AS start", "count").head()
        if found is not None:
            raise InputFault(
                f"rule {rule.rule}: expected at most {most} rows of stream {name} in a window "
                f"(`max_rows_per_window`), found {found['count']} in the window of {format_duration(grid.size_us)} "
                f"that starts at {found['start']} ({rule.timezone}). Nothing of the epoch was written. Raise the "
                "limit, or exclude rows with the stream's `where`"
            )
