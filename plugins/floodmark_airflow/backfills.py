"""Backfills under Airflow: the form of a manual run, and what a run is to compute again.

A run of Airflow's own backfill covers the time from its logical date to the next tick of the schedule. Of windows it
takes those that start in that time, so the runs of a backfill take each window once, however schedule and windows lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark_airflow import settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.core.rules import Rule

RUN, BACKFILL = "run", "backfill"


@dataclass(frozen=True)
class Interval:
    """[begin, end) of event time. `dry_run`: it is only to be said what would change."""

    begin: datetime
    end: datetime
    dry_run: bool = False

    @property
    def arguments(self) -> list[str]:
        """Of the command line."""
        dry = ["--dry-run"] if self.dry_run else []
        return ["--from", self.begin.isoformat(), "--to", self.end.isoformat(), "--align", *dry]


def form() -> dict[str, Param]:
    """What is asked for when somebody triggers a rule's DAG by hand; a scheduled run takes the defaults."""
    of_backfill = "Of a backfill: "
    return {
        "operation": Param(
            RUN,
            type="string",
            enum=[RUN, BACKFILL],
            description="run: fold what is new. backfill: compute a past interval again, late rows included, and "
            "replace it in the sinks",
        ),
        "from": Param(None, type=["null", "string"], format="date-time", description=f"{of_backfill}first event time"),
        "to": Param(None, type=["null", "string"], format="date-time", description=f"{of_backfill}first one after"),
        "dry_run": Param(False, type="boolean", description=f"{of_backfill}only log what would change"),
    }


def interval_of(rule: Rule, context: Mapping[str, Any]) -> Interval | None:
    """What a run is to compute again; None for one that folds what is new. Raises AirflowFailException."""
    params, run = context.get("params") or {}, context.get("dag_run")
    if params.get("operation") == BACKFILL:
        return Interval(_time(params, "from"), _time(params, "to"), bool(params.get("dry_run")))
    if run is None or str(getattr(run.run_type, "value", run.run_type)) != BACKFILL:
        return None
    return Interval(_plain(run.logical_date), _plain(_next_tick(rule, run.logical_date)))


def _time(params: Mapping[str, Any], name: str) -> datetime:
    try:
        return datetime.fromisoformat(str(params.get(name)))
    except ValueError:
        found = repr(params.get(name))
        raise AirflowFailException(f"{name}: expected a time, such as 2001-01-31T00:00:00Z, found {found}") from None


def _plain(at: datetime) -> datetime:
    """Airflow's dates are pendulum's, which reckon in their own way."""
    return datetime.fromisoformat(at.isoformat())


def _next_tick(rule: Rule, at: datetime) -> datetime:
    """By the very code that made the dates of the runs, so that no time lies between two of them."""
    from airflow.timetables.trigger import CronTriggerTimetable
    from pendulum import instance

    if not isinstance(rule.schedule, str):
        raise AirflowFailException(f"rule {rule.rule}: expected a cron schedule for Airflow's own backfill, found none")
    return CronTriggerTimetable(rule.schedule, timezone=rule.timezone)._get_next(instance(at))


def starts_in(rule: Rule, asked: Interval) -> tuple[int, int] | None:
    """The interval of results that will be replaced, in microseconds; None where no window starts in it.

    Raises what `floodmark backfill` refuses with, before any JVM is started.
    """
    from floodmark.core.backfills import asked_for, starting_in
    from floodmark.core.zones import micros_of, zoned
    from floodmark.errors import Refused
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader
    from floodmark.views.formats import iso

    ledger = LedgerReader.load(Home(settings.home_folder(), rule.rule).ledger)
    if ledger is None or ledger.head is None:
        raise Refused(f"rule {rule.rule} has not run yet: there is nothing to compute again")
    zone = zoned(rule, ledger.head)
    begin, end = (micros_of(at, rule, zone) for at in (asked.begin, asked.end))
    if begin < end:
        begin, end = starting_in(rule, begin, end)
        if begin == end:
            return None
    asked_for(rule, ledger.head, begin, end, lambda at: str(iso(at, zone)))
    return begin, end


def check_done(rule: Rule, span: tuple[int, int], run: str) -> int:
    """The number of the backfill of this interval that the run of this name has committed; AirflowException: none."""
    import json

    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    ledger = LedgerReader.load(Home(settings.home_folder(), rule.rule).ledger)
    rows = ledger.rows if ledger else []
    ours = [json.loads(row.body)["number"] for row in rows if (row.kind, row.run) == ("backfilled", run)]
    known = ledger.head.backfills if ledger and ledger.head else {}
    found = [number for number in ours if number in known and (known[number].begin, known[number].end) == span]
    if not found:
        raise AirflowException(f"rule {rule.rule}: the run ended, yet its ledger has no backfill of its interval by it")
    return int(found[-1])
