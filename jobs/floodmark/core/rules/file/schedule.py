"""Models a rule's schedule and freshness in rule files."""

from __future__ import annotations

import re
from string import printable
from typing import Annotated, Literal, TypeAlias
from urllib.parse import quote
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from floodmark.core.rules.file.fields import (
    MORE_THAN_A_PLACE,
    Duration,
    Filled,
    Written,
    as_list,
    as_positive,
    without_credentials,
)
from floodmark.core.text.addresses import MOST_OF_ASSET
from floodmark.redaction import WITH_USER

_CRON_FIELD = re.compile(r"(?!.*\b[HhRr]\b)[0-9A-Za-z*/,#?-]+")  # R: another minute at every look
MOST_OF_CRON = 100  # Airflow stores their description in words in a column of 1000 characters
_TABLE_OF_POSTGRES = re.compile(r"[^/]+(/+[^/]+){3}/*")
UPSTREAM = "upstream"  # a rule's schedule: after the rules that its streams name
NOT_CRON = ("@once", "@continuous")  # Airflow's names of schedules that no cron expression can express
_CRON_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly", *NOT_CRON)


def _asset(value: str) -> str:
    """An asset's URI; it may have any scheme, even one that no table has, and one slash or none."""
    scheme, _, rest = value.partition(":")
    user = "@" in rest.lstrip("/").partition("/")[0] and scheme.lower() not in WITH_USER
    if user or re.search(r"[?#]", value):
        raise ValueError(MORE_THAN_A_PLACE)
    _check_for_airflow(without_credentials(value))
    return value


def _check_for_airflow(value: str) -> None:
    """Raise ValueError for an asset that Airflow takes from nobody: it would say so only while it parses the DAG."""
    scheme, mark, rest = value.partition("://")
    uri = quote(value if mark else f"file://{value}", safe=printable)
    if len(uri) > MOST_OF_ASSET:
        raise ValueError(f"expected at most {MOST_OF_ASSET} characters as a URI, found {len(uri)}")
    if mark and scheme.lower() == "airflow":
        raise ValueError("expected another scheme than airflow://, which Airflow keeps for itself")
    if mark and scheme.lower() in ("postgres", "postgresql") and not _TABLE_OF_POSTGRES.fullmatch(rest):
        raise ValueError(f"expected {scheme}://HOST/DATABASE/SCHEMA/TABLE, as Airflow does, found {value!r}")


Asset: TypeAlias = Annotated[Filled, AfterValidator(_asset)]


class WrittenAssets(Written):
    assets: Annotated[list[Asset], BeforeValidator(as_list), Field(min_length=1)]


def as_schedule(value: object) -> object:
    if isinstance(value, dict):
        return WrittenAssets.model_validate(value)
    fields = value.split() if isinstance(value, str) else []
    if value in (*_CRON_PRESETS, UPSTREAM) or (
        len(fields) == 5 and all(_CRON_FIELD.fullmatch(field) for field in fields)
    ):
        if len(str(value)) > MOST_OF_CRON:
            raise ValueError(f"expected cron of at most {MOST_OF_CRON} characters, such as */5 instead of 0,5,10,...")
        return value
    raise ValueError(
        "expected cron with five fields (quoted), a preset such as @hourly, upstream, {assets: [uri]} or null"
    )


def _percent(value: object) -> float:
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)\s*%", value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) > 100:
        raise ValueError("expected a share such as 0.1 % (at most 100 %)")
    return float(match[1])


class WrittenFreshness(Written):
    """The maximum age of the newest folded row of a stream, and the maximum share of late rows in a run."""

    max_lag: Annotated[Duration, AfterValidator(as_positive)] | None = None
    max_late: (
        Annotated[float, BeforeValidator(_percent), WithJsonSchema({"type": "string", "examples": ["0.1 %"]})] | None
    ) = None
    on_exceed: Annotated[
        Literal["warn", "fail"], Field(description="warn or fail; nothing that was committed is undone")
    ] = "warn"

    @model_validator(mode="after")
    def _any(self) -> WrittenFreshness:
        if self.max_lag is None and self.max_late is None:
            raise ValueError("expected `max_lag: DURATION`, `max_late: SHARE %` or both")
        return self


def known_timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        known = False
    else:  # the others are the machine's own (localtime), or count leap seconds (right/...), which Java does not know
        known = value[:1].isupper() and value != "Factory"
    if not known:
        raise ValueError("expected an IANA time zone such as UTC or Europe/Berlin")
    return value
