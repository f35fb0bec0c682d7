"""The files below a folder that hold a value: in their bytes, or decoded, in a Parquet file's rows and statistics."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq


def found_in(place: Path, value: str) -> list[str]:
    """Their paths below the folder, sorted."""
    files = sorted(file for file in place.rglob("*") if file.is_file())
    return [str(file.relative_to(place)) for file in files if _holds(file, value)]


def _holds(file: Path, value: str) -> bool:
    if value.encode() in file.read_bytes():
        return True
    if not file.read_bytes().startswith(b"PAR1"):
        return False
    with pq.ParquetFile(file) as parquet:
        return value in str(parquet.read().to_pylist()) or value in str(parquet.metadata.to_dict())
