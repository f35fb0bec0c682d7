"""The orders for one application of a proof."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

STARTED, SAMPLE, REWRITES = "started", "sample", "rewrites"  # an application's reports, beside those on copies


@dataclass(frozen=True)
class Orders:
    """Orders for one application. `name`: of this application; `resets`: cases that are reset after a complete run;
    `corrections`: cases whose input is rewritten after a complete run, and which then run again; `batch`: whether to
    compute results in batch, too; `sampled`: the user's own rule. The application takes a sample of `rows` rows of it
    first and runs it undisturbed, and, with `replays`, also in epochs of other sizes.
    """

    name: str
    scratch: str
    master: str
    cases: Sequence[str]
    resets: Sequence[str] = ()
    corrections: Sequence[str] = ()
    batch: bool = False
    sampled: str = ""
    rows: int = 0
    replays: bool = True
    threads: int = 8
    close_until: str | None = None

    def write(self) -> Path:
        path = Path(self.scratch) / "orders" / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Orders:
        """Read the file that `write` has written."""
        return cls(**json.loads(path.read_text()))
