"""Start a generation, and replace one by the next. Every step can be repeated after a kill.

A `seal` row in the ledger announces a change: from then on no run of the old generation can commit. The pending steps
follow from that row: seal every table of the old generation, create the new state tables, empty the sinks under the new
app id, and write the commit row of epoch 0.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, TimestampType

from floodmark.connectors.delta.sink import check_partitions, delta_sinks
from floodmark.connectors.ports.registry import account_of, place_of, sinks, sources
from floodmark.connectors.ports.sink import Layout, Status, Writable
from floodmark.core.lifecycle.life import check_same_reset
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.records.chain import RESTORE
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Columns, Commit, Seal, Written
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.kinds import durable_sinks, sinks_beside_tables
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.rules.sinks.sinkcolumns import SinkColumns, sink_columns_of, upsert_into
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import HistoryGone, LedgerBroken, Refused, SqlRefused
from floodmark.ledger.delta import tablelog
from floodmark.ledger.dropping import remove_leftovers
from floodmark.ledger.home import Home, check_not_lost
from floodmark.ledger.ledger import Ledger, LedgerReader
from floodmark.spark.fold.fold import Fold
from floodmark.spark.read.expectationchecks import ExpectationChecks
from floodmark.spark.read.frames import Foreseen
from floodmark.spark.read.shape import quarantine_schema
from floodmark.spark.rule import landing
from floodmark.spark.session.parallel import side_by_side
from floodmark.spark.write import tablesink
from floodmark.spark.write.outboxes import writable
from floodmark.spark.write.sealing import opens, seal, sites_to_seal
from floodmark.spark.write.sinkframes import schema_of
from floodmark.spark.write.sites import Site, empty
from floodmark.spark.write.tablesink import TableSink

REBUILD = "rebuild"  # why a generation ends if each run starts a new one


@dataclass(frozen=True)
class Plan:
    """An analysed rule: its fold, the columns of its results, the expectations on these, streams read as foreseen."""

    rule: Rule
    home: Home | None
    fold: Fold
    output: StructType
    expectations: ExpectationChecks
    foreseen: Mapping[str, Foreseen] = field(default_factory=dict)

    @property
    def sinks(self) -> dict[str, Sink]:
        """The sinks that epochs write, by `place_of`, in the rule's order."""
        return {place_of(sink): sink for sink in durable_sinks(self.rule)}

    @property
    def tables(self) -> dict[str, Sink]:
        """Those of them that are Delta tables, by location."""
        return delta_sinks(self.rule)

    def writable(self, address: str) -> Writable:
        """The sink there, with a session."""
        return writable(self.sinks[address], self.home)

    def sink_columns(self, sink: Sink) -> SinkColumns:
        """The rows and columns of the results that one of the rule's sinks gets."""
        return sink_columns_of(sink, self.output.names)

    def has_instants_in_paths(self, sink: Sink) -> bool:
        """Whether its table is partitioned by a TIMESTAMP."""
        sink_columns = self.sink_columns(sink)
        columns = (name for name in sink_columns.partitions if name in sink_columns.columns)
        return any(isinstance(self.output[name].dataType, TimestampType) for name in columns)

    def layout(self, address: str) -> Layout:
        """How the sink there holds rows."""
        sink = self.sinks[address]
        sink_columns = self.sink_columns(sink)
        columns = schema_of(sink_columns, self.output)
        return Layout(columns, sink_columns.partitions, sink_columns.clusters, sink.properties, sink.adds_columns)


@dataclass(frozen=True)
class Sites:
    """Every write site of one generation. `sinks` are in the rule's order; a console has no site."""

    state: dict[str, Site]
    late: Site
    dead: Site
    sinks: dict[str, Site]

    def all(self) -> list[Site]:
        return [*self.state.values(), self.late, self.dead, *self.sinks.values()]


def sites_of(plan: Plan, home: Home, ledger: str, generation: int, token: str, known: Head | None) -> Sites:
    """`known`: the newest head, which has the sinks' names in the ledger; None before there is one."""

    def site(name: str, role: str, address: str, point: str, **how: Any) -> Site:
        return Site(name, point, address, app_id(ledger, generation, token, role), **how)

    def how(sink: Sink) -> dict[str, Any]:
        sink_columns = plan.sink_columns(sink)
        upsert = upsert_into(sink, sink_columns, plan.output.names)
        return {
            "writes_again": sink.qos == 1,
            "upsert": upsert,
            "adds_columns": sink_columns.adds_columns,
            "opens": opens(sink, home),
        }

    return Sites(
        {
            name: site(f"state/{name}", "state", home.state(generation, name), "state", exact=_copies_input(plan, name))
            for name in (() if plan.rule.rebuild else plan.fold.tables)
        },
        site("late", "late", home.late, "late", exact=True),
        site("dead", "dead", home.dead, "dead", exact=True),
        {
            address: site(name_at(known, address), "sink", address, f"sink{i}", whole=plan.rule.rebuild, **how(sink))
            for i, (address, sink) in enumerate(plan.sinks.items())
        },
    )


