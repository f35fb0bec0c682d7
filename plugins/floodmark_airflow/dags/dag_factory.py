"""Builds DAGs from rules. Each rule has a DAG, and an invalid rule file breaks no DAG but its own.

A group has a scheduled DAG, too; the DAGs of its rules are then for manual runs.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AssetAny, CronTriggerTimetable
from airflow.utils.types import DagRunType
from croniter import croniter  # type: ignore[import-untyped]

from floodmark.core.rules.file.schedule import NOT_CRON, UPSTREAM
from floodmark.core.rules.groups import groups, schedule_of, sources_of
from floodmark.core.rules.kinds import targets
from floodmark.core.rules.rule import AirflowSettings, AssetSchedule, Rule, load_rules
from floodmark.errors import Refused
from floodmark.views.rules.downstream import Reader, readers, readers_of
from floodmark_airflow.assets import asset, inlets, outlets, target_asset, written_by
from floodmark_airflow.dags.about import about, about_group, block, code
from floodmark_airflow.dags.groups import GroupOutcomeOperator, GroupRunOperator
from floodmark_airflow.naming import OUTCOME, RUN, broken_dag_id, dag_id, group_id, relay_id
from floodmark_airflow.settings import rules_folder
from floodmark_airflow.tasks.failures import on_failure
from floodmark_airflow.tasks.operators import BrokenRuleOperator, FreshnessOperator, RelayOperator, RuleRunOperator
from floodmark_airflow.tasks.priority import LIVE_FIRST
from floodmark_airflow.triggers.forms import form, refuse_form

log = logging.getLogger(__name__)

BEGIN = datetime(2020, 1, 1, tzinfo=UTC)  # fixed: a moving date would create a new DAG version at every parse
REPORT_TIMEOUT = timedelta(minutes=5)  # timeout of a task that only reports why something failed
BACKOFF = 2.0  # factor of each pause over the one before: whatever blocks a rule may take long to end
TAG = "floodmark"
OWNERS = 10  # most owners that a DAG names
# Of a group's DAG: a backfill is of one rule. Airflow accepts names, though its annotation requires an enumeration.
RUN_TYPES: Any = tuple(kind.value for kind in DagRunType if kind is not DagRunType.BACKFILL_JOB)


@dataclass(frozen=True)
class Catalog:
    """The DAGs of all valid rule files and of groups; and by file name, the errors of the others.

    `used_ids`: the DAG ids of all valid rules, including those whose DAGs were not built.
    """

    dags: dict[str, DAG]
    errors: dict[str, str]
    used_ids: set[str] = field(default_factory=set)

    def add(self, make: Callable[[], DAG], rules: Sequence[Rule]) -> None:
        """Add the DAG of these rules. An error in it doesn't affect other DAGs."""
        try:
            dag = make()
        except Exception as fault:
            for rule in rules:
                self.dags.pop(dag_id(rule.rule), None)
                self.used_ids.discard(dag_id(rule.rule))
                self.errors[f"{rule.rule}.yaml"] = f"{type(fault).__name__}: {fault}"
        else:
            self.dags[dag.dag_id] = dag


def load_catalog(wanted: str | None = None) -> Catalog:
    """Read the rules folder and build its DAGs. Raises Refused if there is no folder, but never for a file.

    `wanted`: the id of the only DAG to build; with a group's, also the DAGs of its rules. Other rules are read, but not
    checked, unless files conflict.
    """

    def needless(rule: Rule) -> bool:
        return wanted not in (None, dag_id(rule.rule), rule.group and group_id(rule.group))

    rules, errors = load_rules(_existing(rules_folder()), os.environ, needless)
    found = Catalog({}, {file: str(reason) for file, reason in errors.items()}, set(map(dag_id, rules)))
    known, written = readers(rules.values()), written_by(rules.values())
    for rule in rules.values():
        if not needless(rule):
            sinks = [sink.address for sink in rule.sinks if sink.address]
            found.add(partial(build, rule, readers_of(sinks, known, rule.rule), written), [rule])
    for name, members in groups(rules.values()).items():
        built = [rule for rule in members if dag_id(rule.rule) in found.dags]  # the group runs without refused ones
        if built and wanted in (None, group_id(name)):
            found.add(partial(build_group, name, built, written), built)
    return found


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise Refused(f"expected a folder of rule files at {folder}: name it with FLOODMARK_RULES")
    return folder


