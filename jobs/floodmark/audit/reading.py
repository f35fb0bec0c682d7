"""What the auditor reads: the ledger's rows, and the logs and folders of tables. By delta-rs, without Spark."""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from floodmark.audit.facts import File, LogEntry, Row, TableLog

Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
ENTRY = re.compile(r"_delta_log/(\d{20})\.json$")


class Unreadable(Exception):
    """A table's log or one of its files is missing, or is not what it must be."""


@contextmanager
def reading() -> Iterator[None]:
    """Of all that can come of damaged files: delta-rs and Arrow's errors, plain exceptions and Rust's panics."""
    try:
        yield
    except BaseException as fault:
        if not isinstance(fault, Exception) and type(fault).__name__ != "PanicException":
            raise
        said = str(fault).strip().split("\n", 1)[0]
        raise Unreadable(f"{type(fault).__name__}: {said}") from fault


def read_ledger(address: str) -> tuple[str, list[Row]] | None:
    """The ledger's id and its rows, by number; None where there is none. Raises Unreadable."""
    with reading():
        return _read_ledger(address)


def _read_ledger(address: str) -> tuple[str, list[Row]] | None:
    try:
        table = DeltaTable(address)
    except TableNotFoundError:
        return None
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY seq").read_all()
    columns = {name: values_of(found[name]) for name in found.column_names}
    rows = zip(*(columns[name] for name in Row.__dataclass_fields__), strict=True)
    return str(table.metadata().id), [Row(*row) for row in rows]


def read_table(address: str) -> TableLog:
    """A table's log and folder. Raises Unreadable."""
    with reading():
        return _read_table(address)


def _read_table(address: str) -> TableLog:
    try:
        table = DeltaTable(address)
    except TableNotFoundError:
        return TableLog(address, None)
    store = store_of(address)
    actions = table.get_add_actions(flatten=True)
    paths, sizes = (values_of(actions[name]) for name in ("path", "size_bytes"))
    metadata = table.metadata()
    entries = sorted(_entries(store), key=lambda entry: entry.version)
    return TableLog(
        address=address,
        id=str(metadata.id),
        entries=tuple(entries),
        live={unquote(path): size for path, size in zip(paths, sizes, strict=True)},
        there=_folder(store),
        plain=metadata.configuration.get("delta.columnMapping.mode", "none") == "none",
        types={column["name"]: column["type"] for column in json.loads(table.schema().to_json())["fields"]},
    )


def values_of(column: Any) -> list[Any]:
    """Python's values of an Arrow column."""
    return [value.as_py() for value in column]


def store_of(address: str) -> PyFileSystem:
    return PyFileSystem(DeltaStorageHandler(address))


def _folder(store: PyFileSystem) -> dict[str, int]:
    """Sizes of all files in a table's folder, but its log."""
    found = store.get_file_info(FileSelector("", recursive=True))
    files = ((info.path.lstrip("/"), info.size) for info in found if info.type == FileType.File)
    return {path: size for path, size in files if not path.startswith("_delta_log/")}


def _entries(store: PyFileSystem) -> Iterator[LogEntry]:
    for info in store.get_file_info(FileSelector("_delta_log", recursive=False)):
        found = ENTRY.search(info.path)
        if found:
            with store.open_input_file(info.path) as file:
                yield _entry(int(found[1]), bytes(file.read()).decode())


def _entry(version: int, text: str) -> LogEntry:
    actions = [json.loads(line) for line in text.splitlines() if line]
    info = _first(actions, "commitInfo")
    adds, removes = ([action[kind] for action in actions if kind in action] for kind in ("add", "remove"))
    return LogEntry(
        version=version,
        transactions=tuple((a["txn"]["appId"], a["txn"]["version"]) for a in actions if "txn" in a),
        said=_said(info.get("userMetadata")),
        operation=str(info.get("operation", "")),
        added=tuple(map(_file, adds)),
        removed=tuple(unquote(remove["path"]) for remove in removes),
        changes=any(action.get("dataChange", True) for action in (*adds, *removes)),
        owner=_first(actions, "metaData").get("configuration", {}).get("floodmark.owner"),
    )


def _first(actions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((action[kind] for action in actions if kind in action), {})


def _said(text: str | None) -> dict[str, Any]:
    """The metadata of a commit of ours; nothing where it is somebody's own text."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _file(add: dict[str, Any]) -> File:
    rows = json.loads(add.get("stats") or "{}").get("numRecords")
    vector = add.get("deletionVector")
    return File(unquote(add["path"]), add["size"], rows, not vector, _vector(vector), add.get("partitionValues") or {})


def _vector(descriptor: dict[str, Any] | None) -> str | None:
    """Its file: named by a UUID, spelled by 20 characters of Z85, which are five for every four bytes."""
    if not descriptor or descriptor["storageType"] != "u":
        return None
    folder, name = descriptor["pathOrInlineDv"][:-20], descriptor["pathOrInlineDv"][-20:]
    groups = (functools.reduce(lambda sum_, c: sum_ * 85 + Z85.index(c), name[i : i + 5], 0) for i in range(0, 20, 5))
    found = UUID(bytes=b"".join(group.to_bytes(4, "big") for group in groups))
    return f"{folder}/deletion_vector_{found}.bin".lstrip("/")
