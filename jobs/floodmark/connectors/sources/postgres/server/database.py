"""Connects to a PostgreSQL server, and says in one line what is wrong with it. No JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.decoding.values import PRINTED
from floodmark.core.application.connections import Connection
from floodmark.errors import FloodmarkError, NotThereYet, Refused, RunFailed

if TYPE_CHECKING:
    import psycopg

_KNOWN = ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslpassword", "sslcrl", "channel_binding", "require_auth",
          "gssencmode", "krbsrvname", "target_session_attrs", "connect_timeout", "keepalives", "keepalives_idle",
          "keepalives_interval", "keepalives_count", "tcp_user_timeout", "dbname")  # fmt: skip
_OTHERS = (
    "application_name",
    "client_encoding",
    "options",
    "cursor",
    "schema",
    "iam",
    "aws_conn_id",
)  # of others
# No limit of the server's or the login's own ends a long copy, or an exported snapshot that waits for its readers.
_LIMITS = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0",
           "lock_timeout": "0", "transaction_timeout": "0"}  # fmt: skip
_SINCE = {"idle_session_timeout": 140_000, "transaction_timeout": 170_000}  # versions of the server
SETTINGS = {**PRINTED, **_LIMITS}


def settings_of(connection: Connection) -> dict[str, str]:
    """libpq's settings. Raises Refused for a connection without a host, or with settings that are not known here."""
    said = {key: str(value) for key, value in connection.extra.items() if key not in _OTHERS}
    unknown = sorted(set(said) - set(_KNOWN))
    about = f"connection {connection.name}"
    if unknown:
        raise Refused(f"{about}: expected the settings {', '.join(_KNOWN)}, found {', '.join(unknown)}")
    if not connection.host:
        raise Refused(f"{about}: expected a host, such as postgresql://LOGIN:PASSWORD@HOST:5432/DATABASE, found none")
    found = {
        "host": re.sub(r"[\[\]]", "", connection.host),  # libpq takes an IPv6 address without them
        "port": str(connection.port or 5432),
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema or said.pop("dbname", "") or connection.login,
        **said,
    }
    return {key: value for key, value in found.items() if value}


class Database:
    """A database of a server. `name`: of the connection."""

    def __init__(self, name: str, settings: Mapping[str, str]):
        self.name, self.settings = name, dict(settings)
        place = f"{settings['host']}:{settings['port']}"
        self.about = f"connection {name}: PostgreSQL at {place}"

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection for a short while. Errors within are ours, in one line."""
        with self.explained():
            connection = connect(self.settings)
            try:
                yield connection
            finally:
                connection.close()

    def replicating(self) -> psycopg.Connection[Any]:
        """A connection that takes replication commands, and is left open."""
        with self.explained():
            return connect(self.settings, replication="database")

    @contextmanager
    def explained(self) -> Iterator[None]:
        psycopg = _driver(self.about)
        try:
            yield
        except psycopg.Error as fault:
            raise problem(self.about, fault) from None


def _driver(about: str) -> Any:
    try:
        import psycopg
    except ImportError as fault:
        raise Refused(
            f"{about}: expected the package psycopg, found none: pip install 'FLOODMARK.whl[postgres]'"
        ) from fault
    return psycopg


def connect(settings: Mapping[str, str], **more: str) -> psycopg.Connection[Any]:
    """A connection whose sessions print values as `values` reads them. Raises psycopg's errors."""
    from floodmark.connectors.sources.postgres.server.waiting import Session

    connection = Session.opened(conninfo(settings, **more), conninfo(settings))
    set_up(connection, {**SETTINGS, "default_transaction_read_only": "off"})
    return connection


def conninfo(settings: Mapping[str, str], **more: str) -> str:
    from psycopg.conninfo import make_conninfo

    from floodmark.connectors.sources.postgres.server.waiting import WAIT

    return make_conninfo("", **{"connect_timeout": str(WAIT), **settings, "application_name": "floodmark", **more})


def set_up(connection: psycopg.Connection[Any], wanted: Mapping[str, str]) -> None:
    """Give the session those of the settings that its server knows."""
    known = _known_settings(connection.info.server_version, wanted)
    connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in known.items()).encode())


def _known_settings(version: int, wanted: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if version >= _SINCE.get(name, 0)}


# Of a server's answers (SQLSTATE), or of the text of a refused login, what to do.
_LOGIN = {
    "password authentication failed": "Check login and password of the connection",
    "no password supplied": "Give the connection a password",
    "does not exist": "Check login and database of the connection",
    "no pg_hba.conf entry": "The server's pg_hba.conf does not let this login in from here",
    "is not permitted to log in": "Give the login the right LOGIN",
    "server does not support SSL": "Set `sslmode` of the connection, or switch SSL on in the server",
    "certificate": "Check the certificates of the connection",
}
_STATES: dict[str, tuple[type[FloodmarkError], str]] = {
    "42501": (Refused, "Give the login the right, or name another one in the connection"),
    "42P01": (NotThereYet, "Create it, or correct its name"),
    "55006": (RunFailed, "Another session reads the slot; retry once it has ended"),
    "53400": (RunFailed, "Raise max_replication_slots of the server, or drop slots that nobody reads, then retry"),
    "53300": (RunFailed, "Raise max_connections or max_wal_senders of the server, then retry"),
    "55000": (Refused, "Check the server's settings"),
    "42704": (Refused, "Create it, or correct its name"),
}


def problem(about: str, fault: psycopg.Error) -> FloodmarkError:
    """Our error for one of the driver's; its message is the server's first line."""
    text = _line(str(fault))
    state = fault.sqlstate
    if state is None or state.startswith(("28", "3D")):
        refused = next((advice for sign, advice in _LOGIN.items() if sign in text), None)
        if refused:
            return Refused(f"{about} refuses: {text}. {refused}")
    if "wal_level" in text:
        return Refused(f"{about}: expected wal_level = logical, found another: {text}. Set it, and restart the server")
    if state in _STATES:
        kind, advice = _STATES[state]
        return kind(f"{about}: {text}. {advice}")
    if state is None or state.startswith(("08", "57", "53", "58", "40")):
        return RunFailed(f"{about} does not answer: {text}. Start it or correct the connection, then retry")
    return RunFailed(f"{about}: {text}; retry")


def _line(text: str) -> str:
    """What the server says, without the driver's words around it."""
    lines = [one.strip() for one in text.splitlines() if one.strip() and not one.startswith(("LINE", "CONTEXT", " "))]
    found = [one for one in lines if "FATAL" in one] or lines or [text]
    return re.sub(r"^.*?(?:FATAL|ERROR):\s+|^connection failed: (?:connection to server )?", "", found[0]).rstrip(".")
