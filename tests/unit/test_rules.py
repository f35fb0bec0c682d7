"""Rule files: what they become, and how every mistake in them is named with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest
import yaml

from floodmark.core.rules import rule as rules
from floodmark.core.rules.file.streams import source_keys
from floodmark.core.rules.kinds import SINKS
from floodmark.core.rules.rule import AssetSchedule, EventTime, Rule, StartAt, load_rule, load_rules
from floodmark.core.text.addresses import same_address
from floodmark.errors import RuleInvalid, SqlRefused

GOOD = """\
rule: delays
streams:
  flights:
    delta: ${LAKE}/flights
    event_time: date
    lateness: 30 minutes
sql: |
  SELECT window.start AS hour, origin, count(*) AS flights
  FROM flights
  GROUP BY window(date, '1 hour'), origin
sinks:
  - delta: ${LAKE}/delays
"""
OUT = "  - delta: ${LAKE}/delays"
PLAIN = """\
rule: delays
streams: {flights: {delta: /lake/flights}}
sql: SELECT * FROM flights
sinks: [{delta: /lake/delays}]
"""
ENV = {"LAKE": "/lake"}

Load: TypeAlias = Callable[..., Rule]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def write_and_load(text: str, name: str = "delays", env: dict[str, str] | None = None) -> Rule:
        path = tmp_path / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return load_rule(path, ENV if env is None else env)

    return write_and_load


@pytest.fixture
def refused(tmp_path: Path, load: Load) -> Callable[..., list[str]]:
    def problems(text: str, **options: Any) -> list[str]:
        with pytest.raises(RuleInvalid) as caught:
            load(text, **options)
        return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]

    return problems


def test_defaults_are_filled_in(load: Load) -> None:
    rule = load(GOOD)
    stream, [sink] = rule.streams["flights"], rule.sinks
    assert (stream.kind, stream.address, stream.start) == ("delta", "/lake/flights", "earliest")
    assert stream.event_time == EventTime(name="date")
    assert (stream.lateness_us, stream.max_ahead_us) == (1_800_000_000, 86_400_000_000)
    assert (sink.kind, sink.address, sink.qos) == ("delta", "/lake/delays", 2)
    assert (rule.qos, rule.schedule, rule.timezone, rule.description) == (2, None, "UTC", "")
    assert rule.epoch.model_dump() == {"max_files": None, "max_bytes": None, "max_rows": None, "max_seconds": None}
    assert (rule.spark.driver_memory, rule.spark.shuffle_partitions, rule.spark.conf) == ("3g", 4, {})
    assert (rule.airflow.retries, rule.airflow.retry_delay_us, rule.airflow.owner) == (3, 30_000_000, "data")
    assert (rule.airflow.max_retry_delay_us, rule.airflow.timeout_us) == (600_000_000, 43_200_000_000)
    assert rule.query.windows


@pytest.mark.parametrize("cron", ["0 0 29 2 *", "0 0 31 2 1", "0 0 L * *"])
def test_a_schedule_of_rare_days_is_one(load: Load, cron: str) -> None:
    assert load(GOOD.replace("sinks:", f"schedule: '{cron}'\nsinks:", 1)).schedule == cron


FULL = """\
rule: delays
description: Everything there is.
streams:
  b:
    delta: file:///lake/b
    event_time: {name: at, expr: timestamp_millis(ts_ms)}
    lateness: 0 seconds
    max_ahead: 2 hours
    where: k <> ''
    start: {version: 7}
  a:
    delta: s3://lake/a
    event_time: ts
    lateness: 1 hour 30 minutes
    start: {timestamp: 2001-01-31 12:00:00}
sql: |
  SELECT window.start AS s, count(*) AS n
  FROM (SELECT at AS t FROM b UNION ALL SELECT ts FROM a) GROUP BY window(t, '1 day')
qos: 2
epoch: {max_files: 100, max_bytes: "1000000"}
sinks:
  - delta: /lake/out
  - console: true
    qos: 1
  - console:
    qos: 0
