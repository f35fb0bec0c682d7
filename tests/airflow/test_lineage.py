"""The tables that a task names to OpenLineage. What Airflow's provider makes of them is in tests/services."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.lineage import REQUIREMENTS
from test_dags import write
from test_operator import task_of

from floodmark.core.health.machine import locked
from floodmark.core.rules.rule import load_rule
from floodmark_airflow.assets import asset
from floodmark_airflow.lineage import place_of, places
from floodmark_airflow.tasks.operators import RuleRunOperator

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "monitoring.md"


@pytest.fixture
def task(rules: Path) -> RuleRunOperator:
    """Of a rule that looks up a table in a store of objects."""
    settings: dict[str, Any] = {
        "lookups": {"names": {"delta": "s3a://bucket/of/names"}},
        "sql": "SELECT events.n FROM events JOIN names ON events.n = names.n",
        "sinks": [{"delta": "${LAKE}/left"}, {"delta": "abfss://c@a.dfs.core.windows.net/right"}],
    }
    return task_of(load_rule(write(rules, "one", **settings), os.environ))


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/lake/out", ("file", "/lake/out")),
        ("/lake/ü", ("file", "/lake/ü")),
        ("/lake/a#b?c%41 d", ("file", "/lake/a#b?c%41 d")),
        ("/lake/\udcff", ("file", "/lake/%FF")),
        ("s3://bucket/lake/ä", ("s3://bucket", "lake/ä")),
        ("s3://bucket/lake/out", ("s3://bucket", "lake/out")),
        ("gs://bucket/lake/out", ("gs://bucket", "lake/out")),
        ("hdfs://node:8020/lake/out", ("hdfs://node:8020", "/lake/out")),
        ("abfss://c@a.dfs.core.windows.net/out", ("abfss://c@a.dfs.core.windows.net", "out")),
        ("abfs://c@a.dfs.core.windows.net/out", ("abfss://c@a.dfs.core.windows.net", "out")),
        ("wasb://c@a.blob.core.windows.net/out", ("wasbs://c@a.blob.core.windows.net", "out")),
        ("wasbs://c@a.blob.core.windows.net/out", ("wasbs://c@a.blob.core.windows.net", "out")),
    ],
)
def test_a_table_is_named_by_the_rules_of_openlineage(address: str, place: tuple[str, str]) -> None:
    assert place_of(asset(address).uri) == place


def test_streams_lookups_and_sinks_of_a_task_have_names(task: RuleRunOperator, place: Path) -> None:
    assert places(task.inputs) == [("file", f"{place}/lake/events"), ("s3://bucket", "of/names")]
    assert places(task.outlets) == [("file", f"{place}/lake/left"), ("abfss://c@a.dfs.core.windows.net", "right")]


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two classes that Floodmark uses of the provider, which is not installed here."""
    modules: dict[str, Any] = {
        "airflow.providers.openlineage.extractors": SimpleNamespace(OperatorLineage=SimpleNamespace),
        "openlineage.client.event_v2": SimpleNamespace(Dataset=lambda *place: place),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("provider")
def test_what_is_read_is_input_and_outlets_are_outputs_at_both_ends_of_a_run(task: RuleRunOperator) -> None:
    expected = SimpleNamespace(inputs=places(task.inputs), outputs=places(task.outlets))
    assert task.get_openlineage_facets_on_start() == expected
    assert task.get_openlineage_facets_on_complete(None) == expected


@pytest.mark.usefixtures("provider")
def test_a_task_that_updates_no_sink_names_none(task: RuleRunOperator) -> None:
    """Such as a dry run."""
    task.outlets = []
    assert task.get_openlineage_facets_on_complete(None).outputs == []


def test_the_page_names_the_version_that_is_tested() -> None:
    assert f"version {locked(REQUIREMENTS.read_text())['apache-airflow-providers-openlineage']})" in " ".join(
        PAGE.read_text().split()
    )
