"""Reports what a run did: metrics (StatsD, OpenTelemetry), log lines, and asset events of its sinks."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.observability import stats

from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.protocol.places import name_at
from floodmark.core.protocol.tally import Ended, ended, summed
from floodmark.core.rules.kinds import tables_written
from floodmark.core.text.addresses import location
from floodmark.views.formats import iso
from floodmark_airflow.assets import asset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from airflow.sdk.types import OutletEventAccessorsProtocol

    from floodmark.core.lifecycle.freshness import Fresh
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.protocol.records.rows import Row
    from floodmark.core.rules.rule import Rule

PREFIX = "floodmark"
ATTEMPT = re.compile(r"\.try\d+$")  # the ledger's name of a try of an Airflow run


def done_since(rule: Rule, home: Path, seq: int | None) -> tuple[Head | None, list[Ended]]:
    """The rule's head, and the epochs that ended after row `seq` of its ledger (None: none). Raises FloodmarkError."""
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    ledger = LedgerReader.load(Home(home, rule.rule).ledger)
    if ledger is None or ledger.head is None or seq is None or ledger.head.seq <= seq:
        return (ledger.head if ledger else None), []
    return ledger.head, ended(ledger.newest(ledger.head.seq - seq))


def commits_behind(rule: Rule, head: Head | None) -> int:
    """Commits with data, over all streams, that the ledger has not folded."""
    from floodmark.connectors.ports.registry import sources

    lines = head.lines if head else {}
    read = ((source, lines[name]) for name, source in sources(rule).items() if name in lines)
    return sum(source.backlog(line, rule.rebuild).amount for source, line in read)


def watermark_age(rule: Rule, head: Head, now: datetime) -> float | None:
    """Age of the watermark in seconds, by the clock of the rule's event times; None before the first watermark."""
    if head.watermark is None:
        return None
    return (micros_of(now, rule, zoned(rule, head)) - head.watermark) / 1e6


def measure(rule: str, age: float | None, behind: int, epochs: Sequence[Ended]) -> None:
    """Send metrics to StatsD or OpenTelemetry, if Airflow is configured for one. `age`: the watermark's.

    Counters are also sent if they are 0: Prometheus does not count the first value of a counter as an increase.
    """
    _send(stats.gauge, rule, "lag_commits", behind)
    if age is not None:
        _send(stats.gauge, rule, "watermark_age_seconds", round(age, 3))
    for epoch in epochs:
        if epoch.seconds is not None:
            _send(stats.timing, rule, "epoch_duration", epoch.seconds * 1000)
    for name, count in {"epochs": len(epochs), **_rows(epochs)}.items():
        _send(stats.incr, rule, name, count)


def _rows(epochs: Sequence[Ended]) -> dict[str, int]:
    return {f"rows_{name}": count for name, count in summed(epochs).items()}


def _send(how: Callable[..., None], rule: str, name: str, value: float) -> None:
    """Send a metric twice: with the rule as a tag, and in the name, for a StatsD without tags."""
    how(f"{PREFIX}.{name}", value, tags={"rule": rule})
    how(f"{PREFIX}.rule.{rule}.{name}", value)


def log_epochs(log: Any, rule: str, epochs: Sequence[Ended]) -> None:
    """One line for each epoch, with its facts as fields of Airflow's structured logs."""
    for epoch in epochs:
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


def _tables(rule: Rule) -> list[str]:
    """Addresses of the sinks that are assets."""
    return [str(sink.address) for sink in tables_written(rule)]


def newest_event(address: str) -> datetime | None:
    """Time of the last asset event of a sink; None: never. Airflow answers, through the task's supervisor."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    told = asset(address)
    events = InletEventsAccessor(told.name, told.uri).ascending(False).limit(1)
    return events[0].timestamp if len(events) else None


def unreported_commits(rule: Rule, rows: Sequence[Row]) -> list[Row]:
    """Among some rows of the ledger, the commits of Airflow runs since the last asset event of the rule's sinks.

    They are from failed runs, because a successful run sends an event. The command line sends none. An Airflow without
    any event may be new, with another database: then nobody has missed any.
    """
    commits = [row for row in rows if row.kind == "commit" and row.epoch > 0 and ATTEMPT.search(row.run)]
    addresses = _tables(rule) if commits else []
    times = [at for at in map(newest_event, addresses) if at is not None]
    return [row for row in commits if times and datetime.fromisoformat(row.at) > min(times)]


def _extra(rule: Rule, head: Head, epochs: Sequence[Ended], table: str) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "generation": head.generation,
        "epoch": head.epoch,
        "epochs": len(epochs),
        "rows": sum(epoch.written.get(table, 0) for epoch in epochs),
        "watermark": iso(head.watermark, zoned(rule, head)),
    }
