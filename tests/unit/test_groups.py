"""Groups of rules: who is in one, what they share, and what they have to agree on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.cli.applications import run_rule
from floodmark.core.application.failure import Failure, FailureFile, ending, ending_in
from floodmark.core.rules.groups import by_the_clock, groups, schedule_of, shared
from floodmark.core.rules.rule import load_rules
from floodmark.errors import Busy, NotThereYet, Refused, RunFailed

ENV = {"LAKE": "/lake"}
CRON = "*/5 * * * *"


def write(folder: Path, name: str, **settings: Any) -> None:
    text = {
        "rule": name,
        "group": "small",
        "streams": {"events": {"delta": "${LAKE}/events"}},
        "sql": "SELECT n FROM events",
        "sinks": [{"delta": f"${{LAKE}}/{name}_out"}],
        "schedule": CRON,
        **settings,
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(text, sort_keys=False))


def refused(folder: Path) -> dict[str, str]:
    return {file: str(fault) for file, fault in load_rules(folder, ENV)[1].items()}


def test_a_group_has_its_rules_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, group in (("b", "small"), ("a", "small"), ("c", "other")):
        write(tmp_path, name, group=group)
    rules, errors = load_rules(tmp_path, ENV)
    assert errors == {}
    found = {name: [rule.rule for rule in group] for name, group in groups(rules.values()).items()}
    assert found == {"small": ["a", "b"], "other": ["c"]}


def test_a_rule_without_a_group_is_in_none(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (rule,) = load_rules(tmp_path, ENV)[0].values()
    assert groups([rule.model_copy(update={"group": None})]) == {}


def test_an_application_is_as_large_as_its_most_demanding_rule(tmp_path: Path) -> None:
    write(tmp_path, "a", spark={"driver_memory": "900m", "conf": {"spark.app.x": "1"}})
    write(tmp_path, "b", spark={"driver_memory": "1g", "shuffle_partitions": 8, "conf": {"spark.app.y": "2"}})
    found = shared(list(load_rules(tmp_path, ENV)[0].values()))
    assert (found.driver_memory, found.shuffle_partitions) == ("1g", 8)
    assert found.conf == {"spark.app.x": "1", "spark.app.y": "2"}


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("schedule", {"schedule": "@hourly"}),
        ("schedule", {"schedule": {"assets": ["file:///lake/x"]}}),
        ("timezone", {"timezone": "Europe/Berlin"}),
        ("spark.conf.spark.executor.memory", {"spark": {"conf": {"spark.executor.memory": "9g"}}}),
    ],
)
def test_who_does_not_say_what_most_of_the_group_say_is_refused_and_the_others_go_on(
    tmp_path: Path, field: str, settings: dict[str, Any]
) -> None:
    common = {"spark": {"conf": {"spark.executor.memory": "1g"}}}
    write(tmp_path, "a", **{**common, **settings})
    write(tmp_path, "b", **common)
    write(tmp_path, "c", **common)
    (fault,) = refused(tmp_path).items()
    assert fault[0] == "a.yaml"
    assert f"a.yaml: {field}: expected " in fault[1] and "as in b.yaml" in fault[1]


def test_where_no_side_has_the_most_none_goes_on_and_each_names_the_other(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", schedule=None)
    found = refused(tmp_path)
    assert sorted(found) == ["a.yaml", "b.yaml"]
    assert "expected null, as in b.yaml" in found["a.yaml"] and f'found "{CRON}"' in found["a.yaml"]
    assert f'expected "{CRON}", as in a.yaml' in found["b.yaml"] and "found null" in found["b.yaml"]


def test_what_each_rule_may_have_for_itself_needs_no_agreement(tmp_path: Path) -> None:
    write(tmp_path, "a", airflow={"retries": 0, "owner": "me"}, qos=1, spark={"conf": {"spark.app.x": "1"}})
    write(tmp_path, "b", spark={"driver_memory": "9g"})
    write(tmp_path, "c", group="other", schedule="@hourly", timezone="Europe/Berlin")
    assert refused(tmp_path) == {}


def test_the_order_of_assets_is_no_disagreement(tmp_path: Path) -> None:
    write(tmp_path, "a", schedule={"assets": ["x", "y"]})
    write(tmp_path, "b", schedule={"assets": ["y", "x"]})
    assert refused(tmp_path) == {}


def test_a_failure_that_a_kill_cut_off_counts_as_none(tmp_path: Path) -> None:
    file = FailureFile(tmp_path / "failures")
    assert file.read() == {}
    whole = Failure.of("a", RunFailed("x\nö"))
    file.add(whole)
    with file.path.open("a") as half:
        half.write('{"rule": "b", "exit_')
    assert file.read() == {"a": whole}
    assert not whole.is_final and Failure.of("a", Refused("x")).is_final


def test_a_group_is_called_as_a_rule_is(tmp_path: Path) -> None:
    write(tmp_path, "a", group="No Group")
    assert "group: expected a name of at most 63 lowercase letters" in refused(tmp_path)["a.yaml"]


def test_a_rule_that_runs_after_others_of_its_group_needs_no_schedule_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", streams={"events": {"rule": "a"}}, schedule="upstream")
    rules, errors = load_rules(tmp_path, ENV)
    assert errors == {}
    assert schedule_of(list(rules.values())) == CRON


def test_a_rule_that_runs_after_one_outside_of_its_group_is_at_odds_with_it(tmp_path: Path) -> None:
    write(tmp_path, "outside", group=None)
    write(tmp_path, "a")
    write(tmp_path, "b")
    write(tmp_path, "c", streams={"events": {"rule": "outside"}}, schedule="upstream")
    problems = refused(tmp_path)
    assert list(problems) == ["c.yaml"]
    assert f'schedule: expected "{CRON}", as in a.yaml' in problems["c.yaml"]


def test_who_waits_for_a_table_is_told_apart(tmp_path: Path) -> None:
    file = FailureFile(tmp_path / "failures")
    file.add(Failure.of("a", Busy("held")))
    file.add(Failure.of("b", NotThereYet("no table")))
    file.add(Failure.of("c", RunFailed("no room")))
    assert {name: found.waits for name, found in file.read().items()} == {"a": False, "b": True, "c": False}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (ending(3), 3),
        (f"printed by a class{ending(2)}\n", 2),
        ("Error: exit code 2", None),
        (f"{ending(2)} said somebody", None),
    ],
)
def test_the_last_line_of_a_job_tells_its_exit_code(line: str, code: int | None) -> None:
    assert ending_in(line) == code


def test_a_job_says_that_its_exit_code_is_its_own(tmp_path: Path) -> None:
    job = [
        sys.executable,
        run_rule.__file__,
        "a",
        "--rules",
        tmp_path / "nowhere",
    ]
    ended = subprocess.run(job, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == ending(2)
    assert ended.stdout == "", "where programs read a document"


@pytest.mark.parametrize(
    ("schedule", "comes"), [(CRON, True), ("@once", False), ({"assets": ["file:///lake/x"]}, False), (None, False)]
)
def test_another_round_comes_by_the_clock_alone(tmp_path: Path, schedule: Any, comes: bool) -> None:
    write(tmp_path, "a", schedule=schedule)
    assert by_the_clock(list(load_rules(tmp_path, ENV)[0].values())) is comes
