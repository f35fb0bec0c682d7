"""A rule file as people write it: its keys, what each may hold, and how it becomes a `Rule`.

The models here also give the JSON Schema for editors; so what an editor accepts and what `validate` accepts agree.
Messages say what was expected; `rules` adds the place and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from floodmark.core.addresses import unfit
from floodmark.core.durations import parse_duration
from floodmark.core.rule_model import (
    ACTIONS,
    Action,
    AirflowSettings,
    AssetSchedule,
    CleanUp,
    Distinct,
    EpochLimits,
    EventTime,
    Expectation,
    Freshness,
    Lookup,
    Process,
    Qos,
    Rule,
    Sink,
    SparkSettings,
    StartAt,
    Stream,
)
from floodmark.core.secrets import WAY_OUT, has_credentials, secret_setting
from floodmark.redaction import WITH_USER

SOURCE_KINDS = ("delta", "rule")
SINK_KINDS = ("delta", "console")
DEFAULT_MAX_AHEAD = "1 day"
# Keys that later kinds of state bring: known, so that they are not taken for typing errors.
LATER_RULE_KEYS: tuple[str, ...] = ()
LATER_STREAM_KEYS = ("close_idle_after",)
LATER_SINK_KEYS = ("mode",)
MOST_OF_NAME = 63  # characters of a stream's, a lookup's or an expectation's name
MOST_EXPECTATIONS = 60  # of one stream, or of the results: a row has a bit for each
MOST_CLUSTERED = 4  # columns by which Delta clusters a table
_RULE_NAME = r"^[a-z][a-z0-9_]{0,62}$"
_SINK_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,62}$"
_IDENTIFIER = r"^[A-Za-z_][A-Za-z0-9_]*$"
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_CRON_FIELD = re.compile(r"(?!.*\b[HhRr]\b)[0-9A-Za-z*/,#?-]+")  # R: another minute at every look
MOST_OF_CRON = 100  # characters: Airflow keeps what it makes of them, in words, in a column of 1000
UPSTREAM = "upstream"  # a rule's schedule: after the rules that its streams name
_CRON_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly", "@once", "@continuous")
# Settings that have a place of their own in the rule file, or on which the promise hangs.
_OWN_CONF = {
    "spark.driver.memory": "`spark: {driver_memory: ...}`",
    "spark.sql.shuffle.partitions": "`spark: {shuffle_partitions: ...}`",
    "spark.sql.session.timeZone": "`timezone: ...`",
}
# Settings of size, place and speed. Others could change what the SQL says, what is read or how a table is written.
_FREE_CONF = (
    "spark.app.", "spark.blockManager.", "spark.broadcast.", "spark.cleaner.", "spark.cores.max", "spark.default.",
    "spark.driver.bindAddress", "spark.driver.cores", "spark.driver.host", "spark.driver.maxResultSize",
    "spark.driver.memoryOverhead", "spark.driver.port", "spark.dynamicAllocation.", "spark.eventLog.",
    "spark.executor.", "spark.hadoop.fs.", "spark.io.", "spark.kryo", "spark.kubernetes.", "spark.local.",
    "spark.locality.", "spark.memory.", "spark.metrics.", "spark.network.", "spark.port.", "spark.python.worker.",
    "spark.rpc.", "spark.scheduler.", "spark.serializer", "spark.shuffle.", "spark.sql.adaptive.",
    "spark.sql.ansi.enabled", "spark.sql.autoBroadcastJoinThreshold", "spark.sql.broadcastTimeout",
    "spark.sql.codegen.", "spark.sql.execution.arrow.", "spark.sql.files.max", "spark.sql.files.min",
    "spark.sql.files.openCostInBytes", "spark.sql.inMemoryColumnarStorage.", "spark.sql.join.",
    "spark.sql.parquet.compression.", "spark.sql.parquet.enableVectorizedReader", "spark.sql.shuffle.",
    "spark.stage.", "spark.storage.", "spark.task.", "spark.ui.", "spark.yarn.", "spark.driver.extraJavaOptions",
)  # fmt: skip
# Of the local files: another class would write and read them without Hadoop's checksums.
_CONF_NAME = re.compile(r"spark\.[\w./*-]+", re.ASCII)
# Options of Java that name a file of further options: what stands in there nobody has looked at.
_OPTIONS_ELSEWHERE = re.compile(r"(?:^|\s)(?:@|-XX:(?:Flags|VMOptionsFile)=)")
_CHECKSUMS = ("spark.hadoop.fs.file.impl", "spark.hadoop.fs.AbstractFileSystem.file.impl")


def duration(text: object) -> int:
    """Microseconds of a duration written as words."""
    if not isinstance(text, str):
        raise ValueError("expected a duration such as '30 minutes' or '1 hour 30 minutes'")
    return parse_duration(text)


def _text(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError("expected text")
    return value


def _filled(value: str) -> str:
    if not value.strip():
        raise ValueError("expected text that is not empty")
    return value


_MORE_THAN_A_PLACE = f"expected an address alone, found one with a user, a password or a query: {WAY_OUT}"


def _without_credentials(value: str) -> str:
    if has_credentials(value):
        raise ValueError(_MORE_THAN_A_PLACE)
    return value


def _address(value: str) -> str:
    problem = unfit(_without_credentials(value))
    if problem:
        raise ValueError(f"expected a path or a URI such as s3://bucket/table ({problem})")
    return value


def _whole(value: object) -> object:
    """A whole number; also as text, since what comes from the environment is text."""
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


def _listed(value: object) -> object:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value


Text: TypeAlias = Annotated[str, BeforeValidator(_text)]
Filled: TypeAlias = Annotated[str, AfterValidator(_filled), BeforeValidator(_text), Field(min_length=1)]
Address: TypeAlias = Annotated[
    str, AfterValidator(_address), AfterValidator(_filled), BeforeValidator(_text), Field(min_length=1)
]
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
# Every task has a cost of its own: beyond this a rule would do nothing else.
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


def _column(value: str) -> str:
    if not re.fullmatch(_IDENTIFIER[1:-1], value):
        raise ValueError("expected a column name of letters, digits and _")
    return value


def _columns(value: object) -> object:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of at least one column, such as [device]")
    lower = [_column(_text_of(name)).lower() for name in value]
    if len(set(lower)) < len(lower):
        raise ValueError("expected each column once")
    return value


def _text_of(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected column names as text")
    return value


def _positive(us: int) -> int:
    if us <= 0:
        raise ValueError("expected a duration above zero")
    return us


class WrittenEventTime(Written):
    name: Annotated[str, AfterValidator(_column), BeforeValidator(_text)]
    expr: Filled | None = None


class WrittenStart(Written):
    version: NotNegative | None = None
    timestamp: Annotated[Text, Field(description="ISO 8601; without an offset, in the rule's timezone")] | None = None

    @model_validator(mode="after")
    def _one(self) -> WrittenStart:
        if (self.version is None) == (self.timestamp is None):
            raise ValueError("expected earliest, latest, {version: N} or {timestamp: T}")
        if self.timestamp is not None:
            _instant(self.timestamp)
        return self


def _instant(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"expected an ISO 8601 timestamp such as 2001-01-31T12:00:00Z, found {text[:40]!r}") from None
    if not 1 < found.year < 9999:  # one that no zone can move out of the calendar
        raise ValueError("expected a timestamp of the years 2 to 9998")
    return found


def _event_time(value: object) -> object:
    if not isinstance(value, (str, dict)):
        raise ValueError("expected a column name, or {name: ..., expr: ...}")
    return _column(value) if isinstance(value, str) else WrittenEventTime.model_validate(value)


def _start(value: object) -> object:
    if value in ("earliest", "latest"):
        return value
    if not isinstance(value, dict):
        raise ValueError("expected earliest, latest, {version: N} or {timestamp: T}")
    return WrittenStart.model_validate(value)


def _action(value: object) -> object:
    if value not in ACTIONS:
        raise ValueError(
            "expected fail (the run stops), dead (the row is set apart), drop (it is left out) or warn (it is counted)"
        )
    return value


class WrittenExpectation(Written):
    """What is expected of every row: a condition, and what becomes of a row for which it is not true."""

    check: Annotated[Filled, Field(description="SQL over one row; null, or an error, is not true")]
    on_fail: Annotated[Action, BeforeValidator(_action)] = "fail"


def _expectations(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError(
            "expected expectations by name, {NAME: {check: CONDITION, on_fail: drop | dead | fail | warn}}"
        )
    _check_names("expectation", value)
    for name, one in value.items():
        if not isinstance(one, (dict, WrittenExpectation)):
            raise ValueError(f"expected {name}: {{check: CONDITION, on_fail: drop | dead | fail | warn}}")
    if len(value) > MOST_EXPECTATIONS:
        raise ValueError(f"expected at most {MOST_EXPECTATIONS} expectations, found {len(value)}")
    return value


Expectations: TypeAlias = Annotated[dict[str, WrittenExpectation], BeforeValidator(_expectations)]


class WrittenDistinct(Written):
    """Rows are duplicates of an earlier one that is equal in the columns of `key`, and at most `within` before them."""

    key: Annotated[list[str], BeforeValidator(_columns), Field(min_length=1)]
    within: Annotated[Duration, AfterValidator(_positive)]


def rule_name(value: str) -> str:
    """A rule's name as it is. Raises ValueError where it can be none."""
    if not re.match(_RULE_NAME, value) or value.endswith("\n"):
        raise ValueError("expected a name of at most 63 small letters, digits and _, beginning with a letter")
    return value


