"""What the name of a directory makes of a value, as far as that needs no Spark; tests/spark has the rest."""

from __future__ import annotations

import pytest

from floodmark.core.rules.sinks.partitionvalues import bytes_in_path, long_name, unfit, which
from floodmark.core.rules.sinks.sinkcolumns import SinkColumns
from floodmark.spark.rule.checks.partitionvalues import SHOWN, shown_value


@pytest.mark.parametrize(
    ("text", "size"), [("", 0), ("abc", 3), ("a/b", 5), ("a b", 3), ("\n", 3), ("é", 2), ("🌊", 4), ("\x80", 2)]
)
def test_a_name_has_so_many_bytes_in_a_path(text: str, size: int) -> None:
    assert bytes_in_path(text) == size


@pytest.mark.parametrize(
    ("kind", "most"), [("string", 228), ("bigint", 228), ("decimal(38,38)", 213), ("timestamp", 224), ("date", 228)]
)
def test_a_column_leaves_room_in_a_name_for_null_and_the_longest_value(kind: str, most: int) -> None:
    assert long_name("x" * most, kind) is None
    assert str(long_name("x" * (most + 1), kind)).startswith(f"a name of at most {most} bytes in a path, found")


@pytest.mark.parametrize("kind", ["boolean", "tinyint", "bigint", "decimal(38,38)", "smallint", "int"])
def test_numbers_and_booleans_are_all_written_as_they_are(kind: str) -> None:
    assert unfit("k", kind) == []


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_times_are_of_the_years_that_all_readers_have(kind: str) -> None:
    [one] = unfit("a`b", kind)
    assert one.column == "a`b" and one.holds.count("`a``b`") == 2 and one.why == "its year is not within 1 to 9999"


def test_only_results_that_come_to_stand_in_the_sink_are_looked_at() -> None:
    found = unfit("k", "date")
    sql = which(found, SinkColumns(("k",), where="v > 0 -- some"))
    assert sql.startswith("CASE WHEN coalesce((v > 0 -- some\n), false) THEN CASE WHEN (`k` < ")
    assert which(found, SinkColumns(("k",), delete="v < 0")).startswith("CASE WHEN NOT coalesce((v < 0\n), false) THEN")
    assert which(found, SinkColumns(("k",))).startswith("CASE WHEN true THEN")


def test_empty_text_is_refused_only_where_the_key_tells_it_from_null() -> None:
    assert not any(one.holds == "`k` = ''" for one in unfit("k", "string"))
    assert any(one.holds == "`k` = ''" for one in unfit("k", "string", in_key=True))


def test_a_process_with_names_in_ascii_only_takes_no_other_text() -> None:
    more = {one.why for one in unfit("k", "string", any_name=False)} - {one.why for one in unfit("k", "string")}
    assert more == {"this process names files in ASCII only: start it with LC_ALL=C.UTF-8"}


def test_a_long_value_is_shown_by_its_start_in_whole_quotes() -> None:
    assert shown_value("a'b") == '"a\'b"'
    assert shown_value("é" * 200) == f"'{'é' * SHOWN}'... (400 bytes)"
