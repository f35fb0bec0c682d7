"""Defines digests of rows: two multisets of rows are treated as equal if their digests are.

A digest does not depend on the order of the rows, and the digests of parts add up to that of the whole.
docs/reference/digests.md defines a row's hash. Spark computes it (`spark.read.digesting`); the auditor computes it
again without Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field

CLOSE = 1e-9  # two sums of floating point agree if they differ by no more than this fraction of their size
HUGE = 1.7e308  # the largest double is 1.797e308; magnitudes with a smaller sum cannot overflow on the way
LOW = (1 << 32) - 1  # the bits of half a hash
MIDDLE = 1 << 31  # subtracted from each half, so that a sum stays near zero: 64 bits always hold that of 2**32 rows


class Floats(BaseModel):
    """A computed column of floating point: null and NaN counts, the sum of the other values and of their magnitudes.

    The sums are Python's shortest text of a double, because JSON has no infinity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    nulls: int
    nans: int
    sum: str
    size: str

    def agrees(self, other: Floats) -> bool:
        if (self.nulls, self.nans) != (other.nulls, other.nans):
            return False
        sizes = float(self.size), float(other.size)
        if max(sizes) > HUGE:  # parts of the sum overflow or not, depending on the order in which they are added
            return min(sizes) > HUGE
        within = CLOSE * max(sizes)
        return _close(self.sum, other.sum, within) and _close(self.size, other.size, within)

    def __str__(self) -> str:
        return f"sum {self.sum} ({self.nulls} null, {self.nans} NaN)"


class Digest(BaseModel):
    """Rows of a table or batch: their number, and sums over the high and the low 32 bits of each row's hash.

    high, low: the sums, unsigned, as decimal text. floats: the columns of floating point whose values are not in the
    hashes, by path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = 0
    high: str = "0"
    low: str = "0"
    floats: dict[str, Floats] = Field(default_factory=dict)

    def differences(self, other: Digest) -> Iterator[str]:
        """How two digests differ, in words; nothing if they agree. `other` is the newer one."""
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
    """A digest from sums of the hashes' halves, each less MIDDLE; None: there is no row."""
    halves = (str((half or 0) + rows * MIDDLE) for half in (high, low))
    return Digest(rows=rows, high=next(halves), low=next(halves), floats=floats)


def combined(parts: Iterable[Mapping[str, Digest]]) -> dict[str, Digest]:
    """By name, the digests of the rows of all parts together; of columns that are in the hashes."""
    found: dict[str, Digest] = {}
    for part in parts:
        for name, digest in part.items():
            before = found.get(name, Digest())
            assert not (before.floats or digest.floats)
            sums = (str(int(one) + int(other)) for one, other in ((before.high, digest.high), (before.low, digest.low)))
            found[name] = Digest(rows=before.rows + digest.rows, high=next(sums), low=next(sums))
    return found


def _close(one: str, other: str, within: float) -> bool:
    return abs(float(one) - float(other)) <= within