RuleName: TypeAlias = Annotated[str, AfterValidator(rule_name), BeforeValidator(_text), Field(pattern=_RULE_NAME)]


class WrittenStream(Written):
    """One source kind with its address, and how the stream is read.

    `rule`: a rule of the same folder, whose sink is read; `sink`: which one of several.
    """

    delta: Address | None = None
    rule: RuleName | None = None
    sink: Filled | None = None
    event_time: Annotated[str | WrittenEventTime, BeforeValidator(_event_time)] | None = None
    lateness: Duration | None = None
    max_ahead: Duration | None = None
    idle_after: Annotated[Duration, AfterValidator(_positive)] | None = None
    where: Filled | None = None
    start: Annotated[Literal["earliest", "latest"] | WrittenStart, BeforeValidator(_start)] = "earliest"
    distinct: WrittenDistinct | None = None
    expect: Annotated[Expectations, Field(description="of the rows that are to be folded")] = {}

    @model_validator(mode="after")
    def _one(self) -> WrittenStream:
        if (self.delta is None) == (self.rule is None):
            raise ValueError(
                f"expected exactly one kind of stream out of {', '.join(SOURCE_KINDS)}, such as `delta: ADDRESS` or "
                f"`rule: NAME`, found {'neither' if self.delta is None else 'both'}"
            )
        if self.sink is not None and self.rule is None:
            raise ValueError("expected `sink` only beside `rule`, found it beside `delta`")
        return self


