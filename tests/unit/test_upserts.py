"""What of an upsert is decided without Spark: its columns, its effect, and which files may hold a key."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.rules.rule import Rule, Sink, Stream
from floodmark.core.rules.sinks.upserts import Effect, Upsert, is_marked, upsert_of
from floodmark.errors import RuleChanged, WrongColumn
from floodmark.ledger.delta.datafiles import vector_file
from floodmark.ledger.delta.keybounds import Bound, may_hold

YEAR_1 = round((datetime(1, 1, 1) - datetime(1970, 1, 1)).total_seconds() - 53 * 60 - 28) * 1_000_000
Y2K = 946_684_800_000_000


def sink(**how: Any) -> Sink:
    return Sink(kind="delta", address="/lake/out", **how)


def test_columns_are_named_as_the_result_names_them() -> None:
    assert upsert_of(sink(), ["a"]) is None
    found = upsert_of(sink(key=("ORIGIN", "b"), newest="At", delete="x"), ["Origin", "B", "at"])
    assert found == Upsert(("Origin", "B"), "at", "x")


@pytest.mark.parametrize(
    ("how", "field"), [({"key": ("orign",)}, "key"), ({"key": ("b",), "newest": "orign"}, "newest")]
)
def test_a_column_that_is_not_there_is_named_with_the_nearest(how: dict[str, Any], field: str) -> None:
    with pytest.raises(WrongColumn, match=f"sink out: {field}: .*origin, b, found orign; did you mean origin?"):
        upsert_of(sink(**how), ["origin", "b"])


def test_a_column_that_nothing_is_near_to_is_told_with_all() -> None:
    with pytest.raises(WrongColumn) as told:
        upsert_of(sink(key=("zzz",)), ["origin", "b"])
    assert str(told.value).endswith("key: expected one of the result columns origin, b, found zzz")


def test_an_effect_agrees_with_the_rows_of_the_files_that_it_moves() -> None:
    effect = Effect(rows=9, inserted=2, updated=3, deleted=1).with_written(15)
    assert (effect.changed, effect.copied) == (6, 10)
    assert effect.agrees(added=15, removed=14)
    assert not effect.agrees(added=15, removed=13)
    assert not effect.agrees(added=14, removed=14)
    assert Effect(9).agrees(0, 0)
    assert Effect(rows=9, inserted=2, updated=3, deleted=1).with_written(15, marked=4).copied == 14


def text(value: str) -> str:
    """As Spark gives it to be compared."""
    return value.encode().hex().upper()


def stats(least: Any, most: Any) -> str:
    return json.dumps({"numRecords": 3, "minValues": {"k": least}, "maxValues": {"k": most}})


@pytest.mark.parametrize(
    ("kind", "low", "high", "least", "most", "held"),
    [
        ("bigint", 5, 9, 9, 12, True),
        ("bigint", 5, 9, 1, 5, True),
        ("bigint", 5, 9, 10, 12, False),
        ("bigint", 5, 9, 1, 4, False),
        ("string", text("b"), text("c"), "a", "b", True),
        ("string", text("b"), text("c"), "ca", "d", False),
        ("string", text(""), text(""), "", "a", True),
        ("string", text("\0"), text("\0"), "", "", False),
        ("string", text("é"), text("é"), "z", "é", True),
        ("string", text("🌊"), text("🌊"), "\ue000", "🌊", True),  # by UTF-16 it would come before
        # bytes that are no UTF-8: 80 comes before C3 A9 (é), what statistics show of it (EF BF BD) after
        ("string", "C3A9", "C3A9", "\ufffd", "é", True),
        ("string", "80", "80", "é", "\ufffd", True),
        ("string", "80", "80", "\ud800", "\ud800", True),
        ("string", "6180", "6180", "a\ufffd", "b", True),
        # of a long text 32 characters, then one that comes after all others, but not after bytes that are none
        ("string", text("a" * 32 + "b"), text("a" * 32 + "b"), "a" * 32, "a" * 32 + "\x7f", True),
        ("string", text("a" * 32) + "FF", text("a" * 32) + "FF", "a" * 32, "a" * 32 + "\U0010ffff", True),
        ("string", text("a" * 31 + "b"), text("a" * 31 + "b"), "a" * 32, "a" * 32 + "\x7f", False),
        ("date", 1, 2, "1970-01-03", "1970-01-09", True),
        ("date", 1, 1, "1970-01-03", "1970-01-09", False),
        ("timestamp", 1_500, 1_999, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:00.001Z", True),
        (
            "timestamp",
            Y2K + 1_500,
            Y2K + 1_999,
            "2000-01-01T00:00:00.000Z",
            "2000-01-01T00:00:00.001Z",
            True,
        ),
        (
            "timestamp",
            Y2K + 2_000,
            Y2K + 3_000,
            "2000-01-01T00:00:00.000Z",
            "2000-01-01T00:00:00.001Z",
            False,
        ),
        # Berlin's offset was 53 minutes and 28 seconds: midnight of the year 1, and of 1850
        ("timestamp", YEAR_1, YEAR_1, "0001-01-01T00:00:00.000+00:53", "0001-01-01T00:00:00.000+00:53", True),
        ("timestamp", 92_000_000, 93_000_000, "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:30.000Z", False),
        ("timestamp", 0, 0, "1970-01-01T01:00:00.000+01:00", "1970-01-01T01:00:00.000+01:00", True),
        ("timestamp_ntz", 0, 0, "1970-01-01T00:00:00.001", "1970-01-01T00:00:00.001", False),
        ("timestamp", 0, 0, "+12345-01-01T00:00:00.000Z", "+12345-01-01T00:00:00.000Z", True),
    ],
)
def test_a_file_may_hold_a_key_within_its_statistics(
    kind: str, low: Any, high: Any, least: Any, most: Any, held: bool
) -> None:
    assert may_hold(stats(least, most), [Bound("k", kind, low, high)]) is held


@pytest.mark.parametrize(
    ("kind", "text", "low", "high", "held"),
    [
        ("bigint", "10", 9, 11, True),
        ("int", "10", 9, 11, True),
        ("smallint", "10", 9, 11, True),
        ("tinyint", "10", 9, 11, True),
        ("bigint", "10", 5, 9, False),
        ("bigint", None, 5, 9, False),
        ("string", "b", text("a"), text("b"), True),
        ("string", "ba", text("a"), text("b"), False),
        ("string", "\ufffd", "80", "80", True),
        ("date", "1970-01-03", 2, 2, True),
        ("date", "1970-01-03", 3, 9, False),
        ("timestamp", "1970-01-01T00:00:01.000002Z", 1_000_002, 1_000_002, True),
        ("timestamp", "2000-01-01T00:00:01.000002Z", Y2K + 1_002_000, Y2K + 2_000_000, False),
        ("timestamp", "2000-01-01 00:00:01.000002", Y2K + 7_000_000_000, Y2K + 7_200_000_000, True),  # of any zone
        ("timestamp", "2000-01-01T00:00:01.000002+02:00", Y2K + 1_000_000, Y2K + 2_000_000, False),
        ("timestamp_ntz", "2000-01-01 00:00:01", Y2K + 7_000_000_000, Y2K + 7_200_000_000, False),
    ],
)
def test_a_file_may_hold_a_key_of_its_partition(kind: str, text: str | None, low: Any, high: Any, held: bool) -> None:
    assert may_hold('{"numRecords": 1}', [Bound("k", kind, low, high)], {"k": text}) is held
    assert may_hold(None, [Bound("k", kind, low, high)], {"other": text})


@pytest.mark.parametrize("known", [None, "", "{}", '{"numRecords":3,"minValues":{"other":1},"maxValues":{"other":1}}'])
def test_a_file_without_statistics_may_hold_any_key(known: str | None) -> None:
    assert may_hold(known, [Bound("k", "bigint", 5, 9)])


@pytest.mark.parametrize(
    ("new", "refused"),
    [
        ({"key": ("B", "a"), "newest": "N"}, False),
        ({"key": ("a",), "newest": "n"}, True),
        ({"key": ("a", "b")}, True),
        ({"key": ("a", "b"), "delete": "n = 0"}, True),
        ({}, True),
    ],
)
def test_how_a_sink_is_merged_into_changes_only_by_a_reset(new: dict[str, Any], refused: bool) -> None:
    def rule(how: dict[str, Any]) -> Rule:
        stream = Stream(kind="delta", address="/lake/in")
        added = Sink(kind="delta", address="/lake/more", key=("c",))
        return Rule(rule="r", streams={"s": stream}, sql="SELECT a FROM s", sinks=(sink(**how), added), hash="0")

    old = rule({"key": ("a", "b"), "newest": "n"}).model_copy(update={"sinks": (sink(key=("a", "b"), newest="n"),)})
    if not refused:
        return check_edit(old, rule(new))
    with pytest.raises(RuleChanged, match="key, newest or delete of a sink"):
        check_edit(old, rule(new))
    return None


@pytest.mark.parametrize(
    ("held", "there", "goes", "changed", "marked"),
    [
        (100, 100, 1, 1, True),
        (100, 100, 50, 10, True),
        (100, 100, 51, 10, False),  # most of it is gone
        (40, 40, 0, 10, False),  # just as few times the rows that change
        (100, 60, 11, 5, False),  # with what was marked before
        (1_000_000, 1_000_000, 10_000, 10_000, True),
        (40_000, 40_000, 100, 10_000, False),  # written anew with little more work than the rest
    ],
)
def test_a_file_is_marked_while_most_of_it_stays_and_it_is_large(
    held: int, there: int, goes: int, changed: int, marked: bool
) -> None:
    assert is_marked(held, there, goes, changed) is marked


def test_the_name_of_a_deletion_vectors_file_is_spelled_as_the_protocol_says() -> None:
    """The example is that of Delta's protocol, section "Derived Fields"."""
    told = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4, "sizeInBytes": 40}
    assert vector_file(told) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector_file(told | {"pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^"}) == vector_file(told)[3:]
    assert vector_file(told | {"storageType": "i"}) is None
    assert vector_file(None) is None
