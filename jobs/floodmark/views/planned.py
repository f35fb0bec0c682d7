"""A rule's plan, gathered without a JVM."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.news import look
from floodmark.core.delivery import SinkDelivery, delivery
from floodmark.core.durations import format_duration
from floodmark.core.rules import Lookup, Process, Rule, Sink, StartAt, Stream
from floodmark.core.windows import RowSpec, SessionSpec
from floodmark.core.yamltree import Tree, read_yaml
from floodmark.errors import FloodmarkError
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

if TYPE_CHECKING:
    from floodmark.core.sql.bounds import Last
    from floodmark.core.sql.collected import Collected
    from floodmark.core.sql.running import Running
    from floodmark.core.sql.tops import Top
    from floodmark.core.windows import Spec, WindowSpec

VARIABLE = re.compile(r"(?<!\$)\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True)
class Setting:
    """A setting that the rule file may give: its value in effect, and whether the file or a default gave it."""

    name: str
    value: Any
    origin: str


@dataclass(frozen=True)
class Plan:
    """`environment`: for each variable that the file names, where its value comes from (the value may be a secret)."""

    rule: Rule
    streams: list[dict[str, Any]]
    lookups: list[dict[str, Any]]
    state: list[str]
    errors: list[str]
    sinks: list[dict[str, Any]]
    delivery: list[SinkDelivery]
    kept_output: bool
    settings: list[Setting]
    environment: dict[str, str]
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
            "sinks": self.sinks,
            "delivery": [asdict(sink) for sink in self.delivery],
            "kept_output": self.kept_output,
            "settings": [asdict(setting) for setting in self.settings],
            "environment": self.environment,
            "next_run": self.next_run,
        }


def planned(rule: Rule, folder: Path, root: Path) -> Plan:
    tree = _written(rule, folder)
    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    kept = bool(ledger and ledger.head and ledger.head.kept_output)
    return Plan(
        rule,
        [_stream(name, stream) for name, stream in rule.streams.items()],
        [_lookup(name, lookup) for name, lookup in rule.lookups.items()],
        list(_state(rule)),
        list(_errors(rule)),
        [_sink(sink) for sink in rule.sinks],
        delivery(rule, kept),
        kept,
        list(_settings(rule, tree)),
        dict(_environment(tree.value)),
        _next_run(rule, root),
    )


def _errors(rule: Rule) -> Iterator[str]:
    """What becomes of a row for which an expression, or the class, raises."""
    becomes = "is set apart in the dead table" if rule.on_error == "dead" else "stops the run; nothing is written"
    if rule.process is not None:
        yield f"a row for which a stream's expr or where raises {becomes}; so do the rows of a call of process"
        yield "on_timer and on_clock that raise stop the run: they have no rows"
        return
    checked = dict.fromkeys(" ".join(check.sql.split()) for check in rule.row_checks)
    yield f"a row for which a stream's expr or where, or one of these in the SQL, raises {becomes}: " + (
        "; ".join(checked) or "none"
    )
    yield "what stands above an aggregate, an OVER or a JOIN: an error there stops the run, and is of no row"


def _written(rule: Rule, folder: Path) -> Tree:
    """The rule's file as it was written."""
    path = next(path for path in (folder / f"{rule.rule}{end}" for end in (".yaml", ".yml")) if path.exists())
    return read_yaml(path.read_text(encoding="utf-8"))


def _stream(name: str, stream: Stream) -> dict[str, Any]:
    time = stream.event_time
    made = f" = {time.expr}" if time and time.expr else ""
    return {
        "name": name,
        "kind": stream.kind,
        "address": stream.address,
        "event_time": f"{time.name}{made}" if time else None,
        "lateness": _length(stream.lateness_us),
        "max_ahead": _length(stream.max_ahead_us),
        "idle_after": _length(stream.idle_after_us),
        "where": stream.where,
        "start": _start(stream.start),
        "distinct": _distinct(stream),
    }


def _distinct(stream: Stream) -> str | None:
    if stream.distinct is None:
        return None
    return f"by {', '.join(stream.distinct.key)}: none of the same within {format_duration(stream.distinct.within_us)}"