class WrittenLookup(Written):
    """A table that the SQL joins streams with: in every epoch the newest version then.

    `history`: its versions up to then, with `_valid_from` and `_valid_to`: when each row stood in the table.
    """

    delta: Address
    history: bool = False


class WrittenEpoch(Written):
    max_files: Positive | None = None
    max_bytes: Positive | None = None
    max_rows: Positive | None = None
    max_seconds: Annotated[
        Positive | None, Field(description="about so long, by the rate of the epochs before; at least one file")
    ] = None


class NoEpochs(WrittenEpoch):
    """`epoch: none`."""


def _epoch(value: object) -> object:
    if value == "none":
        return NoEpochs()
    if isinstance(value, str):
        raise ValueError("expected limits such as {max_seconds: 300}, or none beside `rebuild: true`")
    return value


def _or_none(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"const": "none"}, {"$ref": schema.pop("$ref")}]


def _an_hour(us: int) -> int:
    if us < parse_duration("1 hour"):
        raise ValueError("expected at least 1 hour: whoever reads a table meanwhile still needs what it replaced")
    return us


def _ten_years(us: int) -> int:
    """Airflow's scheduler dies of a next run that lies beyond the last year it can count."""
    if us > parse_duration("3650 days"):
        raise ValueError("expected at most 3650 days (10 years)")
    return us


