"""What Airflow says of itself to `floodmark doctor`: a sound installation, and one with each fault planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark_airflow import facts

CHECKOUT = Path(__file__).parents[2]
MARK = "hunter2-mark"


def test_doctor_finds_nothing_wrong_with_the_settings_that_the_demo_has(rules: Path, place: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT / "jobs"), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    env |= {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"})}
    env |= {"AIRFLOW__API_AUTH__JWT_SECRET": MARK * 4}
    env |= {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql://u:{MARK}@127.0.0.1:1/x"}
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "doctor", "--json"]
    said = subprocess.run(command, env=env, capture_output=True, text=True)
    found = {check["name"]: check for check in json.loads(said.stdout)["checks"]}
    assert said.returncode == 2, "nobody listens on port 1"
    assert [name for name, check in found.items() if check["verdict"] == "failed"] == ["metadata database"]
    assert "Connection refused" in found["metadata database"]["found"]
    assert found["Airflow"]["found"] == "3.3.2"
    assert found["spark_default"]["found"] == "local[2]"
    assert found["dags_folder"]["found"] == str(CHECKOUT / "dags")
    assert found["spark-submit"]["verdict"] == "ok"
    assert MARK not in said.stdout + said.stderr


@pytest.mark.parametrize(
    "address", [f"postgresql+psycopg2://u:p@{MARK}:w0rd@127.0.0.1:1/x", f"postgresql://u:p@{MARK}@127.0.0.1:1/x"]
)
def test_no_part_of_a_password_is_told_that_makes_an_address_unreadable(rules: Path, place: Path, address: str) -> None:
    """SQLAlchemy takes a part of it for the host or the port, and quotes that."""
    found = asked(AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=address)
    [fault] = [one for one in (found.get("error"), found.get("database", {}).get("fault")) if one]
    assert "sql_alchemy_conn of [database] cannot be read as an address" in fault
    assert MARK not in json.dumps(found) and "w0rd" not in json.dumps(found)


def test_what_a_command_for_a_secret_prints_is_not_told(rules: Path, place: Path) -> None:
    found = asked(AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=None, AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD=f"ls {MARK}")
    assert found == {"error": "AirflowConfigException: a command that a setting names (*_CMD) failed"}


def asked(**settings: str | None) -> dict[str, Any]:
    """What a process of its own answers with these variables, as it does for doctor."""
    path = os.pathsep.join(str(CHECKOUT / folder) for folder in ("jobs", "plugins"))
    env = {**os.environ, "PYTHONPATH": path, **settings}
    said = subprocess.run(
        [sys.executable, "-m", "floodmark_airflow.facts"],
        env={name: value for name, value in env.items() if value is not None},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def test_without_a_connection_spark_runs_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    assert facts.connection() == {"found": False, "master": "local[*]", "deploy_mode": None}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://local[*]")
    assert "cannot be read as a connection" in facts.facts()["spark_default"]["error"], "no URI: Airflow cannot read it"


def test_the_master_is_what_the_hook_makes_of_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "yarn://resources")
    assert facts.connection() == {"found": True, "master": "yarn://resources", "deploy_mode": None}
    extra = {"conn_type": "spark", "host": "spark://host", "port": 7077, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(extra))
    assert facts.connection() == {"found": True, "master": "spark://host:7077", "deploy_mode": "cluster"}


def test_folders_that_are_not_ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert facts.dags_folder()["ours"] and facts.plugins_folder()["ours"] and facts.plugins_folder()["ignored"]
    (place / "floodmark_plugin.py").touch()
    (place / "rules.py").write_text("# another's\n")
    assert facts.plugins_folder()["installed"] is False
    monkeypatch.setattr("airflow.settings.DAGS_FOLDER", str(place))
    monkeypatch.setenv("AIRFLOW__CORE__PLUGINS_FOLDER", str(place))
    assert not facts.dags_folder()["ours"]
    assert facts.plugins_folder()["ours"] and not facts.plugins_folder()["ignored"]
    monkeypatch.setenv("AIRFLOW__CORE__PLUGINS_FOLDER", str(place / "none"))
    assert not facts.plugins_folder()["ours"]


def test_no_file_is_written_into_a_folder_that_airflow_does_not_read(
    rules: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what Airflow's own command says of its DAG bundles."""
    (place / "dags").mkdir()
    kind = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundle = {"name": "of git", "classpath": kind, "kwargs": {"path": str(place / "elsewhere")}}
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(place / "dags"))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", json.dumps([bundle]))
    found = CliRunner().invoke(app, ["airflow", "init"])
    assert (found.exit_code, "found only other DAG bundles: of git" in found.stderr) == (2, True)
    assert list((place / "dags").iterdir()) == []


def test_the_secret_is_weighed_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", MARK)
    assert facts.jwt_secret() == {"source": "env var", "length": len(MARK), "known": False}
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "airflow_jwt_secret")
    assert facts.jwt_secret()["known"]
    monkeypatch.delenv("AIRFLOW__API_AUTH__JWT_SECRET")
    assert facts.jwt_secret()["source"] == "default"


def test_a_missing_file_of_a_database_is_not_made(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow import settings

    monkeypatch.setattr(settings, "SQL_ALCHEMY_CONN", f"sqlite:///{place}/none.db")
    assert facts.database() == {"kind": "sqlite", "host": None, "fault": f"there is no file {place}/none.db"}
    assert not (place / "none.db").exists()


def test_another_spark_submit(fake_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_path / "spark-submit"
    program.touch(mode=0o755)
    assert facts.spark_submit() == {"path": str(program), "expected": str(Path(sys.executable).parent), "ours": False}
    monkeypatch.setenv("PATH", "/nowhere")
    assert facts.spark_submit()["path"] is None


def test_a_fault_of_one_answer_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> dict[str, str]:
        raise RuntimeError(f"cannot reach postgresql://u:{MARK}@db/x\nmore")

    monkeypatch.setattr(facts, "database", broken)
    found = facts.facts()
    assert found["database"] == {"error": "RuntimeError: cannot reach postgresql://***@db/x"}
    assert found["spark_default"]["found"]
