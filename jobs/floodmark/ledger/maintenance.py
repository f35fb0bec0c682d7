"""Maintains the tables that a rule owns, by delta-rs and without a JVM. The caller holds the rule's lock.

For each table, it joins small files, removes files that no version needs, and cuts the log where a checkpoint repeats
the removed entries. Then it maintains the ledger, and last writes a ledger row that records the work. No step changes
what a reader of the newest version sees. Each step can be repeated: after a kill, the same call does the rest.

It does not join files of state: runs rewrite state, between epochs, to its live rows.

Files that it writes get new checksums. So it first checks each table as a run does; otherwise a flipped bit would
become valid.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from floodmark.core.lifecycle.cleanup import (
    CHECKPOINT_AFTER,
    Need,
    awaited,
    check_maintainable,
    hours,
    is_plain,
    log_begins,
    readable,
    strange_partitions,
)
from floodmark.core.lifecycle.retention import DEFAULTS, FILES, LOG, retention_us
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName, other_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Tended
from floodmark.core.protocol.recovery import app_id, check_tables
from floodmark.core.rules.model import CleanUp
from floodmark.core.text.addresses import identity
from floodmark.core.text.tablenames import about_named, about_table, table_label
from floodmark.errors import Busy, Refused, TableBroken
from floodmark.ledger.delta import datafiles, joining, tablelog, tables
from floodmark.ledger.delta.damage import HINT, file_damage, listed, log_faults, restore_log, unreadable_checkpoint
from floodmark.ledger.dropping import OF_OBJECTS, Owned, is_of_a_table, not_ours, owned
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.home import Home
from floodmark.ledger.landings import Cut, LandedTable, cut, due_cut, is_landed
from floodmark.ledger.ledger import Ledger, LedgerReader

Say = Callable[[str], None]
CLEANUP = "delta.enableExpiredLogCleanup"


@dataclass(frozen=True)
class TableWork:
    """Pending work on a table. `small`: files worth joining; `files`: to remove; `entries`: of its log, to cut.

    beyond: features of the table that delta-rs does not write, so its files are not changed. cut: of a landing. apart:
    what its files have that delta-rs does not read as Spark does, so that they are not joined.
    """

    name: str
    address: str
    small: int
    files: tuple[Path, ...]
    log_from: int
    entries: int
    beyond: str = ""
    cut: Cut | None = None
    apart: str = ""


@dataclass(frozen=True)
class TableDone:
    """The work done on a table, as the ledger's row records it, and how many entries of its log were cut."""

    tended: Tended
    cut: int


