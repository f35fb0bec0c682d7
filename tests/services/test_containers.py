"""The Compose file, started: who may reach and read what, and faults of each service in the middle of an epoch."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import flights
import pytest
import yaml
from support.composed import API, CHECKOUT, DATABASE, SCHEDULER, Composed, filled
from support.engine import engine, run
from support.waiting import wait

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]  # an image is built, and Airflow misses a scheduler late
RULE = "departure_delays"
DAG = f"rule.{RULE}"
MARKS = "/data/lake/marks"
MOST_BYTES = 2_600_000_000  # of the image; it was 4.4e9 with the tools of tests and uv's cache
TOOLS = ("pytest", "mypy", "ruff", "mkdocs", "playwright", "hypothesis", "coverage", "uv")
AIRFLOWS = (API, SCHEDULER, "airflow-dag-processor", "airflow-triggerer")
SECRETS = tuple(re.findall(r"^(\w+)=$", (CHECKOUT / "docker" / ".env.example").read_text(), re.M))
ENDED = {"success", "skipped"}
LONG, SLOT = 900.0, 300.0  # seconds
# By epoch: where in it the run waits, and what is killed then.
FAULTS = {
    2: ("intent.after", "the run"),
    3: ("sink0.before", "the database"),
    4: ("sink0.after", "the scheduler"),
    5: ("sink0.before", "the API server"),
    6: ("commit.before", "everything"),
}


@pytest.fixture(scope="module")
def docker() -> Iterator[None]:
    with engine():
        yield


@pytest.fixture(scope="module")
def stack(docker: None, root: Path) -> Iterator[Composed]:
    """The services, and the example rule every minute: a portion of flights is an epoch, which waits for its fault."""
    write_rule(root)
    (root / "faults.yaml").write_text(yaml.safe_dump(override(root)))
    found = Composed(root, (root / "faults.yaml",))
    try:
        found.up()
        found.inside(API, "mkdir", "-p", MARKS)
        wait(found.healthy, 2, LONG)
        yield found
        found.remove()
    finally:
        found.remove()


def write_rule(root: Path, note: str = "") -> None:
    rule = yaml.safe_load((CHECKOUT / "rules" / f"{RULE}.yaml").read_text())
    retries = {"retries": 9, "retry_delay": "3 seconds", "max_retry_delay": "3 seconds"}
    changed = {**rule, "schedule": "* * * * *", "epoch": {"max_files": 1}, "airflow": {**rule["airflow"], **retries}}
    (root / "rules").mkdir(exist_ok=True)
    (root / "rules" / f"{RULE}.yaml").write_text(yaml.safe_dump({**changed, "description": f"Delays. {note}"}))


def override(root: Path) -> dict[str, Any]:
    mounted = {"volumes": [f"{root / 'rules'}:/opt/floodmark/rules:ro"]}
    points = ",".join(f"{RULE}:{point}@{epoch}" for epoch, (point, _) in FAULTS.items())
    crashing = {"environment": {"FLOODMARK_CRASH_AT": points, "FLOODMARK_CRASH_MARKS": MARKS}}
    services: dict[str, Any] = dict.fromkeys((*AIRFLOWS, "flights-first"), mounted)
    return {"services": {**services, SCHEDULER: {**mounted, **crashing}}}


def status(stack: Composed) -> dict[str, Any]:
    found: dict[str, Any] = stack.floodmark("status", RULE)["rules"][RULE]
    return found


def is_committed(stack: Composed, epoch: int) -> bool:
    """Whether it is, and nothing is open. Lets a run go on that waits."""
    point = FAULTS[epoch][0] if epoch in FAULTS else "none"
    stack.inside(API, "rm", "-f", f"{MARKS}/{RULE}.{point}", check=False)
    if not stack.healthy():
        return False
    found = status(stack)
    return (found["epoch"] or 0) >= epoch and found["open"] is None


def arrive(stack: Composed) -> None:
    """The next portion of flights."""
    words = "import sys; sys.path.insert(0, 'scripts'); import flights; print(next(flights.feed('/data/lake/flights')))"
    stack.inside(API, "python", "-c", words)


def watermark_us(stack: Composed) -> int:
    """Windows that end at it or before are final."""
    at = datetime.fromisoformat(status(stack)["watermark"]).replace(tzinfo=UTC)
    return int(at.timestamp() * 1_000_000)


def states(stack: Composed) -> list[str]:
    """Of the rule's runs in Airflow, the newest first."""
    found = json.loads(stack.call(f"/api/v2/dags/{DAG}/dagRuns?order_by=-run_after", token=stack.token()))
    return [str(one["state"]) for one in found["dag_runs"]]


