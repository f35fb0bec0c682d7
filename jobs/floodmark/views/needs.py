"""Find what other rules still need of a rule's tables: data that they have not read, and versions that they name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from floodmark.connectors.backlog.landings import landings
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.relay.backlogs import outboxes
from floodmark.core.lifecycle.cleanup import Need
from floodmark.core.protocol.entry import NOWHERE, Entry
from floodmark.core.protocol.places import places_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Rule, Stream
from floodmark.core.text.addresses import identity
from floodmark.errors import FloodmarkError, Retryable
from floodmark.ledger.delta import tables
from floodmark.ledger.home import Home
from floodmark.ledger.landings import LandedTable, cut_at
from floodmark.ledger.ledger import LedgerReader
from floodmark.ledger.maintenance import Maintenance
from floodmark.views.homes import homes
from floodmark.views.rules.downstream import Reader, readers, readers_of, writers


def maintenance_of(name: str, head: Head, rules: Sequence[Rule], root: Path) -> Maintenance:
    """A rule's upkeep, by the settings of its file or, without a file, of its ledger. `rules`: of the folder."""
    place = Home(root, name)
    read = [place.late, place.dead, *places_of(head).values()]
    begun = list(_begun(root, name))
    files = {rule.rule for rule in rules}
    others = [rule for rule in rules if rule.rule != name]
    without_file = [rule for rule in begun if rule.rule not in files]
    text = text_of(name, head, rules)
    of_outboxes = {identity(one.address): Need(since=_kept(one)) for one in outboxes(text, place)}
    needs = needs_of(read, [*others, *begun], root) | dict(_of_landings(head, place)) | of_outboxes
    kept = partial(_landings, text, place)
    return Maintenance(text.cleanup, needs, writers([*others, *without_file], name), kept)


def text_of(name: str, head: Head, rules: Sequence[Rule]) -> Rule:
    """The rule by its file or, without a file, by its ledger."""
    return next((rule for rule in rules if rule.rule == name), head.rule)


def _kept(one: LandedTable) -> int:
    """The first version whose rows an outbox still has, or that its target has not got: it may be shipped again."""
    return min(cut_at(one.address, one.app), one.folded)


def _of_landings(head: Head, place: Home) -> Iterator[tuple[str, Need]]:
    """Of a landing, its rule needs each version with rows, and the newest chunk, which says how far it was copied."""
    for name, one in landings(head.rule, place).items():
        since = min(one.cut(), one.newest().version)
        yield identity(one.address), Need(since=since, readers=(f"landed rows of {name}, from version {since} on",))


def _landings(text: Rule, place: Home, head: Head) -> list[LandedTable]:
    """The landings and outboxes, with how long folded and shipped rows stay by the rule's present text.

    A correction that is yet to come reads all landed rows again.
    """
    begins = Entry.parse(head.begun_with.entry) if head.deferred else head.reads_from
    read = {} if head.rule.rebuild else head.lines_of(begins)
    keeps = {name: one.landing.keep_us for name, one in text.streams.items() if one.landing}
    return [
        one.upkeep(line if (line := read.get(name, NOWHERE)) != NOWHERE else None, keeps.get(name))
        for name, one in landings(head.rule, place).items()
    ] + outboxes(text, place)


def _begun(root: Path, but: str) -> Iterator[Rule]:
    """Rules as recorded in their ledgers: open work is finished by that text, and a file may be gone or edited.

    Leaves out retired rules, which need nothing and write nothing. Raises RunFailed for a ledger that cannot be read
    now: its rule may need what an upkeep removes.
    """
    for home in (one for one in homes(root) if one != but):
        try:
            ledger = LedgerReader.load(Home(root, home).ledger)
        except Retryable:
            raise
        except FloodmarkError:  # its reads are unknown; `doctor` reports it
            continue
        head = ledger.head if ledger else None
        if head is not None and not head.retired:
            opened = head.open or head.backfill
            texts = [head.rule, *([Rule.from_json(opened.rule)] if opened else [])]
            yield from (rule.model_copy(update={"rule": home}) for rule in texts)


