"""The tries of a run: which of them a task goes by, and how the ledger names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


@dataclass(frozen=True)
class Tries:
    """Of one Airflow run, from number `first` on; a name of the ledger's is `in` them or not."""

    run: str
    first: int = 1

    @staticmethod
    def since_clear(context: Context, retries: int) -> Tries:
        """Those since somebody cleared the task, if anybody did: the task is to do its work once more.

        A clear gives it all its `retries` again, by the limit `max_tries` alone.
        """
        cleared = context["dag_run"].clear_number
        first = context["ti"].max_tries - retries + 1 if cleared else 1
        # The file may say fewer retries than it did then; this very try is one of them whatever it says.
        return Tries(context["run_id"], max(1, min(first, context["ti"].try_number)))

    def __contains__(self, name: str) -> bool:
        run, _, attempt = name.rpartition(run_name("", ""))
        return run == self.run and attempt.isdecimal() and int(attempt) >= self.first


def run_name(run: str, attempt: str) -> str:
    """How the ledger names one try of an Airflow run."""
    return f"{run}.try{attempt}"
