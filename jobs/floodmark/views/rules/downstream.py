"""Find the rules that read another rule's sinks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from floodmark.core.rules.rule import Rule
from floodmark.core.text.addresses import identity, location
from floodmark.core.text.tablenames import last_part


@dataclass(frozen=True)
class Reader:
    """`kind`: stream or lookup; `name`: its name in the rule that reads `sink`; `named`: by the writing rule's name.

    `after`: for an indirect reader, the rule that writes the sink.
    """

    rule: str
    kind: str
    name: str
    sink: str
    named: bool = False
    after: str | None = None

    def text(self) -> str:
        of = f" of {self.after}" if self.after else ""
        return f"rule {self.rule} reads {last_part(self.sink)}{of} ({self.kind} {self.name})"


Readers = Mapping[str, list[Reader]]  # by `identity` of the table


def readers(rules: Iterable[Rule]) -> Readers:
    """The readers of each table."""
    found: dict[str, list[Reader]] = {}
    for rule in sorted(rules, key=lambda rule: rule.rule):
        reads = [Reader(rule.rule, "stream", name, one.address, bool(one.rule)) for name, one in rule.streams.items()]
        reads += [Reader(rule.rule, "lookup", name, one.address) for name, one in rule.lookups.items()]
        for reader in reads:
            found.setdefault(identity(reader.sink), []).append(reader)
    return found


def readers_of(sinks: Iterable[str], known: Readers, but: str | None = None) -> list[Reader]:
    """The readers of these tables, by rule and name, without the rule `but`."""
    found = [reader for sink in sinks for reader in known.get(identity(sink), ()) if reader.rule != but]
    return sorted(found, key=lambda one: (one.rule, one.name))


def further(direct: Iterable[Reader], rules: Collection[Rule], but: str) -> list[Reader]:
    """Rules that read, as a stream, the sinks of these stream readers, and so on, nearest first; each rule once."""
    by_name, known = {rule.rule: rule for rule in rules}, readers(rules)
    seen, found = {but}, list[Reader]()
    waiting = [one.rule for one in direct if one.kind == "stream"]
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        sinks = [sink.address for sink in by_name[name].sinks if sink.address]
        more = [one for one in readers_of(sinks, known) if one.kind == "stream" and one.rule not in seen]
        found += [Reader(one.rule, one.kind, one.name, one.sink, one.named, name) for one in more]
        waiting += [one.rule for one in more]
    return found


def writers(rules: Iterable[Rule], but: str) -> dict[str, str]:
    """Location of each sink → the rule that writes it, of all rules but one."""
    found = ((rule.rule, sink.address) for rule in rules if rule.rule != but for sink in rule.sinks)
    return {location(address): rule for rule, address in found if address}
