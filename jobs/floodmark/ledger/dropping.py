"""Removes the tables that a rule owns, and no others. Each step can be repeated after a kill.

1. It decides which tables to drop by their own metadata: id, owner, writers.
2. A row of the ledger announces them, by table and id.
3. Each table's folder is renamed to a name made of its id, so that no reader sees half a table, then removed.
4. A row completes the drop. If the ledger is dropped, too, the home is renamed and removed as a whole instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from floodmark.core.lifecycle.life import GOES_ON, dropping
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName, other_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life
from floodmark.core.protocol.recovery import app_id, overtaken
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import about_named, about_sink
from floodmark.errors import Final, FloodmarkError, NotOwned, Refused, RunFailed, TableBroken
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.ledger.renaming import free_names

TRASH = ".dropped-"
OF_OBJECTS = "it is in an object store, where Floodmark removes nothing"
REPAIR = "FSCK"  # it takes files off the log that are gone
# Data files and deletion vectors, as Delta's writers name them; and folders of partitions, or of two random characters.
_FILE = re.compile(r"(part|cdc)-.*\.parquet|deletion_vector_.*\.bin|[._].*")
_FOLDER = re.compile(r".*=.*|[._].*|[A-Za-z0-9]{2}")


@dataclass(frozen=True)
class Owned:
    """A table that the rule created. `name`: the ledger's, of state with its generation; `id`: the table's.

    `other_kind`: of a sink that is no Delta table.
    """

    name: str
    address: str
    id: str
    other_kind: str | None = None


@dataclass(frozen=True)
class DropPlan:
    """The tables that a drop will remove; `skipped`: why others are not the rule's to remove, by the ledger's name.

    `is_older`: whether a sink shows that the home is an older copy.
    """

    tables: tuple[Owned, ...]
    skipped: Mapping[str, str]
    is_older: bool = False


def plan_drop(ledger: LedgerReader, home: Home, parts: Iterable[str], others: Mapping[str, str]) -> DropPlan:
    """Decide which tables to drop.

    parts: out of `state`, `sink`. others: location of a table -> the other rule that writes it. Tables that an earlier
    drop announced and that are gone are neither dropped nor spared.
    """
    dropped = set(_announced(ledger))
    found = [one for one in known(ledger, home) if TableName.parse(one.name).role in parts]
    why = {one.name: reason for one in found if (reason := _spared(one, ledger, others)) is not None}
    there = [one for one in found if one.name not in why and _exists(one)]
    newest = {one.name: one for one in found if _is_table_outside(one)}.values()  # a sink made anew has another id
    missing = (one for one in newest if one not in there and (one.name, one.id) not in dropped)
    is_older = any(_is_ahead(one, ledger) for one in found if one.name in why)
    return DropPlan(tuple(there), {one.name: _missing(one, home.rule) for one in missing} | why, is_older)


def _is_ahead(one: Owned, ledger: LedgerReader) -> bool:
    """Whether a table shows that the home is an older copy, whyever else it is spared."""
    with suppress(FloodmarkError):
        return _is_table_outside(one) and _overtaken(one, ledger) is not None
    return False


def _announced(ledger: LedgerReader) -> Iterator[tuple[str, str]]:
    """Name and id of each table that a drop has announced: it is gone, or goes next."""
    for row in ledger.rows:
        life = json.loads(row.body) if row.kind == "life" else {}
        if life.get("what") == "dropping":
            yield from life["tables"].items()


def _is_table_outside(one: Owned) -> bool:
    """Whether it is a Delta table outside of the rule's home, where others can move, remove or replace it."""
    return TableName.parse(one.name).is_sink and one.other_kind is None


def _missing(one: Owned, rule: str) -> str:
    return (
        f"the table with id {one.id} is not there: it was moved, or removed. If it was moved, "
        f"`floodmark retire {rule} --undo` and run the rule once, which records the new place; then retire it again"
    )


