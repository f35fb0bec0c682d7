"""Backfills under Airflow: by a manual run, or by Airflow's own backfill.

A run of Airflow's own backfill covers the time from its logical date to the next tick of the schedule. It takes the
windows that start in that time. So the runs of a backfill take each window once, whatever the schedule, as long as it
is not edited: Airflow does not tell a run with which schedule it was created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from floodmark.core.lifecycle.backfills import EVERYTHING, requested_interval, requested_whole, starting_in
from floodmark.core.lifecycle.changes import same_results
from floodmark.core.lifecycle.zones import micros_of, zoned
from floodmark.core.rules.file.schedule import NOT_CRON, UPSTREAM
from floodmark.views.formats import iso
from floodmark_airflow.triggers.fields import Choice, Field, Flag, Params, asks
from floodmark_airflow.triggers.operations import Operation, ledger_of

if TYPE_CHECKING:
    from uuid import UUID

    from airflow.sdk.types import RuntimeTaskInstanceProtocol

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark_airflow.tries import Tries


BEFORE = timedelta(days=1)  # where clocks change, a tick depends on those before it


class Time(Field):
    """A time; an option of the command has its name."""

    schema: ClassVar = {"format": "date-time"}

    def read(self, rule: Rule, params: Params) -> datetime | None:
        """None where nothing is written. A time has to have microseconds, with a zone and without: which of them
        counts is known to the ledger.
        """
        if not params.get(self.name):
            return None
        try:
            at = datetime.fromisoformat(str(params.get(self.name)))
            for with_zone in (True, False):
                micros_of(at, rule, with_zone)
        except (ValueError, OverflowError):
            raise AirflowFailException(
                f"{self.name}: expected a time, such as 2001-01-31T00:00:00Z, found {params.get(self.name)!r}"
            ) from None
        return at

    def words(self, value: datetime | None) -> list[str]:
        return [] if value is None else [f"--{self.name}", value.isoformat()]


class Joined(Choice):
    """Which versions of lookup tables."""

    choices = ("now", "then")


@dataclass(frozen=True, kw_only=True)
class Backfill(Operation):
    """Recomputes [begin, end) of event time, or everything.

    since: of Airflow's own backfill, where the run before ends by today's schedule; None: unknown.
    """

    name: ClassVar = "backfill"
    about: ClassVar = "recompute a past interval, late rows included, and replace it in the sinks"
    begin: datetime | None = asks(Time("from", "the start of the interval (inclusive); needed unless `all`"))
    end: datetime | None = asks(Time("to", "the end of the interval (exclusive); needed unless `all`"))
    everything: bool = asks(Flag("all", "recompute all results, in place of an interval"))
    lookups: str | None = asks(
        Joined("lookups", "read lookup tables as they are now (default), or then: as each epoch read them")
    )
    since: datetime | None = None

    def arguments(self) -> list[str]:
        return [*([] if self.everything else ["--align"]), *super().arguments()]

    def preview(self, rule: Rule) -> str:
        from floodmark.connectors.places import head_now

        ledger = ledger_of(rule)
        head = head_now(ledger.begun, rule, ledger.id)
        if self.everything and self.begin is None and self.end is None:
            requested_whole(rule, head, self.then)
            return f"recomputing everything{self._joined}"
        self._check_bounds()
        self._check_nothing_between(rule, head)
        begin, end = self._starts(rule, head)
        if begin == end or self._set_back(begin, end):
            raise AirflowSkipException(f"no window starts from {self.begin} to before {self.end}")
        zone = zoned(rule, head)
        requested_interval(rule, head, begin, end, lambda at: str(iso(at, zone)), self.then)
        return f"recomputing {iso(begin, zone)} to {iso(end, zone)}{self._joined}"

    @property
    def then(self) -> bool:
        """Whether lookup tables are read as each epoch read them."""
        return self.lookups == "then"

    @property
    def _joined(self) -> str:
        return ", with lookup tables as each epoch read them" if self.then else ""

    def _check_bounds(self) -> None:
        given = [name for name, at in (("from", self.begin), ("to", self.end), ("all", self.everything)) if at]
        if given != ["from", "to"]:
            raise AirflowFailException(
                f"expected from and to, or all alone, found {', '.join(given) or 'none of them'}"
            )
        if self.begin == self.end:
            raise AirflowFailException(f"expected from before to, found {self.begin} for both")

    def _check_nothing_between(self, rule: Rule, head: Head) -> None:
        """Raise AirflowFailException if windows start after the run before has ended, and before this one begins."""
        if self.since is None or self.begin is None or self.since >= self.begin:
            return
        begin, end = replace(self, begin=self.since, end=self.begin)._starts(rule, head)
        if begin < end:
            raise _edited(rule, f"the run before to end at {self.begin}", str(self.since))

    def _set_back(self, begin: int, end: int) -> bool:
        """Whether it is the hour in which clocks are set back, for a rule whose event times are local times."""
        assert self.begin is not None and self.end is not None
        return begin > end and bool(self.begin.tzinfo and self.end.tzinfo) and self.begin < self.end

    def _starts(self, rule: Rule, head: Head) -> tuple[int, int]:
        """The interval of results to replace, in microseconds; equal bounds if no window starts in it."""
        if self.begin is None or self.end is None:
            return EVERYTHING.begin, EVERYTHING.end
        begin, end = (micros_of(at, rule, zoned(rule, head)) for at in (self.begin, self.end))
        return starting_in(rule, begin, end) if begin < end else (begin, end)

    def done(self, rule: Rule, tries: Tries) -> str | None:
        """Only a backfill of all of this interval by the current rule, with the values of its variables, counts: a try
        may also have finished another one.

        One that others began counts if it has joined what a new one would join. One of sessions may be of a wider
        interval.
        """
        ledger = ledger_of(rule)
        rows = [row for row in ledger.rows if row.generation == ledger.begun.generation]
        begun = [(tries.wrote(row), json.loads(row.body)) for row in rows if row.kind == "backfill"]
        mine = {one["number"] for ours, one in begun if ours}  # another run may have finished them
        done = [(tries.wrote(row), json.loads(row.body)["number"]) for row in rows if row.kind == "backfilled"]
        ended = {number for ours, number in done if ours or number in mine}
        begin, end = self._starts(rule, ledger.begun)
        found = [
            one["number"]
            for ours, one in begun
            if one["number"] in ended
            and "rewrites" not in one  # a correction is no backfill that somebody asked for
            and (one["rule_hash"], bool(one.get("then"))) == (rule.hash, self.then)
            and same_results(rule.from_json(one["rule"]), rule)
            and one["begin"] <= begin
            and end <= one["end"]
            and (ours or self._joins_alike(rule, one))
        ]
        return f"backfill {found[-1]} is committed" if found else None

    def _joins_alike(self, rule: Rule, intent: Mapping[str, Any]) -> bool:
        """Whether lookup tables are still as a backfill has read them, unless it reads them as each epoch did."""
        from floodmark.connectors.delta.lookups import pinned_now

        read = intent.get("lookups", {})
        return self.then or read == {name: one.model_dump() for name, one in pinned_now(rule).items()}


def of_airflow(rule: Rule, at: datetime, dry_run: bool = False, before: datetime | None = None) -> Backfill:
    """The operation of a run of Airflow's own backfill with this logical date. before: that of the run before."""
    since = None if before is None else _after(rule, before)
    end = _after(rule, at)
    if end is None:
        raise _edited(rule, f"a time of the schedule {rule.schedule}", str(at))
    return Backfill(begin=_plain(at), end=end, everything=False, lookups=None, dry_run=dry_run, since=since)


