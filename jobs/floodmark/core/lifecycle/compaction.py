"""Decides when a state table is rewritten, so that its size stays proportional to its live rows."""

from __future__ import annotations

MAX_FILES = 24  # a scan opens every file; at some 5 ms each this bounds the overhead to about a tenth of a second
WORTH_ROWS = 1_000_000  # files of dead rows are never opened: only the space that they take is worth a rewrite


def is_due(files: int, rows: int, dead: int) -> bool:
    """Whether to rewrite a table of `files` files and `rows` rows, of which at least `dead` are no longer needed."""
    return files >= MAX_FILES or (dead >= WORTH_ROWS and 2 * dead >= rows)
