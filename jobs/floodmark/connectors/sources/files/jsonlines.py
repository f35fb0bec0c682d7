"""Whether a file of JSON has one object on each line and nothing else, by a look at its bytes.

Spark's reader of such files takes half of the time that a parse of each line as a whole takes, but it reads no further
than a line's first object. A file for which nothing is sure, such as one with `}` in a text, is parsed by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from floodmark.connectors.sources.files.folder import Content

PART = 1 << 20  # bytes that are looked at together
_STRUCTURE = b"{}\"'\n"
_ELSE = bytes(set(range(256)) - set(_STRUCTURE))
_TEXTS = re.compile(rb"\"'*\"")


def has_lone_objects(file: Content) -> bool:
    """Whether each line is surely an object alone. Not of a file that is gone, which its reader names."""
    try:
        with file.open() as content:
            return all(map(_are_lone, _lines(content)))
    except FileNotFoundError:
        return False


def _lines(content: BinaryIO) -> Iterator[bytes]:
    """Whole lines, many together, each with its end."""
    rest = b""
    while part := content.read(PART):
        lines, end, rest = (rest + part).rpartition(b"\n")
        yield lines + end
    yield rest + b"\n" if rest else b""


def _are_lone(lines: bytes) -> bool:
    if b"\r" in lines:
        lines = lines.replace(b"\r\n", b"\n")
    ends = lines.count(b"\n")
    if not (lines.startswith(b"{") and lines.endswith(b"}\n") and lines.count(b"}\n{") == ends - 1):
        return not lines
    return lines.count(b"}") == ends or _are_nested(lines)


def _are_nested(lines: bytes) -> bool:
    """Whether the first brace of each line is closed by its last one, and surely none is within a text."""
    if b"\\" in lines:
        lines = lines.replace(b"\\\\", b"").replace(b'\\"', b"")
    braces = lines.translate(None, _ELSE).replace(b'""', b"")
    if b"'" in braces:  # an apostrophe, or what encloses a text, as Spark allows
        braces = _TEXTS.sub(b"", braces)
    within, before = braces[1:-2].replace(b"}\n{", b"\n"), b""
    while within != before:
        before, within = within, within.replace(b"{}", b"")
    return not within.strip(b"\n")
