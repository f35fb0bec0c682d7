"""Models streams and lookups in rule files."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from floodmark.core.rules.file.fields import (
    Duration,
    Filled,
    NotNegative,
    RuleName,
    TableAddress,
    Text,
    Written,
    as_positive,
    as_text,
    check_names,
    column_name,
    column_names,
)
from floodmark.core.rules.file.kindkeys import KIND, add_to_schema, group_kind_keys, read_kind
from floodmark.core.rules.kinds import SOURCES, source_kind
from floodmark.core.rules.model import (
    ACTIONS,
    Action,
    OnRewrite,
)

DEFAULT_MAX_AHEAD = "1 day"
LATER_STREAM_KEYS = ("close_idle_after",)
MOST_EXPECTATIONS = 60  # of one stream, or of the results: a row has a bit for each


class WrittenEventTime(Written):
    name: Annotated[str, AfterValidator(column_name), BeforeValidator(as_text)]
    expr: Filled | None = None


class WrittenStart(Written):
    version: NotNegative | None = None
    timestamp: Annotated[Text, Field(description="ISO 8601; without an offset, in the rule's timezone")] | None = None

    @model_validator(mode="after")
    def _one(self) -> WrittenStart:
        if (self.version is None) == (self.timestamp is None):
            raise ValueError("expected earliest, latest, {version: N} or {timestamp: T}")
        if self.timestamp is not None:
            instant_of(self.timestamp)
        return self


def instant_of(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected an ISO 8601 timestamp such as 2001-01-31T12:00:00Z, found {text[:40]!r}") from None
    if not 1 < found.year < 9999:  # so that no zone can move it out of the calendar
        raise ValueError("expected a timestamp in the years 2 to 9998")
    return found


def _event_time(value: object) -> object:
    if not isinstance(value, (str, dict)):
        raise ValueError("expected a column name, or {name: ..., expr: ...}")
    return column_name(value) if isinstance(value, str) else WrittenEventTime.model_validate(value)


def _start(value: object) -> object:
    if value in ("earliest", "latest"):
        return value
    if not isinstance(value, dict):
        raise ValueError("expected earliest, latest, {version: N} or {timestamp: T}")
    return WrittenStart.model_validate(value)


def _action(value: object) -> object:
    if value not in ACTIONS:
        raise ValueError(
            "expected fail (the run stops), dead (the row goes to the dead table), drop (it is discarded) or warn "
            "(it is counted)"
        )
    return value


class WrittenExpectation(Written):
    """An expectation on every row: a condition, and the action for a row that does not meet it."""

    check: Annotated[Filled, Field(description="SQL condition on one row; NULL or an error fails it")]
    on_fail: Annotated[Action, BeforeValidator(_action)] = "fail"


def _expectations(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError(
            "expected expectations by name, {NAME: {check: CONDITION, on_fail: drop | dead | fail | warn}}"
        )
    check_names("expectation", value)
    for name, one in value.items():
        if not isinstance(one, (dict, WrittenExpectation)):
            raise ValueError(f"expected {name}: {{check: CONDITION, on_fail: drop | dead | fail | warn}}")
    if len(value) > MOST_EXPECTATIONS:
        raise ValueError(f"expected at most {MOST_EXPECTATIONS} expectations, found {len(value)}")
    return value


Expectations: TypeAlias = Annotated[dict[str, WrittenExpectation], BeforeValidator(_expectations)]


class WrittenDistinct(Written):
    """A row is a duplicate if an earlier row has equal `key` columns and is at most `within` before it."""

    key: Annotated[list[str], BeforeValidator(column_names), Field(min_length=1)]
    within: Annotated[Duration, AfterValidator(as_positive)]


def _on_rewrite(value: object) -> object:
    if value not in ("stop", "skip", "correct"):
        raise ValueError(
            "expected stop (the run stops at a commit that removes rows), skip (it passes the commit over) or correct "
            "(it recomputes what the commit changes)"
        )
    return value


def _changes(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


class WrittenLanding(Written):
    """Copies the stream's rows into a table of the rule's home before they are folded."""

    keep: Annotated[Duration, AfterValidator(as_positive)] | None = None


def _landing(value: object) -> object:
    if value is None or isinstance(value, (bool, WrittenLanding)):
        return value
    if not isinstance(value, dict):
        raise ValueError("expected true, false or {keep: DURATION}, such as {keep: 30 days}")
    return WrittenLanding.model_validate(value)


def _kind(value: object) -> object:
    return read_kind(value, source_kind)


def _with_kinds(schema: dict[str, Any]) -> None:
    add_to_schema(schema, SOURCES, source_kind)


class WrittenStream(Written):
    """One source kind with its address, and how the stream is read.

    `rule`: a rule of the same folder whose sink is read. `sink`: the sink, if that rule has several.
    """

    model_config = ConfigDict(json_schema_extra=_with_kinds)

    kind: SkipJsonSchema[Annotated[dict[str, Any], BeforeValidator(_kind), Field(alias=KIND)]] = {}
    rule: RuleName | None = None
    sink: Filled | None = None
    event_time: Annotated[str | WrittenEventTime, BeforeValidator(_event_time)] | None = None
    lateness: Duration | None = None
    max_ahead: Duration | None = None
    idle_after: Annotated[Duration, AfterValidator(as_positive)] | None = None
    where: Filled | None = None
    start: Annotated[Literal["earliest", "latest"] | WrittenStart, BeforeValidator(_start)] = "earliest"
    distinct: WrittenDistinct | None = None
    expect: Annotated[Expectations, Field(description="expectations on the input rows")] = {}
    on_rewrite: Annotated[OnRewrite, BeforeValidator(_on_rewrite)] = "stop"
    changes: Annotated[bool, BeforeValidator(_changes)] = False
    landing: Annotated[bool | WrittenLanding | None, BeforeValidator(_landing)] = None

    @model_validator(mode="before")
    @classmethod
    def _group_kind(cls, value: object) -> object:
        return group_kind_keys(value, SOURCES, unless_empty=True)

    @model_validator(mode="after")
    def _one(self) -> WrittenStream:
        given = [*self.kind, *(["rule"] if self.rule is not None else [])]
        if len(given) != 1:
            raise ValueError(
                f"expected exactly one kind of stream ({', '.join(source_keys())}), such as `delta: ADDRESS` or "
                f"`rule: NAME`, found {'both' if len(given) == 2 else ', '.join(given) or 'neither'}"
            )
        if self.sink is not None and self.rule is None:
            raise ValueError(f"expected `sink` only with `rule`, found it with `{given[0]}`")
        return self


def source_keys() -> list[str]:
    """The keys of a stream that say what it reads."""
    return [*SOURCES, "rule"]


class WrittenLookup(Written):
    """A table that the SQL joins with streams. Every epoch reads the newest version at that time.

    `history`: read all versions up to then. `_valid_from` and `_valid_to` say when each row was in the table.
    """

    delta: TableAddress
    history: bool = False


def as_streams(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError("expected at least one stream, {NAME: {delta: ADDRESS, ...}}")
    check_names("stream", value)
    return value


def as_lookups(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected lookup tables, {NAME: {delta: ADDRESS, ...}}")
    check_names("lookup", value)
    return value
