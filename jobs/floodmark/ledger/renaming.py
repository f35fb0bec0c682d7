"""Renames a rule. The ledger's id, not the name, identifies everything, so nothing else changes.

1. A row of the ledger records the new name: from then on nothing runs under the old one.
2. The home is moved to the new name, in one step. From then on it runs under that.

Each step can be repeated after a kill: a home whose name differs from its ledger's has yet to be moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from floodmark.core.lifecycle.life import renaming
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.records.following import read_head
from floodmark.core.protocol.records.rows import Life, Row
from floodmark.errors import Refused, RunFailed
from floodmark.ledger.holder import owner_file
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader


def is_done(root: Path, old: str, new: str) -> bool:
    """Whether an earlier rename has moved the home already."""
    if Home(root, old).path.exists():
        return False
    found = LedgerReader.load(Home(root, new).ledger)
    return found is not None and found.head is not None and found.head.name == new and old in _names(found.rows)


def _names(rows: Sequence[Row]) -> set[str]:
    """All names that the rule has had: its first one, and those that renames gave it."""
    begun = read_head(rows[:1])
    lives = (Life.model_validate_json(row.body) for row in rows if row.kind == "life")
    first = [begun.rule.rule] if begun else []
    return {*first, *(life.name for life in lives if life.name)}


def check_free(home: Home) -> None:
    """Refuse a name for which the home of all rules already has a non-empty folder, or a link."""
    if home.path.is_symlink():
        raise Refused(f"expected no file at {home.path}, found a link: a home cannot take its place. Remove it first")
    if home.path.exists() and any(home.path.iterdir()):
        raise Refused(
            f"{home.path} already exists: a rule {home.rule} has a home of its own. Choose another name; or, if "
            f"nothing in it is needed, `floodmark retire {home.rule}` and `floodmark drop {home.rule} --all`"
        )


def rename(ledger: Ledger, home: Home, new: Home) -> None:
    """Take the remaining steps. The caller holds the lock, which moves with the home."""
    if new != home:
        check_free(new)
    life = renaming(ledger.begun, home.rule, new.rule)
    if life is not None:
        reach(home.rule, "rename.intent.before")
        ledger.live(life)
        reach(home.rule, "rename.intent.after")
    if new != home:
        _move(home, new)
        owner_file(new.lock).unlink(missing_ok=True)
    reach(home.rule, "rename.moved")


def _move(home: Home, new: Home) -> None:
    try:
        if home.path.is_symlink() and new.path.is_dir():  # the system replaces it by a folder only
            new.path.rmdir()
        home.path.rename(new.path)
    except OSError as fault:
        raise RunFailed(f"the home {home.path} could not be moved to {new.path}: {fault.strerror}; retry") from fault
