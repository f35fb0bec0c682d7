"""Numbers that change with every epoch, as SQL.

Spark writes a number into the text of the code that it generates. A plan with another watermark would so be new code in
every epoch, compiled again and run cold by the JVM: 2.0 s instead of 1.0 s over 5,000,000 rows. An array goes in by
reference; so the number stands in one, at a place that the optimizer cannot work out beforehand.
"""

from __future__ import annotations


def aside(number: str, column: str) -> str:
    """SQL for the constant `number`, kept out of the generated code. `column`: any SQL of a row that may be null."""
    return f"array({number}, {number})[CAST({column} IS NULL AS INT)]"