def known(ledger: LedgerReader, home: Home) -> Iterator[Owned]:
    """Every table that the ledger has recorded as written, in any generation."""
    seen = set[tuple[str, str]]()
    for row in ledger.rows:
        ids = json.loads(row.body).get("table_ids", {}) if row.kind in ("commit", "backfilled") else {}
        for name, id_ in ids.items():
            full = TableName.parse(name).in_generation(row.generation)
            if (full, id_) not in seen:
                seen.add((full, id_))
                yield owned(home, full, id_, ledger.head)


def owned(home: Home, name: str, id_: str, head: Head | None) -> Owned:
    """A table that the ledger calls so (of state with its generation)."""
    other = other_sinks(head).get(name) if head else None
    return Owned(name, address_of(home, name, head), id_, None if other is None else other.kind)


def address_of(home: Home, name: str, head: Head | None) -> str:
    """The address of a table, by the ledger's name (of state with its generation)."""
    table = TableName.parse(name)
    if table.is_sink:
        return (head.places if head else {}).get(name, table.rest)
    return str(home.path / name)


def check(ledger: LedgerReader, home: Home, wanted: DropPlan, whole: bool) -> Life:
    """The row that announces a drop. Raises Refused if the rule can run, or if a sink's folder cannot be moved; with
    `whole`, or if the home cannot."""
    announced = dropping(ledger.begun, home.rule, {one.name: one.id for one in wanted.tables})
    for one in wanted.tables:
        _check_movable(Path(one.address), partial(about_sink, one.address))
    if whole:
        _check_movable(home.path, lambda problem: f"home {home.path}: {problem}")
    return announced


def drop(ledger: Ledger, home: Home, wanted: DropPlan, others: Mapping[str, str], whole: bool) -> dict[str, str]:
    """Remove the tables; with `whole` the home too, its ledger last. The caller holds the lock and has called `finish`.

    Raises what `check` raises. Returns what `finish` returns.
    """
    left = dict[str, str]()
    announced = check(ledger, home, wanted, whole)
    if announced.tables:
        reach(home.rule, "drop.intent.before")
        ledger.live(announced)
        reach(home.rule, "drop.intent.after")
        left = finish(ledger, home, others)
    if whole:
        reach(home.rule, "drop.home.before")
        _remove_home(home, ledger.id)
    return left


def finish(ledger: Ledger, home: Home, others: Mapping[str, str]) -> dict[str, str]:
    """Take the remaining steps of an announced drop, if there is one.

    A table that others have come to own since it was announced, or in whose folder they have put files, is not removed
    if it is still in its place. Returns why, by the ledger's name of the table.
    """
    left = dict[str, str]()
    if ledger.head is None or ledger.head.dropping is None:
        return left
    for name, id_ in ledger.head.dropping.tables.items():
        one = owned(home, name, id_, ledger.head)
        kept = _spared(one, ledger, others) or _remove(one, home.rule, ledger, others)
        if kept is not None:
            left[name] = kept
        reach(home.rule, "drop.table.after")
    if any(TableName.parse(name).is_state for name in ledger.head.dropping.tables):
        remove_leftovers(home.path / "state", GOES_ON)  # they belong to no table
        remove_leftovers(home.checkpoints, GOES_ON)
    reach(home.rule, "drop.commit.before")
    ledger.live(Life(what="dropped"))
    reach(home.rule, "drop.commit.after")
    return left


def _remove(one: Owned, rule: str, ledger: LedgerReader, others: Mapping[str, str]) -> str | None:
    """Remove one table, if it exists. Returns why it stays, if a link to it was moved aside before a kill."""
    place = Path(one.address)
    aside = place.with_name(f"{TRASH}{one.id}")
    if _exists(one) and not aside.exists():
        _move(place, aside)
        reach(rule, "drop.table.moved")
    if aside.is_symlink():
        there = replace(one, address=str(aside.resolve()))
        kept = _spared(there, ledger, others)
        _remove_link(aside, kept is None and _exists(there))
        return kept and f"{kept}. It is at {there.address}; only the link to it was removed"
    if aside.exists():
        remove_trash(aside)
    return None


