"""Gives a rule another name. Whatever counts hangs on the ledger's id and not on the name, and stays as it is.

1. A row of the ledger says the new name: from then on nothing runs under the old one.
2. The home is moved to the new name, in one step. From then on it runs under that.

Each can be taken again after a kill: a home under another name than its ledger says is one that has yet to be moved.
"""

from __future__ import annotations

from pathlib import Path

from floodmark.core.lifecycle.life import renaming
from floodmark.core.protocol.crashpoints import reach
from floodmark.errors import Refused, RunFailed
from floodmark.ledger.holder import owner_file
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader


def is_done(root: Path, old: str, new: str) -> bool:
    """Whether an earlier rename has moved the home already."""
    if Home(root, old).path.exists():
        return False
    found = LedgerReader.load(Home(root, new).ledger)
    return found is not None and found.head is not None and found.head.name == new


def check_free(home: Home) -> None:
    """Refuse a name under which something lies in the home of all rules."""
    if home.path.exists() and any(home.path.iterdir()):
        raise Refused(
            f"{home.path} is there already: a rule {home.rule} has a home of its own. Choose another name; or, if "
            f"nothing of it is needed, `floodmark retire {home.rule}` and `floodmark drop {home.rule} --all`"
        )


def rename(ledger: Ledger, home: Home, new: Home) -> None:
    """Take the steps that are left. For who holds the lock, which goes along with the home."""
    assert ledger.head is not None
    if new != home:
        check_free(new)
    life = renaming(ledger.head, home.rule, new.rule)
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
        home.path.rename(new.path)
    except OSError as fault:
        raise RunFailed(f"the home {home.path} could not be moved to {new.path}: {fault.strerror}; retry") from fault
