"""Registers kinds of source and sink: their keys in rule files, and their capabilities. One line here, one file each.

A line names the place of a `SourceKind` or `SinkKind`. Reading a rule file imports that module, so it must import
nothing slow. `open` imports what it needs to open a table, a broker or Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from floodmark.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.core.rules.model import Qos, Rule, Sink, Stream
    from floodmark.core.text.ddl import Column

Start: TypeAlias = Literal["earliest", "latest", "version", "timestamp"]
Bound: TypeAlias = Literal["max_files", "max_bytes", "max_rows", "max_seconds"]

CODE = "code"  # the option of a stream or sink with the text of its class's module, or of its other files

SOURCES: dict[str, str] = {
    "delta": "floodmark.connectors.delta.kind:SOURCE",
    "files": "floodmark.connectors.sources.files.kind:SOURCE",
    "iceberg": "floodmark.connectors.sources.iceberg.kind:SOURCE",
    "kafka": "floodmark.connectors.sources.kafka.kind:SOURCE",
    "postgres": "floodmark.connectors.sources.postgres.kind:SOURCE",
    "python": "floodmark.connectors.sources.python.kind:SOURCE",
}
SINKS: dict[str, str] = {
    "delta": "floodmark.connectors.delta.kind:SINK",
    "console": "floodmark.connectors.ports.console:SINK",
    "postgres": "floodmark.connectors.targets.postgres.kind:SINK",
    "python": "floodmark.connectors.targets.python.kind:SINK",
    "kafka": "floodmark.connectors.targets.kafka.kind:SINK",
    "files": "floodmark.connectors.targets.files.kind:SINK",
    "iceberg": "floodmark.connectors.targets.iceberg.kind:SINK",
}


@dataclass(frozen=True)
class SourceCan:
    """The capabilities of a kind of source. Capabilities that are not listed here are refused, never guessed.

    rereads: it can return the rows of a range again, unchanged. starts: where a stream may start. limits: the keys of
    `epoch` that bound its input. planned: Spark has a streaming source for it. table: it is a Delta table at its
    address, such as another rule's sink. rewrites: its rows can be removed and changed, and it names those that were.
    lands: its rows can be read only until they are landed, so a stream always has a landing.
    """

    rereads: bool = False
    starts: frozenset[Start] = frozenset({"earliest"})
    limits: frozenset[Bound] = frozenset()
    planned: bool = False
    table: bool = False
    rewrites: bool = False
    lands: bool = False

    @property
    def qos(self) -> Qos:
        """The highest qos of its rows: those of a crashed epoch are lost if the source cannot return them again."""
        return 2 if self.rereads else 0


@dataclass(frozen=True)
class SourceKind:
    """A kind of source.

    written: the type, for pydantic, of the value under its key in a rule file, a text or a model. says: the key's
    description, in one line. address: one text for one place, from that value. open: its `Source`, by stream name,
    stream, and the folder in the rule's home for what the source has to remember (None: a look without a home).
    code: of a kind with files beside the rule, such as the module of a class, their text, by the value, the rule's
    folder and the environment; None if it names none. It raises ValueError and OSError. code_key: the key that names
    them; files: their names, by the stream's options, unless they are a module. columns: all that a stream has, by its
    options; None if only the source knows them.
    """

    written: Any
    summary: str
    can: SourceCan
    address: Callable[[Any], str]
    open: Callable[[str, Stream, Path | None], Any]
    code: Callable[[Any, Path, Mapping[str, str]], str | None] | None = None
    code_key: str = "class"
    files: Callable[[Mapping[str, Any]], Iterable[str]] | None = None
    columns: Callable[[Mapping[str, Any]], tuple[Column, ...] | None] | None = None


@dataclass(frozen=True)
class SinkCan:
    """The capabilities of a kind of sink. Capabilities that are not listed here are refused, never guessed.

    `qos`: what it gives at best. `stores_rows`: what it got stays, so that epochs write it by transactions, and it is
    audited. `merges`: by a key. `compares`: it keeps the newer of two rows with one key. `replaces`: rows of an
    interval, or all of them, by others. `empties`: all its rows can be taken away, for a reset. `table`: it is a Delta
    table, which Spark writes through Delta's own transactions. `target`: it is outside of the lake: epochs write its
    outbox, from which a relay ships what is committed.
    """

    qos: Qos
    stores_rows: bool = True
    merges: bool = False
    compares: bool = False
    replaces: bool = False
    empties: bool = True
    table: bool = False
    target: bool = False


@dataclass(frozen=True)
class SinkKind:
    """`written`, `summary`: as of a `SourceKind`. `address`: one text for one place, with a scheme of the kind's own;
    None of a sink that is nowhere. `open`: its `Sink`, of a kind that keeps what it got, by the rule's sink and the
    folder of its outbox (None: it has none, or a look without a home). `target`: its `Target`, of a kind that is one,
    by the sink and the folder of its outbox, beside which it may keep a file. `code`: as of a `SourceKind`. `refine`:
    of a kind whose capabilities depend on the sink, these capabilities; `lacks`: by capability, what a sink needs for
    it, for people. `scratch`: of a target beside which copies of its rule can have places of their own, these
    `ScratchPlaces`, by the sink, a folder for them, and a word that no others have. `values`: of a target whose values
    have a schema that consumers need, this schema, by the sink and its columns; None: this sink's have none.
    """

    written: Any
    summary: str
    can: SinkCan
    address: Callable[[Any], str | None]
    open: Callable[[Sink, Path | None], Any] | None = None
    target: Callable[[Sink, Path | None], Any] | None = None
    code: Callable[[Any, Path, Mapping[str, str]], str] | None = None
    refine: Callable[[Sink], SinkCan] | None = None
    lacks: Mapping[str, str] = field(default_factory=dict)
    scratch: Callable[[Sink, Path, str], Any] | None = None
    values: Callable[[Sink, tuple[Column, ...]], dict[str, Any] | None] | None = None


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
        raise Refused(f"expected one of the kinds {', '.join(known)}, found {kind}, which is not registered here")
    module, _, name = known[kind].partition(":")
    return getattr(import_module(module), name)


def connections_of(rule: Rule) -> set[str]:
    """The names of the connections that streams and sinks name, each by the key `connection` of its kind."""
    options = [one.options for one in rule.streams.values()] + [one.options for one in rule.sinks]
    named = (one.get("connection") for one in options)
    return {str(name) for name in named if name is not None}


def files_beside(stream: Stream) -> Iterable[str]:
    """The names of the files beside its rule that a stream names, unless they are a module."""
    named = source_kind(stream.kind).files
    return () if named is None or CODE not in stream.options else named(stream.options)


def declared_columns(stream: Stream) -> tuple[Column, ...] | None:
    """The columns that the rule declares for a stream; None if its source has them."""
    columns = source_kind(stream.kind).columns
    return None if columns is None else columns(stream.options)


def tables_read(rule: Rule) -> dict[str, str]:
    """The addresses of the streams that are Delta tables, by stream name."""
    return {name: stream.address for name, stream in rule.streams.items() if source_can(stream.kind).table}


def tables_written(rule: Rule) -> list[Sink]:
    """The sinks that are Delta tables."""
    return [sink for sink in rule.sinks if sink_can(sink.kind).table]


def durable_sinks(rule: Rule) -> list[Sink]:
    """The sinks that keep what they got: those that epochs write by transactions."""
    return [sink for sink in rule.sinks if sink_can(sink.kind).stores_rows]


def sinks_beside_tables(rule: Rule) -> list[Sink]:
    """The sinks that keep what they got and are no Delta tables."""
    return [sink for sink in durable_sinks(rule) if not sink_can(sink.kind).table]


def targets(rule: Rule) -> list[Sink]:
    """The sinks that relays ship to."""
    return [sink for sink in rule.sinks if sink_can(sink.kind).target]


def once_only(rule: Rule, landed: bool = True) -> Iterator[str]:
    """Why streams of the rule cannot be read again, one reason for each.

    landed: rows of a landing can be; False: only what the source itself still gives counts.
    """
    for name, stream in rule.streams.items():
        if not (stream_can(stream) if landed else source_can(stream.kind)).rereads:
            yield f"stream {name} is a {stream.kind} source, whose rows can be read only once"


def source_can(kind: str) -> SourceCan:
    """What a kind of source can do without a landing; `stream_can` says what a stream can do."""
    return source_kind(kind).can


def stream_can(stream: Stream) -> SourceCan:
    """What a stream can do.

    Of a change feed, Floodmark plans whole versions. A stream with a landing is read as a Delta table, from where its
    source can start.
    """
    own = source_can(stream.kind)
    if stream.changes:
        own = replace(own, planned=False, rewrites=False)
    if stream.landing is None:
        return own
    return replace(source_can("delta"), starts=own.starts, table=own.table, rewrites=False)


def sink_can(kind: str) -> SinkCan:
    return sink_kind(kind).can


def can_of(sink: Sink) -> SinkCan:
    """The capabilities of this very sink: those of its kind, unless they depend on the sink."""
    kind = sink_kind(sink.kind)
    return kind.can if kind.refine is None else kind.refine(sink)
