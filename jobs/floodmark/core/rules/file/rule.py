"""Models a rule file as people write it: its keys, their values, and their conversion to a `Rule`.

The models here also define the JSON Schema for editors, so that editors and `validate` accept the same files. Messages
say what was expected; `rules` adds the place and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from floodmark.core.rules.file.epochs import NoEpochs, WrittenCleanUp, WrittenEpoch, as_epoch
from floodmark.core.rules.file.fields import (
    RULE_NAME,
    Duration,
    Filled,
    Positive,
    QosLevel,
    RuleName,
    Text,
    Written,
    as_positive,
    as_text,
    column_names,
    or_none,
    rule_name,
)
from floodmark.core.rules.file.resolution import expectations_of, freshness_of, level_of, lookup_of, sink_of, stream_of
from floodmark.core.rules.file.schedule import WrittenAssets, WrittenFreshness, as_schedule, known_timezone
from floodmark.core.rules.file.sinks import WrittenSink, as_sinks
from floodmark.core.rules.file.spark import WrittenAirflow, WrittenSpark
from floodmark.core.rules.file.streams import Expectations, WrittenLookup, WrittenStream, as_lookups, as_streams
from floodmark.core.rules.model import (
    AirflowSettings,
    AssetSchedule,
    CleanUp,
    EpochLimits,
    Process,
    Rule,
    SparkSettings,
)

Place: TypeAlias = tuple[str, str | int]  # `streams` and a name, or `sinks` and a number
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


def _class(value: str) -> str:
    if not re.fullmatch(_CLASS[1:-1], value, re.ASCII):
        raise ValueError("expected module:Class, such as alarms:Alarm for the class Alarm in alarms.py")
    return value


def _late(value: object) -> object:
    if isinstance(value, dict):
        return WrittenAmend.model_validate(value)
    if value not in ("keep", "drop"):
        raise ValueError(
            "expected keep (late rows go to the late table), drop (they are only counted) or {amend: DURATION} (rows "
            "at most that late update results)"
        )
    return value


class WrittenAmend(Written):
    """Late rows amend final results if they are late by no more than `amend`; the results are written again."""

    amend: Annotated[Duration, AfterValidator(as_positive)]


class WrittenRule(Written):
    """A Floodmark rule file."""

    rule: RuleName
    description: Text = ""
    streams: Annotated[dict[str, WrittenStream], BeforeValidator(as_streams), Field(min_length=1)]
    lookups: Annotated[dict[str, WrittenLookup], BeforeValidator(as_lookups)] = {}
    sql: Filled | None = None
    process: Annotated[str, AfterValidator(_class), BeforeValidator(as_text), Field(pattern=_CLASS)] | None = None
    key: Annotated[list[str], BeforeValidator(column_names), Field(min_length=1)] | None = None
    unbounded: bool = False
    windows: Literal["rows", "slices"] | None = None
    close_idle_after: Duration | None = None
    late: Annotated[Literal["keep", "drop"] | WrittenAmend, BeforeValidator(_late)] = "keep"
    on_error: Annotated[
        Literal["fail", "dead"],
        Field(description="for a row that cannot be read or is rejected: stop, or quarantine it in the dead table"),
    ] = "fail"
    expect: Annotated[Expectations, Field(description="expectations on the results")] = {}
    qos: QosLevel = 2
    epoch: Annotated[
        WrittenEpoch,
        BeforeValidator(as_epoch),
        Field(
            description="limits of one epoch; none: the rule records no progress, see rebuild",
            json_schema_extra=or_none,
        ),
    ] = WrittenEpoch()
    rebuild: Annotated[
        bool,
        Field(description="with `epoch: none`: each run reads all input again and replaces all rows of the sinks"),
    ] = False
    max_rows_per_window: Annotated[
        Positive | None, Field(description="a window with more rows of a stream stops the run")
    ] = None
    cleanup: Annotated[
        WrittenCleanUp,
        Field(
            description="how often the rule's tables are maintained, and how long old files are kept",
            json_schema_extra={"default": {"every": "1 day", "keep": "7 days", "keep_log": "30 days"}},
        ),
    ] = WrittenCleanUp()
    sinks: Annotated[list[WrittenSink], BeforeValidator(as_sinks), Field(min_length=1)]
    schedule: Annotated[str | WrittenAssets, BeforeValidator(as_schedule)] | None = None
    freshness: WrittenFreshness | None = None
    group: (
        Annotated[
            str,
            AfterValidator(rule_name),
            BeforeValidator(as_text),
            Field(pattern=RULE_NAME, description="rules of one group run together, in one Spark application"),
        ]
        | None
    ) = None
    timezone: Annotated[str, AfterValidator(known_timezone), BeforeValidator(as_text)] = "UTC"
    spark: WrittenSpark = WrittenSpark()
    airflow: WrittenAirflow = WrittenAirflow()

    @model_validator(mode="after")
    def _sql_or_process(self) -> WrittenRule:
        given = self.model_fields_set & {"sql", "process", "key"}
        if (self.sql is None) == (self.process is None):
            both = "both" if self.sql is not None else "neither"
            raise ValueError(f"expected either `sql: ...` or `process: module:Class` with `key: [...]`, found {both}")
        if self.sql is not None and "key" in given:
            raise ValueError("expected `key` only with `process`, found it with `sql`: in SQL, use GROUP BY")
        if self.process is not None and self.key is None:
            raise ValueError("expected `key: [column, ...]` with `process`, found nothing: a class sees one key's rows")
        return self

    @model_validator(mode="after")
    def _none_is_rebuilt(self) -> WrittenRule:
        none = isinstance(self.epoch, NoEpochs)
        if none and not self.rebuild:
            raise ValueError(
                "expected `rebuild: true` with `epoch: none`, found none: without epochs no progress is recorded, so "
                "each run reads everything again and replaces all rows of the sinks. For one epoch per run, leave "
                "`epoch` out"
            )
        if self.rebuild and not none:
            raise ValueError(
                "expected `epoch: none` with `rebuild: true`, found "
                f"{'limits' if 'epoch' in self.model_fields_set else 'nothing'}: everything is read again as one "
                "epoch"
            )
        return self

    def without(self, limits: Iterable[Sequence[str | int]]) -> WrittenRule:
        """The same without these limits, each given by its place in the file."""
        names = {str(limit[-1]) for limit in limits}
        epoch = self.epoch.model_copy(update=dict.fromkeys(names & set(WrittenEpoch.model_fields)))
        own = dict.fromkeys(names & {"max_rows_per_window"})
        return self.model_copy(update={**own, "epoch": epoch})

    def resolved(
        self,
        digest: str,
        process: Process | None = None,
        chained: Mapping[str, tuple[str, int]] | None = None,
        code: Mapping[Place, str] | None = None,
    ) -> Rule:
        """The rule with every default filled in; `digest`: the hash of the file before substitution.

        chained: for each stream that is another rule's sink, the table's address and qos. code: for each stream or sink
        that is a class, by its place in the file, the text of its module.
        """
        texts = code or {}
        return Rule(
            rule=self.rule,
            description=self.description,
            streams={
                name: stream_of(written, self.timezone, (chained or {}).get(name), texts.get(("streams", name)))
                for name, written in self.streams.items()
            },
            lookups={name: lookup_of(written) for name, written in self.lookups.items()},
            sql=self.sql or "",
            process=process,
            unbounded=self.unbounded,
            windows=self.windows,
            close_idle_after_us=self.close_idle_after,
            late=late if isinstance(late := self.late, str) else "keep",
            amend_us=None if isinstance(late, str) else late.amend,
            on_error=self.on_error,
            expect=expectations_of(self.expect),
            qos=level_of(self.qos),
            epoch=EpochLimits(**self.epoch.model_dump()),
            rebuild=self.rebuild,
            max_rows_per_window=self.max_rows_per_window,
            cleanup=CleanUp(**{f"{name}_us": us for name, us in self.cleanup.model_dump().items()}),
            sinks=tuple(sink_of(one, self.qos, texts.get(("sinks", i))) for i, one in enumerate(self.sinks)),
            schedule=AssetSchedule(assets=tuple(s.assets)) if isinstance(s := self.schedule, WrittenAssets) else s,
            freshness=freshness_of(self.freshness),
            group=self.group,
            timezone=self.timezone,
            spark=SparkSettings(**self.spark.model_dump()),
            airflow=AirflowSettings(
                retries=self.airflow.retries,
                retry_delay_us=self.airflow.retry_delay,
                max_retry_delay_us=max(self.airflow.retry_delay, self.airflow.max_retry_delay),
                timeout_us=self.airflow.timeout,
                tags=tuple(self.airflow.tags),
                owner=self.airflow.owner,
            ),
            hash=digest,
        )