def _remove_link(link: Path, whole: bool) -> None:
    """Remove a link that was moved aside; with `whole`, its target first. What others have put there stays.

    The target gets a name made of the link's first: half of it would not tell whose it is.
    """
    target = link.resolve()
    trash = target.with_name(f"{link.name}-linked")
    if whole:
        _move(target, trash)
    if trash.exists():
        remove_trash(trash)
    link.unlink()


def _check_movable(place: Path, told: Callable[[str], str]) -> None:
    """Refuse a folder that cannot be renamed, before a row announces it."""
    spots = {place, place.resolve()}  # of a link, its target, too
    why = "it is a disk of its own (a mount point)" if any(one.is_mount() for one in spots) else None
    shut = [one.parent for one in spots if place.exists() and not os.access(one.parent, os.W_OK | os.X_OK)]
    if why is None and shut:
        why = f"there is no write permission in {shut[0]}"
    if why is not None:
        raise Refused(told(f"its folder cannot be moved aside, so it cannot be dropped: {why}. Nothing was dropped"))


def _move(place: Path, trash: Path) -> None:
    """Raises RunFailed if the store refuses the rename."""
    try:
        place.rename(trash)
    except OSError as fault:
        why = f"{place} cannot be moved aside: {fault.strerror}"
        raise RunFailed(f"{why}. Once it can, {GOES_ON}") from fault


def _remove_home(home: Home, ledger: str) -> None:
    aside = home.path.with_name(f"{TRASH}{home.rule}-{ledger}")
    free_names(home.root, ledger)  # first: once the home is moved aside, a repetition only removes that
    _move(home.path, aside)
    reach(home.rule, "drop.home.moved")
    remove_home(aside)


def remove_home(aside: Path) -> Path | None:
    """Remove a home that was moved aside: its name ends with the ledger's id. If it is a link, at whose target there is
    not this home any more, only the link goes. Returns what stays."""
    if not aside.is_symlink():
        shutil.rmtree(aside)
        return None
    target, ours = aside.resolve(), False
    with suppress(Refused, Final):
        found = LedgerReader.load(str(target / "ledger"))
        ours = found is not None and aside.name.endswith(f"-{found.id}")
    _remove_link(aside, ours)
    return target if target.exists() else None


def remove_trash(trash: Path) -> None:
    """Remove a folder; if it is a link, as of a home on another disk, first its target, then the link."""
    if not trash.is_symlink():
        return shutil.rmtree(trash)
    if trash.exists():
        shutil.rmtree(trash.resolve())
    return trash.unlink()


def remove_leftovers(folder: Path, goes_on: str) -> None:
    """Remove a folder, if it is there. Raises RunFailed with what cannot be removed; goes_on: what to do then."""
    try:
        if folder.exists() or folder.is_symlink():
            remove_trash(folder)
    except OSError as fault:
        problem = f"{fault.filename or folder} cannot be removed: {fault.strerror or fault}"
        raise RunFailed(f"{problem}. Give the right to it, or remove it by hand; then {goes_on}") from fault


def leftover_trash(home: Home) -> list[Path]:
    """Renamed homes that a killed drop had still to remove; nobody reads them any more."""
    return sorted(home.root.glob(f"{TRASH}{home.rule}-*"))


def _exists(one: Owned) -> bool:
    """Whether the very table is there. What lies in the home is the rule's, readable or not."""
    if _is_table_outside(one):
        table = tables.open_table(one.address)
        return table is not None and tables.table_id(table) == one.id
    return Path(one.address).exists()


def not_ours(one: Owned, ledger: str, others: Mapping[str, str]) -> str | None:
    """Why an existing table that the rule has written to is not its own; None if it is."""
    if not TableName.parse(one.name).is_sink:
        return None
    if one.other_kind is not None:
        return f"it is a {one.other_kind} sink, from which Floodmark removes nothing"
    try:
        if not _exists(one):
            return None
    except (TableBroken, Refused) as fault:
        return f"it cannot be read, so its owner is unknown ({fault})"
    return _of_others(one, DeltaTable(one.address), ledger, others)


