"""Models settings of Spark and Airflow in rule files."""

from __future__ import annotations

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from floodmark.core.rules.file.fields import Duration, Filled, Partitions, Retries, Written, as_list
from floodmark.core.rules.file.sinks import setting_text
from floodmark.core.text.durations import parse_duration
from floodmark.core.text.secrets import WAY_OUT, secret_setting

# Settings that have a key of their own in the rule file, or on which the guarantee depends.
_OWN_CONF = {
    "spark.driver.memory": "`spark: {driver_memory: ...}`",
    "spark.sql.shuffle.partitions": "`spark: {shuffle_partitions: ...}`",
    "spark.sql.session.timeZone": "`timezone: ...`",
}
# Settings of size, place and speed. Others could change the meaning of the SQL, the input or the way a table is
# written.
_FREE_CONF = (
    "spark.app.", "spark.blockManager.", "spark.broadcast.", "spark.buffer.pageSize", "spark.cleaner.",
    "spark.cores.max", "spark.default.", "spark.driver.bindAddress", "spark.driver.cores", "spark.driver.host",
    "spark.driver.maxResultSize", "spark.driver.memoryOverhead", "spark.driver.port", "spark.dynamicAllocation.",
    "spark.eventLog.", "spark.executor.", "spark.hadoop.fs.", "spark.io.", "spark.kryo", "spark.kubernetes.",
    "spark.local.", "spark.locality.", "spark.memory.", "spark.metrics.", "spark.network.", "spark.port.",
    "spark.python.worker.", "spark.rpc.", "spark.scheduler.", "spark.serializer", "spark.shuffle.",
    "spark.sql.adaptive.", "spark.sql.ansi.enabled", "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout", "spark.sql.codegen.", "spark.sql.execution.arrow.", "spark.sql.files.max",
    "spark.sql.files.min", "spark.sql.files.openCostInBytes", "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.", "spark.sql.parquet.compression.", "spark.sql.parquet.enableVectorizedReader",
    "spark.sql.shuffle.", "spark.stage.", "spark.storage.", "spark.task.", "spark.ui.", "spark.yarn.",
    "spark.driver.extraJavaOptions",
)  # fmt: skip
_CONF_NAME = re.compile(r"spark\.[\w./*-]+", re.ASCII)
# Options of Java that name a file of further options, which no check would see.
_OPTIONS_ELSEWHERE = re.compile(r"(?:^|\s)(?:@|-XX:(?:Flags|VMOptionsFile)=)")
# Another class for local files would write and read them without Hadoop's checksums.
_CHECKSUMS = ("spark.hadoop.fs.file.impl", "spark.hadoop.fs.AbstractFileSystem.file.impl")


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
            raise ValueError(f"setting {key} has a key of its own: use {_OWN_CONF[key]} instead")
        if key in _CHECKSUMS or not key.startswith(_FREE_CONF):
            raise ValueError(
                f"setting {key} cannot be set by a rule: expected a setting of size, location or speed, such as "
                "spark.executor.memory or spark.sql.adaptive.enabled"
            )
    if str(value.get("spark.sql.ansi.enabled", "true")).lower() not in ("true", "false"):
        raise ValueError("expected true or false for spark.sql.ansi.enabled")
    found = {key: setting_text(key, text) for key, text in value.items()}
    for key, text in found.items():
        if secret_setting(key, text):
            raise ValueError(f"setting {key} is or contains a secret, which a rule cannot contain: {WAY_OUT}")
        plain = re.sub(r"[\"'\\]", "", text)  # quotes are the command line's own
        if key.endswith("JavaOptions") and _OPTIONS_ELSEWHERE.search(plain):
            raise ValueError(f"setting {key} names a file with options: write the options themselves")
        if "-Dspark." in plain:
            raise ValueError(
                f"setting {key} contains Spark settings (-Dspark. ...): put each one separately under `conf`"
            )
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


# Maximum length of an owner or tag: Airflow has no space for longer tags, and stores all owners of a DAG in one column.
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
    # A backlog may take hours, and the next try continues where this one stopped; this only ends a hanging one.
    timeout: Annotated[Duration, AfterValidator(_limit), Field(json_schema_extra={"default": "12 hours"})] = (
        43_200_000_000
    )
    tags: Annotated[list[Label], BeforeValidator(as_list)] = []
    owner: Label = "data"
