"""The position: how far a target has what its outbox holds. It is kept in the target, and moves with the rows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

MARKERS = "floodmark.positions"  # Kafka's topic with the positions of targets that are topics
KEYS = ("ledger", "generation", "token", "epoch", "seq", "hash")


@dataclass(frozen=True)
class Position:
    """The target has all portions up to row `seq` of the ledger `ledger`; `hash`: that row's. Of a claimed target that
    has nothing yet, `seq` is 0 and `hash` empty.

    generation, token, epoch: those of the row. The hash of a row covers all rows before it.
    """

    ledger: str
    generation: int = 0
    token: str = ""
    epoch: int = 0
    seq: int = 0
    hash: str = ""

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """Canonical JSON."""
        return json.dumps(self.facts(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that `text` wrote. Raises ValueError for any other text."""
        found = json.loads(text)
        if not isinstance(found, dict) or set(found) != set(KEYS):
            raise ValueError(f"expected a position with {', '.join(KEYS)}, found {text[:200]}")
        texts = (str(found[key]) for key in ("ledger", "token", "hash"))
        ledger, token, sum_ = texts
        return cls(ledger, int(found["generation"]), token, int(found["epoch"]), int(found["seq"]), sum_)

    @property
    def words(self) -> str:
        """For people."""
        return f"generation {self.generation}, epoch {self.epoch}" if self.seq else "nothing yet"
