"""Computes the checksums that Hadoop writes beside a local file, in `.NAME.crc`: one CRC32 for each piece of it."""

from __future__ import annotations

import struct
import zlib

MAGIC = b"crc\0"
PIECE = 512  # bytes: Hadoop's default


def sums_of(data: bytes, piece: int = PIECE) -> bytes:
    """The contents of the checksum file of `data`."""
    sums = (zlib.crc32(data[at : at + piece]) for at in range(0, len(data), piece))
    return MAGIC + struct.pack(">i", piece) + b"".join(struct.pack(">I", one) for one in sums)


def fits(data: bytes, sums: bytes) -> bool:
    """Whether `sums` is a checksum file, and that of `data`."""
    if len(sums) < len(MAGIC) + 4:
        return False
    (piece,) = struct.unpack_from(">i", sums, len(MAGIC))
    return piece > 0 and sums == sums_of(data, piece)
