"""Reads the data files of Delta tables: which ones a version has, which are missing, and which may hold what."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from floodmark.core.lifecycle.zones import far_text
from floodmark.core.text.durations import DAY
from floodmark.core.text.tablenames import about_table
from floodmark.errors import HistoryGone
from floodmark.ledger.delta.keybounds import not_after
from floodmark.ledger.delta.tables import check_gone, delta_errors, entry_actions, logged_between, missing_files

if TYPE_CHECKING:
    import pyarrow as pa

HOLDS_FROM, _AFTER = "holds_from", "after"
LOOKED_BACK = 100  # commits in which the newest rewrite of state is looked for: some 5 ms
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_PYTHONS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_UUID = 20  # characters; a folder may precede them


@dataclass(frozen=True)
class DataFile:
    """One live file of a table: its path, its rows, and a time that no row is later than. None: unknown.

    Both come from the log's statistics, which other writers may leave out.
    """

    path: str
    rows: int | None
    newest: int | None


def files_of(table: DeltaTable, time: str | None = None) -> list[DataFile]:
    """The table's live files. `time`: the column whose largest value, in microseconds, is needed."""
    with delta_errors(root_of(table)):
        actions = table.get_add_actions(flatten=True)
    names = actions.column_names
    newest = _micros(actions[f"max.{time}"]) if f"max.{time}" in names else [None] * actions.num_rows
    paths, rows = values_of(actions["path"]), values_of(actions["num_records"])
    root = root_of(table)
    return [
        DataFile(f"{root}/{unquote(path)}", count, None if moment is None else not_after(moment))
        for path, count, moment in zip(paths, rows, newest, strict=True)
    ]


def root_of(table: DeltaTable) -> str:
    """The table's folder; delta-rs returns it as a URI."""
    return unquote(table.table_uri).rstrip("/")


def file_faults(table: DeltaTable) -> Iterator[str]:
    """Live files that are missing in a local table's folder, or have another size than its log says."""
    root = Path(root_of(table).removeprefix("file://"))
    if not root.is_dir():
        return
    with delta_errors(root_of(table)):
        actions = table.get_add_actions(flatten=True)
    for path, size in zip(values_of(actions["path"]), values_of(actions["size_bytes"]), strict=True):
        file = root / unquote(path)
        if not file.exists():
            yield f"{file} is missing"
        elif file.stat().st_size != size:
            yield f"{file} has {file.stat().st_size} bytes, the log says {size}"


def _micros(times: Any) -> list[int | None]:
    """An Arrow column of times in microseconds, as numbers, because some years are outside of Python's range."""
    import pyarrow as pa

    found: list[int | None] = pa.chunked_array(times).cast(pa.int64()).to_pylist()
    return found


def file_rows(file: dict[str, Any]) -> int:
    """Rows of a file that a log entry adds or removes, less those that its deletion vector leaves out."""
    held = json.loads(file.get("stats") or "{}").get("numRecords", 0)
    return int(held) - int((file.get("deletionVector") or {}).get("cardinality", 0))


def added_files(address: str, commit: int) -> list[str]:
    """The entries, as JSON, of the files with which commit `commit` added rows.

    A file that is removed and added in one commit only loses rows, by its deletion vector. Raises HistoryGone if the
    log entry or one of the files no longer exists.
    """
    added = _added(address, commit)
    absent = _absent(address, [unquote(file["path"]) for file in added])
    if absent:
        raise missing_files(address, commit, f"the file {absent[0]}")
    return [json.dumps({"add": file}) for file in added]


def lacks_files(address: str, commit: int) -> bool:
    """Whether files with which commit `commit` added rows are missing. Raises HistoryGone without its log entry."""
    return bool(_absent(address, [unquote(file["path"]) for file in _added(address, commit)]))


def _added(address: str, commit: int) -> list[dict[str, Any]]:
    actions = logged_between(address, commit)
    gone = {action["remove"]["path"] for action in actions if "remove" in action}
    return [action["add"] for action in actions if "add" in action and action["add"]["path"] not in gone]


def added_paths(address: str, commit: int) -> list[str]:
    """The files, as the log spells them, that commit `commit` added, including its change feed and deletion vectors."""
    return [path for action in entry_actions(address, commit) for path in paths_of(action)]


