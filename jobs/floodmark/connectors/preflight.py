"""Checks before Spark starts: on logs and schemas, without a JVM."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from floodmark.connectors.columns import check_columns, check_names, differing
from floodmark.connectors.delta.lookups import LookupTable, check_lookups, check_open_lookups, check_same_lookups
from floodmark.connectors.delta.sink import DeltaSink, check_partitions, delta_sinks, refitted
from floodmark.connectors.places import check_same_sinks
from floodmark.connectors.planning.rewrites import check_followed
from floodmark.connectors.ports.registry import open_sink, sinks, sources
from floodmark.core.lifecycle.life import check_living
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.places import places_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.checks.sinks import results_of
from floodmark.core.rules.kinds import durable_sinks, tables_read, targets
from floodmark.core.rules.model import Sink
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import STAMPS, replaces_rows
from floodmark.core.text.addresses import FILES, location, same_address, within
from floodmark.core.text.secrets import secrets_in
from floodmark.core.text.tablenames import about_sink, last_part
from floodmark.errors import Busy, HistoryGone, NotOwned, Refused, RunFailed, SqlRefused, WrongColumn
from floodmark.ledger import locking
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.damage import is_held, repair_log
from floodmark.ledger.holder import holder_pid
from floodmark.ledger.home import Home, check_home, check_not_lost
from floodmark.ledger.ledger import LedgerReader
from floodmark.ledger.renaming import check_not_renamed

_LOG = logging.getLogger(__name__)
LOOKS = 8  # at a log that another start repairs, too: each takes one file away at a time


def check_without_jvm(rule: Rule, root: Path) -> None:
    """Run all checks that need no Spark; they write nothing but the home's probe.

    First it removes remains of lost commits from the sinks' logs, because these would be unreadable with them.
    """
    check_home(root, rule.qos)
    check_outside_home(rule, root)
    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    check_living(ledger.head if ledger else None, rule.rule)
    if ledger is None:
        check_not_renamed(home)
        check_not_lost(home)
    if ledger is not None and ledger.head is not None and holder_pid(home.lock) is None:
        remain = {*delta_sinks(rule), *map(location, delta_sinks(rule))}
        restore_logs(home, ledger.id, ledger.head, remain)
        repair_sinks(ledger.id, ledger.head, remain)
    check_settings(rule, ledger.head if ledger else None)
    check_tables(rule, home, ledger.id if ledger else None)
    if ledger is None or ledger.head is None:
        check_sql_columns(rule, home)
        check_start_versions(rule, home)
        if targets(rule):
            from floodmark.connectors.relay.relaying import check_free_targets  # a run without targets needs none of it

            check_free_targets(rule, home)


def check_next(rule: Rule, root: Path) -> None:
    """What a run checks before it reads, as far as that needs no Spark and no server, and writes nothing."""
    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    if ledger is None:
        check_not_renamed(home)
        check_not_lost(home)
    check_settings(rule, ledger.head if ledger else None)
    check_tables(rule, home, ledger.id if ledger else None)
    fresh = refitted(rule, ledger.head if ledger else None, ledger.id if ledger else None)
    check_outside_home(rule, root)
    check_sql_columns(rule, home)
    if ledger is None or ledger.head is None:
        check_start_versions(rule, home)
    elif ledger.head.seal is None:
        check_same_sinks(ledger.head, rule, ledger.id)
        check_result_names(rule, fresh)
        check_same_lookups(rule, ledger.head)
        check_followed(rule, home, ledger.head)
    check_partitions(rule, fresh=fresh)


def check_settings(rule: Rule, head: Head | None) -> None:
    """Refuse secrets in settings of classes before the ledger has them for good. Those that it has already stay."""
    texts = () if head is None else (head.rule, *((Rule.from_json(head.open.rule),) if head.open else ()))
    known = [one for text in texts for one in _secrets(text)]
    for place, secret in _secrets(rule):
        if (place, secret) not in known:
            raise Refused(
                f"rule {rule.rule}, {place}: expected no secret, because the ledger keeps a rule's text for good, and "
                "others see it; found one, which is not shown. Put it into a connection, which the class gets: "
                "`connection: NAME` beside `settings`"
            )


def _secrets(rule: Rule) -> list[tuple[str, object]]:
    named = {f"stream {name}": one.options for name, one in rule.streams.items()}
    named |= {f"sink {one.address}": one.options for one in rule.sinks}
    return [
        found for name, options in named.items() for found in secrets_in(options.get("settings"), f"{name}: settings")
    ]


def cautions(rule: Rule, root: Path) -> tuple[str, ...]:
    """What people should know of the streams' sources."""
    found = sources(rule, Home(root, rule.rule)).values()
    return tuple(said for one in found for said in one.origin.cautions())


