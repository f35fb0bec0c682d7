"""The model of a rule at run time: every default filled in, every `${NAME}` replaced, durations in microseconds.

`rules.file` has the model of rule files and their checks.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from floodmark.core.sql.windows import grids
from floodmark.core.text.tablenames import last_part
from floodmark.errors import SqlRefused

if TYPE_CHECKING:
    from floodmark.core.sql import Query
    from floodmark.core.sql.rowchecks import RowCheck
    from floodmark.core.sql.slices import Slices

Qos: TypeAlias = Literal[0, 1, 2]
Action: TypeAlias = Literal["fail", "dead", "drop", "warn"]
OnRewrite: TypeAlias = Literal["stop", "skip", "correct"]
OnReset: TypeAlias = Literal["empty", "keep"]
OnRefusal: TypeAlias = Literal["stop", "dead"]
ACTIONS: tuple[Action, ...] = ("fail", "dead", "drop", "warn")  # of an expectation, the strictest first


class Model(BaseModel):
    """Base of all: frozen, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EventTime(Model):
    """`name`: the column that the SQL uses; `expr`: computes it from the table's columns (None: the table has it)."""

    name: str
    expr: str | None = None


class StartAt(Model):
    """Start at a version, or at the first commit not before an instant (ISO 8601, UTC); exactly one is set."""

    version: int | None = None
    timestamp: str | None = None


class Distinct(Model):
    """Deduplication: a row is dropped if another with equal `key` columns lies at most `within_us` before it."""

    key: tuple[str, ...]
    within_us: int


class Expectation(Model):
    """`check`: SQL over one row that must be true; `on_fail`: the action on a row for which it is not."""

    check: str
    on_fail: Action = "fail"


class Landing(Model):
    """Rows of a stream are copied into a table of the rule's home first. `keep_us`: for how long; None: for good."""

    keep_us: int | None = None


class Stream(Model):
    """A source. `lateness_us`, `max_ahead_us` and `idle_after_us` are microseconds, and None without an event time.

    options: values from the file, if its kind has more than an address. rule, sink: the sink that it reads, if the file
    names it. qos: the highest that such a sink's rows can have. changes: its table's change feed is read.
    """

    kind: str
    address: str
    options: dict[str, Any] = {}
    rule: str | None = None
    sink: str | None = None
    qos: Qos = 2
    event_time: EventTime | None = None
    lateness_us: int | None = None
    max_ahead_us: int | None = None
    idle_after_us: int | None = None
    where: str | None = None
    start: Literal["earliest", "latest"] | StartAt = "earliest"
    distinct: Distinct | None = None
    expect: dict[str, Expectation] = {}
    # Left out where it is the default, so that the rules in older ledgers keep their text.
    on_rewrite: OnRewrite = Field(default="stop", exclude_if=lambda action: action == "stop")
    landing: Landing | None = Field(default=None, exclude_if=lambda landing: landing is None)
    changes: bool = Field(default=False, exclude_if=lambda changes: not changes)


class Lookup(Model):
    """A table in which rows are looked up: in each epoch, the version that its intent names.

    history: all versions up to that one, each row with the times from and until which it was valid.
    """

    kind: str
    address: str
    history: bool = False


class Process(Model):
    """A class in place of SQL, as its module's text declares it; `source` is that text, so an open epoch has its own.

    output and state are canonical DDL. ttl_us: lifetimes in microseconds by table. timers and clock_timers: whether the
    class has the methods that they call.
    """

    module: str
    name: str
    key: tuple[str, ...]
    output: str
    state: dict[str, str]
    ttl_us: dict[str, int]
    timers: bool
    clock_timers: bool
    source: str

    @property
    def file(self) -> str:
        """The module's file, as messages and tracebacks name it."""
        return f"{self.module.replace('.', '/')}.py"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its state tables, without those of the rows that wait for the watermark."""
        timers = [name for name, there in (("timers", self.timers), ("clock_timers", self.clock_timers)) if there]
        return (*self.state, "counters", *timers)


class EpochLimits(Model):
    """Limits on the input of one epoch; None: no limit. `max_seconds` is approximate, by the rate of earlier epochs."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    max_seconds: int | None = None


