"""A rule's status in one word: what of ledger, files and Airflow comes first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.byhand import begun, folded, intent
from support.flow import Flow
from test_pages import known

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.backfills import Backfill, Deferred, Rewrite
from floodmark.core.protocol.records.rows import Counts
from floodmark.ledger.ledger import Ledger
from floodmark.views.status.glance import Glance
from floodmark.views.status.refusals import Stop
from floodmark_airflow.pages import access
from floodmark_airflow.pages.access import DagFacts, facts_of
from floodmark_airflow.pages.cache import Answer
from floodmark_airflow.pages.condition import Condition, condition

__all__ = ["known"]  # a fixture


@pytest.fixture
def flow(place: Path) -> Flow:
    """A rule with one epoch."""
    found = Flow(place)
    folded(found, begun(found), 1, 0, None)
    return found


def told(flow: Flow, airflow: DagFacts | None = None, **seen: Any) -> Condition:
    glance = Glance(head=flow.ledger().head, **seen)
    return condition(Answer(glance), glance, airflow or DagFacts(), None)


def test_a_rule_with_nothing_to_say_is_up_to_date(flow: Flow) -> None:
    assert told(flow).word == "up to date"


def test_an_open_epoch_and_an_open_backfill_want_a_look(flow: Flow) -> None:
    another = Flow(flow.root, "another")
    begun(another).intend(intent(another, 1, None, 0, Counts(read=1, folded=1)))
    assert told(another) == Condition("open", "warn", "epoch 1 is open (attempt 1); the next run finishes it")
    ledger = Ledger.open(flow.place.ledger, "by hand")
    ledger.start_backfill(
        Backfill(number=1, begin=0, end=1, high=1, upto=1, entry="", column="start", shift=0, counts={}, restated={},
                 digests={}, results=Digest(), rule="{}", rule_hash="h")
    )  # fmt: skip
    assert told(flow) == Condition("open", "warn", "backfill 1 is open (attempt 1); the next run finishes it")


def test_results_that_do_not_follow_a_rewrite_are_not_up_to_date(flow: Flow) -> None:
    ledger = Ledger.open(flow.place.ledger, "by hand")
    rewrite = Rewrite(since="3", upto="4", commits=("version 3 (DELETE)", "version 4 (UPDATE)"))
    ledger.defer(Deferred(entry=ledger.begun.entry.text(), rewrites={"events": rewrite}))
    said = "stream events: version 3 (DELETE), version 4 (UPDATE); results do not follow yet"
    assert told(flow) == Condition("correcting", "busy", said)


def test_an_edit_that_the_next_run_refuses_is_bad(flow: Flow) -> None:
    edit, outage = Stop("changed streams", is_edit=True), Stop("the store is down", is_edit=False)
    assert told(flow, refused=edit) == Condition("changed", "bad", "changed streams")
    assert told(flow, refused=outage) == Condition("sink at fault", "bad", "the store is down")


def test_a_rule_that_failed_stays_bad_until_a_run_has_ended_well(flow: Flow) -> None:
    states = (DagFacts(state="failed", failed=True), DagFacts(state="running", failed=True), DagFacts(state="running"))
    assert [told(flow, one).word for one in states] == ["failed", "failed", "up to date"]
    assert "another is active" in told(flow, states[1]).why


@pytest.mark.parametrize("recent", [1, access.RECENT])
@pytest.mark.parametrize(
    ("states", "facts"),
    [
        ([], DagFacts()),
        (["failed"], DagFacts(state="failed", run=1, ended=1, failed=True)),
        (["failed", "running"], DagFacts(state="running", run=2, ended=1, failed=True)),
        (["failed", "queued"], DagFacts(state="queued", run=2, ended=1, failed=True)),
        (["failed", "success", "running"], DagFacts(state="running", run=3, ended=2)),
        (["running"], DagFacts(state="running", run=1)),
    ],
)
def test_the_newest_run_and_how_the_newest_that_ended_came_out(
    known: Callable[..., None], monkeypatch: pytest.MonkeyPatch, states: list[str], facts: DagFacts, recent: int
) -> None:
    """Also where other DAGs have run so often since that it is not among the newest runs."""
    monkeypatch.setattr(access, "RECENT", recent)
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    known("ran")
    with create_session() as session:
        made = [DagRun(dag_id="rule.ran", run_id=f"r{n}", run_type="manual", state=one) for n, one in enumerate(states)]
        for run in made:
            session.add(run)
            session.flush()
        ids = {0: 0} | {run.id: place for place, run in enumerate(made, 1)}
    try:
        found = facts_of({"rule.ran"})["rule.ran"]
    finally:
        with create_session() as session:
            session.execute(delete(DagRun).where(DagRun.dag_id == "rule.ran"))
    assert (found.state, ids[found.run], ids[found.ended], found.failed) == (
        facts.state, facts.run, facts.ended, facts.failed)  # fmt: skip


def test_the_newest_runs_are_found_without_reading_all_runs(known: Callable[..., None]) -> None:
    """A schedule of minutes makes millions, and no index leads from a DAG to its newest run."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete, event

    known("ran")
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    with create_session() as session:
        session.add(DagRun(dag_id="rule.ran", run_id="r0", run_type="manual", state="success"))
        session.flush()
        engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", note)
    try:
        facts_of({"rule.ran"})
    finally:
        event.remove(engine, "before_cursor_execute", note)
        with create_session() as session:
            session.execute(delete(DagRun).where(DagRun.dag_id == "rule.ran"))
    grouped = [one for one in asked if "GROUP BY dag_run.dag_id" in one]
    assert len(grouped) == 2 and all("dag_run.id > " in one for one in grouped), grouped
