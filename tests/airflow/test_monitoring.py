"""The dashboard and the alerts ask for metrics that are sent, by labels that they have."""

from __future__ import annotations

import copy
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from support.monitored import FOLDER, alerts, dashboard, exported, grouped, queries, unknown_to_grafana, used
from test_telling import Backend

from floodmark.connectors.relay.backlogs import Undelivered
from floodmark.connectors.relay.memory import Memory
from floodmark.core.protocol.tally import COUNTS, Corrected, Ended
from floodmark_airflow.tasks import reporting

REGISTRY = Path(stats.__file__).parents[2] / "_shared" / "observability" / "metrics" / "metrics_template.yaml"
CASES = Path(__file__).parents[1] / "services" / "alerts.test.yml"
PAGE = FOLDER.with_suffix(".md")
EXPRESSIONS = [*queries(), *alerts().items()]
# What statsd_exporter makes of them is in the mapping, or by its own rule for names.
OF_AIRFLOW = (
    "airflow.scheduler_heartbeat",
    "airflow.ti.finish.rule__one.run.failed",
    "airflow.dagrun.duration.failed.rule__one",
)


@pytest.fixture
def sent() -> list[str]:
    """All metrics that a try of the rule `one` can send, by StatsD's names."""
    backend = Backend()
    stats.initialize(factory=lambda: backend, export_legacy_names=False)  # type: ignore[arg-type, return-value]
    epoch = Ended(1, 1, 1, "run", dict.fromkeys(COUNTS, 1), seconds=1.0)
    reporting.measure("one", 1.0, 1, reporting.Done(None, [epoch], [Corrected("run", 3)]))
    reporting.measure_retention("one", 0.5)
    memory = Memory(at="2001-01-01T00:00:00+00:00", shipped=1)
    lacks = Undelivered("public.t", 1, 1, 1, memory.at, memory)
    reporting.measure_target("one", lacks, 1.0, datetime.now(UTC))
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
    return [f"airflow.{name}" for name in [*backend.plain, *(name for name, _ in backend.tagged)]]


@pytest.fixture
def series(sent: list[str]) -> dict[str, set[str]]:
    """The labels of each metric that Prometheus gets, of those that a panel or an alert may use."""
    made = [found for found in map(exported, [*sent, *OF_AIRFLOW]) if found is not None]
    return {name: labels for names, labels in made for name in names}


def test_grafana_knows_every_word_of_the_dashboard() -> None:
    assert unknown_to_grafana(dashboard()) == []


@pytest.mark.parametrize(
    "way",
    [(), ("panels", 0), ("panels", 4, "options"), ("panels", 4, "fieldConfig", "defaults", "custom")],
    ids=str,
)
def test_a_misspelt_word_is_noticed(way: tuple[Any, ...]) -> None:
    wrong = copy.deepcopy(dashboard())
    part: Any = wrong
    for step in way:
        part = part[step]
    part["titel"] = "Lag"
    assert unknown_to_grafana(wrong) == ["/".join(["", *map(str, way), "titel"])]


def test_panels_do_not_overlap_and_are_told_apart() -> None:
    panels = dashboard()["panels"]
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    for key in ("id", "title"):
        assert len({panel[key] for panel in panels}) == len(panels)
    assert all(panel["description"] and panel["datasource"]["uid"] == "${datasource}" for panel in panels)


@pytest.mark.parametrize(("title", "query"), EXPRESSIONS, ids=[title for title, _ in EXPRESSIONS])
def test_a_query_asks_for_what_is_sent(series: dict[str, set[str]], title: str, query: str) -> None:
    found = list(used(query))
    assert found, f"{title} asks for no metric"
    for name, labels in found:
        assert name in series, f"{title} asks for {name}"
        assert labels <= series[name], f"{title} selects {name} by {labels - series[name]}"
    assert grouped(query) <= set().union(*(series[name] for name, _ in found))


def test_each_metric_has_a_panel(series: dict[str, set[str]]) -> None:
    assert set(series) == {name for _, query in queries() for name, _ in used(query)}


def test_a_metric_with_a_tag_is_not_exported_twice(sent: list[str]) -> None:
    assert [exported(name) for name in sent if ".rule." not in name] == [None] * 27


def test_airflow_has_the_metrics_that_are_used_of_it() -> None:
    known = {one["name"]: one for one in yaml.safe_load(REGISTRY.read_text())["metrics"]}
    assert known["ti.finish"]["legacy_name"] == "ti.finish.{dag_id}.{task_id}.{state}"
    assert known["dagrun.duration.failed"]["legacy_name"] == "dagrun.duration.failed.{dag_id}"
    assert "scheduler_heartbeat" in known


@pytest.mark.parametrize(
    ("dag", "rule", "task"),
    [
        ("rule__one.run", "one", "run"),
        ("dev__rule__one.freshness", "one", "freshness"),
        ("group__small.outcome", "group small", "outcome"),
        ("upkeep.one", "one", "upkeep"),
    ],
)
def test_only_tasks_of_floodmark_are_counted(dag: str, rule: str, task: str) -> None:
    names, labels = exported(f"airflow.ti.finish.{dag}.failed") or (set(), set())
    assert (names, labels) == ({"floodmark_tasks_total"}, {"rule", "task", "state"})
    assert exported("airflow.ti.finish.mine.run.failed") == ({"airflow_ti_finish_mine_run_failed"}, set())


@pytest.mark.parametrize(
    "dag", ["rule__one", "dev__rule__one", "group__small", "dev__group__small", "upkeep", "dev__upkeep"]
)
def test_a_failed_run_of_whose_tasks_one_was_killed_is_counted(dag: str) -> None:
    """The task has sent nothing: the scheduler sends how long the run took."""
    names, labels = exported(f"airflow.dagrun.duration.failed.{dag}") or (set(), set())
    assert "floodmark_run_duration_seconds_count" in names and labels == {"rule", "state", "le"}
    assert exported("airflow.dagrun.duration.failed.mine") == ({"airflow_dagrun_duration_failed_mine"}, set())


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    (_, *wrong) = yaml.safe_load(CASES.read_text())["tests"]
    fire = re.findall(r'alertname="(\w+)"', str(wrong))
    assert set(fire) == set(alerts())


def test_a_query_that_does_not_parse_is_noticed() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        list(used("sum by (rule (floodmark_lag_commits)"))


def test_the_page_names_all_metrics_alerts_and_files(sent: list[str]) -> None:
    page = PAGE.read_text()
    assert {name.rsplit(".", 1)[1] for name in sent if f"| `{name.rsplit('.', 1)[1]}` |" not in page} == set()
    assert {name for name in alerts() if f"`{name}`" not in page} == set()
    assert {file.name for file in FOLDER.iterdir() if f"(monitoring/{file.name})" not in page} == set()
