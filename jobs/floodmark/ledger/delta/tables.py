"""Reads a Delta table's log without Spark, and creates empty tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from floodmark.core.text.files import file_instead_of_folder
from floodmark.core.text.tablenames import about_table
from floodmark.errors import FloodmarkError, HistoryGone, Refused, RunFailed, TableBroken
from floodmark.ledger.delta.damage import (
    HELD,
    actions_of,
    is_held,
    is_held_by,
    restore_log,
    to_put_back,
    why_unreadable,
)
from floodmark.ledger.delta.hadoopsums import sums_of
from floodmark.ledger.delta.storefaults import cannot_take, gone, in_one_line, make_room, of_store
from floodmark.ledger.delta.storelogs import StoredLog

NEWEST = 10  # commits among which a rule's last one is
# A checkpoint of a small log costs Spark two seconds, more than its epoch; Delta's default is 10.
CHECKPOINTS = {"delta.checkpointInterval": "50"}
OWNER = "floodmark.owner"  # table property: id of the ledger whose rule writes this table
ADOPTED = "floodmark.adopted"  # table property of a table older than its rule: its newest version then
ADOPTED_EMPTY = "empty"  # its value if the table held no rows then
ANEW = (
    "restore missing or corrupt files from a copy; a table that a rule writes can also be recreated: remove its "
    "folder and run `floodmark reset`"
)


@contextmanager
def delta_errors(address: str) -> Iterator[None]:
    """Turn errors of delta-rs at an unreadable table into TableBroken, or RunFailed if a retry may help."""
    try:
        yield
    except (FloodmarkError, TableNotFoundError, OSError):
        raise
    except BaseException as fault:
        if not _of_rust(fault):
            raise
        raise _unreadable(address, fault) from fault


def _of_rust(fault: BaseException) -> bool:
    """Whether delta-rs raised it: its query engine raises plain `Exception`s, a panic in Rust a BaseException."""
    return isinstance(fault, DeltaError) or type(fault) is Exception or type(fault).__name__ == "PanicException"


def _unreadable(address: str, fault: BaseException) -> FloodmarkError:
    said = str(fault).strip().split("\n", 1)[0]
    if of_store(str(fault)):
        return not_now(address, said)
    if "non utf-8" in said.lower():
        return TableBroken(
            about_table(
                address,
                f"its rows cannot be shown: {said}. If they contain text that is not UTF-8, nothing is "
                "corrupt, and Spark can show it; otherwise, the file that `floodmark audit --deep` names is corrupt",
            )
        )
    if "unsupported" in said.lower():
        return TableBroken(
            about_table(
                address, f"the table cannot be read: {said}; nothing is corrupt: Delta's client does not support this"
            )
        )
    why = (why_unreadable(address) or said).replace(f"{address}/", "")  # files from the table's folder on
    return TableBroken(about_table(address, f"the table cannot be read: {why}; {ANEW}"))


@contextmanager
def with_room(about: Callable[[str], str]) -> Iterator[None]:
    """Say what to do where a store takes no more files. about: what is written there, with the reason."""
    try:
        yield
    except (DeltaError, OSError) as fault:
        why = cannot_take(str(fault))
        if why is None:
            raise
        raise RunFailed(about(f"{why}; {make_room(why)}, then retry")) from fault


def open_table(address: str) -> DeltaTable | None:
    """The table at `address` at its newest version, or None if there is none.

    Raises TableBroken, RunFailed (the disk or the store cannot be reached now) and Refused.
    """
    try:
        return _open(address)
    except OSError as down:
        raise not_now(address, str(down)) from down


def _open(address: str) -> DeltaTable | None:
    """As `open_table`. Raises OSError too, where the system cannot even say whether a file is there."""
    if Path(address).is_file():
        raise Refused(
            f"expected the folder of a Delta table at {address}, found a file: write its content as a Delta table, "
            "and name that table's folder"
        )
    try:
        with delta_errors(address):
            return DeltaTable(address)
    except TableNotFoundError:
        _refuse_file(Path(address))
        return None


def _refuse_file(path: Path) -> None:
    """Raise Refused if a file stands where the table's path needs a folder; an address in a store leads to none."""
    file = file_instead_of_folder(path.parent)
    if file is not None:
        raise Refused(f"expected a folder at {file}, found a file: move it away, or name another folder")


