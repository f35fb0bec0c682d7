"""Reports what a run did: metrics (StatsD, OpenTelemetry), log lines, and asset events of its sinks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.observability import stats

from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.tally import Corrected, Ended, changes_sinks, corrected, ended, summed
from floodmark.core.rules.kinds import tables_written, targets
from floodmark.core.text.addresses import location
from floodmark.views.formats import iso
from floodmark_airflow.assets import asset, target_asset
from floodmark_airflow.naming import metric_part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from airflow.sdk import Asset
    from airflow.sdk.execution_time.comms import AssetEventResult
    from airflow.sdk.types import OutletEventAccessorsProtocol

    from floodmark.connectors.relay.backlogs import Undelivered
    from floodmark.core.lifecycle.freshness import Fresh
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Row
    from floodmark.core.rules.rule import Rule, Sink
    from floodmark.ledger.home import Home
    from floodmark_airflow.tries import Tries

PREFIX = "floodmark"
ATTEMPT = re.compile(r"\.try\d+$")  # the ledger's name of a try of an Airflow run


@dataclass(frozen=True)
class Done:
    """The rule's head, and what has ended since a row of its ledger.

    `news`: whether readers of the sinks have to know of any of it. A backfill or a reset ends no epoch.
    """

    head: Head | None
    epochs: list[Ended]
    corrections: list[Corrected]
    news: bool = False

    def by(self, tries: Tries) -> Done:
        """What these tries have done of it."""
        epochs = [one for one in self.epochs if one.run in tries]
        return Done(self.head, epochs, [one for one in self.corrections if one.run in tries])


def done_since(rule: Rule, home: Path, seq: int | None) -> Done:
    """What ended after row `seq` of the rule's ledger (None: nothing). Raises FloodmarkError."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    ledger = LedgerReader.load(Home(home, rule.rule).ledger)
    if ledger is None or ledger.head is None or seq is None or ledger.head.seq <= seq:
        return Done(ledger.head if ledger else None, [], [])
    rows = ledger.newest(ledger.head.seq - seq)
    return Done(ledger.head, ended(rows), corrected(rows), any(map(changes_sinks, rows)))


def commits_behind(rule: Rule, home: Path, head: Head | None) -> int:
    """Commits with data, over all streams, that the ledger has not folded."""
    from floodmark.connectors.ports.registry import sources
    from floodmark.ledger.home import Home

    lines = head.lines if head else {}
    read = ((source, lines[name]) for name, source in sources(rule, Home(home, rule.rule)).items() if name in lines)
    return sum(source.backlog(line, rule.rebuild).amount for source, line in read)


def retention_used(rule: Rule, home: Path, head: Head) -> float:
    """The share of a source's retention for which its unread input has waited, of the stream that is nearest to a loss.

    0: nothing waits, or nothing is deleted; from 1 on, the source may delete it at any time. Raises FloodmarkError.
    """
    from floodmark.connectors.backlog.retention import limits
    from floodmark.ledger.home import Home

    return max((limit.used for limit in limits(rule, Home(home, rule.rule), head).values()), default=0.0)


def watermark_age(rule: Rule, head: Head, now: datetime) -> float | None:
    """Age of the watermark in seconds, by the clock of the rule's event times; None before the first watermark."""
    if head.watermark is None:
        return None
    return (micros_of(now, rule, zoned(rule, head)) - head.watermark) / 1e6


def measure(rule: str, age: float | None, behind: int, done: Done) -> None:
    """Send metrics to StatsD or OpenTelemetry, if Airflow is configured for one. `age`: the watermark's.

    Counters are also sent if they are 0: Prometheus does not count the first value of a counter as an increase.
    """
    _send(stats.gauge, rule, "lag_commits", behind)
    if age is not None:
        _send(stats.gauge, rule, "watermark_age_seconds", round(age, 3))
    for epoch in done.epochs:
        if epoch.seconds is not None:
            _send(stats.timing, rule, "epoch_duration", epoch.seconds * 1000)
    corrections = {"corrections": len(done.corrections), "rows_corrected": sum(one.rows for one in done.corrections)}
    for name, count in {"epochs": len(done.epochs), **corrections, **_rows(done.epochs)}.items():
        _send(stats.incr, rule, name, count)


def measure_retention(rule: str, used: float) -> None:
    """Send the share of the sources' retention that is used; 0, too: a gauge would keep the value before."""
    _send(stats.gauge, rule, "retention_used", round(used, 4))


def measure_targets(rule: Rule, root: Path, now: datetime) -> None:
    """Send what each target has and lacks. Nothing for a rule without a target, or retired. Raises FloodmarkError."""
    from floodmark.connectors.relay.backlogs import target_lag, undelivered
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger) if targets(rule) else None
    if ledger is not None and (ledger.head is None or ledger.head.retired is None):
        for one in undelivered(rule, home, ledger):
            measure_target(rule.rule, one, target_lag(rule, ledger.head, one, now), now)


def measure_target(rule: str, one: Undelivered, lag: float | None, now: datetime) -> None:
    """Send gauges of one target. `lag`: how old its newest row is, in seconds; None: unknown."""
    memory = one.memory
    gauges: dict[str, float | None] = {
        "backlog_epochs": one.portions,
        "backlog_rows": one.rows,
        "backlog_bytes": one.bytes,
        "oldest_seconds": round(one.age(now), 3),
        "full": int(one.full),
        "refused_rows": one.refused,
        "rows_lost": memory.lost,
        "failed": int(memory.fault is not None or one.stuck is not None),
        "rows_shipped": memory.shipped,
        "shipped_at_seconds": datetime.fromisoformat(memory.at).timestamp() if memory.at else None,
        "lag_seconds": lag and round(lag, 3),
    }
    for name, value in gauges.items():
        if value is not None:
            stats.gauge(f"{PREFIX}.target.{name}", value, tags={"rule": rule, "target": one.target})
            stats.gauge(f"{PREFIX}.rule.{rule}.target.{metric_part(one.target)}.{name}", value)


