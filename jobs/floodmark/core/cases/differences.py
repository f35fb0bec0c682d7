"""Compares a table's rows with the expected rows, exactly, as multisets; shows the differences as a text table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from floodmark.core.cases.typedrows import Texts

SHOWN = 20
NOTHING = "null"


@dataclass(frozen=True)
class RowDifference:
    """An expected row that is missing, an unexpected row, or a pair of both that are equal in some columns."""

    expected: Texts | None
    found: Texts | None


@dataclass(frozen=True)
class TableDifference:
    """The differences of one table: sink, sinks[1], late or dead. `expected_rows`, `found_rows`: of the whole table."""

    table: str
    columns: tuple[str, ...]
    expected_rows: int
    found_rows: int
    rows: list[RowDifference] = field(default_factory=list)

    def text(self) -> str:
        """A title, and a table of the first differences."""
        lines = [("", *self.columns), *(line for row in self.rows[:SHOWN] for line in _lines(row))]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        more = [f"… and {len(self.rows) - SHOWN} more"] if len(self.rows) > SHOWN else []
        title = f"{self.table}: expected {_count(self.expected_rows)}, found {_count(self.found_rows)}"
        return "\n".join(line.rstrip() for line in [title, *table, *more])


def compared(table: str, columns: Sequence[str], expected: list[Texts], found: list[Texts]) -> TableDifference | None:
    """The differences; None if both have the same rows, each equally often."""
    missing, extra = Counter(expected), Counter(found)
    missing.subtract(found)
    extra.subtract(expected)
    pairs = list(_paired(_sorted(missing), _sorted(extra)))
    return TableDifference(table, tuple(columns), len(expected), len(found), pairs) if pairs else None


def _sorted(rows: Counter[Texts]) -> list[Texts]:
    return sorted((+rows).elements(), key=lambda row: [text or "" for text in row])


def _paired(missing: list[Texts], extra: list[Texts]) -> Iterator[RowDifference]:
    """Pairs of a missing row and the most similar unexpected row, if at least half of their columns are equal."""
    left = list(extra)
    for row in missing:
        alike = max(left, key=lambda other: _equal(row, other), default=None)
        if alike is not None and 2 * _equal(row, alike) >= len(row) > 1:
            left.remove(alike)
            yield RowDifference(row, alike)
        else:
            yield RowDifference(row, None)
    yield from (RowDifference(None, row) for row in left)


def _equal(one: Texts, other: Texts) -> int:
    return sum(mine == theirs for mine, theirs in zip(one, other, strict=True))


def _lines(row: RowDifference) -> Iterator[tuple[str, ...]]:
    """The table's lines for a row; of a pair, the second line shows only the differences."""
    if row.expected is None or row.found is None:
        kind = "unexpected" if row.expected is None else "missing"
        yield kind, *map(_cell, row.found or row.expected or ())
        return
    yield "expected", *map(_cell, row.expected)
    pairs = zip(row.expected, row.found, strict=True)
    yield "  found", *("" if wanted == there else _cell(there) for wanted, there in pairs)


def _cell(text: str | None) -> str:
    return NOTHING if text is None else text or "''"


def _count(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"
