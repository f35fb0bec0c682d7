"""A rule as it runs: every default filled in, every `${NAME}` replaced, durations in microseconds.

What a person writes, and how it is checked, is in `rule_file`.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict

from floodmark.core.sql.windows import WindowSpec
from floodmark.errors import SqlRefused

if TYPE_CHECKING:
    from floodmark.core.sql import Query
    from floodmark.core.sql.rowchecks import RowCheck
    from floodmark.core.sql.slices import Slices

Qos: TypeAlias = Literal[0, 1, 2]
Action: TypeAlias = Literal["fail", "dead", "drop", "warn"]
ACTIONS: tuple[Action, ...] = ("fail", "dead", "drop", "warn")  # of an expectation, the strictest first


class Model(BaseModel):
    """Base of all: frozen, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class EventTime(Model):
    """`name`: the column that the SQL uses; `expr`: what makes it of the table's columns (None: it is there)."""

    name: str
    expr: str | None = None


class StartAt(Model):
    """Begin at a version, or at the first commit not before an instant (ISO 8601, UTC); exactly one is set."""

    version: int | None = None
    timestamp: str | None = None


class Distinct(Model):
    """Of rows that are equal in the columns of `key`, one is read whose like was not within `within_us` before it."""

    key: tuple[str, ...]
    within_us: int


class Expectation(Model):
    """`check`: SQL over one row that is to be true; `on_fail`: what becomes of a row for which it is not."""

    check: str
    on_fail: Action = "fail"


class Stream(Model):
    """A source. `lateness_us`, `max_ahead_us` and `idle_after_us` are microseconds, and None without an event time.

    `options`: what a file says of it, where its kind takes more than an address.
    `rule`, `sink`: whose sink it is, where the file says so by name; `qos`: what such a sink's rows have at best.
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


class Lookup(Model):
    """A table in which rows are looked up: in each epoch, the version that its intent names.

    `history`: all versions up to that one, each row with the time from and until which it stood.
    """

    kind: str
    address: str
    history: bool = False


class Process(Model):
    """A class in place of SQL, as its module's text declares it; `source` is that text, so an open epoch has its own.

    `output` and `state` are DDL in one spelling; `ttl_us`: lifetimes in microseconds by table; `timers` and
    `clock_timers`: whether the class has the methods that they call.
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
        """How messages and tracebacks name the module's file."""
        return f"{self.module.replace('.', '/')}.py"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of its state tables, without those of the rows that wait for the watermark."""
        timers = [name for name, there in (("timers", self.timers), ("clock_timers", self.clock_timers)) if there]
        return (*self.state, "counters", *timers)


class EpochLimits(Model):
    """At most so much input in one epoch; None: no limit. `max_seconds`: about so long, by the rate of earlier ones."""

    max_files: int | None = None
    max_bytes: int | None = None
    max_rows: int | None = None
    max_seconds: int | None = None


class CleanUp(Model):
    """Upkeep of the rule's tables: how often, and how long files and log entries stay that nobody's version needs."""

    every_us: int = 86_400_000_000
    keep_us: int = 604_800_000_000
    keep_log_us: int = 2_592_000_000_000


class Sink(Model):
    """`address` is None for the console. `qos` is the sink's own where declared, else the rule's.

    `options`: what a file says of it, where its kind takes more than an address.

    With a `key` the results are merged into the table (`upserts` says how), else appended. `properties`: the table's.
    What of the results it takes, and how the table is laid out, says `takings`; no `columns`: all. `adds_columns`:
    columns that the results gain are added to the table.
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

    @property
    def gets_all(self) -> bool:
        """Whether every result comes to it: with a key those that `where` leaves out take rows away."""
        return bool(self.key) or self.where is None


class AssetSchedule(Model):
    """Run when all these Airflow assets have been updated."""

    assets: tuple[str, ...]


class Freshness(Model):
    """How old the newest row folded of a stream may be, in microseconds, and which share of a run's rows late.

    `on_exceed`: what a run does where either is more.
    """

    max_lag_us: int | None = None
    max_late_percent: float | None = None
    on_exceed: Literal["warn", "fail"] = "warn"


class SparkSettings(Model):
    """What the Spark application is started with."""

    driver_memory: str = "3g"
    shuffle_partitions: int = 4
    conf: dict[str, str] = {}


class AirflowSettings(Model):
    """What the rule's DAG is declared with; times in microseconds.

    Each pause before a retry is longer than the one before, up to `max_retry_delay_us`. `timeout_us`: of one try.
    """

    retries: int = 3
    retry_delay_us: int = 30_000_000
    max_retry_delay_us: int = 600_000_000
    timeout_us: int = 43_200_000_000
    tags: tuple[str, ...] = ()
    owner: str = "data"


def _by_name(streams: dict[str, Stream]) -> dict[str, Stream]:
    # Spark matches offsets to sources by position, so the order must not hang on the order of the file.
    return dict(sorted(streams.items()))


class Rule(Model):
    """A resolved rule: it has either `sql` or `process`. `expect`: of its results.

    `rebuild`: it keeps no state, and each run replaces its sinks.
    `hash` is of the file's content before substitution, and of its class's module: the same in every environment.
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
        """Whether its SQL runs in ANSI mode: the one Spark setting that changes what SQL says."""
        return self.spark.conf.get("spark.sql.ansi.enabled", "true").lower() == "true"

    @cached_property
    def query(self) -> Query:
        """What the SQL is and needs. Raises SqlRefused (never for a rule that `load_rule` gave).

        A class reads all columns of all streams, and has no window.
        """
        from floodmark.core.sql import Query, analyse

        if self.process is not None:
            return Query("", tuple(self.streams), frozenset(), star=True, windows=(), fault=None)

        return analyse(self.sql, self.event_times, self.qos, self.lookups.keys(), self._distinct, self.unbounded)

    @cached_property
    def slices(self) -> Slices | None:
        """How its windows fold by partial aggregates; None where they fold by their rows."""
        from floodmark.core.sql.slices import OVERLAPS, slices_of

        fixed = [spec for spec in self.query.windows if isinstance(spec, WindowSpec)]
        overlap = any(spec.size_us >= OVERLAPS * spec.slide_us for spec in fixed)
        if not fixed or self.windows == "rows" or self.amend_us is not None or (self.windows is None and not overlap):
            return None
        if self.max_rows_per_window is not None:  # slices do not tell how many rows are in them
            return None
        try:
            return slices_of(self.query.sql if self._distinct else self.sql, self.event_times, self.lookups.keys())
        except SqlRefused:
            if self.windows == "slices":
                raise
            return None

    @cached_property
    def row_checks(self) -> tuple[RowCheck, ...]:
        """The expressions of its SQL over single rows. None of a stream that is `distinct`, which leaves out rows."""
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
        """The event time below which a row is late, and results stand for good, at a watermark; microseconds."""
        return None if watermark is None else watermark - (self.amend_us or 0)

    @property
    def event_times(self) -> dict[str, str | None]:
        """The event-time column of each stream; None for one without."""
        return {name: stream.event_time.name if stream.event_time else None for name, stream in self.streams.items()}

    def to_json(self) -> str:
        """Canonical: equal rules give equal text."""
        return canonical(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """The rule that `to_json` wrote."""
        return cls.model_validate_json(text)


def canonical(value: Any) -> str:
    """JSON with sorted keys and without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
