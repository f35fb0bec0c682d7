"""What a run tells others: metrics, a log line for each epoch, the events of its sinks' assets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from airflow.sdk import Asset
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.otel_logger import SafeOtelLogger
from airflow.sdk.exceptions import AirflowException, AirflowSkipException
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import AssetEventsResult, ErrorResponse, ErrorType, GetAssetEventByAsset
from airflow.sdk.observability import stats
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from support.aged import age
from test_dags import write
from test_operations import begun_anew, execute
from test_operator import arrive, context, fold_all, spark_submit, task_of
from test_past_intervals import done_by

from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Counts, Intent, Life, Written
from floodmark.core.protocol.tally import COUNTS
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.errors import Refused
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.assets import asset
from floodmark_airflow.tasks import reporting
from floodmark_airflow.tasks.steps import Steps

HOUR = 3_600_000_000
COUNTERS = ("epochs", "corrections", "rows_corrected", *(f"rows_{name}" for name in COUNTS))
# Of a try that ended no epoch.
IDLE = {f"floodmark.rule.one.{name}": [0] for name in ("lag_commits", "retention_used", *COUNTERS)}


class Backend:
    """In the place of StatsD or OpenTelemetry: what it was sent, by name; tagged ones with their tags."""

    def __init__(self) -> None:
        self.plain: dict[str, list[float]] = {}
        self.tagged: list[tuple[str, Any]] = []

    def _take(self, name: str, value: float, tags: dict[str, Any] | None = None, **_: Any) -> None:
        if tags:
            self.tagged.append((name, tags))
        else:
            self.plain.setdefault(name, []).append(value)

    gauge = timing = _take

    def incr(self, name: str, count: int, tags: dict[str, Any] | None = None) -> None:
        self._take(name, count, tags)


@pytest.fixture
def sent() -> Iterator[Backend]:
    backend = Backend()
    stats.initialize(factory=lambda: backend, export_legacy_names=False)  # type: ignore[arg-type, return-value]
    yield backend
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)


@pytest.fixture
def rule(rules: Path, place: Path) -> Rule:
    """A rule with two sinks; one row waits."""
    arrive(place)
    return load_rule(write(rules, "one", sinks=[{"delta": f"${{LAKE}}/{n}"} for n in ("one_out", "other")]), os.environ)


def fold_epoch(rule: Rule, home: Path, run: str, watermark: int | None) -> None:
    """Epoch 1 of a ledger, up to the end of the input."""
    ledger = Ledger.open(Home(home, rule.rule).ledger, run)
    ends = [
        source._at(table := source.table(), table.version() + 1)
        for source in sources(rule, Home(home, rule.rule)).values()
    ]
    common = {"entry": Entry(0, tuple(ends)).text(), "watermark": watermark, "maxima": {"events": None}}
    counts = {"events": Counts(read=9, filtered=1, dead=2, late=1, folded=5)}
    intent = Intent(
        **common, watermark_before=None, counts=counts, rule=rule.to_json(), rule_hash=rule.hash, zone="UTC", ansi=True
    )
    ledger.intend(intent)
    tables = {f"sink/{rule.sinks[0].address}": Written(version=1 << 20, commit=1, rows=4)}
    done = {"counts": counts, "tables": tables, "output_rows": 4, "seconds": {"read": 0.5, "write": 1.0}}
    ledger.commit(Commit(intent=intent.digest, **common, **done))


def run(
    rule: Rule,
    place: Path,
    fake_path: Path,
    ends: str = "exit 0",
    watermark: int | None = None,
    by: str = "manual__1.try1",
) -> dict[str, Any]:
    """One task during whose spark-submit `by` commits epoch 1; its context."""
    fold_all(rule, place / "later")
    fold_epoch(rule, place / "later", by, watermark)
    spark_submit(fake_path, f"mv {place}/later/one {place}/home/one; {ends}")
    given: dict[str, Any] = context()
    task = task_of(rule)
    task.render_template_fields(given)
    task.execute(given)
    return given


def test_metrics_of_a_run(rule: Rule, place: Path, fake_path: Path, sent: Backend) -> None:
    run(rule, place, fake_path, watermark=int(time.time() * 1e6) - HOUR)
    (age,) = sent.plain.pop("floodmark.rule.one.watermark_age_seconds")
    assert 3600 <= age < 3700
    expected = {"read": 9, "filtered": 1, "dead": 2, "late": 1, "folded": 5, "output": 4}
    assert sent.plain == {
        **IDLE,
        "floodmark.rule.one.epoch_duration": [1500.0],
        "floodmark.rule.one.epochs": [1],
        **{f"floodmark.rule.one.rows_{name}": [count] for name, count in expected.items()},
    }
    assert sorted(sent.tagged, key=str) == sorted(
        ((name.replace("rule.one.", ""), {"rule": "one"}) for name in [*sent.plain, "floodmark.watermark_age_seconds"]),
        key=str,
    )


def test_a_run_tells_how_much_of_the_retention_its_unread_input_has_waited(
    rule: Rule, place: Path, fake_path: Path, sent: Backend
) -> None:
    """Also one that fails: the next tries may fail, too, until the source deletes the input."""
    fold_all(rule, place / "home")
    arrive(place)
    age(str(place / "lake" / "events"), 15)
    spark_submit(fake_path, "exit 1")
    with pytest.raises(AirflowException):
        task_of(rule).execute(context())
    (used,) = sent.plain["floodmark.rule.one.retention_used"]
    assert 0.5 <= used < 0.51
    assert ("floodmark.retention_used", {"rule": "one"}) in sent.tagged


def test_a_source_that_cannot_tell_its_retention_hides_no_other_metric(
    rule: Rule, place: Path, sent: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> float:
        raise Refused("the login may not read the topic's settings")

    monkeypatch.setattr(reporting, "retention_used", fails)
    fold_all(rule, place / "home")
    with structlog.testing.capture_logs() as lines, pytest.raises(AirflowSkipException):
        task_of(rule).execute(context())
    assert sent.plain == {name: values for name, values in IDLE.items() if not name.endswith("retention_used")}
    assert "rule one: the retention of its sources is unknown: the login may not" in str(lines)


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0), ("Asia/Tokyo", 9)])
def test_the_watermarks_age_is_by_the_clock_that_event_times_have(
    rule: Rule, monkeypatch: pytest.MonkeyPatch, zone: str, hours: int
) -> None:
    monkeypatch.setattr(reporting, "zoned", lambda *_: False)
    now = datetime(2001, 1, 1, 12, tzinfo=UTC)
    none: Any = SimpleNamespace(watermark=None)
    head: Any = SimpleNamespace(watermark=round(now.timestamp() * 1e6) + hours * HOUR - 5_000_000)
    assert reporting.watermark_age(rule.model_copy(update={"timezone": zone}), head, now) == 5
    assert reporting.watermark_age(rule, none, now) is None


def test_what_another_run_has_committed_meanwhile_is_counted_by_that_one(
    rule: Rule, place: Path, fake_path: Path, sent: Backend
) -> None:
    """A rule of a group that somebody runs by itself, say."""
    run(rule, place, fake_path, by="round__7.try1")
    assert sent.plain == IDLE


def test_airflows_opentelemetry_takes_them(rule: Rule, place: Path, fake_path: Path, sent: Backend) -> None:
    reader = InMemoryMetricReader()
    logger = SafeOtelLogger(MeterProvider([reader]))
    stats.initialize(factory=lambda: logger, export_legacy_names=False)
    run(rule, place, fake_path)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]
    assert {"airflow.floodmark.rows_read", "airflow.floodmark.rule.one.rows_read"} <= {one.name for one in metrics}
    (point,) = next(one for one in metrics if one.name == "airflow.floodmark.rows_read").data.data_points
    assert (point.value, dict(point.attributes or {})) == (9, {"rule": "one"})  # type: ignore[union-attr]


def test_what_a_run_committed_before_it_failed_is_told(rule: Rule, place: Path, fake_path: Path, sent: Backend) -> None:
    with pytest.raises(AirflowException):
        run(rule, place, fake_path, "exit 1")
    assert sent.plain["floodmark.rule.one.rows_read"] == [9]


def test_a_retired_rule_sends_nothing_also_in_the_rounds_of_its_group(rule: Rule, place: Path, sent: Backend) -> None:
    fold_all(rule, place / "home")
    Ledger.open(Home(place / "home", "one").ledger, "me").live(Life(what="retired"))
    arrive(place)
    steps = Steps(rule, context(), structlog.get_logger())
    steps.look()
    assert (steps.report(), sent.plain) == (False, {})


def test_a_dry_run_of_an_operation_sends_nothing(rule: Rule, place: Path, fake_path: Path, sent: Backend) -> None:
    fold_all(rule, place / "home")
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowSkipException, match="a dry run"):
        execute(rule, operation="reset", dry_run=True)
    assert sent.plain == {}


def test_a_run_with_nothing_to_do_tells_how_far_it_is(rule: Rule, place: Path, sent: Backend) -> None:
    fold_all(rule, place / "home")
    with pytest.raises(AirflowSkipException):
        task_of(rule).execute(context())
    assert sent.plain == IDLE


def test_who_is_woken_by_a_sink_learns_of_epoch_rows_and_watermark(rule: Rule, place: Path, fake_path: Path) -> None:
    events = run(rule, place, fake_path, watermark=HOUR)["outlet_events"]
    expected = {"rule": "one", "generation": 1, "epoch": 1, "epochs": 1, "watermark": "1970-01-01T01:00:00Z"}
    assert events[Asset(f"file://{place}/lake/one_out")].extra == {**expected, "rows": 4}
    assert events[Asset(f"file://{place}/lake/other")].extra == {**expected, "rows": 0}


def test_a_retry_tells_of_what_its_first_try_committed_and_counts_it_no_second_time(
    rule: Rule, place: Path, sent: Backend
) -> None:
    fold_all(rule, place / "home")
    fold_epoch(rule, place / "home", "manual__1.try1", None)
    given = context(try_number=2)
    task_of(rule).execute(given)
    assert given["outlet_events"][Asset(f"file://{place}/lake/one_out")].extra["rows"] == 4
    assert sent.plain == IDLE


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> dict[str, datetime]:
    """When who waits for a sink was woken last, by the sink's name, as Airflow says."""
    found: dict[str, datetime] = {}

    class Supervisor:
        def send(self, asked: GetAssetEventByAsset) -> AssetEventsResult:
            assert (asked.ascending, asked.limit, asked.name) == (False, 1, asked.uri)
            at, about = found.get(Path(str(asked.uri)).name), {"name": asked.name, "uri": asked.uri, "group": "asset"}
            event = {"id": 1, "timestamp": at, "asset": about, "created_dagruns": []}
            return AssetEventsResult.model_validate({"asset_events": [event] if at else []})

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(), raising=False)
    return found