def check_result_names(rule: Rule, fresh: Collection[str] = ()) -> None:
    """Refuse a Delta sink whose table has columns of other names than the rule gives, as far as its text shows them.

    `fresh`: tables, by location, that get the columns of today.
    """
    given = [] if rule.rebuild else results_of(rule)
    for sink in rule.sinks if given else ():
        place = location(sink.address) if sink.address in delta_sinks(rule) else None
        table = tables.open_table(place) if place is not None and place not in fresh else None
        if table is not None:
            _check_names(sink, given, tables.columns_of(table))


def _check_names(sink: Sink, given: Sequence[str], columns: Mapping[str, str]) -> None:
    has = {name.lower(): kind for name, kind in columns.items()}
    gives = {name.lower() for name in (*(sink.columns or given), *(STAMPS if sink.epoch_columns else ()))}
    wrong = {name: (kind, None) for name, kind in has.items() if name not in gives}
    wrong |= {name: (None, "given") for name in gives if name not in has and not sink.adds_columns}
    if wrong:
        raise differing(f"sink/{sink.address}", wrong)


def check_outside_home(rule: Rule, root: Path) -> None:
    """Refuse a sink inside or around the home, where the ledgers and states of all rules are."""
    folders = [str(one.address) for one in targets(rule) if str(one.address).startswith(f"{FILES}://")]
    for address in (*delta_sinks(rule), *folders):
        if same_address(address, str(root)) or within(address, str(root)) or within(str(root), address):
            raise NotOwned(
                about_sink(
                    address,
                    f"expected an address apart from the home {root}, which stores ledgers and state; "
                    "name another place for the sink, or another home",
                )
            )


def restore_logs(home: Home, ledger: str, head: Head, remain: Collection[str] | None = None) -> None:
    """Put back log entries of sinks that an upkeep which was killed has left out, if nobody works on them by now.

    remain: the addresses of the sinks that the rule's file still has (None: all). Others may be out of reach.
    """
    held = []
    for address in places_of(head).values():
        with _or_out_of_reach(address, remain):
            if is_held(Path(address)):
                held.append(address)
    if held:
        with suppress(Busy), locking.held(home.lock, "restore-logs"):
            for address in held:
                with _or_out_of_reach(address, remain):
                    tables.restore_own_log(Path(address), ledger, must_go=False)


def repair_sinks(ledger: str, head: Head, remain: Collection[str] | None = None) -> None:
    """Remove remains of lost commits from the sinks' logs, except after a reset that kept the sinks' rows: then older
    rows of the ledger name commits, too. `remain`: as for `restore_logs`."""
    app = app_id(ledger, head.generation, head.token, "")
    named = {address: name for name, address in places_of(head).items()}
    added = delta_sinks(Rule.from_json(head.open.rule)) if head.open else []  # no commit row names these yet
    for address in dict.fromkeys([*named, *added]) if not head.kept_output else ():
        with _or_out_of_reach(address, remain):
            _repair(address, head.commits.get(named.get(address, ""), 0), app)


@contextmanager
def _or_out_of_reach(address: str, remain: Collection[str] | None) -> Iterator[None]:
    """Pass over a sink that the rule's file no longer has, if its folder cannot be read now. A reset leaves it, too."""
    try:
        yield
    except (OSError, RunFailed) as fault:
        if remain is None or address in remain:
            raise
        _LOG.info("%s", about_sink(address, f"the rule's file no longer has it, and it cannot be read now: {fault}"))


def _repair(address: str, named: int, app: str) -> None:
    """Repair a log. Another start may do so, too: what it takes away from beneath this one is looked for again."""
    for left in reversed(range(LOOKS)):
        try:
            return repair_log(address, named, app)
        except FileNotFoundError:
            if not left:
                raise


def check_sinks_exist(rule: Rule, home: Home, head: Head) -> None:
    """The sinks that the open epoch writes to. One that was added for it is in no commit row yet."""
    for address, sink in sinks(rule, home).items():
        if sink.id() is None:
            raise HistoryGone(
                about_sink(
                    address,
                    f"epoch {head.epoch + 1} is open and writes to this sink, which is gone; restore it, "
                    "or start over with `floodmark reset`",
                )
            )