schedule: {assets: [s3://lake/a]}
timezone: Europe/Berlin
spark: {driver_memory: 512M, shuffle_partitions: 8, conf: {spark.sql.ansi.enabled: false}}
airflow: {retries: 0, retry_delay: 1 minute, tags: [x, y], owner: me}
"""


def test_everything_there_is(load: Load) -> None:
    rule = load(FULL)
    assert list(rule.streams) == ["a", "b"]  # by name: offsets are matched by position
    assert rule.streams["b"].start == StartAt(version=7)
    assert rule.streams["a"].start == StartAt(timestamp="2001-01-31T11:00:00+00:00")
    assert rule.streams["b"].event_time == EventTime(name="at", expr="timestamp_millis(ts_ms)")
    assert rule.streams["b"].max_ahead_us == 7_200_000_000
    assert [(sink.kind, sink.address, sink.qos) for sink in rule.sinks] == [
        ("delta", "/lake/out", 2),
        ("console", None, 1),
        ("console", None, 0),
    ]
    assert rule.schedule == AssetSchedule(assets=("s3://lake/a",))
    assert rule.epoch.max_bytes == 1_000_000
    assert rule.spark.conf == {"spark.sql.ansi.enabled": "false"}
    assert rule.spark.driver_memory == "512m"


@pytest.mark.parametrize("text", [GOOD, PLAIN, FULL])
def test_json_and_back(load: Load, text: str) -> None:
    rule = load(text)
    again = Rule.from_json(rule.to_json())
    assert again == rule
    assert again.to_json() == rule.to_json()
    assert list(again.streams) == list(rule.streams)
    assert again.query == rule.query


def test_the_hash_is_the_same_in_every_environment_and_says_what_the_file_says(load: Load) -> None:
    one, other = load(GOOD), load(GOOD, env={"LAKE": "/elsewhere"})
    assert one.hash == other.hash
    assert one != other
    assert load(GOOD.replace("30 minutes", "31 minutes")).hash != one.hash
    assert load("# a comment\n" + GOOD).hash == one.hash


def test_late_rows_are_kept_unless_the_rule_drops_them(load: Load, refused: Any) -> None:
    assert (load(GOOD).late, load(GOOD + "late: drop\n").late) == ("keep", "drop")
    [problem] = refused(PLAIN + "late: drop\n")
    assert problem == "delays.yaml:5: late: expected a stream with `lateness`: without one, no row is late"
    [problem] = refused(GOOD + "late: amend\n")
    assert problem.endswith("(rows at most that late update results), found 'amend'")


def test_a_stream_can_be_excused_only_where_something_waits_for_the_watermark(load: Load, refused: Any) -> None:
    lines = GOOD.replace(
        "sql: |", "  other: {delta: /lake/o, event_time: at, lateness: 1 hour, idle_after: 5 minutes}\nsql: |"
    )
    both = lines.replace("FROM flights", "FROM (SELECT date, origin FROM flights UNION ALL SELECT at, k FROM other)")
    assert load(both).streams["other"].idle_after_us == 300_000_000
    head, _, tail = lines.partition("sql: |")
    plain = f"{head}sql: SELECT date FROM flights UNION ALL SELECT at FROM other\n{tail[tail.index('sinks:') :]}"
    assert refused(plain) == [
        "delays.yaml:7: streams.other.idle_after: expected a window or a JOIN in the SQL: nothing else waits for the "
        "watermark"
    ]


def test_a_rule_is_frozen(load: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(GOOD).qos = 1  # type: ignore[misc]


def test_substitution(load: Load) -> None:
    text = PLAIN.replace("/lake/flights", "'${A:-/lake/a}/x'") + "qos: ${QOS}\ndescription: '${A:-a}$${x}'\n"
    rule = load(text, env={"QOS": "1"})
    assert (rule.streams["flights"].address, rule.description) == ("/lake/a/x", "a${x}")
    assert rule.qos == 1
    other = load(text, env={"QOS": "0", "A": "/b"})
    assert (other.streams["flights"].address, other.description) == ("/b/x", "/b${x}")


def test_a_set_but_empty_variable_is_set_and_a_value_is_not_substituted_again(load: Load) -> None:
    text = PLAIN + "description: ${A:-default}${B}\n"
    assert load(text, env={"A": "", "B": "${C}"}).description == "${C}"


def with_line(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        # unknown and later keys
        (
            "    lateness:",
            "    lateness_:",
            "6: streams.flights.lateness_: unknown key 'lateness_': did you mean 'lateness'?",
        ),
        ("sinks:", "qoss: 2\nsinks:", "11: qoss: unknown key 'qoss': did you mean 'qos'?"),
        (
            "rule: delays",
            "rule: delays\nzzz: 1",
            "2: zzz: unknown key 'zzz': expected one of rule, description, streams",
        ),
        ("rule: delays", "rule: delays\nprocess: a:B", "1: expected either `sql: ...` or `process: module:Class`"),
        ("rule: delays", "rule: delays\nkey: [a]", "1: expected `key` only with `process`, found it with `sql`"),
        ("  - delta:", "  - expect: a\n    delta:", "sinks[0].expect: expect: for results, it is a key of the rule"),
        (
            "rule: delays",
            "rule: delays\nexpect: a",
            "2: expect: expected expectations by name, {NAME: {check:",
        ),
        ("rule: delays", "rule: delays\nclose_idle_after: -1 hour", "2: close_idle_after: expected a duration"),
        (
            "    delta: ${LAKE}/flights",
            "    parquet: x",
            "4: streams.flights.parquet: unknown key 'parquet': expected a kind of stream (delta, ",
        ),
        (
            "  - delta:",
            "  - parquet:",
            "12: sinks[0].parquet: unknown key 'parquet': expected a kind of sink (delta, console, postgres",
        ),
        (
            "    event_time: date\n",
            "    event_time: date\n    idle_after: 0 seconds\n",
            "expected a duration above zero",
        ),
        (
            "    event_time: date\n",
            "    event_time: date\n    idle_after: 5 minutes\n",
            "6: streams.flights.idle_after: expected another stream with `event_time` and `lateness`, found none: to "
            "close windows while all streams are idle, use `close_idle_after`",
        ),
        (
            "  flights:\n",
            "  other: {delta: /lake/other, idle_after: 5 minutes}\n  flights:\n",
            "3: streams.other.idle_after: expected `event_time` and `lateness` next to it",
        ),
        ("rule: delays", "rule: delays\nlate: amend", "2: late: expected keep (late rows go to the late table), drop"),
        ("rule: delays", "rule: delays\nlate: [keep]", "2: late: expected keep (late rows go to the late table), drop"),
        # the name
        ("rule: delays", "rule: Delays", "1: rule: expected a name of at most 63 lowercase letters, digits and _"),
        ("rule: delays", "rule: ../delays", "1: rule: expected a name of at most 63 lowercase letters"),
        ("rule: delays", "rule: other", "1: rule: expected the file's name, 'delays', found 'other'"),
        ("rule: delays", "rule: 5", "1: rule: expected text, found 5"),
        # streams
        (
            "  flights:\n",
            "  window:\n",
            "expected stream names of letters, digits and _ (and not window), found 'window'",
        ),
        ("  flights:\n", "  my-flights:\n", "2: streams: expected stream names of letters, digits and _"),
        (
            "  flights:\n",
            "  FLIGHTS: {delta: /x}\n  flights:\n",
            "expected stream names that differ in more than upper and lower case",
        ),
        ("    delta: ${LAKE}/flights\n", "", "streams.flights: expected exactly one kind of stream (delta"),
        ("delta: ${LAKE}/flights", "delta: 7", "4: streams.flights.delta: expected text, found 7"),
        ("delta: ${LAKE}/flights", "delta: ''", "4: streams.flights.delta: expected text that is not empty, found ''"),
        ("event_time: date", "event_time: [date]", "5: streams.flights.event_time: expected a column name, or {name:"),
        (
            "event_time: date",
            "event_time: {nam: date}",
            "streams.flights.event_time.nam: unknown key 'nam': did you mean",
        ),
        (
            "event_time: date",
            "event_time: {name: date, expr: rand()}",
            "5: streams.flights.event_time.expr: sql line 1, c",
        ),
        ("30 minutes", "30 mins", "6: streams.flights.lateness: expected one of the units weeks, days"),
        ("30 minutes", "1 month", "a month is not a fixed length of time"),
        ("30 minutes", "30", "6: streams.flights.lateness: expected a duration such as '30 minutes'"),
        ("30 minutes", "-1 minute", "6: streams.flights.lateness: expected a duration that is not negative"),
        ("    lateness: 30 minutes\n", "", "3: streams.flights: expected `lateness`"),
        ("    event_time: date\n", "", "streams.flights.lateness: expected `event_time` beside it"),
        (
            "    event_time: date\n",
            "    max_ahead: 1 day\n",
            "5: streams.flights.max_ahead: expected `event_time` beside",
        ),
        ("    event_time: date\n", "", "9: sql: column 12: window(...) needs the event time of stream flights"),
        (
            "    event_time: date\n",
            "    event_time: date\n    where: max(x) > 1\n",
            "6: streams.flights.where: sql line 1",
        ),
        (
            "    event_time: date\n",
            "    event_time: date\n    start: soon\n",
            "6: streams.flights.start: expected earliest",
        ),
        (
            "    event_time: date\n",
            "    event_time: date\n    start: {version: -1}\n",
            "start.version: expected a whole num",
        ),
        ("    event_time: date\n", "    event_time: date\n    start: {timestamp: soon}\n", "an ISO 8601 timestamp"),
        (
            "    event_time: date\n",
            "    event_time: date\n    start: {}\n",
            "6: streams.flights.start: expected earliest",
        ),
        (
            "  flights:\n",
            "  unread: {delta: /lake/x}\n  flights:\n",
            "3: streams.unread: expected a stream that the SQL reads",
        ),
        (
            "  FROM flights",
            "  FROM flihgts",
            "9: sql: column 8: table flihgts: no stream or lookup has this name; did you mean fli",
        ),
        # sql
        ("count(*) AS", "rand() AS", "8: sql: column 40: function rand: a replay would give a different answer"),
        ("  GROUP BY window(date, '1 hour'), origin\n", "", "aggregate count without GROUP BY"),
        ("count(*) AS flights", "count(*)", "8: sql: column 40: a column of the result without a name: write"),
        ("AS flights", "AS hour", "two columns of the result are named hour"),
        ("AS flights", "AS `all flights`", "a column named 'all flights'"),
        ("sql: |\n", "sql: 5\nx: |\n", "7: sql: expected text, found 5"),
        ("  - delta: ${LAKE}/delays", "  - delta:", "12: sinks[0].delta: expected an address"),
        # numbers
        (
            "sinks:",
            "qos: 3\nsinks:",
            "11: qos: expected 0 (at most once), 1 (at least once) or 2 (exactly once), found 3",
        ),
        (
            "sinks:",
            "qos: true\nsinks:",
            "11: qos: expected 0 (at most once), 1 (at least once) or 2 (exactly once), found true",
        ),
        (
            "sinks:",
            "qos: 1.5\nsinks:",
            "11: qos: expected 0 (at most once), 1 (at least once) or 2 (exactly once), found 1.5",
        ),
        (
            "sinks:",
            "epoch: {max_files: 0}\nsinks:",
            "11: epoch.max_files: expected a whole number of at least 1, found 0",
        ),
        ("sinks:", "epoch: {max_rows: 9}\nsinks:", "11: epoch.max_rows: Delta streams cannot count rows"),
        ("sinks:", "epoch: 5\nsinks:", "11: epoch: expected a mapping (key: value), found 5"),
        # sinks
        ("  - delta: ${LAKE}/delays\n", "", "11: sinks: expected a list of at least one sink"),
        ("sinks:\n  - delta: ${LAKE}/delays\n", "", "1: sinks: expected `sinks: ...`, found nothing"),
        (
            "  - delta: ${LAKE}/delays",
            "  - qos: 1",
            "12: sinks[0]: expected exactly one kind of sink: delta, cons",
        ),
        (
            "  - delta: ${LAKE}/delays",
            "  - {delta: /x, console: true}",
            "12: sinks[0]: expected exactly one kind of sink",
        ),
        ("  - delta: ${LAKE}/delays", "  - console: true", "12: sinks[0]: expected a sink that can do exactly once"),
        ("  - delta: ${LAKE}/delays", "  - console: true", "give the console sink `qos: 1`"),
        ("  - delta: ${LAKE}/delays", "  - console: false", "12: sinks[0].console: expected true, found false"),
        ("  - delta: ${LAKE}/delays", "  - delta: /lake/./flights/", "another address than that of stream flights"),
        (
            "  - delta: ${LAKE}/delays",
            "  - delta: /a\n  - delta: file:///a",
            "13: sinks[1].delta: expected another address",
        ),
        (
            "  - delta: ${LAKE}/delays",
            "  - delta: /a\n    qos: 2\nqos: 1",
            "13: sinks[0].qos: expected at most the rule's q",
        ),
        (OUT, f"{OUT}\n    mode: complete", "13: sinks[0].mode: is not supported yet"),
        (
            OUT,
            f"{OUT}\n    key: []",
            "13: sinks[0].key: expected a list of at least one result column, such as [origin]",
        ),
        (OUT, f"{OUT}\n    key: origin", "13: sinks[0].key: expected a list of at least one result column"),
        (OUT, f"{OUT}\n    key: [1]", "13: sinks[0].key: expected a list of at least one result column"),
        (OUT, f"{OUT}\n    key: [a, A]", "13: sinks[0].key: expected each column once, found a, A"),
        (OUT, f"{OUT}\n    key:", "12: sinks[0]: expected a value after `key:`"),
        (OUT, f"{OUT}\n    keys: [a]", "13: sinks[0].keys: unknown key 'keys': did you mean 'key'?"),
        (OUT, f"{OUT}\n    newest: a", "13: sinks[0].newest: expected `key` next to it"),
        (OUT, f"{OUT}\n    delete: a = 0", "13: sinks[0].delete: expected `key` next to it"),
        (OUT, f"{OUT}\n    key: [a]\n    newest: b\n    delete: a = 0", "expected `newest` or `delete`, found both"),
        (OUT, f"{OUT}\n    key: [a]\n    delete: rand() > 0", "14: sinks[0].delete: "),
        (OUT, f"{OUT}\n    key: [a]\n    delete: count(*) = 0", "14: sinks[0].delete: "),
        (
            OUT,
            "  - console: true\n    qos: 1\n    key: [a]",
            "14: sinks[0].key: expected a kind of sink that supports upserts (delta",
        ),
        (
            OUT,
            f"{OUT}\n    partition_by: day",
            "13: sinks[0].partition_by: expected a list of at least one result column",
        ),
        (OUT, f"{OUT}\n    partition_by:", "12: sinks[0]: expected a value after `partition_by:`"),
        (
            OUT,
            f"{OUT}\n    partition_by: [a]\n    cluster_by: [b]",
            "found both: a Delta table uses one or the other",
        ),
        (OUT, f"{OUT}\n    cluster_by: [a, b, c, d, e]", "13: sinks[0].cluster_by: expected at most 4 columns"),
        (
            OUT,
            f"{OUT}\n    key: [a]\n    properties: {{delta.appendOnly: true}}",
            "sinks[0].properties: expected no delta.appendOnly in a sink with `key`",
        ),
        (OUT, f"{OUT}\n    key: [a]\n    properties: {{Delta.APPENDONLY: 'TRUE'}}", "expected no Delta.APPENDONLY in"),
        (OUT, f"{OUT}\n    columns: []", "13: sinks[0].columns: expected a list of at least one result column"),
        (OUT, f"{OUT}\n    columns: [a, A]", "13: sinks[0].columns: expected each column once, found a, A"),
        (
            OUT,
            f"{OUT}\n    columns: [a]\n    key: [a, b]",
            "sinks[0].key: expected columns that are in `columns`, found b",
        ),
        (
            OUT,
            f"{OUT}\n    columns: [a]\n    key: [A]\n    newest: b",
            "sinks[0].newest: expected columns that are in `columns`, found b: add it",
        ),
        (OUT, f"{OUT}\n    columns: [a, b]\n    cluster_by: [c]", "expected columns that are in `columns`, found c"),
        (
            OUT,
            f"{OUT}\n    columns: [a]\n    partition_by: [_epoch]",
            "expected columns that are in `columns`, found _epoch",
        ),
        (OUT, f"{OUT}\n    columns: [a]\n    partition_by: [a]", "expected a column that is not in partition_by"),
        (OUT, f"{OUT}\n    where: rand() > 0", "13: sinks[0].where: "),
        (OUT, f"{OUT}\n    where: count(*) > 0", "13: sinks[0].where: "),
        (OUT, f"{OUT}\n    where: ''", "13: sinks[0].where: expected text that is not empty"),
        (OUT, f"{OUT}\n    key: [a]\n    newest: b\n    where: c > 0", "expected `newest` or `where`, found both"),
        (OUT, f"{OUT}\n    schema: add", "13: sinks[0].schema: expected fail (the table"),
        (OUT, f"{OUT}\n    schema: add_columns", "13: sinks[0].schema: expected `fail`, or SQL without state"),
        (OUT, f"{OUT}\n    epoch_column: true", "unknown key 'epoch_column': did you mean 'epoch_columns'?"),
        (OUT, f"{OUT}\n    schemas: add_columns", "unknown key 'schemas': did you mean 'schema'?"),
        (
            OUT,
            "  - console: true\n    qos: 1\n    partition_by: [a]",
            "14: sinks[0].partition_by: expected a delta sink",
        ),
        (OUT, "  - console: true\n    qos: 1\n    epoch_columns: true", "epoch_columns: expected a delta sink"),
        # the rest
        ("sinks:", "schedule: hourly\nsinks:", "11: schedule: expected cron with five fields"),
        ("sinks:", "schedule: '* * * *'\nsinks:", "11: schedule: expected cron with five fields"),
        ("sinks:", "schedule: {assets: []}\nsinks:", "11: schedule.assets: "),
        ("sinks:", "schedule: {assets: [x, 'airflow://x']}\nsinks:", "11: schedule.assets[1]: expected another scheme"),
        (
            "sinks:",
            "schedule: {assets: ['postgres://h/x']}\nsinks:",
            "11: schedule.assets[0]: expected postgres://HOST/DATABASE/SCHEMA/TABLE, as Airflow does, found ",
        ),
        ("sinks:", f"schedule: {{assets: [/{'x' * 1494}]}}\nsinks:", "expected at most 1500 characters as a URI"),
        (
            "${LAKE}/flights",
            f"s3://b/{'x' * 1494}",
            "4: streams.flights.delta: expected at most 1500",
        ),
        ("${LAKE}/flights", f"s3://b/{'ü' * 250}", "of an asset of Airflow, found 1507 (each byte"),
        (OUT, f"  - delta: s3a://b/{'x' * 1494}", "12: sinks[0].delta: expected at most 1500 characters"),
        ("sinks:", f"lookups:\n  t: {{delta: s3://b/{'x' * 1494}}}\nsinks:", "12: lookups.t: expected at most 1500"),
        ("sinks:", "timezone: Mars/Base\nsinks:", "11: timezone: expected an IANA time zone"),
        ("sinks:", "timezone: ../../etc/passwd\nsinks:", "11: timezone: expected an IANA time zone"),
        ("sinks:", "spark: {driver_memory: lots}\nsinks:", "11: spark.driver_memory: expected an amount of memory"),
        ("sinks:", "spark: {conf: {spark.sql.session.timeZone: UTC}}\nsinks:", "use `timezone: ...`"),
        ("sinks:", "spark: {conf: {spark.sql.ansi.doubleQuotedIdentifiers: true}}\nsinks:", "cannot be set by a rule"),
        ("sinks:", "airflow: {retry_delay: 5}\nsinks:", "11: airflow.retry_delay: expected a duration"),
        ("sinks:", "airflow: {tags: x}\nsinks:", "11: airflow.tags: expected a list, found 'x'"),
        # substitution
        (
            "${LAKE}/flights",
            "${NO_SUCH}/flights",
            "4: streams.flights.delta: the variable NO_SUCH is not set; set it in the ",
        ),
        ("${LAKE}/flights", "${NO_SUCH}/flights", "or give it a default: ${NO_SUCH:-...}"),
        (
            "${LAKE}/flights",
            "${1x}/flights",
            "4: streams.flights.delta: expected ${NAME} or ${NAME:-default}, found ${1x}",
        ),
        ("${LAKE}/flights", "${LAKE", "4: streams.flights.delta: expected ${NAME} or ${NAME:-default}, found ${"),
        ("${LAKE}/flights", "${NO_SUCH:-${LAKE}}/flights", "expected a default that contains no variables"),
        # addresses
        ("${LAKE}/flights", '"s3://[x/y"', "4: streams.flights.delta: expected a path or a URI"),
        ("${LAKE}/flights", '"/lake/\\0x"', "4: column 12: the character"),
        ("${LAKE}/flights", "http://x/y", "of one of the stores file, s3"),
        ("${LAKE}/flights", "s3:/x", "s3:// with two slashes, then a bucket"),
        ("${LAKE}/flights", "s3://b/../x", "without .."),
        ("${LAKE}/flights", "file://lake/x", "three slashes"),
        ("${LAKE}/flights", "~/lake", "~ is not expanded"),
        ("${LAKE}/flights", '" /lake/x "', "without space around it"),
        ("${LAKE}/flights", '"/lake/fl%41ghts"', "found '%41': Spark would read another place"),
        ("${LAKE}/flights", '"file:///lake/fl%2541ghts"', "found '%41'"),
        ("${LAKE}/flights", '"/lake/[x]"', "without [ ] | ^, found '['"),
        ("  - delta: ${LAKE}/delays", "  - delta: /lake/flights/out", "lose its files to the other's clean-up"),
        ("  - delta: ${LAKE}/delays", "  - delta: /lake", "lose its files to the other's clean-up"),
        # numbers and settings out of bounds
        ("sinks:", "schedule: '99 * * * *'\nsinks:", "11: schedule: expected cron with five fields"),
        ("sinks:", "schedule: '0 0 31 4,6 *'\nsinks:", "11: schedule: expected cron with days that exist in"),
        (
            "sinks:",
            f"epoch: {{max_files: {10**23}}}\nsinks:",
            "expected a whole number of at most 9223372",
        ),
        ("sinks:", "spark: {shuffle_partitions: 10001}\nsinks:", "expected a whole number of at most 10000"),
        ("sinks:", "airflow: {retries: 1001}\nsinks:", "expected a whole number of at most 1000"),
        ("sinks:", "airflow: {retry_delay: 8 days}\nsinks:", "expected a pause of at most 7 days"),
        ("sinks:", "airflow: {timeout: 0 seconds}\nsinks:", "expected a duration from 1 second to 30 days"),
        ("sinks:", "timezone: localtime\nsinks:", "11: timezone: expected an IANA time zone"),
        ("sinks:", "spark: {conf: {spark.sql.files.ignoreMissingFiles: true}}\nsinks:", "cannot be set by a rule"),
        ("sinks:", "spark: {conf: {spark.delta.logStore.class: x}}\nsinks:", "cannot be set by a rule"),
        ("sinks:", "spark: {conf: {spark.sql.ansi.enabled: maybe}}\nsinks:", "expected true or false"),
        (
            "    event_time: date",
            "    event_time: date\n    start: {timestamp: '0001-01-01T00:00:00+05:00'}",
            "in the years 2 to 9998",
        ),
        # yaml
        ("rule: delays", 'rule: delays\ndescription: "\\ud800"', "2: column 14: the character"),
        ("rule: delays", "rule: delays\nrule: delays", "2: column 1: duplicate key 'rule'"),
        ("rule: delays", "rule: &a delays", "1: column 7: anchors"),
    ],
)
def test_mistakes_are_named_with_their_place(refused: Any, old: str, new: str, found: str) -> None:
    problems = refused(with_line(GOOD, old, new))
    assert any(found in problem for problem in problems), "\n".join(problems)
    assert all(problem.startswith("delays.yaml:") for problem in problems)


def test_every_problem_is_listed_in_the_order_of_the_file(refused: Any) -> None:
    text = with_line(with_line(GOOD, "30 minutes", "soon"), "rule: delays", "rule: X") + "qos: 9\nfoo: 1\n"
    assert [problem.split(":")[1] for problem in refused(text)] == ["1", "1", "6", "13", "14"]


def test_only_one_problem_for_one_mistake(refused: Any) -> None:
    text = with_line(GOOD, "    event_time", "    close_idle_after: a\n    event_time")
    assert [problem for problem in refused(text) if "close_idle_after:" in problem] == [
        "delays.yaml:5: streams.flights.close_idle_after: is not supported yet"
    ]


@pytest.mark.parametrize("text", ["", "- a\n", "just text\n"])
def test_a_file_that_is_no_mapping(refused: Any, text: str) -> None:
    assert "expected a rule (`rule: NAME`" in refused(text)[0]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"rule: \xff\n")
    with pytest.raises(RuleInvalid, match="expected UTF-8"):
        load_rule(tmp_path / "a.yaml", {})
    with pytest.raises(RuleInvalid, match="cannot be read"):
        load_rule(tmp_path / "missing.yaml", {})


def test_sql_outside_a_block_is_placed_within_the_sql(refused: Any) -> None:
    problems = refused(with_line(PLAIN, "SELECT * FROM", "SELECT DISTINCT * FROM"))
    assert len(problems) == 1
    assert problems[0].startswith("delays.yaml:3: sql: sql line 1, column 8: DISTINCT over all rows is not supported")


def test_a_folder_of_rules(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    write("delays.yaml", PLAIN)
    write("other.yml", with_line(with_line(PLAIN, "rule: delays", "rule: other"), "/lake/delays", "/lake/other"))
    write("broken.yaml", "rule: broken\n")
    write("same.yaml", with_line(with_line(PLAIN, "rule: delays", "rule: same"), "/lake/delays", "/lake/out"))
    write(
        "same_sink.yaml",
        with_line(with_line(PLAIN, "rule: delays", "rule: same_sink"), "/lake/delays", "file:/lake/out"),
    )
    write("twice.yaml", with_line(with_line(PLAIN, "rule: delays", "rule: twice"), "/lake/delays", "/lake/t"))
    write("twice.yml", with_line(with_line(PLAIN, "rule: delays", "rule: twice"), "/lake/delays", "/lake/u"))
    write("notes.txt", "no rule")
    write(".hidden.yaml", "no rule")
    good, bad = load_rules(tmp_path, {})
    assert sorted(good) == ["delays", "other"]
    assert sorted(bad) == ["broken.yaml", "same.yaml", "same_sink.yaml", "twice.yaml", "twice.yml"]
    assert "is a sink of rule same_sink, too" in str(bad["same.yaml"])
    assert "a rule named twice is in twice.yaml, too" in str(bad["twice.yml"])
    assert "a rule named twice is in twice.yml, too" in str(bad["twice.yaml"])


def test_a_rule_that_is_not_sound_takes_no_other_along_though_it_was_not_checked(tmp_path: Path) -> None:
    (tmp_path / "delays.yaml").write_text(PLAIN)
    copied = PLAIN.replace("rule: delays", "rule: copied")
    for sql, sound in (("SELECT rand() AS r FROM flights", ["delays"]), ("SELECT * FROM flights", [])):
        (tmp_path / "copied.yaml").write_text(with_line(copied, "SELECT * FROM flights", sql))
        found = [load_rules(tmp_path, {}, checked) for checked in (None, lambda rule: rule.rule != "delays")]
        assert [sorted(good) for good, _ in found] == [sound, sound], sql
        assert str(found[0][1]) == str(found[1][1])


@pytest.mark.parametrize(
    ("sink", "stream", "bad", "told"),
    [
        ("/lake/out/inner", "/lake/b", ["a.yaml", "b.yaml"], "/lake/out/inner is inside /lake/out, sink of rule a"),
        ("file:/lake/", "/other/b", ["a.yaml", "b.yaml"], "file:/lake/ is around /lake/"),
        ("/lake/flights/b", "/lake/b", ["a.yaml"], "found /lake/flights, which is around /lake/flights/b, sink"),
        (
            "/else/b",
            "/lake",
            ["b.yaml"],
            "stream flights: expected a place that holds no sink of another rule, found /lake,",
        ),
        ("/lake/other", "/lake/out/b", ["a.yaml"], "/lake/out is around /lake/out/b, stream flights of rule b"),
        ("/lake/output", "/lake/flights/b", [], ""),
        ("/lake/other", "/lake/out", [], ""),
    ],
)
def test_a_sink_lies_beside_the_tables_of_other_rules(
    tmp_path: Path, sink: str, stream: str, bad: list[str], told: str
) -> None:
    for name, reads, writes in (("a", "/lake/flights", "/lake/out"), ("b", stream, sink)):
        text = PLAIN.replace("rule: delays", f"rule: {name}").replace("/lake/flights", reads)
        (tmp_path / f"{name}.yaml").write_text(text.replace("/lake/delays", writes))
    found = load_rules(tmp_path, {})[1]
    assert sorted(found) == bad
    assert told in str(found.get(max(bad, default="")))


@pytest.mark.parametrize("below", ["", "/data", "/data/deeper"])
def test_a_reader_of_files_lies_beside_the_targets_of_other_rules(tmp_path: Path, below: str) -> None:
    source = "{files: {path: %s, format: text}}"
    for name, reads, writes in (
        ("a", source % "/lake/in", "files: {path: /lake/out}"),
        ("b", source % f"/lake/out{below}", "delta: /lake/b"),
        ("c", source % "/lake/outer", "delta: /lake/c"),
        ("d", "{delta: /lake/b}", "delta: /lake/d"),
    ):
        text = f"rule: {name}\nstreams: {{s: {reads}}}\nsql: SELECT * FROM s\nsinks: [{{{writes}}}]\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    good, bad = load_rules(tmp_path, {})
    assert sorted(good) == ["a", "c", "d"]
    assert str(bad["b.yaml"]).partition(": ")[2] == (
        f"stream s: expected another source, such as a Delta sink of the same rule (`rule: a`), found /lake/out{below} "
        "of files:///lake/out, a target of rule a: its relay puts corrected files in place of others, so rows would "
        "count twice"
    )


def test_a_sink_lies_beside_the_rules_other_sinks(load: Load, refused: Callable[..., list[str]]) -> None:
    two = PLAIN.replace("{delta: /lake/delays}", "{delta: /lake/delays}, {delta: /lake/delays%s}")
    assert refused(two % "/late") == [
        "delays.yaml:4: sinks[1].delta: expected an address outside that of sink 1, found /lake/delays/late: a table "
        "inside another would lose its files to the other's clean-up"
    ]
    assert len(load(two % "_late").sinks) == 2


def test_a_fault_that_no_check_foresaw_is_its_own_file_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "delays.yaml").write_text(PLAIN)
    (tmp_path / "other.yaml").write_text(
        with_line(with_line(PLAIN, "rule: delays", "rule: other"), "/lake/delays", "/x")
    )
    real = rules.load_rule

    def load_rule(path: Path, *rest: Any) -> Rule:
        if path.name == "other.yaml":
            raise RuntimeError("unforeseen")
        return real(path, *rest)

    monkeypatch.setattr(rules, "load_rule", load_rule)
    good, bad = load_rules(tmp_path, {})
    assert list(good) == ["delays"]
    assert "RuntimeError: unforeseen" in str(bad["other.yaml"])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("/a/b", "/a/./b/", True),
        ("/a/b", "file:///a/b", True),
        ("/a/b c", "file:/a/b%20c", True),
        ("/a/x/../b", "/a/b", True),
        ("s3://bucket/a/", "s3a://bucket//a", True),
        ("s3://bucket/a", "s3://bucket/b", False),
        ("/a/b", "/a/B", False),
        ("abfss://c@acc/a", "abfss://d@acc/a", False),
    ],
)
def test_same_address(one: str, other: str, same: bool) -> None:
    assert same_address(one, other) is same


@pytest.mark.parametrize("address", ["s3a://lake/a%20b/t", "abfs://c@acc/a%C3%BC", "file:///lake/a%2520b"])
def test_an_address_that_two_clients_read_as_two_places_is_no_table_s(load: Load, address: str) -> None:
    """Delta's client decodes it, Spark does not."""
    lookup = PLAIN + f"lookups: {{planes: {{delta: {address}}}}}\n"
    for text in (PLAIN.replace("/lake/delays", address), PLAIN.replace("/lake/flights", address), lookup):
        with pytest.raises(RuleInvalid, match="without % before two hex digits, found '%"):
            load(text)
    files = PLAIN.replace("delta: /lake/delays", "files: {path: 's3a://lake/a%20b'}")
    assert load(files).sinks[0].address == "files://s3a://lake/a%20b"


def test_links_and_the_working_directory_are_part_of_an_address(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a%20b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a%20b")
    with pytest.raises(RuleInvalid, match=f"found '%20': Spark would read another place, at {tmp_path}/a%20b/t"):
        load(PLAIN.replace("/lake/delays", f"{tmp_path}/link/t"))
    relative = PLAIN.replace("/lake/delays", "t")
    assert load(relative).sinks[0].address == "t"
    monkeypatch.chdir(tmp_path / "a%20b")
    with pytest.raises(RuleInvalid, match=f"at {tmp_path}/a%20b/t"):
        load(relative)


def test_a_link_is_the_same_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert same_address(str(tmp_path / "link" / "t"), str(tmp_path / "real" / "t"))


def test_sql_refused_is_a_rule_that_is_invalid(load: Load) -> None:
    rule = load(PLAIN).model_copy(update={"sql": "SELECT DISTINCT * FROM flights"})
    with pytest.raises(SqlRefused):
        _ = Rule.from_json(rule.to_json()).query


def test_the_schema_beside_the_code_is_the_one_of_the_code() -> None:
    path = Path(rules.__file__).with_name("rule.schema.json")
    assert path.read_text(encoding="utf-8") == rules.schema_text(), "write it anew, see rules.schema_text"


@pytest.mark.parametrize("text", [GOOD, PLAIN, FULL])
def test_the_schema_accepts_what_the_code_accepts(text: str) -> None:
    jsonschema.validate(plain(text), rules.json_schema())


def plain(text: str) -> Any:
    return json.loads(json.dumps(yaml.safe_load(text.replace("2001-01-31 12:00:00", "'2001-01-31 12:00:00'"))))


def test_the_schema_refuses_unknown_keys() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**plain(PLAIN), "qoss": 1}, rules.json_schema())


def test_the_schema_knows_every_kind() -> None:
    assert set(SINKS) <= set(rules.json_schema()["$defs"]["WrittenSink"]["properties"])
    assert set(source_keys()) <= set(rules.json_schema()["$defs"]["WrittenStream"]["properties"])


RUNNING = """\
rule: delays
streams: {flights: {delta: /lake/flights}}
unbounded: true
sql: SELECT origin AS o, dest, count(*) AS n FROM flights GROUP BY origin, dest
sinks: [{delta: /lake/delays, key: [Dest, o]}]
"""


def test_running_totals_go_to_sinks_that_know_a_result_by_its_key(load: Load) -> None:
    assert load(RUNNING).query.running is not None


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("unbounded: true\n", "", "sql: GROUP BY without a window keeps a row for every key forever: add a window"),
        (" GROUP BY origin, dest", "", "aggregate count without GROUP BY window(...)"),
        (", key: [Dest, o]", "", "sinks[0]: expected `key: [dest, o]`, every column of the GROUP BY, found none"),
        ("[Dest, o]", "[dest]", "found key: [dest]"),
        ("[Dest, o]", "[dest, o], newest: n", "sinks[0].newest: expected no `newest`"),
        ("SELECT origin AS o,", "SELECT", "sql: expected every column of the GROUP BY in the SELECT"),
        (
            "count(*) AS n FROM flights GROUP BY origin, dest",
            "origin AS n FROM flights",
            "unbounded: expected a GROUP BY",
        ),
    ],
)
def test_running_totals_that_would_go_wrong(
    refused: Callable[..., list[str]], old: str, new: str, problem: str
) -> None:
    assert any(problem in line for line in refused(RUNNING.replace(old, new)))


