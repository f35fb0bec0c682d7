"""Each service of the Compose files is bounded, is not root's, and is reached by this host alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

CHECKOUT = Path(__file__).parents[2]
SECRET = re.compile(r"PASSWORD|SECRET|_KEY")
BASE = CHECKOUT / "docker-compose.yaml"
STORE = CHECKOUT / "docker" / "objects.yaml"


def services(path: Path) -> dict[str, dict[str, Any]]:
    """Those that the file defines, and not only adds to."""
    found = yaml.safe_load(path.read_text())["services"]
    return {name: one for name, one in found.items() if "image" in one}


ALL = {**services(BASE), **services(STORE)}
each = pytest.mark.parametrize("name", ALL)


@each
def test_no_service_has_a_right_of_roots_or_can_get_one(name: str) -> None:
    one = ALL[name]
    assert one["cap_drop"] == ["ALL"]
    assert "cap_add" not in one
    assert "privileged" not in one
    assert one["security_opt"] == ["no-new-privileges:true"]


@each
def test_each_service_has_limits_and_its_output_is_rotated(name: str) -> None:
    one = ALL[name]
    assert {"mem_limit", "cpus", "pids_limit"} <= set(one)
    assert set(one["logging"]["options"]) == {"max-size", "max-file"}


@each
def test_ports_are_published_to_this_host_alone(name: str) -> None:
    assert [port for port in ALL[name].get("ports", []) if not port.startswith("127.0.0.1:")] == []
    assert ALL[name].get("network_mode") is None


@each
def test_a_secret_has_no_default(name: str) -> None:
    for variable, value in ALL[name].get("environment", {}).items():
        if SECRET.search(variable) and "FILE" not in variable:
            assert re.search(r"\$\{\w+:\?set it in \.env", value), variable


@each
def test_an_image_of_others_is_given_a_user_and_ours_has_one(name: str) -> None:
    if "floodmark-airflow" not in ALL[name]["image"]:
        assert ALL[name]["user"] not in ("root", "0")
    else:
        assert "user" not in ALL[name]


def test_our_image_ends_with_a_user_that_owns_none_of_its_code() -> None:
    text = (CHECKOUT / "docker" / "Dockerfile").read_text()
    assert re.findall(r"^USER (.+)$", text, re.M) == ["airflow"]
    assert "--chown" not in text


def test_no_tool_of_tests_and_no_rule_is_in_the_image() -> None:
    text = (CHECKOUT / "docker" / "Dockerfile").read_text()
    last = text[text.index("\nFROM base\n") :]
    assert not re.search(r"COPY.*\b(rules|tests|requirements-dev\.txt)\b", last)
    kept = (CHECKOUT / "docker" / "Dockerfile.dockerignore").read_text().split()
    assert "!rules" not in kept


def test_a_crash_of_the_scheduler_costs_no_slot_of_five_minutes() -> None:
    """Each bound alone leaves tasks that Airflow looks for after 300 s."""
    environment = services(BASE)["airflow-scheduler"]["environment"]
    assert 60 <= int(environment["AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT"]) <= 120
    assert int(environment["AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL"]) <= 60


def test_health_checks_do_not_import_airflow() -> None:
    checks = [" ".join(one["healthcheck"]["test"]) for one in ALL.values() if "healthcheck" in one]
    assert len(checks) >= 8
    assert [check for check in checks if "airflow jobs" in check] == []


def test_the_services_that_fill_the_example_get_no_secret() -> None:
    for name in ("flights-first", "flights"):
        assert set(services(BASE)[name]["environment"]) == {"FLOODMARK_RULES", "LAKE"}


def test_workers_have_no_volume_without_a_name() -> None:
    """`down` would leave it."""
    assert [v for one in ALL.values() for v in one.get("volumes", []) if not isinstance(v, str)] == []
