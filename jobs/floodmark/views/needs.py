"""What other rules still need of a rule's tables: what they have not read yet, and versions that they have named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from floodmark.core.addresses import identity
from floodmark.core.entry import NOWHERE, DeltaOffset
from floodmark.core.records import Head
from floodmark.core.rules import Rule
from floodmark.core.upkeep import Need
from floodmark.errors import FloodmarkError
from floodmark.ledger import tables
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.ledger.upkeep import Upkeep
from floodmark.views.downstream import Reader, readers, readers_of, writers
from floodmark.views.homes import homes


def upkeep_of(name: str, head: Head, rules: Sequence[Rule], root: Path) -> Upkeep:
    """Of a rule, by its file's settings; where there is none, by those that its ledger has. `rules`: of the folder."""
    how = next((rule.cleanup for rule in rules if rule.rule == name), head.rule.cleanup)
    place = Home(root, name)
    read = [place.late, place.dead, *(one.removeprefix("sink/") for one in head.table_ids if one.startswith("sink/"))]
    others = [rule for rule in (*rules, *_without_file(rules, root)) if rule.rule != name]
    return Upkeep(how, needs_of(read, others, root), writers(others, name))


def _without_file(rules: Sequence[Rule], root: Path) -> Iterator[Rule]:
    """Rules that have a home and no file that can be read, as their ledgers have them: they may be mended."""
    for home in set(homes(root)) - {rule.rule for rule in rules}:
        try:
            ledger = LedgerReader.load(Home(root, home).ledger)
        except FloodmarkError:  # it says nothing of what it reads; `doctor` names it
            continue
        if ledger is not None and ledger.head is not None:
            yield ledger.head.rule.model_copy(update={"rule": home})


def needs_of(addresses: Sequence[str], rules: Iterable[Rule], root: Path) -> dict[str, Need]:
    """By `identity` of the table. `rules`: all but the one whose tables these are. A retired rule needs nothing."""
    by_name = {rule.rule: rule for rule in rules}
    found: dict[str, Need] = {}
    for reader in readers_of(addresses, readers(by_name.values())):
        need = _need(reader, by_name[reader.rule], root)
        place = identity(reader.sink)
        found[place] = found.get(place, Need()).also(need)
    return found


def _need(reader: Reader, rule: Rule, root: Path) -> Need:
    if reader.kind == "lookup" and rule.lookups[reader.name].history:
        return Need(everything=True, who=(f"{reader.text()} with its history",))
    if reader.kind == "stream" and rule.rebuild and rule.streams[reader.name].start != "earliest":
        return Need(everything=True, who=(f"{reader.text()} from its `start` on, in each run",))
    try:
        ledger = LedgerReader.load(Home(root, reader.rule).ledger)
    except FloodmarkError as fault:
        return Need(everything=True, who=(f"{reader.text()}, and how far cannot be told: {fault}",))
    head = ledger.head if ledger else None
    if head is None or head.retired or head.seal is not None:  # it begins with the newest version
        return Need()
    if reader.kind == "lookup":
        return _pinned(reader, head)
    return Need() if rule.rebuild and head.open is None else _ahead(reader, head)


def _pinned(reader: Reader, head: Head) -> Need:
    """An open epoch reads again the version that its intent names."""
    pinned = head.open.lookups.get(reader.name) if head.open else None
    if pinned is None or pinned.table != _id(reader.sink):
        return Need()
    return Need(versions=frozenset({pinned.version}), who=(f"{reader.text()} at version {pinned.version}",))


def _ahead(reader: Reader, head: Head) -> Need:
    """All beyond the last committed epoch; an open one lies beyond it, too. Of an open backfill, all from the start."""
    line = dict(zip(head.rule.streams, head.reads_from.offsets, strict=True)).get(reader.name, NOWHERE)
    if line == NOWHERE or (at := DeltaOffset.parse(line)).table_id != _id(reader.sink):
        return Need()
    who = (f"{reader.text()} from version {at.version} on",)
    whole = frozenset({at.version}) if at.snapshot else frozenset[int]()
    return Need(since=at.version + at.snapshot, versions=whole, who=who)


def _id(address: str) -> str | None:
    table = tables.open_table(address)
    return None if table is None else tables.table_id(table)