def needs_of(addresses: Sequence[str], rules: Iterable[Rule], root: Path) -> dict[str, Need]:
    """Needs by `identity` of the table. `rules`: all but the one that owns the tables, each with any of its texts. A
    retired rule needs nothing."""
    found: dict[str, Need] = {}
    for rule in rules:
        for reader in readers_of(addresses, readers([rule])):
            place = identity(reader.sink)
            found[place] = found.get(place, Need()).merged(_need(reader, rule, root))
    return found


def _need(reader: Reader, rule: Rule, root: Path) -> Need:
    if reader.kind == "lookup" and rule.lookups[reader.name].history:
        return Need(all_versions=True, readers=(f"{reader.text()} with its history",))
    if reader.kind == "stream" and rule.rebuild and rule.streams[reader.name].start != "earliest":
        return Need(all_versions=True, readers=(f"{reader.text()} from its `start` on, in each run",))
    try:
        ledger = LedgerReader.load(Home(root, reader.rule).ledger)
    except FloodmarkError as fault:
        return Need(all_versions=True, readers=(f"{reader.text()}, and its position is unknown: {fault}",))
    head = ledger.head if ledger else None
    if head is not None and not head.retired and reader.kind == "stream" and rule.streams[reader.name].landing:
        return _to_land(reader, rule, root)
    if head is None or head.retired or head.seal is not None:  # it will start with the newest version
        return Need()
    if reader.kind == "lookup":
        return _pinned(reader, head)
    if rule.rebuild and head.open is None:
        return Need()
    return _ahead(reader, head, corrects=_compares(rule.streams[reader.name]) or reader.name in head.deferred)


def _compares(stream: Stream) -> bool:
    """Whether the stream needs files that a commit removed: to correct what it read, or as the feed of that commit."""
    return stream.changes or stream.on_rewrite == "correct"


def _pinned(reader: Reader, head: Head) -> Need:
    """An open epoch or backfill reads again the version that its intent names."""
    pinned = head.pinned.get(reader.name)
    if pinned is None or pinned.table != _id(reader.sink):
        return Need()
    versions = head.backfill.versions_of(reader.name) if head.backfill and not head.open else {pinned.version}
    readers = tuple(f"{reader.text()} at version {version}" for version in sorted(versions))
    return Need(versions=frozenset(versions), readers=readers)


def _to_land(reader: Reader, rule: Rule, root: Path) -> Need:
    """All data that is not in the reader's landing yet."""
    one = landings(rule, Home(root, reader.rule)).get(reader.name)
    if one is None or one.other_kind is not None:  # then it has copied something else
        return Need()
    return _beyond(reader, DeltaOffset.parse(one.newest().end), "to land them")


def _ahead(reader: Reader, head: Head, corrects: bool) -> Need:
    """All data after the last committed epoch, so that of an open one, too. For an open backfill, all from the
    start. A rule that corrects rewrites compares with what it has read, the version before."""
    line = head.lines_needed.get(reader.name, NOWHERE)
    return Need() if line == NOWHERE else _beyond(reader, DeltaOffset.parse(line), corrects=corrects)


def _beyond(reader: Reader, at: DeltaOffset, why: str = "", corrects: bool = False) -> Need:
    if at.table_id != _id(reader.sink):
        return Need()
    who = (f"{reader.text()} from version {at.version} on{why and f', {why}'}",)
    whole = frozenset({at.newest_read}) if at.snapshot or (corrects and at.newest_read >= 0) else frozenset[int]()
    return Need(since=at.version + at.snapshot, versions=whole, readers=who)


def _id(address: str) -> str | None:
    table = tables.open_table(address)
    return None if table is None else tables.table_id(table)
