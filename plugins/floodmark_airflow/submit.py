"""The spark-submit of a rule: what it is started with, what its exit code means, and how it is ended."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from floodmark.core import sparkconf
from floodmark.errors import Final, Refused
from floodmark_airflow import settings
from floodmark_airflow.processes import kill_tree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from floodmark.core.rules import SparkSettings

HOPELESS = {Refused.exit_code: "refused", Final.exit_code: "failed for good"}
# spark-submit has options of its own for these two.
BY_OPTION = ("spark.jars", "spark.driver.memory")


class RuleSubmitHook(SparkSubmitHook):
    """Knows a run's exit codes, and kills all of it."""

    def __init__(self, *, env_vars: Mapping[str, str], **kwargs: Any):
        super().__init__(env_vars=dict(env_vars), **kwargs)
        # The connection says where Spark runs; without this the job's own default would win.
        self._env_vars = {**env_vars, "FLOODMARK_MASTER": str(self._connection["master"])}

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run to the end. Raises AirflowFailException where the exit code says that a retry cannot help."""
        try:
            return super().submit(application, **kwargs)
        except AirflowException as fault:
            code = self._submit_sp.returncode if self._submit_sp else None
            if code in HOPELESS:
                raise AirflowFailException(
                    f"the run {HOPELESS[code]} (exit code {code}); no retry would help.{self._submit_log_tail}"
                ) from fault
            raise

    def on_kill(self) -> None:
        """End spark-submit, JVM, driver and workers. Airflow kills this task's own group 5 s after it asks."""
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            self.log.info("killed the run's processes %s", kill_tree(self._submit_sp.pid))
        super().on_kill()


def spark_options(spark: SparkSettings, backlog: int | None = None) -> dict[str, Any]:
    """The operator's arguments for the static settings of a rule's application; `backlog`: bytes of input that wait."""
    conf = sparkconf.application_conf(spark.driver_memory, spark.shuffle_partitions, spark.conf, backlog)
    return {
        "jars": conf["spark.jars"],
        "driver_memory": conf["spark.driver.memory"],
        "conf": {key: value for key, value in conf.items() if key not in BY_OPTION},
    }


def environment() -> dict[str, str]:
    """What the job's processes need beyond what they inherit from Airflow's."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    return {
        "FLOODMARK_RULES": str(settings.rules_folder()),
        "FLOODMARK_HOME": str(settings.home_folder()),
        "PYTHONPATH": str(settings.JOBS),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", python),
    }