TOP = """\
rule: delays
streams: {flights: {delta: /lake/flights, event_time: date, lateness: 5 minutes}}
unbounded: true
sql: >
  SELECT origin AS o, delay, place FROM (SELECT *, row_number() OVER (PARTITION BY origin ORDER BY delay DESC) AS place
  FROM flights) WHERE place <= 3
sinks: [{delta: /lake/best, key: [o, place]}]
"""
LOOKUP = """\
rule: delays
streams: {flights: {delta: /lake/flights}}
lookups: {airports: {delta: /lake/airports}}
sql: SELECT origin, city FROM flights f JOIN airports a ON f.origin = a.iata
sinks: [{delta: /lake/named}]
"""
DISTINCT = """\
rule: delays
streams: {flights: {delta: /lake/flights, event_time: date, lateness: 5 minutes, distinct: {key: [id], within: 1 day}}}
sql: SELECT id, delay FROM flights
sinks: [{delta: /lake/once}]
"""


AMEND = """\
rule: delays
streams: {flights: {delta: /lake/flights, event_time: date, lateness: 5 minutes}}
late: {amend: 7 days}
sql: >-
  SELECT window.end AS hour, origin AS o, count(*) AS n FROM flights
  GROUP BY window(date, '1 hour', '5 minutes'), origin
sinks: [{delta: /lake/hourly, key: [hour, o]}]
"""


