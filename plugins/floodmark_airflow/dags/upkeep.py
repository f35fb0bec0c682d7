"""The DAG that maintains the tables of all rules, each as often as its rule says, without a JVM."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.core.rules.rule import Rule, load_rules
from floodmark_airflow import settings
from floodmark_airflow.dags.dag_factory import BACKOFF, BEGIN, TAG, owners
from floodmark_airflow.naming import upkeep_id
from floodmark_airflow.tasks.failures import on_failure
from floodmark_airflow.tasks.submit import translated
from floodmark_airflow.tries import run_name
from floodmark_airflow.triggers.forms import refuse_form

if TYPE_CHECKING:
    from airflow.sdk import Context

ABOUT = """\
Joins small files of the rules' tables, removes files that no version needs and cuts logs, as `floodmark maintain` does.
Each rule has a task, which works if the rule's `cleanup: {every: ...}` has passed. While a run holds the rule, the
task is retried later."""
# Arguments of each task. A run may hold its rule for hours.
PATIENCE: dict[str, Any] = {
    "retries": 8,
    "retry_delay": timedelta(minutes=1),
    "retry_exponential_backoff": BACKOFF,
    "max_retry_delay": timedelta(hours=1),
    "execution_timeout": timedelta(hours=12),
    "max_active_tis_per_dag": 1,
    "pre_execute": refuse_form,
}


class MaintainOperator(BaseOperator):
    """Maintains one rule's tables, if that is due."""

    def __init__(self, *, rule: Rule, **kwargs: Any):
        super().__init__(**kwargs)
        self.rule = rule

    def execute(self, context: Context) -> None:
        run = run_name(context["run_id"], str(context["ti"].try_number))
        with translated():
            self._maintain(run)

    def _maintain(self, run: str) -> None:
        from floodmark.core.lifecycle.cleanup import is_due
        from floodmark.ledger.home import Home
        from floodmark.ledger.ledger import Ledger, LedgerReader
        from floodmark.ledger.locking import held
        from floodmark.views.needs import maintenance_of

        name, root = self.rule.rule, settings.home_folder()
        home = Home(root, name)
        reader = LedgerReader.load(home.ledger)
        if reader is None or reader.head is None:
            raise AirflowSkipException(f"rule {name} has not run yet")
        if not is_due(reader.head.maintained, self.rule.cleanup, datetime.now(UTC)):
            raise AirflowSkipException(f"not due: last maintained {reader.head.maintained}")
        rules, _ = load_rules(settings.rules_folder(), os.environ)
        upkeep = maintenance_of(name, reader.head, list(rules.values()), root)
        for table, why in upkeep.preview(reader, home)[1].items():
            self.log.info("rule %s: not maintained: %s: %s", name, table, why)
        with held(home.lock, run):
            upkeep.maintain(Ledger.open(home.ledger, run), home, lambda said: self.log.info("rule %s: %s", name, said))


def build_upkeep() -> DAG | None:
    """The DAG of all valid rules; None if there are none. Other DAGs report invalid ones."""
    folder = settings.rules_folder()
    rules = load_rules(folder, os.environ, lambda rule: True)[0] if folder.is_dir() else {}
    if not rules:
        return None
    with DAG(
        upkeep_id(),
        description="Joins small files, and removes files that nobody needs",
        doc_md=ABOUT,
        schedule=timedelta(microseconds=min(rule.cleanup.every_us for rule in rules.values())),
        start_date=BEGIN,
        catchup=False,
        # It removes files, so somebody has to unpause it, even if other new DAGs start unpaused.
        is_paused_upon_creation=True,
        max_active_runs=1,
        auto_register=False,
        tags={TAG},
    ) as dag:
        shown = owners(rule.airflow for rule in rules.values())
        for name, rule in rules.items():
            owner = rule.airflow.owner if rule.airflow.owner in shown else shown[-1]
            MaintainOperator(task_id=name, rule=rule, owner=owner, on_failure_callback=on_failure(), **PATIENCE)
    return dag
