"""Checks what Airflow makes assets of: it refuses longer ones while it parses the DAG, which then fails."""

from __future__ import annotations

from collections.abc import Iterator

from floodmark.core.rules.checks.columns import Problem
from floodmark.core.rules.kinds import source_can, targets
from floodmark.core.rules.model import Rule
from floodmark.core.text.addresses import MOST_OF_ASSET, asset_uri, target_uri
from floodmark.core.text.yamltree import Path as Field


def check_assets(rule: Rule) -> Iterator[Problem]:
    for field, uri in _assets(rule):
        if len(uri) > MOST_OF_ASSET:
            yield (
                field,
                f"expected at most {MOST_OF_ASSET} characters as the URI of an asset of Airflow, found {len(uri)} "
                "(each byte of a character beyond ASCII counts as three): shorten it",
            )


def _assets(rule: Rule) -> Iterator[tuple[Field, str]]:
    """What Airflow makes an asset of, by the field that names it."""
    for name, stream in rule.streams.items():
        if source_can(stream.kind).table:
            yield ("streams", name, stream.kind), asset_uri(stream.address)
    for name, table in rule.lookups.items():
        yield ("lookups", name), asset_uri(table.address)
    shipped = targets(rule)
    for i, sink in enumerate(rule.sinks):
        if sink in shipped:
            yield ("sinks", i), target_uri(rule.rule, sink.label)
        elif sink.address:
            yield ("sinks", i, sink.kind), asset_uri(sink.address)
