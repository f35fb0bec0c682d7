"""Multisets of rows, compared: what tests of batch equality have in common."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

CACHE = Path(__file__).parents[2] / ".cache" / "tests"


def without(rows: list[dict[str, Any]], apart: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rows` less `apart`, as multisets; a row set apart that never arrived is a fault.

    Rows set apart have the columns that the rule reads; in what is left, the others are null.
    """
    unread = {name for name in ("v", "n", "k") if apart and name not in apart[0]}
    rows = [{name: None if name in unread else value for name, value in row.items()} for row in rows]
    gone = Counter(map(_identity, apart))
    assert not gone - Counter(map(_identity, rows)), "late and dead rows are rows that arrived"
    left = []
    for row in rows:
        if gone[_identity(row)]:
            gone[_identity(row)] -= 1
        else:
            left.append(row)
    return left


def _identity(row: dict[str, Any]) -> str:
    return repr((row["at"] and row["at"].astimezone(UTC), *(row.get(name) for name in "kvn")))


def same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Equal as multisets, floating point within 1e-9 relative."""
    one, other = sorted(map(_plain, found), key=_key), sorted(map(_plain, expected), key=_key)
    assert len(one) == len(other), (one, other)
    for left, right in zip(one, other, strict=True):
        assert all(map(_equal, left, right)), (left, right)


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_value(value) for value in row)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        stamp = value if value.tzinfo else value.replace(tzinfo=UTC)
        return (stamp - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value


def _key(row: tuple[Any, ...]) -> str:
    return repr([f"{value:.6g}" if isinstance(value, float) else value for value in row])


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-9)
    return bool(left == right)
