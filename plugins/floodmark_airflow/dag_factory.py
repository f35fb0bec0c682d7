"""From rules to DAGs. A rule is a DAG of one task; a bad rule file takes no other DAG with it, and keeps its own."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronTriggerTimetable
from croniter import croniter  # type: ignore[import-untyped]

from floodmark.core.rules import AssetSchedule, Rule, load_rules
from floodmark.errors import Refused
from floodmark_airflow.about import about, block, code
from floodmark_airflow.assets import asset, inlets, outlets
from floodmark_airflow.failures import on_failure
from floodmark_airflow.forms import form
from floodmark_airflow.naming import broken_dag_id, dag_id
from floodmark_airflow.operators import BrokenRuleOperator, RuleRunOperator
from floodmark_airflow.settings import rules_folder

log = logging.getLogger(__name__)

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)  # fixed, since a moving date would make a new DAG version at every parse
BROKEN_LIMIT = timedelta(minutes=5)  # of a task that only says why it fails
BACKOFF = 2.0  # how much longer each pause is than the one before: what holds a rule up may take its time to end
TAG = "floodmark"
# Airflow's own words for schedules that no cron expression can say.
NOT_CRON = ("@once", "@continuous")


@dataclass(frozen=True)
class Catalog:
    """Every rule file: its DAG where it is sound, else the reason (by file name)."""

    dags: dict[str, DAG]
    errors: dict[str, str]


def load_catalog() -> Catalog:
    """Read the rules folder and build its DAGs. Never raises for a file; raises Refused where there is no folder."""
    rules, errors = load_rules(_existing(rules_folder()), os.environ)
    dags: dict[str, DAG] = {}
    reasons = {file: str(reason) for file, reason in errors.items()}
    for name, rule in rules.items():
        try:
            dags[dag_id(name)] = build(rule)
        except Exception as fault:  # whatever is wrong with one rule, the others keep their DAGs
            reasons[f"{name}.yaml"] = f"{type(fault).__name__}: {fault}"
    return Catalog(dags, reasons)


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise Refused(f"expected a folder of rule files at {folder}: name it with FLOODMARK_RULES")
    return folder


def all_dags(wanted: str | None = None) -> list[DAG]:
    """The DAGs of the sound rules, and for every other rule file one that fails with the reason; or one of them."""
    catalog = load_catalog()
    dags = dict(catalog.dags)
    for file, reason in catalog.errors.items():
        log.error("rule file %s refused: %s", file, reason)
        broken = build_broken(file, reason, set(dags))
        dags[broken.dag_id] = broken
    return [dag for dag in dags.values() if wanted in (None, dag.dag_id)]


def build(rule: Rule) -> DAG:
    """The DAG of a rule. Raises where Airflow refuses the schedule or another setting."""
    with DAG(
        dag_id(rule.rule),
        description=rule.description or None,
        doc_md=about(rule),
        schedule=_schedule(rule),
        start_date=BEGIN,
        catchup=False,
        max_active_runs=1,
        params=form(),
        auto_register=False,  # building a DAG must not make it one of the file that does it: rules_errors builds, too
        tags={TAG, *rule.airflow.tags},
    ) as dag:
        RuleRunOperator(
            task_id="run",
            rule=rule,
            owner=rule.airflow.owner,
            retries=rule.airflow.retries,
            retry_delay=timedelta(microseconds=rule.airflow.retry_delay_us),
            retry_exponential_backoff=BACKOFF,
            max_retry_delay=timedelta(microseconds=rule.airflow.max_retry_delay_us),
            execution_timeout=timedelta(microseconds=rule.airflow.timeout_us),
            on_failure_callback=on_failure(),
            max_active_tis_per_dag=1,  # max_active_runs alone lets a backfill run beside
            inlets=inlets(rule),
            outlets=outlets(rule),
        )
    return dag


def build_broken(file: str, reason: str, taken: set[str]) -> DAG:
    """The unscheduled DAG of a rule file that cannot be used; its id is not one of `taken`."""
    with DAG(
        broken_dag_id(file, taken),
        description=f"{file} cannot be used",
        doc_md=f"{code(file)} cannot be used:\n\n{block('', reason)}",
        schedule=None,
        start_date=BEGIN,
        catchup=False,
        max_active_runs=1,
        auto_register=False,  # building a DAG must not make it one of the file that does it: rules_errors builds, too
        tags={TAG, "broken"},
    ) as dag:
        BrokenRuleOperator(
            task_id="run",
            file=file,
            reason=reason,
            retries=0,
            execution_timeout=BROKEN_LIMIT,
            on_failure_callback=on_failure(),
            max_active_tis_per_dag=1,
        )
    return dag


def _schedule(rule: Rule) -> Any:
    """Cron in the rule's zone, assets, or nothing."""
    schedule = rule.schedule
    if isinstance(schedule, AssetSchedule):
        return [asset(address) for address in schedule.assets]
    if schedule is None or schedule in NOT_CRON:
        return schedule
    if not schedule.startswith("@"):
        croniter(schedule)  # Airflow itself would find a fault only when all DAGs are built
    return CronTriggerTimetable(schedule, timezone=rule.timezone)
