"""Kinds of source and sink: how a rule file names one, and what it can do. One line here and one file for each.

A line names where its `SourceKind` or `SinkKind` is, and it is imported when a rule file is read: that module must
import nothing that is slow. What opens a table, a broker or Spark, it imports in `open`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.core.rules.model import Qos, Rule, Sink, Stream

Start: TypeAlias = Literal["earliest", "latest", "version", "timestamp"]
Bound: TypeAlias = Literal["max_files", "max_bytes", "max_rows", "max_seconds"]

SOURCES: dict[str, str] = {"delta": "floodmark.connectors.delta.kind:SOURCE"}
SINKS: dict[str, str] = {
    "delta": "floodmark.connectors.delta.kind:SINK",
    "console": "floodmark.connectors.console:SINK",
}


@dataclass(frozen=True)
class SourceCan:
    """What sources of a kind can do. What is not said here is refused, never guessed.

    `rereads`: it gives the rows of a range again, the same. `starts`: where a stream may begin. `limits`: the keys of
    `epoch` that bound what it reads. `planned`: Spark has a streaming source of its own for it. `table`: it is a Delta
    table at its address, such as another rule's sink.
    """

    rereads: bool = False
    starts: frozenset[Start] = frozenset({"earliest"})
    limits: frozenset[Bound] = frozenset()
    planned: bool = False
    table: bool = False

    @property
    def qos(self) -> Qos:
        """What its rows have at best. Those of a crashed epoch that nobody gives again are lost."""
        return 2 if self.rereads else 0


@dataclass(frozen=True)
class SourceKind:
    """`written`: what stands under its key in a rule file, a text or a model, as a type for pydantic; `says`: of that
    key, in one line. `address`: one text for one place, of what was written. `open`: its `Source`, by stream name.
    """

    written: Any
    says: str
    can: SourceCan
    address: Callable[[Any], str]
    open: Callable[[str, Stream], Any]


@dataclass(frozen=True)
class SinkCan:
    """What sinks of a kind can do. What is not said here is refused, never guessed.

    `qos`: what it gives at best. `keeps`: what it got stays, so that epochs write it by transactions, and it is
    audited. `merges`: by a key. `replaces`: rows of an interval, or all of them, by others. `table`: it is a Delta
    table, which Spark writes through Delta's own transactions.
    """

    qos: Qos
    keeps: bool = True
    merges: bool = False
    replaces: bool = False
    table: bool = False


@dataclass(frozen=True)
class SinkKind:
    """`written`, `says`: as of a `SourceKind`. `address`: one text for one place, None of a sink that is nowhere.
    `open`: its `Sink`, of a kind that keeps what it got.
    """

    written: Any
    says: str
    can: SinkCan
    address: Callable[[Any], str | None]
    open: Callable[[Sink], Any] | None = None


def source_kind(kind: str) -> SourceKind:
    """Raises Refused for a kind that nobody has registered."""
    found = _named(kind, SOURCES)
    assert isinstance(found, SourceKind), f"{SOURCES[kind]} is to be a SourceKind"
    return found


def sink_kind(kind: str) -> SinkKind:
    """Raises Refused for a kind that nobody has registered."""
    found = _named(kind, SINKS)
    assert isinstance(found, SinkKind), f"{SINKS[kind]} is to be a SinkKind"
    return found


def _named(kind: str, known: Mapping[str, str]) -> object:
    if kind not in known:
        raise Refused(f"expected a kind out of {', '.join(known)}, found {kind}, which is not registered here")
    module, _, name = known[kind].partition(":")
    return getattr(import_module(module), name)


def tables_read(rule: Rule) -> dict[str, str]:
    """The addresses of the streams that are Delta tables, by stream name."""
    return {name: stream.address for name, stream in rule.streams.items() if source_can(stream.kind).table}


def tables_written(rule: Rule) -> list[Sink]:
    """The sinks that are Delta tables."""
    return [sink for sink in rule.sinks if sink_can(sink.kind).table]


def sinks_kept(rule: Rule) -> list[Sink]:
    """The sinks that keep what they got: those that epochs write by transactions."""
    return [sink for sink in rule.sinks if sink_can(sink.kind).keeps]


def once_only(rule: Rule) -> Iterator[str]:
    """Why what a rule reads cannot be read again, by stream."""
    for name, stream in rule.streams.items():
        if not source_can(stream.kind).rereads:
            yield f"stream {name} is of a {stream.kind} source, which gives its rows once"


def source_can(kind: str) -> SourceCan:
    return source_kind(kind).can


def sink_can(kind: str) -> SinkCan:
    return sink_kind(kind).can