def _stays(default: str, about: str) -> Any:
    return Field(description=about, json_schema_extra={"default": default})


class WrittenCleanUp(Written):
    """Upkeep of the rule's tables. A table's own delta.deletedFileRetentionDuration and delta.logRetentionDuration go
    before `keep` and `keep_log`."""

    every: Annotated[
        Duration,
        AfterValidator(_an_hour),
        AfterValidator(_ten_years),
        _stays("1 day", "how often the rule's tables are maintained"),
    ] = 86_400_000_000
    keep: Annotated[
        Duration,
        AfterValidator(_an_hour),
        _stays("7 days", "how long files stay that the newest version does not need"),
    ] = 604_800_000_000
    keep_log: Annotated[
        Duration, AfterValidator(_an_hour), _stays("30 days", "how long entries of the tables' logs stay")
    ] = 2_592_000_000_000

    @model_validator(mode="after")
    def _log_outlives_files(self) -> WrittenCleanUp:
        if self.keep_log < self.keep:
            raise ValueError(
                "expected `keep_log` of at least `keep`: a version's files are of no use without its log entry"
            )
        return self


def _console(value: object) -> object:
    if value not in (True, None, {}):
        raise ValueError("expected true")
    return True


def _key(value: object) -> object:
    if not isinstance(value, list) or not value or not all(isinstance(name, str) and name.strip() for name in value):
        raise ValueError("expected a list of at least one result column, such as [origin]")
    names = [name.lower() for name in value]
    doubled = [name for name in value if names.count(name.lower()) > 1]
    if doubled:
        raise ValueError(f"expected each column once, found {', '.join(doubled)}")
    return value


def _setting_text(key: str, value: object) -> str:
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
            raise ValueError(f"property {key}: names that begin with `floodmark.` are kept for Floodmark itself")
    found = {key: _setting_text(key, text) for key, text in value.items()}
    for key, text in found.items():
        if secret_setting(key, text):
            raise ValueError(f"property {key} is or holds a secret, which a rule cannot keep: {WAY_OUT}")
    return found


def _evolves(value: object) -> object:
    if value not in ("fail", "add_columns"):
        raise ValueError("expected fail (the table keeps its columns) or add_columns (it gets those that results gain)")
    return value


def _few(value: list[str]) -> list[str]:
    if len(value) > MOST_CLUSTERED:
        raise ValueError(f"expected at most {MOST_CLUSTERED} columns, for Delta clusters by no more")
    return value


ResultColumns: TypeAlias = Annotated[list[str], BeforeValidator(_key), Field(min_length=1)]


def _sink_name(value: str) -> str:
    if not re.fullmatch(_SINK_NAME[1:-1], value):
        raise ValueError("expected a name of at most 63 letters, digits, _ and -, beginning with a letter")
    return value