@pytest.mark.parametrize("name", SECRETS)
def test_a_missing_secret_is_refused_by_name(name: str, docker: None, place: Path) -> None:
    """And none has a default."""
    values = filled(place / "env")
    (place / "env").write_text("".join(f"{key}={value}\n" for key, value in values.items() if key != name))
    files = [CHECKOUT / "docker-compose.yaml", CHECKOUT / "docker" / "objects.yaml"]
    options = [word for file in files for word in ("--file", str(file))]
    kept = {key: value for key, value in os.environ.items() if key not in SECRETS}
    found = run("docker", "compose", "--env-file", str(place / "env"), *options, "config", env=kept, check=False)
    assert found.returncode != 0
    assert f"required variable {name} is missing a value: set it in .env" in found.stderr


def test_the_image_is_small_has_no_tools_of_tests_and_is_nobodys_root(stack: Composed) -> None:
    (image,) = json.loads(run("docker", "image", "inspect", stack.image).stdout)
    assert image["Size"] < MOST_BYTES
    assert image["Config"]["User"] == "airflow"
    look = f"import importlib.util as u; print([n for n in {TOOLS} if u.find_spec(n)])"
    assert stack.inside(API, "python", "-c", look).strip() == "[]"
    for place in ("/opt/floodmark/.cache/uv", "/home/airflow/.cache", "/root/.cache/uv", "/opt/floodmark/tests"):
        assert not stack.exists(place)
    assert stack.inside(API, "find", "/opt/floodmark", "-maxdepth", "2", "-writable").split() == [
        "/opt/floodmark/.cache/warehouse"
    ]


def test_no_process_is_roots_and_none_can_become_it(stack: Composed) -> None:
    running = [one for one in stack.containers() if one["State"]["Running"]]
    assert {one["Config"]["Labels"]["com.docker.compose.service"] for one in running} == {*AIRFLOWS, DATABASE}
    for service in (*AIRFLOWS, DATABASE):
        assert 0 not in {user for user, _ in stack.processes(service).values()}, service
    for one in stack.containers():
        host = one["HostConfig"]
        assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert min(host["Memory"], host["NanoCpus"], host["PidsLimit"]) > 0
        assert host["LogConfig"]["Config"] == {"max-file": "5", "max-size": "10m"}


def test_only_this_host_reaches_the_one_published_port(stack: Composed) -> None:
    bound = [found for one in stack.containers() for found in (one["NetworkSettings"]["Ports"] or {}).values()]
    (published,) = [each for found in bound for each in found or []]
    assert published == {"HostIp": "127.0.0.1", "HostPort": stack.values["AIRFLOW_PORT"]}


def test_a_login_needs_the_password_of_env(stack: Composed) -> None:
    with pytest.raises(HTTPError) as refused:
        stack.token("admin")
    assert refused.value.code == 401
    assert stack.status(f"/api/v2/dags/{DAG}") == 401
    assert stack.status(f"/api/v2/dags/{DAG}", stack.token()) == 200
    assert stack.status("/floodmark/", stack.token()) == 200


def test_the_services_that_fill_the_example_know_no_secret(stack: Composed) -> None:
    known = " ".join(stack.container("flights-first")["Config"]["Env"])
    assert "LAKE=/data/lake" in known
    assert [name for name in SECRETS if stack.values[name] in known] == []


