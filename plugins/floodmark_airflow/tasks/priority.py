"""The priority of a rule's waiting runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy
from airflow.utils.types import DagRunType

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

OLD = timedelta(days=1)
LIVE_FIRST = "floodmark_airflow.tasks.priority.LiveFirst"  # the name in a task; Airflow looks it up among the plugins'


class LiveFirst(PriorityWeightStrategy):
    """Runs of Airflow's own backfill come after all others, and so do scheduled runs of days ago that it repeats.

    Among waiting tasks of equal weight, Airflow starts the one with the oldest logical date. Without this strategy,
    scheduled runs would wait until a backfill has ended.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        kind = DagRunType.from_run_id(ti.run_id)
        is_repeated = kind is DagRunType.SCHEDULED and _is_old(ti.run_id)
        return 1 if kind is DagRunType.BACKFILL_JOB or is_repeated else 2


def _is_old(run_id: str) -> bool:
    """Whether the date in the name of a scheduled run is long past: a run that is repeated keeps its name."""
    try:
        return datetime.fromisoformat(run_id.partition("__")[2]) < datetime.now(UTC) - OLD
    except (ValueError, TypeError):  # no date, or one without a zone
        return False
