"""Sessions of a PostgreSQL server: by a connection's name, and what their faults mean."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import errors as pg

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.sources.postgres.server.database import SETTINGS, conninfo, set_up, settings_of
from floodmark.connectors.sources.postgres.server.waiting import Session
from floodmark.core.application.connections import Connection
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import FloodmarkError, Refused, RunFailed

LOCK_TIME = "2min"  # the longest wait for a lock that another session holds
SAYS = "floodmark relay "  # the name of a relay's session on the server, followed by the target
STOPPED_AFTER = 10.0  # seconds in which a relay that works sends something
_LOOK_EVERY = 0.5  # seconds
# A value that the type cannot hold, a constraint, two rows that are one key to the table, a row or key that is too
# large.
_OF_ROWS = (pg.DataError, pg.IntegrityError, pg.CardinalityViolation, pg.ProgramLimitExceeded)
# Classes of SQLSTATE that a retry cannot mend: a wrong password, database, schema, table, column or type, a missing
# right, something that the server does not do.
_WRONG = ("28", "3D", "3F", "42", "0A")


class Swallowed(psycopg.DataError):
    """The server has taken fewer rows than it got, without an error: a row that it refuses."""

    def __init__(self, sent: int, taken: int):
        super().__init__(f"a trigger or a rule of the table left out {sent - taken} of {sent} rows")


def is_of_rows(fault: psycopg.Error) -> bool:
    """Whether the server refuses a row. A trigger may raise a SQLSTATE of its own, of which the driver has no class."""
    state = fault.sqlstate or ""
    is_own = type(fault) is psycopg.DatabaseError and bool(state)
    return isinstance(fault, _OF_ROWS) or state.startswith("P0") or is_own


def connected(name: str, target: str) -> Session:
    """A session that commits only what is in a transaction."""
    return _session(name, application_name=f"{SAYS}{target}"[:63])


def _session(name: str, **more: str) -> Session:
    place = settings(connection(name))
    found = Session.opened(conninfo(place, **more), conninfo(place))
    set_up(found, {**SETTINGS, "lock_timeout": LOCK_TIME})
    return found


def settings(one: Connection) -> dict[str, str]:
    """libpq's settings. Raises Refused for a connection of another kind, and as `settings_of`."""
    if one.kind not in ("postgres", "postgresql"):
        raise Refused(
            f"connection {one.name}: expected postgres://LOGIN:PASSWORD@HOST:PORT/DATABASE, found the kind {one.kind}"
        )
    return {"keepalives_idle": "30", **settings_of(one)}


def refused_or_failed(address: str, fault: psycopg.Error, blocked_by: str = "") -> FloodmarkError:
    """The error for people: Refused if no retry can help. `blocked_by`: the sessions that hold a lock, if known."""
    if isinstance(fault, pg.LockNotAvailable):
        return _locked(address, blocked_by)
    said = " ".join(str(fault).split()).rstrip(".?")
    wrong = (
        (fault.sqlstate or "").startswith(_WRONG)
        or "password authentication failed" in said
        or "no password supplied" in said
    )
    wrong = wrong or ("database" in said and "does not exist" in said) or ("role" in said and "does not exist" in said)
    if wrong:
        return Refused(about_sink(address, f"the server refuses: {said}. Mend the connection, the right or the table"))
    return RunFailed(
        about_sink(
            address,
            f"it cannot be reached, or its transaction failed: {said}. What is committed stays in the "
            "outbox; a retry ships it",
        )
    )


def _locked(address: str, by: str) -> RunFailed:
    problem = f"it waited {LOCK_TIME} for a lock that another session holds{by and ': '}{by}. End its transaction, "
    problem += "such as by pg_terminate_backend(PROCESS), or wait for its end; what is committed stays in the outbox, "
    return RunFailed(about_sink(address, f"{problem}and a retry ships it"))


def of_row(fault: psycopg.Error) -> str:
    """What the server says of a row, or of a part of a statement."""
    diag = fault.diag
    said = ", ".join(filter(None, (diag.message_primary, diag.message_detail, diag.context))).replace(".,", ",")
    return said.rstrip(".") or str(fault)


def process_of(session: psycopg.Connection[Any]) -> int:
    """The process of the session on the server. Behind a pooler, such as pgbouncer, the driver knows another number."""
    found = session.execute("SELECT pg_backend_pid()").fetchone()
    assert found is not None
    return int(found[0])


def end_stopped(name: str, target: str, mine: int) -> bool:
    """End the session of another relay of this target that has sent nothing for a while; whether one was ended.

    `mine`: the process, on the server, of this relay's own session.
    """
    with _session(name) as session:
        begun, seen = time.monotonic(), None
        while time.monotonic() - begun < STOPPED_AFTER:
            now = _waiting(session, target, mine)
            seen = now if seen is None else {key: one for key, one in seen.items() if now.get(key) == one}
            if not seen:
                return False
            time.sleep(_LOOK_EVERY)
        found = [session.execute("SELECT pg_terminate_backend(%s)", [pid]).fetchone() for pid in seen or {}]
        return any(one and one[0] for one in found)


def _waiting(session: psycopg.Connection[Any], target: str, mine: int) -> dict[int, tuple[Any, ...]]:
    """The sessions of relays of the target, in a transaction, for whose next message the server waits."""
    found = session.execute(
        "SELECT pid, backend_start, xact_start, state_change FROM pg_stat_activity WHERE application_name = %s AND "
        "xact_start IS NOT NULL AND wait_event = 'ClientRead' AND pid <> %s",
        [f"{SAYS}{target}"[:63], mine],
    )
    return {pid: (*when,) for pid, *when in found}
