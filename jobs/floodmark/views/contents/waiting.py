"""Count waiting rows, where results depend on single rows: joins, OVER, sessions, windows of rows, and classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.ledger.delta.datafiles import query
from floodmark.views.contents.openwindows import WatermarkHold, micros, state_table, timed, watermark_hold
from floodmark.views.contents.tablerows import committed
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule


@dataclass(frozen=True)
class Waiting:
    """`rows` on which pending results depend, and the event time of the `oldest`, in microseconds.

    At watermark `until`, every result that depends on the oldest is final; later if its session continues (`longer`).
    """

    rows: int
    oldest: int | None
    until: int | None
    longer: bool
    held: WatermarkHold

    def facts(self) -> dict[str, Any]:
        """For --json."""
        oldest, until = iso(self.oldest, self.held.zoned), iso(self.until, self.held.zoned)
        return {"rows": self.rows, "oldest": oldest, "until": until, **self.held.facts()}

    def text(self) -> str:
        """For people, in one or two sentences."""
        if self.oldest is None:
            return "no row waits"
        many = "1 row waits, of" if self.rows == 1 else f"{self.rows} rows wait, the oldest of"
        longer = " (later if a session continues)" if self.longer else ""
        oldest, until = iso(self.oldest, self.held.zoned), iso(self.until, self.held.zoned)
        return f"{many} {oldest}. Results that depend on it are final at watermark {until}{longer}; {self.held.text()}"


def waiting(rule: Rule, head: Head, root: Path) -> Waiting | None:
    """The waiting rows as of the ledger's head; None if `openwindows` covers the rule, or if it waits for nothing."""
    if rule.rebuild:
        return None
    specs = rule.query.windows
    passed = rule.process is not None or rule.query.collected is not None
    if not passed and all(spec.grid is not None and not spec.reach.after_us for spec in specs):
        return None
    reach = max((spec.extent_us for spec in specs), default=1)  # it gets a row once the watermark has passed it
    found = [_rows(rule, head, root, name, reach) for name in timed(rule)]
    oldest = min((at for _, at in found if at is not None), default=None)
    until = None if oldest is None else oldest + reach
    longer = any(spec.merges for spec in specs)
    return Waiting(sum(rows for rows, _ in found), oldest, until, longer, watermark_hold(rule, head, until))


def _rows(rule: Rule, head: Head, root: Path, name: str, reach: int) -> tuple[int, int | None]:
    """How many rows of a stream wait, and the time of the oldest."""
    table = state_table(rule, head, root, name)
    if table is None:
        return 0, None
    at = micros(rule, name, table)
    ahead = "" if head.watermark is None else f" AND {at} + {reach} > {head.watermark}"
    where = f"{committed(head)}{ahead}"
    [found] = query(table, f"SELECT count(*) AS rows, min({at}) AS oldest FROM t WHERE {where}")  # noqa: S608 - ours
    return found["rows"], found["oldest"]
