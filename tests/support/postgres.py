"""A PostgreSQL server as a process of this machine, from the system's packages."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from floodmark.proving.play.processes import kill_all, wait_until
from support.cluster import free_ports

PLACES = "/usr/lib/postgresql"
LIMIT = 60.0


def program(name: str) -> str:
    """The newest one there is. Raises FileNotFoundError that says what to install."""
    packaged = sorted(Path(PLACES).glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = shutil.which(name) or (str(packaged[-1]) if packaged else None)
    if found is None:
        raise FileNotFoundError(f"expected {name} on PATH or in {PLACES}: sudo apt-get install postgresql")
    return found


@contextmanager
def served(place: Path) -> Iterator[str]:
    """The URI of an empty database, for SQLAlchemy. Root gives way to the user postgres: the server refuses root."""
    user = "postgres" if os.geteuid() == 0 else None
    data, password, (port,) = place / "postgres", secrets.token_hex(16), free_ports(1)
    data.mkdir(mode=0o700)
    (place / "password").write_text(password)
    if user:
        shutil.chown(data, user)
    begin = [
        "--pgdata",
        str(data),
        "--username",
        "airflow",
        "--auth",
        "scram-sha-256",
        "--pwfile",
        str(place / "password"),
    ]
    subprocess.run([program("initdb"), *begin, "--no-sync"], check=True, capture_output=True, user=user)
    options = ["-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
    with (place / "postgres.log").open("ab") as log:
        server = subprocess.Popen(
            [program("postgres"), "-D", str(data), *options],
            stdout=log,
            stderr=subprocess.STDOUT,
            user=user,
            start_new_session=True,
        )
    try:
        ready = [program("pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
        up = wait_until(lambda: subprocess.run(ready, capture_output=True).returncode == 0, server, LIMIT)
        assert up, (place / "postgres.log").read_text()
        yield f"postgresql+psycopg2://airflow:{password}@127.0.0.1:{port}/postgres"
    finally:
        kill_all(server.pid)
        server.wait()