def _lookup(name: str, lookup: Lookup) -> dict[str, Any]:
    newest = "the table's newest version when an epoch begins; its retries read the same"
    every = "every version up to the newest when an epoch begins, with _valid_from and _valid_to"
    facts = lookup.model_dump(include={"kind", "address", "history"})
    return {"name": name, **facts, "rows": every if lookup.history else newest}


def _length(us: int | None) -> str | None:
    return None if us is None else format_duration(us)


def _start(start: str | StartAt) -> str:
    if isinstance(start, str):
        return start
    return f"version {start.version}" if start.version is not None else f"timestamp {start.timestamp}"


def _state(rule: Rule) -> Iterator[str]:
    if rule.process is not None:
        yield from _class(rule.process)
        return
    if rule.query.running is not None:
        yield from _totals(rule.query.running)
        return
    if rule.query.top is not None:
        yield from _top(rule.query.top)
        return
    if rule.query.collected is not None:
        yield from _collected(rule.query.collected)
        return
    if not rule.query.windows:
        yield "stateless: each epoch's rows go through the SQL, nothing is kept"
        return
    for window in dict.fromkeys(rule.query.windows):
        yield from _window(window)
    yield from _how_windows_are_kept(rule)
    yield "emitted: each result, once, when it is final"
    if rule.amend_us is not None:
        yield f"amended: by rows that are late by no more than {format_duration(rule.amend_us)}; rows are kept for that"
    if rule.close_idle_after_us is not None:
        quiet = format_duration(rule.close_idle_after_us)
        yield f"closed by silence: a run without news {quiet} after the last epoch moves the watermark on"


def _how_windows_are_kept(rule: Rule) -> Iterator[str]:
    if rule.slices is not None:
        parts = ", ".join(partial.name for partial in rule.slices.partials) or "nothing but the key"
        why = "as `windows: slices` says" if rule.windows else "for each row is in many windows"
        yield f"kept: partial aggregates ({parts}) by key and slice of time, {why}"
        if rule.slices.means:
            yield "averages of decimals would be kept by the input rows instead: their parts cannot be merged exactly"
        return
    why = " (`windows: rows`)" if rule.windows else ""
    yield f"kept: the input rows that a window not yet final needs{why}"
    for last in rule.query.lasts:
        yield _looking_back(last)
    if rule.query.star:
        yield "all columns of the input are kept, for the SQL selects *"


def _looking_back(last: Last) -> str:
    if last.rows is None:
        return "and every row before, for ever, for OVER counts from the first (`unbounded: true`)"
    if last.keys is None:
        return "and every row before, for ever: PARTITION BY columns of a stream that is read directly would keep fewer"
    of = f" of every ({', '.join(last.keys)})" if last.keys else ""
    return f"and the last {last.rows} rows before that{of}, for ever (`unbounded: true`)"


def _totals(running: Running) -> Iterator[str]:
    parts = ", ".join(partial.name for partial in running.partials) or "nothing but the key"
    yield f"totals by ({', '.join(running.keys)}): what each epoch adds to a key ({parts})"
    yield "without bound: one row for every key, for ever (`unbounded: true`)"
    yield "emitted: in each epoch the new result of every key that it touches"


def _top(top: Top) -> Iterator[str]:
    of = f" of every ({', '.join(top.keys)})" if top.keys else ""
    yield f"the first {top.rows} rows{of}, for ever (`unbounded: true`), with the columns that the SQL reads"
    yield "emitted: in each epoch the first rows anew of every key that it touches"


def _collected(how: Collected) -> Iterator[str]:
    of = f" of every ({', '.join(how.keys)})" if how.keys else ""
    from floodmark.core.sql.collected import EveryRows

    if isinstance(how.window, EveryRows):
        yield f"windows of {how.window.rows} rows{of}, a new one every {how.window.every}"
    else:
        yield f"windows of rows{of}, from one that begins to one that ends them"
    yield "kept: the rows that the watermark has not passed, and those of windows that are open (`unbounded: true`)"
    yield "emitted: each window, once, when the watermark has passed its last row"


