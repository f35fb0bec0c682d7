"""An HTTP API with pages of orders, which fails, delays and repeats: a real server on a free port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.flow import START
from support.snippets import CHECKOUT, of_page

# The class that the page shows.
CLASS = next(one.text for one in of_page(CHECKOUT / "docs/reference/own-source.md") if one.kind == "python")
COLUMNS = "id BIGINT, at TIMESTAMP, country STRING, amount DOUBLE"


@dataclass
class Shop:
    """`faults`: how many answers were failures, delays, repetitions and cut answers."""

    url: str = ""
    orders: list[dict[str, Any]] = field(default_factory=list)
    honest: bool = False
    faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("fails", "delays", "repeats", "cuts"), 0))
    random: Random = field(default_factory=lambda: Random(1))
    lock: Lock = field(default_factory=Lock)
    closing: Event = field(default_factory=Event)

    def answer(self, path: str) -> Any:
        asked = urlsplit(path)
        if asked.path == "/last":
            return {"id": self.orders[-1]["id"] if self.orders else 0}
        said = {name: int(values[0]) for name, values in parse_qs(asked.query).items()}
        found = [one for one in self.orders if one["id"] > said["after"]]
        return found[: said["limit"]]

    def fault(self) -> str:
        """What is wrong with the next answer; never with many in a row."""
        with self.lock:
            drawn = self.random.random()
            kinds = {"fails": 0.15, "delays": 0.03, "repeats": 0.3, "cuts": 0.1}
            for kind, share in kinds.items():
                if drawn < share and not self.honest:
                    self.faults[kind] += 1
                    return kind
                drawn -= share
        return ""


@contextmanager
def shop() -> Iterator[Shop]:
    """A server for as long as the context lasts."""
    found = Shop()
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


def _handler(shop: Shop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wrong = shop.fault()
            if wrong == "delays":
                _ = shop.closing.wait(1)  # longer than the client does
                return
            if wrong == "fails":
                self.send_error(503)
                return
            found = shop.answer(self.path)
            if wrong == "repeats" and isinstance(found, list):
                found = [*found[:3], *reversed(found)]
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if wrong == "cuts" else body)

        def log_message(self, format: str, *args: object) -> None:
            """No lines in the tests' output."""

    return Handler


def orders(low: int, high: int) -> list[dict[str, Any]]:
    """Each third id is one that no order has."""
    return [
        {"id": i, "at": (START + timedelta(seconds=i)).isoformat(), "country": "ab"[i % 2], "amount": i / 2}
        for i in range(low, high)
        if i % 3
    ]
