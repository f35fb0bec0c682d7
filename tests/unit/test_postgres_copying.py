"""How rows of a table, and the messages of a slot, are read from a COPY."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from psycopg import errors

from floodmark.connectors.sources.postgres import copying
from floodmark.connectors.sources.postgres.copying import Wanted, copied
from floodmark.core.text.ddl import columns_of
from floodmark.errors import RunFailed

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
ONE, TRAILER = b"\x00\x01" + (5).to_bytes(4, "big") + b"first", b"\xff\xff"


def messages(monkeypatch: pytest.MonkeyPatch, *copies: list[bytes | Exception]) -> list[bytes]:
    """What is read if each COPY that is sent gives one of these."""
    left = iter(copies)

    def sent(_: object, command: str) -> Iterator[memoryview]:
        for one in next(left):
            if isinstance(one, Exception):
                raise one
            yield memoryview(one)

    monkeypatch.setattr(copying, "_sent", sent)
    found = list(copying._messages(cast("Any", None), "SELECT data"))
    assert list(left) == [], "each COPY was needed"
    return found


def test_a_slot_that_another_session_uses_is_read_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = errors.ObjectInUse("replication slot is active for PID 7")
    assert messages(monkeypatch, [busy], [busy], [HEADER + ONE, TRAILER]) == [b"first"]


def test_a_slot_without_changes_still_sends_the_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    assert messages(monkeypatch, [HEADER + TRAILER]) == []


@pytest.mark.parametrize("rows", [[], [ONE]])
def test_a_copy_without_its_signature_is_not_taken_for_one_without_changes(
    monkeypatch: pytest.MonkeyPatch, rows: list[bytes | Exception]
) -> None:
    with pytest.raises(RunFailed, match="expected the changes of the slot"):
        messages(monkeypatch, rows)


def test_rows_of_a_table_whose_bytes_are_not_in_utf_8_are_malformed_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = [b"1,plain,{a}\n", b'2,"caf\xe9 ""x""\n",{b}\n', b'3,"",{\xe9}\n', b"4,,\n"]
    monkeypatch.setattr(copying, "_sent", lambda *_: map(memoryview, lines))
    wanted = Wanted(columns_of("id INT, name STRING, tags ARRAY<STRING>"), {})
    (batch,) = copied(cast("Any", None), "SELECT", wanted, {})
    id_, name, tags, problems = (column.to_pylist() for column in batch.columns)
    assert (id_, name, tags) == ([1, 2, 3, 4], ["plain", None, "", None], [["a"], ["b"], None, None])
    said = "in the table: column {}: expected text in UTF-8, found b'{}"
    assert [one and one[: len(said) + 4] for one in problems] == [
        None, said.format("name", "caf\\xe9")[: len(said) + 4], said.format("tags", "{\\xe9}")[: len(said) + 4], None,
    ]  # fmt: skip
    assert "write the value in UTF-8" in str(problems[1])
