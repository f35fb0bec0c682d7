"""How much input makes an epoch of so many seconds, by what earlier epochs took. Pure decisions.

Which files an epoch reads stands in its intent, so a retry is the same whatever was measured since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from floodmark.core.protocol.records.rows import Commit, Row, total

PROBE = 64 * 1024 * 1024  # bytes of an epoch before anything was measured
MEASURED = 10  # of the newest epochs: the machine, and the input, may be others by now


def rate(rows: Iterable[Row], generation: int) -> float | None:
    """Rows a second over the newest epochs that read any; None where there are none.

    Each epoch has a fixed cost, too: so short ones make the rate too low, and the next ones longer.
    """
    found = [_measured(row) for row in rows if (row.kind, row.generation) == ("commit", generation) and row.epoch > 0]
    found = [(read, seconds) for read, seconds in found if read and seconds][-MEASURED:]
    seconds = sum(seconds for _, seconds in found)
    return sum(read for read, _ in found) / seconds if found else None


def _measured(row: Row) -> tuple[int, float]:
    """Rows that were read, and seconds that it took."""
    commit = Commit.model_validate_json(row.body)
    return total(commit.counts).read, sum(commit.seconds.values())


def wanted(seconds: int, rows_a_second: float | None, bytes_a_row: float | None) -> int:
    """Bytes of an epoch that is to take so long."""
    if rows_a_second is None or bytes_a_row is None:
        return PROBE
    return max(1, int(seconds * rows_a_second * bytes_a_row))


def limit(waiting: Sequence[int], total_bytes: int) -> int:
    """The most bytes of any one stream, so that all together have so many: what short ones leave the others get.

    `waiting`: bytes that wait in each stream.
    """
    left, streams = total_bytes, len(waiting)
    for size in sorted(waiting):
        if size * streams >= left:
            break
        left, streams = left - size, streams - 1
    return max(1, left // streams) if streams else max([1, *waiting])
