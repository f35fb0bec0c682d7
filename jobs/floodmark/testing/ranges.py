"""Reads ranges of a source of one's own as texts, one a row; also as a program, to read them in another process."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from typing import Any

from floodmark.connectors.sources.python.author import Author, made
from floodmark.core.application.connections import Connection
from floodmark.core.text.ddl import columns_of


@dataclass(frozen=True)
class SourceClass:
    """A class as a rule would name it: its module's text and file, its name, and what its constructor gets."""

    code: str
    file: str
    name: str
    schema: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    connection: Connection | None = None

    def author(self) -> Author:
        """A new object of it."""
        return made(self.name, self.code, self.file, self.name, self.settings, self.connection)

    def rows(self, author: Author, begin: Any, end: Any) -> list[str]:
        return [repr(row) for row in author.rows(columns_of(self.schema), begin, end).to_pylist()]


def request(of: SourceClass, ranges: Sequence[tuple[Any, Any]]) -> str:
    """What the program reads from its standard input."""
    return json.dumps({"of": asdict(of), "ranges": ranges})


def _answer(text: str) -> str:
    said = json.loads(text)
    connection = said["of"].pop("connection")
    of = SourceClass(**said["of"], connection=Connection(**connection) if connection else None)
    return json.dumps([of.rows(of.author(), begin, end) for begin, end in said["ranges"]])


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):  # what the class prints is no answer
        answer = _answer(sys.stdin.read())
    sys.stdout.write(answer)