def all_dags(wanted: str | None = None) -> list[DAG]:
    """The DAGs of valid rules, and for each invalid file one that fails with the reason; or only the DAG `wanted`."""
    catalog = load_catalog(wanted)
    dags = dict(catalog.dags)
    for file, reason in catalog.errors.items():
        log.error("rule file %s refused: %s", file, reason)
        try:
            broken = build_broken(file, reason, {*catalog.used_ids, *dags})
        except Exception:  # the other DAGs stay; Airflow still shows this file's error as an import error
            log.exception("rule file %s has no DAG", file)
        else:
            dags[broken.dag_id] = broken
    return [dag for dag in dags.values() if wanted in (None, dag.dag_id)]


def build(rule: Rule, read_by: Sequence[Reader] = (), written: Collection[str] = ()) -> DAG:
    """The DAG of a rule. `read_by`: readers of its sinks; `written`: as in `inlets`. Raises if Airflow refuses the
    schedule or a setting."""
    with DAG(
        dag_id(rule.rule),
        description=rule.description or None,
        doc_md=about(rule, read_by),
        schedule=None if rule.group else _schedule([rule]),
        start_date=BEGIN,
        catchup=False,
        max_active_runs=1,
        params=form(read_by),
        auto_register=False,  # else every file that builds DAGs would register them: rules_errors builds, too
        tags={TAG, *([group_id(rule.group)] if rule.group else []), *rule.airflow.tags},
    ) as dag:
        run = RuleRunOperator(
            task_id=RUN,
            rule=rule,
            on_failure_callback=on_failure(),
            inlets=inlets(rule, written),
            outlets=outlets(rule),
            **_tried([rule.airflow]),
        )
        shipped = relays(dag.dag_id, rule, _tried([rule.airflow]))
        if shipped:  # they ship whatever became of the run, whose failure the leaf of the DAG has to pass on
            run >> shipped
            [run, *shipped] >> EmptyOperator(task_id=OUTCOME, trigger_rule="none_failed", owner=run.owner)
        if rule.freshness is not None and rule.freshness.on_exceed == "fail":
            run >> FreshnessOperator(
                task_id="freshness",
                rule=rule,
                trigger_rule="none_failed",  # also after a skipped run: missing input may be the cause
                owner=run.owner,
                retries=0,
                execution_timeout=REPORT_TIMEOUT,
                on_failure_callback=on_failure(),
                max_active_tis_per_dag=1,
            )
    return dag


def relays(dag: str, rule: Rule, tried: Mapping[str, Any], before: str = "relay") -> list[RelayOperator]:
    """A task for each target, with retries of its own. `before`: what comes before the target's name in its id."""
    return [
        RelayOperator(
            task_id=relay_id(dag, before, sink.label),
            rule=rule,
            target=sink.label,
            trigger_rule="all_done",  # whatever became of the run: an earlier one may have left something
            outlets=[target_asset(rule, sink)],
            on_failure_callback=on_failure(),
            **tried,
        )
        for sink in targets(rule)
    ]


