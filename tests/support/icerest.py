"""A REST catalogue of Iceberg on this machine, before one in SQLite; it can lose the answer to a commit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from support.icehouse import Icehouse


class Rest(ThreadingHTTPServer):
    """`loses`: the next commit counts, and nobody is told. `left`: requests until it answers none; None: no end."""

    def __init__(self, house: Icehouse):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.house, self.loses = house, False
        self.left: int | None = None

    def answers(self) -> bool:
        """Whether the next request is answered."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0

    @property
    def connection(self) -> str:
        return json.dumps({"conn_type": "iceberg", "extra": {"type": "rest", "uri": self.uri}})

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Rest

    @property
    def _place(self) -> tuple[str, ...]:
        """Namespace and table that the path names."""
        parts = self.path.partition("/namespaces/")[2].split("/")
        return tuple(parts[::2])

    def _answer(self, code: int, body: Any = None) -> None:
        if not self.server.answers():
            self.close_connection = True
            return
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _fault(self, code: int, kind: str, said: str) -> None:
        self._answer(code, {"error": {"message": said, "type": kind, "code": code}})

    def _table(self, found: Table) -> None:
        metadata = json.loads(found.metadata.model_dump_json())
        self._answer(200, {"metadata-location": found.metadata_location, "metadata": metadata, "config": {}})

    def do_HEAD(self) -> None:
        there = self.server.house.catalog().namespace_exists(self._place[:1])
        self._answer(204 if there else 404)

    def do_GET(self) -> None:
        if "/config" in self.path:
            return self._answer(200, {"defaults": {}, "overrides": {}})
        if len(self._place) < 2:
            there = self.server.house.catalog().namespace_exists(self._place)
            return (
                self._answer(200, {"namespace": self._place}) if there else self._fault(404, "NoSuchNamespace", "none")
            )
        try:
            return self._table(self.server.house.catalog().load_table(self._place))
        except NoSuchTableError as fault:
            return self._fault(404, "NoSuchTableException", str(fault))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        catalog = self.server.house.catalog()
        if len(self._place) < 2 or self._place[-1] == "tables" or "name" in json.loads(body):
            said = json.loads(body)
            place = (*self._place[:1], said["name"])
            schema = Schema.model_validate(said["schema"])
            return self._table(catalog.create_table(place, schema, properties=said.get("properties") or {}))
        asked = CommitTableRequest.model_validate_json(body)
        try:
            found = catalog.commit_table(catalog.load_table(self._place), asked.requirements, asked.updates)
        except CommitFailedException as fault:
            return self._fault(409, "CommitFailedException", str(fault))
        if self.server.loses:
            self.server.loses = False
            return self.connection.close()
        metadata = json.loads(found.metadata.model_dump_json())
        return self._answer(200, {"metadata-location": found.metadata_location, "metadata": metadata})

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def serving(house: Icehouse) -> Iterator[Rest]:
    server = Rest(house)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
