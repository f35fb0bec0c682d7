"""A session of a PostgreSQL target waits for a server that works, and not for ever."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from psycopg import errors as pg

from floodmark.connectors.sources.postgres.server.waiting import looking
from floodmark.connectors.targets.postgres.sessions import refused_or_failed
from floodmark.errors import RunFailed

NOTHING, SOMETHING = 0, 1


def steps(asked: list[int]) -> Generator[int, int, str]:
    """As the driver waits: until something comes."""
    while not asked or asked[-1] == NOTHING:
        asked.append((yield 7))
    return "answer"


def played(gen: Generator[Any, int, str], *events: int) -> str:
    assert next(gen) == 7
    for event in events[:-1]:
        assert gen.send(event) == 7
    with pytest.raises(StopIteration) as end:
        gen.send(events[-1])
    found: str = end.value.value
    return found


def test_the_server_is_looked_at_while_nothing_comes() -> None:
    looks, asked = list[int](), list[int]()
    gen = looking(steps(asked), 0.0, lambda: looks.append(len(asked)))
    assert played(gen, NOTHING, NOTHING, SOMETHING) == "answer"
    assert (looks, asked) == ([0, 1], [NOTHING, NOTHING, SOMETHING])


def test_an_answer_in_time_is_no_reason_to_look() -> None:
    def look() -> None:
        raise AssertionError

    assert played(looking(steps([]), 60.0, look), NOTHING, SOMETHING) == "answer"


def test_what_the_look_raises_ends_the_wait() -> None:
    def look() -> None:
        raise TimeoutError

    gen = looking(steps([]), 0.0, look)
    assert next(gen) == 7
    with pytest.raises(TimeoutError):
        gen.send(NOTHING)


@pytest.mark.parametrize(("by", "named"), [("", ". End"), ("process 7 (psql)", ": process 7 (psql). End")])
def test_a_lock_is_a_reason_to_try_again(by: str, named: str) -> None:
    found = refused_or_failed("postgres://shop/public.t", pg.LockNotAvailable("canceling statement"), by)
    assert isinstance(found, RunFailed)
    assert f"it waited 2min for a lock that another session holds{named} its transaction" in str(found)
