"""The tries of an Airflow run: which of them a task considers, and their names in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context

    from floodmark.core.protocol.records.rows import Row

CLOCKS = timedelta(minutes=1)  # how far the clocks of two machines may be apart


@dataclass(frozen=True)
class Tries:
    """The tries of one Airflow run, from number `first` on. `name in tries` checks a name in the ledger.

    `since`: when the run started; None: unknown. A run that was deleted and created again has the names of the old one.
    """

    run: str
    first: int = 1
    since: datetime | None = None

    @staticmethod
    def since_clear(context: Context, retries: int) -> Tries:
        """The tries since the last clear of the task, if there was one: after a clear, the task repeats its work.

        A clear grants all `retries` again, by raising `max_tries` only. A run that had ended starts anew by it.
        """
        cleared = context["dag_run"].clear_number
        first = context["ti"].max_tries - retries + 1 if cleared else 1
        # The file may say fewer retries now than at the clear; the current try is always included.
        since = getattr(context["dag_run"], "start_date", None)
        return Tries(context["run_id"], max(1, min(first, context["ti"].try_number)), since)

    def wrote(self, row: Row) -> bool:
        """Whether one of them has written this row of the ledger."""
        is_older = self.since is not None and datetime.fromisoformat(row.at) < self.since - CLOCKS
        return row.run in self and not is_older

    def __contains__(self, name: str) -> bool:
        run, _, attempt = name.rpartition(run_name("", ""))
        return run == self.run and attempt.isdecimal() and int(attempt) >= self.first


def not_before(context: Context) -> datetime | None:
    """A time before which no try of the run has written a row, by whatever clock; None: unknown.

    Airflow starts no run before its `run_after`, and a clear does not change that. A run of Airflow's own backfill may
    have one long ago: unless it was cleared, its start is closer.
    """
    run = context.get("dag_run")
    started = None if getattr(run, "clear_number", None) else getattr(run, "start_date", None)
    found = [at for at in (getattr(run, "run_after", None), started) if at is not None]
    return max(found) - CLOCKS if found else None


def run_name(run: str, attempt: str) -> str:
    """The ledger's name of one try of an Airflow run."""
    return f"{run}.try{attempt}"
