"""The settings of an application, and what makes it start quickly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from floodmark.core.application import sparkconf
from floodmark.core.application.sparkconf import JAVA_OPTIONS, SMALL_BACKLOG, application_conf, archive
from floodmark.errors import RunFailed

FIRST_COMPILER = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]


@pytest.fixture(autouse=True)
def jars(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins: only their names go into the settings."""
    folder = place / "jars"
    folder.mkdir(parents=True)
    for name in sparkconf.JARS:
        (folder / name).touch()
    monkeypatch.setenv("FLOODMARK_JARS", str(folder))
    monkeypatch.delenv("FLOODMARK_FAST_START", raising=False)
    return folder


def options(backlog: int | None, **own: str) -> list[str]:
    return application_conf("1g", 4, own, backlog).get(JAVA_OPTIONS, "").split()


@pytest.mark.parametrize(
    ("backlog", "little"), [(0, True), (SMALL_BACKLOG, True), (SMALL_BACKLOG + 1, False), (None, False)]
)
def test_the_first_compiler_alone_is_for_little_input(backlog: int | None, little: bool) -> None:
    assert [option for option in options(backlog) if option in FIRST_COMPILER] == (FIRST_COMPILER if little else [])


def test_the_archive_is_named_where_there_is_one() -> None:
    assert not any("SharedArchiveFile" in option for option in options(None))

    archive().parent.mkdir()
    archive().touch()

    assert f"-XX:SharedArchiveFile={archive()}" in options(None)
    assert "-Xshare:auto" in options(None), "one that does not fit must not stop the JVM"


def test_a_broken_or_missing_file_is_an_error_whatever_a_cluster_says() -> None:
    found = application_conf("1g", 4, {}, None)
    assert {found[f"spark.sql.files.{name}"] for name in ("ignoreCorruptFiles", "ignoreMissingFiles")} == {"false"}


def test_sql_means_the_same_whatever_a_cluster_says() -> None:
    found = application_conf("1g", 4, {}, None)
    assert (found["spark.sql.caseSensitive"], found["spark.sql.timestampType"]) == ("false", "TIMESTAMP_LTZ")
    assert found["spark.sql.mapKeyDedupPolicy"] == "EXCEPTION"
    assert found["spark.sql.parser.quotedRegexColumnNames"] == "false"


@pytest.mark.parametrize(
    "name",
    [
        "ansi.doubleQuotedIdentifiers",
        "ansi.relationPrecedence",
        "decimalOperations.allowPrecisionLoss",
        "groupByAliases",
        "groupByOrdinal",
        "legacy.sizeOfNull",
        "legacy.timeParserPolicy",
        "parser.escapedStringLiterals",
        "jsonGenerator.ignoreNullFields",
        "icu.caseMappings.enabled",
        "legacy.groupingIdWithAppendedUserGroupBy",
    ],
)
def test_a_setting_by_which_sql_means_something_else_is_not_left_to_a_cluster(name: str) -> None:
    key = f"spark.sql.{name}"
    assert application_conf("1g", 4, {}, None)[key] == sparkconf.MEANING[key]


def test_fast_start_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_FAST_START", "0")
    assert options(0) == []


def test_a_rules_own_settings_win_and_its_java_options_come_last() -> None:
    found = application_conf("1g", 4, {JAVA_OPTIONS: "-Dmine=1", "spark.ui.enabled": "true"}, 0)

    assert found["spark.ui.enabled"] == "true"
    assert found[JAVA_OPTIONS].split() == [*FIRST_COMPILER, "-Dmine=1"]


def test_without_jars_set_up_is_named(jars: Path) -> None:
    (jars / sparkconf.JARS[0]).unlink()

    with pytest.raises(RunFailed, match="make setup"):
        application_conf("1g", 4, {}, None)


def test_an_empty_worker_python_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    assert application_conf("1g", 4, {}, None)["spark.pyspark.python"] == sys.executable


def test_the_executors_python_is_not_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an archive, say, that executors unpack where they run."""
    monkeypatch.setenv("PYSPARK_PYTHON", "./packages/bin/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    found = application_conf("1g", 4, {}, None)
    assert found["spark.pyspark.python"] == "./packages/bin/python"
    assert found["spark.pyspark.driver.python"] == sys.executable
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/of/the/driver")
    assert application_conf("1g", 4, {}, None)["spark.pyspark.driver.python"] == "/of/the/driver"


def test_delta_adds_no_commit_that_joins_files_to_ours() -> None:
    found = application_conf("1g", 4, {}, None)
    assert found["spark.databricks.delta.autoCompact.enabled"] == "false"
