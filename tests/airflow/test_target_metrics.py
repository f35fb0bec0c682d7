"""The metrics of a rule's targets: what each has and lacks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from airflow.sdk._shared.observability.metrics.validators import stat_name_default_handler, stat_name_otel_handler
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from support.behind import NAME, Behind
from support.cluster import free_ports
from support.flow import START
from test_operator import context
from test_relay_task import ship
from test_telling import Backend, sent

from floodmark.connectors.relay.backlogs import Undelivered
from floodmark.connectors.relay.memory import Memory
from floodmark.core.protocol.records.rows import Life
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.dags.dag_factory import build
from floodmark_airflow.tasks import reporting

__all__ = ["sent"]  # a fixture
MICROS = round(START.timestamp() * 1e6)
OF = "floodmark.rule.counted.target.public__orders."


@pytest.fixture
def behind(place: Path, rules: Path) -> Behind:
    """A rule with two epochs, of which the target has one."""
    found = Behind(place)
    found.run(MICROS)
    found.ship()
    found.run(MICROS + 60_000_000)
    return found


def of_targets(sent: Backend) -> dict[str, list[float]]:
    return {name.removeprefix(OF): values for name, values in sent.plain.items() if name.startswith(OF)}


def test_what_a_target_has_and_lacks_is_sent_with_tags_and_without(behind: Behind, sent: Backend) -> None:
    now = datetime.now(UTC) + timedelta(hours=1)
    behind.refuse(0, 2)
    reporting.measure_targets(behind.flow.rule(), behind.flow.home, now)
    found = of_targets(sent)
    [oldest], [shipped_at] = found.pop("oldest_seconds"), found.pop("shipped_at_seconds")
    assert 3600 <= oldest < 3660 and 3600 <= now.timestamp() - shipped_at < 3660
    lag = round((now - START).total_seconds(), 3)
    assert found == {"backlog_epochs": [1], "backlog_rows": [4], "backlog_bytes": [behind.lacks.bytes], "full": [0],
                     "failed": [0], "refused_rows": [2], "rows_lost": [0], "rows_shipped": [4],
                     "lag_seconds": [lag]}  # fmt: skip
    names = {f"floodmark.target.{name}" for name in (*found, "oldest_seconds", "shipped_at_seconds")}
    assert {name for name, _ in sent.tagged} == names
    assert all(tags == {"rule": "counted", "target": NAME} for _, tags in sent.tagged)


LABELS = ["a.b", "a_b", "a__b", "a_.b", "a._b", "größe", "grüße", "a" * 240, "a" * 241, "a-b", "a b"]


def test_no_two_targets_of_a_rule_share_a_metric(sent: Backend) -> None:
    """The last one would say that all are well; and Airflow sends no name of more than 250 characters."""
    rule, memory = "r" * 63, Memory(at=START.isoformat(), shipped=1)
    for label in LABELS:
        reporting.measure_target(rule, Undelivered(label, 1, 1, 1, memory.at, memory), 1.0, START)
    assert {len(values) for values in sent.plain.values()} == {1} and len(sent.plain) == 11 * len(LABELS)
    assert all(stat_name_otel_handler("airflow", name) and stat_name_default_handler(name) for name in sent.plain)
    failed = {name.split(".")[4] for name in sent.plain if name.endswith(".failed")}
    assert {"a__b", "a_b", "a-b"} < failed


def test_a_run_with_nothing_to_do_sends_them(behind: Behind, sent: Backend) -> None:
    with pytest.raises(AirflowSkipException):
        build(behind.flow.rule()).tasks[0].execute(context())
    assert of_targets(sent)["backlog_epochs"] == [1]


def test_a_relay_that_fails_sends_that(behind: Behind, sent: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", f"postgres://floodmark@127.0.0.1:{free_ports(1)[0]}/shop")
    with pytest.raises(AirflowException, match="it cannot be reached"):
        ship(behind.flow.rule())
    assert of_targets(sent)["failed"] == [1]


def test_a_retired_rule_sends_none(behind: Behind, sent: Backend) -> None:
    Ledger.open(behind.flow.place.ledger, "me").live(Life(what="retired"))
    reporting.measure_targets(behind.flow.rule(), behind.flow.home, datetime.now(UTC))
    assert of_targets(sent) == {}


def test_a_rule_without_a_target_sends_none(behind: Behind, sent: Backend) -> None:
    behind.flow.settings = {}
    reporting.measure_targets(behind.flow.rule(), behind.flow.home, datetime.now(UTC))
    assert of_targets(sent) == {}


def test_targets_that_cannot_be_measured_do_not_hide_how_the_relay_ended(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such thing at s3://somebody:word@store/x")

    monkeypatch.setattr(reporting, "measure_target", fails)
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", f"postgres://floodmark@127.0.0.1:{free_ports(1)[0]}/shop")
    with structlog.testing.capture_logs() as lines, pytest.raises(AirflowException, match="it cannot be reached"):
        ship(behind.flow.rule())
    [line] = [line["event"] for line in lines if "could not be measured" in line["event"]]
    assert line == "rule counted: its targets could not be measured: ValueError: no such thing at s3://***@store/x"
