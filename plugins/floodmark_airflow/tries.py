"""The tries of an Airflow run: which of them a task considers, and their names in the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


@dataclass(frozen=True)
class Tries:
    """The tries of one Airflow run, from number `first` on. `name in tries` checks a name in the ledger."""

    run: str
    first: int = 1

    @staticmethod
    def since_clear(context: Context, retries: int) -> Tries:
        """The tries since the last clear of the task, if there was one: after a clear, the task repeats its work.

        A clear grants all `retries` again, by raising `max_tries` only.
        """
        cleared = context["dag_run"].clear_number
        first = context["ti"].max_tries - retries + 1 if cleared else 1
        # The file may say fewer retries now than at the clear; the current try is always included.
        return Tries(context["run_id"], max(1, min(first, context["ti"].try_number)))

    def __contains__(self, name: str) -> bool:
        run, _, attempt = name.rpartition(run_name("", ""))
        return run == self.run and attempt.isdecimal() and int(attempt) >= self.first


def run_name(run: str, attempt: str) -> str:
    """The ledger's name of one try of an Airflow run."""
    return f"{run}.try{attempt}"
