"""Deletion vectors, read as Delta's protocol says that they lie in their files."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from floodmark.audit.facts import File, Vector
from floodmark.audit.reading import store_of
from floodmark.audit.vectors import altered

BITMAP = b"marks of rows"
OTHER = b"\x00\x00\x00\x02xy"  # of a vector that lies before it, with a checksum that is none


def whole(place: Path) -> tuple[bytes, File]:
    """A file of vectors: its version, another one, and ours."""
    frame = len(BITMAP).to_bytes(4, "big") + BITMAP + zlib.crc32(BITMAP).to_bytes(4, "big")
    content = b"\x01" + OTHER + b"none" + frame
    place.mkdir(parents=True, exist_ok=True)
    (place / "vectors.bin").write_bytes(content)
    return content, File("1.parquet", 9, 3, Vector("u1", 1, "vectors.bin", len(content), len(BITMAP)))


def test_a_whole_one_is_no_fault(place: Path) -> None:
    _, file = whole(place)
    assert list(altered(store_of(str(place)), [file, File("2.parquet", 9, 3)])) == []


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_of_it_is_one(place: Path, bit: int) -> None:
    content, file = whole(place)
    for at in range(1 + len(OTHER) + 4, len(content)):
        flipped = bytes([content[at] ^ 1 << bit])
        (place / "vectors.bin").write_bytes(content[:at] + flipped + content[at + 1 :])
        (said,) = altered(store_of(str(place)), [file])
        assert said == "the deletion vector vectors.bin of 1.parquet does not fit its checksum or its size"
