"""The priority of a rule's waiting runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy
from airflow.utils.types import DagRunType

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

LIVE_FIRST = "floodmark_airflow.tasks.priority.LiveFirst"  # the name in a task; Airflow looks it up among the plugins'


class LiveFirst(PriorityWeightStrategy):
    """Runs of Airflow's own backfill come after all others.

    Among waiting tasks of equal weight, Airflow starts the one with the oldest logical date. Without this strategy,
    scheduled runs would wait until a backfill has ended.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        return 1 if DagRunType.from_run_id(ti.run_id) is DagRunType.BACKFILL_JOB else 2
