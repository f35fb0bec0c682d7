"""Models epoch limits and clean-up in rule files."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from floodmark.core.rules.file.fields import Duration, Positive, Written
from floodmark.core.text.durations import parse_duration


class WrittenEpoch(Written):
    max_files: Positive | None = None
    max_bytes: Positive | None = None
    max_rows: Positive | None = None
    max_seconds: Annotated[
        Positive | None,
        Field(description="target duration of an epoch, by the rate of earlier epochs; at least one file"),
    ] = None


class NoEpochs(WrittenEpoch):
    """`epoch: none`."""


def as_epoch(value: object) -> object:
    if value == "none":
        return NoEpochs()
    if isinstance(value, str):
        raise ValueError("expected limits such as {max_seconds: 300}, or none with `rebuild: true`")
    return value


def _an_hour(us: int) -> int:
    if us < parse_duration("1 hour"):
        raise ValueError("expected at least 1 hour: readers of a table still need files that were just replaced")
    return us


def _ten_years(us: int) -> int:
    """Refuse longer intervals: Airflow's scheduler crashes on a next run beyond the last year it can count."""
    if us > parse_duration("3650 days"):
        raise ValueError("expected at most 3650 days (10 years)")
    return us


def _stays(default: str, about: str) -> Any:
    return Field(description=about, json_schema_extra={"default": default})


class WrittenCleanUp(Written):
    """Upkeep of the rule's tables. A table's own delta.deletedFileRetentionDuration and delta.logRetentionDuration
    override `keep` and `keep_log`."""

    every: Annotated[
        Duration,
        AfterValidator(_an_hour),
        AfterValidator(_ten_years),
        _stays("1 day", "how often the rule's tables are maintained"),
    ] = 86_400_000_000
    keep: Annotated[
        Duration,
        AfterValidator(_an_hour),
        _stays("7 days", "how long to keep files that the newest version does not need"),
    ] = 604_800_000_000
    keep_log: Annotated[
        Duration, AfterValidator(_an_hour), _stays("30 days", "how long to keep entries of the tables' logs")
    ] = 2_592_000_000_000

    @model_validator(mode="after")
    def _log_outlives_files(self) -> WrittenCleanUp:
        if self.keep_log < self.keep:
            raise ValueError(
                "expected `keep_log` of at least `keep`: a version's files are useless without its log entry"
            )
        return self