@dataclass(frozen=True)
class Maintenance:
    """The upkeep of one rule: retention, needs of its tables (by `identity`), their other writers, landings by head."""

    how: CleanUp
    needs: Mapping[str, Need]
    others: Mapping[str, str]
    landings: Callable[[Head], list[LandedTable]] = lambda _: []

    def pending(self, ledger: LedgerReader, home: Home) -> tuple[list[TableWork], dict[str, str]]:
        """The pending work, and by name the tables that are left alone, with the reason. Writes nothing.

        Raises Refused during a reset or a drop.
        """
        head = ledger.begun
        check_maintainable(head, home.rule)
        known = list(_known(head, home))
        mine = [one for one in known if one.other_kind is None]
        left = awaited(head, {one.name: _recorded(ledger, one) for one in mine})
        for one in (one for one in mine if one.name not in left):
            why = _not_here(one) or not_ours(one, ledger.id, self.others)
            left |= {one.name: why} if why else {}
        work = [self._work_on(one) for one in mine if one.name not in left]
        work += [self._work_on(Owned(one.name, one.address, ""), due_cut(one)) for one in self.landings(head)]
        outboxes = {name for name, sink in other_sinks(head).items() if sink.outbox}
        kinds = {one.name: one.other_kind for one in known if one.other_kind and one.name not in outboxes}
        left |= {name: f"it is a {kind} sink, which Floodmark does not maintain" for name, kind in kinds.items()}
        return work, left

    def preview(self, ledger: LedgerReader, home: Home) -> tuple[list[TableWork], dict[str, str]]:
        """`pending` for callers without the lock; raises Busy if somebody holds it during a reset or a drop."""
        try:
            return self.pending(ledger, home)
        except Refused:
            if holder_pid(home.lock) is None:
                raise
            raise Busy(holder_text(home.lock)) from None

    def maintain(self, ledger: Ledger, home: Home, say: Say) -> dict[str, TableDone]:
        """Do the pending work. Returns the work done on each table, and records it in a row of the ledger.

        Before it touches any table, it raises what a run raises for tables that are damaged or do not match the ledger.
        """
        rule = home.rule
        reach(rule, "maintain.before")
        for one in _known(ledger.begun, home):
            _restore(one, ledger.id)
        due = self.pending(ledger, home)[0]
        _check_story(ledger, due)
        for work in due:
            _check_undamaged(work)
        done = dict[str, TableDone]()
        for work in due:
            with _working(work.address):
                done[work.name] = self._tend(rule, work, say)
        shutil.rmtree(home.checkpoints, ignore_errors=True)  # of runs that were killed: none is running
        reach(rule, "maintain.ledger.before")
        ledger.tidy()
        reach(rule, "maintain.commit.before")
        tended = {name: one.tended for name, one in done.items() if one.tended != Tended()}
        ledger.live(Life(what="maintained", tended=tended))
        reach(rule, "maintain.commit.after")
        return done

    def need(self, address: str) -> Need:
        """What others need of a table."""
        return self.needs.get(identity(address), Need())

    def _work_on(self, one: Owned, old: Cut | None = None) -> TableWork:
        with _working(one.address):
            table = DeltaTable(one.address)
            beyond, apart = _beyond(table), ""
            small = 0 if beyond or TableName.parse(one.name).is_written_by_runs else joining.small(table)
            if small > 1:
                apart = joining.odd_paths(table) or joining.has_old_times(table)
                small = 0 if apart else small
            files = () if beyond else tuple(self._removable(table, one.address))
            coming = table.version() + (small > 1)  # of the checkpoint, if one will be made
            begins, entries = self._log(table, one, None if beyond else coming)
        return TableWork(one.name, one.address, small, files, begins, entries, beyond, old, apart)

    def _tend(self, rule: str, one: TableWork, say: Say) -> TableDone:
        if one.cut is not None:
            say(f"{table_label(one.name)}: removing {one.cut.chunks} old chunks")
            cut(rule, one.cut)
        joined = one.small if one.small > 1 else 0
        if joined:
            say(f"{table_label(one.name)}: compacting {joined} small files")
            joined = _compact(one, say)
            reach(rule, "maintain.compacted")
        if one.files:
            say(f"{table_label(one.name)}: removing {len(one.files)} files that no version needs")
            _remove(rule, one.files)
        table = DeltaTable(one.address)
        if not one.beyond and table.version() - _base(one.address) >= CHECKPOINT_AFTER:
            _checkpoint(table, one.address)
            reach(rule, "maintain.checkpoint.after")
        begins, entries = self._log(table, one)
        if entries:
            _check_repeated(one, begins)
            say(f"{table_label(one.name)}: removing {entries} entries of its log, which now starts at version {begins}")
            _cut(rule, one.address, begins)
        return TableDone(Tended(compacted=joined, removed=len(one.files), log_from=begins), entries)

    def _removable(self, table: DeltaTable, address: str) -> Iterator[Path]:
        """Files older than the retention that neither the newest version has nor others need.

        Delta's writers name their files; files with other names are somebody else's, and stay.
        """
        need, root = self.need(address), Path(address).resolve()
        if need.all_versions:
            return
        keep = hours(_retention(table, FILES, self.how.keep_us))
        wanted = _needed(table, address, need)
        found = table.vacuum(keep, dry_run=True, enforce_retention_duration=False, full=True)
        longer = keep > hours(retention_us(address, FILES, table.metadata().configuration.get(FILES, DEFAULTS[FILES])))
        if found and longer:  # reads each young entry of the log
            wanted |= _left_since(address, time.time() - keep * 3600)
        for path in found:
            file = root / (path if (root / path).exists() else unquote(path))
            own = file.exists() and file.resolve() == file  # delta-rs follows links, which lead to files of others
            named = file.suffix == ".parquet" and is_of_a_table(file.relative_to(root))
            if own and named and not {path, unquote(path)} & wanted:
                yield file

    def _log(self, table: DeltaTable, one: Owned | TableWork, coming: int | None = None) -> tuple[int, int]:
        """The version with which the log can start, and how many entries lie before it.

        coming: the version that will be the newest by then; if a checkpoint is due, it gets one.
        """
        if _keeps_log(table, one.name):
            return 0, 0
        log = Path(one.address) / "_delta_log"
        found = listed(file.name for file in log.iterdir())
        written = {version: (log / name).stat().st_mtime for version, name in found.entries.items()}
        checkpoints = list(found.checkpoints)
        if coming is not None and coming - _base(one.address) >= CHECKPOINT_AFTER:
            checkpoints.append(coming)
            written.setdefault(coming, time.time())
        keep = self.how.keep_log_us if is_landed(one.name) else _retention(table, LOG, self.how.keep_log_us)
        begins = log_begins(checkpoints, written, time.time() - keep / 1_000_000, self.need(one.address))
        return begins, sum(version < begins for version in found.entries)


