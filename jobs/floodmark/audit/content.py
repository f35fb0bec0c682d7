"""The rows themselves: digests recomputed from the files that each commit added, and compared with the ledger's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import PyFileSystem

from floodmark.audit.effects import Effects, Named
from floodmark.audit.facts import Finding, LogEntry, TableLog
from floodmark.audit.reading import store_of
from floodmark.audit.rowhash import RowDigest, Sums, digest

CLOSE = 1e-9
FEED = ("_change_type", "__is_cdc")  # what Delta adds to the files of a table with a change feed


def recompute(effects: Effects, named: list[Named]) -> Iterator[Finding]:
    """What the files hold, against what the ledger says, for every commit that has a digest and its files.

    State is rewritten as it ages, so files of it that are gone are no finding; the tally says how many were there.
    """
    stores: dict[str, PyFileSystem] = {}
    for one in named:
        log = effects.log(one.table, one.generation)
        entry = log.at(one.commit)
        if entry is None or not entry.added:
            continue
        gone = [file.path for file in entry.added if file.path not in log.there]
        if gone and (one.table.startswith("state/") or any(path in log.live for path in gone)):
            continue  # what is gone of the newest version has been told of
        store = stores.setdefault(log.address, store_of(log.address))
        found = list(_commit(one, log, entry, gone, store))
        effects.tally(one.table).recomputed += not any(finding.verdict == "unknown" for finding in found)
        yield from found


def _commit(named: Named, log: TableLog, entry: LogEntry, gone: list[str], store: PyFileSystem) -> Iterator[Finding]:
    known = named.written.get("digest")
    why = _why_not(known, gone, log, entry)
    if why is not None:
        yield _unknown(named, why)
        return
    try:
        rows = pa.concat_tables([rows_of(store, file.path) for file in entry.added], promote_options="default")
        found = digest(rows, computed=bool(known and known["floats"]))
    except (OSError, pa.ArrowInvalid) as fault:
        yield named.finding(f"a file cannot be read: {fault}")
    except NotImplementedError as fault:
        yield _unknown(named, str(fault))
    else:
        assert known is not None
        differing = "; ".join(differences(known, found))
        if differing:
            yield named.finding(f"its files hold other rows than the ledger says ({differing})")


def rows_of(store: PyFileSystem, path: str) -> pa.Table:
    """Not by pyarrow's data sets: those leave threads behind that at times abort the process as it ends."""
    with store.open_input_file(path) as file:
        rows = pq.ParquetFile(file).read()
    return rows.drop_columns([name for name in FEED if name in rows.column_names])


def _why_not(known: Mapping[str, Any] | None, gone: list[str], log: TableLog, entry: LogEntry) -> str | None:
    """Why the rows cannot be recomputed; None where they can."""
    if known is None:
        return "the ledger has no digest of its rows: it was written before there were any"
    if gone:
        return f"its rows cannot be recomputed: {gone[0]} was replaced by a later commit, and removed"
    if not log.plain or not all(file.plain for file in entry.added):
        return "its rows cannot be recomputed: the table has partitions, renamed columns or deletion vectors"
    return None


def _unknown(named: Named, what: str) -> Finding:
    return Finding("unknown", what, named.generation, named.epoch, named.table, named.commit)


def differences(known: Mapping[str, Any], found: RowDigest) -> Iterator[str]:
    """What tells the ledger's digest from the recomputed one, in words."""
    if known["rows"] != found.rows:
        yield f"{known['rows']} rows, found {found.rows}"
    elif (int(known["high"]), int(known["low"])) != (found.high, found.low):
        yield "another hash"
    for path in sorted({*known["floats"], *found.floats}):
        if not _agrees(known["floats"].get(path), found.floats.get(path)):
            yield f"column {path}"


def _agrees(known: Mapping[str, Any] | None, found: Sums | None) -> bool:
    if known is None or found is None:
        return False
    size = float(known["size"])
    within = CLOSE * max(size, found.size)
    sums = ((float(known["sum"]), found.sum), (size, found.size))
    return (known["nulls"], known["nans"]) == (found.nulls, found.nans) and all(_near(*pair, within) for pair in sums)


def _near(one: float, other: float, within: float) -> bool:
    if not (math.isfinite(one) and math.isfinite(other)):
        return one == other or (math.isnan(one) and math.isnan(other))
    return abs(one - other) <= within
