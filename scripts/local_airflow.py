"""Start, watch and stop a real Airflow on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

import psutil  # type: ignore[import-untyped]
from airflow_env import BIN, Ports, environment, passwords_file

COMPONENTS = ("api-server", "scheduler", "dag-processor")  # no rule needs the triggerer
USER = "admin"
POLITE = 5.0  # seconds between SIGTERM and SIGKILL
HEALTHY_WITHIN = 180.0  # seconds; about 20 on two quiet cores


class Failed(Exception):
    """Airflow did not do what it should; the text says where to look."""


@dataclass
class LocalAirflow:
    """Airflow in a folder of its own, on free ports, each component in a session of its own.

    Use it as a context manager: at the end, it stops all of its processes and all that its tasks started.
    `more`: variables of its environment beside those that it needs.
    """

    folder: Path
    rules: Path
    home: Path
    lake: Path
    api_port: int | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    ports: Ports = field(init=False)
    password: str = field(init=False, default_factory=lambda: secrets.token_urlsafe(9))
    _processes: dict[str, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)
    _environment: dict[str, str] = field(init=False)
    _token: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        api, worker_logs, trigger_logs = free_ports(3)
        self.ports = Ports(self.api_port or api, worker_logs, trigger_logs)
        secret = secrets.token_urlsafe(48)
        found = environment(self.folder, self.rules, self.home, self.lake, self.ports, secret)
        self._environment = {**found, **self.more}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.ports.api}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self) -> None:
        """Create the folder, the login and the metadata database."""
        for folder in (self.folder, self.home, self.lake):
            folder.mkdir(parents=True, exist_ok=True)
        passwords = passwords_file(self.folder)
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({USER: self.password}))
        process = self._popen("migrate", "db", "migrate")
        if process.wait() != 0:
            raise Failed(f"airflow db migrate failed; see {self.log('migrate')}")

    def start(self) -> None:
        for component in COMPONENTS:
            self._popen(component, component)

    def wait_healthy(self) -> None:
        """Return once scheduler and DAG processor have reported to the API. Raises Failed."""
        deadline = time.monotonic() + HEALTHY_WITHIN
        while time.monotonic() < deadline:
            self.check_alive()
            if self._healthy():
                return
            time.sleep(0.5)
        raise Failed(f"Airflow was not healthy within {HEALTHY_WITHIN:.0f} s; see the logs in {self.folder}")

    def _healthy(self) -> bool:
        try:
            found = self._call("/api/v2/monitor/health", None)
        except (URLError, ConnectionError, TimeoutError):
            return False
        return all(found[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))

    def check_alive(self) -> None:
        for component, process in self._processes.items():
            if component in COMPONENTS and process.poll() is not None:
                code = process.returncode
                raise Failed(f"Airflow's {component} exited (exit code {code}); see {self.log(component)}")

    def log(self, component: str) -> Path:
        return self.folder / f"{component}.log"

    def get(self, *path: str) -> dict[str, Any]:
        """GET of a resource of Airflow's REST API; each part of the path is quoted."""
        if self._token is None:
            login = {"username": USER, "password": self.password}
            self._token = str(self._call("/auth/token", login)["access_token"])
        return self._call("/api/v2/" + "/".join(quote(part, safe="~") for part in path), None)

    def _call(self, path: str, body: dict[str, str] | None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        request = Request(self.address + path, data, headers)  # noqa: S310 - http to this machine
        with urlopen(request, timeout=10) as answer:  # noqa: S310
            found: dict[str, Any] = json.load(answer)
        return found

    def find(self, *path: str) -> dict[str, Any] | None:
        """As `get`, but None if the resource does not exist yet."""
        try:
            return self.get(*path)
        except HTTPError as fault:
            if fault.code == 404:
                return None
            raise

    def floodmark(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of Floodmark, with the environment of Airflow's tasks."""
        command = [str(BIN / "floodmark"), *words]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True)

    def processes(self) -> list[psutil.Process]:
        """Every live process of the sessions that were started: components, tasks, and what the tasks started."""
        leaders = {process.pid for process in self._processes.values()}
        return list(_of_sessions(leaders))

    def stop(self) -> None:
        """Stop everything: with SIGTERM first, for the database's sake, then with SIGKILL. Signals are ignored."""
        with _deaf():
            _signal_all(self.processes(), signal.SIGTERM)
            deadline = time.monotonic() + POLITE
            while self.processes() and time.monotonic() < deadline:
                self._reap()
                time.sleep(0.1)
            while left := self.processes():
                _signal_all(left, signal.SIGKILL)
                self._reap()
                time.sleep(0.05)
            self._reap()

    def _reap(self) -> None:
        for process in self._processes.values():
            process.poll()

    def _popen(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log(name).open("ab") as output:
            process = subprocess.Popen(
                [str(BIN / "python"), "-m", "airflow", *arguments],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes[name] = process
        return process


def _of_sessions(leaders: set[int]) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(process.pid) in leaders and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def free_ports(count: int) -> list[int]:
    """Ports that are free at the moment."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in found]


def is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP end the program through its `finally` blocks; SIGINT also in the background."""

    def interrupt(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
