"""SQL for numbers that change with every epoch.

Spark writes numbers into the text of the code that it generates. So each epoch's watermark would give new code, which
the JVM compiles again and runs cold: 2.0 s instead of 1.0 s over 5,000,000 rows. Arrays are passed by reference, so the
number goes into one, at an index that the optimizer cannot compute in advance.
"""

from __future__ import annotations

AS_JSON = {  # options of to_json for rows that people read
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]XXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}


def uncompiled_constant(number: str, column: str) -> str:
    """SQL for the constant `number`, kept out of the generated code. `column`: any SQL of a row that may be null."""
    return f"array({number}, {number})[CAST({column} IS NULL AS INT)]"