SESSIONS = """\
rule: delays
streams: {flights: {delta: /lake/flights, event_time: date, lateness: 5 minutes}}
lookups: {airports: {delta: /lake/airports}}
sql: >-
  SELECT max(city) AS city, count(*) AS n FROM flights f LEFT JOIN airports a ON f.origin = a.iata
  GROUP BY session_window(f.date, '1 hour'), f.origin
sinks: [{delta: /lake/named}]
"""
DATED = " JOIN airports a ON f.date >= a._valid_from AND f.date < a._valid_to AND f.origin = a.iata"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LEFT JOIN airports a ON", "LEFT JOIN airports a ON f.x > a.x AND"),
        ("LEFT JOIN airports a ON f.origin = a.iata\n", f"{DATED}\n"),
        (
            "LEFT JOIN airports a ON f.origin = a.iata\n",
            f"{DATED.replace('a._valid_to', 'nvl(a._valid_to, f.date)')}\n",
        ),
        (" LEFT JOIN", " JOIN"),
    ],
)
def test_sessions_that_no_newer_version_of_a_lookup_table_changes(load: Load, old: str, new: str) -> None:
    """By the event time alone a row has its match in a table's history; a rebuilt rule has one epoch."""
    text = SESSIONS.replace(old, new)
    if "_valid_to" in new:
        text = text.replace("/lake/airports}", "/lake/airports, history: true}")
    if new == " JOIN":
        text += "rebuild: true\nepoch: none\n"
    assert load(text).query.stateful


