"""The spark-submit of rules: its options, its exit codes, and killing it."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from floodmark.core.application import sparkconf
from floodmark.core.application.failure import ending_in
from floodmark.errors import Final, FloodmarkError, Refused, exit_code, message
from floodmark_airflow import settings
from floodmark_airflow.lineage import tables
from floodmark_airflow.tasks import connections as airflow_connections
from floodmark_airflow.tasks.processtree import kill_tree
from floodmark_airflow.tasks.scratch import scratch
from floodmark_airflow.tries import run_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset, Connection, Context

    from floodmark.core.rules.rule import SparkSettings

CONNECTION = "spark_default"
LOCAL = "local[*]"  # where Spark runs if no connection says so
KUBERNETES = "apache-airflow-providers-cncf-kubernetes"
HOPELESS = {Refused.exit_code: "refused", Final.exit_code: "failed permanently"}
# spark-submit has separate options for these two.
BY_OPTION = ("spark.jars", "spark.driver.memory")


class RuleSubmitHook(SparkSubmitHook):
    """Interprets a run's exit code, and kills all its processes. `printed_code`: the exit code that the job itself
    printed.

    Only that code is certain to be the job's: Python also exits with 2 if it finds no file, a JVM with 3 if it is out
    of memory.
    """

    def __init__(self, *, env_vars: Mapping[str, str], secrets: Mapping[str, str] | None = None, **kwargs: Any):
        """`secrets`: more variables, which no command line may show."""
        super().__init__(env_vars=dict(env_vars), **kwargs)
        self.printed_code: int | None = None
        # The connection says where Spark runs; without this variable, the job's own default would apply.
        self._env_vars = {**env_vars, "FLOODMARK_MASTER": str(self._connection["master"])}
        # Also for Kubernetes, where the provider passes variables only to a driver in a pod.
        self._env, self._secrets = self._env_vars, dict(secrets or {})

    def _resolve_connection(self) -> dict[str, Any]:
        """The provider's, which would take yarn if there is no connection; Floodmark takes this machine."""
        resolved: dict[str, Any] = super()._resolve_connection()
        return {**resolved, "master": LOCAL} if spark_connection() is None else resolved

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        self._env = {**(self._env or {}), **self._secrets}  # the provider has just set it to `env_vars`
        return command

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run to the end. Raises AirflowFailException if the exit code says that a retry can't help."""
        try:
            return super().submit(application, **kwargs)
        except AirflowException as fault:
            code = self._submit_sp.returncode if self._submit_sp else None
            if code in HOPELESS and code == self.printed_code:
                raise AirflowFailException(
                    f"the run {HOPELESS[code]} (exit code {code}); no retry would help.{self._submit_log_tail}"
                ) from fault
            raise

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._without_exit_code(itr))

    def _without_exit_code(self, lines: Iterator[str]) -> Iterator[str]:
        """Pass on all lines but the one for this hook, so that the last line shown is the job's last message."""
        for line in lines:
            code = ending_in(line)
            if code is None:
                yield line
            else:
                self.printed_code = code

    def on_kill(self) -> None:
        """Kill spark-submit, JVM, driver and workers. Airflow kills this task's process group 5 s after this call."""
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            self.log.info("killed the run's processes %s", kill_tree(self._submit_sp.pid))
        super().on_kill()


class SubmitOperator(SparkSubmitOperator):
    """Base of operators that start a Spark application for rules.

    `about`: a part of its name; `connections`: the names of those that the rules name; `inputs`: the tables that they
    read, of which Airflow's inlets have some alone.

    No field holds text of a rule file as a template, as Jinja in it could read Airflow's connections and variables.
    """

    template_fields = ("application_args",)

    def __init__(
        self,
        *,
        spark: SparkSettings,
        about: str,
        connections: Collection[str],
        inputs: Sequence[Asset] = (),
        **kwargs: Any,
    ):
        super().__init__(
            conn_id=CONNECTION,
            application=str(settings.APPLICATION),
            application_args=_arguments(),
            name=f"floodmark {about}",
            **spark_options(spark),
            durable=False,  # the ledger holds the state; Airflow's own would treat a cleared task as done
            **kwargs,
        )
        self.spark, self.connections, self.inputs = spark, connections, inputs
        self.scratch: dict[str, str] = {}

    def submit(self, context: Context, words: Sequence[str], backlog: int | None = None) -> None:
        """Run to the end. `words`: the first arguments of the command line; `backlog`: bytes of unread input."""
        self.application_args = [*words, *(self.application_args or [])]
        self.conf = spark_options(self.spark, backlog)["conf"]
        check_connection()
        with scratch() as self.scratch:
            try:
                super().execute(context)
            except BaseException:  # such as a timeout: the next reader of the ledger must not read while it runs
                self.on_kill()
                raise

    def get_openlineage_facets_on_start(self) -> OperatorLineage:
        """For OpenLineage's provider, which knows this name: the tables that the task reads and writes."""
        return tables(self.inputs, self.outlets)

    def get_openlineage_facets_on_complete(self, _: object) -> OperatorLineage:
        """The same at the task's end, also after a failure. A group's task then names the sinks that it updated."""
        return tables(self.inputs, self.outlets)

    @property
    def ended(self) -> bool:
        """Whether the job exited by itself, successfully or not: then its report is complete."""
        return isinstance(self._hook, RuleSubmitHook) and self._hook.printed_code is not None

    def on_kill(self) -> None:
        if self._hook is not None:  # creating one here would look up the connection while being killed
            super().on_kill()

    def _get_hook(self) -> RuleSubmitHook:
        with translated():
            secrets = airflow_connections.environment(self.connections)
        return RuleSubmitHook(
            env_vars={**environment(), **self.scratch},
            secrets=secrets,
            conf=self.conf,
            conn_id=self._conn_id,
            jars=self.jars,
            driver_memory=self._driver_memory,
            name=self.name,
            application_args=self.application_args,
        )


