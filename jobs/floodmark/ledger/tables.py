"""What a Delta table's log says, read without Spark; and the making of an empty table."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from floodmark.core.deletionvectors import vector_file
from floodmark.core.hadoopsums import sums_of
from floodmark.core.keybounds import not_after
from floodmark.core.presence import Moves, Presence, moves_of, presence
from floodmark.core.storefaults import passing
from floodmark.errors import FloodmarkError, HistoryGone, Refused, RunFailed, TableBroken
from floodmark.ledger.damage import actions_of, why_unreadable

NEWEST = 10  # commits among which a rule's last one lies
# A checkpoint of a small log costs Spark two seconds, more than the epoch that it falls upon; Delta's default is 10.
CHECKPOINTS = {"delta.checkpointInterval": "50"}
_MOVES = ("add", "remove")
_HOLDS_FROM, _AFTER = "holds_from", "after"
OWNER = "floodmark.owner"  # table property: id of the ledger whose rule writes this table
ADOPTED = "floodmark.adopted"  # table property of one that was there before its rule: the version that was its newest
ADOPTED_EMPTY = "empty"  # its value where the table held no rows then


ANEW = (
    "put back what is missing or harmed from a copy; a table that a rule writes can also be made anew: remove its "
    "folder and call `floodmark reset`"
)


@contextmanager
def reading(address: str) -> Iterator[None]:
    """Turn what delta-rs raises at a table that it cannot read into TableBroken; RunFailed where a retry may help."""
    try:
        yield
    except (FloodmarkError, TableNotFoundError, OSError):
        raise
    except BaseException as fault:
        if not _of_rust(fault):
            raise
        raise _unreadable(address, fault) from fault


def _of_rust(fault: BaseException) -> bool:
    """Its query engine raises plain exceptions, and where Rust panics one that is no Exception."""
    return isinstance(fault, DeltaError) or type(fault) is Exception or type(fault).__name__ == "PanicException"


def _unreadable(address: str, fault: BaseException) -> FloodmarkError:
    said = str(fault).strip().split("\n", 1)[0]
    if passing(said):
        return RunFailed(f"{address}: the table cannot be read now: {said}; mend the disk or the store, then retry")
    if "non utf-8" in said.lower():
        return TableBroken(
            f"{address}: its rows cannot be shown: {said}. If they hold text that is no UTF-8, nothing is harmed, and "
            "Spark shows it; else the file named by `floodmark audit --deep` is"
        )
    if "unsupported" in said.lower():
        return TableBroken(f"{address}: the table cannot be read: {said}; nothing is harmed, Delta's client lacks that")
    return TableBroken(f"{address}: the table cannot be read: {why_unreadable(address) or said}; {ANEW}")


def open_table(address: str) -> DeltaTable | None:
    """The table at `address` at its newest version, or None where there is none. Raises TableBroken and Refused."""
    if Path(address).is_file():
        raise Refused(
            f"expected the folder of a Delta table at {address}, found a file: write what is in it as a Delta table, "
            "and name that table's folder"
        )
    try:
        with reading(address):
            return DeltaTable(address)
    except TableNotFoundError:
        return None


def create(address: str, schema: str, configuration: Mapping[str, str], partitions: Sequence[str] = ()) -> None:
    """Make an empty table unless there is one. `schema`: Spark's JSON, which is Delta's.

    delta-rs does it in milliseconds, by put-if-absent. It writes no rows, so seals (which it does not honour) are safe.
    """
    if open_table(address) is not None:
        return
    local = "://" not in address
    if local:
        Path(address).parent.mkdir(parents=True, exist_ok=True)
    DeltaTable.create(
        address,
        Schema.from_json(schema),
        mode="ignore",
        partition_by=list(partitions) or None,
        configuration={**CHECKPOINTS, **configuration},
        raise_if_key_not_exists=False,
    )
    if local:
        _write_checksum(address)


def _write_checksum(address: str) -> None:
    """Version 0's checksum file, as Delta's protocol has it: without one, Spark's first commit reconstructs the table.

    Spark writes those that follow from it. Where a kill, or a store of objects, leaves it out, the first commit is
    slower, no more.
    """
    actions = {kind: action for found in _actions(address, 0) for kind, action in found.items()}
    if not actions.keys() <= {"commitInfo", "metaData", "protocol"}:
        return  # somebody else was faster, and has written rows
    checksum = {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": actions["metaData"],
        "protocol": actions["protocol"],
        "allFiles": [],
    }
    log = Path(address) / "_delta_log"
    _write_whole(log / f"{0:020}.crc", json.dumps(checksum, separators=(",", ":")).encode())
    for name in (f"{0:020}.json", f"{0:020}.crc"):
        write_sums(log / name)


def write_sums(file: Path) -> None:
    """Hadoop's checksum beside a local file that Spark has not written: by it Hadoop, and the gate, see a change."""
    _write_whole(file.with_name(f".{file.name}.crc"), sums_of(file.read_bytes()))