def _rows(epochs: Sequence[Ended]) -> dict[str, int]:
    return {f"rows_{name}": count for name, count in summed(epochs).items()}


def _send(how: Callable[..., None], rule: str, name: str, value: float) -> None:
    """Send a metric twice: with the rule as a tag, and in the name, for a StatsD without tags."""
    how(f"{PREFIX}.{name}", value, tags={"rule": rule})
    how(f"{PREFIX}.rule.{rule}.{name}", value)


def log_done(log: Any, rule: str, done: Done) -> None:
    """One line for each epoch and correction, with its facts as fields of Airflow's structured logs."""
    for one in done.corrections:
        log.info("rows of a source were corrected", rule=rule, run=one.run, rows_corrected=one.rows)
    for epoch in done.epochs:
        log.info(
            "epoch ended",
            rule=rule,
            generation=epoch.generation,
            epoch=epoch.epoch,
            attempt=epoch.attempt,
            run=epoch.run,
            seconds=epoch.seconds,
            **{f"rows_{name}": count for name, count in epoch.rows.items()},
            **({"failed": epoch.failed} if epoch.failed else {}),
        )


def log_open(log: Any, rule: Rule, head: Head, home: Path) -> None:
    """Log the results that are not written yet, and what they wait for."""
    from floodmark.views.contents.openwindows import open_windows
    from floodmark.views.contents.waiting import waiting

    for found in (open_windows(rule, head, home), waiting(rule, head, home)):
        if found is not None:
            log.info("rule %s: %s", rule.rule, found.text())


def log_freshness(log: Any, rule: str, fresh: Fresh | None) -> None:
    """Log one line; a warning if a limit is exceeded."""
    if fresh is not None:
        (log.warning if fresh.exceeded else log.info)("rule %s: %s", rule, fresh.text())


def note_events(events: OutletEventAccessorsProtocol, rule: Rule, head: Head, epochs: Sequence[Ended]) -> None:
    """Add epoch, row count and watermark to the asset event of each sink, for the runs that it triggers."""
    for address in _tables(rule):
        events[asset(address)].extra.update(_extra(rule, head, epochs, name_at(head, location(address))))


def note_shipped(events: OutletEventAccessorsProtocol, rule: Rule, sink: Sink, home: Home) -> bool:
    """Add the target's position to its asset event. False if the last one has told of it.

    Airflow stamps an event when its task has ended, and another task may have shipped by then: the time alone does not
    say what it has told.
    """
    from floodmark.connectors.relay.memory import recall

    folder = home.outbox(sink)
    memory = None if folder is None else recall(folder)
    if memory is None or memory.position is None or memory.at is None or not memory.position.seq:
        return False
    found, position = target_asset(rule, sink), memory.position
    facts = {"generation": position.generation, "epoch": position.epoch, "seq": position.seq}
    last = newest_told(found)
    if last is not None and last.timestamp > datetime.fromisoformat(memory.at) and _has_told(last.extra or {}, facts):
        return False
    events[found].extra.update({"rule": rule.rule, **facts})
    return True


def _has_told(extra: Mapping[str, Any], facts: Mapping[str, int]) -> bool:
    """Whether an event tells of a position. One by others, or by an earlier release, need not have all facts."""
    return all(extra.get(name) in (None, value) for name, value in facts.items())


def _tables(rule: Rule) -> list[str]:
    """Addresses of the sinks that are assets."""
    return [str(sink.address) for sink in tables_written(rule)]


def newest_event(address: str) -> datetime | None:
    """Time of the last asset event of a sink; None: never. Airflow answers, through the task's supervisor."""
    last = newest_told(asset(address))
    return None if last is None else last.timestamp


def newest_told(told: Asset) -> AssetEventResult | None:
    """The last event of an asset."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    events = InletEventsAccessor(told.name, told.uri).ascending(False).limit(1)
    return events[0] if len(events) else None


def unreported_commits(rule: Rule, rows: Sequence[Row]) -> list[Row]:
    """Among some rows of the ledger, those of Airflow's runs that no event of the rule's sinks has told of yet.

    They are from failed runs, because a successful run sends an event. The command line sends none. An Airflow without
    any event may be new, with another database: then nobody has missed any.
    """
    commits = [row for row in rows if _is_news(row) and ATTEMPT.search(row.run)]
    addresses = _tables(rule) if commits else []
    times = [at for at in map(newest_event, addresses) if at is not None]
    return [row for row in commits if times and datetime.fromisoformat(row.at) > min(times)]


def may_have_written(row: Row) -> bool:
    """Whether the try that wrote a row of the ledger may have changed the sinks: the first epoch makes them."""
    return row.kind == "commit" or _is_news(row)


def _is_news(row: Row) -> bool:
    """A backfill counts from its intent on: another run may have ended what a failed one began."""
    return row.kind == "backfill" or changes_sinks(row)


def _extra(rule: Rule, head: Head, epochs: Sequence[Ended], table: str) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "generation": head.generation,
        "epoch": head.epoch,
        "epochs": len(epochs),
        "rows": sum(epoch.written.get(table, 0) for epoch in epochs),
        "watermark": iso(head.watermark, zoned(rule, head)),
    }
