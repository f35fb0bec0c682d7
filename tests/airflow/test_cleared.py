"""An operation that is cleared is done once more, and a retry of it is not: by the numbers that Airflow gives."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from test_dags import write
from test_operations import begun_anew, dead_rows, execute, replayed, rule
from test_operator import spark_submit, was_started

from floodmark.core.protocol.records.rows import Row
from floodmark.core.rules.rule import Rule, load_rule
from floodmark_airflow.dags.dag_factory import build
from floodmark_airflow.tries import Tries
from floodmark_airflow.triggers.backfills import created_at

__all__ = ["rule"]  # a fixture


class Task:
    """The task of a rule in Airflow's database, whose states change as its scheduler and its UI change them."""

    def __init__(self, session: Any, run: Any):
        self._session, self._run = session, run

    @property
    def _ti(self) -> Any:
        (found,) = self._run.get_task_instances(session=self._session)
        self._session.refresh(found)
        found.task = self._run.dag.get_task("run")
        return found

    def begin(self) -> None:
        self._run.set_state("running")
        self._run.schedule_tis([self._ti], session=self._session)
        self._ti.set_state("running", session=self._session)

    def end(self, state: str) -> None:
        """Also ends the run, as Airflow's scheduler does once its last task has ended."""
        self._ti.set_state(state, session=self._session)
        self._run.set_state(state)

    def fail(self) -> str:
        """Its state, by which Airflow tries it again or does not."""
        self._ti.handle_failure("why", session=self._session)
        return str(self._ti.state)

    def clear(self) -> None:
        from airflow.models.taskinstance import clear_task_instances

        clear_task_instances([self._ti], self._session)
        self._session.flush()

    def has_retries(self, number: int) -> None:
        """As the file says now."""
        self._ti.task.retries = number

    @property
    def created(self) -> datetime:
        """When this try was created, by its id."""
        return created_at(self._ti.id)

    @property
    def first(self) -> tuple[int, int]:
        """The number of this try, and that of the first one since the last clear."""
        return self._ti.try_number, self.tries.first

    @property
    def tries(self) -> Tries:
        """Those since the last clear."""
        ti = self._ti
        given: Any = {"ti": ti, "dag_run": self._run, "run_id": self._run.run_id}
        return Tries.since_clear(given, ti.task.retries)

    def run_since(self, at: datetime) -> None:
        self._run.start_date = at


@pytest.fixture
def begun(metadata: None, rules: Path) -> Iterator[Callable[[int], Task]]:
    """The task of a new run of a rule that has so many retries."""
    from airflow.api.common.delete_dag import delete_dag
    from airflow.dag_processing.collection import update_dag_parsing_results_in_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.models.taskinstance import TaskInstance
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType, DagRunType
    from pendulum import now
    from sqlalchemy import update

    with create_session() as session:

        def begin(retries: int) -> Task:
            dag = build(load_rule(write(rules, "cleared", airflow={"retries": retries}), os.environ))
            dag.fileloc, dag.relative_fileloc = str(rules / "rules.py"), "rules.py"
            session.merge(DagBundleModel(name="tests"))
            session.flush()
            update_dag_parsing_results_in_db(
                "tests", None, [LazyDeserializedDAG.from_dag(dag)], {}, 1.0, set(), session
            )
            kept = SerializedDagModel.get_dag(dag.dag_id, session=session)
            assert kept is not None
            run = kept.create_dagrun(
                run_id="m1", run_after=now(), run_type=DagRunType.MANUAL, state="running", session=session,
                triggered_by=DagRunTriggeredByType.TEST, logical_date=None,
            )  # fmt: skip
            run.dag = kept
            return Task(session, run)

        yield begin
        session.execute(update(TaskInstance).where(TaskInstance.dag_id == "rule.cleared").values(state="success"))
        delete_dag("rule.cleared", session=session)  # which refuses while a task of it runs


def test_the_id_of_a_try_says_when_it_was_created(begun: Callable[[int], Task]) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    task = begun(2)
    first = task.created
    assert before < first < datetime.now(UTC) + timedelta(seconds=1)
    task.begin()
    assert task.created == first
    task.fail()
    assert task.created > first