def _write_whole(file: Path, data: bytes) -> None:
    """Or not at all: half a checksum, left by a full disk or a kill, would speak against a file that is well."""
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(data)
    new.replace(file)


def newest_version(address: str) -> int:
    """Of a table that is there."""
    return int(DeltaTable(address).version())


def table_id(table: DeltaTable) -> str:
    return str(table.metadata().id)


def owner_of(table: DeltaTable) -> str | None:
    return table.metadata().configuration.get(OWNER)


def properties_of(address: str) -> dict[str, str]:
    """What the table's newest version has; nothing where there is no table."""
    table = open_table(address)
    return {} if table is None else {k: v for k, v in table.metadata().configuration.items() if v is not None}


def partitions_of(table: DeltaTable) -> list[str]:
    """The columns by which the table is partitioned."""
    return list(table.metadata().partition_columns)


def can_be_clustered(address: str) -> bool:
    """Whether the table has Delta's feature for clusters; by which columns, if any, only Spark tells."""
    table = open_table(address)
    return table is not None and "clustering" in (table.protocol().writer_features or ())


def adopted_at(table: DeltaTable) -> int | None:
    """The newest version of a table that held rows before a rule adopted it; None for any other table."""
    found = table.metadata().configuration.get(ADOPTED, ADOPTED_EMPTY)
    return None if found == ADOPTED_EMPTY else int(found)


def adopted(addresses: Mapping[str, str]) -> dict[str, int]:
    """Of these tables, by name, the adopted ones, and from which version on they are a rule's."""
    opened = {name: open_table(address) for name, address in addresses.items()}
    found = {name: adopted_at(table) for name, table in opened.items() if table is not None}
    return {name: version + 1 for name, version in found.items() if version is not None}


def is_empty(table: DeltaTable) -> bool:
    """Whether the table's newest version holds no file."""
    return not table.file_uris()


def is_misfit(table: DeltaTable, owner: str, schema: str, partitions: Sequence[str]) -> bool:
    """Whether the owner has made this table, which holds nothing, for other columns (`schema`: Spark's JSON) or
    partitions: for an older text of its rule, in a run that was killed."""
    properties = table.metadata().configuration
    if properties.get(OWNER) != owner or ADOPTED in properties or not is_empty(table):
        return False
    return table.schema() != Schema.from_json(schema) or partitions_of(table) != list(partitions)


def columns_of(table: DeltaTable) -> dict[str, str]:
    """Column name → Delta type name ('timestamp', 'struct', …), in order."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {
        field["name"]: field["type"] if isinstance(field["type"], str) else field["type"]["type"] for field in fields
    }


@dataclass(frozen=True)
class DataFile:
    """One live file of a table: where it is, its rows, and a time that none of them is after. None: not known.

    Both are the log's statistics, which others need not write.
    """

    path: str
    rows: int | None
    newest: int | None


def files_of(table: DeltaTable, time: str | None = None) -> list[DataFile]:
    """The table's live files. `time`: the column whose largest value, in microseconds, is wanted."""
    with reading(root_of(table)):
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
    """The table's folder; delta-rs gives it as a URI."""
    return unquote(table.table_uri).rstrip("/")


