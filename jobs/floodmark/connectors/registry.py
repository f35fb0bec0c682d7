"""The one place that knows which kinds of source and sink there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.delta.table import DeltaSource

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule, Stream

SOURCES = {"delta": DeltaSource}


def source(name: str, stream: Stream) -> DeltaSource:
    return SOURCES[stream.kind](name, stream)


def sources(rule: Rule) -> dict[str, DeltaSource]:
    """The rule's sources by stream name, in the order of their offsets."""
    return {name: source(name, stream) for name, stream in rule.streams.items()}
