"""The present locations of a rule's tables: the facts from which `core.protocol.places` decides. No JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.changes import check_edit, check_keeps_corrections, check_state
from floodmark.core.protocol.entry import NOWHERE
from floodmark.core.protocol.places import (
    check_all_present,
    check_same_tables,
    moves,
    named,
    places_of,
    relocated,
    relocated_text,
)
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.kinds import tables_read, tables_written
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import table_label
from floodmark.errors import RuleChanged
from floodmark.ledger.delta import tablelog, tables

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.model import Lookup, Stream
    from floodmark.core.rules.rule import Rule

Read = TypeVar("Read", "Stream", "Lookup")


def head_now(head: Head, rule: Rule, ledger: str | None) -> Head:
    """The head, with its sinks at the locations to which the rule's file leads now. Raises HistoryGone.

    `ledger`: its id; if unknown, the versions that the tables have recorded are not checked.
    """
    opened = {
        place: table for place in sink_locations(rule).values() if (table := tables.open_table(place)) is not None
    }
    found = {place: tables.table_id(table) for place, table in opened.items()}
    if ledger is None:
        return relocated(head, found, None)
    app = app_id(ledger, head.generation, head.token, "sink")
    return relocated(head, found, {place: tablelog.recorded_in(table, app) for place, table in opened.items()})


def is_moved(head: Head, rule: Rule) -> bool:
    """Whether a sink's address leads to another location than the ledger's. Opens no table."""
    places = set(places_of(head).values())
    return not places <= set(sink_locations(rule).values())


def check_same_sinks(head: Head, rule: Rule, ledger: str | None = None) -> Head:
    """Check that the rule's text and sinks fit its progress; returns the head with its sinks' present locations.

    Raises RuleChanged or HistoryGone.
    """
    leads = sink_locations(rule)
    asked = is_moved(head, rule) or len(leads) > 1  # two tables may have changed places
    now = head_now(head, rule, ledger or head.begun_with.ledger) if asked else head
    if is_moved(now, rule):
        check_same_tables(now, rule, leads, {place: _id(place) or "" for place in leads.values()})
    _check_edit(head, now, rule, leads)
    check_keeps_corrections(rule, head.followed)
    check_all_present(now, rule, leads)
    return now


def _check_edit(head: Head, now: Head, rule: Rule, leads: dict[str, str]) -> None:
    """Check that the rule's text fits its progress; the error says which sinks have moved, as they may be the edit."""
    try:
        check_edit(*named(now, rule, leads))
        check_state(head.restated_by, rule)
    except RuleChanged as fault:
        moved = [f"{table_label(name)} is at {place}" for name, place in moves(head, now).items()]
        raise RuleChanged(
            f"{fault}. Tables of its sinks were moved: {', '.join(moved)}" if moved else str(fault)
        ) from None


def text_now(text: str, head: Head, rule: Rule) -> Rule:
    """A rule's text in the ledger, with the present locations of its tables. `rule`: the current one, from the file."""
    from floodmark.core.rules.rule import Rule

    found = relocated_text(Rule.from_json(text), head)
    read = sources(found, None)
    ids = {name: read[name].identity(line) for name, line in head.lines.items() if name in read and line != NOWHERE}
    known = tables_read(found)
    streams = {
        name: _address_now(stream, rule.streams.get(name), ids.get(name)) if name in known else stream
        for name, stream in found.streams.items()
    }
    streams |= {name: _source_now(one, rule.streams.get(name)) for name, one in streams.items() if one.landing}
    pinned = {name: one.table for name, one in head.pinned.items()}
    lookups = {name: _address_now(one, rule.lookups.get(name), pinned.get(name)) for name, one in found.lookups.items()}
    return found.model_copy(update={"streams": streams, "lookups": lookups})


def _source_now(then: Stream, now: Stream | None) -> Stream:
    """A landed stream at the current address of its source: offsets are those of the landing."""
    return then if now is None or now.kind != then.kind else then.model_copy(update={"address": now.address})


def _address_now(then: Read, now: Read | None, id_: str | None) -> Read:
    """A stream or lookup at the address of the table with that id: the address in the ledger, or the current one."""
    if now is None or now.address == then.address or id_ is None or _id(then.address) == id_:
        return then
    return then.model_copy(update={"address": now.address}) if _id(now.address) == id_ else then


def sink_locations(rule: Rule) -> dict[str, str]:
    """Location of each Delta sink, by the address in the rule's file."""
    return {str(sink.address): location(str(sink.address)) for sink in tables_written(rule)}


def _id(address: str) -> str | None:
    table = tables.open_table(location(address))
    return None if table is None else tables.table_id(table)
