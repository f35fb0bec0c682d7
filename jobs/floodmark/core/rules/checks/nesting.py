"""Finds nested tables of several rules: the outer table's clean-up would delete the inner one's files.

Also finds streams of files that another rule's target writes: its relay would replace files that were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.rules.model import Rule
from floodmark.core.text.addresses import FILES, identity


@dataclass(frozen=True)
class _Table:
    """A table that the rule of the file `path` writes, or reads as `what`."""

    path: Path
    rule: str
    what: str
    address: str
    is_folder: bool = False  # of files, not a table

    @property
    def place(self) -> str:
        return identity(self.address).rstrip("/")


def nested_tables(found: Mapping[Path, Rule]) -> dict[Path, str]:
    """The files whose rules have a sink inside or around a table of another rule, each with the message."""
    tables = [table for path, rule in found.items() for table in _tables(path, rule)]
    by_place: dict[str, list[_Table]] = {}
    for table in tables:
        by_place.setdefault(table.place, []).append(table)
    faults: dict[Path, str] = {}
    for inner in tables:
        for outer in (one for place in _from(inner.place) for one in by_place.get(place, ())):
            if inner.path != outer.path:
                faults |= _faults(inner, outer)
    return faults


def _tables(path: Path, rule: Rule) -> Iterator[_Table]:
    for sink in rule.sinks:
        if sink.address:
            yield _Table(path, rule.rule, "sink", sink.address, sink.kind == FILES)
    for name, one in rule.streams.items():
        yield _Table(path, rule.rule, f"stream {name}", one.address, one.kind == FILES)
    yield from (_Table(path, rule.rule, f"lookup {name}", one.address) for name, one in rule.lookups.items())


def _from(place: str) -> Iterator[str]:
    """A place, and the folders around it."""
    yield place
    while "/" in place:
        place = place.rpartition("/")[0]
        yield place


def _faults(inner: _Table, outer: _Table) -> Iterator[tuple[Path, str]]:
    """The faults of the two. A mistyped reader must not stop the rules whose sinks lie in what it names: it alone is
    refused, also for files of another rule's target. It cannot choose where others write around what it reads."""
    if inner.what == "sink" and outer.what != "sink":
        if inner.place != outer.place:
            yield outer.path, _around(inner, outer)
        return
    if outer.what == "sink" and outer.is_folder and inner.what != "sink" and inner.is_folder:
        yield (
            inner.path,
            f"{inner.what}: expected another source, such as a Delta sink of the same rule (`rule: "
            f"{outer.rule}`), found {inner.address} of {outer.address}, a target of rule {outer.rule}: its relay puts "
            "corrected files in place of others, so rows would count twice",
        )
        return
    for mine, other, how in ((inner, outer, "inside"), (outer, inner, "around")):
        if mine.what == "sink" and inner.place != outer.place:
            yield (
                mine.path,
                f"sinks: {mine.address} is {how} {other.address}, {other.what} of rule {other.rule}: a table inside "
                "another would lose its files to the other's clean-up; name a place outside it",
            )


def _around(inner: _Table, outer: _Table) -> str:
    return (
        f"{outer.what}: expected a place that holds no sink of another rule, found {outer.address}, which is around "
        f"{inner.address}, sink of rule {inner.rule}: a table inside another would lose its files to the other's "
        "clean-up; name the table itself, or move the sink"
    )