@pytest.mark.parametrize("other", ["f.departed", "f.date - INTERVAL '1' HOUR"])
def test_sessions_that_a_history_decides_by_another_time_are_refused(load: Load, other: str) -> None:
    text = SESSIONS.replace("LEFT JOIN airports a ON f.origin = a.iata", DATED.replace("f.date", other).strip())
    way = "session_window over lookup table airports: expected sessions that no.*event time: .*`floodmark reset`"
    with pytest.raises(RuleInvalid, match=way):
        load(text.replace("/lake/airports}", "/lake/airports, history: true}"))


FULL_JOIN = """\
rule: delays
streams:
  orders: {delta: /lake/orders, event_time: placed, lateness: 0 seconds}
  payments: {delta: /lake/payments, event_time: at, lateness: 0 seconds}
lookups: {shops: {delta: /lake/shops}}
sql: >-
  SELECT o.id, o.placed, p.id AS pid, p.at
  FROM (SELECT x.id, x.placed FROM orders x LEFT SEMI JOIN shops s ON x.shop = s.shop) o
  FULL JOIN payments p ON o.id = p.id AND p.at BETWEEN o.placed AND o.placed + INTERVAL '1' HOUR
sinks: [{delta: /lake/paid}]
"""
DATED_SHOPS = "LEFT SEMI JOIN shops s ON x.placed >= s._valid_from AND x.placed < s._valid_to AND x.shop = s.shop"


