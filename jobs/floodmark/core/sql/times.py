"""SQL that measures times without a zone (TIMESTAMP_NTZ).

Spark's `timestampdiff` and `unix_micros` take them for times of the session's zone. Where its clocks are set forward,
the hour that they leave out would become the next one.
"""

from __future__ import annotations


def micros_between(begin: str, end: str) -> str:
    """SQL for how many microseconds lie between two such times, given as SQL."""
    return f"CAST(CAST(CAST({end} - {begin} AS INTERVAL SECOND) AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"


def micros_since_1970(time: str) -> str:
    """SQL for such a time in microseconds, as if it were in UTC."""
    return micros_between("TIMESTAMP_NTZ'1970-01-01 00:00:00'", time)
