"""An S3-compatible object store as a process of this machine, and the jars of Spark's client of it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from floodmark.proving.play.processes import started, wait_until
from support.cluster import BIN, free_ports

CHECKOUT = Path(__file__).parents[2]
SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
REGION = "us-east-1"
BUCKET = "lake"
LIMIT = 60.0


@dataclass(frozen=True)
class Store:
    """`env`: what both clients of it need in the environment; `conf`: what Spark's needs besides."""

    env: dict[str, str]
    conf: dict[str, str]
    lake: str = f"s3a://{BUCKET}"


def server() -> str:
    """The gateway of objects over a folder. Raises FileNotFoundError that says what to install."""
    found = shutil.which("versitygw") or shutil.which("versitygw", path=str(Path.home() / "go" / "bin"))
    if found is None:
        raise FileNotFoundError(f"expected versitygw on PATH or in ~/go/bin: go install {SERVER}")
    return found


def connector() -> str:
    """The class path of Spark's client; what Maven has of it is kept."""
    kept, path = CHECKOUT / ".cache" / "hadoop-aws", f"{BIN}{os.pathsep}{os.environ['PATH']}"
    fetched = [str(CHECKOUT / "scripts" / "hadoop_aws.sh"), str(kept)]
    subprocess.run(fetched, check=True, env={**os.environ, "PATH": path})
    return f"{kept}/*"


def _listens(port: int) -> bool:
    with socket.socket() as door:
        return door.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(place: Path) -> Iterator[Store]:
    """A store with one empty bucket."""
    (port,), key, secret = free_ports(1), secrets.token_hex(8), secrets.token_hex(16)
    address, objects, log = f"127.0.0.1:{port}", place / "objects", place / "store.log"
    (objects / BUCKET).mkdir(parents=True)
    keys = {"ROOT_ACCESS_KEY_ID": key, "ROOT_SECRET_ACCESS_KEY": secret}
    with started([server(), "--port", address, "--region", REGION, "posix", str(objects)], keys, log) as process:
        assert wait_until(lambda: _listens(port), process, LIMIT), log.read_text()
        yield Store(
            {
                "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": secret,
                "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": f"http://{address}",
                "AWS_ALLOW_HTTP": "true",
                "SPARK_DIST_CLASSPATH": connector(),
            },
            {
                "spark.hadoop.fs.s3a.endpoint": f"http://{address}",
                "spark.hadoop.fs.s3a.endpoint.region": REGION,
                "spark.hadoop.fs.s3a.path.style.access": "true",
            },
        )
