"""Compare two tables as multisets of rows, floating point within 1e-9 relative. Shares no code with the engine.

Next to zero, sums that cancel leave noise. There, floating point agrees within 1e-13 of the column's largest value, or
of 1 if that is more; and never within more than 1e-9.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal
from typing import Any

Row = tuple[Any, ...]
CLOSE = 1e-9
NOISE = 1e-13
DIGITS = Context(prec=38)  # as many as Delta's decimals have; Python's default would round to 28
SHOWN = 3
_HOLE = "\0float"  # placeholder for a floating-point number, which is compared separately


@dataclass(frozen=True)
class Difference:
    """Rows of only one table: `missing` are expected and not found, `extra` found and not expected."""

    missing: list[Row]
    extra: list[Row]

    def __bool__(self) -> bool:
        return bool(self.missing or self.extra)

    def text(self) -> str:
        """For people: the number of rows, and the first of them."""
        parts = ((self.missing, "missing"), (self.extra, "too many"))
        return "; ".join(
            f"{len(rows)} row{'s' if len(rows) > 1 else ''} {what}: {_shown(rows)}" for rows, what in parts if rows
        )


def _shown(rows: Sequence[Row]) -> str:
    first = ", ".join(f"({', '.join(map(str, row))})" for row in rows[:SHOWN])
    return first if len(rows) <= SHOWN else f"{first}, …"


def rows_of(address: str) -> list[dict[str, Any]] | None:
    """Every row of a Delta table; None if there is no table."""
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder
    from deltalake.exceptions import TableNotFoundError

    try:
        table = DeltaTable(address)
    except TableNotFoundError:
        return None
    found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    try:
        rows: list[dict[str, Any]] = found.to_pylist()
    except OverflowError:  # a time beyond Python's calendar
        rows = found.cast(pa.schema([one.with_type(_numbered(one.type)) for one in found.schema])).to_pylist()
    return rows


def _numbered(kind: Any) -> Any:
    """An Arrow type in which times and dates are numbers since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_numbered(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_type), _numbered(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_numbered(one.type)) for one in kind])
    return kind


def as_rows(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """Rows with values in the order of column names, so that the order of columns does not matter."""
    return [tuple(_plain(row[name]) for name in sorted(row, key=str.lower)) for row in rows]


def difference(found: Iterable[Row], expected: Iterable[Row]) -> Difference:
    """The rows that only one of the two has."""
    found, expected = list(found), list(expected)
    extra, missing = _unequal(found, expected)
    within = _tolerances([*found, *expected]) if extra and missing else {}
    groups: dict[Row, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((extra, missing)):
        for row in rows:
            groups[_shape(row)][side].append(row)
    left = [_unmatched(ours, theirs, within) for ours, theirs in groups.values()]
    return Difference([row for _, rows in left for row in rows], [row for rows, _ in left for row in rows])


def like_one_of(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """Those of `rows` that equal none of the others, however often a row occurs."""
    rows, others = list(rows), set(others)
    groups: dict[Row, list[Row]] = defaultdict(list)
    for other in others:
        groups[_shape(other)].append(other)
    within = _tolerances([*rows, *others])
    return [row for row in rows if not any(_alike(row, other, within) for other in groups[_shape(row)])]


def _unequal(found: Iterable[Row], expected: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """The rest of both without rows that are equal bit by bit."""
    ours, theirs = Counter(found), Counter(expected)
    return list((ours - theirs).elements()), list((theirs - ours).elements())


def _unmatched(ours: list[Row], theirs: list[Row], within: Mapping[int, float]) -> tuple[list[Row], list[Row]]:
    """Pair rows that differ only in floating point, each with a close one, and return the rest of both."""
    rest, left = sorted(theirs, key=_numbers), []
    for row in sorted(ours, key=_numbers):
        near = next((at for at, other in enumerate(rest) if _alike(row, other, within)), None)
        if near is None:
            left.append(row)
        else:
            del rest[near]
    return left, rest


def _plain(value: Any) -> Any:
    """A hashable value that equals every value with the same meaning."""
    if isinstance(value, dict):
        return tuple((name, _plain(one)) for name, one in sorted(value.items()))
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, Decimal):
        return value.normalize(DIGITS)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def _shape(row: Row) -> Row:
    """The row without its floating point."""
    return tuple(_HOLE if isinstance(one, float) else _shape(one) if isinstance(one, tuple) else one for one in row)


def _numbers(row: Row) -> list[float]:
    return list(_floats(row))


def _floats(row: Row) -> Iterator[float]:
    for one in row:
        if isinstance(one, float):
            yield one
        elif isinstance(one, tuple):
            yield from _floats(one)


def _tolerances(rows: Iterable[Row]) -> dict[int, float]:
    """By the place of a column with floating point, how far its values may be apart next to zero."""
    largest: dict[int, float] = defaultdict(lambda: 1.0)
    for row in rows:
        for at, value in enumerate(row):
            for number in _floats((value,)):
                largest[at] = max(largest[at], abs(number))
    return {at: min(CLOSE, NOISE * number) for at, number in largest.items()}


def _alike(row: Row, other: Row, within: Mapping[int, float]) -> bool:
    """Whether the floating point of two rows of the same shape is close."""
    return all(
        math.isclose(one, two, rel_tol=CLOSE, abs_tol=within[at])
        for at, values in enumerate(zip(row, other, strict=True))
        for one, two in zip(*(_floats((value,)) for value in values), strict=True)
    )