def test_what_a_run_that_failed_has_committed_is_told_by_the_next_one(
    rule: Rule, place: Path, sent: Backend, woken: dict[str, datetime]
) -> None:
    """Its supervisor was lost, say, and Spark went on."""
    before = datetime.now(UTC)
    fold_all(rule, place / "home")
    fold_epoch(rule, place / "home", "scheduled__0.try1", None)
    for known in ({"one_out": before}, {"one_out": before, "other": before}):
        woken.update(known)
        given = context()
        task_of(rule).execute(given)
        assert [given["outlet_events"][asset(str(sink.address))].extra["epochs"] for sink in rule.sinks] == [1, 1]
    assert sent.plain == {name: [0, 0] for name in IDLE}, "the epochs were counted by their own run"


def test_a_backfill_or_reset_by_a_run_that_failed_is_told_by_the_next_one(
    rule: Rule, place: Path, woken: dict[str, datetime]
) -> None:
    """Neither ends an epoch: readers would keep the old results until other input comes."""
    fold_all(rule, place / "home")
    for did in (partial(done_by, rule, place / "home", 0, HOUR, begun_by="cli-1"), partial(begun_anew, place)):
        woken.update(dict.fromkeys(("one_out", "other"), datetime.now(UTC)))
        with pytest.raises(AirflowSkipException):
            task_of(rule).execute(context())
        did("manual__0.try1")
        given = context()
        task_of(rule).execute(given)
        assert [given["outlet_events"][asset(str(sink.address))].extra["epochs"] for sink in rule.sinks] == [0, 0]


