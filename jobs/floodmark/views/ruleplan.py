"""A rule's plan, gathered without a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from floodmark.connectors.backlog.news import look
from floodmark.connectors.preflight import check_next
from floodmark.connectors.relay.relaying import values_of
from floodmark.core.protocol.expectations import expectation_results
from floodmark.core.rules.rule import Lookup, Rule, Sink, StartAt, Stream
from floodmark.core.rules.sinks.delivery import SinkDelivery, before_landing, delivery
from floodmark.core.rules.sinks.sinkcolumns import describe_sink
from floodmark.core.text.durations import format_duration
from floodmark.errors import FloodmarkError
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.views.rules.environments import check_no_shared_sinks
from floodmark.views.rules.origins import Origins
from floodmark.views.statewords import describe_state
from floodmark.views.status.rulestatus import repeating


@dataclass(frozen=True)
class Setting:
    """A setting that the rule file may have: its value in effect, and its origin, with the place."""

    name: str
    value: Any
    origin: str
    place: str


@dataclass(frozen=True)
class Plan:
    """`environment`: for each variable that the files name, where its value comes from (the value may be a secret);
    `not_compared`: the other environments whose sinks could not be compared, as sentences."""

    rule: Rule
    streams: list[dict[str, Any]]
    lookups: list[dict[str, Any]]
    state: list[str]
    errors: list[str]
    expected: list[str]
    sinks: list[dict[str, Any]]
    delivery: list[SinkDelivery]
    kept_output: bool
    settings: list[Setting]
    environment: dict[str, str]
    not_compared: list[str]
    next_run: str

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {
            "rule": self.rule.rule,
            "hash": self.rule.hash,
            "streams": self.streams,
            "lookups": self.lookups,
            "state": self.state,
            "errors": self.errors,
            "expected": self.expected,
            "sinks": self.sinks,
            "delivery": [sink.facts() for sink in self.delivery],
            "kept_output": self.kept_output,
            "settings": [asdict(setting) for setting in self.settings],
            "environment": self.environment,
            "not_compared": self.not_compared,
            "next_run": self.next_run,
        }


def plan_of(rule: Rule, folder: Path, root: Path, checks: bool = False) -> Plan:
    """`checks`: also look at tables and the SQL for what a run would refuse, which takes half a second."""
    origins = Origins(rule.rule, folder)
    not_compared = check_no_shared_sinks(rule, folder, os.environ)
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    kept_output = bool(ledger and ledger.head and ledger.head.kept_output)
    return Plan(
        rule,
        [_stream(name, stream) for name, stream in rule.streams.items()],
        [_lookup(name, lookup) for name, lookup in rule.lookups.items()],
        list(describe_state(rule)),
        list(_errors(rule)),
        list(_expected(rule)),
        [_sink(sink) | _schema(sink, Home(root, rule.rule)) for sink in rule.sinks],
        delivery(rule, kept_output, repeating(rule, root), ledger.head.generation if ledger and ledger.head else 1),
        kept_output,
        list(_settings(rule, origins)),
        origins.variables(),
        not_compared,
        _next_run(rule, root, checks),
    )


def _errors(rule: Rule) -> Iterator[str]:
    """How the rule handles a row for which an expression, or the class, raises."""
    becomes = "goes to the dead table" if rule.on_error == "dead" else "stops the run; nothing is written"
    if rule.process is not None:
        yield f"a row for which a stream's expr or where raises an error {becomes}; so do the rows of a call of process"
        yield "an error in on_timer or on_clock stops the run: it belongs to no row"
        return
    checked = dict.fromkeys(" ".join(check.sql.split()) for check in rule.row_checks)
    yield f"a row for which a stream's expr or where, or one of these in the SQL, raises an error {becomes}: " + (
        "; ".join(checked) or "none"
    )
    yield "an error above an aggregate, an OVER or a JOIN stops the run: it belongs to no row"


def _expected(rule: Rule) -> Iterator[str]:
    """The expectations and their effect on a row, in the order in which they apply."""
    becomes = {
        "fail": "stops the run; nothing is written",
        "dead": "goes to the dead table",
        "drop": "is dropped",
        "warn": "is kept, and counted",
    }
    for one in expectation_results(rule, {}):
        assert one.on_fail is not None and one.check is not None
        check = " ".join(one.check.split())
        yield f"{one.of}: {one.name}: a row for which this is not true {becomes[one.on_fail]}: {check}"


def _stream(name: str, stream: Stream) -> dict[str, Any]:
    time = stream.event_time
    made = f" = {time.expr}" if time and time.expr else ""
    return {
        "name": name,
        "kind": stream.kind,
        "address": stream.address,
        "rule": stream.rule,
        "event_time": f"{time.name}{made}" if time else None,
        "lateness": _length(stream.lateness_us),
        "max_ahead": _length(stream.max_ahead_us),
        "idle_after": _length(stream.idle_after_us),
        "where": stream.where,
        "start": _start(stream.start),
        "distinct": _distinct(stream),
        "changes": "the table's change feed" if stream.changes else None,
        "landing": None if stream.landing is None else f"keep {_length(stream.landing.keep_us) or 'all rows'}",
        "crash": before_landing(stream),
    }


def _distinct(stream: Stream) -> str | None:
    if stream.distinct is None:
        return None
    return f"by {', '.join(stream.distinct.key)}: no duplicates within {format_duration(stream.distinct.within_us)}"


def _lookup(name: str, lookup: Lookup) -> dict[str, Any]:
    newest = "the table's newest version when an epoch starts; its retries read the same version"
    every = "every version up to the newest when an epoch starts, with _valid_from and _valid_to"
    facts = lookup.model_dump(include={"kind", "address", "history"})
    return {"name": name, **facts, "rows": every if lookup.history else newest}


def _length(us: int | None) -> str | None:
    return None if us is None else format_duration(us)


def _start(start: str | StartAt) -> str:
    if isinstance(start, str):
        return start
    return f"version {start.version}" if start.version is not None else f"timestamp {start.timestamp}"


def _sink(sink: Sink) -> dict[str, Any]:
    facts = sink.model_dump(mode="json", exclude={"options", "name", "qos", "properties", "adds_columns"})
    rows = "; ".join(_merging(sink)) if sink.key else "added"
    schema = "add_columns" if sink.adds_columns else "fail"
    aside = ["rows that it refuses go to its undelivered table"] if sink.on_error == "dead" else []
    return {**facts, "schema": schema, "rows": rows, "takes": [*describe_sink(sink), *aside]}


def _schema(sink: Sink, home: Home) -> dict[str, Any]:
    """The schema of a target's values. One that cannot be told is no reason to hide the plan: a relay says why."""
    try:
        found = values_of(sink, home)
    except (FloodmarkError, ValueError):
        found = None
    return {} if found is None else {"value_schema": found}


