"""Read the ledger's rows, and the logs and folders of tables, for the auditor. Uses delta-rs, not Spark."""

from __future__ import annotations

import functools
import json
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote
from uuid import UUID

import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileType, PyFileSystem

from floodmark.audit.evidence import Base, File, LogEntry, Row, TableLog, Vector
from floodmark.audit.stores import unanswered
from floodmark.redaction import redacted

FRAME = 8  # bytes around a deletion vector in its file: four of its size, four of its checksum
Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
ENTRY = re.compile(r"_delta_log/(\d{20})\.json$")
COMPACTED = re.compile(r"_delta_log/(\d{20})\.(\d{20})\.compacted\.json$")
CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet$")
UNSUPPORTED = re.compile(r"Feature '.*' is not supported|Unsupported (table features|minimum reader)|catalog-managed")


TRACKING = "delta.rowTracking.materialized"  # begins properties that name columns which OPTIMIZE writes
# Of a checkpoint. Bounds that Spark repeats as columns, `stats_parsed`, may be times that Python does not have.
READ = [
    *(f"add.{name}" for name in ("path", "partitionValues", "size", "stats", "deletionVector")),
    "metaData.configuration",
    "sidecar",
]
LOOKS = 5  # at a table that gets commits meanwhile
LEDGER_APP = "floodmark.ledger"  # app id under which each row of a ledger records its number


class LedgerRead(NamedTuple):
    """A ledger's id, its rows by number, and the number of rows that its log records."""

    id: str
    rows: list[Row]
    counted: int


class Unreadable(Exception):
    """A table's log or one of its files is missing or damaged."""

    verdict: Literal["broken", "unknown"] = "broken"


class Unsupported(Unreadable):
    """A table that may be intact, with a feature that delta-rs cannot read."""

    verdict = "unknown"


class Unanswered(Unreadable):
    """A table that may be intact, in a store that does not answer."""

    verdict = "unknown"


class Moving(Unreadable):
    """A table whose log is cleaned up while it is read."""

    verdict = "unknown"


@contextmanager
def read_errors() -> Iterator[None]:
    """Raise Unreadable for every error of files or stores: delta-rs' and Arrow's, Python's own and Rust's panics."""
    try:
        yield
    except BaseException as fault:
        if not isinstance(fault, Exception) and type(fault).__name__ != "PanicException":
            raise
        silence = unanswered(fault)
        if silence is not None:
            raise Unanswered(redacted(silence)) from fault
        action = str(fault).strip().split("\n", 1)[0]
        kind = Unsupported if UNSUPPORTED.search(action) else Unreadable
        raise kind(redacted(f"{type(fault).__name__}: {action}")) from fault


def read_ledger(address: str) -> LedgerRead | None:
    """The ledger at an address; None if there is none. Raises Unreadable."""
    with read_errors():
        return _read_ledger(address)


def _read_ledger(address: str) -> LedgerRead | None:
    try:
        table = DeltaTable(address)
    except TableNotFoundError:
        return None
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY seq").read_all()
    columns = {name: values_of(found[name]) for name in found.column_names}
    rows = zip(*(columns[name] for name in Row.__dataclass_fields__), strict=True)
    counted = table.transaction_version(LEDGER_APP) or 0
    return LedgerRead(str(table.metadata().id), [Row(*row) for row in rows], counted)


def counted_in(address: str) -> int:
    """How many rows the log of the ledger at an address records now. Raises Unreadable."""
    with read_errors():
        return DeltaTable(address).transaction_version(LEDGER_APP) or 0


def read_table(address: str) -> TableLog:
    """A table's log and folder, as of one version. Raises Unreadable."""
    found = None
    for _ in range(LOOKS):
        with read_errors(), suppress(FileNotFoundError):  # of an entry that was cleaned up since it was listed
            found = _read_table(address)
        if found is not None and found.last <= found.version:
            break  # else it has got a commit meanwhile, or a hole, and ends before that
    if found is None:
        raise Moving(f"{LOOKS} times, files of its log were gone when they were to be read; audit again")
    return found


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
    first = entries[0].version if entries else table.version() + 1
    return TableLog(
        address=address,
        id=str(metadata.id),
        entries=tuple(entries),
        live={unquote(path): size for path, size in zip(paths, sizes, strict=True)},
        present=_folder(store),
        plain=metadata.configuration.get("delta.columnMapping.mode", "none").lower() == "none",
        types={column["name"]: column["type"] for column in json.loads(table.schema().to_json())["fields"]},
        tracking=frozenset(
            value for name, value in metadata.configuration.items() if name.startswith(TRACKING) and value
        ),
        checkpoint=_checkpoint(store, (first - 1, first)) if first > 0 else None,
        shown=_checkpoint(store, range(table.version(), first, -1)),
        version=table.version(),
        compacted=_compacted(store),
        twice=tuple(path for path, count in Counter(map(unquote, paths)).items() if count > 1),
        partitions=tuple(metadata.partition_columns),
    )


def values_of(column: Any) -> list[Any]:
    """Python's values of an Arrow column."""
    return [value.as_py() for value in column]


def store_of(address: str) -> PyFileSystem:
    return PyFileSystem(DeltaStorageHandler(address))


