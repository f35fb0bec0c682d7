"""The landings of a rule's streams, as far as they are there. No JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from floodmark.connectors.ports.registry import sources
from floodmark.core.rules.model import StartAt

if TYPE_CHECKING:
    from floodmark.connectors.delta.landed import Landed
    from floodmark.core.rules.rule import Rule
    from floodmark.ledger.home import Home


def landings(rule: Rule, home: Home) -> dict[str, Landed]:
    """By stream; those that no run has created yet are left out."""
    found = {name: cast("Landed", one) for name, one in sources(rule, home).items() if rule.streams[name].landing}
    return {name: one for name, one in found.items() if one.landing() is not None}


def check_sources_go_on(rule: Rule, home: Home) -> None:
    """Raise HistoryGone if the source of a landing cannot be copied on: a reset keeps the landing, so it is in vain."""
    for one in landings(rule, home).values():
        one.check_source()


def over_landings(rule: Rule, home: Home) -> Rule:
    """The rule with streams that read their landings as plain tables, from the first rows on, where these are there."""
    streams = dict(rule.streams)
    for name, one in landings(rule, home).items():
        table = {"kind": "delta", "address": one.address, "options": {}, "start": StartAt(version=one.cut())}
        streams[name] = rule.streams[name].model_copy(update={**table, "landing": None, "changes": False})
    return rule.model_copy(update={"streams": streams})
