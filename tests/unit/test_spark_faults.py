"""What is said of Spark's own errors, and before there could be any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from support.flow import Flow

from floodmark.errors import InputFault, Refused, RunFailed
from floodmark.spark.faults import explained, of_open_epoch
from floodmark.spark.session import root_session, rule_session


def fault(text: str) -> PySparkException:
    return PySparkException(text)


def test_a_row_that_fails_before_its_epoch_is_open_is_mended_in_the_sql() -> None:
    with pytest.raises(InputFault, match=r"DIVIDE_BY_ZERO.*try_divide") as met, explained("r"):
        raise fault("[DIVIDE_BY_ZERO] Division by zero.")
    assert "reset" not in str(met.value)


def test_a_row_that_fails_in_an_open_epoch_asks_for_a_reset_too() -> None:
    """The epoch is finished by the text that it began with, which fails alike."""
    said = r"DIVIDE_BY_ZERO.*try_divide.*Epoch 4 is open.*only with `floodmark reset r`"
    with pytest.raises(InputFault, match=said), explained("r"), of_open_epoch("r", 4):
        raise fault("[DIVIDE_BY_ZERO] Division by zero.")
    with pytest.raises(RunFailed) as met, explained("r"), of_open_epoch("r", 4):
        raise fault("Job aborted due to stage failure")
    assert "reset" not in str(met.value)


class Told(dict[str, str]):
    """Stands in for a session and its settings."""

    @property
    def conf(self) -> Told:
        return self

    def newSession(self) -> Told:  # noqa: N802 - Spark's name
        return self

    def isModifiable(self, _: str) -> bool:  # noqa: N802 - Spark's name
        return True

    def set(self, key: str, value: str) -> None:
        self[key] = value


def test_no_setting_of_a_cluster_lets_a_broken_or_missing_file_go_unsaid(tmp_path: Path) -> None:
    found: Any = Told({"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"})
    rule_session(found, Flow(tmp_path.resolve()).rule(), "UTC", True)
    named = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    assert [found[name] for name in named] == ["false", "false"]


def test_without_a_java_nothing_is_started_and_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/nonexist")
    with pytest.raises(Refused, match=r"Java 17 or 21, found no java.*install one.*JAVA_HOME"):
        root_session("local[1]", [])
