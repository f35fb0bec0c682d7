"""A session of a PostgreSQL server that waits as long as the server works, and not for one that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")
WAIT = 10  # seconds to connect
LOOK_EVERY = 30.0  # seconds without an answer, until another session looks whether the server still answers
HANGS_AFTER = 120.0  # seconds in which it answers nobody


class Session(psycopg.Connection[Any]):
    """It waits as long as the server works, and not for one that hangs.

    blocked_by: the sessions that it waited for when it looked last, for people.
    """

    blocked_by = ""
    _other = ""
    _heard = 0.0

    @classmethod
    def opened(cls, said: str, other: str) -> Self:
        """`said`, `other`: libpq's settings, those of the session that looks in the second one. Commits by itself."""
        found = cls.connect(said, autocommit=True)
        found._other = other
        return found

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        self._heard = time.monotonic()
        return super().wait(looking(gen, LOOK_EVERY, self._look), *args, **more)

    def _look(self) -> None:
        """Another session asks what this one waits for. Raises OperationalError if the server answers nobody."""
        try:
            same = {"host": self.info.host, "port": str(self.info.port)}  # of several that the settings name
            with _Brief.connect(make_conninfo(self._other, **same)) as other:
                self.blocked_by = _blockers(other, self.info.backend_pid)
        except (pg.ConnectionTimeout, _Silent) as fault:
            if time.monotonic() - self._heard > HANGS_AFTER:
                self.close()
                raise psycopg.OperationalError(
                    f"the server has not answered for {HANGS_AFTER:g} seconds, nor does it answer a new session"
                ) from fault
        except psycopg.Error:
            self._heard = time.monotonic()  # a refusal is an answer
        else:
            self._heard = time.monotonic()


class _Silent(psycopg.OperationalError):
    """No answer in time."""


class _Brief(psycopg.Connection[Any]):
    """A session that waits no longer than a connection may take."""

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        return super().wait(looking(gen, WAIT, self._end), *args, **more)

    def _end(self) -> None:
        self.close()
        raise _Silent


def looking(gen: PQGen[T], every: float, look: Callable[[], None]) -> Generator[Any, Any, T]:
    """The driver's steps of a wait. `look`: called after so many seconds in which nothing came."""
    due = time.monotonic() + every
    try:
        step = next(gen)
        while True:
            ready = yield step
            if not ready and time.monotonic() > due:
                look()
                due = time.monotonic() + every
            step = gen.send(ready)
    except StopIteration as end:
        found: T = end.value
        return found


def _blockers(session: psycopg.Connection[Any], pid: int) -> str:
    """The sessions that hold what a session waits for. A state may be hidden from the login."""
    found = session.execute(
        "SELECT pid, usename, application_name, state, to_char(xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') "
        "FROM pg_stat_activity WHERE pid = ANY(pg_blocking_pids(%s)) ORDER BY pid",
        [pid],
    ).fetchall()
    return "; ".join(_named(*one) for one in found)


def _named(pid: int, user: str | None, application: str | None, state: str | None, since: str | None) -> str:
    facts = [user and f"login {user}", application, state, since and f"in a transaction since {since} UTC"]
    return f"process {pid} ({', '.join(filter(None, facts))})"
