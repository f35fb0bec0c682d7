"""Access control (authorization), and Airflow's facts about DAGs: the only module that uses Airflow's internals.

They are no public interface. If an upgrade of Airflow removes one of them, this import fails, and no page is served.
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
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

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
LOGS = DagAccessEntity.TASK_LOGS  # logs, too, may show input rows, and errors that name values
RECENT = 20_000  # runs of all DAGs; numbered in their order
DAG_ID = re.compile(r"[A-Za-z0-9_.-]{1,250}")  # as Airflow requires; other ids are not looked up


def of_dag(entity: DagAccessEntity) -> Callable[..., str]:
    """A FastAPI dependency: the DAG id of the path, if the user may read its `entity`. 404 for an invalid id."""
    check = requires_access_dag("GET", entity)

    def authorized(dag_id: str, request: Request, user: GetUserDep) -> str:
        if not DAG_ID.fullmatch(dag_id):
            raise HTTPException(404)
        check(request, user)
        return dag_id

    return authorized


def may(user: GetUserDep, dag_id: str, entity: DagAccessEntity) -> bool:
    """Whether the user may read this part of a DAG."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return get_auth_manager().is_authorized_dag(method="GET", access_entity=entity, details=details, user=user)


def allowed_dags(user: GetUserDep) -> set[str]:
    """The DAGs of this Airflow that the user may read."""
    return get_auth_manager().get_authorized_dag_ids(user=user, method="GET")


def with_runs(user: GetUserDep, dag_ids: Collection[str]) -> set[str]:
    """Those of these DAGs whose runs the user may read, too. Mostly all: one batch request checks that first."""
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
    """Airflow's facts about a DAG: whether it is paused, and the state of its newest run, with its time (`since`).

    `run`: that run's number; later runs, of any DAG, have higher numbers. `ended`: the number of the newest run that
    has ended, which may be an older one; `failed`: whether that run failed.
    """

    paused: bool = False
    state: str | None = None
    since: datetime | None = None
    run: int = 0
    ended: int = 0
    failed: bool = False


def facts_of(dag_ids: Collection[str]) -> dict[str, DagFacts]:
    """The facts of the DAGs that Airflow knows. A run that was refused leaves no trace in the ledger, only here."""
    paused = select(DagModel.dag_id, DagModel.is_paused).where(DagModel.dag_id.in_(dag_ids))
    with create_session() as session:
        states = _newest(session, dag_ids)
        ends = _newest(session, dag_ids, DagRun.state.in_(("success", "failed")))
        known = {row.dag_id: bool(row.is_paused) for row in session.execute(paused)}
    return {dag: DagFacts(paused, **_of_runs(states.get(dag), ends.get(dag))) for dag, paused in known.items()}


def _newest(session: Session, dag_ids: Collection[str], *such: ColumnElement[bool]) -> dict[str, Any]:
    """The newest run of each of these DAGs, among runs that meet some conditions.

    No index leads to it, and a schedule of minutes makes millions of runs. So it is looked for among the newest runs of
    all DAGs first. Only DAGs that have none there are looked for among all runs: they run seldom, and have few.
    """
    latest = session.scalar(select(func.max(DagRun.id))) or 0
    asked = select(DagRun.dag_id, func.max(DagRun.id)).where(*such).group_by(DagRun.dag_id)
    found = dict[str, int]()
    for place in ([DagRun.id > latest - RECENT], []):
        rest = set(dag_ids).difference(found)
        if rest:
            found |= {row[0]: row[1] for row in session.execute(asked.where(DagRun.dag_id.in_(rest), *place))}
    runs = select(DagRun.dag_id, DagRun.state, DagRun.start_date, DagRun.end_date, DagRun.id)
    return {row.dag_id: row for row in session.execute(runs.where(DagRun.id.in_([*found.values()])))}


def _of_runs(newest: Any, ended: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if newest is not None:
        found |= {"state": str(newest.state), "since": newest.end_date or newest.start_date, "run": newest.id}
    return found if ended is None else {**found, "ended": ended.id, "failed": str(ended.state) == "failed"}


def returned(task_id: str, runs: Collection[int]) -> dict[str, Any]:
    """By DAG, the value (XCom) that a task returned in the runs with these numbers; no entry without a value."""
    given = select(XComModel.dag_id, XComModel.value).where(
        XComModel.dag_run_id.in_(runs), XComModel.task_id == task_id, XComModel.key == XCOM_RETURN_KEY
    )
    with create_session() as session:
        return {row.dag_id: XComModel.deserialize_value(row) for row in session.execute(given)}