@pytest.mark.parametrize("history", [False, True])
def test_a_full_join_by_which_a_newer_lookup_table_moves_rows_is_refused(load: Load, history: bool) -> None:
    way = "FULL JOIN below which lookup table shops decides.*Join shops above.*" + "history of shops.*" * history
    with pytest.raises(RuleInvalid, match=f"{way}needs `floodmark reset` after any of these edits"):
        load(FULL_JOIN.replace("/lake/shops", "/lake/shops, history: true") if history else FULL_JOIN)


def test_a_full_join_that_no_newer_version_of_a_lookup_table_changes(load: Load) -> None:
    dated = FULL_JOIN.replace("LEFT SEMI JOIN shops s ON x.shop = s.shop", DATED_SHOPS)
    assert load(dated.replace("/lake/shops", "/lake/shops, history: true")).query.is_full_join
    assert load(f"{FULL_JOIN}rebuild: true\nepoch: none\n").query.is_full_join
    assert load(FULL_JOIN.replace("LEFT SEMI", "LEFT")).query.is_full_join


@pytest.mark.parametrize("text", [TOP, LOOKUP, DISTINCT, AMEND])
def test_rules_with_later_state(load: Load, text: str) -> None:
    assert load(text).query.stateful is (text is not LOOKUP)
    jsonschema.validate(plain(text), rules.json_schema())


