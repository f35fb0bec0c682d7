"""What is kept of facts that take a while, and when it is not believed any more."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from floodmark.errors import RunFailed
from floodmark_airflow.pages.cache import Answer, Cache, Request

LONG = 20.0  # seconds in which what is awaited comes, even on a busy machine


class Source:
    """A folder that facts are read from; `read` counts how often."""

    def __init__(self, folder: Path):
        self.folder, self.read = folder, 0
        folder.mkdir()
        self.age(60)

    def age(self, seconds: float) -> None:
        """Let the folder have changed so long ago."""
        then = time.time() - seconds
        os.utime(self.folder, (then, then))

    def wanted(self, given: Any = None, gather: Callable[[Any], Any] | None = None) -> Request:
        return Request("it", gather or self._gather, lambda _: [self.folder], given)

    def _gather(self, _: Any) -> int:
        self.read += 1
        return self.read


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "log")


@pytest.fixture
def shelf() -> Cache:
    return Cache(10, 1, "test")


def one(shelf: Cache, wanted: Request, seconds: float = LONG) -> Answer:
    [found] = shelf.get([wanted], seconds)
    return found


def test_what_has_not_changed_is_read_once(shelf: Cache, source: Source) -> None:
    assert [one(shelf, source.wanted()).value for _ in range(3)] == [1, 1, 1]


def test_a_change_is_seen(shelf: Cache, source: Source) -> None:
    one(shelf, source.wanted())
    source.age(30)
    assert one(shelf, source.wanted()).value == 2
    assert one(shelf, source.wanted("another rule")).value == 3


def test_a_folder_that_changed_just_now_is_read_again_for_it_may_change_without_a_sign(
    shelf: Cache, source: Source
) -> None:
    source.age(0)
    assert [one(shelf, source.wanted()).value for _ in range(3)] == [1, 2, 3]
    source.age(10)
    assert [one(shelf, source.wanted()).value for _ in range(2)] == [4, 4]


def test_a_change_while_it_is_read_is_not_taken_for_read(shelf: Cache, source: Source) -> None:
    def gather(_: Any) -> str:
        source.age(0)
        return "old"

    assert one(shelf, source.wanted(gather=gather)).value == "old"
    assert not shelf.is_fresh(source.wanted())


def test_who_does_not_wait_gets_what_there_is(shelf: Cache, source: Source) -> None:
    one(shelf, source.wanted())
    source.age(30)
    go, begun = threading.Event(), threading.Event()

    def gather(before: Any) -> Any:
        begun.set()
        assert go.wait(LONG)
        return (before, "new")

    assert one(shelf, source.wanted(gather=gather), 0) == Answer(1, pending=True)
    assert begun.wait(LONG)
    assert one(shelf, source.wanted(gather=gather), 0).pending
    go.set()
    assert one(shelf, source.wanted(gather=gather)) == Answer((1, "new"))


def test_a_known_fault_is_told_in_its_words_and_another_with_its_type(shelf: Cache, source: Source) -> None:
    def known(_: Any) -> None:
        raise RunFailed("the disk is full")

    def unknown(_: Any) -> None:
        raise ZeroDivisionError("by nought")

    assert one(shelf, source.wanted(gather=known)) == Answer(fault="the disk is full")
    source.age(30)
    assert one(shelf, source.wanted(gather=unknown)) == Answer(fault="ZeroDivisionError: by nought")
    source.age(20)
    assert one(shelf, source.wanted()).value == 1


@pytest.mark.parametrize("kind", [OSError, RuntimeError])
def test_no_fault_tells_a_password_in_the_address_of_a_store(shelf: Cache, source: Source, kind: type) -> None:
    def away(_: Any) -> None:
        raise kind("GET http://somebody:word@store/bucket gave 403")

    assert one(shelf, source.wanted(gather=away)).fault == f"{kind.__name__}: GET http://***@store/bucket gave 403"


def test_nothing_is_begun_by_a_look(shelf: Cache, source: Source) -> None:
    assert shelf.peek(source.wanted()) == Answer()
    assert source.read == 0


def test_it_keeps_no_more_than_it_may(source: Source) -> None:
    shelf = Cache(2, 1, "test")
    wanted = [Request(name, lambda _, name=name: name, lambda _: []) for name in "abc"]
    assert [found.value for found in shelf.get(wanted[:2], LONG)] == ["a", "b"]
    assert one(shelf, wanted[0]).value == "a"
    assert one(shelf, wanted[2]).value == "c"
    assert [shelf.peek(each).value for each in wanted] == ["a", None, "c"]


def test_what_hangs_in_a_store_that_is_away_holds_nothing_else_up(shelf: Cache, source: Source) -> None:
    go = threading.Event()
    hanging = Request("away", lambda _: go.wait(LONG), lambda _: [], away=True)
    assert one(shelf, hanging, 0).missing
    assert one(shelf, source.wanted()).value == 1
    go.set()
    assert one(shelf, hanging).value
