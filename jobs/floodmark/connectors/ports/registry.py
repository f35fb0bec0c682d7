"""The sources of a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from floodmark.core.rules.kinds import once_only, source_kind
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.rule import Rule, Stream


def source(name: str, stream: Stream) -> Source:
    return cast("Source", source_kind(stream.kind).open(name, stream))


def sources(rule: Rule) -> dict[str, Source]:
    """The rule's sources by stream name, in the order of their offsets."""
    return {name: source(name, stream) for name, stream in rule.streams.items()}


def check_rereads(rule: Rule) -> None:
    """Raise Refused for a look at rows that a later run is to read."""
    for why in once_only(rule):
        raise Refused(f"rule {rule.rule}: expected sources whose rows can be read again, for a look takes none; {why}")
