"""The class Post of docs/reference/own-target.md, without Spark, against a server that answers badly."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPException
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support.inbox import BROKEN, CLASSES, Inbox, inbox

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def server() -> Iterator[Inbox]:
    with inbox() as found:
        yield found


def post(server: Inbox) -> Any:
    scope: dict[str, Any] = {}
    exec(CLASSES[0], scope)
    return scope["Post"](server.url, timeout=0.5, pause=0)


@pytest.mark.parametrize("fault", ["fails", "cuts", "delays", "301", "302", "303", "307", "308", *BROKEN])
def test_rows_that_the_server_has_not_confirmed_come_again(server: Inbox, fault: str) -> None:
    server.faults = [fault] * 2
    post(server).apply(ROWS, "l/1")
    assert server.rows == ROWS.to_pylist()


@pytest.mark.parametrize("fault", ["refuses", "301", "302", "303", "307", "308", *BROKEN])
def test_rows_that_never_arrive_are_an_error(server: Inbox, fault: str) -> None:
    server.faults = [fault] * 5
    with pytest.raises((OSError, HTTPException)):
        post(server).apply(ROWS, "l/1")
    assert server.received == []


def test_a_busy_server_is_left_alone_for_as_long_as_it_says(server: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    target = post(server)
    # Its own clock alone: threads of other tests sleep, too.
    monkeypatch.setitem(target.apply.__func__.__globals__, "time", SimpleNamespace(sleep=waited.append))
    server.faults = ["is busy", "fails"]
    target.apply(ROWS, "l/1")
    assert (waited, server.rows) == ([1, 0], ROWS.to_pylist())