def create(address: str, schema: str, configuration: Mapping[str, str], partitions: Sequence[str] = ()) -> None:
    """Create an empty table unless it exists. `schema`: Spark's JSON, which is Delta's.

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
    """Write version 0's checksum file, by Delta's protocol: without it, Spark's first commit reconstructs the table.

    Spark writes the following ones. If a kill or a store of objects prevents it, the first commit is only slower.
    """
    actions = {kind: action for found in entry_actions(address, 0) for kind, action in found.items()}
    if not actions.keys() <= {"commitInfo", "metaData", "protocol"}:
        return  # another writer was faster, and has written rows
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
    write_whole(log / f"{0:020}.crc", json.dumps(checksum, separators=(",", ":")).encode())
    for name in (f"{0:020}.json", f"{0:020}.crc"):
        write_sums(log / name)


def write_sums(file: Path) -> None:
    """Write Hadoop's checksum beside a local file not written by Spark: Hadoop and the gate detect changes by it."""
    write_whole(file.with_name(f".{file.name}.crc"), sums_of(file.read_bytes()))


def write_whole(file: Path, data: bytes) -> None:
    """Write a file completely or not at all.

    Half a checksum, left by a full disk or a kill, would contradict an intact file.
    """
    new = file.with_name(f".{file.name}.new")
    new.write_bytes(data)
    new.replace(file)


def newest_version(address: str) -> int:
    """The newest version of an existing table."""
    return int(DeltaTable(address).version())


def table_id(table: DeltaTable) -> str:
    return str(table.metadata().id)


def owner_of(table: DeltaTable) -> str | None:
    return table.metadata().configuration.get(OWNER)


def restore_own_log(root: Path, ledger: str, must_go: bool = True) -> None:
    """Put back log entries of a sink that a killed upkeep has left out, if the table is this ledger's: the upkeep of
    another one may be at work on it. must_go: as for `restore_log`."""
    if has_own_held(root, ledger):
        restore_log(root, must_go)


def has_own_held(root: Path, ledger: str) -> bool:
    """Whether log entries of this ledger's own table are held."""
    return is_held(root) and _is_own(root, ledger)


def _is_own(root: Path, ledger: str) -> bool:
    with suppress(TableBroken):
        table = open_table(str(root))
        if table is not None:
            return owner_of(table) == ledger
    return is_held_by(root, ledger)


def properties_of(address: str) -> dict[str, str]:
    """The properties of the table's newest version; empty if there is no table."""
    table = open_table(address)
    return {} if table is None else {k: v for k, v in table.metadata().configuration.items() if v is not None}


def partitions_of(table: DeltaTable) -> list[str]:
    """The columns by which the table is partitioned."""
    return list(table.metadata().partition_columns)


def can_be_clustered(address: str) -> bool:
    """Whether the table has Delta's feature for clusters; only Spark knows the columns, if any."""
    table = open_table(address)
    return table is not None and "clustering" in (table.protocol().writer_features or ())


def adopted_at(table: DeltaTable) -> int | None:
    """The newest version of a table that held rows before a rule adopted it; None for any other table."""
    found = table.metadata().configuration.get(ADOPTED, ADOPTED_EMPTY)
    return None if found == ADOPTED_EMPTY else int(found)


def is_empty(table: DeltaTable) -> bool:
    """Whether the table's newest version holds no file."""
    return not table.file_uris()


def is_misfit(table: DeltaTable, owner: str, schema: str, partitions: Sequence[str]) -> bool:
    """Whether the owner created this empty table for other columns (`schema`: Spark's JSON) or partitions.

    A run that was killed has then created it for an older text of its rule.
    """
    if not is_unused(table, owner):
        return False
    return table.schema() != Schema.from_json(schema) or partitions_of(table) != list(partitions)


def is_unused(table: DeltaTable, owner: str) -> bool:
    """Whether the owner created this table, which holds nothing."""
    properties = table.metadata().configuration
    return properties.get(OWNER) == owner and ADOPTED not in properties and is_empty(table)


def columns_of(table: DeltaTable) -> dict[str, str]:
    """Column name -> Delta type name ('timestamp', 'struct', …), in order."""
    fields = json.loads(table.schema().to_json())["fields"]
    return {
        field["name"]: field["type"] if isinstance(field["type"], str) else field["type"]["type"] for field in fields
    }