def build_group(name: str, rules: Sequence[Rule], written: Collection[str] = ()) -> DAG:
    """The DAG of a group, whose rules share a schedule. Raises as `build` does."""
    with DAG(
        group_id(name),
        description=f"{len(rules)} rules in one Spark application",
        doc_md=about_group(name, rules),
        schedule=_schedule(rules),
        start_date=BEGIN,
        catchup=False,
        max_active_runs=1,
        allowed_run_types=RUN_TYPES,
        auto_register=False,
        tags={TAG, group_id(name), *(tag for rule in rules for tag in rule.airflow.tags)},
    ) as dag:
        run = GroupRunOperator(
            task_id=RUN,
            group=name,
            rules=rules,
            inlets=list(dict.fromkeys(asset for rule in rules for asset in inlets(rule, written))),
            outlets=[asset for rule in rules for asset in outlets(rule)],
            pre_execute=refuse_form,
            **_tried([rule.airflow for rule in rules]),
        )
        for rule in rules:
            tried = {**_tried([rule.airflow]), "pre_execute": refuse_form}
            for relay in relays(dag.dag_id, rule, tried, f"relay.{rule.rule}"):
                run >> relay
        run >> GroupOutcomeOperator(
            task_id=OUTCOME,
            trigger_rule="none_skipped",  # also after a failure
            pre_execute=refuse_form,
            owner=run.owner,
            retries=0,
            execution_timeout=REPORT_TIMEOUT,
            on_failure_callback=on_failure(),
            max_active_tis_per_dag=1,
        )
    return dag


def _tried(all_settings: Sequence[AirflowSettings]) -> dict[str, Any]:
    """The owners and, of each retry setting and the timeout, the largest of these rules, as a task's arguments."""
    return {
        "owner": ", ".join(owners(all_settings)),
        "retries": max(one.retries for one in all_settings),
        "retry_delay": timedelta(microseconds=max(one.retry_delay_us for one in all_settings)),
        "retry_exponential_backoff": BACKOFF,
        "max_retry_delay": timedelta(microseconds=max(one.max_retry_delay_us for one in all_settings)),
        "execution_timeout": timedelta(microseconds=max(one.timeout_us for one in all_settings)),
        "max_active_tis_per_dag": 1,  # max_active_runs alone allows a concurrent backfill
        "weight_rule": LIVE_FIRST,
    }


def owners(all_settings: Iterable[AirflowSettings]) -> list[str]:
    """The first owners, and "…" for the others: Airflow stores at most 2000 characters of owners for a DAG."""
    names = sorted({one.owner for one in all_settings})
    return names if len(names) <= OWNERS else [*names[:OWNERS], "…"]


def build_broken(file: str, reason: str, taken: set[str]) -> DAG:
    """The unscheduled DAG of an invalid rule file; its id is not in `taken`."""
    with DAG(
        broken_dag_id(file, taken),
        description=f"{file} cannot be used",
        doc_md=f"{code(file)} cannot be used:\n\n{block('', reason)}",
        schedule=None,
        start_date=BEGIN,
        catchup=False,
        max_active_runs=1,
        auto_register=False,  # else every file that builds DAGs would register them: rules_errors builds, too
        tags={TAG, "broken"},
    ) as dag:
        BrokenRuleOperator(
            task_id=RUN,
            file=file,
            reason=reason,
            retries=0,
            execution_timeout=REPORT_TIMEOUT,
            on_failure_callback=on_failure(),
            max_active_tis_per_dag=1,
        )
    return dag


def _schedule(rules: Sequence[Rule]) -> Any:
    """The common schedule: cron in the rules' time zone, assets, any upstream sink, or None."""
    schedule = schedule_of(rules)
    if isinstance(schedule, AssetSchedule):
        return [asset(address) for address in schedule.assets]
    if schedule == UPSTREAM:  # any of them: an upstream rule without new data is skipped, and produces no event
        return AssetAny(*map(asset, sorted(sources_of(rules))))
    if schedule is None or schedule in NOT_CRON:
        return schedule
    if not schedule.startswith("@"):
        croniter(schedule)  # Airflow itself would detect an error only after all DAGs are built
    return CronTriggerTimetable(schedule, timezone=rules[0].timezone)
