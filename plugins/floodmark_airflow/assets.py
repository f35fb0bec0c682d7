"""Tables as Airflow assets: one URI for each table, so that a rule's sink triggers the rules that read it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlparse

from airflow.sdk import Asset

from floodmark.core.rules.kinds import tables_read, tables_written
from floodmark.core.text.addresses import identity

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule, Sink


def asset(address: str) -> Asset:
    """The asset of a table. A local path becomes `file:///…`, because Airflow requires a URI, in ASCII."""
    place = _quoted(identity(address))
    return Asset(place if urlparse(place).scheme else f"file://{place}")


def _quoted(place: str) -> str:
    """Quote characters beyond ASCII, as `%C3%BC`; also # and ?, because Airflow cuts off what follows them.

    Everything else stays as written, because it is the asset's name so far.
    """
    return re.sub(r"[^\x00-\x7f]+|[#?]", lambda found: quote(found[0], errors="surrogateescape"), place)


def unquoted(place: str) -> str:
    """What `_quoted` made of it, as it was. Bytes that are not UTF-8 stay quoted: no JSON has them."""
    return re.sub(r"(?:%[89A-F][0-9A-F])+|%23|%3F", _as_it_was, place)


def _as_it_was(found: re.Match[str]) -> str:
    try:
        return unquote(found[0], errors="strict")
    except UnicodeDecodeError:
        return found[0]


def inputs(rule: Rule) -> list[Asset]:
    """One asset for each table that the rule reads, whoever writes it: OpenLineage (lineage) shows them."""
    return [*_inputs(rule).values()]


def inlets(rule: Rule, written: Collection[str]) -> list[Asset]:
    """Those of the inputs that rules write: Airflow's asset graph shows them. `written`: their identities.

    Tables of others are left out. Airflow lets a task fail if an asset of its inlets has another name in another DAG,
    and other teams may name their tables as they like. A reference by the URI alone (`Asset.ref`) lets it fail if no
    DAG has the asset.
    """
    return [one for place, one in _inputs(rule).items() if place in written]


def _inputs(rule: Rule) -> dict[str, Asset]:
    read = [*tables_read(rule).values(), *(table.address for table in rule.lookups.values())]
    return {identity(address): asset(address) for address in read}


def written_by(rules: Iterable[Rule]) -> set[str]:
    """The identities of all tables that these rules write."""
    return {identity(sink.address) for rule in rules for sink in tables_written(rule) if sink.address}


def target_asset(rule: Rule, sink: Sink) -> Asset:
    """The asset of a target, by the names of rule and sink: its server is known by a connection's name only."""
    return Asset(f"floodmark://{rule.rule}/{_quoted(sink.label)}")


def outlets(rule: Rule) -> list[Asset]:
    """One asset for each table that the rule writes."""
    return [asset(sink.address) for sink in tables_written(rule) if sink.address]