def file_faults(table: DeltaTable) -> Iterator[str]:
    """Live files that are not in a local table's folder, or have another size than its log says."""
    root = Path(root_of(table).removeprefix("file://"))
    if not root.is_dir():
        return
    with reading(root_of(table)):
        actions = table.get_add_actions(flatten=True)
    for path, size in zip(values_of(actions["path"]), values_of(actions["size_bytes"]), strict=True):
        file = root / unquote(path)
        if not file.exists():
            yield f"{file} is missing"
        elif file.stat().st_size != size:
            yield f"{file} has {file.stat().st_size} bytes, the log says {size}"


def _micros(times: Any) -> list[int | None]:
    """An Arrow column of times in microseconds as numbers: some lie in years that Python does not know."""
    import pyarrow as pa

    found: list[int | None] = pa.chunked_array(times).cast(pa.int64()).to_pylist()
    return found


def recorded_version(address: str, app: str) -> int | None:
    """The largest version the table has recorded for an app id; None also where there is no table."""
    table = open_table(address)
    return None if table is None else recorded_in(table, app)


def recorded_in(table: DeltaTable, app: str) -> int | None:
    """The largest version the table has recorded for an app id. Raises TableBroken: delta-rs reads the log for it."""
    with reading(root_of(table)):
        return table.transaction_version(app)


class OurCommit:
    """One commit that a write of ours made: Delta version, results, and the metadata it carries.

    `added`, `removed`: rows of the files that came and went, by the log's statistics.
    """

    def __init__(self, entry: dict[str, Any], added: int, removed: int):
        self.commit, self.added, self.removed = int(entry["version"]), added, removed
        self.metadata: dict[str, Any] = json.loads(entry["userMetadata"])
        written = entry.get("operationMetrics", {}).get("numOutputRows", 0)
        self.rows = int(self.metadata.get("rows", written))  # an upsert writes other rows than its results


def commit_at(address: str, commit: int, app: str, version: int) -> OurCommit | None:
    """What the table's log holds as its version `commit`; None where that does not record (app, version)."""
    actions = _actions(address, commit)
    recorded = [action["txn"] for action in actions if "txn" in action]
    if not any((said["appId"], said["version"]) == (app, version) for said in recorded):
        return None
    entry = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    return OurCommit({**entry, "version": commit}, *rows_moved(actions))


