"""Adopt a table that existed before its rule, with its rows, in one commit that records this."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from floodmark.connectors.delta.sink import DeltaSink
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.rules.kinds import tables_written
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, NotOwned, NotThereYet, Refused
from floodmark.ledger.delta import datafiles, tables


def sink_at(rule: Rule, address: str) -> Sink:
    """The rule's sink at this address. Raises Refused if there is none, or one whose rows are merged by key, and
    NotOwned if each run would replace the rows."""
    place = location(address)
    sinks = {location(str(sink.address)): sink for sink in tables_written(rule)}
    if place not in sinks:
        there = ", ".join(sinks) or "none"
        raise Refused(f"rule {rule.rule} has no Delta sink at {place}; its sinks: {there}. Add it to the rule first")
    if sinks[place].key:
        raise Refused(
            about_sink(
                place,
                "it is upserted by key, and the existing rows could contain a key twice. Adopt it for a "
                "sink without `key`, or name an empty table",
            )
        )
    if rule.rebuild:
        raise NotOwned(
            about_sink(
                place,
                f"each run of rule {rule.rule} replaces all of its rows (`rebuild: true`), the existing "
                "ones, too. Name an empty or a new table",
            )
        )
    return sinks[place]


def adoptable(address: str, ledger: str | None) -> DeltaTable | None:
    """The table, if it can be adopted; None if it needs no adoption. `ledger`: id of the rule's ledger, if it has one.

    Raises NotThereYet, NotOwned, or Refused.
    """
    place = location(address)
    table = tables.open_table(place)
    if table is None:
        raise NotThereYet(f"no Delta table at {place}: there is nothing to adopt; the first run creates it")
    owner = tables.owner_of(table)
    if owner is not None and owner != ledger:
        raise NotOwned(about_sink(place, f"it belongs to another rule's ledger (id {owner}), which still writes it"))
    if owner is not None:
        return None
    DeltaSink(place).check_keeps_transactions(table)
    return None if tables.is_empty(table) else table


def adopt(table: DeltaTable, rule: str, ledger: str) -> int:
    """Make this ledger the table's owner. Returns the version up to which rows are not the rule's."""
    place, version = datafiles.root_of(table).removeprefix("file://"), table.version()
    reach(rule, "adopt.before")
    properties = {tables.OWNER: ledger, tables.ADOPTED: str(version)}
    if is_widened(table.protocol().reader_features or ()):
        raise _by_spark(place, properties, "delta-rs would add the feature variantType to its protocol")
    try:
        table.alter.set_table_properties(properties, raise_if_not_exists=False)
    except DeltaError as fault:
        raise _by_spark(place, properties, str(fault).strip()) from fault
    reach(rule, "adopt.after")
    if tables.owner_of(DeltaTable(place)) != ledger:
        raise Fenced(about_sink(place, "another rule adopted it first"))
    return version


def is_widened(features: Collection[str]) -> bool:
    """Whether delta-rs would add a feature to a table with these: readers that lack it then reject the table."""
    return bool(features) and "variantType" not in features


def _by_spark(place: str, properties: Mapping[str, str], why: str) -> Refused:
    """What to run in Spark instead, before anybody else writes to the table."""
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    statement = f"ALTER TABLE delta.`{place}` SET TBLPROPERTIES ({settings})"
    return Refused(
        about_sink(
            place,
            f"its properties cannot be set without Spark: {why}. Run this in Spark, while nobody writes to the table, "
            f"and then the rule: {statement}",
        )
    )
