"""A head as text, to be cached, so that a long ledger need not be read again."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

from pydantic import TypeAdapter

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import FORMAT, sha


def head_to_text(head: Head) -> str:
    """The text; `head_from_text` reads it."""
    text = _heads().dump_json(head).decode()
    return f"{sha(_SHAPE + text)}\n{text}"


def head_from_text(text: str) -> Head | None:
    """The head in text from `head_to_text`; None if the text was changed or written by another version."""
    checksum, _, body = text.partition("\n")
    return _heads().validate_json(body) if checksum == sha(_SHAPE + body) else None


@cache
def _heads() -> TypeAdapter[Head]:
    return TypeAdapter(Head)


_SHAPE = f"{FORMAT} {[one.name for one in fields(Head)]}"
