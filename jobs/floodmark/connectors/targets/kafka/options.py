"""The keys of a Kafka target in a rule file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from floodmark.connectors.sources.kafka.options import Topic
from floodmark.core.relay.positions import MARKERS
from floodmark.core.rules.file.fields import Written, as_text, column_names, connection_name


def _topic(value: str) -> str:
    if value == MARKERS:
        raise ValueError(f"expected another topic than {MARKERS}, which has the positions of all targets")
    return value


def _format(value: object) -> object:
    if value not in ("json", "avro"):
        raise ValueError("expected json or avro")
    return value


class WrittenTopic(Written):
    """A topic, and how rows become its records."""

    model_config = ConfigDict(json_schema_extra={"required": ["connection", "topic"]})

    connection: Annotated[
        str, AfterValidator(connection_name), BeforeValidator(as_text), Field(description="name of the connection")
    ]
    topic: Annotated[Topic, AfterValidator(_topic), Field(description="the topic; the relay makes it if it is missing")]
    key: Annotated[
        list[str] | None,
        BeforeValidator(lambda value: value and column_names(value)),
        Field(description="columns of the records' key, of a sink whose rows are only added; default: no key"),
    ] = None
    format: Annotated[
        Literal["json", "avro"], BeforeValidator(_format),
        Field(description="json: a value is an object; avro: a record of the schema that follows from the columns"),
    ] = "json"  # fmt: skip

    def address(self) -> str:
        return f"kafka://{self.connection}/{self.topic}"
