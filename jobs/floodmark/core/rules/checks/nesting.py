"""Tables of several rules that lie in one another: the outer one's clean-up would take the inner one's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.rules.model import Rule
from floodmark.core.text.addresses import identity


@dataclass(frozen=True)
class _Table:
    """One that the rule of the file `path` writes, or reads as `what`."""

    path: Path
    rule: str
    what: str
    address: str

    @property
    def place(self) -> str:
        return identity(self.address).rstrip("/")


def nesting(found: Mapping[Path, Rule]) -> dict[Path, str]:
    """The files whose rules have a sink inside a table of another rule, or around one, each with which it is."""
    tables = [table for path, rule in found.items() for table in _tables(path, rule)]
    by_place: dict[str, list[_Table]] = {}
    for table in tables:
        by_place.setdefault(table.place, []).append(table)
    faults: dict[Path, str] = {}
    for inner in tables:
        for outer in (one for place in _above(inner.place) for one in by_place.get(place, ())):
            if inner.path != outer.path:
                faults |= _faults(inner, outer)
    return faults


def _tables(path: Path, rule: Rule) -> Iterator[_Table]:
    yield from (_Table(path, rule.rule, "sink", sink.address) for sink in rule.sinks if sink.address)
    yield from (_Table(path, rule.rule, f"stream {name}", one.address) for name, one in rule.streams.items())
    yield from (_Table(path, rule.rule, f"lookup {name}", one.address) for name, one in rule.lookups.items())


def _above(place: str) -> Iterator[str]:
    """The folders around a place."""
    while "/" in place:
        place = place.rpartition("/")[0]
        yield place


def _faults(inner: _Table, outer: _Table) -> Iterator[tuple[Path, str]]:
    """Of those of the two that are sinks: a reader cannot help where somebody writes."""
    for mine, other, how in ((inner, outer, "inside"), (outer, inner, "around")):
        if mine.what == "sink":
            yield (
                mine.path,
                f"sinks: {mine.address} lies {how} {other.address}, {other.what} of rule {other.rule}: a table inside "
                "another would lose its files to the other's clean-up; name a place beside it",
            )