def metadata_of(entry: dict[str, Any]) -> dict[str, Any] | None:
    """The metadata of a commit of ours; None for another writer's, whatever that has written there."""
    text = entry.get("userMetadata") or ""
    try:
        found: dict[str, Any] = json.loads(text) if text.startswith('{"app":') else {}
    except ValueError:
        return None
    ours = str(found.get("app")).startswith("floodmark/") and isinstance(found.get("version"), int)
    return found if ours else None


def logged_between(address: str, version: int) -> list[dict[str, Any]]:
    """One log entry. Raises HistoryGone if it no longer exists, and RunFailed as `there_actions`."""
    try:
        return there_actions(address, version)
    except FileNotFoundError:
        raise missing_files(address, version, "its log entry") from None


def local_entry(address: str, version: int) -> Path:
    return Path(address) / "_delta_log" / f"{version:020}.json"


def entry_bytes(address: str, version: int, store: StoredLog | None = None) -> bytes:
    """One log entry. Raises FileNotFoundError if it is gone, and RunFailed if the disk or the store fails."""
    local = local_entry(address, version)
    try:
        return local.read_bytes() if local.parent.is_dir() else (store or StoredLog(address, [version])).entry(version)
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise not_now(address, str(fault)) from fault


def stored_entry_us(address: str, version: int) -> int | None:
    """When a log entry was written into a store; None if it is not there. Raises RunFailed if the store fails."""
    try:
        return StoredLog(address, [version]).written_us(version)
    except OSError as down:
        raise not_now(address, str(down)) from down


def not_now(address: str, said: str) -> RunFailed:
    """The error for a read that failed, and that may succeed on retry: nothing is gone."""
    return RunFailed(
        about_table(
            address, f"the table cannot be read now: {in_one_line(said)}; fix the disk or the store, then retry"
        )
    )


def check_gone(address: str, fault: Exception) -> None:
    """Raise RunFailed unless the error says that an older version is gone, or damaged: others may pass.

    While upkeep joins files, older versions are gone for a moment only.
    """
    if not (isinstance(fault, FileNotFoundError) or gone(str(fault))):
        raise not_now(address, str(fault)) from fault
    if _held_back(address):
        raise _comes_back(address, "a part of its log is") from fault


def entry_actions(address: str, version: int) -> list[dict[str, Any]]:
    """The actions of one log entry of the table."""
    return actions_in(entry_bytes(address, version), address, version)


def there_actions(address: str, version: int) -> list[dict[str, Any]]:
    """As `entry_actions`. Raises RunFailed for an entry that an upkeep has yet to put back (`joining`)."""
    return actions_in(there_bytes(address, version), address, version)


def actions_in(data: bytes, address: str, version: int) -> list[dict[str, Any]]:
    try:
        return actions_of(data)
    except ValueError as fault:
        raise TableBroken(about_table(address, f"log entry {version} is truncated or was changed: {fault}")) from fault


def there_bytes(address: str, version: int, store: StoredLog | None = None) -> bytes:
    """As `entry_bytes`. Raises RunFailed for an entry that an upkeep has yet to put back."""
    try:
        return entry_bytes(address, version, store)
    except FileNotFoundError:
        if local_entry(address, version).name not in _held_back(address):
            return entry_bytes(address, version, store)  # it may have come back meanwhile
    raise _comes_back(address, f"log entry {version} is")


def _held_back(address: str) -> set[str]:
    """Names of the log's files that an upkeep has yet to put back. One that is held beside the log's own is not."""
    try:
        return {file.name for file in to_put_back(Path(address))}
    except OSError as fault:  # an upkeep is at work on them
        raise not_now(address, str(fault)) from fault


def _comes_back(address: str, what: str) -> RunFailed:
    problem = f"{what} at {Path(address) / HELD} while upkeep joins files. Retry; if the upkeep was killed, the next "
    return RunFailed(
        about_table(address, f"{problem}run or `floodmark maintain` of the rule that writes the table puts it back")
    )


def missing_files(address: str, commit: int, what: str) -> HistoryGone:
    return HistoryGone(
        about_table(
            address,
            f"of commit {commit}, {what} is gone, so its rows cannot be compared; restore it, or start over "
            "with `floodmark reset`",
        )
    )
