"""Renames a rule. The ledger's id, not the name, identifies everything, so nothing else changes.

1. A row of the ledger records the new name: from then on nothing runs under the old one.
2. A note beside the homes says of each older name what the rule is named now. A run of an older name would find no
   ledger, begin anew, and deliver everything again where the sinks name no owner.
3. The home is moved to the new name, in one step. From then on it runs under that.

Each step can be repeated after a kill: a home whose name differs from its ledger's has yet to be moved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from floodmark.core.lifecycle.life import renaming
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.records.following import read_head
from floodmark.core.protocol.records.rows import Life, Row
from floodmark.errors import Refused, RunFailed
from floodmark.ledger.delta.syncing import sync_files
from floodmark.ledger.holder import owner_file, relay_lock
from floodmark.ledger.home import Home, unusable
from floodmark.ledger.ledger import Ledger, LedgerReader


def is_done(root: Path, old: str, new: str) -> bool:
    """Whether an earlier rename has moved the home already."""
    if Path(Home(root, old).ledger).exists():
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
        if not Path(home.ledger).exists():
            raise Refused(
                f"{home.path} has files, and no ledger: remove it if nothing in it is needed, or choose another name"
            )
        raise Refused(
            f"{home.path} already exists: a rule {home.rule} has a home of its own. Choose another name; or, if "
            f"nothing in it is needed, `floodmark retire {home.rule}` and `floodmark drop {home.rule} --all`"
        )


def renamed_to(home: Home) -> str | None:
    """What the rule of this name is named now; None if it has a ledger, or if no rule was renamed from this name."""
    if Path(home.ledger).exists() or not home.renamed.exists():
        return None
    found = _note_in(home.renamed)
    if found is None and home.renamed.exists():
        raise Refused(
            f"{home.renamed} cannot be read: expected the name that rule {home.rule} has now, after a rename. Look for "
            f"it with `floodmark list`, and write it into the rule's file; for another rule named {home.rule}, remove "
            "the file"
        )
    return None if found is None else found["name"]


def check_not_renamed(home: Home) -> None:
    """Refuse to begin a rule, or to relay, under a name that another one had: its file may not be edited yet."""
    name = renamed_to(home)
    if name is not None:
        raise Refused(
            f"rule {home.rule} was renamed to {name}, and would start over under its old name. Rename its file and "
            f"write `rule: {name}` in it; for another rule of this name, `floodmark drop {home.rule} --all` frees the "
            "name, and removes nothing else"
        )


def free_names(root: Path, ledger: str) -> None:
    """Forget the older names of a rule, by its ledger's id."""
    for name in _noted(root, ledger):
        Home(root, name).renamed.unlink(missing_ok=True)


def _noted(root: Path, ledger: str) -> set[str]:
    notes = ((file.stem, _note_in(file)) for file in Home(root, "any").renamed.parent.glob("*.json"))
    return {name for name, found in notes if found is not None and found["ledger"] == ledger}


def _note_in(file: Path) -> dict[str, str] | None:
    """The note; None if it is not there, or cannot be read: a power loss may leave it empty."""
    try:
        found = json.loads(file.read_text())
        return {field: str(found[field]) for field in ("ledger", "name")}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _note(ledger: str, home: Home, new: Home) -> None:
    """Write the new name beside each older one."""
    try:
        home.renamed.parent.mkdir(exist_ok=True)
        for name in {*_noted(home.root, ledger), home.rule} - {new.rule}:
            file = Home(home.root, name).renamed
            fresh = file.with_name(f"{file.name}.new")
            fresh.write_text(json.dumps({"ledger": ledger, "name": new.rule}))
            sync_files(str(file.parent), [fresh.name])
            fresh.replace(file)
            sync_files(str(home.root), [f"{file.parent.name}/{file.name}"])
    except OSError as fault:
        raise unusable(home.root, fault) from fault


def rename(ledger: Ledger, home: Home, new: Home) -> None:
    """Take the remaining steps. The caller holds the lock, which moves with the home."""
    if new != home:
        check_free(new)
    life = renaming(ledger.begun, home.rule, new.rule)
    if life is not None:
        reach(home.rule, "rename.intent.before")
        ledger.live(life)
        reach(home.rule, "rename.intent.after")
    _note(ledger.id, home, new)
    if new != home:
        _move(home, new)
        for lock in (new.lock, *map(relay_lock, new.outboxes)):
            owner_file(lock).unlink(missing_ok=True)
    new.renamed.unlink(missing_ok=True)
    reach(home.rule, "rename.moved")


def _move(home: Home, new: Home) -> None:
    try:
        if home.path.is_symlink() and new.path.is_dir():  # the system replaces it by a folder only
            new.path.rmdir()
        home.path.rename(new.path)
    except OSError as fault:
        raise RunFailed(f"the home {home.path} could not be moved to {new.path}: {fault.strerror}; retry") from fault
