"""The Compose file's services under a project name of their own: started, asked, killed and removed."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from support.cluster import free_ports
from support.engine import run

CHECKOUT = Path(__file__).parents[2]
SCHEDULER, API, DATABASE = "airflow-scheduler", "airflow-apiserver", "postgres"


def filled(path: Path, **others: str) -> dict[str, str]:
    """Write an .env with secrets, as docker/make_env.sh does, and with `others`. Returns its values."""
    text = (CHECKOUT / "docker" / ".env.example").read_text()
    values = {name: secrets.token_hex(24) for name in re.findall(r"^(\w+)=$", text, re.M)}
    values |= {"FERNET_KEY": urlsafe_b64encode(os.urandom(32)).decode(), **others}
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    path.chmod(0o600)
    return values


@dataclass
class Composed:
    """`place`: a folder for its settings; `files`: Compose files on top of docker-compose.yaml."""

    place: Path
    files: tuple[Path, ...] = ()
    name: str = field(default_factory=lambda: f"floodmark-{secrets.token_hex(4)}")
    values: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        (port,) = free_ports(1)
        small = {"PARALLELISM": "1", "SCHEDULER_MEMORY": "5g", "FLOODMARK_TAG": self.name, "AIRFLOW_PORT": str(port)}
        self.values = filled(self.place / "env", **small)

    @property
    def image(self) -> str:
        return f"floodmark-airflow:{self.name}"

    def compose(self, *words: str, check: bool = True) -> str:
        """Output of `docker compose`; settings of the user's shell do not reach it."""
        files = [word for file in (CHECKOUT / "docker-compose.yaml", *self.files) for word in ("--file", str(file))]
        env = {name: value for name, value in os.environ.items() if not name.startswith("COMPOSE_")}
        options = ["--env-file", str(self.place / "env"), "--project-name", self.name, *files]
        return run("docker", "compose", *options, *words, check=check, env=env).stdout

    def up(self, *options: str) -> None:
        self.compose(*options, "up", "--detach")

    def down(self, *options: str) -> None:
        self.compose("--profile", "*", "down", *options)

    def remove(self) -> None:
        """Everything that has its name: containers, volumes, networks, the image's tag."""
        self.down("--volumes")
        run("docker", "image", "rm", self.image, check=False)

    def containers(self, *options: str) -> list[dict[str, Any]]:
        """What the engine knows of each container, those that have ended included."""
        ids = run("docker", "ps", "--all", "--quiet", "--filter", f"label=com.docker.compose.project={self.name}")
        found: list[dict[str, Any]] = json.loads(run("docker", "inspect", *ids.stdout.split()).stdout)
        return found

    def container(self, service: str) -> dict[str, Any]:
        (one,) = (c for c in self.containers() if c["Config"]["Labels"]["com.docker.compose.service"] == service)
        return one

    def healthy(self) -> bool:
        """Whether each container with a health check is."""
        states = [one["State"] for one in self.containers()]
        return all(state["Health"]["Status"] == "healthy" for state in states if "Health" in state)

    def inside(self, service: str, *command: str, check: bool = True) -> str:
        """Output of a command in a service's container, whose files get the modes of the service's own."""
        return self.compose("exec", "--no-TTY", service, "docker/enter.sh", *command, check=check)

    def floodmark(self, *words: str) -> dict[str, Any]:
        """What a command of Floodmark says as JSON, whatever its exit code."""
        found: dict[str, Any] = json.loads(self.inside(API, "floodmark", *words, "--json", check=False))
        return found

    def exists(self, path: str) -> bool:
        return self.compose("exec", "--no-TTY", API, "ls", path, check=False).strip() == path

    def crash(self, service: str) -> None:
        """SIGKILL to the init of its container, by root. `docker kill` is a stop by hand: Docker restarts nothing."""
        os.kill(int(self.container(service)["State"]["Pid"]), signal.SIGKILL)

    def processes(self, service: str) -> dict[int, tuple[int, str]]:
        """By the host's process id: the user's number and the command."""
        found = run("docker", "top", self.container(service)["Id"], "-wweo", "pid,uid,args").stdout.splitlines()[1:]
        lines = (line.split(None, 2) for line in found)
        return {int(pid): (int(uid), words) for pid, uid, words in lines}

    def call(self, path: str, body: dict[str, str] | None = None, token: str = "") -> bytes:
        """What the API server answers. Raises HTTPError."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        address = f"http://127.0.0.1:{self.values['AIRFLOW_PORT']}{path}"
        request = Request(address, json.dumps(body).encode() if body else None, headers)
        with urlopen(request, timeout=30) as answer:  # noqa: S310
            return bytes(answer.read())

    def token(self, password: str | None = None) -> str:
        """Of the user admin, by the password of .env or another. Raises HTTPError."""
        login = {"username": "admin", "password": password or self.values["ADMIN_PASSWORD"]}
        return str(json.loads(self.call("/auth/token", login))["access_token"])

    def status(self, path: str, token: str = "") -> int:
        """The HTTP status of a GET."""
        try:
            self.call(path, token=token)
        except HTTPError as fault:
            return fault.code
        return 200
