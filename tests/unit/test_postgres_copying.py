"""How the messages of a slot are read from a COPY."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from psycopg import errors

from floodmark.connectors.sources.postgres import copying
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
