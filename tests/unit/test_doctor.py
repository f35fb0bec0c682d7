"""`floodmark doctor`: each check with a planted fault, and the whole command on real folders and programs."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow, event
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.shared import doctorchecks
from floodmark.core.application import sparkconf
from floodmark.core.application.distribution import JAR_SUMS, jars_folder
from floodmark.core.health import airflow, machine, settings, storage
from floodmark.core.health.checks import Check, exit_code, failed, ok, warning
from floodmark.errors import HomeUnfit, LedgerBroken

CHECKOUT = Path(__file__).parents[2]
JAVA = 'openjdk version "{}" 2025-04-15\nOpenJDK Runtime Environment\n'
LOCKED = machine.locked((CHECKOUT / "requirements.txt").read_text())
PLACES = {"path": "/a", "expected": "/b", "ours": True}
FACTS: dict[str, Any] = {
    "version": "3.3.2",
    "spark_default": {"found": True, "master": "local[*]", "deploy_mode": None},
    "dags_folder": PLACES,
    "plugins_folder": {**PLACES, "installed": False, "ignored": True},
    "jwt_secret": {"source": "env var", "length": 64, "known": False},
    "database": {"kind": "postgresql", "host": "db", "fault": None},
    "spark_submit": PLACES,
}


def verdicts(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.verdict for check in checks}


# --- What it makes of what it has seen


def test_only_a_failure_has_an_exit_code() -> None:
    assert exit_code([ok("a", "b"), warning("a", "b", "c", "d")]) == 0
    assert exit_code([ok("a", "b"), failed("a", "b", "c", "d")]) == 2


@pytest.mark.parametrize(("version", "verdict"), [((3, 10, 9), "failed"), ((3, 11, 0), "ok"), ((3, 13, 1), "ok")])
def test_python(version: tuple[int, int, int], verdict: str) -> None:
    assert machine.python(version).verdict == verdict


@pytest.mark.parametrize(
    ("version", "verdict"),
    [("17.0.15", "ok"), ("21", "ok"), ("11.0.2", "failed"), ("1.8.0_402", "failed"), ("25-ea", "failed")],
)
def test_java(version: str, verdict: str) -> None:
    assert machine.java("/bin/java", JAVA.format(version)).verdict == verdict


def test_java_that_is_none() -> None:
    assert machine.java(None, "").found.startswith("no java on PATH")
    said = machine.java("/usr/bin/java", "The operation could not be completed. Unable to locate a Java Runtime.\n")
    assert said.verdict == "failed" and "Unable to locate" in said.found


@pytest.mark.parametrize(
    ("package", "version", "verdict"),
    [
        ("pyspark", "4.1.0", "failed"),
        ("pyspark-client", None, "failed"),
        ("delta-spark", "4.4.1", "failed"),
        ("deltalake", "1.6.0", "warning"),
        ("deltalake", "1.5.9", "failed"),
        ("pandas", "2.2.0", "warning"),
        ("pandas", "3.0.0", "failed"),
        ("apache-airflow", "3.4.0", "warning"),
        ("apache-airflow-providers-apache-spark", None, "warning"),
    ],
)
def test_packages(package: str, version: str | None, verdict: str) -> None:
    found = verdicts(machine.packages({**LOCKED, package: version}, LOCKED))
    assert found.pop(package) == verdict
    assert set(found.values()) == {"ok"}


@pytest.mark.parametrize(
    ("package", "version", "verdict"),
    [
        ("pyspark", "4.2.0", "ok"),
        ("pyspark", "4.1.9", "failed"),
        ("pyspark", None, "failed"),
        ("deltalake", "1.7.0", "failed"),
        ("apache-airflow", "3.2.2", "failed"),
        ("apache-airflow", None, "warning"),
    ],
)
def test_packages_of_an_installed_floodmark_are_in_the_ranges_of_its_metadata(
    package: str, version: str | None, verdict: str
) -> None:
    required = ["pyspark==4.2.0", "deltalake<1.7,>=1.6", "rich>=13", "apache-airflow>=3.3; extra == 'airflow'"]
    there = {"pyspark": "4.2.0", "deltalake": "1.6.1", "apache-airflow": "3.3.2"}
    found = verdicts(machine.ranges({**there, package: version}, required))
    assert found.pop(package) == verdict
    assert list(found.values()) == ["ok", "ok"], "the packages that doctor looks at"


def test_jars() -> None:
    wanted = machine.sums("aa  one.jar\nbb  two.jar\ncc  three.jar\n")
    found = machine.jars("/jars", {"one.jar": "aa", "two.jar": "xx", "three.jar": None}, wanted)
    assert verdicts(found) == {"one.jar": "ok", "two.jar": "failed", "three.jar": "failed"}
    assert "SHA-256 bb" in found[1].expected and found[2].found == "none"


def test_the_jars_that_are_checked_are_those_that_spark_gets() -> None:
    assert set(machine.sums(JAR_SUMS.read_text())) == set(sparkconf.JARS)


@pytest.mark.parametrize(
    ("named", "version", "verdict"),
    [(None, None, "ok"), ("/p", "3.11.2", "ok"), ("/p", "3.12.0", "failed"), ("/p", None, "failed")],
)
def test_the_python_of_workers(named: str | None, version: str | None, verdict: str) -> None:
    assert machine.worker_python(named, version, "3.11.7").verdict == verdict


@pytest.mark.parametrize(
    ("named", "version", "verdict"),
    [(None, None, "ok"), ("/s", "4.2.0", "ok"), ("/s", "3.5.1", "failed"), ("/s", None, "failed")],
)
def test_another_spark(named: str | None, version: str | None, verdict: str) -> None:
    assert machine.spark_home(named, version, "4.2.0").verdict == verdict


def test_no_archive() -> None:
    assert machine.archive("/a", False).verdict == "warning"


def test_rule_files() -> None:
    assert verdicts(storage.rule_files("/r", 0, {})) == {"rules": "warning"}
    assert verdicts(storage.rule_files("/r", 1, {"b.yaml": "why"})) == {"rules": "ok", "rule file b.yaml": "failed"}
    assert storage.no_rules_folder("/r").verdict == "failed"


def test_homes() -> None:
    assert storage.home("/h", True, True, None).verdict == "ok"
    assert storage.home("/h", True, False, None).verdict == "warning"
    assert storage.home("/h", True, True, HomeUnfit("no")).verdict == "failed"


def test_ledgers() -> None:
    found = storage.ledgers({"a": "epoch 3", "b": None, "c": LedgerBroken("row 5 is not chained")})
    assert verdicts(found) == {"ledgers": "ok", "ledger of c": "failed"}
    assert found[0].found == "1 readable, 1 rules have not run yet" and "row 5" in found[1].found


def test_locks() -> None:
    held = {"a": storage.Holder("run x", False), "b": storage.Holder("run y", True), "c": None}
    assert verdicts(storage.locks(held)) == {"lock of a": "ok", "lock of b": "warning", "lock of c": "ok"}
    assert verdicts(storage.locks({})) == {"locks": "ok"}


@pytest.mark.parametrize(("free", "verdict"), [(10**12, "ok"), (10**9, "warning"), (10**8, "failed")])
def test_room(free: int, verdict: str) -> None:
    assert storage.room("the home", "/h", free).verdict == verdict


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("FLOODMARK_SYNC", "1", "ok"),
        ("FLOODMARK_SYNC", "true", "warning"),
        ("FLOODMARK_CLASSES", "alarms", "ok"),
        ("FLOODMARK_VARIABLES", "PLACE", "ok"),
        ("FLOODMARK_VARIABLES", "PLACE,ELSEWHERE", "warning"),
        ("FLOODMARK_ON_FAILURE", "alarms:ring", "ok"),
        ("FLOODMARK_ON_FAILURE", "alarms", "warning"),
        ("FLOODMARK_RULE", "/r", "warning"),
        ("FLOODMARK_FAST_START", "0", "warning"),
        ("FLOODMARK_CRASH_AT", "a:sink0.after", "warning"),
    ],
)
def test_settings(name: str, value: str, verdict: str) -> None:
    found = {check.name: check for check in settings.settings({"PLACE": "x", name: value}, "UTC", [])}
    assert found.pop(name).verdict == verdict
    assert {check.verdict for check in found.values()} == {"ok"}


def test_a_slip_names_what_was_meant() -> None:
    assert settings.settings({"FLOODMARK_HOMES": "/h"}, "UTC", [])[-1].expected == "perhaps FLOODMARK_HOME"


def test_every_setting_that_is_read_is_known() -> None:
    read = subprocess.run(
        ["grep", "-rhoE", r"\bFLOODMARK_[A-Z_]+", "jobs", "plugins"], cwd=CHECKOUT, capture_output=True, text=True
    )
    some = {"FLOODMARK_", "FLOODMARK_CONN_", "FLOODMARK_CONN_NAME"}
    assert set(read.stdout.split()) - some <= {*settings.KNOWN, *settings.OTHERS}


def test_a_missing_module_and_another_zone() -> None:
    named = {"FLOODMARK_CLASSES": "alarms", "FLOODMARK_ON_FAILURE": "alarms:ring"}
    found = verdicts(settings.settings(named, "CET/CEST", ["alarms"]))
    assert {found[name] for name in (*named, "time zone")} == {"warning"}


def test_an_airflow_that_is_well() -> None:
    assert set(verdicts(airflow.airflow(FACTS)).values()) == {"ok"}


@pytest.mark.parametrize(
    ("fact", "said", "verdict"),
    [
        ("spark_default", {"found": False, "master": "local[*]", "deploy_mode": None}, "ok"),
        ("spark_default", {"found": True, "master": "spark://local[*]", "deploy_mode": None}, "failed"),
        ("spark_default", {"found": True, "master": "spark://host:7077", "deploy_mode": "cluster"}, "failed"),
        ("spark_default", {"found": True, "master": "spark://host:7077", "deploy_mode": "client"}, "ok"),
        ("dags_folder", {**PLACES, "ours": False}, "failed"),
        ("dags_folder", {"path": "/a", "expected": None, "ours": False}, "failed"),
        ("plugins_folder", {**PLACES, "installed": False, "ours": False, "ignored": False}, "failed"),
        ("plugins_folder", {**PLACES, "installed": False, "ignored": False}, "failed"),
        ("plugins_folder", {"path": "/a", "expected": None, "installed": True, "ours": False}, "ok"),
        ("jwt_secret", {"source": "default", "length": 0, "known": False}, "failed"),
        ("jwt_secret", {"source": "env var", "length": 18, "known": True}, "failed"),
        ("jwt_secret", {"source": "env var", "length": 18, "known": False}, "warning"),
        ("database", {"kind": "postgresql", "host": "db", "fault": "refused"}, "failed"),
        ("database", {"kind": "sqlite", "host": None, "fault": None}, "ok"),
        ("spark_submit", {**PLACES, "path": None, "ours": False}, "failed"),
        ("spark_submit", {**PLACES, "ours": False}, "warning"),
        ("database", {"error": "no"}, "failed"),
    ],
)
def test_an_airflow_with_a_fault(fact: str, said: dict[str, Any], verdict: str) -> None:
    found = airflow.airflow({**FACTS, fact: said})
    assert sorted(check.verdict for check in found) == sorted(["ok"] * 6 + [verdict])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Traceback\nValueError: invalid literal for int(): 'w0rd@db:5432'\n", "ValueError, exit code 1"),
        ("airflow.exceptions.Wrong: w0rd", "airflow.exceptions.Wrong, exit code 1"),
        ("/venv/bin/python: No module named floodmark_airflow", "No module named floodmark_airflow"),
        ("the password is w0rd", "exit code 1"),
        ("", "exit code 1"),
    ],
)  # fmt: skip
def test_the_last_words_of_an_airflow_that_died_hold_no_secret(text: str, told: str) -> None:
    assert airflow.last_words(1, text) == told


def test_an_airflow_that_does_not_answer() -> None:
    assert verdicts(airflow.airflow({"error": "ImportError"})) == {"Airflow": "failed"}


# --- What it looks at


@pytest.fixture
def flow(place: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    """An installation without a fault; what the shell says of Airflow is not looked at."""
    for name in [name for name in os.environ if name.startswith(("AIRFLOW", "FLOODMARK", "SPARK", "JAVA"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    found = Flow(place)
    found.write_rule()
    found.arrive([event(0)])
    found.home.mkdir()
    return found


def doctor(flow: Flow, code: int = 0, **env: str) -> dict[str, Check]:
    given = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), **env}
    found = CliRunner().invoke(app, ["doctor", "--json"], env=given)
    assert found.exit_code == code, found.output
    document = json.loads(found.stdout)
    assert (document["format"], document["exit_code"]) == (1, code)
    return {check["name"]: Check(**check) for check in document["checks"]}


def test_a_sound_installation(flow: Flow) -> None:
    found = doctor(flow)
    assert {name: check.found for name, check in found.items() if check.verdict != "ok"} == {
        "Airflow": airflow.NOT_CONFIGURED.found
    }
    assert found["Python"].found == sys.version.split()[0]
    assert list(flow.home.iterdir()) == [], "the probe leaves nothing behind"


def test_it_can_be_read(flow: Flow) -> None:
    found = CliRunner().invoke(app, ["doctor"], env={"FLOODMARK_RULES": "/nowhere", "FLOODMARK_HOME": str(flow.home)})
    lines = found.stdout.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("failed   rules "))
    assert lines[at + 1].split() == "expected: a folder of rule files at /nowhere".split()
    assert lines[at + 2].split()[:2] == ["to", "do:"]
    assert lines[-1].endswith("1 warning, 1 failed") and found.exit_code == 2


def test_another_java_is_found_by_what_it_says(flow: Flow) -> None:
    program = flow.root / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    assert doctor(flow, 2, JAVA_HOME=str(flow.root / "java"))["Java"].found == f"11.0.2 ({program})"
    assert doctor(flow, 2, JAVA_HOME=str(flow.root))["Java"].verdict == "failed"


def test_a_torn_jar_is_found(flow: Flow) -> None:
    jars = flow.root / "jars"
    jars.mkdir()
    for name in sparkconf.JARS:
        (jars / name).write_bytes((jars_folder() / name).read_bytes()[:-1])
    found = doctor(flow, 2, FLOODMARK_JARS=str(jars))
    assert {found[name].verdict for name in sparkconf.JARS} == {"failed"}
    assert found["class-data archive"].verdict == "warning"


def test_a_worker_python_without_pyspark_and_one_that_is_not_there(flow: Flow) -> None:
    program = flow.root / "python"
    program.write_text("#!/bin/sh\necho 'No module named pyspark' >&2\nexit 1\n")
    program.chmod(0o755)
    assert doctor(flow, 2, PYSPARK_PYTHON=str(program))["PYSPARK_PYTHON"].verdict == "failed"
    assert doctor(flow, 2, PYSPARK_PYTHON="/nowhere/python")["PYSPARK_PYTHON"].verdict == "failed"


def test_an_empty_worker_python_is_none(flow: Flow) -> None:
    assert doctor(flow, PYSPARK_PYTHON="")["PYSPARK_PYTHON"].found.startswith("not set")


def test_another_spark_home_is_found(flow: Flow) -> None:
    (flow.root / "spark" / "jars").mkdir(parents=True)
    (flow.root / "spark" / "jars" / "spark-core_2.13-3.5.1.jar").touch()
    assert "Spark 3.5.1" in doctor(flow, 2, SPARK_HOME=str(flow.root / "spark"))["SPARK_HOME"].found


def test_a_bad_rule_file_is_found(flow: Flow) -> None:
    (flow.root / "rules" / "bad.yaml").write_text("rule: bad\n")
    assert doctor(flow, 2)["rule file bad.yaml"].verdict == "failed"


def test_rules_that_may_not_be_read_hide_nothing_else(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(folder: Path, env: object) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(doctorchecks, "load_rules", refused)
    found = doctor(flow, 2)
    assert "Permission denied" in found["rules"].found
    assert found["home"].verdict == "ok"


def test_a_home_that_is_a_link_to_nowhere_is_found(flow: Flow) -> None:
    link = flow.root / "link"
    link.symlink_to(flow.root / "nowhere")
    assert doctor(flow, 2, FLOODMARK_HOME=str(link))["home"].verdict == "failed"


def test_a_home_that_depends_on_the_working_directory_is_found(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(flow.home.parent)
    assert doctor(flow, FLOODMARK_HOME=flow.home.name)["home"].verdict == "warning"


def test_a_temporary_home_is_found(flow: Flow) -> None:
    assert "cannot persist" in doctor(flow, 2, FLOODMARK_HOME="/tmp/floodmark-doctor")["home"].found
    assert not Path("/tmp/floodmark-doctor").exists()


def test_a_broken_ledger_is_found(flow: Flow) -> None:
    log = Path(flow.place.ledger) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{broken\n")
    assert doctor(flow, 2)["ledger of counted"].verdict == "failed"


def test_a_full_disk_is_found(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctorchecks.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 5})())
    assert doctor(flow, 2)["room for the home"].verdict == "failed"


@contextmanager
def locked(lock: Path) -> Iterator[int]:
    """Another process holds the lock, as a JVM does."""
    program = (
        "import fcntl, struct, sys; f = open(sys.argv[1], 'wb');"
        f"fcntl.fcntl(f, fcntl.F_SETLK, struct.pack('hhqqi4x', {fcntl.F_WRLCK}, 0, 0, 0, 0));"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        try:
            yield process.pid
        finally:
            process.communicate()


def test_an_orphaned_jvm_and_a_run_that_died_are_told(flow: Flow) -> None:
    assert struct.calcsize("hhqqi4x") == 32, "struct flock of Linux on 64 bits"
    gone = subprocess.Popen(["true"])
    gone.wait()
    lock = flow.place.lock
    lock.parent.mkdir()
    owner = {"run": "r1", "host": socket.gethostname(), "driver_pid": gone.pid, "jvm_pid": 4711, "since": "2001-01-01"}
    lock.with_name("lock.owner").write_text(json.dumps(owner))
    with locked(lock) as holder:
        assert "kill" not in doctor(flow)["lock of counted"].found, "4711 is a number of another container"
        lock.with_name("lock.owner").write_text(json.dumps({**owner, "jvm_pid": holder}))
        found = doctor(flow)["lock of counted"]
        assert found.verdict == "warning" and f"`kill {holder}` ends it" in found.found
        lock.with_name("lock.owner").write_text(json.dumps({**owner, "host": "another"}))
        elsewhere = doctor(flow)["lock of counted"]
        assert "on another" in elsewhere.found and "kill" not in elsewhere.found
    assert doctor(flow)["lock of counted"].found.startswith("free: its last run died")


def test_modules_of_classes_are_looked_for_beside_the_rules(flow: Flow) -> None:
    (flow.root / "rules" / "alarms.py").touch()
    assert doctor(flow, FLOODMARK_CLASSES="alarms,json")["FLOODMARK_CLASSES"].verdict == "ok"
    assert "sirens" in doctor(flow, FLOODMARK_CLASSES="sirens.loud")["FLOODMARK_CLASSES"].found


def test_programs_that_do_not_answer_hide_nothing_else(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctorchecks, "PATIENCE", 0.001)
    found = doctor(flow, 2, AIRFLOW_HOME=str(flow.root))
    assert {name for name, check in found.items() if check.verdict == "failed"} == {"Java", "Airflow"}
    assert "timed out" in found["Airflow"].found and "pyspark" in found