def test_the_first_rule_is_green_and_others_may_read_nothing(stack: Composed) -> None:
    wait(lambda: is_committed(stack, 1), 2, LONG)
    wait(lambda: "success" in states(stack), 2)
    assert "failed" not in states(stack)
    folders = ("/data/home", "/data/lake", "/opt/airflow/logs")
    assert stack.inside(SCHEDULER, "find", *folders, "-not", "-type", "l", "-perm", "/o=rwx") == ""
    assert len(stack.inside(SCHEDULER, "find", *folders, "-type", "f").split()) > 20


def test_a_changed_rule_file_builds_and_starts_nothing(stack: Composed, root: Path) -> None:
    before = {one["Id"]: one["Image"] for one in stack.containers() if one["State"]["Running"]}
    write_rule(root, "Changed.")
    stack.up()
    assert {one["Id"]: one["Image"] for one in stack.containers() if one["State"]["Running"]} == before
    assert "Changed." in stack.inside(SCHEDULER, "cat", f"rules/{RULE}.yaml")


def kill_the_run(stack: Composed) -> None:
    """The JVM and the driver's Python, which Airflow's task started."""
    found = stack.processes(SCHEDULER)
    victims = [pid for pid, (_, words) in found.items() if "run_rule.py" in words and "airflow" not in words.split()[0]]
    assert len(victims) >= 2, "\n".join(words for _, words in found.values())
    # The JVM drops an archive whose jars are of another age, or on another class path, without a word.
    assert any("/floodmark.jsa" in Path(f"/proc/{pid}/maps").read_text() for pid in victims)
    for pid in victims:
        os.kill(pid, signal.SIGKILL)


def play(stack: Composed, fault: str) -> None:
    crashed = {"the database": DATABASE, "the scheduler": SCHEDULER, "the API server": API}
    if fault == "the run":
        kill_the_run(stack)
    elif fault == "everything":
        stack.down()
        stack.up()
    else:
        before = stack.container(crashed[fault])["RestartCount"]
        stack.crash(crashed[fault])
        wait(lambda: stack.container(crashed[fault])["RestartCount"] > before, 0.5)
        wait(stack.healthy, 1, LONG)


def test_faults_in_mid_epoch_change_no_row(stack: Composed, root: Path) -> None:
    for epoch, (point, fault) in FAULTS.items():
        wait(lambda epoch=epoch: is_committed(stack, epoch - 1), 2, LONG)  # type: ignore[misc]
        arrive(stack)
        wait(lambda point=point: stack.exists(f"{MARKS}/{RULE}.{point}"), 1, LONG)  # type: ignore[misc]
        opened = status(stack)["open"]
        assert opened and opened["epoch"] == epoch, f"{fault}: the fault came while nothing was open: {opened}"
        begun = time.monotonic()
        play(stack, fault)
        wait(lambda epoch=epoch: is_committed(stack, epoch), 2, LONG)  # type: ignore[misc]
        assert time.monotonic() - begun < SLOT, f"{fault}: a rule that runs every five minutes would miss a run"
    wait(lambda: states(stack)[0] in ENDED, 2)
    assert stack.floodmark("audit", RULE, "--deep")["verdict"] == "proven"
    stack.compose("cp", f"{SCHEDULER}:/data/lake/{RULE}", str(root / "sink"))
    watermark = watermark_us(stack)
    found = flights.compare(flights.rows_of(root / "sink"), watermark)
    shutil.rmtree(root / "sink")
    assert found.equal, found
    assert stack.inside(SCHEDULER, "find", "/tmp", "-maxdepth", "1", "-name", "blockmgr-*") == ""


def test_down_leaves_nothing(stack: Composed) -> None:
    stack.compose("--profile", "*", "create")
    stack.remove()
    label = f"label=com.docker.compose.project={stack.name}"
    for kind in ("container", "volume", "network"):
        everything = ["--all"] if kind == "container" else []
        assert run("docker", kind, "ls", "--quiet", *everything, "--filter", label).stdout == ""
