"""Which of Spark's errors come again however often one tries. The chains are as Spark 4.2 gives them."""

from __future__ import annotations

import pytest

from floodmark.core.datafaults import Cause, causes_in, of_data

THROWN = ("java.lang.RuntimeException", "java.lang.Exception", "java.lang.Throwable", "java.lang.Object")
GENERATED = "org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIteratorForCodegenStage2"
ABORTED = Cause("Job aborted due to stage failure", ("org.apache.spark.SparkException",))


def java(name: str, *frames: str, said: str = "said") -> Cause:
    return Cause(said, (name, *THROWN), frames=frames)


OF_DATA = [
    Cause("", condition="DATETIME_FIELD_OUT_OF_BOUNDS.WITH_SUGGESTION", state="22023"),
    Cause("", condition="SCALAR_SUBQUERY_TOO_MANY_ROWS", state="21000"),
    Cause("", condition="DUPLICATED_MAP_KEY", state="23505"),
    Cause("", condition="COLLECTION_SIZE_LIMIT_EXCEEDED.PARAMETER", state="54000"),
    Cause("", condition="USER_RAISED_EXCEPTION", state="P0001"),
    Cause(
        "",
        ("org.apache.spark.SparkIllegalArgumentException", "java.lang.IllegalArgumentException", *THROWN),
        "INVALID_FORMAT.MISMATCH_INPUT",
        "42601",
        ("org.apache.spark.sql.errors.QueryExecutionErrors$", "org.apache.spark.sql.catalyst.util.ToNumberParser"),
    ),
    java("java.lang.ArithmeticException", "java.lang.Math", "org.apache.spark.sql.catalyst.util.DateTimeUtils$"),
    java("java.util.regex.PatternSyntaxException", *["java.util.regex.Pattern"] * 9, GENERATED),
    java("java.lang.IllegalArgumentException", "java.util.Base64$Decoder", GENERATED),
    java("java.lang.IllegalArgumentException", "org.apache.spark.unsafe.types.UTF8String", GENERATED),
]
OF_OTHERS = [
    Cause("", condition="DELTA_VERSION_NOT_FOUND", state="22003"),
    Cause("", condition="INVALID_KRYO_SERIALIZER_NO_DATA", state="22002"),
    Cause("", condition="KRYO_BUFFER_OVERFLOW", state="54006"),
    Cause("", condition="TASK_WRITE_FAILED", state="58030"),
    Cause("", condition="TABLE_OR_VIEW_NOT_FOUND", state="42P01", kinds=("org.apache.spark.sql.AnalysisException",)),
    java("java.lang.IllegalStateException", "org.apache.spark.scheduler.DAGScheduler", GENERATED),
    Cause("heap", ("java.lang.OutOfMemoryError", "java.lang.Error"), frames=(GENERATED,)),
    java("java.lang.IllegalArgumentException"),
    java("java.lang.RuntimeException", "org.apache.parquet.io.X", "org.apache.spark.sql.execution.Scan", GENERATED),
    java("java.lang.IllegalArgumentException", "org.apache.spark.unsafe.memory.MemoryAllocator", GENERATED),
]


@pytest.mark.parametrize("cause", OF_DATA, ids=lambda cause: cause.condition or cause.kinds[0])
def test_what_a_rows_data_raise_is_found_below_what_spark_wraps_it_in(cause: Cause) -> None:
    assert of_data([ABORTED, cause]) is cause


@pytest.mark.parametrize("cause", OF_OTHERS, ids=lambda cause: cause.condition or cause.kinds[0])
def test_what_a_machine_a_store_or_a_setting_raises_is_none_of_data(cause: Cause) -> None:
    assert of_data([ABORTED, cause]) is None


def test_what_is_raised_in_reading_a_file_is_no_word_about_a_row() -> None:
    assert of_data([Cause("", condition="FAILED_READ_FILE.NO_HINT", state="KD001"), OF_DATA[-1]]) is None
    assert of_data([Cause("", condition="DELTA_STATE_RECOVER_ERROR", state="XXKDS"), OF_DATA[0]]) is None


def test_a_cause_is_told_in_a_line_with_javas_name_where_spark_has_none() -> None:
    assert java("java.lang.ArithmeticException", said="long overflow\n at").line == "ArithmeticException: long overflow"
    assert Cause("[DIVIDE_BY_ZERO] Division.\n== SQL", THROWN, "DIVIDE_BY_ZERO", "22012").line.endswith("Division.")


def test_where_only_the_text_is_there_its_names_tell() -> None:
    [cause] = causes_in("Job aborted: [CAST_OVERFLOW.X] The value\n300 is too large. SQLSTATE: 22003\n at org")
    assert (cause.condition, cause.state, cause.is_of_data) == ("CAST_OVERFLOW.X", "22003", True)
    assert not list(causes_in("[CAST_OVERFLOW] without a state"))