def _copies_input(plan: Plan, name: str) -> bool:
    """Whether a state table holds unchanged rows of a stream, with their epoch."""
    stream = plan.fold.shape.streams.get(name)
    return stream is not None and plan.fold.tables[name].fields[:-1] == stream.fields


def begin_first(session: SparkSession, plan: Plan, home: Home, run: str, clock_ms: int) -> Ledger:
    """Generation 1: ledger, tables, then the commit row of epoch 0."""
    name = plan.rule.rule
    begun = LedgerReader.load(home.ledger)
    check_partitions(plan.rule, made_by=begun.id if begun else None)
    reach(name, "begin.ledger.before")
    refuse_lost_ledger(plan, home)
    ledger = Ledger.open(home.ledger, run)
    reach(name, "begin.ledger.after")
    token = new_token()
    landing.prepare(session, plan.rule, home, ledger.id)
    found = make_tables(session, plan, home, ledger.id, 1, token, None)
    side_by_side(partial(lay_out, session, plan, site) for site in found.sinks.values())
    check_partitions(plan.rule)
    reach(name, "begin.tables.after")
    ledger.begin(1, token, first_commit(plan, home, found, {}, clock_ms=clock_ms))
    reach(name, "begin.commit.after")
    return ledger


def refuse_lost_ledger(plan: Plan, home: Home) -> None:
    """Raise LedgerBroken if a first generation finds tables that its rule has written: then the ledger was lost."""
    known = LedgerReader.load(home.ledger)
    if known is None:
        return check_not_lost(home)
    written = [at for at in (home.late, home.dead, *plan.tables) if tablelog.written_for(at, known.id)]
    written += [str(sink.address) for sink in sinks_beside_tables(plan.rule) if _has_writes_of(known.id, sink, home)]
    if written:
        raise LedgerBroken(f"the ledger {home.ledger} has no rows, but it has written to {written[0]}; {RESTORE}")


def _has_writes_of(ledger: str, sink: Sink, home: Home) -> bool:
    """Whether a sink that is no Delta table accounts for writes of a ledger's."""
    outbox = home.outbox(sink)
    if outbox is not None:
        return tablelog.written_for(str(outbox), ledger)
    found = account_of(sink, deep=False)
    return found is not None and any((one.app or "").startswith(f"floodmark/{ledger}/") for one in found.writes)


def new_token() -> str:
    return secrets.token_hex(8)


def make_tables(
    session: SparkSession, plan: Plan, home: Home, ledger: str, generation: int, token: str, known: Head | None
) -> Sites:
    """Create all tables of a generation that has not started; its state tables are recreated."""
    found = sites_of(plan, home, ledger, generation, token, known)
    for site in found.state.values():
        remove_leftovers(Path(site.address), "run again")  # what stays would be taken for new state
    quarantine = quarantine_schema(plan.fold.shape)
    steps = [partial(make_state, session, plan, name, site, ledger) for name, site in found.state.items()]
    steps += [partial(tablesink.create, session, site.address, quarantine, ledger) for site in (found.late, found.dead)]
    side_by_side([*steps, *(partial(make_sink, session, plan, site, ledger) for site in found.sinks.values())])
    return found


def make_state(session: SparkSession, plan: Plan, name: str, site: Site, ledger: str) -> None:
    """Make a state table, unless it is there."""
    tablesink.create(session, site.address, plan.fold.tables[name], ledger, _state_properties(plan, name))


def _state_properties(plan: Plan, name: str) -> dict[str, str]:
    """A state table's properties. Only its rule reads state, and often rewrites it, so replaced files expire soon."""
    time = plan.fold.time_of(name)
    return {
        "delta.dataSkippingStatsColumns": f"_epoch,{quoted(time)}" if time else "_epoch",
        "delta.deletedFileRetentionDuration": "interval 1 hour",
        "delta.logRetentionDuration": "interval 2 days",
    }


def make_sink(session: SparkSession, plan: Plan, site: Site, ledger: str) -> None:
    """Make a sink, or take over an empty one; refuse one that is not ours."""
    plan.writable(site.address).make(session, plan.layout(site.address), ledger)


def lay_out(session: SparkSession, plan: Plan, site: Site) -> None:
    """Give a sink what it lacks of its layout."""
    plan.writable(site.address).lay_out(session, plan.layout(site.address))