def test_the_first_generation_alone_is_no_news(rule: Rule, place: Path, woken: dict[str, datetime]) -> None:
    woken.update(dict.fromkeys(("one_out", "other"), datetime.now(UTC)))
    fold_all(rule, place / "home", "scheduled__0.try1")
    with pytest.raises(AirflowSkipException, match="nothing new since epoch 0"):
        task_of(rule).execute(context())


def test_it_is_told_once(rule: Rule, place: Path, woken: dict[str, datetime]) -> None:
    fold_all(rule, place / "home")
    fold_epoch(rule, place / "home", "scheduled__0.try1", None)
    woken.update(dict.fromkeys(("one_out", "other"), datetime.now(UTC)))
    with pytest.raises(AirflowSkipException, match="nothing new since epoch 1"):
        task_of(rule).execute(context())


def test_an_airflow_with_a_new_database_is_not_green_for_what_another_one_did(
    rule: Rule, place: Path, woken: dict[str, datetime]
) -> None:
    fold_all(rule, place / "home")
    fold_epoch(rule, place / "home", "scheduled__0.try1", None)
    with pytest.raises(AirflowSkipException, match="nothing new since epoch 1"):
        task_of(rule).execute(context())


def test_what_is_done_by_hand_wakes_nobody(rule: Rule, place: Path, woken: dict[str, datetime]) -> None:
    fold_all(rule, place / "home")
    fold_epoch(rule, place / "home", "cli-20260101", None)
    with pytest.raises(AirflowSkipException):
        task_of(rule).execute(context())