def run_before(ti: RuntimeTaskInstanceProtocol) -> datetime | None:
    """The logical date of the run before in the same backfill; None: Airflow does not tell.

    Airflow does not say of which backfill a run is. But a DAG has one at a time: a run is of the same backfill if it is
    not done, or was begun after this one was created.
    """
    found = ti.get_previous_dagrun()
    if found is None or str(getattr(found.run_type, "value", found.run_type)) != "backfill":
        return None
    is_same = found.end_date is None or (found.start_date is not None and found.start_date >= created_at(ti.id))
    return found.logical_date if is_same else None


def created_at(ti: UUID) -> datetime:
    """When a task's try was created, which is in its id (UUID 7). The first try is created with its run."""
    return datetime.fromtimestamp((ti.int >> 80) / 1000, UTC)


def _plain(at: datetime) -> datetime:
    """A standard datetime: Airflow's dates are pendulum's, whose arithmetic differs."""
    return datetime.fromisoformat(at.isoformat())


def _edited(rule: Rule, expected: str, found: str) -> AirflowFailException:
    return AirflowFailException(
        f"rule {rule.rule}: expected {expected}, found {found}: the schedule was edited after this backfill began, so "
        "its runs no longer cover each interval once. Begin a new backfill"
    )


def _after(rule: Rule, at: datetime) -> datetime | None:
    """The next tick by the same code that Airflow uses for run dates, so that runs leave no gap; None: `at` is none."""
    from airflow.timetables.trigger import CronTriggerTimetable
    from pendulum import instance

    if not isinstance(rule.schedule, str) or rule.schedule in (UPSTREAM, *NOT_CRON):
        found = rule.schedule if isinstance(rule.schedule, str) else "none"
        raise AirflowFailException(
            f"rule {rule.rule}: expected a cron schedule for Airflow's own backfill, found {found}. Backfill the "
            "interval by the form, with `operation: backfill`"
        )
    table = CronTriggerTimetable(rule.schedule, timezone=rule.timezone)
    tick = instance(at) - BEFORE
    while tick < at:
        tick = table._get_next(tick)
    return _plain(table._get_next(instance(at))) if tick == at else None
