"""Which rules read what another one writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from floodmark.core.addresses import location, same_address
from floodmark.core.rules import Rule


@dataclass(frozen=True)
class Reader:
    """`kind`: stream or lookup; `name`: its name in the rule that reads `sink`."""

    rule: str
    kind: str
    name: str
    sink: str

    def text(self) -> str:
        return f"rule {self.rule} reads {self.sink} ({self.kind} {self.name})"


def readers_of(sinks: Iterable[str], rules: Iterable[Rule]) -> list[Reader]:
    """Whoever reads one of these tables, by rule and name."""
    reads = list(_reads(rules))
    found = [replace(one, sink=sink) for sink in sinks for one in reads if same_address(sink, one.sink)]
    return sorted(found, key=lambda one: (one.rule, one.name))


def writers(rules: Iterable[Rule], but: str) -> dict[str, str]:
    """Location of each sink → the rule that writes it, of all rules but one."""
    found = ((rule.rule, sink.address) for rule in rules if rule.rule != but for sink in rule.sinks)
    return {location(address): rule for rule, address in found if address}


def _reads(rules: Iterable[Rule]) -> Iterator[Reader]:
    for rule in rules:
        yield from (Reader(rule.rule, "stream", name, stream.address) for name, stream in rule.streams.items())
        yield from (Reader(rule.rule, "lookup", name, lookup.address) for name, lookup in rule.lookups.items())