def paths_of(action: dict[str, Any]) -> Iterator[str]:
    """The files that an action adds: one with rows, and its deletion vector."""
    for added in (action[kind] for kind in ("add", "cdc") if kind in action):
        yield added["path"]
        vector = vector_file(added.get("deletionVector"))
        if vector is not None:
            yield vector


def remove_file(file: Path) -> None:
    """Remove a file, if it is there, and Hadoop's checksum beside it."""
    file.unlink(missing_ok=True)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def absent(address: str, paths: list[str]) -> list[str]:
    """Those of some files of a table, as the log spells them but decoded, that no longer exist."""
    return _absent(address, paths)


def _absent(address: str, paths: list[str]) -> list[str]:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileType

    found = DeltaStorageHandler(address).get_file_info(paths)
    return [path for path, info in zip(paths, found, strict=True) if info.type == FileType.NotFound]


def holding_from(epoch: int, after: int | None = None) -> dict[str, int]:
    """Metadata of a rewrite's commit: the table holds what `epoch` and later ones see, not what earlier ones saw.

    after: the committed epoch by whose watermark it removed rows.
    """
    return {HOLDS_FROM: epoch} if after is None else {HOLDS_FROM: epoch, _AFTER: after}


def as_of(address: str, since: int, epoch: int) -> DeltaTable:
    """The table at the newest version that holds what `epoch` saw. `since`: the version that an epoch up to it wrote.

    Raises HistoryGone if the table's log, or the files of that version, no longer exist.
    """
    try:
        found = DeltaTable(address, version=_last_holding(address, since, epoch))
    except (OSError, DeltaError) as fault:
        check_gone(address, fault)
        raise HistoryGone(about_table(address, f"its log no longer reaches back to epoch {epoch}")) from fault
    files = (Path(address, unquote(path)) for path in values_of(found.get_add_actions()["path"]))
    if not all(file.exists() for file in files):
        raise HistoryGone(about_table(address, f"the files that epoch {epoch} saw no longer exist"))
    return found


def paths_at(address: str, version: int) -> set[str]:
    """The files of an older version, by their paths within the table. Raises OSError or DeltaError."""
    return paths_in(DeltaTable(address, version=version))


def paths_in(table: DeltaTable) -> set[str]:
    """The table's live files, by their paths within the table."""
    return {unquote(path) for path in values_of(table.get_add_actions()["path"])}


def absent_of(address: str, files: Collection[Mapping[str, Any]]) -> str | None:
    """The first of these files of a log, or of their deletion vectors, that is missing; None if all exist."""
    vectors = (vector_file(file.get("deletionVector")) for file in files)
    paths = [unquote(file["path"]) for file in files] + [path for path in vectors if path is not None]
    return next(iter(_absent(address, paths)), None)


def at_version(address: str, version: int) -> DeltaTable:
    """An older version of the table. Raises OSError or DeltaError if its log or one of its files is missing."""
    found = DeltaTable(address, version=version)
    absent = _absent(address, [unquote(path) for path in values_of(found.get_add_actions()["path"])])
    if absent:
        raise FileNotFoundError(f"{address}: {absent[0]} is gone")
    return found


def _last_holding(address: str, since: int, epoch: int) -> int:
    """The newest version before a rewrite removed what `epoch` saw."""
    newest = DeltaTable(address).version()
    gone = (version for version in range(since + 1, newest + 1) if _holds_from(entry_actions(address, version)) > epoch)
    return next(gone, newest + 1) - 1


def rewritten_after(address: str, since: int, newest: int) -> int:
    """The newest epoch by whose watermark rows of a state table were removed; 0: none.

    It reads the log after version `since` and up to `newest`. A log entry that was cleaned up no longer matters; older
    versions of Floodmark did not record the epoch.
    """
    versions = range(since + 1, newest + 1)
    there = [version for version in versions if (Path(address) / "_delta_log" / f"{version:020}.json").exists()]
    return max((commit_metadata(entry_actions(address, version)).get(_AFTER, 0) for version in there), default=0)


def left_by_rewrite(table: DeltaTable) -> int:
    """How many files the newest rewrite by a watermark left in a state table; 0: none among the newest commits."""
    address, newest = root_of(table).removeprefix("file://"), table.version()
    for version in range(newest, max(-1, newest - LOOKED_BACK), -1):
        if not (Path(address) / "_delta_log" / f"{version:020}.json").exists():
            break
        actions = entry_actions(address, version)
        if _AFTER in commit_metadata(actions):
            return sum("add" in action for action in actions)
    return 0