def test_the_first_try_since_a_clear_is_told_by_airflows_own_numbers(begun: Callable[[int], Task]) -> None:
    task = begun(2)
    task.begin()
    assert task.first == (1, 1)
    assert task.fail() == "up_for_retry"
    task.begin()
    assert task.first == (2, 1), "a retry"
    task.end("success")
    task.clear()
    task.begin()
    assert task.first == (3, 3), "cleared after it had succeeded"
    assert task.fail() == "up_for_retry"
    task.clear()
    task.begin()
    assert task.first == (4, 4), "cleared while it waited for a retry"
    assert [task.fail(), task.begin(), task.fail(), task.begin(), task.fail()][::2] == [*["up_for_retry"] * 2, "failed"]
    assert task.first == (6, 4)
    task.clear()
    task.begin()
    assert task.first == (7, 7), "cleared after it had failed for good"
    task.clear()
    assert task.fail() == "up_for_retry"
    task.begin()
    assert task.first == (8, 7), "cleared while it ran: Airflow ends it, and tries it again"


def test_a_try_is_one_of_its_own_though_the_file_says_fewer_retries_since(begun: Callable[[int], Task]) -> None:
    task = begun(10)
    task.begin()
    task.end("success")
    task.clear()
    task.begin()
    task.has_retries(3)
    assert task.first == (2, 2)


def test_a_clear_of_a_run_that_has_ended_is_told_though_the_file_says_more_retries_since(
    begun: Callable[[int], Task],
) -> None:
    task, now = begun(1), datetime.now(UTC)
    row = Row(1, "life", 1, "", 0, 0, "m1.try1", (now - timedelta(minutes=5)).isoformat(), "{}", "")
    task.run_since(now - timedelta(minutes=9))
    task.begin()
    assert task.tries.wrote(row)
    task.end("success")
    task.clear()
    task.begin()
    task.has_retries(5)
    assert task.first == (2, 1), "by the numbers alone, it is a retry"
    assert not task.tries.wrote(row)


def test_the_same_of_a_task_without_retries(begun: Callable[[int], Task]) -> None:
    task = begun(0)
    task.begin()
    assert task.first == (1, 1)
    task.end("success")
    task.clear()
    task.begin()
    assert task.first == (2, 2)
    assert task.fail() == "failed"
    task.clear()
    task.begin()
    assert task.first == (3, 3)


def test_tries_are_those_of_one_run_alone() -> None:
    tries = Tries("m1", 2)
    assert [name in tries for name in ("m1.try2", "m1.try10", "m1.try1", "m1", "m11.try2", "m1.try2.try2")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip
    assert "m1.try2.try1" in Tries("m1.try2")


def cleared(tries: int, first: int, retries: int = 3) -> dict[str, Any]:
    """The try `tries` of a run whose task was cleared before its try `first`."""
    ti = SimpleNamespace(try_number=tries, max_tries=first - 1 + retries)
    return {"ti": ti, "dag_run": SimpleNamespace(run_type="manual", clear_number=1)}


def test_an_operation_that_was_cleared_is_done_once_more_and_its_retry_is_not(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    spark_submit(fake_path, "exit 0")
    begun_anew(place, "m1.try1")
    with pytest.raises(Exception, match="reset ended, but the rule's ledger has none by this run"):
        execute(rule, given=cleared(2, 2), operation="reset", confirm="one")
    assert was_started(fake_path)
    (fake_path / "arguments").unlink()
    begun_anew(place, "m1.try2")
    execute(rule, given=cleared(3, 2), operation="reset", confirm="one")
    assert not was_started(fake_path)


def test_a_replay_that_was_cleared_looks_anew(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    dead_rows(place)
    replayed(place, "m1.try1")
    execute(rule, 2, operation="replay dead rows")
    with pytest.raises(AirflowSkipException, match="no dead row is left"):
        execute(rule, given=cleared(2, 2), operation="replay dead rows")


def test_a_confirmation_is_asked_for_once_more(rule: Rule, fake_path: Path) -> None:
    with pytest.raises(AirflowFailException, match="expected the rule's name"):
        execute(rule, given=cleared(2, 2), operation="reset", confirm="other")
