"""What a rule's home remembers of a slot: its names, and which of the two Floodmark has made."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from floodmark.connectors.sources.postgres.options import MOST


@dataclass(frozen=True)
class Kept:
    """`made_slot`, `made_publication`: whether it is dropped with the rule."""

    slot: str
    publication: str
    made_slot: bool
    made_publication: bool

    @property
    def made_any(self) -> bool:
        return self.made_slot or self.made_publication


def new_name(keep: Path) -> str:
    """A name of its own for each home: another home at the same path, on another machine, has another."""
    stem = re.sub(r"[^a-z0-9_]", "_", f"floodmark_{keep.parents[1].name}_{keep.name}".lower())
    return f"{stem[: MOST - 9]}_{secrets.token_hex(4)}"


def load(keep: Path | None) -> Kept | None:
    path = keep and keep / "slot.json"
    return Kept(**json.loads(path.read_text())) if path and path.exists() else None


def save(keep: Path, kept: Kept) -> None:
    """Before the server has them: what a kill leaves there is then known."""
    durably(keep / "slot.json", asdict(kept))


def durably(path: Path, facts: Mapping[str, object]) -> None:
    """Write a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}")
    with part.open("w") as text:
        text.write(json.dumps(facts))
        text.flush()
        os.fsync(text.fileno())
    part.rename(path)


def remove(keep: Path) -> None:
    (keep / "slot.json").unlink(missing_ok=True)
