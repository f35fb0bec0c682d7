"""Whether quotes in a file of CSV may be open where a record ends, by a look at its bytes.

Spark's reader takes a value whose quote is never closed for a whole one. Where each line is a record, files with quotes
are parsed by line, and such a line is malformed. Where records may span lines, the value swallows the rest of the file.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from itertools import chain

from floodmark.connectors.sources.files.folder import Content

PART = 1 << 20  # bytes that are looked at together
_END = "the end"


def has_no_quotes(file: Content, quote: str) -> bool:
    """Whether a file surely has no quotes. Not of a file that is gone, which its reader names."""
    wanted = quote.encode()
    try:
        with file.open() as content:
            return not any(
                wanted in part for part in _overlapping(iter(lambda: content.read(PART), b""), len(wanted) - 1)
            )
    except FileNotFoundError:
        return False


def _overlapping(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Each part behind the last bytes of the one before it."""
    rest = b""
    for part in parts:
        yield rest + part
        rest = (rest + part)[-size:] if size else b""


def unclosed(texts: Iterable[str], delimiter: str, quote: str, escape: str, comment: str | None) -> int | None:
    """The number of the line in which a record starts that is not whole at the end of a text; None if all are whole.

    texts: its parts.
    """
    csv.field_size_limit(sys.maxsize)  # of this process; values have no limit in Spark
    within, at, start = False, 0, 0

    def lines() -> Iterator[str]:
        nonlocal within, at, start
        for at, line in enumerate(chain(_lines(texts), [_END]), 1):
            if not within:
                if comment and line.startswith(comment):
                    continue
                within, start = True, at
            yield line

    doubled = escape == quote
    reader = csv.reader(
        lines(), delimiter=delimiter, quotechar=quote, doublequote=doubled, escapechar=None if doubled else escape
    )
    last: list[str] = []
    for record in reader:
        last, within = record, False
    return None if last == [_END] else start


def _lines(texts: Iterable[str]) -> Iterator[str]:
    rest = ""
    for text in texts:
        *lines, rest = (rest + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest:
        yield rest
