"""Which of a rule's waiting runs works first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.task.priority_strategy import PriorityWeightStrategy
from airflow.utils.types import DagRunType

if TYPE_CHECKING:
    from airflow.models.taskinstance import TaskInstance

LIVE_FIRST = "floodmark_airflow.tasks.priority.LiveFirst"  # as a task names it; Airflow looks it up among the plugins'


class LiveFirst(PriorityWeightStrategy):
    """Runs of Airflow's own backfill come after all others.

    Of tasks of equal weight that wait for the rule, Airflow starts the one with the oldest logical date: without this a
    schedule would stand still until its backfill has ended.
    """

    def get_weight(self, ti: TaskInstance) -> int:
        return 1 if DagRunType.from_run_id(ti.run_id) is DagRunType.BACKFILL_JOB else 2