def test_an_airflow_that_does_not_answer_fails_no_run(rule: Rule, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fold_all(rule, place / "home")
    fold_epoch(rule, place / "home", "scheduled__0.try1", None)
    fault = SimpleNamespace(send=lambda asked: ErrorResponse(error=ErrorType.API_SERVER_ERROR))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", fault, raising=False)
    with pytest.raises(AirflowSkipException):
        task_of(rule).execute(context())


def test_whatever_goes_wrong_in_telling_fails_no_run(
    rule: Rule, place: Path, fake_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what nobody foresaw."""

    def fails(*_: object) -> None:
        raise ValueError("no such thing at s3://somebody:word@store/x")

    monkeypatch.setattr(reporting, "measure", fails)
    with structlog.testing.capture_logs() as lines:
        run(rule, place, fake_path)
    (line,) = [line["event"] for line in lines if "could not be reported" in line["event"]]
    assert line == "rule one: what this run did could not be reported: ValueError: no such thing at s3://***@store/x"


def test_each_epoch_is_a_line_with_fields(rule: Rule, place: Path, fake_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        run(rule, place, fake_path)
    (line,) = [line for line in lines if line["event"] == "epoch ended"]
    facts = {"rule": "one", "generation": 1, "epoch": 1, "attempt": 1, "run": "manual__1.try1", "seconds": 1.5}
    assert facts.items() <= line.items()
    assert (line["rows_read"], line["rows_late"]) == (9, 1)


def test_a_ledger_that_cannot_be_read_does_not_hide_why_the_run_failed(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    log = place / "home" / "one" / "ledger" / "_delta_log"
    spark_submit(fake_path, f"mkdir -p {log}; echo broken >{log}/{0:020}.json; echo the reason; exit 1")
    task = task_of(rule)
    given = context()
    task.render_template_fields(given)
    with pytest.raises(AirflowException, match="the reason"):
        task.execute(given)
