"""Decides how much input makes an epoch of a given number of seconds, from the rate of earlier epochs. Pure.

An epoch's intent names the files that it reads, so later measurements do not affect a retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from floodmark.core.protocol.records.rows import Commit, Row, total

PROBE = 64 * 1024 * 1024  # bytes of an epoch before anything was measured
MEASURED = 10  # newest epochs only, because the machine and the input may change


def rate(rows: Iterable[Row], generation: int) -> float | None:
    """Rows a second over the newest epochs that read any; None if there are none.

    Each epoch also has a fixed cost. So short epochs make the rate too low, and the next ones longer.
    """
    found = [_measured(row) for row in rows if (row.kind, row.generation) == ("commit", generation) and row.epoch > 0]
    found = [(read, seconds) for read, seconds in found if read and seconds][-MEASURED:]
    seconds = sum(seconds for _, seconds in found)
    return sum(read for read, _ in found) / seconds if found else None


def _measured(row: Row) -> tuple[int, float]:
    """Rows read, and seconds taken."""
    commit = Commit.model_validate_json(row.body)
    return total(commit.counts).read, sum(commit.seconds.values())


def wanted(seconds: int, rows_a_second: float | None, bytes_a_row: float | None) -> int:
    """The input, in bytes, of an epoch that should take this many seconds."""
    if rows_a_second is None or bytes_a_row is None:
        return PROBE
    return max(1, int(seconds * rows_a_second * bytes_a_row))


def limit(waiting: Sequence[int], total_bytes: int) -> int:
    """The maximum bytes of each stream, so that together they have `total_bytes`; short streams leave more to others.

    waiting: unread bytes of each stream.
    """
    left, streams = total_bytes, len(waiting)
    for size in sorted(waiting):
        if size * streams >= left:
            break
        left, streams = left - size, streams - 1
    return max(1, left // streams) if streams else max([1, *waiting])
