"""Read the ended epochs of a ledger, small and fast, for charts and sums.

This module does not check the hashes of rows: loading a ledger checks its head, the auditor checks all rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, reduce
from typing import Any

from deltalake import DeltaTable

from floodmark.core.protocol.expectations import Counted, added, counted
from floodmark.core.protocol.tally import COUNTS, counts_of
from floodmark.ledger.delta.datafiles import query
from floodmark.ledger.delta.tables import table_id

_COLUMNS = "seq, kind, generation, epoch, attempt, at, body"
_ENDS = f"SELECT {_COLUMNS} FROM t WHERE kind IN ('commit', 'lost') AND seq > {{:d}} ORDER BY seq"  # noqa: S608 - ours


@dataclass(frozen=True, slots=True)
class End:
    """One epoch that was committed or lost. `at`: seconds since 1970 when it ended; `seconds`: how long it worked.

    `watermark`: microseconds since 1970. Rows are sums over the streams. `expected`: counts of a committed epoch by
    expectation.
    """

    generation: int
    epoch: int
    at: float
    attempts: int
    watermark: int | None
    seconds: float | None
    read: int = 0
    filtered: int = 0
    dropped: int = 0
    folded: int = 0
    late: int = 0
    dead: int = 0
    rejected: int = 0
    lost: int = 0
    output: int = 0
    expected: Counted = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """All ended epochs up to the ledger's row `seq`, oldest first, without the row that begins a generation."""

    ledger: str
    seq: int
    ends: tuple[End, ...]

    @cached_property
    def generations(self) -> list[int]:
        return sorted({end.generation for end in self.ends})

    def of(self, generation: int) -> list[End]:
        return [end for end in self.ends if end.generation == generation]


def read_history(table: DeltaTable, known: History | None = None) -> History:
    """The ledger's history now. With `known`, only rows after it are read."""
    ledger = table_id(table)
    before = known if known and known.ledger == ledger else History(ledger, 0, ())
    rows = query(table, _ENDS.format(before.seq))
    ends = (*before.ends, *(_end(row) for row in rows if row["epoch"]))
    return History(ledger, rows[-1]["seq"] if rows else before.seq, ends)


def _end(row: dict[str, Any]) -> End:
    body = json.loads(row["body"])
    seconds = body.get("seconds")
    return End(
        row["generation"],
        row["epoch"],
        datetime.fromisoformat(row["at"]).timestamp(),
        row["attempt"],
        body["watermark"],
        round(sum(seconds.values()), 3) if seconds else None,
        **counts_of(row["kind"], body),
        expected=counted(body) if row["kind"] == "commit" else {},
    )


def expected(ends: Sequence[End]) -> Counted:
    """Rows that failed each expectation, over several epochs."""
    return reduce(added, (end.expected for end in ends), {})


def sums(ends: Sequence[End]) -> dict[str, int]:
    """Rows over several epochs."""
    return {name: sum(getattr(end, name) for end in ends) for name in COUNTS}
