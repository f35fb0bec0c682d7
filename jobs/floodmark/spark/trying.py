"""A Delta table written and read where a rule's would be: for `floodmark doctor --spark`."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.errors import RunFailed
from floodmark.ledger.tables import open_table
from floodmark.spark.session import root_session

if TYPE_CHECKING:
    import pandas as pd

ROWS, FILES = 1000, 4


def written_and_read(master: str, place: Path) -> str:
    """What was done, in words. Raises what Spark raises, and RunFailed where rows are missing."""
    session = root_session(master, [])
    try:
        rows = session.range(0, ROWS, 1, FILES).mapInPandas(_with_version, "id BIGINT, python STRING")
        rows.write.format("delta").save(str(place))
        read = session.read.format("delta").load(str(place))
        found, pythons = read.count(), sorted(row.python for row in read.select("python").distinct().collect())
        version = session.version
    finally:
        session.stop()
    if found != ROWS or open_table(str(place)) is None:
        raise RunFailed(f"expected {ROWS} rows at {place}, found {found}: do Spark's workers see the same folder?")
    return f"Spark {version} on {master}: {ROWS} rows written and read, Python {', '.join(pythons)} in its workers"


def _with_version(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(python=platform.python_version())