class CleanUp(Model):
    """Upkeep of the rule's tables: how often, and for how long to keep files and log entries that no version needs."""

    every_us: int = 86_400_000_000
    keep_us: int = 604_800_000_000
    keep_log_us: int = 2_592_000_000_000


OUTBOX_KEEP_US = 604_800_000_000  # a week


class Sink(Model):
    """A sink. `address` is None for the console. `qos` is the sink's own if declared, else the rule's.

    options: values from the file, if its kind has more than an address. With a `key` the results are merged into the
    table (see `upserts`), else appended. properties: the table's. `sinkcolumns` defines which results it takes and how
    the table is laid out; empty `columns`: all. adds_columns: columns that the results gain are added to the table.
    outbox: of a target, the folder of its outbox in the rule's home. It has at most `outbox_bytes` of what the target
    has not got (None: no limit), and keeps what the target has got until `outbox_keep_us` after the epoch wrote it.
    on_reset: what a reset does to a target's rows. on_error: what a relay does with a row that the target refuses.
    """

    kind: str
    address: str | None = None
    options: dict[str, Any] = {}
    name: str | None = None
    qos: Qos = 2
    key: tuple[str, ...] = ()
    newest: str | None = None
    delete: str | None = None
    properties: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    where: str | None = None
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    adds_columns: bool = False
    epoch_columns: bool = False
    outbox: str | None = None
    outbox_bytes: int | None = None
    outbox_keep_us: int = OUTBOX_KEEP_US
    # Left out where it is the default, so that the rules in older ledgers keep their text.
    on_reset: OnReset = Field(default="empty", exclude_if=lambda action: action == "empty")
    on_error: OnRefusal = Field(default="stop", exclude_if=lambda action: action == "stop")

    @property
    def label(self) -> str:
        """Its name in messages and pages: its own, else the last part of its address, else its kind."""
        return self.name or (last_part(self.address) if self.address else self.kind)

    @property
    def gets_all(self) -> bool:
        """Whether every result reaches it: with a key, results that `where` excludes remove rows."""
        return bool(self.key) or self.where is None


class AssetSchedule(Model):
    """Run when all these Airflow assets have been updated."""

    assets: tuple[str, ...]


class Freshness(Model):
    """Limits on a rule's lag and late rows.

    max_lag_us: the maximum age of a stream's newest folded row, in microseconds. max_late_percent: the maximum share of
    late rows in a run. on_exceed: the action of a run if either is exceeded.
    """

    max_lag_us: int | None = None
    max_late_percent: float | None = None
    on_exceed: Literal["warn", "fail"] = "warn"


class SparkSettings(Model):
    """The settings that the Spark application starts with."""

    driver_memory: str = "3g"
    shuffle_partitions: int = 4
    conf: dict[str, str] = {}


class AirflowSettings(Model):
    """The settings of the rule's DAG; times in microseconds.

    Each pause before a retry is longer than the one before, up to `max_retry_delay_us`. `timeout_us`: of one try.
    """

    retries: int = 3
    retry_delay_us: int = 30_000_000
    max_retry_delay_us: int = 600_000_000
    timeout_us: int = 43_200_000_000
    tags: tuple[str, ...] = ()
    owner: str = "data"


def _by_name(streams: dict[str, Stream]) -> dict[str, Stream]:
    # Spark matches offsets to sources by position, so the order must not depend on the order in the file.
    return dict(sorted(streams.items()))


