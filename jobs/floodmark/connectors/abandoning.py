"""Read from the sinks' logs what an open epoch did that is to be taken back. No JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

from deltalake.exceptions import DeltaError

from floodmark.connectors.delta.sink import delta_sinks
from floodmark.connectors.places import text_now
from floodmark.connectors.preflight import repair_sinks, restore_logs
from floodmark.core.lifecycle.abandoning import Net, SinkState, Undo, before_undo, is_first, is_of, undoing
from floodmark.core.lifecycle.life import check_living
from floodmark.core.protocol.places import PREFIX, name_at
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import app_id, fault_of
from floodmark.core.rules.kinds import sinks_beside_tables, targets
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import appends_only
from floodmark.core.text.addresses import identity
from floodmark.core.text.tablenames import about_named, about_sink
from floodmark.errors import FloodmarkError, HistoryGone, Refused, TableBroken
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.damage import log_faults
from floodmark.ledger.holder import holder_pid
from floodmark.ledger.home import Home, check_home
from floodmark.ledger.ledger import LedgerReader

Readers = Mapping[str, Sequence[str]]  # by `identity` of a table: its readers, in words


def check_before(rule: Rule, root: Path) -> None:
    """The checks before a run, except those of the rule's inputs, which may be the reason why the epoch fails."""
    check_home(root, rule.qos)
    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    check_living(ledger.head if ledger else None, rule.rule)
    if ledger is not None and ledger.head is not None and holder_pid(home.lock) is None:
        restore_logs(home, ledger.id, ledger.head)
        repair_sinks(ledger.id, ledger.head)


def inspect_sinks(head: Head, rule: Rule, home: Home, ledger: str, readers: Readers) -> list[SinkState]:
    """What the open epoch did to each sink of its own rule text; of a target, to its outbox. `rule`: the current one;
    `home`: its home; `ledger`: its id.

    Raises HistoryGone, TableBroken, Sealed or LedgerBroken at a sink that is not what the ledger knows; Refused at one
    that is neither a Delta table nor a target.
    """
    assert head.open is not None
    text = text_now(head.open.rule, head, rule)
    _refuse_others(text)
    found = [inspect_sink(place, head, ledger, readers.get(identity(place), ())) for place in delta_sinks(text)]
    boxes = ((str(home.outbox(sink)), sink) for sink in targets(text))
    seen = ((sink.label, inspect_sink(place, head, ledger, name=f"{PREFIX}{sink.address}")) for place, sink in boxes)
    return found + [replace(one, target=label) for label, one in seen]


def _refuse_others(text: Rule) -> None:
    for sink in (one for one in sinks_beside_tables(text) if not one.outbox):
        raise Refused(
            f"rule {text.rule}, sink {sink.label}: expected sinks that are Delta tables or targets, because an epoch "
            f"is undone by a table's versions; found {sink.kind}. Finish the epoch with `floodmark run {text.rule}`, "
            f"or start over with `floodmark reset {text.rule}`"
        )


def inspect_sink(
    place: str, head: Head, ledger: str, readers: Sequence[str] = (), name: str | None = None
) -> SinkState:
    """The same, for the table at `place`. `name`: the ledger's name of its target, if it is an outbox."""
    app = app_id(ledger, head.generation, head.token, "sink")
    name, epoch = name or name_at(head, place), head.epoch + 1
    recorded = _recorded(head, name, place, app)
    try:
        undo = before_undo(recorded, epoch)
    except FloodmarkError as fault:
        raise type(fault)(about_named(name, f"{fault}")) from fault
    if undo is not Undo.TAKE_BACK:
        return SinkState(name, place, undo, readers=tuple(readers))
    mine = _commits(place, app, epoch, head.commits.get(name, -1))
    since = range(mine[0], tables.newest_version(place) + 1)
    net, touched = undoing([(version, tables.entry_actions(place, version)) for version in since], mine)
    absent = _absent(place, mine[0], net)
    grows = appends_only(tables.properties_of(place))
    return SinkState(name, place, undo, tuple(mine), net, touched, absent, grows, tuple(readers))


def _absent(place: str, first: int, net: Net) -> str | None:
    """A file to restore that no longer exists. Raises HistoryGone if the log no longer describes it."""
    if not net.removed:
        return None
    try:
        held = datafiles.paths_at(place, first - 1)
    except (OSError, DeltaError) as fault:
        tables.check_gone(place, fault)
        held = set()
    lacking = sorted({unquote(path) for path, _ in net.removed} - held)
    if lacking:
        raise HistoryGone(
            about_sink(
                place,
                f"the file {lacking[0]}, which commit {first} has replaced, is no longer in version {first - 1} "
                "of the table: its log starts later. Restore the log, or start over with `floodmark reset`",
            )
        )
    return datafiles.absent_of(place, net.removed.values())


def _recorded(head: Head, name: str, place: str, app: str) -> int | None:
    for fault in log_faults(place):
        raise TableBroken(
            about_named(name, f"{fault}; restore the file from a copy, or start over with `floodmark reset`")
        )
    table = tables.open_table(place)
    found = None if table is None else tables.table_id(table)
    recorded = None if table is None else tablelog.recorded_in(table, app)
    wrong = fault_of(name, head.table_ids.get(name, found or "that the open epoch made"), found, None, recorded)
    if wrong is not None:
        raise wrong
    return recorded


def _commits(place: str, app: str, epoch: int, since: int) -> list[int]:
    """The commits of the epoch's attempts, oldest first. The table has recorded at least one.

    `since`: the version of the newest earlier write that the ledger names; -1: none.
    """
    found = sorted(_newest_first(place, app, epoch, since))
    if not found:
        raise HistoryGone(
            about_sink(
                place,
                f"expected the commit that recorded epoch {epoch}, found none since version {since}: the log "
                "was changed. Restore it, or start over with `floodmark reset`",
            )
        )
    return found


def _newest_first(place: str, app: str, epoch: int, since: int) -> Iterator[int]:
    """The same, newest first: down to the first attempt, or to an earlier commit of the same rule."""
    for version in range(tables.newest_version(place), since, -1):
        try:
            recorded = dict(tablelog.transactions(place, version))
        except FileNotFoundError:
            raise HistoryGone(
                about_sink(
                    place,
                    f"log entry {version} is gone, so whether an attempt at epoch {epoch} came after it is "
                    "unknown. Restore the table's log, or start over with `floodmark reset`",
                )
            ) from None
        mine = {one: number for one, number in recorded.items() if one.split("/")[:2] == app.split("/")[:2]}
        if app in mine and is_of(epoch, mine[app]):
            yield version
        if any(one != app or is_first(epoch, number) for one, number in mine.items()):
            return
