"""An HTTP API that takes rows under an idempotency key, fails, delays and loses answers: a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

from support.snippets import CHECKOUT, of_page

# The classes that the page shows: one that posts rows to this server, and one that stores them with the position.
CLASSES = [one.text for one in of_page(CHECKOUT / "docs/reference/own-target.md") if one.kind == "python"][:2]

BROKEN = {
    "cuts the status": b"HTTP/1.1 20",
    "cuts the headers": b"HTTP/1.1 200 OK\r\nContent-Le",
    "cuts after a header": b"HTTP/1.1 200 OK\r\nServer: inbox\r\n",
    "cuts the answer": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    "cuts a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{}",
    "is no HTTP": b"\xff\xfe\r\n",
}  # what it sends before it closes the connection; it has not taken the rows


@dataclass
class Inbox:
    """`faults`: what goes wrong with the next requests, one each; a number is the status of a redirect. received: rows
    of all requests whose work was done, also of repeated ones; rows: without these."""

    url: str = ""
    faults: list[str] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    received: list[dict[str, Any]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    closing: Event = field(default_factory=Event)

    def take(self, path: str, key: str, rows: list[dict[str, Any]]) -> None:
        with self.lock:
            self.received += rows
            first = key not in self.keys
            self.keys[key] = self.keys.get(key, 0) + 1
            if first and path == "/empty":
                self.rows.clear()
            elif first:
                self.rows += rows

    def next_fault(self) -> str:
        with self.lock:
            return self.faults.pop(0) if self.faults else ""

    def typed(self) -> list[dict[str, Any]]:
        """The rows, with times as such."""
        return [{**row, "at": datetime.fromisoformat(row["at"])} for row in self.rows]


@contextmanager
def inbox() -> Iterator[Inbox]:
    """A server for as long as the context lasts."""
    found = Inbox()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(found))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        found.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(inbox: Inbox) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wrong = inbox.next_fault()
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if wrong == "refuses":
                return self.send_error(422, "a row is not as it should be")
            if wrong == "fails":
                return self.send_error(503)
            if wrong in BROKEN:
                _ = self.wfile.write(BROKEN[wrong])
                return None
            if wrong == "is busy":
                return self._answer(429, "Retry-After", "1")
            if wrong.isdecimal():
                return self._answer(int(wrong), "Location", f"{inbox.url}/elsewhere")
            inbox.take(self.path, self.headers["Idempotency-Key"], json.loads(body))
            if wrong == "delays":
                _ = inbox.closing.wait(1)  # longer than the client does
            if wrong not in ("delays", "cuts"):
                self.send_response(204)
                self.end_headers()
            return None

        def do_GET(self) -> None:
            """A page for people, such as that for a login."""
            self._answer(200, "Content-Length", "0")

        def _answer(self, status: int, header: str, value: str) -> None:
            self.send_response(status)
            self.send_header(header, value)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """No lines in the tests' output."""

    return Handler
