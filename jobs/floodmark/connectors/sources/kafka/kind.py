"""The Kafka kind of source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.kafka.options import Kafka, schemas_of, texts_of
from floodmark.core.rules.kinds import CODE, SourceCan, SourceKind

if TYPE_CHECKING:
    from pathlib import Path

    from floodmark.connectors.ports.source import Source
    from floodmark.core.rules.model import Stream
    from floodmark.core.text.ddl import Column


def _open(name: str, stream: Stream, keep: Path | None) -> Source:
    from floodmark.connectors.sources.kafka.source import KafkaSource

    return KafkaSource(name, stream)


def _address(said: Any) -> str:
    return Kafka.model_validate(said).address()


def _columns(options: Mapping[str, Any]) -> tuple[Column, ...]:
    said = Kafka.model_validate({key: one for key, one in options.items() if key != CODE})
    return said.columns(texts_of(options.get(CODE)))


def _files(options: Mapping[str, Any]) -> Iterable[str]:
    return Kafka.model_validate({key: one for key, one in options.items() if key != CODE}).files.values()


SOURCE = SourceKind(
    written=Kafka,
    summary="topics of Kafka, by the name of a connection",
    can=SourceCan(
        rereads=True,
        starts=frozenset({"earliest", "latest", "timestamp"}),
        limits=frozenset({"max_rows"}),
    ),
    address=_address,
    open=_open,
    code=schemas_of,
    code_key="avro_schema",
    files=_files,
    columns=_columns,
)