class Rule(Model):
    """A resolved rule: it has either `sql` or `process`. `expect`: of its results.

    rebuild: it has no state, and each run replaces its sinks. hash: of the file's content before substitution and of
    its class's module, so it is the same in every environment.
    """

    rule: str
    description: str = ""
    streams: Annotated[dict[str, Stream], AfterValidator(_by_name)]
    lookups: dict[str, Lookup] = {}
    sql: str = ""
    process: Process | None = None
    unbounded: bool = False
    windows: Literal["rows", "slices"] | None = None
    close_idle_after_us: int | None = None
    late: Literal["keep", "drop"] = "keep"
    amend_us: int | None = None
    on_error: Literal["fail", "dead"] = "fail"
    expect: dict[str, Expectation] = {}
    qos: Qos = 2
    epoch: EpochLimits = EpochLimits()
    rebuild: bool = False
    max_rows_per_window: int | None = None
    cleanup: CleanUp = CleanUp()
    sinks: tuple[Sink, ...]
    schedule: str | AssetSchedule | None = None
    freshness: Freshness | None = None
    group: str | None = None
    timezone: str = "UTC"
    spark: SparkSettings = SparkSettings()
    airflow: AirflowSettings = AirflowSettings()
    hash: str

    @property
    def ansi(self) -> bool:
        """Whether its SQL runs in ANSI mode, the only Spark setting that changes the meaning of SQL."""
        return self.spark.conf.get("spark.sql.ansi.enabled", "true").lower() == "true"

    @cached_property
    def query(self) -> Query:
        """The analysed SQL. Raises SqlRefused (never for a rule from `load_rule`).

        A class reads all columns of all streams, and has no window.
        """
        from floodmark.core.sql import Query, analyse

        if self.process is not None:
            return Query("", tuple(self.streams), frozenset(), star=True, windows=(), fault=None)

        return analyse(self.sql, self.event_times, self.qos, self.lookups.keys(), self._distinct, self.unbounded)

    @cached_property
    def slices(self) -> Slices | None:
        """How its windows fold by partial aggregates; None if they fold by rows."""
        from floodmark.core.sql.slices import OVERLAPS, slices_of

        fixed = grids(self.query.windows)
        overlap = any(grid.size_us >= OVERLAPS * grid.slide_us for grid in fixed)
        if not fixed or self.windows == "rows" or self.amend_us is not None or (self.windows is None and not overlap):
            return None
        if self.max_rows_per_window is not None:  # slices do not show how many rows they contain
            return None
        try:
            return slices_of(self.query.sql if self._distinct else self.sql, self.event_times, self.lookups.keys())
        except SqlRefused:
            if self.windows == "slices":
                raise
            return None

    @cached_property
    def row_checks(self) -> tuple[RowCheck, ...]:
        """The expressions of its SQL over single rows; none of a `distinct` stream, which leaves rows out."""
        from floodmark.core.sql.rowchecks import row_checks

        if self.process is not None:
            return ()
        found = row_checks(self.sql, self.event_times, self.lookups.keys(), self.unbounded)
        return tuple(check for check in found if self.streams[check.stream].distinct is None)

    @property
    def _distinct(self) -> dict[str, tuple[tuple[str, ...], int]]:
        found = ((name, stream.distinct) for name, stream in self.streams.items() if stream.event_time)
        return {name: (one.key, one.within_us) for name, one in found if one is not None}

    def late_below(self, watermark: int | None) -> int | None:
        """The event time, in microseconds, below which rows are late and results are final at a watermark."""
        return None if watermark is None else watermark - (self.amend_us or 0)

    @property
    def event_times(self) -> dict[str, str | None]:
        """The event-time column of each stream; None for one without."""
        return {name: stream.event_time.name if stream.event_time else None for name, stream in self.streams.items()}

    def to_json(self) -> str:
        """Canonical JSON: equal rules have equal text."""
        return canonical(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """The rule that `to_json` wrote."""
        return cls.model_validate_json(text)


def canonical(value: Any) -> str:
    """JSON with sorted keys and without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
