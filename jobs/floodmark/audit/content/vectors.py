"""Read deletion vectors in files: each is its size, a bitmap of that many bytes, and the bitmap's CRC-32.
The log itself holds small ones, as text.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-file-storage-format
https://github.com/RoaringBitmap/RoaringFormatSpec
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.fs import PyFileSystem

from floodmark.audit.evidence import File, Vector
from floodmark.audit.logreader import FRAME, Z85

WORD = FRAME // 2  # bytes, the highest first
MAGIC = 1681511377  # of a 64-bit bitmap; then of the 32-bit bitmaps that it consists of: without and with runs
PLAIN, RUNS = 12346, 12347
FEW = 4096  # a container of more values is a bitmap
OFFSETS_FROM = 4  # containers; with runs and fewer of them, their offsets are omitted

Marks = npt.NDArray[np.int64]


def altered(store: PyFileSystem, files: Iterable[File]) -> Iterator[str]:
    """Faults of these files' vectors, as messages. Raises OSError if one cannot be read."""
    for file in files:
        if file.vector is not None and (file.vector.file is not None or file.vector.text is not None):
            yield from _altered(store, file.path, file.vector)


def _altered(store: PyFileSystem, path: str, vector: Vector) -> Iterator[str]:
    whose = f"the deletion vector {vector.file} of {path}" if vector.file else f"the deletion vector of {path}"
    bitmap = _bitmap(store, vector)
    if bitmap is None:
        yield f"{whose} does not match its checksum or its size"
        return
    marked = len(marks(bitmap))
    if marked != vector.rows:
        yield f"{whose} leaves out {marked} rows, the log says {vector.rows}"


def unmarked(store: PyFileSystem, file: File, rows: pa.Table) -> pa.Table:
    """The rows that the file's vector does not mark; none if the vector is damaged, for then they are unknown.

    Raises NotImplementedError or ValueError for one that is not understood.
    """
    if file.vector is None:
        return rows
    bitmap = _bitmap(store, file.vector)
    if bitmap is None:
        return rows.slice(0, 0)
    stays = np.ones(rows.num_rows, bool)
    stays[marks(bitmap)] = False
    return rows.filter(pa.array(stays))


def _bitmap(store: PyFileSystem, vector: Vector) -> bytes | None:
    """A vector's bitmap; None if it is damaged."""
    if vector.text is not None:
        return _decoded(vector.text)[: vector.size]
    if vector.file is None:
        raise NotImplementedError("a deletion vector is outside of the table's folder")
    with store.open_input_file(vector.file) as file:
        file.seek(vector.end - vector.size - FRAME)
        size, bitmap, checksum = file.read(WORD), bytes(file.read(vector.size)), file.read(WORD)
    whole = int.from_bytes(size, "big") == vector.size and int.from_bytes(checksum, "big") == crc32(bitmap)
    return bitmap if whole else None


def _decoded(text: str) -> bytes:
    """Decode Z85: five characters for every four bytes."""
    found = bytearray()
    for at in range(0, len(text), 5):
        number = 0
        for character in text[at : at + 5]:
            number = number * 85 + Z85.index(character)
        found += number.to_bytes(4, "big")
    return bytes(found)


def marks(bitmap: bytes) -> Marks:
    """The rows that a bitmap marks, counted from 0. Raises ValueError if it is damaged, NotImplementedError for an
    unknown kind of bitmap."""
    try:
        magic, count = struct.unpack_from("<IQ", bitmap)
        if magic != MAGIC:
            raise NotImplementedError(f"a deletion vector of kind {magic} cannot be read here")
        found, at = [np.empty(0, np.int64)], 12
        for _ in range(count):
            (high,) = struct.unpack_from("<I", bitmap, at)
            low, at = _containers(bitmap, at + 4)
            found.append(low + (high << 32))
    except (struct.error, ValueError) as fault:
        raise ValueError(f"a deletion vector is corrupt: {fault}") from None
    return np.concatenate(found)


def _containers(data: bytes, at: int) -> tuple[Marks, int]:
    """The values of a 32-bit bitmap, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    if cookie & 0xFFFF == RUNS:
        count = (cookie >> 16) + 1
        runs = np.unpackbits(np.frombuffer(data, np.uint8, (count + 7) // 8, at + 4), bitorder="little")
        at, offsets = at + 4 + (count + 7) // 8, count >= OFFSETS_FROM
    elif cookie == PLAIN:
        (count,) = struct.unpack_from("<I", data, at + 4)
        runs, at, offsets = np.zeros(count, np.uint8), at + 8, True
    else:
        raise ValueError("no bitmap where one should be")
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(count, 2).tolist()
    at += (8 if offsets else 4) * count
    found = [np.empty(0, np.int64)]
    for (key, size), run in zip(heads, runs, strict=False):
        values, at = _container(data, at, size + 1, bool(run))
        found.append(values + (key << 16))
    return np.concatenate(found), at


def _container(data: bytes, at: int, size: int, run: bool) -> tuple[Marks, int]:
    """`size`: number of values; runs have a count of their own."""
    if run:
        (count,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(count, 2).tolist()
        found = [np.arange(start, start + more + 1, dtype=np.int64) for start, more in pairs]
        return np.concatenate([np.empty(0, np.int64), *found]), at + 2 + 4 * count
    if size <= FEW:
        return np.frombuffer(data, "<u2", size, at).astype(np.int64), at + 2 * size
    bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
    return np.flatnonzero(bits).astype(np.int64), at + 8192
