"""Offsets in an Iceberg table: its snapshots, and which of them have rows to read. No catalogue, no file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

APPEND, SAME = "append", "replace"  # snapshots that add rows, and that have the same rows in other files


@dataclass(frozen=True)
class At:
    """After a snapshot of the table with the UUID `of`; `snapshot` None: before the first row.

    schema: the id of the table's schema when the offset was planned; None: not known.
    """

    of: str
    snapshot: int | None = None
    sequence: int = 0
    schema: int | None = field(default=None, compare=False)

    def line(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if (name, value) != ("schema", None)})

    @classmethod
    def parse(cls, line: str) -> At:
        found = json.loads(line)
        return cls(found["of"], found["snapshot"], found["sequence"], found.get("schema"))


@dataclass(frozen=True)
class Step:
    """A snapshot. parent: None of the first one; at: milliseconds since 1970; rows: those to read that it added.

    whole: all rows of the table then; None: not known.
    """

    snapshot: int
    parent: int | None
    sequence: int
    at: int
    operation: str
    rows: int
    whole: int | None = None

    @property
    def words(self) -> str:
        when = datetime.fromtimestamp(self.at / 1000, UTC).isoformat(timespec="seconds")
        return f"snapshot {self.snapshot} ({self.operation}, {when})"

    @property
    def rewrites(self) -> bool:
        return self.operation not in (APPEND, SAME)


KEEP = "keep snapshots until they are read, or give the stream a landing"


class Gone(Exception):
    """Rows after an offset cannot be read any more. The text says why, and what to do."""


def since(lineage: Iterable[Step], begin: At, there: bool = False) -> list[Step]:
    """The snapshots after `begin`, the oldest first. lineage: the newest one and its ancestors, as far as they exist.
    there: the table still has the snapshot of `begin`.

    From before the first row on, the first of them has all rows that there were then. Raises Gone.
    """
    found = list[Step]()
    for one in lineage:
        if one.snapshot == begin.snapshot:
            return _appended(found)
        found.append(one)
        if begin.snapshot is None and one.rewrites:
            break
    if begin.snapshot is None or (found and found[-1].parent == begin.snapshot):
        return _appended(found, begin.snapshot is None)
    read = f"expected snapshot {begin.snapshot}, which was read, before the newest one, found"
    if not found:
        raise Gone(
            f"{read} no rows: the table was replaced by an empty one, as CREATE OR REPLACE TABLE does. Make that "
            "snapshot current again, or start over with `floodmark reset`"
        )
    if found[-1].sequence < begin.sequence:  # the parent of one that remains may be forgotten
        raise Gone(
            f"{read} a table that was rolled back. Make that snapshot current again, or start over with "
            "`floodmark reset`"
        )
    if there:
        raise Gone(
            f"{read} {found[-1].words}, which does not follow it: the table was replaced or rolled back, or the "
            "snapshots between have expired. Start over with `floodmark reset`"
        )
    raise Gone(
        f"expected the snapshots after {begin.snapshot}, found that those before {found[-1].snapshot} have expired. "
        f"Start over with `floodmark reset`, and {KEEP}"
    )


def _appended(found: Sequence[Step], whole: bool = False) -> list[Step]:
    """Oldest first. whole: the oldest one is read with all that was there."""
    rewritten = next((one for one in reversed(found[:-1] if whole else found) if one.rewrites), None)
    if rewritten is not None:
        raise Gone(
            f"expected a table to which rows are only appended, found {rewritten.words}, which removed or changed "
            "rows. Start over with `floodmark reset`"
        )
    if whole and found:
        oldest = found[-1]
        found = [*found[:-1], oldest if oldest.whole is None else replace(oldest, rows=oldest.whole)]
    return list(reversed(found))


def first_of(steps: Sequence[Step], most: int | None) -> Step:
    """The last snapshot of an epoch with at most `most` rows (None: no limit), but at least one snapshot."""
    rows = 0
    for i, one in enumerate(steps):
        rows += one.rows
        if i and most is not None and rows > most:
            return steps[i - 1]
    return steps[-1]
