"""Find the homes in the folder of all homes, with or without a rule file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.core.protocol.records.head import Head
from floodmark.errors import FloodmarkError, message
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader


@dataclass(frozen=True)
class HomeStatus:
    """`head`: None if nothing has run, or if `error` says why it cannot be read."""

    rule: str
    head: Head | None = None
    error: str | None = None

    def facts(self) -> dict[str, Any]:
        head = self.head
        return {
            "rule": self.rule,
            "generation": head.generation if head else None,
            "epoch": head.epoch if head else None,
            "retired": head.retired if head else None,
            "dropping": head is not None and head.dropping is not None,
            "error": self.error,
        }

    def text(self) -> str:
        """The message for a home without a rule file."""
        if self.error is not None:
            return f"no rule file; its ledger cannot be read: {self.error}"
        if self.head is None:
            return "no rule file; nothing has run"
        stands = f"no rule file; epoch {self.head.epoch} of generation {self.head.generation}"
        if self.head.dropping is not None:
            return f"{stands}; a drop has not finished"
        return f"{stands}; retired {self.head.retired}" if self.head.retired else stands


def homes(root: Path) -> list[str]:
    """Names of the rules that have a ledger in this folder."""
    found = sorted(root.iterdir()) if root.is_dir() else []
    return [one.name for one in found if re.fullmatch(r"\w+", one.name, re.ASCII) and (one / "ledger").is_dir()]


def home_status(root: Path, name: str) -> HomeStatus:
    """The home of a rule. Does not raise errors of the ledger: `error` holds the message."""
    try:
        ledger = LedgerReader.load(Home(root, name).ledger)
    except (FloodmarkError, OSError) as fault:
        return HomeStatus(name, error=message(fault))
    return HomeStatus(name, ledger.head if ledger else None)
