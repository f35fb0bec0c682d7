"""A store of objects that speaks as much of S3 as a reader of a Delta log needs: a real server that counts requests.

It is a process of its own: where delta-rs waits for an answer, no thread of this process may go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Lock, Thread

BUCKET = "shelf"
TOGETHER = 4  # requests that wait for each other
PATIENCE = 5.0  # seconds for which they do so


@dataclass
class Counts:
    """got: names of the objects whose content was asked for; looked: of those that were asked for without it.

    connections: how many were opened. alone: whether a request that was to wait for others has waited in vain.
    """

    got: list[str] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    connections: int = 0
    alone: bool = False


@dataclass(frozen=True)
class Shelf:
    """env: what clients need in the environment."""

    env: dict[str, str]
    process: subprocess.Popen[str]

    def address(self, table: str) -> str:
        return f"s3://{BUCKET}/{table}"

    def counts(self) -> Counts:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return Counts(**json.loads(self.process.stdout.readline()))


@contextmanager
def shelf(root: Path, waits: tuple[str, ...] = ()) -> Iterator[Shelf]:
    """The folder `root` as a bucket, for as long as the context lasts. A request for the content of one of the objects
    `waits` is answered once TOGETHER of them are asked for at the same time."""
    command = [sys.executable, "-P", __file__, str(root), *waits]  # beside it is a module `types`
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        env = {
            "AWS_ENDPOINT_URL": process.stdout.readline().strip(),
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
        try:
            yield Shelf(env, process)
        finally:
            process.stdin.close()


def _serve(root: Path, waits: set[str]) -> None:
    """Serve until nobody writes to the standard input any more; print the counts for each line of it."""
    counts = Counts()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(root, waits, counts))
    server.daemon_threads, server.block_on_close = True, False  # clients keep their connections
    Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    for _ in sys.stdin:
        print(json.dumps(asdict(counts)), flush=True)


def _handler(root: Path, waits: set[str], counts: Counts) -> type[BaseHTTPRequestHandler]:
    together, lock = Barrier(TOGETHER), Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            with lock:
                counts.connections += 1

        def do_HEAD(self) -> None:
            counts.looked.append(Path(self.path).name)
            self._give()

        def do_GET(self) -> None:
            counts.got.append(Path(self.path).name)
            if Path(self.path).name in waits:
                try:
                    together.wait(PATIENCE)
                except BrokenBarrierError:
                    counts.alone = True
            self._give()

        def _give(self) -> None:
            file = root / self.path.removeprefix(f"/{BUCKET}/")
            if not file.is_file():
                return self._say(404, b"<Error><Code>NoSuchKey</Code></Error>", {})
            data, stamp = file.read_bytes(), formatdate(file.stat().st_mtime, usegmt=True)
            about = {"Last-Modified": stamp, "ETag": f'"{len(data)}"'}
            if self.headers["Range"] is None:
                return self._say(200, data, about)
            first, last = (int(end) for end in self.headers["Range"].removeprefix("bytes=").split("-"))
            if first >= len(data):
                return self._say(416, b"<Error><Code>InvalidRange</Code></Error>", {})
            part = data[first : last + 1]
            span = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
            return self._say(206, part, {**about, "Content-Range": span})

        def _say(self, status: int, data: bytes, about: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**about, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                _ = self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    return Handler


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), set(sys.argv[2:]))
