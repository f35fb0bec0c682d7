"""The pages of rules that run in a group: whose run counts, who of them failed, and the tab of the group's DAG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_pages import ask, known, ran, settled, text_of, web

from floodmark_airflow.pages.access import DagFacts
from floodmark_airflow.pages.runs import of_group

__all__ = ["ask", "known", "web"]  # fixtures

GOOD, BAD = DagFacts(state="success", run=1, ended=1), DagFacts(state="failed", run=2, ended=2, failed=True)
TRYING = DagFacts(state="running", run=3, ended=2, failed=True)


@pytest.mark.parametrize(
    ("own", "group", "failed", "state", "failing"),
    [
        (DagFacts(), GOOD, None, "success", False),
        (DagFacts(), BAD, {"b"}, "failed", True),
        (DagFacts(), BAD, {"c"}, "success", False),
        (DagFacts(), BAD, None, "failed", True),
        (DagFacts(state="success", run=3, ended=3), BAD, {"b"}, "success", False),
        (DagFacts(state="running", run=3), BAD, {"b"}, "running", True),
        (DagFacts(state="failed", run=1, ended=1, failed=True), replace(GOOD, run=2, ended=2), None, "success", False),
        (DagFacts(), TRYING, {"b"}, "running", True),
        (DagFacts(), TRYING, {"c"}, "running", False),
    ],
    ids=["good", "it failed", "another failed", "all failed", "mended by hand since", "being mended by hand",
         "failed by hand before", "it failed and runs again", "another failed and all run again"],
)  # fmt: skip
def test_the_newest_run_counts_whichever_dag_it_is_of(
    own: DagFacts, group: DagFacts, failed: set[str] | None, state: str, failing: bool
) -> None:
    found = of_group("b", own, group, failed)
    assert (found.state, found.failed) == (state, failing)


def test_a_rule_is_paused_when_its_group_is() -> None:
    paused = DagFacts(paused=True, run=1)
    assert of_group("b", DagFacts(), paused, None).paused
    assert of_group("b", DagFacts(run=2), paused, None).paused


@pytest.fixture
def failed_run(known: Callable[..., None]) -> Iterator[Callable[[dict[str, str]], None]]:
    """Gives the DAG of the group `small` a run that has failed, and what its task gave."""
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, insert

    of = {"dag_id": "group.small", "run_id": "one"}
    task = {**of, "task_id": "run", "map_index": -1}

    def fail(reasons: dict[str, str]) -> None:
        with create_session() as session:
            session.merge(DagModel(dag_id="group.small", bundle_name="tests", is_paused=False))
            session.flush()
            run = DagRun(**of, run_type="manual", state="failed")
            session.add(run)
            session.flush()
            session.execute(insert(TaskInstance).values(**task, pool="default_pool", try_number=1))
            session.execute(insert(XComModel).values(**task, dag_run_id=run.id, key="return_value", value=reasons))

    known()
    yield fail
    with create_session() as session:
        for model in (XComModel, TaskInstance, DagRun, DagModel):
            session.execute(delete(model).where(model.dag_id == "group.small"))


def test_of_a_group_that_failed_only_the_rules_that_did_are_shown_as_failed(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], failed_run: Callable[..., None]
) -> None:
    for name in ("a", "b"):
        ran(place, name, settings={"group": "small"})
    known("a", "b")
    failed_run({"b": "a row is bad"})
    page = text_of(settled(ask))
    assert "1 failed" in page and "group small" in page
    assert "a row is bad" not in page, "that is for who may see logs"
    assert "failed" not in text_of(settled(ask, "dags/rule.a"))
    assert "failed" in text_of(settled(ask, "dags/rule.b"))


def test_the_tab_of_a_groups_dag_lists_its_rules(
    ask: Callable[..., Any], place: Path, known: Callable[..., None], failed_run: Callable[..., None]
) -> None:
    for name, group in (("a", "small"), ("other", "large")):
        ran(place, name, settings={"group": group})
    known("a", "other")
    failed_run({})
    page = settled(ask, "dags/group.small")
    assert "Rules of group small" in page and 'href="../dags/rule.a"' in page
    assert "rule.other" not in page
    assert 'href="../dags/group.small"' in settled(ask, "dags/rule.a")
    assert ask("dags/group.small/rows").status_code == 404
    assert ask("dags/group.none").status_code == 404
    assert ask("dags/group.small", None).status_code == 401
