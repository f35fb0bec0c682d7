"""Models sinks in rule files."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from floodmark.core.rules.file.fields import Duration, Filled, Positive, QosLevel, Written, as_text
from floodmark.core.rules.file.kindkeys import KIND, add_to_schema, group_kind_keys, read_kind
from floodmark.core.rules.kinds import SINKS, sink_can, sink_kind
from floodmark.core.rules.model import OUTBOX_KEEP_US
from floodmark.core.text.secrets import WAY_OUT, secret_setting

LATER_SINK_KEYS = ("mode",)
MOST_CLUSTERED = 4  # columns by which Delta clusters a table
_SINK_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$"


def _kind(value: object) -> object:
    return read_kind(value, sink_kind)


def _with_kinds(schema: dict[str, Any]) -> None:
    add_to_schema(schema, SINKS, sink_kind)


def _key(value: object) -> object:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise ValueError("expected a list of at least one result column, such as [origin]")
    names = [name.lower() for name in value]
    doubled = [name for name in value if names.count(name.lower()) > 1]
    if doubled:
        raise ValueError(f"expected each column once, found {', '.join(doubled)}")
    return value


def setting_text(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, (str, int, float)):
        raise ValueError(f"expected text or a number for {key}")
    if "${" in str(value):  # written as $${
        raise ValueError(f"setting {key}: expected text without ${{, for Spark or Hadoop would put a variable there")
    return str(value)


def _properties(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError("expected properties of a table, such as {delta.enableDeletionVectors: true}")
    for key in value:
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z][\w.-]*", key):
            raise ValueError(f"expected a property's name of letters, digits, dots, - and _, found {key}")
        if key.lower().startswith("floodmark."):
            raise ValueError(f"property {key}: names that start with `floodmark.` are reserved for Floodmark")
    found = {key: setting_text(key, text) for key, text in value.items()}
    for key, text in found.items():
        if secret_setting(key, text):
            raise ValueError(f"property {key} is or contains a secret, which a rule cannot contain: {WAY_OUT}")
    return found


def _evolves(value: object) -> object:
    if value not in ("fail", "add_columns"):
        raise ValueError("expected fail (the table keeps its columns) or add_columns (it gets new result columns)")
    return value


def _on_reset(value: object) -> object:
    if value not in ("empty", "keep"):
        raise ValueError("expected empty (a reset takes the target's rows away) or keep (new rows follow them)")
    return value


def _on_error(value: object) -> object:
    if value not in ("stop", "dead"):
        raise ValueError("expected stop (a row that the target refuses stops its relay) or dead (it is set aside)")
    return value


def _few(value: list[str]) -> list[str]:
    if len(value) > MOST_CLUSTERED:
        raise ValueError(f"expected at most {MOST_CLUSTERED} columns, because Delta supports no more")
    return value


class WrittenOutbox(Written):
    """The outbox of a target. Rows stay in it until the target has them, whatever is written here."""

    max_bytes: Annotated[
        Positive | None,
        Field(description="most bytes of files that the target has not got; the rule then waits. Default: no limit"),
    ] = None
    keep: Annotated[
        Duration,
        Field(
            description="for how long after their epoch rows stay that the target has got",
            json_schema_extra={"default": "7 days"},
        ),
    ] = OUTBOX_KEEP_US


ResultColumns: TypeAlias = Annotated[list[str], BeforeValidator(_key), Field(min_length=1)]


def _sink_name(value: str) -> str:
    if not re.fullmatch(_SINK_NAME[1:-1], value):
        raise ValueError("expected a name of at most 63 letters, digits, _ and - that starts with a letter")
    return value


class WrittenSink(Written):
    """One sink kind with its address. `qos`: the sink's own, at most the rule's.

    `name`: by which other rules read it; by default the last part of its address. With a `key`, a result replaces
    the table's row of the same key. `columns`, `where`: the columns and rows of the results that it gets. `schema`:
    whether new columns of the results are added to the table.
    """

    model_config = ConfigDict(json_schema_extra=_with_kinds)

    kind: SkipJsonSchema[Annotated[dict[str, Any], BeforeValidator(_kind), Field(alias=KIND)]] = {}
    name: Annotated[str, AfterValidator(_sink_name), BeforeValidator(as_text), Field(pattern=_SINK_NAME)] | None = None
    qos: QosLevel | None = None
    key: ResultColumns | None = None
    newest: (
        Annotated[Filled, Field(description="column; of two rows with one key, the row with the larger value is kept")]
        | None
    ) = None
    delete: (
        Annotated[Filled, Field(description="condition; a result that meets it deletes the row with its key")] | None
    ) = None
    properties: Annotated[
        dict[str, str],
        BeforeValidator(_properties),
        WithJsonSchema({"type": "object", "description": "of the Delta table, such as delta.enableDeletionVectors"}),
    ] = {}
    columns: ResultColumns | None = None
    where: (
        Annotated[
            Filled,
            Field(description="condition; only results that meet it. With a key, others delete the row with their key"),
        ]
        | None
    ) = None
    partition_by: ResultColumns | None = None
    cluster_by: Annotated[ResultColumns, AfterValidator(_few), Field(max_length=MOST_CLUSTERED)] | None = None
    evolves: Annotated[Literal["fail", "add_columns"], BeforeValidator(_evolves), Field(alias="schema")] = "fail"
    outbox: WrittenOutbox | None = None
    epoch_columns: Annotated[bool, Field(description="add the columns _generation and _epoch to the table")] = False
    on_reset: Annotated[
        Literal["empty", "keep"],
        BeforeValidator(_on_reset),
        Field(description="of a target: a reset takes its rows away (empty), or new rows follow them (keep)"),
    ] = "empty"
    on_error: Annotated[
        Literal["stop", "dead"],
        BeforeValidator(_on_error),
        Field(description="of a target: a row that it refuses stops its relay (stop), or is set aside (dead)"),
    ] = "stop"

    @property
    def table(self) -> str | None:
        """The address, if it is a Delta table."""
        return next((sink_kind(kind).address(said) for kind, said in self.kind.items() if sink_can(kind).table), None)

    @model_validator(mode="before")
    @classmethod
    def _group_kind(cls, value: object) -> object:
        return group_kind_keys(value, SINKS)

    @model_validator(mode="after")
    def _one(self) -> WrittenSink:
        if len(self.kind) != 1:
            raise ValueError(f"expected exactly one kind of sink: {', '.join(SINKS)}")
        for name in ("key", "newest", "delete", "columns", "where", "partition_by", "cluster_by"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"expected a value after `{name}:`, or no such line")
        return self


def as_sinks(value: object) -> object:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of at least one sink, such as [{delta: ADDRESS}]")
    return value