def _compact(one: TableWork, say: Say) -> int:
    """Join the table's small files. Returns how many: none if delta-rs cannot read their values, which Spark can."""
    before = DeltaTable(one.address).version()
    try:
        with _working(one.address):
            joining.compact(one.address)
    except TableBroken as fault:  # the files have been checked: they are as they were written
        if isinstance(fault.__cause__, CommitFailedError) or DeltaTable(one.address).version() > before:
            raise
        say(f"{table_label(one.name)}: not compacted, files stay for Spark's OPTIMIZE: {fault}")
        return 0
    return one.small


def _known(head: Head, home: Home) -> Iterator[Owned]:
    """The tables and sinks of the newest generation, each under the ledger's own name."""
    for name, id_ in head.table_ids.items():
        yield replace(owned(home, TableName.parse(name).in_generation(head.generation), id_, head), name=name)


def _restore(one: Owned, ledger: str) -> None:
    """Put back a log that a kill left cut. What lies in the home is the rule's, whatever it says."""
    if TableName.parse(one.name).is_sink:
        tables.restore_own_log(Path(one.address), ledger)
    else:
        restore_log(Path(one.address))


def _recorded(ledger: LedgerReader, one: Owned | TableWork) -> int | None:
    head = ledger.begun
    app = app_id(ledger.id, head.generation, head.token, TableName.parse(one.name).role)
    return tablelog.recorded_version(one.address, app)


def _check_story(ledger: LedgerReader, due: list[TableWork]) -> None:
    """Raise if a table or the ledger was restored from an older copy: files of a newer one may still exist."""
    known = ledger.begun.table_ids
    recorded = {one.name: _recorded(ledger, one) for one in due if one.name in known}
    ids = {name: known[name] for name in recorded}
    check_tables(replace(ledger.begun, table_ids=ids), recorded, ids, {})


def _check_undamaged(one: TableWork) -> None:
    for fault in _damage(one):
        raise TableBroken(about_named(one.name, f"{fault}; {tables.ANEW}"))


def _damage(one: TableWork) -> Iterator[str]:
    """Damage to the log, to the sizes of the live files, and to the files to be joined."""
    yield from log_faults(one.address)
    table = tables.open_table(one.address)
    assert table is not None
    yield from datafiles.file_faults(table)
    for path in joining.joined(table) if one.small > 1 else ():
        fault = file_damage(Path(one.address) / unquote(path))
        if fault is not None:
            yield fault


def _not_here(one: Owned) -> str | None:
    """Why nothing can be done to the table; None if something can."""
    table = tables.open_table(one.address)
    if table is None:
        return "no table is there: it was removed, or moved; the next run records the new place of a moved sink"
    if tables.table_id(table) != one.id:
        return f"another table is there, with id {tables.table_id(table)}"
    return None if Path(one.address).is_dir() else OF_OBJECTS


