"""Open the tables that a rule reads, with a helpful error if one does not exist."""

from __future__ import annotations

import difflib
from pathlib import Path

from deltalake import DeltaTable

from floodmark.errors import NotThereYet
from floodmark.ledger.delta import tables


def open_existing(what: str, address: str, rule: str | None = None) -> DeltaTable:
    """The table at an address. Raises NotThereYet.

    `what`: the stream or lookup that reads it; `rule`: the rule whose sink it is.
    """
    found = tables.open_table(address)
    if found is None:
        ways = f"{_first(Path(address), rule)}; a retry checks again"
        again = "If the rule has read a table there, restore that one: a new one is another table"
        raise NotThereYet(f"{what}: no Delta table at {address} yet. {ways}. {again}")
    return found


def _first(path: Path, rule: str | None) -> str:
    return _instead(path) if rule is None else f"Rule {rule} creates it: run that rule first, or fix the address"


def _instead(path: Path) -> str:
    if (path / "_delta_log").is_dir():
        return "Found a _delta_log without a commit: restore the log, or remove the folder and write the table"
    files = sorted(one.name for one in path.iterdir())[:1] if path.is_dir() else []
    if files:
        return (
            f"Found a folder with {files[0]} and no _delta_log: write these files as a Delta table, or fix the address"
        )
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    folders = {one.name: one for one in beside if one.is_dir() and one != path}
    near = difflib.get_close_matches(path.name, folders, 1)
    return f"{f'Did you mean {folders[near[0]]}? ' if near else ''}Write it first, or fix the address"