def _class(process: Process) -> Iterator[str]:
    yield f"class {process.module}:{process.name}, called for each {', '.join(process.key)} and event time"
    for name in process.tables:
        columns = f" ({process.state[name]})" if name in process.state else ""
        lives = process.ttl_us.get(name)
        until = f"{format_duration(lives)} after it was put" if lives else "deleted"
        timed = f"{name}: those that have not fired" if name not in (*process.state, "counters") else ""
        yield timed or f"{name}{columns}: the newest value of each key, until {until}"
    yield "kept beside that: the input rows that the watermark has not passed, with all columns"
    yield "emitted: what the class gives for a row, once, when the watermark has passed the row"
    if process.clock_timers:
        yield "clock timers wait for an epoch: without new input none comes"


def _window(window: Spec) -> Iterator[str]:
    if isinstance(window, RowSpec):
        yield f"each row (OVER, JOIN) with what lies {_reach(window)} in event time"
        return
    if isinstance(window, SessionSpec):
        yield f"sessions that end after a gap of {window.gap}; sessions that touch are one"
        return
    size, slide = format_duration(window.size_us), format_duration(window.slide_us)
    yield f"windows of {size}, a new one every {slide}" + (", side by side" if size == slide else ", overlapping")
    if window.offset_us:
        yield f"they begin {format_duration(window.offset_us)} after 1970-01-01T00:00:00Z and from there on"
    if window.before_us or window.after_us:
        yield f"a row of a window hangs on what lies {_reach(window)} in event time"


def _reach(spec: RowSpec | WindowSpec) -> str:
    return f"at most {format_duration(spec.before_us)} before and {format_duration(spec.after_us)} after it"


def _sink(sink: Sink) -> dict[str, Any]:
    facts = sink.model_dump(include={"kind", "address", "newest", "delete"})
    return {**facts, "key": list(sink.key), "rows": "; ".join(_merging(sink)) if sink.key else "added"}


def _merging(sink: Sink) -> Iterator[str]:
    yield f"one for each ({', '.join(sink.key)}), replaced by the next"
    if sink.newest:
        yield f"that with the larger {sink.newest} stays, of equal ones the larger row"
    if sink.delete:
        yield f"taken away where {sink.delete}"


def _settings(rule: Rule, tree: Tree) -> Iterator[Setting]:
    for name, value in _values(rule):
        path = tuple(int(part) if part.isdigit() else part for part in name.split("."))
        yield Setting(name, value, "file" if path in tree.places else "default")


def _values(rule: Rule) -> Iterator[tuple[str, Any]]:
    """The settings that have a default, by their place in the file."""
    for name, stream in rule.streams.items():
        yield f"streams.{name}.start", _start(stream.start)
        if stream.max_ahead_us is not None:
            yield f"streams.{name}.max_ahead", format_duration(stream.max_ahead_us)
    yield "qos", rule.qos
    yield "late", rule.late
    yield "on_error", rule.on_error
    for i, sink in enumerate(rule.sinks):
        yield f"sinks.{i}.qos", sink.qos
    yield from ((f"epoch.{key}", value) for key, value in rule.epoch.model_dump().items())
    yield "schedule", rule.schedule if rule.schedule is None or isinstance(rule.schedule, str) else rule.schedule.assets
    yield "timezone", rule.timezone
    yield "spark.driver_memory", rule.spark.driver_memory
    yield "spark.shuffle_partitions", rule.spark.shuffle_partitions
    yield "spark.conf", rule.spark.conf
    yield "airflow.retries", rule.airflow.retries
    yield "airflow.retry_delay", format_duration(rule.airflow.retry_delay_us)
    yield "airflow.tags", list(rule.airflow.tags)
    yield "airflow.owner", rule.airflow.owner


def _environment(value: Any) -> Iterator[tuple[str, str]]:
    """Variables in the texts of the file."""
    if isinstance(value, str):
        for match in VARIABLE.finditer(value):
            yield match["name"], "from the environment" if match["name"] in os.environ else "its default"
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _environment(child)


def _next_run(rule: Rule, root: Path) -> str:
    try:
        news = look(rule, root)
    except FloodmarkError as fault:
        return f"would stop: {fault}"
    if news.why is None:
        return f"has nothing to do: nothing new since epoch {news.epoch}"
    return f"goes on from epoch {news.epoch}: {news.why}"
