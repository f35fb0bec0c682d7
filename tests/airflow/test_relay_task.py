"""What Airflow makes of rules with targets: a task for each, with retries of its own, whatever became of the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk._shared.observability.metrics.validators import stat_name_default_handler
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.serialization.serialized_objects import DagSerialization
from deltalake import write_deltalake
from support.byhand import begun
from support.cluster import free_ports
from support.flow import SCHEMA, Flow
from test_dags import parse, write
from test_operator import context

from floodmark.connectors.relay.memory import remember
from floodmark.core.relay.positions import Position
from floodmark.core.rules.rule import Rule
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.ledger.renaming import rename
from floodmark_airflow.assets import target_asset
from floodmark_airflow.dags.dag_factory import build
from floodmark_airflow.naming import relay_id
from floodmark_airflow.tasks import reporting
from floodmark_airflow.tasks.operators import RelayOperator
from floodmark_airflow.tasks.reporting import note_shipped


def targets(rule: str) -> list[dict[str, Any]]:
    tables = [{"connection": "shop", "table": f"{rule}_{name}"} for name in ("orders", "b")]
    return [{"postgres": tables[0]}, {"postgres": tables[1], "name": "totals"}]


def ship(rule: Rule, **params: Any) -> None:
    relay = next(task for task in build(rule).tasks if isinstance(task, RelayOperator))
    relay.execute({**context(), "params": params})


def rule_of(place: Path) -> Rule:
    """A rule that has begun, and whose outbox is there."""
    flow = Flow(place)
    flow.settings = {"sinks": [{"delta": flow.sink()}, targets("counted")[0]]}
    begun(flow)
    rule = flow.rule()
    write_deltalake(str(flow.place.outbox(rule.sinks[1])), pa.Table.from_pylist([], schema=SCHEMA))
    return rule


SHIPPED = {"generation": 1, "epoch": 2, "seq": 9}
EARLIER = {"generation": 1, "epoch": 1, "seq": 6}


@pytest.mark.parametrize(
    ("extra", "later", "news"),
    [
        (None, None, True),
        (SHIPPED, True, False),
        (EARLIER, True, True),
        ({**SHIPPED, "seq": 8}, True, True),
        ({"rule": "counted", "generation": 1, "epoch": 2}, True, False),
        ({}, True, False),
        (SHIPPED, False, True),
    ],
    ids=["none", "told", "of-before", "of-before-a-correction", "without-a-row", "by-hand", "of-another-ledger"],
)
def test_a_target_is_told_of_unless_its_last_event_has_told_of_its_position(
    place: Path, monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any] | None, later: bool | None, news: bool
) -> None:
    """Another task may ship between the look of one task and its end, when Airflow stamps its event."""
    rule = rule_of(place)
    home, sink = Home(place / "home", rule.rule), rule.sinks[1]
    folder = home.outbox(sink)
    assert folder is not None
    remember(folder, Position("ledger", 1, "token", 2, 9, "hash"))
    at = datetime.now(UTC) + timedelta(minutes=1 if later else -1)
    last = None if later is None else SimpleNamespace(timestamp=at, extra=extra)
    monkeypatch.setattr(reporting, "newest_told", lambda told: last)
    events = OutletEventAccessors()
    assert note_shipped(events, rule, sink, home) is news
    told = events[target_asset(rule, sink)].extra
    assert told == ({"rule": rule.rule, **SHIPPED} if news else {})


def test_each_target_has_a_task_after_the_run(rules: Path) -> None:
    write(rules, "one", sinks=targets("one"), airflow={"retries": 7})
    write(rules, "two", sinks=targets("two"), group="both")
    write(rules, "three", group="both")
    bag = parse()
    assert bag.import_errors == {}
    run, *relays, outcome = bag.dags["rule.one"].tasks
    assert [task.task_id for task in relays] == ["relay.public.one_orders", "relay.totals"]
    for task, name in zip(relays, ("public.one_orders", "totals"), strict=True):
        assert (task.upstream_task_ids, task.trigger_rule, task.retries) == ({run.task_id}, "all_done", 7)
        assert [one.uri for one in task.outlets] == [f"floodmark://one/{name}"]
        assert task.retry_delay == timedelta(seconds=30)
    assert (outcome.task_id, outcome.trigger_rule) == ("outcome", "none_failed")
    assert outcome.upstream_task_ids == {run.task_id, *(task.task_id for task in relays)}
    assert bag.dags["rule.one"].leaves == [outcome], "by which Airflow judges the DAG run"
    assert "relay.two.totals" in [task.task_id for task in bag.dags["group.both"].tasks]
    assert run.outlets == []
    DagSerialization.from_dict(DagSerialization.to_dict(bag.dags["rule.one"]))


@pytest.mark.parametrize(
    ("label", "task"),
    [("kept sp", "relay.kept_sp-e3851a"), ("größe", "relay.gr__e-d353a2"), ("a" * 252, f"relay.{'a' * 100}-03aaf5")],
)
def test_airflow_takes_the_task_of_any_target(rules: Path, label: str, task: str) -> None:
    write(rules, "one", sinks=[{"files": {"path": f"${{LAKE}}/{label}"}}])
    bag = parse()
    assert (bag.import_errors, bag.dags["rule.one"].tasks[1].task_id) == ({}, task)
    assert stat_name_default_handler(f"ti.finish.rule__one.{task.replace('.', '__')}.failed")


@pytest.mark.parametrize("label", ["a" * 252, "a." * 50, "a" * 45, "a.b"])
def test_airflow_sends_metrics_of_the_task_of_a_target_whatever_has_the_longest_name(label: str) -> None:
    """Environment, group, rule and target share the characters of a metric, where a dot counts twice."""
    dag, before = f"{'e' * 31}.group.{'g' * 63}", f"relay.{'r' * 63}"
    task = relay_id(dag, before, label)
    dotless = [one.replace(".", "__") for one in (dag, task)]
    assert stat_name_default_handler(f"ti.finish.{dotless[0]}.{dotless[1]}.up_for_reschedule")
    assert (task == f"{before}.{label}") is (len(label) < 46)
    assert relay_id(dag, before, f"{label}x") != task


def test_a_target_that_cannot_be_reached_is_tried_again(
    rules: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", f"postgres://floodmark:secret@127.0.0.1:{port}/shop")
    with pytest.raises(AirflowException, match="it cannot be reached") as found:
        ship(rule_of(place))
    assert not isinstance(found.value, AirflowFailException)
    assert "secret" not in str(found.value)


def test_a_connection_of_another_kind_is_not_tried_again(
    rules: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", "mysql://floodmark:secret@127.0.0.1/shop")
    with pytest.raises(AirflowFailException, match="connection shop: expected postgres://"):
        ship(rule_of(place))


def test_a_rule_that_has_shipped_nothing_is_skipped(rules: Path, place: Path) -> None:
    flow = Flow(place)
    flow.settings = {"sinks": [targets("counted")[0]]}
    with pytest.raises(AirflowSkipException, match="the target has got nothing"):
        ship(flow.rule())


def test_a_task_of_a_rules_old_name_fails_at_once(rules: Path, place: Path) -> None:
    rule = rule_of(place)
    home = Home(place / "home", rule.rule)
    rename(Ledger.open(home.ledger, "by hand"), home, Home(place / "home", "other"))
    with pytest.raises(AirflowFailException, match="rule counted was renamed to other"):
        ship(rule)
    with pytest.raises(AirflowSkipException, match="the next run under the new name does"):  # the run that renames it
        ship(rule, operation="rename", rename_to="other", confirm=rule.rule)