def rows_moved(actions: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """How many rows a commit with these actions adds and removes, by the statistics of its files."""
    added, removed = (sum(_file_rows(action[kind]) for action in actions if kind in action) for kind in _MOVES)
    return added, removed


def _file_rows(file: dict[str, Any]) -> int:
    """Rows of a file that a log entry adds or removes, less those that its deletion vector leaves out."""
    held = json.loads(file.get("stats") or "{}").get("numRecords", 0)
    return int(held) - int((file.get("deletionVector") or {}).get("cardinality", 0))


def our_commit(address: str, app: str, version: int) -> OurCommit:
    """The commit that recorded (app, version). Raises HistoryGone where the table's log no longer holds it.

    From the newest on, and no entry further: it is nearly always among the first, and of older ones, which a checkpoint
    stands for, nothing is asked here.
    """
    for entry in heads(address):
        said = _metadata_of(entry)
        if said and (said["app"], said["version"]) == (app, version):
            found = commit_at(address, entry["version"], app, version)
            if found is not None:
                return found
    raise HistoryGone(
        f"{address}: the log no longer holds the commit of {app} version {version}, so what it wrote cannot be "
        "compared; restore the table's log, or begin anew with `floodmark reset`"
    )


def heads(address: str) -> Iterator[dict[str, Any]]:
    """What each commit says of itself, from the newest to the oldest that the log still holds."""
    table = open_table(address)
    for version in range(table.version() if table else -1, -1, -1):
        try:
            info = commit_info(address, version)
        except FileNotFoundError:
            return
        yield {**info, "version": version}


def commit_info(address: str, version: int) -> dict[str, Any]:
    """What a commit says of itself, which it need not do. Raises OSError where the log has no such entry."""
    found: Iterator[dict[str, Any]] = (one["commitInfo"] for one in _actions(address, version) if "commitInfo" in one)
    return next(found, {})


def _metadata_of(entry: dict[str, Any]) -> dict[str, Any] | None:
    """What a commit of ours says of itself; None of another's."""
    text = entry.get("userMetadata") or ""
    found: dict[str, Any] | None = json.loads(text) if text.startswith('{"app":') else None
    return found


def written_for(address: str, ledger: str) -> bool:
    """Whether one of the table's newest commits is a rule's whose ledger this is."""
    found = map(_metadata_of, islice(heads(address), NEWEST))
    return any(one["app"].split("/")[1] == ledger for one in found if one)


def rows_now(address: str, commit: int) -> Presence:
    """Whether the rows that commit `commit` added are still in the table. Raises HistoryGone without log entries."""
    later = range(commit + 1, newest_version(address) + 1)
    return presence(_moves(address, commit), (_moves(address, version) for version in later))


def _moves(address: str, version: int) -> Moves:
    return moves_of(version, _logged(address, version))


def _logged(address: str, version: int) -> list[dict[str, Any]]:
    """One log entry. Raises HistoryGone where it is not there any more."""
    try:
        return _actions(address, version)
    except OSError:
        raise _gone(address, version, "its log entry") from None


def added_files(address: str, commit: int) -> list[str]:
    """The entries, as JSON, of the files with which commit `commit` added rows.

    A file that goes and comes in one commit only loses rows, by its deletion vector. Raises HistoryGone where the log
    entry or one of the files is not there any more.
    """
    added = _added(address, commit)
    absent = _absent(address, [unquote(file["path"]) for file in added])
    if absent:
        raise _gone(address, commit, f"the file {absent[0]}")
    return [json.dumps({"add": file}) for file in added]


def lacks_files(address: str, commit: int) -> bool:
    """Whether files with which commit `commit` added rows are no longer there. Raises as `added_files` without them."""
    return bool(_absent(address, [unquote(file["path"]) for file in _added(address, commit)]))


def _added(address: str, commit: int) -> list[dict[str, Any]]:
    actions = _logged(address, commit)
    gone = {action["remove"]["path"] for action in actions if "remove" in action}
    return [action["add"] for action in actions if "add" in action and action["add"]["path"] not in gone]


def added_paths(address: str, commit: int) -> list[str]:
    """The files, as the log spells them, that commit `commit` added; its change feed's and deletion vectors', too."""
    return [path for action in _actions(address, commit) for path in paths_of(action)]


def paths_of(action: dict[str, Any]) -> Iterator[str]:
    """The files that an entry of a log says were added: one with rows, and its deletion vector."""
    for added in (action[kind] for kind in ("add", "cdc") if kind in action):
        yield added["path"]
        vector = vector_file(added.get("deletionVector"))
        if vector is not None:
            yield vector


def _absent(address: str, paths: list[str]) -> list[str]:
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import FileType

    found = DeltaStorageHandler(address).get_file_info(paths)
    return [path for path, info in zip(paths, found, strict=True) if info.type == FileType.NotFound]


def _gone(address: str, commit: int, what: str) -> HistoryGone:
    return HistoryGone(
        f"{address}: of commit {commit}, {what} is gone, so what it wrote cannot be compared; put it back, or begin "
        "anew with `floodmark reset`"
    )


def holding_from(epoch: int, after: int | None = None) -> str:
    """What the commit of a rewrite says of itself: the table holds what is seen from `epoch` on, earlier epochs not.

    `after`: the committed epoch by whose watermark it took rows away.
    """
    return json.dumps({_HOLDS_FROM: epoch} if after is None else {_HOLDS_FROM: epoch, _AFTER: after})


def as_of(address: str, since: int, epoch: int) -> DeltaTable:
    """The table at the newest version that holds what `epoch` saw. `since`: the version that an epoch up to it wrote.

    Raises HistoryGone where the table's log, or the files of that version, are not there any more.
    """
    try:
        found = DeltaTable(address, version=_last_holding(address, since, epoch))
    except (OSError, DeltaError) as fault:
        raise HistoryGone(f"{address}: its log does not reach back to epoch {epoch} any more") from fault
    files = (Path(address, unquote(path)) for path in values_of(found.get_add_actions()["path"]))
    if not all(file.exists() for file in files):
        raise HistoryGone(f"{address}: the files that epoch {epoch} saw are not there any more")
    return found


def actions(address: str, version: int) -> list[dict[str, Any]]:
    """One log entry. Raises OSError where it is not there."""
    return _actions(address, version)


def paths_at(address: str, version: int) -> set[str]:
    """The files of an older version, by their paths within the table. Raises OSError or DeltaError."""
    return {unquote(path) for path in values_of(DeltaTable(address, version=version).get_add_actions()["path"])}


def absent_of(address: str, files: Collection[Mapping[str, Any]]) -> str | None:
    """The first of these files of a log, or of their deletion vectors, that is not there any more; None: all are."""
    vectors = (vector_file(file.get("deletionVector")) for file in files)
    paths = [unquote(file["path"]) for file in files] + [path for path in vectors if path is not None]
    return next(iter(_absent(address, paths)), None)


def transactions(address: str, version: int) -> list[tuple[str, int]]:
    """The app transactions that a log entry records. Raises OSError where the entry is not there."""
    return [(one["txn"]["appId"], int(one["txn"]["version"])) for one in _actions(address, version) if "txn" in one]


def at_version(address: str, version: int) -> DeltaTable:
    """An older version of the table. Raises OSError or DeltaError where its log or a file of it is not there."""
    found = DeltaTable(address, version=version)
    absent = _absent(address, [unquote(path) for path in values_of(found.get_add_actions()["path"])])
    if absent:
        raise FileNotFoundError(f"{address}: {absent[0]} is gone")
    return found


def _last_holding(address: str, since: int, epoch: int) -> int:
    """The newest version before a rewrite took away what `epoch` saw."""
    newest = DeltaTable(address).version()
    gone = (version for version in range(since + 1, newest + 1) if _holds_from(_actions(address, version)) > epoch)
    return next(gone, newest + 1) - 1


def rewritten_after(address: str, since: int, newest: int) -> int:
    """The newest epoch after which rows of a state table were taken away; 0: none.

    By its log, after version `since` and up to `newest`.
    A log entry that was cleaned up is long settled; older versions of Floodmark did not say it.
    """
    versions = range(since + 1, newest + 1)
    there = [version for version in versions if (Path(address) / "_delta_log" / f"{version:020}.json").exists()]
    return max((_said(_actions(address, version)).get(_AFTER, 0) for version in there), default=0)


def _said(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """What the engine says in a commit's metadata; nothing where that is no JSON object."""
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    try:
        found = json.loads(info.get("userMetadata") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _holds_from(actions: list[dict[str, Any]]) -> float:
    """The first epoch of which a commit leaves all in the table; a rewrite that does not say it ends all that was."""
    if not any(action.get("remove", {}).get("dataChange") for action in actions):
        return 0
    said = next((action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action), None)
    return json.loads(said)[_HOLDS_FROM] if said else math.inf


def query(table: DeltaTable, sql: str) -> list[dict[str, Any]]:
    """The rows that `sql` gives; it names the table `t`.

    Rust runs it, not pyarrow: pyarrow's data sets import pandas, which takes longer than everything else here, and
    leave threads behind that at times abort the process as it ends (5 of 65 trials).
    """
    with reading(root_of(table)):
        found = QueryBuilder().register("t", table).execute(sql).read_all()
    columns = [values_of(found[name]) for name in found.column_names]
    return [dict(zip(found.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def values_of(column: Any) -> list[Any]:
    """Python's values of an Arrow column."""
    return [value.as_py() for value in column]


def size_of(table: DeltaTable) -> int:
    """Bytes of the table's live files."""
    return sum(values_of(table.get_add_actions()["size_bytes"]))


@dataclass(frozen=True)
class DataCommit:
    """A commit that changes data: files added, their bytes, and whether any is removed.

    `said`: what a rule's commit says of itself; None of a commit whose log entry is gone.
    """

    version: int
    adds: int
    size: int
    removes: bool
    said: dict[str, Any] | None


def data_commits(address: str, first: int, last: int) -> Iterator[DataCommit]:
    """The commits in [first, last] that change data. A version whose log entry is gone counts: it cannot be told."""
    for version in range(first, last + 1):
        found = _data_changes(address, version)
        if found.adds or found.removes:
            yield found


def _data_changes(address: str, version: int) -> DataCommit:
    try:
        actions = _actions(address, version)
    except (FileNotFoundError, OSError):
        return DataCommit(version, 1, 0, True, None)
    added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    removes = any(action.get("remove", {}).get("dataChange") for action in actions)
    return DataCommit(version, len(added), sum(add["size"] for add in added), removes, _said(actions))


@dataclass(frozen=True)
class Moved:
    """The files that a commit added, and those that it removed, with when; when it was written. Microseconds."""

    added: frozenset[str]
    removed: Mapping[str, int]
    written_us: int


def moved(address: str, version: int) -> Moved | None:
    """What a commit did to the table's files, whether rows changed or not; None where its log entry is gone."""
    try:
        actions = _actions(address, version)
    except OSError:
        return None
    removes = [action["remove"] for action in actions if "remove" in action]
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    return Moved(
        frozenset(action["add"]["path"] for action in actions if "add" in action),
        {remove["path"]: int(remove.get("deletionTimestamp", 0)) * 1000 for remove in removes},
        written_us(address, version) or int(info.get("timestamp", 0)) * 1000,
    )


def written_us(address: str, version: int) -> int | None:
    """When a log entry of a local table was written, by which Delta judges its age; None where it lies elsewhere."""
    entry = _local_entry(address, version)
    return entry.stat().st_mtime_ns // 1000 if entry.exists() else None


def _local_entry(address: str, version: int) -> Path:
    return Path(address) / "_delta_log" / f"{version:020}.json"


def log_sum(address: str, version: int) -> str | None:
    """SHA-256 of a log entry, by which it is told from another table's; None where it is not there.

    Raises OSError where the store cannot be reached: what cannot be read now is not taken for gone.
    """
    try:
        return sha256(_entry(address, version)).hexdigest()
    except FileNotFoundError:
        return None


def _entry(address: str, version: int) -> bytes:
    local = _local_entry(address, version)
    if local.parent.is_dir():
        return local.read_bytes()
    from deltalake.fs import DeltaStorageHandler  # brings pyarrow, which a run with nothing to do can spare

    return bytes(DeltaStorageHandler(address).open_input_file(f"_delta_log/{version:020}.json").read())


def _actions(address: str, version: int) -> list[dict[str, Any]]:
    """One log entry of the table, as it stands there."""
    data = _entry(address, version)
    try:
        return actions_of(data)
    except ValueError as fault:
        raise TableBroken(f"{address}: log entry {version} is cut off or was changed: {fault}") from fault
