"""Who may see what, and what Airflow knows of a DAG: the one module that touches Airflow's inner parts.

They are no public interface. Where one of them is gone after an upgrade, this import fails, and no page is served.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.batch_apis import IsAuthorizedDagRequest
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_access_view
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XCOM_RETURN_KEY, XComModel
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request
from sqlalchemy import func, select

__all__ = [
    "CODE",
    "LOGS",
    "RUN",
    "SIGNED_IN",
    "DagFacts",
    "GetUserDep",
    "allowed_dags",
    "facts_of",
    "may",
    "of_dag",
    "returned",
    "with_runs",
]

SIGNED_IN = Depends(requires_access_view(AccessView.PLUGINS))  # for the whole application
RUN = DagAccessEntity.RUN  # epochs and their numbers
CODE = DagAccessEntity.CODE  # a rule's SQL is its DAG's code
LOGS = DagAccessEntity.TASK_LOGS  # rows as they came, and errors that name values, are what logs may show
DAG_ID = re.compile(r"[A-Za-z0-9_.-]{1,250}")  # as Airflow has it; what is not like that is not looked up


def of_dag(entity: DagAccessEntity) -> Callable[..., str]:
    """A dependency: the DAG of the path, whose `entity` the user may read. 404 for what no DAG can be called."""
    check = requires_access_dag("GET", entity)

    def asked(dag_id: str, request: Request, user: GetUserDep) -> str:
        if not DAG_ID.fullmatch(dag_id):
            raise HTTPException(404)
        check(request, user)
        return dag_id

    return asked


def may(user: GetUserDep, dag_id: str, entity: DagAccessEntity) -> bool:
    """Whether the user may read this part of a DAG."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(method="GET", access_entity=entity, details=details, user=user)


def allowed_dags(user: GetUserDep) -> set[str]:
    """The DAGs that Airflow knows, and that the user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def with_runs(user: GetUserDep, dag_ids: Collection[str]) -> set[str]:
    """Those of these DAGs whose runs the user may read, too: mostly all, which an auth manager may tell at once."""
    manager, teams = get_auth_manager(), DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
    asked: dict[str, IsAuthorizedDagRequest] = {
        one: {"method": "GET", "access_entity": RUN, "details": DagDetails(id=one, team_name=teams.get(one))}
        for one in dag_ids
    }
    if manager.batch_is_authorized_dag(list(asked.values()), user=user):
        return set(asked)
    return {one for one, request in asked.items() if manager.is_authorized_dag(**request, user=user)}


@dataclass(frozen=True)
class DagFacts:
    """What Airflow says of a DAG: whether it is paused, and how its newest run is doing since when.

    `run`: that run's number; those of later runs, of whichever DAG, are higher. `ended`: the number of the newest run
    that has ended, which may be an older one; `failed`: whether that failed.
    """

    paused: bool = False
    state: str | None = None
    since: datetime | None = None
    run: int = 0
    ended: int = 0
    failed: bool = False


def facts_of(dag_ids: Collection[str]) -> dict[str, DagFacts]:
    """Of those that Airflow knows. A rule that refuses to run leaves no trace in its ledger, only here."""
    paused = select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_(dag_ids))
    newest = select(func.max(DagRun.id)).where(DagRun.dag_id.in_(dag_ids)).group_by(DagRun.dag_id)
    ended = newest.where(DagRun.state.in_(("success", "failed")))
    runs = select(DagRun.dag_id, DagRun.state, DagRun.start_date, DagRun.end_date, DagRun.id)
    with create_session() as session:
        states = {row.dag_id: row for row in session.execute(runs.where(DagRun.id.in_(newest)))}
        ends = {row.dag_id: row for row in session.execute(runs.where(DagRun.id.in_(ended)))}
        known = {row.dag_id: bool(row.is_paused) for row in session.execute(paused)}
    return {dag: DagFacts(paused, **_of_runs(states.get(dag), ends.get(dag))) for dag, paused in known.items()}


def _of_runs(newest: Any, ended: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if newest is not None:
        found |= {"state": str(newest.state), "since": newest.end_date or newest.start_date, "run": newest.id}
    return found if ended is None else {**found, "ended": ended.id, "failed": str(ended.state) == "failed"}


def returned(task_id: str, runs: Collection[int]) -> dict[str, Any]:
    """By DAG, what a task gave in the run of this number; nothing for one that gave none."""
    given = select(XComModel.dag_id, XComModel.value).where(
        XComModel.dag_run_id.in_(runs), XComModel.task_id == task_id, XComModel.key == XCOM_RETURN_KEY
    )
    with create_session() as session:
        return {row.dag_id: XComModel.deserialize_value(row) for row in session.execute(given)}