def check_tables(rule: Rule, home: Home, owner: str | None) -> None:
    """Sinks are this ledger's (`owner`: its id) or free, and the streams are fit. Writes nothing."""
    for one in durable_sinks(rule):
        opened = open_sink(one, home)
        opened.check(owner)
        if one.key:
            opened.check_changeable()
    for address, sink in delta_sinks(rule).items():
        if replaces_rows(rule, sink):
            DeltaSink(address).check_statistics()
    check_replaced(rule, home)
    check_distinct_tables(rule)
    check_streams(rule, home)


def check_replaced(rule: Rule, home: Home) -> None:
    """Where each run replaces all rows of the sinks, none of them may be another's. Raises NotOwned."""
    for one in sinks(rule, home).values() if rule.rebuild else ():
        one.check_replaceable()


def check_distinct_tables(rule: Rule) -> None:
    """Refuse a sink that is the table of a stream, a lookup or another sink, even under another address."""
    read = tables_read(rule)
    read |= {name: lookup.address for name, lookup in rule.lookups.items()}
    known = {found: f"of {name}" for name, address in read.items() if (found := _id_at(address)) is not None}
    for address in delta_sinks(rule):
        found = _id_at(address)
        if found in known:
            raise NotOwned(
                about_sink(address, f"expected a table of its own, found the one {known[found]} (id {found})")
            )
        if found is not None:
            known[found] = f"of sink {last_part(address)}"


def _id_at(address: str) -> str | None:
    table = tables.open_table(location(address))
    return None if table is None else tables.table_id(table)


def check_streams(rule: Rule, home: Home | None) -> None:
    """Check that streams and lookup tables exist and have columns that fit the rule."""
    check_lookups(rule)
    for name, source in sources(rule, home).items():
        try:
            check_columns(rule, name, source.columns())
        except WrongColumn:
            if source.origin is source:
                raise
            check_columns(rule, name, source.origin.columns())  # which its landing is about to gain


def check_sources(rule: Rule, home: Home, head: Head) -> None:
    """Check that the streams' tables still hold what was read, also by an open epoch. Raises HistoryGone.

    Lookup tables with `history` are those that epochs have read, too.
    """
    check_same_lookups(rule, head)
    read = [(head.entry, head.log_sums)]
    if head.open is not None:
        read.append((Entry.parse(head.open.entry), head.open.log_sums))
    for entry, log_sums in read:
        for (name, source), line in zip(sources(rule, home).items(), entry.offsets, strict=True):
            source.check_identity(line, log_sums.get(name))
            source.check_columns(line, (column for column, _ in head.columns.get(name, ())))
    if head.open is not None:
        begun = Entry.parse(head.open.entry).offsets
        for (name, source), line in zip(sources(rule, home).items(), begun, strict=True):
            if line != head.lines[name]:
                source.check_readable(head.lines[name], line)


def has_lost_input(rule: Rule, home: Home, head: Head) -> bool:
    """Whether streams' or lookup tables no longer hold what the open epoch reads, as far as their logs tell. `rule`:
    as its intent has it."""
    try:
        check_sources(rule, home, head)
        if head.open is not None:
            check_open_lookups(rule, head.open)
    except HistoryGone:
        return True
    return False


def check_kept(rule: Rule, home: Home, begun: Entry, end: Entry) -> None:
    """Check that the sources still have the rows between two entries, which epochs have read. Raises HistoryGone."""
    for source, one, other in zip(sources(rule, home).values(), begun.offsets, end.offsets, strict=True):
        source.check_kept(one, other)


def check_sql_columns(rule: Rule, home: Home | None) -> None:
    """Check that the columns that the rule's SQL names exist. This takes half a second, which idle runs save."""
    streams = sources(rule, home)
    found = {name: source.columns() for name, source in streams.items()}
    found |= {name: tables.columns_of(LookupTable(name, one).table()) for name, one in rule.lookups.items()}
    try:
        check_names(rule, found)
    except SqlRefused:
        landed = {name: source.origin for name, source in streams.items() if source.origin is not source}
        if not landed:
            raise
        check_names(rule, found | {name: found[name] | one.columns() for name, one in landed.items()})  # it gains them


def check_start_versions(rule: Rule, home: Home | None) -> None:
    """Check that the versions exist at which a new rule is to start."""
    for source in sources(rule, home).values():
        source.start()