def first_commit(
    plan: Plan,
    home: Home,
    found: Sites,
    written: dict[str, Written],
    kept_output: bool = False,
    clock_ms: int | None = None,
) -> Commit:
    starts = tuple(source.take_start() for source in sources(plan.rule, home).values())
    shape, seen = plan.fold.shape.streams, statuses(found.all())
    clock = int(time.time() * 1000) if clock_ms is None else clock_ms
    idle = [name for name, stream in plan.rule.streams.items() if stream.idle_after_us is not None]
    lacking = sorted(site.name for site in found.all() if site.name not in seen)
    if lacking:
        raise HistoryGone(
            f"rule {plan.rule.rule}: expected the tables that were just created, found no {lacking[0]}; run again"
        )
    return Commit(
        entry=Entry(clock, starts).text(),
        watermark=None,
        maxima=dict.fromkeys(shape),
        heard=dict.fromkeys(idle, clock * 1000),
        table_ids=ids_of(seen),
        adopted=adopted_in(seen),
        tables=written,
        columns=columns_of(shape),
        rule=plan.rule.to_json(),
        kept_output=kept_output,
    )


def columns_of(streams: Mapping[str, StructType]) -> Columns:
    """Name and type of each column, as the ledger records them."""
    return {name: [(field.name, field.dataType.simpleString()) for field in one] for name, one in streams.items()}


def statuses(sites: Iterable[Site]) -> dict[str, Status]:
    """What is at each site, by its name; none where there is no sink or table."""
    found = ((site.name, site.writer.status()) for site in sites)
    return {name: status for name, status in found if status is not None}


def ids_of(seen: Mapping[str, Status]) -> dict[str, str]:
    return {name: status.id for name, status in seen.items()}


def adopted_in(seen: Mapping[str, Status]) -> dict[str, int]:
    """Those that held rows before they were the rule's, each with its first version as that."""
    return {name: status.adopted for name, status in seen.items() if status.adopted is not None}


def check_output(rule: Rule, output: StructType) -> None:
    """Refuse columns that a Delta table cannot have."""
    names = [name.lower() for name in output.names]
    doubled = sorted({name for name in names if names.count(name) > 1})
    odd = [name for name in output.names if re.search(r"[ ,;{}()\n\t=]", name)]
    for what, columns in (("two columns named", doubled), ("columns without a simple name:", odd)):
        if columns:
            raise SqlRefused(f"rule {rule.rule}: the SQL gives {what} {', '.join(columns)}; name or cast them with AS")


def refuse_nothing_to_reset(known: LedgerReader | None, rule: str) -> None:
    if known is None or known.head is None:
        raise Refused(f"rule {rule} has not run yet: there is nothing to reset")


def refuse_adopted(rule: Rule, home: Home, keep_output: bool) -> None:
    """A reset must not take away rows that were in a sink before the rule."""
    for sink in () if keep_output else sinks(rule, home).values():
        sink.check_can_be_emptied()


def start_change(ledger: Ledger, rule: str, keep_output: bool, why: str = "reset") -> Head:
    """Announce the change, or continue with a pending one of the same kind."""
    head = ledger.begun
    if head.seal is not None:
        check_same_reset(head, rule, keep_output)
        return head
    discarded = head.epoch + 1 if head.open else None
    reach(rule, "reset.seal.before")
    seal = Seal(why=why, successor=head.generation + 1, token=new_token(), keep_output=keep_output, discarded=discarded)
    sealed = ledger.seal(seal)
    reach(rule, "reset.seal.after")
    return sealed


def finish_change(session: SparkSession, plan: Plan, home: Home, ledger: Ledger) -> None:
    """Take the steps that are pending according to a seal row."""
    head, name = ledger.begun, plan.rule.rule
    assert head.seal is not None
    change = head.seal
    if change.keep_output:
        check_partitions(plan.rule)
    reach(name, "reset.tables.before")
    remain = {name_at(head, address) for address in plan.sinks}
    side_by_side(partial(seal, session, site, remain) for site in sites_to_seal(head, home, ledger.id, remain))
    landing.prepare(session, plan.rule, home, ledger.id)
    found = make_tables(session, plan, home, ledger.id, change.successor, change.token, head)
    reach(name, "reset.tables.after")
    written = empty_tables(session, plan, found, change)
    reach(name, "reset.commit.before")
    ledger.begin(change.successor, change.token, first_commit(plan, home, found, written, change.keep_output))
    reach(name, "reset.commit.after")


def empty_tables(session: SparkSession, plan: Plan, found: Sites, change: Seal) -> dict[str, Written]:
    """Empty late, dead and, unless the output is kept, the sinks."""
    rule, quarantine = plan.rule.rule, Layout(quarantine_schema(plan.fold.shape))
    own = (found.late, found.dead)
    written = {site.name: empty(session, site, TableSink(site.address), quarantine) for site in own}
    if change.keep_output:
        side_by_side(partial(lay_out, session, plan, site) for site in found.sinks.values())
    if change.keep_output or (change.why == REBUILD and plan.rule.rebuild):  # its first epoch replaces all of them
        return written
    reach(rule, "reset.empty.before")
    for site in found.sinks.values():
        sink, layout = plan.writable(site.address), plan.layout(site.address)
        sink.check_can_be_emptied()
        written[site.name] = empty(session, site, sink, layout)
        sink.lay_out(session, layout)
        reach(rule, "reset.empty.after")
    return written
