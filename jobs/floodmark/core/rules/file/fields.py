"""Models values in rule files: text, addresses, durations, whole numbers, names, columns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from floodmark.core.application.connections import NAME
from floodmark.core.text.addresses import unfit, unfit_table
from floodmark.core.text.ddl import columns_of, text_of
from floodmark.core.text.durations import parse_duration
from floodmark.core.text.problems import shown_value
from floodmark.core.text.secrets import WAY_OUT, has_credentials

MOST_OF_NAME = 63  # maximum length of a stream's, a lookup's or an expectation's name
RULE_NAME = r"^[a-z][a-z0-9_]{0,62}$"
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"


def duration(text: object) -> int:
    """Microseconds of a duration written as words."""
    if not isinstance(text, str):
        raise ValueError("expected a duration such as '30 minutes' or '1 hour 30 minutes'")
    return parse_duration(text)


def as_text(value: object) -> object:
    if isinstance(value, bool | int | float):
        text = shown_value(value)
        raise ValueError(f"expected text, found {text}: write '{text}'")
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("expected text that is not empty")
    return value


MORE_THAN_A_PLACE = f"expected a plain address, found one with a user, a password or a query: {WAY_OUT}"


def without_credentials(value: str) -> str:
    if has_credentials(value):
        raise ValueError(MORE_THAN_A_PLACE)
    return value


def _address(value: str) -> str:
    problem = unfit(without_credentials(value))
    if problem:
        raise ValueError(f"expected a path or a URI such as s3://bucket/table ({problem})")
    return value


def _table(value: str) -> str:
    problem = unfit_table(value)
    if problem:
        raise ValueError(f"expected the address of a table ({problem})")
    return value


def _whole(value: object) -> object:
    """A whole number; also as text, because environment variables are text."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d{1,18}", value.strip()):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("expected a whole number")
    return value


def _between(least: int, most: int) -> AfterValidator:
    def check(value: int) -> int:
        if value < least:
            raise ValueError(f"expected a whole number of at least {least}")
        if value > most:
            raise ValueError(f"expected a whole number of at most {most}")
        return value

    return AfterValidator(check)


def _qos(value: object) -> object:
    levels = {0: 0, 1: 1, 2: 2, "0": 0, "1": 1, "2": 2}
    if isinstance(value, bool) or not isinstance(value, int | str) or value not in levels:
        raise ValueError("expected 0 (at most once), 1 (at least once) or 2 (exactly once)")
    return levels[value]


def as_list(value: object) -> object:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


Text: TypeAlias = Annotated[str, BeforeValidator(as_text)]
Filled: TypeAlias = Annotated[str, AfterValidator(_filled), BeforeValidator(as_text), Field(min_length=1)]
Address: TypeAlias = Annotated[
    str, AfterValidator(_address), AfterValidator(_filled), BeforeValidator(as_text), Field(min_length=1)
]
TableAddress: TypeAlias = Annotated[Address, AfterValidator(_table)]
Duration: TypeAlias = Annotated[
    int, BeforeValidator(duration), WithJsonSchema({"type": "string", "examples": ["30 minutes", "1 hour 30 minutes"]})
]
_WHOLE = BeforeValidator(_whole)
_LONG = (1 << 63) - 1
Positive: TypeAlias = Annotated[
    int, _between(1, _LONG), _WHOLE, WithJsonSchema({"type": ["integer", "string"], "minimum": 1})
]
NotNegative: TypeAlias = Annotated[
    int, _between(0, _LONG), _WHOLE, WithJsonSchema({"type": ["integer", "string"], "minimum": 0})
]
# Every task has a cost of its own: with more, a rule would do nothing else.
Partitions: TypeAlias = Annotated[
    int, _between(1, 10_000), _WHOLE, WithJsonSchema({"type": ["integer", "string"], "minimum": 1, "maximum": 10_000})
]
Retries: TypeAlias = Annotated[
    int, _between(0, 1_000), _WHOLE, WithJsonSchema({"type": ["integer", "string"], "minimum": 0, "maximum": 1_000})
]
QosLevel: TypeAlias = Annotated[
    int,
    BeforeValidator(_qos),
    WithJsonSchema({"enum": [0, 1, 2], "description": "0 at most, 1 at least, 2 exactly once"}),
]


class Written(BaseModel):
    """Base of everything in a file: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def column_name(value: str) -> str:
    if not re.fullmatch(_IDENTIFIER[1:-1], value):
        raise ValueError("expected a column name of letters, digits and _")
    return value


def column_names(value: object) -> object:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of at least one column, such as [device]")
    lower = [column_name(_text_of(name)).lower() for name in value]
    if len(set(lower)) < len(lower):
        raise ValueError("expected each column once")
    return value


def _text_of(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected column names as text")
    return value


def connection_name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(
            "expected the name of a connection, of letters, digits and _: its address and secrets are in the variable "
            "FLOODMARK_CONN_NAME, or in Airflow's connections"
        )
    return value


def declared_columns(value: str) -> str:
    """Columns as in CREATE TABLE, in their canonical spelling."""
    try:
        return text_of(columns_of(value))
    except ValueError as fault:
        raise ValueError(f"expected columns as in CREATE TABLE, such as `k STRING, n BIGINT`: {fault}") from None


def as_positive(us: int) -> int:
    if us <= 0:
        raise ValueError("expected a duration above zero")
    return us


def rule_name(value: str) -> str:
    """The rule's name, unchanged. Raises ValueError if it is not a valid one."""
    if not re.match(RULE_NAME, value) or value.endswith("\n"):
        raise ValueError("expected a name of at most 63 lowercase letters, digits and _ that starts with a letter")
    return value


RuleName: TypeAlias = Annotated[str, AfterValidator(rule_name), BeforeValidator(as_text), Field(pattern=RULE_NAME)]


def or_none(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"const": "none"}, {"$ref": schema.pop("$ref")}]


def check_names(kind: str, names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not re.fullmatch(_IDENTIFIER[1:-1], name) or name.lower() == "window":
            raise ValueError(f"expected {kind} names of letters, digits and _ (and not window), found {name!r}")
        if len(name) > MOST_OF_NAME:
            raise ValueError(f"expected {kind} names of at most {MOST_OF_NAME} characters, found {name[:40]}...")
        if name.lower() in seen:
            raise ValueError(
                f"expected {kind} names that differ in more than upper and lower case, found "
                f"{seen[name.lower()]}, {name}"
            )
        seen[name.lower()] = name