def _merging(sink: Sink) -> Iterator[str]:
    yield f"one for each ({', '.join(sink.key)}), replaced by the next one"
    if sink.newest:
        yield f"the row with the larger {sink.newest} stays; if equal, the larger row"
    if sink.delete:
        yield f"deleted where {sink.delete}"


def _settings(rule: Rule, origins: Origins) -> Iterator[Setting]:
    for name, value in _values(rule):
        field = tuple(int(part) if part.isdigit() else part for part in name.split("."))
        yield Setting(name, value, *origins.of(field, value is not None))


def _values(rule: Rule) -> Iterator[tuple[str, Any]]:
    """Addresses, and the settings that have a default, by their place in the file."""
    for name, stream in rule.streams.items():
        if stream.rule is not None:
            yield f"streams.{name}.rule", stream.rule
        else:
            yield f"streams.{name}.{stream.kind}", stream.address
        yield f"streams.{name}.start", _start(stream.start)
        if stream.max_ahead_us is not None:
            yield f"streams.{name}.max_ahead", format_duration(stream.max_ahead_us)
    yield "qos", rule.qos
    yield "late", rule.late
    yield "on_error", rule.on_error
    yield from ((f"lookups.{name}.{lookup.kind}", lookup.address) for name, lookup in rule.lookups.items())
    for i, sink in enumerate(rule.sinks):
        yield f"sinks.{i}.{sink.kind}", sink.address or True
        yield f"sinks.{i}.qos", sink.qos
    yield from ((f"epoch.{key}", value) for key, value in rule.epoch.model_dump().items())
    yield "rebuild", rule.rebuild
    yield "max_rows_per_window", rule.max_rows_per_window
    yield from ((f"cleanup.{key[:-3]}", format_duration(us)) for key, us in rule.cleanup.model_dump().items())
    yield "schedule", rule.schedule if rule.schedule is None or isinstance(rule.schedule, str) else rule.schedule.assets
    if rule.freshness is not None:
        wanted = rule.freshness
        yield "freshness.max_lag", None if wanted.max_lag_us is None else format_duration(wanted.max_lag_us)
        yield "freshness.max_late", None if wanted.max_late_percent is None else f"{wanted.max_late_percent:g} %"
        yield "freshness.on_exceed", wanted.on_exceed
    yield "group", rule.group
    yield "timezone", rule.timezone
    yield "spark.driver_memory", rule.spark.driver_memory
    yield "spark.shuffle_partitions", rule.spark.shuffle_partitions
    yield "spark.conf", rule.spark.conf
    yield "airflow.retries", rule.airflow.retries
    yield "airflow.retry_delay", format_duration(rule.airflow.retry_delay_us)
    yield "airflow.max_retry_delay", format_duration(rule.airflow.max_retry_delay_us)
    yield "airflow.timeout", format_duration(rule.airflow.timeout_us)
    yield "airflow.tags", list(rule.airflow.tags)
    yield "airflow.owner", rule.airflow.owner


def _next_run(rule: Rule, root: Path, checks: bool) -> str:
    try:
        news = look(rule, root)
        if news.retired is not None:
            return f"would stop: {news.retired}"
        if checks:
            check_next(rule, root)
    except FloodmarkError as fault:
        return f"would stop: {fault}"
    if news.why is None:
        return f"has nothing to do: nothing new since epoch {news.epoch}"
    return f"continues from epoch {news.epoch}: {news.why}"