@pytest.mark.parametrize(
    ("text", "old", "new", "problem"),
    [
        (TOP, "unbounded: true\n", "", "sql: row_number() by an order of its own keeps 3 rows of every key forever"),
        (
            TOP,
            ", place]",
            "]",
            "sinks[0]: expected `key: [o, place]`, every column of the PARTITION BY and the place, found key: [o]",
        ),
        (TOP, ", place FROM (", " FROM (", "add row_number()"),
        (TOP, "place <= 3", "place <= 3 AND delay > 0", "expected WHERE place <= n, and no other condition"),
        (LOOKUP, "JOIN airports a ON f.origin = a.iata", "", "lookups.airports: expected a lookup table that the SQL"),
        (LOOKUP, "{airports: {", "{Flights: {", "lookups.Flights: expected a name that no stream has"),
        (LOOKUP, "/lake/named", "/lake/airports", "expected another address than that of lookup airports"),
        (LOOKUP, "airports}}", "airports, histroy: true}}", "unknown key 'histroy': did you mean 'history'?"),
        (LOOKUP, "{airports: {", "{a-b: {", "expected lookup names of letters, digits and _"),
        (SESSIONS, " LEFT JOIN", " JOIN", "sql: session_window over lookup table airports: expected sessions that no"),
        (SESSIONS, ", f.origin", ", city", "sql: session_window over lookup table airports: expected sessions that no"),
        (
            SESSIONS,
            "LEFT JOIN airports a ON f.origin = a.iata",
            DATED,
            "sql: session_window over lookup table airports",
        ),
        (SESSIONS, "LEFT", "", "Join airports in a second rule, and build sessions over its sink"),
        (AMEND, "[hour, o]", "[hour]", "expected `key: [hour, o]`, the window and every column of the GROUP BY, found"),
        (AMEND, "window.end AS hour, ", "", "add window.start"),
        (AMEND, "7 days", "-1 day", "late.amend: expected"),
        (AMEND, "{amend: 7 days}", "ammend", "late: expected keep"),
        (AMEND, ", origin\n", ", origin HAVING count(*) > 1\n", "HAVING with `late: {amend: ...}`"),
        (AMEND, ", origin\n", ", upper(origin)\n", "expected columns next to the window, found UPPER(origin)"),
        (AMEND, "late:", "windows: slices\nlate:", "windows: expected `rows` or nothing"),
        (
            AMEND,
            "window(date, '1 hour', '5 minutes')",
            "session_window(date, '1 hour')",
            "expected GROUP BY window(...)",
        ),
        (DISTINCT, "[id]", "[]", "streams.flights.distinct.key: expected a list of at least one column"),
        (DISTINCT, "1 day", "0 seconds", "streams.flights.distinct.within: expected a duration above zero"),
        (DISTINCT, " event_time: date, lateness: 5 minutes,", "", "expected `event_time` beside it: a horizon is"),
        (DISTINCT, " lateness: 5 minutes,", "", "expected `lateness`"),
        (
            DISTINCT,
            "SELECT id, delay FROM flights",
            "SELECT id, count(*) AS n FROM flights GROUP BY id",
            "over stream flights, because it is `distinct`: GROUP BY without a window above a JOIN or OVER",
        ),
    ],
)
def test_mistakes_with_later_state(
    refused: Callable[..., list[str]], text: str, old: str, new: str, problem: str
) -> None:
    assert old in text
    found = refused(text.replace(old, new))
    assert any(problem in line for line in found), found
