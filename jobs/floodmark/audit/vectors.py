"""Deletion vectors as they lie in their files: each is its size, a bitmap of that many bytes, and the bitmap's CRC-32.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-file-storage-format
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from zlib import crc32

from pyarrow.fs import PyFileSystem

from floodmark.audit.facts import File, Vector
from floodmark.audit.reading import FRAME

WORD = FRAME // 2  # bytes, the highest first


def altered(store: PyFileSystem, files: Iterable[File]) -> Iterator[str]:
    """What is wrong with the vectors of these files, in words. Raises OSError where one cannot be read."""
    for file in files:
        if file.vector is not None and file.vector.file is not None and not _is_whole(store, file.vector):
            yield f"the deletion vector {file.vector.file} of {file.path} does not fit its checksum or its size"


def _is_whole(store: PyFileSystem, vector: Vector) -> bool:
    with store.open_input_file(vector.file) as file:
        file.seek(vector.end - vector.size - FRAME)
        size, bitmap, checksum = file.read(WORD), file.read(vector.size), file.read(WORD)
    return int.from_bytes(size, "big") == vector.size and int.from_bytes(checksum, "big") == crc32(bitmap)