@contextmanager
def translated() -> Iterator[None]:
    """Translate errors of Floodmark, disks and stores into Airflow's: with retries, or without if no retry can help."""
    try:
        yield
    except (FloodmarkError, OSError) as fault:
        kind = AirflowFailException if exit_code(fault) in HOPELESS else AirflowException
        raise kind(message(fault)).with_traceback(fault.__traceback__) from None  # the cause may hold secrets


def spark_connection() -> Connection | None:
    """The connection; None if Airflow has none. Raises AirflowException if it is set in a form that Airflow can't
    read."""
    try:
        return BaseHook.get_connection(CONNECTION)
    except AirflowNotFoundException as fault:
        variable = f"AIRFLOW_CONN_{CONNECTION.upper()}"
        if os.environ.get(variable):
            raise AirflowException(
                f"{variable} cannot be read as a connection: write it as JSON, "
                f'{{"conn_type": "spark", "host": "{LOCAL}"}}'
            ) from fault
        return None


def check_connection() -> None:
    """Raise if the provider's hook would start Spark in a way that Floodmark can't follow."""
    connection = spark_connection()
    if connection is None:
        return
    mode = connection.extra_dejson.get("deploy-mode")
    if mode not in (None, "", "client"):
        raise AirflowFailException(
            f"connection {CONNECTION}: expected deploy-mode client, or none, found {mode!r}: the task would not learn "
            "how the run ends"
        )
    check_kubernetes(str(connection.host or ""))


def check_kubernetes(master: str) -> None:
    """Raise if the provider's hook would fail at its first use, for lack of a package that it doesn't require."""
    if "k8s" not in master:
        return
    try:
        import_module("airflow.providers.cncf.kubernetes.kube_client")
    except ImportError as fault:
        raise AirflowFailException(
            f"connection {CONNECTION}: {master} needs the Python package {KUBERNETES} next to Airflow, found none "
            f"({fault}): install it in the version that Airflow's constraints name"
        ) from fault


def _arguments() -> list[str]:
    return [
        *("--rules", str(settings.rules_folder())),
        *("--home", str(settings.home_folder())),
        *("--run-id", run_name("{{ run_id }}", "{{ ti.try_number }}")),
    ]


def spark_options(spark: SparkSettings, backlog: int | None = None) -> dict[str, Any]:
    """The operator's arguments for the static settings of a rule's application; `backlog`: bytes of unread input."""
    conf = sparkconf.application_conf(spark.driver_memory, spark.shuffle_partitions, spark.conf, backlog)
    return {
        "jars": conf["spark.jars"],
        "driver_memory": conf["spark.driver.memory"],
        "conf": {key: value for key, value in conf.items() if key not in BY_OPTION},
    }


def environment() -> dict[str, str]:
    """The environment variables of the job, besides those inherited from Airflow."""
    return {
        **_path(),
        "FLOODMARK_RULES": str(settings.rules_folder()),
        "FLOODMARK_HOME": str(settings.home_folder()),
        # The job can import all that Airflow's processes can: classes of rules, modules that settings name.
        "PYTHONPATH": os.pathsep.join(filter(None, (str(settings.JOBS), os.environ.get("PYTHONPATH")))),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
    }


def _path() -> dict[str, str]:
    """PATH with the spark-submit beside this Python, if there is none on PATH: Airflow may run without its environment
    being activated."""
    if shutil.which("spark-submit"):
        return {}
    return {"PATH": os.pathsep.join(filter(None, (str(Path(sys.executable).parent), os.environ.get("PATH"))))}
