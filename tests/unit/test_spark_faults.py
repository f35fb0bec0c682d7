"""What is said of Spark's own errors, and before there could be any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from support.flow import Flow

from floodmark.core.application.sparkconf import MEANING, MEANING_UNSET, static_conf
from floodmark.errors import HistoryGone, InputFault, ProcessFault, Refused, RunFailed, TableBroken
from floodmark.spark.session.faults import explained, of_new_epoch, of_open_epoch, of_table, of_version
from floodmark.spark.session.session import root_session, rule_session


def fault(text: str) -> PySparkException:
    return PySparkException(text)


DIVIDED = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"


def test_a_row_that_fails_before_its_epoch_is_open_is_mended_in_the_sql() -> None:
    with pytest.raises(InputFault, match=r"DIVIDE_BY_ZERO.*try_divide") as met, explained("r"):
        raise fault(DIVIDED)
    assert "reset" not in str(met.value)


def test_a_row_that_fails_in_an_open_epoch_asks_for_more_than_an_edit() -> None:
    """The epoch is finished by the text that it began with, which fails alike."""
    said = r"DIVIDE_BY_ZERO.*try_divide.*Epoch 4 is open.*editing.*`floodmark abandon r`.*`floodmark reset r`"
    with pytest.raises(InputFault, match=said), explained("r"), of_open_epoch("r", 4):
        raise fault(DIVIDED)
    for own in (InputFault, ProcessFault):
        with pytest.raises(own, match=r"doubled\. Epoch 4 is open"), explained("r"), of_open_epoch("r", 4):
            raise own("doubled")
    unknown = r"Spark failed: Job aborted.*Retry; if it repeats: Epoch 4 is open"
    with pytest.raises(RunFailed, match=unknown), explained("r"), of_open_epoch("r", 4):
        raise fault("Job aborted due to stage failure")


def test_before_its_epoch_is_open_it_is_said_that_none_is() -> None:
    said = r"DIVIDE_BY_ZERO.*try_divide.*Nothing of epoch 4 was written, and it is not open.*`expect`"
    with pytest.raises(InputFault, match=said), explained("r"), of_new_epoch("r", 4):
        raise fault(DIVIDED)
    with pytest.raises(InputFault, match=r"^doubled\. Nothing of epoch 4 was written"), of_new_epoch("r", 4):
        raise InputFault("doubled")
    with pytest.raises(InputFault, match=r"written, said once$"), of_new_epoch("r", 4):
        raise InputFault("Nothing of the epoch was written, said once")
    with pytest.raises(RunFailed, match=r"aborted$"), explained("r"), of_new_epoch("r", 4):
        raise fault("aborted")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "Fetch it with `scripts/hadoop_aws.sh"),
        ("Bad Request (Service: S3, Status Code: 400, Request ID: 1)", r"Set spark\.hadoop\.fs\.s3a\.endpoint"),
    ],
)
def test_a_client_of_s3_that_is_not_set_up_is_named_and_no_retry_is_asked_for(said: str, remedy: str) -> None:
    with (
        pytest.raises(Refused, match=rf"^rule r: .*{remedy}.*docs/deploy\.md says \({re.escape(said)}"),
        explained("r"),
    ):
        raise fault(said)


def test_a_value_that_reads_like_a_fault_of_the_store_is_a_value() -> None:
    said = "[CAST_INVALID_INPUT] The value 'No space left on device' cannot be cast. SQLSTATE: 22018"
    with pytest.raises(InputFault, match="the SQL fails"), explained("r"), of_table("sink/out"):
        raise fault(said)


VIOLATED = """[TASK_WRITE_FAILED] Task failed while writing rows
[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (v > 0) violated by row with values:
 - v : -1
 - at : s3a://me:secret@bucket/x
\tat org.apache.spark"""
NO_NULL = "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: k.\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (VIOLATED, r"CHECK constraint positive \(v > 0\) violated by row with values: - v : -1 - at : s3a://\*\*\*@b"),
        (NO_NULL, "NOT NULL constraint violated for column: k"),
    ],
)
def test_a_row_that_a_sinks_own_constraint_refuses_is_no_passing_fault(said: str, told: str) -> None:
    match = rf"^sink out: .*{told}.*[Dd]rop the constraint.*`expect`.*floodmark reset"
    with (
        pytest.raises(InputFault, match=match) as met,
        explained("r"),
        of_open_epoch("r", 4),
        of_table("sink/out"),
    ):
        raise fault(said)
    assert "org.apache" not in str(met.value) and "secret" not in str(met.value)


CUT_OFF = """Read past End of File
[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///lake/state/part-0.parquet. SQLSTATE: KD001"""


def test_a_file_or_its_checksum_that_ends_too_soon_is_named_as_damage() -> None:
    with pytest.raises(TableBroken, match=r"Read past End of File \(.*state/part-0\.parquet.*checksum"), explained("r"):
        raise fault(CUT_OFF)


def test_a_file_that_cannot_be_read_for_another_reason_is_named() -> None:
    """Hadoop's codecs name no file."""
    text = """Unexpected end of input stream
[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a.json.gz. SQLSTATE: KD001"""
    told = r"Spark failed: Unexpected end of input stream \(.* file:///in/a\.json\.gz.*\)\. If .* damaged, write"
    with pytest.raises(RunFailed, match=told), explained("r"):
        raise fault(text)


def test_what_fails_in_a_python_worker_is_told() -> None:
    text = (
        'An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File "a.py", line 3\n'
        "    x()\nUnicodeEncodeError: 'utf-8' codec can't encode\n\n\tat org.apache.spark.A\n\tat org.apache.spark.B"
    )
    with (
        pytest.raises(RunFailed, match=r"Python worker: UnicodeEncodeError: 'utf-8' codec can't encode$"),
        explained("r"),
    ):
        raise fault(text)


def test_rows_with_fields_that_a_table_lacks_are_no_passing_fault() -> None:
    said = "[DELTA_CANNOT_RESOLVE_COLUMN] Can't resolve column s.b in root"
    with pytest.raises(InputFault, match=r"^state events: .*s\.b.*gained fields.*reset"), of_table("state/events"):
        raise fault(said)


def test_a_table_names_no_other_fault_than_its_own() -> None:
    with pytest.raises(PySparkException, match="aborted"), of_table("sink/out"):
        raise fault("Job aborted due to stage failure")


@pytest.mark.parametrize(
    "sign", ["DELTA_VERSION_NOT_FOUND", "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"]
)
def test_a_version_that_is_gone_is_told_with_its_table_and_asks_for_a_reset(sign: str) -> None:
    said = fault(f"[{sign}] Cannot time travel Delta table.")
    match = rf"lookup cities: expected version 3 of the table, .*{sign}.*floodmark reset.*Table: /lake/c"
    with pytest.raises(HistoryGone, match=match), explained("r"), of_version("lookup cities", "/lake/c", 3):
        raise said
    with pytest.raises(HistoryGone, match=rf"{sign}.*`floodmark reset r`"), explained("r"):
        raise said
    with pytest.raises(PySparkException, match="aborted"), of_version("lookup cities", "/lake/c", 3):
        raise fault("Job aborted due to stage failure")


@pytest.mark.parametrize(
    "sign",
    [
        "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE",
        "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
        "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_TYPE_WIDENING",
    ],
)
def test_a_source_with_columns_renamed_dropped_or_retyped_asks_for_a_reset(sign: str) -> None:
    with (
        pytest.raises(HistoryGone, match=rf"renamed, dropped or changed in type.*{sign}.*`floodmark reset r`"),
        explained("r"),
    ):
        raise fault(f"[STREAM_FAILED] Query terminated with exception: [{sign}] Streaming read is not supported.")


@pytest.mark.parametrize(
    "sign",
    ["DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA", "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE"],
)
def test_a_feed_over_a_renamed_column_asks_for_a_reset(sign: str) -> None:
    found = rf"expected a change feed .*found changes from before a column was renamed.*{sign}.*`floodmark reset r`"
    with pytest.raises(HistoryGone, match=found), explained("r"):
        raise fault(f"[{sign}] Retrieving table changes between version 2 and 4 failed.")


def test_a_source_that_changes_while_it_is_read_is_tried_again_first() -> None:
    with pytest.raises(RunFailed, match=r"Retry; if it repeats.*`floodmark reset r`"), explained("r"):
        raise fault("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change in version 3:\n\nstreaming source ...")


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

    def unset(self, key: str) -> None:
        self.pop(key, None)


def test_no_setting_of_a_cluster_lets_a_broken_or_missing_file_go_unsaid(tmp_path: Path) -> None:
    found: Any = Told({"spark.sql.files.ignoreCorruptFiles": "true", "spark.sql.files.ignoreMissingFiles": "true"})
    rule_session(found, Flow(tmp_path.resolve()).rule(), "UTC", True)
    named = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")
    assert [found[name] for name in named] == ["false", "false"]


def test_no_setting_of_a_cluster_changes_what_sql_means(tmp_path: Path) -> None:
    found: Any = Told(dict.fromkeys((*MEANING, *MEANING_UNSET), "other"))
    rule_session(found, Flow(tmp_path.resolve()).rule(), "UTC", True)
    assert {key: found[key] for key in MEANING} == MEANING
    assert found.keys().isdisjoint(MEANING_UNSET)


def test_versions_of_more_than_a_week_ago_are_read_as_long_as_they_are_there(tmp_path: Path) -> None:
    """Delta's own default refuses them by their age alone, and an open epoch may be finished late."""
    name = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
    found: Any = Told({name: "true"})
    rule_session(found, Flow(tmp_path.resolve()).rule(), "UTC", True)
    assert found[name] == static_conf("1g", 2)[name] == "false"


def test_without_a_java_nothing_is_started_and_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setenv("JAVA_HOME", "/nonexist")
    with pytest.raises(Refused, match=r"Java 17 or 21, found no java.*install one.*JAVA_HOME"):
        root_session("local[1]", [])
