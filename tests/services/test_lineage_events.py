"""What Airflow's OpenLineage provider sends about runs of rules, against OpenLineage's own JSON schemas.

The provider is in an environment of its own: where it is installed, Airflow's Spark provider takes longer to import.
"""

from __future__ import annotations

import copy
import sys
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake
from support.installed import CHECKOUT, LOCKED, Installed, built
from support.lineage import REQUIREMENTS, SCHEMAS, facets, faults, sent_by

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]
Event = dict[str, Any]
# Of a store that nobody can reach.
FAR = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}


@pytest.fixture(scope="module")
def installed(root: Path) -> Installed:
    """An Airflow with its OpenLineage provider and Floodmark's wheel."""
    found = Installed(root, sys.executable)
    found.env |= FAR
    airflow = f"apache-airflow=={LOCKED['apache-airflow']}"
    wheel = built(CHECKOUT, root / "wheel")
    found.call("pip", "install", "-q", airflow, f"{wheel}[airflow]", "-r", str(REQUIREMENTS))
    found.call("airflow", "db", "migrate")
    found.call("floodmark", "jars")
    found.call("floodmark", "airflow", "init")
    return found


@pytest.fixture(scope="module")
def lake(installed: Installed) -> Path:
    """With the tables that the rules read."""
    found = installed.root / "lake"
    found.mkdir()
    for name in ("events", "names"):
        write_deltalake(found / name, pa.table({"n": [1]}))
    return found


def write(installed: Installed, lake: Path, name: str, names: str, **settings: Any) -> None:
    """A rule with two sinks, that looks up `names`."""
    rule = {
        "rule": name,
        "description": "Each number.",
        "streams": {"events": {"delta": str(lake / "events")}},
        "lookups": {"names": {"delta": names}},
        "sql": "SELECT events.n FROM events JOIN names ON events.n = names.n",
        "sinks": [{"delta": str(lake / f"{name}_{side}")} for side in ("left", "right")],
        "airflow": {"retries": 0},
        "spark": {"shuffle_partitions": 1, "driver_memory": "1g"},
        **settings,
    }
    file = installed.root / "airflow" / "floodmark" / "rules" / f"{name}.yaml"
    file.write_text(yaml.safe_dump(rule, sort_keys=False))


@pytest.fixture(scope="module")
def events(installed: Installed, lake: Path) -> list[Event]:
    """Of a run that ends well, of one that fails in Spark, and of a rule file that is wrong."""
    write(installed, lake, "one", str(lake / "names"))
    write(installed, lake, "far", "s3a://bucket/of/names")
    write(installed, lake, "bad", str(lake / "names"), qos=7)
    return sent_by(installed, "rule.one", "rule.far", "rule.bad")


def test_events_and_their_facets_fit_the_schema(events: list[Event]) -> None:
    assert [fault for event in events for fault in faults(event)] == []
    assert {at.rsplit("/", 1)[1] for event in events for at, _ in facets(event, "")} >= {"nominalTime", "errorMessage"}


def test_a_run_begins_and_ends_and_a_dags_run_ends(events: list[Event]) -> None:
    """The scheduler sends what begins a DAG's run; there is none here."""
    assert [(event["job"]["name"], event["eventType"]) for event in events] == [
        ("rule.one.run", "START"),
        ("rule.one.run", "COMPLETE"),
        ("rule.one", "COMPLETE"),
        *(("rule.far.run", "START"), ("rule.far.run", "FAIL"), ("rule.far", "FAIL")),
        *(("rule.bad.run", "START"), ("rule.bad.run", "FAIL"), ("rule.bad", "FAIL")),
    ]
    runs = [event["run"]["runId"] for event in events]
    assert runs[0::3] == runs[1::3]
    assert len(set(runs)) == 6


def places(datasets: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


@pytest.mark.parametrize("name", ["one", "far"])
def test_a_run_names_what_it_reads_and_its_sinks_also_if_it_fails(events: list[Event], lake: Path, name: str) -> None:
    """No provider of Amazon is installed here."""
    looked_up = {"one": ("file", f"{lake}/names"), "far": ("s3://bucket", "of/names")}[name]
    ends = [event for event in events if event["job"]["name"] == f"rule.{name}.run"]
    assert [places(event["inputs"]) for event in ends] == [[("file", f"{lake}/events"), looked_up]] * 2
    sinks = [("file", f"{lake}/{name}_{side}") for side in ("left", "right")]
    assert [places(event["outputs"]) for event in ends] == [sinks] * 2


def test_the_provider_knows_the_operator(events: list[Event]) -> None:
    """Else it sends a facet that says so, with the task's fields."""
    assert [event["job"]["name"] for event in events if "unknownSourceAttribute" in event["run"]["facets"]] == [
        "rule.bad.run"
    ] * 2


def test_a_job_says_what_the_rule_says_of_itself(events: list[Event]) -> None:
    told = events[1]["job"]["facets"]
    assert told["documentation"]["description"].startswith("Each number.")
    assert {tag["key"] for tag in told["tags"]["tags"]} == {"floodmark"}


def test_every_schema_in_git_is_used(events: list[Event]) -> None:
    used = {facet["_schemaURL"].partition("#")[0] for event in events for _, facet in facets(event, "")}
    assert {address.rsplit("/", 1)[1] for address in used} == {file.name for file in SCHEMAS.glob("*.json")}


@pytest.mark.parametrize(
    "field",
    [
        *("eventTime", "producer", "schemaURL", "run", "job", "run/runId", "job/namespace", "job/name"),
        *("outputs/0/namespace", "outputs/0/name", "run/facets/nominalTime/_producer"),
        *("run/facets/nominalTime/_schemaURL", "run/facets/nominalTime/nominalStartTime"),
        *("run/facets/parent/job", "run/facets/parent/run/runId", "run/facets/processing_engine/version"),
        *("job/facets/documentation/description", "job/facets/jobType/integration"),
    ],
)
def test_a_required_field_that_is_missing_is_noticed(events: list[Event], field: str) -> None:
    event = copy.deepcopy(events[1])
    *way, last = field.split("/")
    del reduce(lambda part, key: part[int(key) if isinstance(part, list) else key], way, event)[last]  # type: ignore[call-overload]
    assert any(repr(last) in fault or f"/{last}" in fault for fault in faults(event))


@pytest.mark.parametrize(
    ("part", "field", "wrong"),
    [
        ("run", "runId", "one"),
        (None, "eventTime", "2026-01-01T00:00:00"),
        (None, "eventTime", "soon"),
        (None, "eventType", "DONE"),
        (None, "producer", "floodmark"),
    ],
)
def test_a_value_of_another_form_is_noticed(events: list[Event], part: str | None, field: str, wrong: str) -> None:
    event = copy.deepcopy(events[0])
    (event[part] if part else event)[field] = wrong
    assert len(faults(event)) == 1


def test_a_facet_without_a_schema_at_hand_is_noticed(events: list[Event]) -> None:
    event = copy.deepcopy(events[0])
    event["outputs"][0]["outputFacets"] = {
        "own": {"_producer": "https://a.example", "_schemaURL": "https://a.example/1"}
    }
    (fault,) = faults(event)
    assert fault.startswith("/outputs/0/outputFacets/own/_schemaURL: https://a.example/1")