class WrittenSink(Written):
    """One sink kind with its address; `qos`: the sink's own, at most the rule's.

    `name`: what rules that read it call it; by default the last part of its address. With a `key`, a result replaces
    the table's row of the same key. `columns`, `where`: which of the results it takes; `schema`: what becomes of
    columns that the results gain.
    """

    delta: Address | None = None
    console: Annotated[bool, BeforeValidator(_console)] | None = None
    name: Annotated[str, AfterValidator(_sink_name), BeforeValidator(_text), Field(pattern=_SINK_NAME)] | None = None
    qos: QosLevel | None = None
    key: ResultColumns | None = None
    newest: Annotated[Filled, Field(description="of two rows of one key that with the larger value stays")] | None = (
        None
    )
    delete: Annotated[Filled, Field(description="a result for which it is true takes its key's row away")] | None = None
    properties: Annotated[
        dict[str, str],
        BeforeValidator(_properties),
        WithJsonSchema({"type": "object", "description": "of the Delta table, such as delta.enableDeletionVectors"}),
    ] = {}
    columns: ResultColumns | None = None
    where: (
        Annotated[Filled, Field(description="only results for which it is true; with a key, others take theirs away")]
        | None
    ) = None
    partition_by: ResultColumns | None = None
    cluster_by: Annotated[ResultColumns, AfterValidator(_few), Field(max_length=MOST_CLUSTERED)] | None = None
    evolves: Annotated[Literal["fail", "add_columns"], BeforeValidator(_evolves), Field(alias="schema")] = "fail"
    epoch_columns: Annotated[bool, Field(description="_generation and _epoch as columns of the table")] = False

    @model_validator(mode="after")
    def _one(self) -> WrittenSink:
        if len({"delta", "console"} & self.model_fields_set) != 1:
            raise ValueError(f"expected exactly one kind of sink out of {', '.join(SINK_KINDS)}")
        if "delta" in self.model_fields_set and self.delta is None:
            raise ValueError("expected an address, such as `delta: /lake/out`")
        for name in ("key", "newest", "delete", "columns", "where", "partition_by", "cluster_by"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise ValueError(f"expected something after `{name}:`, or no such line")
        return self


def _asset(value: str) -> str:
    """Also of no store that a table could be in, and with one slash or none."""
    scheme, _, rest = value.partition(":")
    user = "@" in rest.lstrip("/").partition("/")[0] and scheme.lower() not in WITH_USER
    if user or re.search(r"[?#]", value):
        raise ValueError(_MORE_THAN_A_PLACE)
    return _without_credentials(value)


Asset: TypeAlias = Annotated[Filled, AfterValidator(_asset)]


class WrittenAssets(Written):
    assets: Annotated[list[Asset], BeforeValidator(_listed), Field(min_length=1)]


def _schedule(value: object) -> object:
    if isinstance(value, dict):
        return WrittenAssets.model_validate(value)
    fields = value.split() if isinstance(value, str) else []
    if value in (*_CRON_PRESETS, UPSTREAM) or (
        len(fields) == 5 and all(_CRON_FIELD.fullmatch(field) for field in fields)
    ):
        if len(str(value)) > MOST_OF_CRON:
            raise ValueError(f"expected cron of at most {MOST_OF_CRON} characters, such as */5 in place of 0,5,10,...")
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
    """How old the newest row folded of a stream may be, and which share of a run's rows late."""

    max_lag: Annotated[Duration, AfterValidator(_positive)] | None = None
    max_late: (
        Annotated[float, BeforeValidator(_percent), WithJsonSchema({"type": "string", "examples": ["0.1 %"]})] | None
    ) = None
    on_exceed: Annotated[Literal["warn", "fail"], Field(description="of what was committed nothing is undone")] = "warn"

    @model_validator(mode="after")
    def _any(self) -> WrittenFreshness:
        if self.max_lag is None and self.max_late is None:
            raise ValueError("expected `max_lag: DURATION`, `max_late: SHARE %` or both")
        return self


def _timezone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        known = False
    else:  # the others are the machine's own (localtime), or count leap seconds (right/...), which Java does not know
        known = value[:1].isupper() and value != "Factory"
    if not known:
        raise ValueError("expected an IANA time zone such as UTC or Europe/Berlin")
    return value


def _memory(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[1-9]\d{0,5}[mgMG]", value):
        raise ValueError("expected an amount of memory such as 512m or 3g")
    return value.lower()


def _conf(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected Spark settings, {spark.name: value}")
    for key in value:
        if not _CONF_NAME.fullmatch(str(key)):
            raise ValueError(f"expected names of settings such as spark.executor.memory, found {key!r}")
        if key in _OWN_CONF:
            raise ValueError(f"setting {key} has a place of its own; use {_OWN_CONF[key]} instead")
        if key in _CHECKSUMS or not key.startswith(_FREE_CONF):
            raise ValueError(
                f"setting {key} is not a rule's to set: expected one of size, place or speed, such as "
                "spark.executor.memory or spark.sql.adaptive.enabled"
            )
    if str(value.get("spark.sql.ansi.enabled", "true")).lower() not in ("true", "false"):
        raise ValueError("expected true or false for spark.sql.ansi.enabled")
    found = {key: _setting_text(key, text) for key, text in value.items()}
    for key, text in found.items():
        if secret_setting(key, text):
            raise ValueError(f"setting {key} is or holds a secret, which a rule cannot keep: {WAY_OUT}")
        plain = re.sub(r"[\"'\\]", "", text)  # quotes are the command line's own
        if key.endswith("JavaOptions") and _OPTIONS_ELSEWHERE.search(plain):
            raise ValueError(f"setting {key} names a file of options: write the options themselves")
        if "-Dspark." in plain:
            raise ValueError(f"setting {key} holds settings of Spark (-Dspark. ...): put each under `conf` by itself")
    return found


class WrittenSpark(Written):
    driver_memory: Annotated[str, BeforeValidator(_memory)] = "3g"
    shuffle_partitions: Partitions = 4
    conf: Annotated[dict[str, str], BeforeValidator(_conf), WithJsonSchema({"type": "object"})] = {}


def _pause(us: int) -> int:
    if us > parse_duration("7 days"):
        raise ValueError("expected a pause of at most 7 days")
    return us


def _limit(us: int) -> int:
    if not parse_duration("1 second") <= us <= parse_duration("30 days"):
        raise ValueError("expected a duration from 1 second to 30 days")
    return us


# An owner or a tag. Airflow has no room for longer tags, and keeps the names of all owners of a DAG in one column.
MOST_OF_LABEL = 100


def _label(value: str) -> str:
    if len(value) > MOST_OF_LABEL:
        raise ValueError(f"expected at most {MOST_OF_LABEL} characters")
    return value


Label: TypeAlias = Annotated[Filled, AfterValidator(_label), Field(json_schema_extra={"maxLength": MOST_OF_LABEL})]


class WrittenAirflow(Written):
    retries: Retries = 3
    retry_delay: Annotated[Duration, AfterValidator(_pause), Field(json_schema_extra={"default": "30 seconds"})] = (
        30_000_000
    )
    max_retry_delay: Annotated[Duration, AfterValidator(_pause), Field(json_schema_extra={"default": "10 minutes"})] = (
        600_000_000
    )
    # A backlog may take hours, and the next try goes on where this one stopped; this only ends what hangs.
    timeout: Annotated[Duration, AfterValidator(_limit), Field(json_schema_extra={"default": "12 hours"})] = (
        43_200_000_000
    )
    tags: Annotated[list[Label], BeforeValidator(_listed)] = []
    owner: Label = "data"


def _streams(value: object) -> object:
    if not isinstance(value, dict) or not value:
        raise ValueError("expected at least one stream, {NAME: {delta: ADDRESS, ...}}")
    _check_names("stream", value)
    return value


def _lookups(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError("expected lookup tables, {NAME: {delta: ADDRESS, ...}}")
    _check_names("lookup", value)
    return value


def _check_names(kind: str, names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not re.fullmatch(_IDENTIFIER[1:-1], name) or name.lower() == "window":
            raise ValueError(f"expected {kind} names of letters, digits and _ (and not window), found {name!r}")
        if len(name) > MOST_OF_NAME:
            raise ValueError(f"expected {kind} names of at most {MOST_OF_NAME} characters, found {name[:40]}...")
        if name.lower() in seen:
            raise ValueError(f"expected {kind} names that differ in more than case, found {seen[name.lower()]}, {name}")
        seen[name.lower()] = name


def _sinks(value: object) -> object:
    if not isinstance(value, list) or not value:
        raise ValueError("expected a list of at least one sink, such as [{delta: ADDRESS}]")
    return value


def _class(value: str) -> str:
    if not re.fullmatch(_CLASS[1:-1], value, re.ASCII):
        raise ValueError("expected module:Class, such as alarms:Alarm for the class Alarm in alarms.py")
    return value


def _late(value: object) -> object:
    if isinstance(value, dict):
        return WrittenAmend.model_validate(value)
    if value not in ("keep", "drop"):
        raise ValueError(
            "expected keep (late rows are set apart), drop (they are counted) or {amend: DURATION} (those that are not "
            "later than that amend results)"
        )
    return value


class WrittenAmend(Written):
    """Rows that are late by no more than `amend` take part in results that were final, and those are written again."""

    amend: Annotated[Duration, AfterValidator(_positive)]


class WrittenRule(Written):
    """A Floodmark rule file."""

    rule: RuleName
    description: Text = ""
    streams: Annotated[dict[str, WrittenStream], BeforeValidator(_streams), Field(min_length=1)]
    lookups: Annotated[dict[str, WrittenLookup], BeforeValidator(_lookups)] = {}
    sql: Filled | None = None
    process: Annotated[str, AfterValidator(_class), BeforeValidator(_text), Field(pattern=_CLASS)] | None = None
    key: Annotated[list[str], BeforeValidator(_columns), Field(min_length=1)] | None = None
    unbounded: bool = False
    windows: Literal["rows", "slices"] | None = None
    close_idle_after: Duration | None = None
    late: Annotated[Literal["keep", "drop"] | WrittenAmend, BeforeValidator(_late)] = "keep"
    on_error: Annotated[
        Literal["fail", "dead"],
        Field(description="of a row that cannot be read or that the rule rejects: stop, or set it apart"),
    ] = "fail"
    expect: Annotated[Expectations, Field(description="of the results")] = {}
    qos: QosLevel = 2
    epoch: Annotated[
        WrittenEpoch,
        BeforeValidator(_epoch),
        Field(description="limits of one epoch; none: no progress is kept, see rebuild", json_schema_extra=_or_none),
    ] = WrittenEpoch()
    rebuild: Annotated[
        bool,
        Field(description="beside `epoch: none`: each run reads everything again and replaces what the sinks hold"),
    ] = False
    max_rows_per_window: Annotated[
        Positive | None, Field(description="a window that gets more rows of a stream stops the run")
    ] = None
    cleanup: Annotated[
        WrittenCleanUp,
        Field(
            description="how often the rule's tables are maintained, and how long old files stay",
            json_schema_extra={"default": {"every": "1 day", "keep": "7 days", "keep_log": "30 days"}},
        ),
    ] = WrittenCleanUp()
    sinks: Annotated[list[WrittenSink], BeforeValidator(_sinks), Field(min_length=1)]
    schedule: Annotated[str | WrittenAssets, BeforeValidator(_schedule)] | None = None
    freshness: WrittenFreshness | None = None
    group: (
        Annotated[
            str,
            AfterValidator(rule_name),
            BeforeValidator(_text),
            Field(pattern=_RULE_NAME, description="rules of one group run together, in one Spark application"),
        ]
        | None
    ) = None
    timezone: Annotated[str, AfterValidator(_timezone), BeforeValidator(_text)] = "UTC"
    spark: WrittenSpark = WrittenSpark()
    airflow: WrittenAirflow = WrittenAirflow()

    @model_validator(mode="after")
    def _sql_or_process(self) -> WrittenRule:
        given = self.model_fields_set & {"sql", "process", "key"}
        if (self.sql is None) == (self.process is None):
            both = "both" if self.sql is not None else "neither"
            raise ValueError(f"expected either `sql: ...` or `process: module:Class` with `key: [...]`, found {both}")
        if self.sql is not None and "key" in given:
            raise ValueError("expected `key` only beside `process`, found it beside `sql`: SQL has GROUP BY")
        if self.process is not None and self.key is None:
            raise ValueError(
                "expected `key: [column, ...]` beside `process`, found nothing: a class sees one key's rows"
            )
        return self

    @model_validator(mode="after")
    def _none_is_rebuilt(self) -> WrittenRule:
        none = isinstance(self.epoch, NoEpochs)
        if none and not self.rebuild:
            raise ValueError(
                "expected `rebuild: true` beside `epoch: none`, found none: then no progress is kept, and each run "
                "reads everything again and replaces what the sinks hold. For one epoch a run leave `epoch` out"
            )
        if self.rebuild and not none:
            raise ValueError(
                "expected `epoch: none` beside `rebuild: true`, found "
                f"{'limits' if 'epoch' in self.model_fields_set else 'nothing'}: everything is read again as one epoch"
            )
        return self

    def resolved(
        self, digest: str, process: Process | None = None, chained: Mapping[str, tuple[str, int]] | None = None
    ) -> Rule:
        """The rule with every default filled in; `digest`: the hash of the file before substitution.

        `chained`: of each stream that is another rule's sink, the table's address and qos.
        """
        return Rule(
            rule=self.rule,
            description=self.description,
            streams={
                name: _stream(written, self.timezone, (chained or {}).get(name))
                for name, written in self.streams.items()
            },
            lookups={name: _lookup(written) for name, written in self.lookups.items()},
            sql=self.sql or "",
            process=process,
            unbounded=self.unbounded,
            windows=self.windows,
            close_idle_after_us=self.close_idle_after,
            late=late if isinstance(late := self.late, str) else "keep",
            amend_us=None if isinstance(late, str) else late.amend,
            on_error=self.on_error,
            expect=_expected(self.expect),
            qos=_level(self.qos),
            epoch=EpochLimits(**self.epoch.model_dump()),
            rebuild=self.rebuild,
            max_rows_per_window=self.max_rows_per_window,
            cleanup=CleanUp(**{f"{name}_us": us for name, us in self.cleanup.model_dump().items()}),
            sinks=tuple(_sink(written, self.qos) for written in self.sinks),
            schedule=AssetSchedule(assets=tuple(s.assets)) if isinstance(s := self.schedule, WrittenAssets) else s,
            freshness=_freshness(self.freshness),
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


def _freshness(written: WrittenFreshness | None) -> Freshness | None:
    if written is None:
        return None
    return Freshness(max_lag_us=written.max_lag, max_late_percent=written.max_late, on_exceed=written.on_exceed)


def _level(qos: int) -> Qos:
    levels: tuple[Qos, ...] = (0, 1, 2)
    return levels[qos]


def _stream(written: WrittenStream, zone: str, chained: tuple[str, int] | None) -> Stream:
    address, qos = chained or (written.delta or "", 2)
    time = written.event_time
    ahead = written.max_ahead
    if time is not None and ahead is None:
        ahead = parse_duration(DEFAULT_MAX_AHEAD)
    return Stream(
        kind="delta",
        address=address,
        rule=written.rule,
        sink=written.sink,
        qos=_level(qos),
        event_time=EventTime(name=time) if isinstance(time, str) else time and EventTime(**time.model_dump()),
        lateness_us=written.lateness,
        max_ahead_us=ahead,
        idle_after_us=written.idle_after,
        where=written.where,
        start=_start_at(written.start, zone),
        distinct=_distinct(written.distinct),
        expect=_expected(written.expect),
    )


def _expected(written: dict[str, WrittenExpectation]) -> dict[str, Expectation]:
    return {name: Expectation(check=one.check, on_fail=one.on_fail) for name, one in written.items()}


def _distinct(written: WrittenDistinct | None) -> Distinct | None:
    return None if written is None else Distinct(key=tuple(written.key), within_us=written.within)


def _lookup(written: WrittenLookup) -> Lookup:
    return Lookup(kind="delta", address=written.delta, history=written.history)


def _start_at(start: Literal["earliest", "latest"] | WrittenStart, zone: str) -> Any:
    if not isinstance(start, WrittenStart):
        return start
    if start.timestamp is None:
        return StartAt(version=start.version)
    instant = _instant(start.timestamp)
    aware = instant if instant.tzinfo else instant.replace(tzinfo=ZoneInfo(zone))
    return StartAt(timestamp=aware.astimezone(UTC).isoformat())


def _sink(written: WrittenSink, qos: int) -> Sink:
    kind = "delta" if written.delta else "console"
    return Sink(
        kind=kind,
        address=written.delta,
        name=written.name,
        qos=_level(qos if written.qos is None else written.qos),
        key=tuple(written.key or ()),
        newest=written.newest,
        delete=written.delete,
        properties=written.properties,
        columns=tuple(written.columns or ()),
        where=written.where,
        partition_by=tuple(written.partition_by or ()),
        cluster_by=tuple(written.cluster_by or ()),
        adds_columns=written.evolves == "add_columns",
        epoch_columns=written.epoch_columns,
    )
