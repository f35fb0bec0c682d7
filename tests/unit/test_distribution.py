"""A checkout and an installed package: where files lie, the jars, and the file in Airflow's DAGs folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from floodmark.cli.app import app
from floodmark.cli.commands import airflow
from floodmark.core.application import distribution
from floodmark.core.application.sparkconf import JARS
from floodmark.spark.session import jars

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The code as in a Python environment; returns the environment's folder."""
    monkeypatch.setattr(distribution, "SOURCES", place / "lib" / "python3.11" / "site-packages")
    monkeypatch.setattr(sys, "prefix", str(place))
    monkeypatch.setenv("AIRFLOW_HOME", str(place / "airflow"))
    for name in ("FLOODMARK_JARS", "FLOODMARK_RULES", "FLOODMARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return place


@pytest.fixture
def published(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small jars with their sums: what is checked is the sum, not the content."""
    folder = place / "published"
    folder.mkdir(parents=True)
    lines = []
    for name in JARS:
        (folder / name).write_bytes(name.encode())
        lines.append(f"{hashlib.sha256(name.encode()).hexdigest()}  {name}")
    sums = place / "sums"
    sums.write_text("\n".join(lines))
    monkeypatch.setattr(jars, "JAR_SUMS", sums)
    return folder


def called(*words: str) -> Result:
    return CliRunner().invoke(app, words)


def test_a_checkout_keeps_its_files_in_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLOODMARK_JARS", raising=False)
    assert distribution.checkout() == CHECKOUT
    assert distribution.jars_folder() == CHECKOUT / ".cache" / "jars"
    assert distribution.place_under_airflow("rules") == CHECKOUT / "rules"
    assert distribution.place_under_airflow("home") == Path.cwd() / "home"
    assert distribution.set_up() == "make setup"


def test_a_package_keeps_them_in_its_environment_and_rules_under_airflow(installed: Path) -> None:
    assert distribution.checkout() is None
    assert distribution.jars_folder() == installed / "share" / "floodmark" / "jars"
    assert distribution.place_under_airflow("rules") == installed / "airflow" / "floodmark" / "rules"
    assert distribution.place_under_airflow("home") == installed / "airflow" / "floodmark" / "home"
    assert distribution.set_up() == "floodmark jars"
    assert not distribution.warehouse().is_relative_to(installed), "which another user may own"


def test_jars_are_copied_once_and_removed_with_their_folders(installed: Path, published: Path) -> None:
    folder = distribution.jars_folder()
    found = called("jars", "--from", str(published))
    assert (found.exit_code, sorted(file.name for file in folder.iterdir())) == (0, sorted(JARS))
    before = [(folder / name).stat().st_mtime_ns for name in JARS]
    assert "as published" in called("jars", "--from", str(published)).output
    assert [(folder / name).stat().st_mtime_ns for name in JARS] == before, "nothing was copied again"
    assert called("jars", "--remove").output.count("deleted") == len(JARS)
    assert not (installed / "share" / "floodmark").exists()
    assert (installed / "share").exists(), "others have files in it"
    assert called("jars", "--remove").output == ""


def test_a_jar_that_is_missing_or_not_as_published_is_refused_and_none_is_copied(
    installed: Path, published: Path
) -> None:
    (published / JARS[1]).write_bytes(b"another")
    found = called("jars", "--from", str(published))
    assert (found.exit_code, "SHA-256 of" in found.stderr) == (2, True)
    (published / JARS[1]).unlink()
    found = called("jars", "--from", str(published))
    assert (found.exit_code, f"found no {JARS[1]}" in found.stderr) == (2, True)
    assert not distribution.jars_folder().exists()


def test_a_jar_of_the_environment_that_was_altered_is_refused(installed: Path, published: Path) -> None:
    called("jars", "--from", str(published))
    (distribution.jars_folder() / JARS[0]).write_bytes(b"altered")
    found = called("jars")
    assert (found.exit_code, "SHA-256 of" in found.stderr) == (2, True)


def test_spark_that_resolves_nothing_is_a_failure_with_its_log_and_a_way_without_a_network(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = ["/bin/sh", "-c", "echo unresolved dependency; exit 1"]
    monkeypatch.setattr(jars, "_command", lambda packages, excluded, work: program)
    found = called("jars")
    assert found.exit_code == 1
    assert "unresolved dependency" in found.stderr and "floodmark jars --from" in found.stderr


def test_the_resolver_reads_the_settings_of_the_users_spark_and_no_repository_of_maven(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(place))
    found = jars._environment(Path("/work"))
    assert found["SPARK_CONF_DIR"] == str(place / "conf")
    assert '-Duser.home="/work"' in found["SPARK_SUBMIT_OPTS"]
    assert found["SPARK_HOME"] != str(place), "the program is pyspark's"
    (place / "conf").mkdir(parents=True)
    (place / "conf" / "spark-defaults.conf").write_text("spark.jars.ivySettings  /etc/ivy.xml\n")
    assert "user.home" not in jars._environment(Path("/work"))["SPARK_SUBMIT_OPTS"]


def test_the_file_for_airflow_is_written_once_beside_a_first_rule_and_removed(installed: Path) -> None:
    dags = installed / "airflow" / "dags"
    dags.mkdir(parents=True)
    (dags / "mine.py").write_text("# a DAG of the user's own\n")
    found = called("airflow", "init", str(dags))
    assert found.exit_code == 0, found.output
    assert "Restart all of Airflow's processes" in found.output, "one that began before has not loaded the plugin"
    assert {name: (dags / name).read_text() for name in airflow.TEXTS} == airflow.TEXTS
    (dags / airflow.ERRORS).unlink()  # as an earlier version leaves it
    assert f"wrote {dags / airflow.ERRORS}" in called("airflow", "init", str(dags)).output
    rule = installed / "airflow" / "floodmark" / "rules" / "hello.yaml"
    assert f"${{LAKE:-{installed}/airflow/floodmark/lake}}/events" in rule.read_text(), "Airflow's tasks run elsewhere"
    assert called("validate", "--rules", str(rule.parent)).exit_code == 0
    rule.write_text(rule.read_text() + "# edited\n")
    assert "already exists" in called("airflow", "init", str(dags)).output
    assert rule.read_text().endswith("# edited\n")
    assert called("airflow", "remove", str(dags)).exit_code == 0
    assert [file.name for file in dags.iterdir()] == ["mine.py"]
    assert rule.exists()
    assert "there is no" in called("airflow", "remove", str(dags)).output


def test_a_file_of_that_name_with_another_text_is_left_alone(installed: Path) -> None:
    for name in airflow.TEXTS:
        (installed / name).write_text("# mine\n")
        for word in ("init", "remove"):
            found = called("airflow", word, str(installed))
            assert (found.exit_code, "has different content" in found.stderr) == (2, True)
        assert [file.read_text() for file in installed.glob("*.py")] == ["# mine\n"], "nothing else was written"
        (installed / name).unlink()


@pytest.mark.parametrize("kind", ["bytes", "folder", "link"])
def test_what_is_no_text_in_its_place_is_left_alone(installed: Path, kind: str) -> None:
    file = installed / airflow.FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    make: dict[str, Callable[[], object]] = {
        "bytes": lambda: file.write_bytes(b"# caf\xe9\n"),
        "folder": file.mkdir,
        "link": lambda: file.symlink_to(installed / "gone"),
    }
    make[kind]()
    for word, said in (("init", "not overwritten"), ("remove", "not deleted")):
        found = called("airflow", word, str(installed))
        assert (found.exit_code, said in found.stderr, len(found.stderr.splitlines())) == (2, True, 1)
    assert os.path.lexists(file) and not (installed / "gone").exists()


def test_a_folder_that_cannot_be_written_is_named_and_no_part_of_the_file_stays(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path, to: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(to))

    monkeypatch.setattr(Path, "replace", refuses)
    dags = installed / "dags"
    dags.mkdir(parents=True)
    found = called("airflow", "init", str(dags))
    assert (found.exit_code, len(found.stderr.splitlines()), list(dags.iterdir())) == (2, 1, [])
    assert f"{dags / airflow.FILE}, found: Permission denied" in found.stderr


LOCAL = "airflow.dag_processing.bundles.local.LocalDagBundle"
GIT = "airflow.providers.git.bundles.git.GitDagBundle"


@pytest.mark.parametrize(
    ("bundles", "others"),
    [
        ([(LOCAL, {})], None),
        ([(GIT, {"subdir": "dags"}), (LOCAL, {"path": None})], None),
        ([(LOCAL, {"path": "/opt/dags/../dags"})], None),
        ([(GIT, {}), (LOCAL, {"path": "/opt"})], None),
        ([(LOCAL, {"path": "/mnt/dags"})], ["0"]),
        ([(LOCAL, {"path": "/opt/dag"})], ["0"]),
        ([(LOCAL, {"path": "/opt/dags/mine"})], ["0"]),
        ([(GIT, {}), (LOCAL, {"path": "/mnt/dags"})], ["0", "1"]),
    ],
)
def test_the_dags_folder_is_written_to_only_if_airflow_reads_it(
    bundles: list[tuple[str, dict[str, str | None]]], others: list[str] | None
) -> None:
    text = json.dumps([{"name": str(n), "classpath": one, "kwargs": about} for n, (one, about) in enumerate(bundles)])
    assert airflow._other_bundles(Path("/opt/dags"), text) == others


@pytest.mark.parametrize("text", ["", "[]", "{", "[1]", '{"a": 1}', '[{"name": "x"}]', '[{"name": "x", "kwargs": 1}]'])
def test_what_airflow_refuses_as_bundles_is_left_to_airflow(text: str) -> None:
    assert airflow._other_bundles(Path("/opt/dags"), text) is None


def test_an_airflow_that_does_not_answer_is_refused(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleeps(command: list[str], **_: object) -> None:
        raise subprocess.TimeoutExpired(command, airflow.PATIENCE)

    monkeypatch.setattr(subprocess, "run", sleeps)
    found = called("airflow", "init")
    assert (found.exit_code, "found no answer. Name the folder" in found.stderr) == (2, True)


def test_a_folder_that_is_not_there_and_an_airflow_that_is_not_are_refused(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = called("airflow", "init", str(installed / "none"))
    assert (found.exit_code, "found none" in found.stderr) == (2, True)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    found = called("airflow", "init")
    assert (found.exit_code, "expected the Airflow next to /bin/false" in found.stderr) == (2, True)
