"""The sources and sinks of a rule."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from floodmark.core.rules.kinds import durable_sinks, once_only, sink_can, sink_kind, source_kind
from floodmark.core.text.addresses import location
from floodmark.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from floodmark.connectors.ports.sink import Account, Accounted, Sink
    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules import model
    from floodmark.core.rules.rule import Rule, Stream
    from floodmark.ledger.home import Home


LANDED = "floodmark.connectors.delta.landed"


def source(name: str, stream: Stream, keep: Path | None) -> Source:
    """The source itself, without a landing.

    `keep`: the folder for what the source has to remember; None for a look without a home.
    """
    return cast("Source", source_kind(stream.kind).open(name, stream, keep))


def sources(rule: Rule, home: Home | None) -> dict[str, Source]:
    """The rule's sources by stream name, in the order of their offsets. `home`: the rule's; None for a look without."""
    return {name: _read_by(name, stream, home) for name, stream in rule.streams.items()}


def _read_by(name: str, stream: Stream, home: Home | None) -> Source:
    """What epochs read: the source, or the landing of its rows."""
    found = source(name, stream, None if home is None else home.source(name))
    if stream.landing is None:
        return found
    landing = None if home is None else home.landing(name)
    return cast("Source", import_module(LANDED).Landed(name, stream, found, landing))


def open_sink(one: model.Sink, home: Home | None) -> Sink:
    """Raises Refused for a kind that is to keep its rows, and that nothing writes.

    `home`: the rule's, which has the outbox of a target; None for a look without.
    """
    kind = sink_kind(one.kind)
    if kind.open is None:
        raise Refused(
            f"sink {one.label}: expected a kind of sink that can be written, found {one.kind}, whose `SinkKind` "
            "has no `open`: it would receive no rows"
        )
    return cast("Sink", kind.open(one, None if home is None else home.outbox(one)))


def sinks(rule: Rule, home: Home | None) -> dict[str, Sink]:
    """The rule's sinks that keep what they got, by `place_of`, in the rule's order. `home`: as for `open_sink`."""
    return {place_of(one): open_sink(one, home) for one in durable_sinks(rule)}


def place_of(one: model.Sink) -> str:
    """One spelling for where a sink is: of a table its location."""
    return location(str(one.address)) if sink_can(one.kind).table else str(one.address)


def account(one: Mapping[str, Any], deep: bool) -> Account | None:
    """The account of a sink as a rule's text has it; None where there is no such sink."""
    from floodmark.core.rules import model

    return account_of(model.Sink.model_validate(one), deep)


def account_of(one: model.Sink, deep: bool) -> Account | None:
    """The account of a sink that is no Delta table, if `deep` with what it holds."""
    return cast("Accounted", open_sink(one, None)).account(deep)


def check_rereads(rule: Rule) -> None:
    """Raise Refused if rows of a source can be read only once: a look must leave them to runs."""
    for why in once_only(rule, landed=False):
        raise Refused(
            f"rule {rule.rule}: expected sources whose rows can be read again, because a preview consumes none; {why}"
        )
