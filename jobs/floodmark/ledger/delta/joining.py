"""Joins small files of a table, by delta-rs and without a JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import ColumnProperties, DeltaTable, PostCommitHookProperties, WriterProperties

from floodmark.core.text.tablenames import about_table
from floodmark.errors import TableBroken
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.damage import HELD, link, restore_log
from floodmark.ledger.delta.syncing import sync_table

# Checkpoints and cuts of the log are made by what is needed (`maintenance`); delta-rs would go by age alone.
NO_HOOK = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
DIGITS = 15  # of a DECIMAL, which a double holds
# Types whose bounds delta-rs writes as Spark does, or wider.
BOUNDED = frozenset({"boolean", "byte", "short", "integer", "long", "date", "string", "binary", "timestamp",
                     "timestamp_ntz"})  # fmt: skip
TARGET = 100 * 1024 * 1024  # bytes of a file after which another starts
SAFE = "/=+,;@$&!()"  # beside letters and digits of ASCII, and `_.-`: delta-rs writes them as Spark does
ODD = frozenset("~*[]")  # it does not find files with these in their path


def small(table: DeltaTable) -> int:
    """How many files are worth joining: those of a partition with several files below half of the target size."""
    return sum(map(len, _several(table, TARGET // 2)))


def joined(table: DeltaTable) -> list[str]:
    """The files, as the log spells them, that `compact` may read."""
    return [path for paths in _several(table, TARGET) for path in paths]


def _several(table: DeltaTable, below: int) -> list[list[str]]:
    """The files of fewer than `below` bytes, by partition, for partitions with more than one."""
    actions = table.get_add_actions(flatten=True)
    parts = [name for name in actions.column_names if name.startswith("partition.")]
    found: dict[tuple[object, ...], list[str]] = {}
    columns = [datafiles.values_of(actions[name]) for name in ("path", "size_bytes", *parts)]
    for path, size, *part in zip(*columns, strict=True):
        found.setdefault(tuple(part), []).extend([path] if size < below else [])
    return [paths for paths in found.values() if len(paths) > 1]


def compact(address: str) -> None:
    """Join small files, in one commit that changes no row.

    Raises as delta-rs does, and TableBroken if it removed a file under another path than the log has it.
    """
    table = DeltaTable(address)
    before, how = table.version(), writing(tables.columns_of(table))
    live = set(datafiles.values_of(table.get_add_actions()["path"]))
    with _log_held(Path(address)):
        table.optimize.compact(target_size=TARGET, post_commithook_properties=NO_HOOK, writer_properties=how)
    for version in range(before + 1, table.version() + 1):
        _check_removed(address, version, live)
        _vouch_for(address, version)
    sync_table(address)


def _check_removed(address: str, version: int, live: set[str]) -> None:
    gone = (action["remove"]["path"] for action in tables.entry_actions(address, version) if "remove" in action)
    path = next((path for path in gone if path not in live), None)
    if path is not None:
        problem = (
            f"expected commit {version}, which joins files, to remove files of version {version - 1}, found {path}: "
            "its log has no file under that path, so readers see rows twice; restore the version before it with "
            f"`RESTORE TABLE delta.`{address}` TO VERSION AS OF {version - 1}`, or recompute the rows with "
            "`floodmark reset`, and report this as a bug"
        )
        raise TableBroken(about_table(address, problem))


def odd_paths(table: DeltaTable) -> str:
    """Whether the path of a file to be joined is one that delta-rs would spell otherwise; '' if there is none.

    It would remove the file under a path that the log does not have, so that readers see the rows twice.
    """
    path = next((path for path in joined(table) if is_odd(path)), None)
    return "" if path is None else f"paths that delta-rs spells otherwise, such as {path}"


def is_odd(path: str) -> bool:
    """Whether delta-rs would possibly spell a path of the log otherwise, such as `k=München`: as `k=M%C3%BCnchen`."""
    name = unquote(path)
    return not name.isascii() or not ODD.isdisjoint(name) or quote(name, safe=SAFE) != path


def writing(columns: Mapping[str, str]) -> WriterProperties:
    """How joined files are written: bounds in the log for columns of these types alone.

    delta-rs writes a DECIMAL's as floating point, and leaves NaN out of a float's, which Spark holds to be the largest
    value. Spark would then pass over files with rows that it looks for.
    """
    bounded = [name for name, kind in columns.items() if kind in BOUNDED or _is_short(kind)]
    return WriterProperties(
        compression="ZSTD",  # as delta-rs writes by default
        compression_level=4,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={name: ColumnProperties(statistics_enabled="PAGE") for name in bounded},
    )


def _is_short(kind: str) -> bool:
    """Whether a DECIMAL has so few digits that floating point holds each value apart from others."""
    found = re.fullmatch(r"decimal\((\d+),\s*\d+\)", kind)
    return found is not None and int(found[1]) <= DIGITS


def has_old_times(table: DeltaTable) -> str:
    """Whether a file to be joined has times of Parquet's type INT96, as Spark writes them by default; '' if none has.

    delta-rs counts these in nanoseconds from 1677 to 2262, and gives other times wrong values.
    """
    if '"timestamp' not in table.schema().to_json():
        return ""
    root = Path(datafiles.root_of(table).removeprefix("file://"))
    kinds = chain.from_iterable(_leaves(root / unquote(path)) for path in joined(table))
    old = any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in kinds)
    return "times of Parquet's type INT96" if old else ""


def _leaves(file: Path) -> Iterator[pa.DataType]:
    """All types in a file, nested ones included; none if it is damaged, which is found before it is joined."""
    try:
        waiting = list(pq.read_schema(file).types)
    except (pa.ArrowException, OSError):
        return
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting += [kind.field(i).type for i in range(kind.num_fields)]


@contextmanager
def _log_held(root: Path) -> Iterator[None]:
    """Put back the log files that delta-rs cuts while it joins files.

    When it joins files, delta-rs ignores NO_HOOK and cuts the log by its files' age. It also cuts entries that readers
    need, and up to a checkpoint that lacks a part. The files keep their times, by which readers know when a version
    was committed. After a kill, the next run or upkeep puts them back.
    """
    restore_log(root)
    held = root / HELD
    held.mkdir()
    for file in (root / "_delta_log").iterdir():
        if file.is_file():
            link(file, held / file.name)
    try:
        yield
    finally:
        restore_log(root)


def _vouch_for(address: str, version: int) -> None:
    """Write Hadoop's checksums, which delta-rs does not, for a log entry and the files that it adds."""
    root = Path(address)
    files = (root / unquote(path) for path in datafiles.added_paths(address, version))
    for file in (*filter(Path.exists, files), root / "_delta_log" / f"{version:020}.json"):
        tables.write_sums(file)