def _beyond(table: DeltaTable) -> str:
    """Features of the table that delta-rs does not write; '' if there are none."""
    protocol = table.protocol()
    if is_plain(protocol.min_writer_version, protocol.writer_features):
        return strange_partitions(tables.columns_of(table), tables.partitions_of(table))
    return ", ".join(sorted(protocol.writer_features or [])) or f"writer version {protocol.min_writer_version}"


def _retention(table: DeltaTable, name: str, else_us: int) -> int:
    """The retention in microseconds: the table's own, else the rule's."""
    said = table.metadata().configuration.get(name)
    return else_us if said is None else retention_us(datafiles.root_of(table).removeprefix("file://"), name, said)


def _keeps_log(table: DeltaTable, name: str) -> bool:
    """Whether the table's owner wants all of its log. Floodmark itself sets the property of landings and outboxes."""
    return not is_landed(name) and table.metadata().configuration.get(CLEANUP, "true").lower() == "false"


def _checkpoint(table: DeltaTable, address: str) -> None:
    """Write a checkpoint of the newest version and its hint, with Hadoop's checksums: Spark's are of an older hint."""
    table.create_checkpoint()
    log = Path(address) / "_delta_log"
    for name in (*listed(file.name for file in log.iterdir()).checkpoints[table.version()], HINT):
        tables.write_sums(log / name)


def _needed(table: DeltaTable, address: str, need: Need) -> set[str]:
    """Paths of the newest version's files and of those that others can still read, as in the log and decoded."""
    log = listed(file.name for file in (Path(address) / "_delta_log").iterdir())
    found = set(datafiles.values_of(table.get_add_actions()["path"]))
    for version in need.versions:
        if readable(version, log.checkpoints, log.entries):
            found |= set(datafiles.values_of(DeltaTable(address, version=version).get_add_actions()["path"]))
    for version in log.entries:
        if need.since is not None and version >= need.since:
            found |= set(datafiles.added_paths(address, version))
    return found | {unquote(path) for path in found}


def _left_since(address: str, moment: float) -> set[str]:
    """Paths of files that left since then, by the log: checkpoints forget them after the table's retention."""
    log = Path(address) / "_delta_log"
    entries = listed(file.name for file in log.iterdir()).entries
    young = [version for version, name in entries.items() if (log / name).stat().st_mtime >= moment]
    actions = (action for version in young for action in tables.entry_actions(address, version))
    found = {action["remove"]["path"] for action in actions if "remove" in action}
    return found | {unquote(path) for path in found}


def _remove(rule: str, files: tuple[Path, ...]) -> None:
    for file in files:
        datafiles.remove_file(file)
        reach(rule, "maintain.vacuum.during")


def _base(address: str) -> int:
    """The version of the newest checkpoint; 0 if there is none."""
    return max(listed(file.name for file in (Path(address) / "_delta_log").iterdir()).base, 0)


def _check_repeated(one: TableWork, begins: int) -> None:
    """Raise TableBroken unless the checkpoint that replaces the cut entries can be read."""
    fault = unreadable_checkpoint(one.address, begins)
    if fault is not None:
        raise TableBroken(about_named(one.name, f"{fault}; its log was not cut"))


def _cut(rule: str, address: str, begins: int) -> None:
    """Remove the log's files of versions before `begins`, the oldest first, so that the log never has a gap."""
    log = Path(address) / "_delta_log"
    numbered = [(file.name.lstrip(".").split(".", 1)[0], file) for file in log.iterdir()]
    old = sorted((int(number), file.name, file) for number, file in numbered if number.isdigit() and len(number) == 20)
    for version, _, file in old:
        if version < begins:
            file.unlink(missing_ok=True)
            reach(rule, "maintain.trim.during")


@contextmanager
def _working(address: str) -> Iterator[None]:
    """Translate errors of delta-rs: a table that cannot be read, or a disk that accepts no writes."""
    with tables.delta_errors(address), tables.with_room(partial(about_table, address)):
        yield
