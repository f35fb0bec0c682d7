"""PostgreSQL as a target of the demo: a real server that is down for a while, and a relay that is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa

TABLE = "departure_delays"
TASK = f"relay.public.{TABLE}"
POINT = "relay.sent"  # all rows are sent, and the transaction is open


@dataclass(frozen=True)
class KilledRelay:
    """pid: of the killed process. statement: the last one of its open transaction, as PostgreSQL shows it.

    rows, epoch: of the table and its position, as others saw them at that moment.
    """

    pid: int
    statement: str
    rows: int
    epoch: int

    @property
    def had_sent_all(self) -> bool:
        """Whether only the commit was missing: a relay moves the position once its rows are sent."""
        return self.statement.startswith("UPDATE") and "floodmark_position" in self.statement


@dataclass
class Postgres:
    """The table in a server. A relay of epoch `last` waits once it has sent its rows, until it may go on."""

    server: Any
    marks: Path
    rule_name: str
    last: int

    @property
    def env(self) -> Mapping[str, str]:
        return {
            "FLOODMARK_CONN_DEMO_POSTGRES": self.server.uri,
            "FLOODMARK_CRASH_AT": f"{self.rule_name}:{POINT}@{self.last}",
            "FLOODMARK_CRASH_MARKS": str(self.marks),
        }

    def rule(self, text: dict[str, Any]) -> dict[str, Any]:
        sink = {"postgres": {"connection": "demo_postgres", "table": TABLE}}
        return {**text, "sinks": [*text["sinks"], sink]}

    # --- Being down, and up again

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()

    # --- The relay

    @property
    def _mark(self) -> Path:
        return self.marks / f"{self.rule_name}.{POINT}"

    def waits(self) -> bool:
        """Whether a relay waits between its rows and its commit."""
        return self._mark.exists()

    def go_on(self) -> None:
        self._mark.unlink(missing_ok=True)

    def kill_relay(self, processes: list[psutil.Process]) -> KilledRelay | None:
        """SIGKILL the process whose transaction is open in the server; None if there is no such process."""
        for port, statement in self._open_transactions():
            for process in processes:
                if port in _ports(process):
                    found = KilledRelay(process.pid, statement, *self._seen_by_others())
                    os.kill(process.pid, signal.SIGKILL)
                    self.go_on()
                    return found
        return None

    def _open_transactions(self) -> list[tuple[int, str]]:
        """Of each that has written and waits for its client: the client's port, and the last statement."""
        found: list[tuple[int, str]] = self.server.ask(
            "SELECT client_port, query FROM pg_stat_activity "
            "WHERE state = 'idle in transaction' AND backend_xid IS NOT NULL AND client_port > 0"
        )
        return found

    def _seen_by_others(self) -> tuple[int, int]:
        """Rows of the table, and the epoch of the position."""
        ((rows,),) = self.server.ask(f"SELECT count(*) FROM {TABLE}")  # noqa: S608 - our own name
        ((epoch,),) = self.server.ask("SELECT epoch FROM floodmark_position")
        return int(rows), int(epoch)

    def rows(self) -> pa.Table:
        with self.server.connect() as session:
            found = session.execute(f"SELECT hour, origin, flights, mean_delay FROM {TABLE}").fetchall()  # noqa: S608
        names = ("hour", "origin", "flights", "mean_delay")
        columns = zip(*found, strict=True) if found else ([] for _ in names)
        return pa.table(dict(zip(names, map(list, columns), strict=True)))


def _ports(process: psutil.Process) -> set[int]:
    """The local ports of its connections."""
    with contextlib.suppress(psutil.Error):
        return {one.laddr.port for one in process.net_connections("tcp") if one.laddr}
    return set()


@contextmanager
def target(kind: str, folder: Path, rule: str, last: int) -> Iterator[Postgres | None]:
    """The target of this kind, none for `none`; its server ends with the context."""
    if kind == "none":
        yield None
        return
    from support.postgres import started  # the server that the tests start

    marks = folder / "marks"
    marks.mkdir(parents=True)
    with started(folder / "postgres") as server:
        yield Postgres(server, marks, rule, last)
