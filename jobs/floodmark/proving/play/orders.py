"""What one application of a proof is told to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

STARTED, SAMPLE = "started", "sample"  # what an application tells of itself, beside the copies


@dataclass(frozen=True)
class Orders:
    """What one application is to do. `name`: of this application; `resets`: of the cases those that are reset after a
    run to the end; `batch`: whether their answer in batch is wanted, too; `sampled`: the user's own rule, of which a
    sample of `rows` rows is taken first and which then runs undisturbed, and, with `replays`, in epochs of
    other sizes, too.
    """

    name: str
    scratch: str
    master: str
    cases: Sequence[str]
    resets: Sequence[str] = ()
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
        """What `write` has written."""
        return cls(**json.loads(path.read_text()))
