"""What the auditor sees in the files of a backfill: its results in the interval, and what stood around it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from floodmark.audit.content.recomputing import recompute
from floodmark.audit.content.rowhash import digest
from floodmark.audit.effects.effects import Effects
from floodmark.audit.evidence import File, LogEntry, TableLog, Vector
from floodmark.audit.ledger.generations import Backfill
from floodmark.audit.ledger.named import Named
from floodmark.audit.ledger.story import Story

SCHEMA = pa.schema([("stop", pa.timestamp("us", tz="UTC")), ("c", pa.int64()), ("v", pa.float64())])
WENT = [(60, 1, 0.5), (120, 5, 0.1), (None, 6, None)]
RESULTS = [(60, 2, 1.5), (119, 3, 2.5)]
STAYED = [(120, 5, 0.1), (None, 6, None)]


def rows(found: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in found], schema=SCHEMA)


def said(found: list[tuple[Any, ...]]) -> dict[str, Any]:
    return of_table(rows(found))


def of_table(found: pa.Table) -> dict[str, Any]:
    """The digest of its rows, as the ledger has it."""
    one = digest(found, computed=True)
    floats = {path: {**vars(sums), "sum": str(sums.sum), "size": str(sums.size)} for path, sums in one.floats.items()}
    return {"rows": one.rows, "high": str(one.high), "low": str(one.low), "floats": floats}


def findings(
    place: Path,
    added: list[tuple[Any, ...]],
    results: list[tuple[Any, ...]],
    gone: bool = False,
    whole: bool = False,
    vector: Vector | None = None,
) -> list[str]:
    """Of a backfill of [0, 60) by a column that is 60 ahead, which replaced the file with WENT."""
    for name, content in {"went": WENT, "added": added}.items():
        pq.write_table(rows(content), place / f"{name}.parquet")
    if gone:
        (place / "went.parquet").unlink()
    there = {file.name: file.stat().st_size for file in place.iterdir()}
    file = File("added.parquet", there["added.parquet"], len(added))
    log = TableLog(
        str(place), "id", (LogEntry(1, added=(file,), removed=(File("went.parquet", 1, None, vector),)),), {}, there
    )
    intent = {"column": "stop", "begin": 0, "end": 60, "shift": 60, "whole": whole}
    written = {"version": 1, "commit": 1, "rows": len(results), "digest": said(added), "results": said(results)}
    table = f"sink/{place}"
    named = Named(table, 1, 3, "app", "hash", written, Backfill(1, 1, intent, "hash", 1, {}, epoch=3))
    effects = Effects(Story([]), "ledger", "/home/r", {str(place): log})
    return [one.what for one in recompute(effects, [named])]


def test_the_results_and_what_stood_around_them_are_proven(tmp_path: Path) -> None:
    assert findings(tmp_path, STAYED + RESULTS, RESULTS) == []


@pytest.mark.parametrize(
    ("added", "what"),
    [
        ([(120, 5, 0.1 + 1e-15), (None, 6, None), *RESULTS], "outside of the interval, the removed files held 2 rows"),
        ([(120, 5, 0.1), *RESULTS], "outside of the interval, the removed files held 2 rows, now there are 1"),
        ([*STAYED, RESULTS[0]], "other rows of the interval than its results (2 rows, found 1"),
        ([*STAYED, RESULTS[0], (119, 4, 2.5)], "other rows of the interval than its results (another hash)"),
        ([*STAYED, *RESULTS, WENT[0]], "other rows of the interval than its results (2 rows, found 3"),
    ],
)
def test_a_row_that_was_changed_lost_or_left_is_found_though_the_digest_of_the_files_fits(
    tmp_path: Path, added: list[tuple[Any, ...]], what: str
) -> None:
    found = findings(tmp_path, added, RESULTS)
    assert found
    assert what in found[0]


def test_without_the_files_that_went_the_results_alone_are_compared(tmp_path: Path) -> None:
    assert findings(tmp_path, RESULTS, RESULTS, gone=True) == []
    assert findings(tmp_path, RESULTS[:1], RESULTS, gone=True) != []


def test_rows_that_a_vector_of_the_removed_files_marked_had_gone_before(tmp_path: Path) -> None:
    one = struct.pack("<IQI", 1681511377, 1, 0) + struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, 1)  # its second row
    framed = struct.pack(">I", len(one)) + one + struct.pack(">I", zlib.crc32(one))
    (tmp_path / "vectors.bin").write_bytes(framed)
    second = Vector("i", 1, "vectors.bin", len(framed), len(one))
    assert findings(tmp_path, [STAYED[1], *RESULTS], RESULTS, vector=second) == []
    [found] = findings(tmp_path, STAYED + RESULTS, RESULTS, vector=second)
    assert "outside of the interval, the removed files held 1 rows, now there are 2" in found
    (tmp_path / "vectors.bin").unlink()
    assert findings(tmp_path, STAYED + RESULTS, RESULTS, vector=second) == [], "it is not known any more"


def test_of_a_backfill_of_everything_no_other_row_is_in_its_files(tmp_path: Path) -> None:
    assert findings(tmp_path, RESULTS, RESULTS, whole=True) == []
    [found] = findings(tmp_path, [*RESULTS, STAYED[0]], RESULTS, whole=True)
    assert "its files hold other rows than its results (2 rows, found 3" in found
