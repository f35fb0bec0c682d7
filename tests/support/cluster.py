"""A Spark standalone cluster as processes of this machine, started from the package pyspark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from floodmark.proving.play.processes import kill_all, started, wait_until

BIN = Path(sys.executable).parent
DEPLOY = "org.apache.spark.deploy"
LIMIT = 120.0  # seconds for a JVM to come up on a busy machine


@dataclass(frozen=True)
class Cluster:
    """`url`: of the master; `workers`: each the leader of a session that holds its executors too."""

    url: str
    page: str
    workers: list[subprocess.Popen[bytes]]

    def kill_worker(self, number: int) -> int:
        """SIGKILL a worker with its executors and their Python workers; how many processes it was."""
        return kill_all(self.workers[number].pid)

    def alive(self) -> int:
        """Workers that the master counts."""
        return int(self.state()["aliveworkers"])

    def state(self) -> dict[str, Any]:
        try:
            with urlopen(f"{self.page}/json/", timeout=5) as answer:  # noqa: S310 - of this very machine
                found: dict[str, Any] = json.load(answer)
        except (URLError, ConnectionError, TimeoutError, ValueError):  # a page that is coming up answers in HTML
            return {"aliveworkers": 0, "activeapps": []}
        return found


@contextmanager
def standalone(place: Path, env: dict[str, str], workers: int = 2) -> Iterator[Cluster]:
    """A master and workers of one core each; logs and work folders in `place`."""
    port, page = free_ports(2)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, *words: str) -> subprocess.Popen[bytes]:
            command = [str(BIN / "spark-class"), *words]
            return stack.enter_context(started(command, env, place / f"{name}.log"))

        master = start(
            "master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)
        )
        found = Cluster(url, f"http://127.0.0.1:{page}", [])
        for number in range(workers):
            work = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--work-dir", str(place / f"work{number}"))
            found.workers.append(start(f"worker{number}", f"{DEPLOY}.worker.Worker", "--webui-port", "0", *work, url))
        assert wait_until(lambda: found.alive() == workers, master, LIMIT), (place / "master.log").read_text()
        yield found


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