def _spared(one: Owned, ledger: LedgerReader, others: Mapping[str, str]) -> str | None:
    """Why an existing table is not to be dropped; None if it is, or if it is gone."""
    return _of_another(one, ledger, others) or _foreign(one)


def _of_another(one: Owned, ledger: LedgerReader, others: Mapping[str, str]) -> str | None:
    """Why an existing table is not this ledger's, or that of a newer copy of it; None if it is, or if it is gone."""
    return not_ours(one, ledger.id, others) or _overtaken(one, ledger)


def _overtaken(one: Owned, ledger: LedgerReader) -> str | None:
    """Why a sink of the newest generation is another copy's of this ledger. Older generations write nothing."""
    head = ledger.begun
    if not TableName.parse(one.name).is_sink or head.table_ids.get(one.name) != one.id or not _exists(one):
        return None
    app = app_id(ledger.id, head.generation, head.token, TableName.parse(one.name).role)
    found = overtaken(one.name, head, tablelog.recorded_version(one.address, app))
    return found and (
        f"{found}: the home is an older copy. If the rule goes on in another home, remove this copy of the home by "
        "hand; otherwise restore the newest ledger, and drop again"
    )


def _foreign(one: Owned) -> str | None:
    """Which files in a sink's folder are not the table's, and would go with it; None if there are none."""
    if not TableName.parse(one.name).is_sink or not _exists(one):
        return None
    root, live = Path(one.address), datafiles.paths_in(DeltaTable(one.address))
    files = (file.relative_to(root) for file in root.rglob("*") if not file.is_dir())
    found = sorted(str(file) for file in files if str(file) not in live and not is_of_a_table(file))
    if not found:
        return None
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"its folder has files that are not the table's: {', '.join(found[:3])}{more}. Move them elsewhere"


def is_of_a_table(file: Path) -> bool:
    """Whether a writer of Delta names a file so, by its path within the table."""
    hidden = any(part.startswith(("_", ".")) for part in file.parts[:-1])
    return hidden or bool(_FILE.fullmatch(file.name) and all(map(_FOLDER.fullmatch, file.parts[:-1])))


def _of_others(one: Owned, table: DeltaTable, ledger: str, others: Mapping[str, str]) -> str | None:
    owner, place = tables.owner_of(table), Path(one.address)
    if owner != ledger:
        return f"it belongs to another ledger (id {owner})" if owner else "it names no ledger as its owner"
    if tables.ADOPTED in table.metadata().configuration:
        return "it was there before the rule, which adopted it"
    if location(one.address) in others:
        return f"rule {others[location(one.address)]} writes it, too"
    if not place.is_dir():
        return OF_OBJECTS
    inside = next((log.parent for log in place.rglob("_delta_log") if log.parent != place), None)
    return f"it contains another table, at {inside}" if inside else _shared(one.address, ledger)


def _shared(address: str, ledger: str) -> str | None:
    for entry in tablelog.commit_infos(address):
        ours = f'"app":"floodmark/{ledger}/' in (entry.get("userMetadata") or "")
        operation = str(entry.get("operation", "")).upper()
        if not ours and operation != REPAIR and tablelog.moves_rows(address, entry["version"]):
            return f"others have written to it, too (version {entry['version']}: {operation or 'without a name'})"
    return None


def refuse_skipped(found: DropPlan, rule: str) -> None:
    """Raise NotOwned if a table is not the rule's to remove."""
    if found.skipped:
        told = "; ".join(about_named(name, why) for name, why in found.skipped.items())
        raise NotOwned(
            f"rule {rule}: not all of its tables are its own to remove. {told}. With --leave-others, these stay "
            "unchanged and the rest is dropped"
        )
