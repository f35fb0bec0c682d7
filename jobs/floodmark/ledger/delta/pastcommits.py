"""Rewrites the log of a table whose commits are read one by one: a landing, or an outbox.

By Delta's protocol a log entry never changes. But only the rule's own code reads these tables, each commit by itself,
so forgotten rows can leave them in no other way. Afterwards the log looks as if they had never been written: each
commit keeps its number, its metadata and its other rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from floodmark.core.text.tablenames import about_table
from floodmark.errors import Refused
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.damage import HINT, listed
from floodmark.ledger.delta.syncing import sync_files, sync_log

_LOG = "_delta_log"
_ENTRY = re.compile(r"\d{20}\.json")
Added = Mapping[str, Any]  # what a log entry says of a file that it adds


def live_files(address: str) -> dict[str, Added]:
    """The files of the newest version, by their path as the log spells it.

    Raises Refused if the log no longer has the entry that added one: it cannot be rewritten then.
    """
    live = datafiles.values_of(DeltaTable(address).get_add_actions()["path"])
    added = {one["path"]: one for entry in _entries(address) for one in _added(entry)}
    lost = next((path for path in live if path not in added), None)
    if lost is not None:
        raise Refused(
            about_table(
                address,
                f"expected the log entry that added {lost}, found none: another program removed it. Restore it, or "
                "remove the folder with all its rows",
            )
        )
    return {path: added[path] for path in live}


def rewrite(address: str, replaced: Mapping[str, Sequence[Added]]) -> None:
    """Let each commit that added one of these files have added others. replaced: by path.

    The smallest and largest values of files that are gone leave the log, too. Checkpoints go first, so that after a
    kill at any step the entries alone say what the table holds.
    """
    live = {*live_files(address)} - {*replaced}
    sync_files(address, [new["path"] for files in replaced.values() for new in files])
    _strip_checkpoints(address, live)
    for entry in _entries(address):
        actions = _actions(entry)
        now = [one for action in actions for one in _instead(action, live, replaced)]
        if now != actions:
            lines = (json.dumps(one, separators=(",", ":")) for one in now)
            _put(address, entry, "".join(f"{line}\n" for line in lines).encode())


def _entries(address: str) -> list[Path]:
    return sorted(file for file in (Path(address) / _LOG).iterdir() if _ENTRY.fullmatch(file.name))


def _actions(entry: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in entry.read_bytes().splitlines()]


def _added(entry: Path) -> Iterator[Added]:
    return (action["add"] for action in _actions(entry) if "add" in action)


def _instead(
    action: dict[str, Any], live: Collection[str], replaced: Mapping[str, Sequence[Added]]
) -> Iterator[dict[str, Any]]:
    """What an entry says in place of an action. A file that replaces another has its partition, and changes data if
    the other did."""
    (kind,) = action
    file = action[kind]
    if kind == "add" and file["path"] in replaced:
        kept = {name: file[name] for name in ("partitionValues", "dataChange")}
        yield from ({"add": {**new, **kept}} for new in replaced[file["path"]])
    elif kind == "remove" or (kind == "add" and file["path"] not in live):
        yield {kind: _without_bounds(file)}
    else:
        yield action


def _without_bounds(file: dict[str, Any]) -> dict[str, Any]:
    """A file of the log with the number of its rows as its only statistics."""
    if not file.get("stats"):
        return file
    return {**file, "stats": json.dumps({"numRecords": json.loads(file["stats"])["numRecords"]})}


def _strip_checkpoints(address: str, live: Collection[str]) -> None:
    """Remove what repeats entries: checkpoints and checksums. The checkpoint with which a log begins stays, without
    the files that are gone."""
    log = Path(address) / _LOG
    begins = int(_entries(address)[0].stem)
    base = listed(file.name for file in log.iterdir()).checkpoints.get(begins, ()) if begins else ()
    for name in base:
        _strip(address, log / name, live)
    kept = {name for file in (*_entries(address), *base) for name in _with_sums(Path(file).name)}
    (log / HINT).unlink(missing_ok=True)
    for file in [file for file in log.rglob("*") if file.is_file() and file.name not in kept]:
        file.unlink()


def _strip(address: str, checkpoint: Path, live: Collection[str]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = pq.ParquetFile(checkpoint).read()
    paths = pc.struct_field(found["add"], "path")
    stay = pc.or_(pc.is_null(paths), pc.is_in(paths, pa.array(sorted(live), pa.string())))
    if "remove" in found.column_names:
        stay = pc.and_(stay, pc.is_null(found["remove"]))
    written = pa.BufferOutputStream()
    pq.write_table(found.filter(stay), written)
    _put(address, checkpoint, written.getvalue().to_pybytes())


def _put(address: str, file: Path, data: bytes) -> None:
    """Put a file of the log in the place of another, with Hadoop's checksum."""
    tables.write_whole(file, data)
    tables.write_sums(file)
    sync_log(address, _with_sums(file.name))


def _with_sums(name: str) -> tuple[str, str]:
    return name, f".{name}.crc"


def trim(address: str, below: int) -> None:
    """Remove log entries and checkpoints of versions below `below`, which a newer checkpoint repeats."""
    for file in (Path(address) / "_delta_log").iterdir():
        version = file.name.split(".", 1)[0]
        if version.isdigit() and int(version) < below:
            file.unlink()