def commit_metadata(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """What the engine recorded in a commit's metadata; empty if that is no JSON object."""
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    try:
        found = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _holds_from(actions: list[dict[str, Any]]) -> float:
    """The first epoch whose rows a commit leaves complete; a rewrite that does not record it leaves none."""
    if not any(action.get("remove", {}).get("dataChange") for action in actions):
        return 0
    said = next((action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action), None)
    return json.loads(said)[HOLDS_FROM] if said else math.inf


def query(table: DeltaTable, sql: str) -> list[dict[str, Any]]:
    """The rows that `sql` returns; it names the table `t`.

    Rust runs it, not pyarrow: pyarrow's data sets import pandas, which takes longer than everything else here, and
    leave threads behind that sometimes abort the process at exit (5 of 65 trials).
    """
    with delta_errors(root_of(table)):
        found = QueryBuilder().register("t", table).execute(sql).read_all()
    columns = [values_of(found[name]) for name in found.column_names]
    return [dict(zip(found.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def values_of(column: Any) -> list[Any]:
    """Python's values of an Arrow column. Dates and times of years that Python lacks are text, in ISO 8601."""
    try:
        found = [value.as_py() for value in column]
    except (OverflowError, ValueError):
        return _with_far_times(column)
    # Of times after the year 262143, arro3 makes None.
    return found if found.count(None) == column.null_count else _with_far_times(column)


def _with_far_times(column: Any) -> list[Any]:
    import pyarrow as pa

    array = pa.chunked_array(column)
    return [_timed(value, array.type) for value in array.cast(_numbered(array.type)).to_pylist()]


def _numbered(kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which times and dates are numbers since 1970."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbered(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_type), _numbered(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([one.with_type(_numbered(one.type)) for one in kind])
    return kind


def _timed(value: Any, kind: pa.DataType) -> Any:
    """The value of such a number, within lists, maps and structs too."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return _time(value * 1_000_000 // _PER_SECOND[kind.unit], None if kind.tz is None else UTC)
    if pa.types.is_date32(kind):
        return _date(value)
    if pa.types.is_list(kind):
        return [_timed(one, kind.value_type) for one in value]
    if pa.types.is_map(kind):
        return [(_timed(key, kind.key_type), _timed(one, kind.item_type)) for key, one in value]
    if pa.types.is_struct(kind):
        return {one.name: _timed(value[one.name], one.type) for one in kind}
    return value


def _time(micros: int, zone: tzinfo | None) -> datetime | str:
    try:
        return datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=micros)
    except OverflowError:
        return far_text(micros) + ("" if zone is None else "Z")


def _date(days: int) -> date | str:
    try:
        return date(1970, 1, 1) + timedelta(days=days)
    except OverflowError:
        return far_text(days * DAY).partition("T")[0]


def size_of(table: DeltaTable) -> int:
    """Bytes of the table's live files."""
    return sum(values_of(table.get_add_actions()["size_bytes"]))


def bytes_a_row(table: DeltaTable) -> float | None:
    """Bytes a row, by the files' statistics; None if these are missing."""
    counts = [file.rows for file in files_of(table)]
    rows = sum(filter(None, counts))
    return size_of(table) / rows if rows and None not in counts else None


def sizes_of(table: DeltaTable) -> dict[str, int]:
    """Bytes of each live file, by its path in the table's folder."""
    actions = table.get_add_actions()
    return dict(zip(map(unquote, values_of(actions["path"])), values_of(actions["size_bytes"]), strict=True))


def vector_file(descriptor: Mapping[str, Any] | None) -> str | None:
    """The path, within its table, of the file with a deletion vector; None without one, or if it is in the log or in
    another place.

    Delta's protocol writes its name as a UUID in Z85, ZeroMQ's base 85; Python uses another alphabet.
    """
    if not descriptor or descriptor["storageType"] != "u":
        return None
    folder, name = descriptor["pathOrInlineDv"][:-_UUID], descriptor["pathOrInlineDv"][-_UUID:]
    found = UUID(bytes=base64.b85decode(name.translate(str.maketrans(_Z85, _PYTHONS))))
    return f"{folder}/deletion_vector_{found}.bin" if folder else f"deletion_vector_{found}.bin"
