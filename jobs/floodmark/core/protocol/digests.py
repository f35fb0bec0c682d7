"""Digests of rows, as values: two multisets of rows are the same where their digests are.

A digest does not depend on the order of the rows, and digests of parts add up to that of the whole.
docs/reference/digests.md says what a row's hash is. Spark computes it (`spark.read.digesting`), and the auditor once
more without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict, Field

CLOSE = 1e-9  # two sums of floating point agree where they differ by no more than this part of their size
HUGE = 1.7e308  # the largest double is 1.797e308; magnitudes that sum to no more cannot overflow on the way
LOW = (1 << 32) - 1  # the bits of half a hash
MIDDLE = (
    1 << 31
)  # what is taken off each half, so that a sum stays near nought: 64 bits hold that of 2**32 rows, always


class Floats(BaseModel):
    """A computed column of floating point: how many values are null and NaN, the sum and the sum of the magnitudes of
    the others. The sums are Python's shortest text of a double, for JSON has no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nulls: int
    nans: int
    sum: str
    size: str

    def agrees(self, other: Floats) -> bool:
        if (self.nulls, self.nans) != (other.nulls, other.nans):
            return False
        sizes = float(self.size), float(other.size)
        if max(sizes) > HUGE:  # parts of the sum overflow or not, by the order in which they are added
            return min(sizes) > HUGE
        within = CLOSE * max(sizes)
        return _close(self.sum, other.sum, within) and _close(self.size, other.size, within)

    def __str__(self) -> str:
        return f"sum {self.sum} ({self.nulls} null, {self.nans} NaN)"


class Digest(BaseModel):
    """How many rows; the sums of the high and of the low 32 bits of each row's hash, unsigned, as decimal text.

    `floats`: the columns of floating point whose values are not in the hashes, by their path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = 0
    high: str = "0"
    low: str = "0"
    floats: dict[str, Floats] = Field(default_factory=dict)

    def differences(self, other: Digest) -> Iterator[str]:
        """What tells two digests apart, in words; nothing where they agree. `other` is what was found now."""
        if self.rows != other.rows:
            yield f"rows: {self.rows}, now {other.rows}"
        elif (self.high, self.low) != (other.high, other.low):
            yield f"hash of the rows: {self}, now {other}"
        for path in sorted({*self.floats, *other.floats}):
            one, now = self.floats.get(path), other.floats.get(path)
            if one is None or now is None or not one.agrees(now):
                yield f"column {path}: {one}, now {now}"

    def __str__(self) -> str:
        return f"{int(self.high):x}/{int(self.low):x}"


def digest_of(rows: int, high: int | None, low: int | None, floats: dict[str, Floats]) -> Digest:
    """`high`, `low`: sums of the hashes' halves, each less MIDDLE; None: of no row."""
    halves = (str((half or 0) + rows * MIDDLE) for half in (high, low))
    return Digest(rows=rows, high=next(halves), low=next(halves), floats=floats)


def _close(one: str, other: str, within: float) -> bool:
    return abs(float(one) - float(other)) <= within
