"""Deletion vectors, read as Delta's protocol says that they lie in their files."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from floodmark.audit.content.vectors import altered, marks, unmarked
from floodmark.audit.evidence import File, Vector
from floodmark.audit.logreader import Z85, store_of


def bitmap(*rows: int) -> bytes:
    """That marks these rows, all below 65536."""
    one = struct.pack("<IIHHI", 12346, 1, 0, len(rows) - 1, 16) + struct.pack(f"<{len(rows)}H", *rows)
    return struct.pack("<IQI", 1681511377, 1, 0) + one


BITMAP = bitmap(2)
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
        assert said == "the deletion vector vectors.bin of 1.parquet does not match its checksum or its size"


def inline(rows: int, *marked: int) -> File:
    """A file whose vector stands in the log, which says that it leaves out so many rows."""
    data = bitmap(*marked)
    return File("1.parquet", 9, 3, Vector("i", rows, size=len(data), text=z85(data)))


def z85(data: bytes) -> str:
    words = struct.unpack(f">{-(-len(data) // 4)}I", data + bytes(-len(data) % 4))
    return "".join(Z85[word // 85**place % 85] for word in words for place in range(4, -1, -1))


def test_a_vector_that_leaves_out_another_number_of_rows_than_the_log_says_is_a_fault(place: Path) -> None:
    _, file = whole(place)
    store = store_of(str(place))
    lying = replace(file, vector=replace(file.vector, rows=0))
    assert list(altered(store, [lying])) == [
        "the deletion vector vectors.bin of 1.parquet leaves out 1 rows, the log says 0"
    ]
    assert list(altered(store, [inline(2, 0, 2)])) == []
    assert list(altered(store, [inline(0, 0, 2)])) == [
        "the deletion vector of 1.parquet leaves out 2 rows, the log says 0"
    ]


def test_rows_that_a_vector_leaves_out_are_left_out(place: Path) -> None:
    _, file = whole(place)
    rows = pa.table({"a": [1, 2, 3]})
    assert unmarked(store_of(str(place)), file, rows)["a"].to_pylist() == [1, 2]
    assert unmarked(store_of(str(place)), inline(2, 0, 2), rows)["a"].to_pylist() == [2]


def test_of_a_file_whose_vector_is_not_whole_nothing_is_known(place: Path) -> None:
    content, file = whole(place)
    (place / "vectors.bin").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert unmarked(store_of(str(place)), file, pa.table({"a": [1, 2, 3]})).num_rows == 0


def test_each_kind_of_container_is_read() -> None:
    """As the format has them: an array, a bitmap of its own, runs; each by itself, for more than 65536 rows and beyond
    32 bits."""
    many = np.arange(0, 65536, 2)
    bits = np.zeros(65536, np.uint8)
    bits[many] = 1
    plain = struct.pack("<IIHHHHII", 12346, 2, 0, 1, 3, len(many) - 1, 0, 0) + struct.pack("<HH", 4, 9)
    plain += np.packbits(bits, bitorder="little").tobytes()
    runs = struct.pack("<IBHHH", 12347, 1, 1, 6, 2) + struct.pack("<HHHH", 5, 2, 100, 3)
    found = marks(struct.pack("<IQI", 1681511377, 2, 0) + plain + struct.pack("<I", 1) + runs)
    beyond = (1 << 32) + 65536
    expected = [4, 9, *(3 * 65536 + many).tolist(), *(beyond + at for at in (5, 6, 7, 100, 101, 102, 103))]
    assert found.tolist() == expected


def test_a_damaged_bitmap_and_one_of_another_kind_are_told() -> None:
    for length in range(8, len(BITMAP)):
        with pytest.raises(ValueError, match="a deletion vector is corrupt"):
            marks(BITMAP[:length])
    with pytest.raises(NotImplementedError, match="of kind 0 cannot be read"):
        marks(bytes(20))
