"""Tables as Airflow assets: one URI for each table, so that a rule's sink triggers the rules that read it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from airflow.sdk import Asset

from floodmark.core.rules.kinds import tables_read, tables_written
from floodmark.core.text.addresses import asset_uri, identity, target_uri

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule, Sink


def asset(address: str) -> Asset:
    """The asset of a table."""
    return Asset(asset_uri(address))


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
    """The asset of a target."""
    return Asset(target_uri(rule.rule, sink.label))


def outlets(rule: Rule) -> list[Asset]:
    """One asset for each table that the rule writes."""
    return [asset(sink.address) for sink in tables_written(rule) if sink.address]
