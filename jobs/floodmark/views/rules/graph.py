"""The dependency graph of rules: a tree in text, for people, and its edges, for programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from floodmark.core.rules.rule import Rule
from floodmark.core.text.addresses import identity
from floodmark.core.text.tablenames import last_part
from floodmark.views.rules.downstream import Reader, readers

LAST, NEXT = ("└── ", "    "), ("├── ", "│   ")


@dataclass(frozen=True)
class Edge:
    """The rule `writer` writes what `reader` reads."""

    writer: str
    reader: Reader

    def facts(self) -> dict[str, Any]:
        found = {key: value for key, value in asdict(self.reader).items() if key not in ("rule", "after")}
        return {"from": self.writer, "to": self.reader.rule, **found}


@dataclass(frozen=True)
class Graph:
    """`rules`: all of them, by name; `outside`: for each, the tables that it reads and no rule writes."""

    rules: dict[str, Rule]
    edges: list[Edge] = field(default_factory=list)
    outside: dict[str, list[str]] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For --json."""
        rules = [
            {"rule": name, "schedule": schedule(rule), "group": rule.group, "reads": self.outside[name]}
            for name, rule in self.rules.items()
        ]
        return {"rules": rules, "edges": [edge.facts() for edge in self.edges]}

    def lines(self) -> Iterator[str]:
        """Each rule below the rules that it reads; if there are several, in full below the first."""
        seen: set[str] = set()
        fed = {edge.reader.rule for edge in self.edges if edge.reader.rule != edge.writer}
        roots = [name for name in self.rules if name not in fed]
        for name in (*roots, *self.rules):  # rules of a cycle are below no root
            if name not in seen:
                yield self._line(name)
                yield from self._below(name, "", seen)

    def _below(self, name: str, indent: str, seen: set[str]) -> Iterator[str]:
        seen.add(name)
        below: dict[str, list[str]] = {}
        for edge in self.edges:
            if edge.writer == name and edge.reader.rule != name:
                below.setdefault(edge.reader.rule, []).append(f"{edge.reader.kind} {edge.reader.name}")
        for i, (reader, by) in enumerate(below.items(), 1):
            branch, further = LAST if i == len(below) else NEXT
            if reader in seen:
                yield f"{indent}{branch}{reader}, as {', '.join(by)} (see above)"
                continue
            yield f"{indent}{branch}{self._line(reader, by)}"
            yield from self._below(reader, indent + further, seen)

    def _line(self, name: str, by: Iterable[str] = ()) -> str:
        rule, read = self.rules[name], self.outside[name]
        said = [
            name,
            *([f"as {', '.join(by)}"] if by else []),
            *([f"reads {', '.join(map(last_part, read))}"] if read else []),
        ]
        group = f", in group {rule.group}" if rule.group else ""
        return f"{', '.join(said)} [{_when(rule)}{group}]"


def graph(rules: Iterable[Rule]) -> Graph:
    by_name = {rule.rule: rule for rule in sorted(rules, key=lambda rule: rule.rule)}
    known = readers(by_name.values())
    edges = [
        Edge(rule.rule, reader)
        for rule in by_name.values()
        for sink in rule.sinks
        for reader in known.get(identity(str(sink.address)), ())
        if sink.address
    ]
    written = {identity(sink.address) for rule in by_name.values() for sink in rule.sinks if sink.address}
    return Graph(by_name, edges, {name: _outside(rule, written) for name, rule in by_name.items()})


def _outside(rule: Rule, written: set[str]) -> list[str]:
    read = [stream.address for stream in rule.streams.values()] + [table.address for table in rule.lookups.values()]
    return list(dict.fromkeys(address for address in read if identity(address) not in written))


def schedule(rule: Rule) -> Any:
    """The schedule as in the rule file."""
    return rule.schedule if rule.schedule is None or isinstance(rule.schedule, str) else rule.schedule.model_dump()


def _when(rule: Rule) -> str:
    given = rule.schedule
    if given is None:
        return "manually"
    return given if isinstance(given, str) else f"after assets {', '.join(given.assets)}"
