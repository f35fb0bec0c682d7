"""Messages of PostgreSQL's output plugin, the rows that they make, types and values. No server."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.connectors.sources.postgres.decoding.changes import KEY_ALONE, OTHER_KEY, TRUNCATED, Changes, Row, placed
from floodmark.connectors.sources.postgres.decoding.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Relation,
    Truncate,
    lsn_of,
    lsn_text,
    message,
)
from floodmark.connectors.sources.postgres.decoding.types import Known, column_type
from floodmark.connectors.sources.postgres.decoding.values import converted, elements
from floodmark.core.text.ddl import columns_of

OID = 16_385


def begin(lsn: int, at_us: int = EPOCH_US) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, at_us - EPOCH_US, 755)


def commit(lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, lsn + 48, 0)


def relation(*columns: str, key: tuple[str, ...] = (), oid: int = OID, identity: str = "d") -> bytes:
    head = b"R" + struct.pack(">I", oid) + b"public\0t\0" + identity.encode() + struct.pack(">H", len(columns))
    return head + b"".join(
        bytes([name in key]) + name.encode() + b"\0" + struct.pack(">Ii", 25, -1) for name in columns
    )


def values(*found: object) -> bytes:
    parts = [struct.pack(">H", len(found))]
    for one in found:
        text = one if isinstance(one, bytes) else str(one).encode()
        parts.append(b"n" if one is None else b"u" if one is UNCHANGED else b"t" + struct.pack(">I", len(text)) + text)
    return b"".join(parts)


def insert(*found: object, oid: int = OID) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + values(*found)


def update(new: tuple[object, ...], old: tuple[object, ...] | None = None, whole: bool = False) -> bytes:
    before = b"" if old is None else (b"O" if whole else b"K") + values(*old)
    return b"U" + struct.pack(">I", OID) + before + b"N" + values(*new)


def delete(*old: object, whole: bool = False) -> bytes:
    return b"D" + struct.pack(">I", OID) + (b"O" if whole else b"K") + values(*old)


def rows(
    *messages: bytes,
    since: int = 0,
    upto: int = 1 << 40,
    columns: Any = ("id", "name"),
    key: Any = ("id",),
    whole: bool = False,
) -> list[Row]:
    return [*Changes(OID, columns, key, since, upto, whole).rows([relation("id", "name", key=("id",)), *messages])]


def test_a_delete_with_its_key_alone_is_malformed_where_whole_rows_are_expected() -> None:
    sent = [begin(5), delete("1", None), update(("3", "b"), ("2", None)), delete("4", "d", whole=True)]
    assert [row.problem for row in rows(*sent)] == [None] * 4
    problems = [row.problem for row in rows(*sent, whole=True)]
    assert problems == [KEY_ALONE, KEY_ALONE, None, None]


def test_a_delete_with_another_key_than_before_is_malformed() -> None:
    sent = [begin(5), delete("1", None), delete(None, "b"), delete(None, "c", whole=True)]
    changes = Changes(OID, ["id", "name"], ["id"], 0, 100, sure=["id", "gone"])
    problems = [row.problem for row in changes.rows([relation("id", "name", key=("id",)), *sent])]
    assert problems == [None, f"column id: {OTHER_KEY}", None]


def seen(found: list[Row]) -> list[tuple[Any, ...]]:
    return [(row.kind, *row.values, row.seq) for row in found]


def test_messages_are_decoded() -> None:
    assert message(begin(7, EPOCH_US + 5)) == Begin(7, EPOCH_US + 5, 755)
    assert message(commit(7)) == Commit(7, 55, EPOCH_US)
    assert message(relation("id", "né", key=("id",))) == Relation(OID, "public", "t", "d", ("id", "né"), ("id",))
    assert message(insert("1", None)) == Change("insert", OID, ["1", None])
    assert message(update(("1", UNCHANGED))) == Change("update", OID, ["1", UNCHANGED])
    assert message(update(("2", "b"), ("1", None))) == Change("update", OID, ["2", "b"], ["1", None])
    assert message(delete("1", "a", whole=True)) == Change("delete", OID, None, ["1", "a"], True)
    assert message(b"T" + struct.pack(">IBII", 2, 0, 5, OID)) == Truncate((5, OID))
    assert message(b"Y....") is message(b"M...") is None


@pytest.mark.parametrize("data", [b"", b"?", b"I\0", insert("abc")[:-1], b"I" + struct.pack(">I", 1) + b"N\0\1b\0"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="expected a "):
        message(data)


@given(st.integers(0, (1 << 64) - 1))
def test_places_in_the_log_are_written_as_postgresql_does(lsn: int) -> None:
    assert lsn_of(lsn_text(lsn)) == lsn


def test_a_transaction_is_in_a_range_by_where_its_commit_starts() -> None:
    messages = [part for lsn in (10, 20, 30) for part in (begin(lsn), insert(str(lsn), "a"), commit(lsn))]
    assert [row.lsn for row in rows(*messages, since=20, upto=30)] == [20]
    assert [row.lsn for row in rows(*messages, since=11, upto=31)] == [20, 30]


def test_changes_are_rows_with_their_kind_and_place() -> None:
    found = rows(begin(9, 77), insert("1", "a"), update(("1", "b")), delete("1", None), commit(9))
    assert seen(found) == [("insert", "1", "a", 0), ("update", "1", "b", 1), ("delete", "1", None, 2)]
    assert {(row.lsn, row.at_us, row.problem) for row in found} == {(9, 77, None)}


def test_an_update_of_the_key_deletes_one_row_and_inserts_another() -> None:
    by_key = rows(begin(9), update(("2", "b"), ("1", None)), commit(9))
    whole = rows(begin(9), update(("2", "b"), ("1", "a"), whole=True), commit(9))
    assert seen(by_key) == [("delete", "1", None, 0), ("insert", "2", "b", 1)]
    assert seen(whole) == [("delete", "1", "a", 0), ("insert", "2", "b", 1)]
    assert seen(rows(begin(9), update(("1", "b"), ("1", "a"), whole=True))) == [("update", "1", "b", 0)]


def test_a_long_value_that_was_not_sent_comes_from_the_whole_old_row_or_is_a_problem() -> None:
    whole = rows(begin(9), update(("1", UNCHANGED), ("1", "long"), whole=True))
    (alone,) = rows(begin(9), update(("1", UNCHANGED)))
    assert seen(whole) == [("update", "1", "long", 0)] and whole[0].problem is None
    assert alone.problem is not None and "column name: expected its value" in alone.problem
    assert placed(alone, "why") == "LSN 0/9, change 0 (update): why"


def test_a_value_that_is_not_in_utf_8_is_a_problem_of_its_row_and_column() -> None:
    found = rows(begin(100), insert(1, b"caf\xe9"), update((1, "caf\u00e9"), (1, b"caf\xe9"), whole=True))
    assert [row.values for row in found] == [("1", None), ("1", "caf\u00e9")]
    said = "column name: expected text in UTF-8, found b'caf\\xe9', which a database with the encoding SQL_ASCII takes"
    assert [one and said in one for one in (row.problem for row in found)] == [True, None]
    assert [row.problem for row in rows(begin(100), insert(1, b"\xe9"), columns=("id",))] == [None]


def test_emptying_the_table_is_a_problem_and_other_tables_are_none() -> None:
    other = b"T" + struct.pack(">IBI", 1, 0, 5)
    found = rows(begin(9), other, b"T" + struct.pack(">IBI", 1, 0, OID), relation("x", oid=5), insert("1", oid=5))
    assert [(row.kind, row.values, row.problem) for row in found] == [("truncate", (None, None), TRUNCATED)]


def test_columns_come_and_go_and_a_renamed_one_is_a_problem() -> None:
    grown = rows(begin(9), insert("1", "a"), columns=("id", "name", "more"))
    assert seen(grown) == [("insert", "1", "a", None, 0)] and grown[0].problem is None
    shrunk = rows(begin(9), insert("1", "a"), columns=("id",))
    assert seen(shrunk) == [("insert", "1", 0)] and shrunk[0].problem is None
    (renamed,) = rows(begin(9), insert("1", "a"), columns=("id", "title"))
    assert renamed.problem is not None and "found name in place of title" in renamed.problem
    (swapped,) = rows(begin(9), insert("1", "a"), columns=("name", "more", "id"))
    assert (
        swapped.problem is not None and "expected the columns name, id in that order, found id, name" in swapped.problem
    )
    later = rows(begin(9), relation("id", "title"), insert("1", "a"), columns=("id", "title"))
    assert seen(later) == [("insert", "1", "a", 0)], "a new description of the table counts from there on"


KNOWN = {
    1: Known("int4", 0, -1, 0), 2: Known("_int4", 0, -1, 1), 3: Known("numeric", 0, -1, 0),
    4: Known("price", 3, 655_366, 0), 5: Known("box", 0, -1, 0, ";"), 6: Known("_box", 0, -1, 5),
    7: Known("mood", 0, -1, 0), 8: Known("timestamp", 0, -1, 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("oid", "mod", "expected"),
    [
        (1, -1, "int"), (2, -1, "array<int>"), (3, -1, "string"), (3, 655_366, "decimal(10,2)"),
        (3, (39 << 16) + 4, "string"), (3, (2 << 16) + 4 + 5, "string"), (3, (10 << 16) + 4 + 2046, "string"),
        (4, -1, "decimal(10,2)"), (6, -1, "string"), (7, -1, "string"), (8, 3, "timestamp_ntz"),
    ],
)  # fmt: skip
def test_types(oid: int, mod: int, expected: str) -> None:
    """Numbers without a precision, or with more digits or places than Spark has, are text."""
    assert str(column_type(oid, mod, KNOWN)) == expected


@pytest.mark.parametrize(
    ("kind", "texts", "expected", "bad"),
    [
        ("boolean", ["t", "f", None], [True, False, None], []),
        ("binary", ["\\x00ff", None], [b"\x00\xff", None], []),
        ("decimal(5,2)", ["1.50", "NaN", None], ["1.50", None, None], [1]),
        ("smallint", ["1", "32768"], [1, None], [1]),
        ("date", ["2026-01-31", "infinity", "0044-03-15 BC"], ["2026-01-31", None, None], [1, 2]),
        ("timestamp", ["2026-01-31 10:00:00.5+00", "-infinity"], ["2026-01-31 10:00:00.500000+00:00", None], [1]),
        ("timestamp_ntz", ["2026-01-31 10:00:00", None], ["2026-01-31 10:00:00", None], []),
        ("double", ["1e+20", "-Infinity"], [1e20, float("-inf")], []),
        ("array<int>", ["{1,NULL}", None, "{}", "{{1},{2}}", "[0:1]={5,6}"], [[1, None], None, [], None, [5, 6]], [3]),
        ("array<string>", ['{"a b",NULL,"NULL","q\\"\\\\,}",""}'], [["a b", None, "NULL", 'q"\\,}', ""]], []),
        ("string", ["", None, "NaN"], ["", None, "NaN"], []),
    ],
)  # fmt: skip
def test_values(kind: str, texts: list[str | None], expected: list[Any], bad: list[int]) -> None:
    found, places = converted(pa.array(texts, pa.string()), columns_of(f"a {kind}")[0].type)
    shown = [
        str(one) if isinstance(want, str) and one is not None else one
        for one, want in zip(found.to_pylist(), expected, strict=True)
    ]
    assert (shown, places) == (expected, bad)


@given(st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_any_array_of_texts_is_read_as_postgresql_prints_it(found: list[str | None]) -> None:
    escaped = [None if one is None else one.replace("\\", "\\\\").replace('"', '\\"') for one in found]
    assert elements("{" + ",".join("NULL" if one is None else f'"{one}"' for one in escaped) + "}") == found