def _folder(store: PyFileSystem) -> dict[str, int]:
    """Path → size of each file in a table's folder, without its log."""
    found = store.get_file_info(FileSelector("", recursive=True))
    files = ((info.path.lstrip("/"), info.size) for info in found if info.type == FileType.File)
    return {path: size for path, size in files if not path.startswith("_delta_log/")}


def _entries(store: PyFileSystem) -> Iterator[LogEntry]:
    for info in store.get_file_info(FileSelector("_delta_log", recursive=False)):
        found = ENTRY.search(info.path)
        if found:
            with store.open_input_file(info.path) as file:
                yield _entry(int(found[1]), bytes(file.read()))


def _compacted(store: PyFileSystem) -> dict[tuple[int, int], LogEntry]:
    """By first and last version: what readers may read in place of these entries."""
    found: dict[tuple[int, int], LogEntry] = {}
    for info in store.get_file_info(FileSelector("_delta_log", recursive=False)):
        named = COMPACTED.search(info.path)
        if named:
            with store.open_input_file(info.path) as file:
                found[int(named[1]), int(named[2])] = _entry(int(named[2]), bytes(file.read()))
    return found


def _checkpoint(store: PyFileSystem, versions: Iterable[int]) -> Base | None:
    """The checkpoint of the first of these versions that has one."""
    found: dict[int, list[str]] = {}
    for info in store.get_file_info(FileSelector("_delta_log", recursive=False)):
        named = CHECKPOINT.search(info.path)
        if named:
            found.setdefault(int(named[1]), []).append(info.path)
    version = next((one for one in versions if one in found), None)
    return None if version is None else _base(store, version, found[version])


def _base(store: PyFileSystem, version: int, parts: list[str]) -> Base | None:
    files, owner = dict[tuple[str, str], File](), None
    for path in parts:
        with store.open_input_file(path) as file:
            content = pq.ParquetFile(file).read(READ)
        if "sidecar" in content.column_names and content["sidecar"].null_count < content.num_rows:
            return None  # other files list the table's files
        files |= {one.key: one for one in (_file(add) for add in values_of(content["add"]) if add)}
        for found in filter(None, values_of(content["metaData"])):
            owner = dict(found["configuration"]).get("floodmark.owner")
    return Base(version, files, owner)


def _entry(version: int, data: bytes) -> LogEntry:
    """Split bytes, not text: Python treats some characters that JSON may hold as line ends."""
    actions = [json.loads(line) for line in data.splitlines() if line]
    info = _first(actions, "commitInfo")
    adds, removes = ([action[kind] for action in actions if kind in action] for kind in ("add", "remove"))
    return LogEntry(
        version=version,
        transactions=tuple((a["txn"]["appId"], a["txn"]["version"]) for a in actions if "txn" in a),
        metadata=_metadata(info.get("userMetadata")),
        operation=str(info.get("operation", "")),
        added=tuple(map(_file, adds)),
        removed=tuple(map(_file, removes)),
        changes=any(action.get("dataChange", True) for action in (*adds, *removes)),
        owner=_first(actions, "metaData").get("configuration", {}).get("floodmark.owner"),
        declared=_declared(_first(actions, "metaData")),
    )


def _declared(metadata: dict[str, Any]) -> dict[str, Any]:
    """What readers of rows go by; empty without metadata."""
    if not metadata:
        return {}
    facts = {name: metadata.get(name) or None for name in ("partitionColumns", "configuration")}
    return {"schema": json.loads(metadata.get("schemaString") or "null"), **facts}


def _first(actions: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    return next((action[kind] for action in actions if kind in action), {})


def _metadata(text: str | None) -> dict[str, Any]:
    """The JSON object in a commit's metadata; empty if it is another program's text."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _file(action: dict[str, Any]) -> File:
    """A file from an action of the log that adds or removes it."""
    bounds = json.loads(action.get("stats") or "{}", parse_float=Decimal)
    rows = bounds.pop("numRecords", None)
    vector, partition = action.get("deletionVector"), dict(action.get("partitionValues") or {})
    return File(
        unquote(action["path"]), action.get("size") or 0, rows, _vector(vector) if vector else None, partition, bounds
    )


def _vector(action: dict[str, Any]) -> Vector:
    start = action.get("offset") or 0
    id_ = f"{action['storageType']}{action['pathOrInlineDv']}@{start}"
    size = action["sizeInBytes"]
    text = action["pathOrInlineDv"] if action["storageType"] == "i" else None
    return Vector(id_, action["cardinality"], _vector_file(action), start + size + FRAME, size, text)


def _vector_file(descriptor: dict[str, Any]) -> str | None:
    """A vector's file: its name is a UUID, encoded as 20 characters of Z85 (five for every four bytes)."""
    if descriptor["storageType"] != "u":
        return None
    folder, name = descriptor["pathOrInlineDv"][:-20], descriptor["pathOrInlineDv"][-20:]
    groups = (functools.reduce(lambda sum_, c: sum_ * 85 + Z85.index(c), name[i : i + 5], 0) for i in range(0, 20, 5))
    found = UUID(bytes=b"".join(group.to_bytes(4, "big") for group in groups))
    return f"{folder}/deletion_vector_{found}.bin".lstrip("/")
