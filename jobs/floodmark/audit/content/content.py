"""Recompute digests of rows from files, and compare them with the ledger's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import PyFileSystem

from floodmark.audit.content.joined import total
from floodmark.audit.content.keys import doubled
from floodmark.audit.content.rowhash import RowDigest, Sums, digest
from floodmark.audit.content.statistics import misread, unbounded
from floodmark.audit.content.variants import as_texts, is_unsure
from floodmark.audit.content.vectors import unmarked
from floodmark.audit.effects.partitions import constant
from floodmark.audit.evidence import File, Finding, LogEntry, TableLog
from floodmark.audit.ledger.expected import misfiled
from floodmark.audit.ledger.generations import Backfill, Epoch
from floodmark.audit.ledger.named import Named
from floodmark.audit.logreader import store_of
from floodmark.audit.stores import unanswered
from floodmark.redaction import redacted

CLOSE = 1e-9
HUGE = 1.7e308  # near the largest double
Epochs = Mapping[tuple[int, int], Epoch]  # by generation and number
HARMED = (OSError, pa.ArrowException, ValueError, TypeError, KeyError, ArithmeticError)  # errors of damaged files
GONE = "_floodmark_gone"  # the column of an outbox that says whether a row takes its key's row away
FEED = ("_change_type", "__is_cdc")  # what Delta adds to the files of a table with a change feed


def until_unreadable(named: Named, found: Iterator[Finding]) -> Iterator[Finding]:
    """Findings, up to a file that cannot be read; `named`: the commit that they are about."""
    try:
        yield from found
    except NotImplementedError as fault:
        yield unknown(named, str(fault))
    except FileNotFoundError as fault:  # it was there when the folder was listed: what is gone then is told elsewhere
        yield unknown(named, redacted(f"a file was removed while the tables were read ({fault}): audit again"))
    except HARMED as fault:
        silence = unanswered(fault)
        what = redacted(f"a file cannot be read: {silence or fault}")
        yield named.finding(what) if silence is None else unknown(named, what)


def check_joined(files: Iterable[File], named: list[Named], log: TableLog, epochs: Epochs) -> Iterator[Finding]:
    """Differences between these files, into which those of the commits were joined, and the rows of the commits."""
    known = total([one.written["digest"] for one in named])
    store, files = store_of(log.address), list(files)
    parts = [_of_table(store, file, log) for file in files]
    rows = _together(parts)
    differing = "; ".join(differences(known, digest(rows, computed=bool(known["floats"]))))
    if differing:
        _refuse_unsure(parts)
        what = f"the files that {len(named)} commits were joined into hold other rows than the ledger says"
        yield named[-1].finding(f"{what} ({differing})")
        return
    yield from (named[-1].finding(what) for what in _unseen(store, files, parts, log))
    for one in named if named[0].table == "dead" else ():
        of, mine = epochs.get((one.generation, one.epoch)), rows.filter(pc.equal(rows["_epoch"], one.epoch))
        yield from (one.finding(said) for said in (misfiled(of.rule, of.intent["counts"], mine) if of else ()))


def check_commit(
    named: Named, log: TableLog, entry: LogEntry, missing: list[str], epochs: Epochs, whose: str = "the ledger"
) -> Iterator[Finding]:
    """Differences between the files that a commit added and the ledger, or `whose` digest it is. `missing`: those that
    are missing."""
    store, of = store_of(log.address), epochs.get((named.generation, named.epoch))
    known = named.written.get("digest")
    why = _why_not(known, missing, log, entry)
    if known is None or why is not None:
        yield unknown(named, str(why))
        return
    parts = [_of_table(store, file, log) for file in entry.files_with_rows]
    rows = _together(parts)
    differing = "; ".join(differences(known, digest(rows, computed=bool(known["floats"]))))
    if differing:
        _refuse_unsure(parts)
        yield named.finding(f"its files hold other rows than {whose} says ({differing})")
        return
    yield from (named.finding(what) for what in _unseen(store, entry.files_with_rows, parts, log))
    if named.backfill is not None and not named.backfill.keys:
        yield from (named.finding(what) for what in _replaced(named, named.backfill, rows, log, entry, store))
    elif of is not None and named.backfill is None and named.table == "dead":
        yield from (named.finding(what) for what in misfiled(of.rule, of.intent["counts"], rows))


def _replaced(
    named: Named, backfill: Backfill, rows: pa.Table, log: TableLog, entry: LogEntry, store: PyFileSystem
) -> Iterator[str]:
    """Faults of a backfill's commit: inside the interval, its rows must be the results. Outside, they must equal the
    rows of the removed files bit by bit, as long as these files exist, with their deletion vectors (and the log still
    has their partitions)."""
    if GONE in rows.column_names:
        rows = rows.drop_columns([GONE])
    if backfill.is_whole:
        yield from _unlike_results(named, rows, "rows")
        return
    intervals = backfill.intervals(named.table)
    column, _ = intervals
    if column not in rows.column_names or not pa.types.is_timestamp(rows[column].type):
        yield f"its files have no column {column} with times"
        return
    yield from _unlike_results(named, _inside(rows, intervals, True), "rows of the interval")
    if not all(file.path in log.present and log.has_vector(file.vector) for file in entry.removed):
        return
    known = {file.path: file for one in log.entries for file in one.added}
    files = [replace(known.get(file.path, file), vector=file.vector) for file in entry.removed]
    if any(file.path not in known for file in files) and any(file.partition for file in entry.files_with_rows):
        return
    parts = (unmarked(store, file, _of_table(store, file, log)) for file in files)
    before = _together([rows.slice(0, 0), *parts])
    kept, stay = (digest(_inside(table, intervals, False), computed=False) for table in (before, rows))
    if kept != stay:
        yield f"outside of the interval, the removed files held {kept.rows} rows, now there are {stay.rows}, or others"


def _unlike_results(named: Named, rows: pa.Table, which: str) -> Iterator[str]:
    results = named.written["results"]
    differing = "; ".join(differences(results, digest(rows, computed=bool(results["floats"]))))
    if differing:
        _refuse_unsure([rows])
        yield f"its files hold other {which} than its results ({differing})"


def _inside(rows: pa.Table, intervals: tuple[str, list[tuple[int, int]]], inside: bool) -> pa.Table:
    """The rows inside the intervals, or those outside."""
    column, parts = intervals
    times = rows[column].cast(pa.timestamp("us", rows[column].type.tz)).cast(pa.int64())
    each = (pc.and_(pc.greater_equal(times, low), pc.less(times, high)) for low, high in parts)
    within = pc.fill_null(reduce(pc.or_, each), False)
    return rows.filter(within if inside else pc.invert(within))


def _refuse_unsure(parts: Iterable[pa.Table]) -> None:
    """Raise NotImplementedError if the difference may be one between versions of Java."""
    if any(map(is_unsure, parts)):
        raise NotImplementedError(
            "its rows cannot be compared exactly: a variant in them holds floating point, which versions of Java write "
            "with more or fewer digits"
        )


def rows_of(store: PyFileSystem, path: str, log: TableLog, only: Sequence[str] | None = None) -> pa.Table:
    """Rows of a file of this table. Avoids pyarrow's data sets: their remaining threads at times abort the process as
    it exits.

    Variants become texts.
    """
    wanted = None if only is None else {name.lower() for name in only}
    with store.open_input_file(path) as file:
        found = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        names = found.schema_arrow.names
        rows = found.read(None if wanted is None else [name for name in names if name.lower() in wanted])
    besides = {*FEED, *log.tracking} - set(log.types)
    rows = rows.drop_columns([name for name in rows.column_names if name in besides])
    return as_texts(_zoned(rows, log.types), log.types)


def _zoned(rows: pa.Table, types: Mapping[str, Any]) -> pa.Table:
    """The rows with the zone of times that a file has as INT96, which says none."""
    for at, field in enumerate(rows.schema):
        if field.type == pa.timestamp("us") and types.get(field.name) == "timestamp":
            rows = rows.set_column(at, field.name, rows[field.name].cast(pa.timestamp("us", "UTC")))
    return rows


def check_same(before: Iterable[File], after: Iterable[File], named: Named, log: TableLog) -> Iterator[Finding]:
    """Changes by a commit that claims to change no rows. `named`: a commit that wrote some of these rows."""
    store, after = store_of(log.address), list(after)
    parts = [_of_table(store, file, log) for file in after]
    one, other = _together([_of_table(store, file, log) for file in before]), _together(parts)
    if digest(one, computed=False) != digest(other, computed=False):
        what = (
            f"the files that its own were joined into hold other rows ({one.num_rows} before, {other.num_rows} after)"
        )
        yield named.finding(what)
        return
    yield from (named.finding(what) for what in _unseen(store, after, parts, log))


def check_keys(files: Iterable[File], key: Sequence[str], named: Named, log: TableLog) -> Iterator[Finding]:
    """Rows that share a key, in these files, which are all that readers see."""
    store = store_of(log.address)
    parts = [unmarked(store, file, _of_table(store, file, log, key)) for file in files]
    yield from (named.finding(what) for what in doubled(parts, key))


def _together(parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts, promote_options="default")


def _of_table(store: PyFileSystem, file: File, log: TableLog, only: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file, with the partition columns of the log: every reader takes these from the log, even if the
    file has such a column. `only`: columns, in any case; else all of them."""
    rows = rows_of(store, file.path, log, only)
    rows = rows.drop_columns([name for name in rows.column_names if name in file.partition])
    for name, text in file.partition.items():
        rows = rows.append_column(name, constant(text, log.types[name], rows.num_rows))
    return rows


def _unseen(store: PyFileSystem, files: Iterable[File], parts: Iterable[pa.Table], log: TableLog) -> Iterator[str]:
    """Files whose rows readers of the newest version do not see as they are. `parts`: the rows of each."""
    for file, rows in zip(files, parts, strict=True):
        newest = log.newest.get(file.path, file)
        if file.path in log.live:
            whats = list(misread(rows, newest, log))
            yield from whats
            if not whats and log.has_vector(newest.vector):
                yield from unbounded(unmarked(store, newest, rows), newest)


def _why_not(known: Mapping[str, Any] | None, missing: list[str], log: TableLog, entry: LogEntry) -> str | None:
    """Why the rows cannot be recomputed; None if they can."""
    if known is None:
        return "the ledger has no digest of its rows: it was written before digests were introduced"
    if missing:
        return f"its rows cannot be recomputed: {missing[0]} was replaced by a later commit, and removed"
    if not log.plain or not all(file.vector is None for file in entry.files_with_rows):
        return "its rows cannot be recomputed: the table has renamed columns or deletion vectors"
    return None


def unknown(named: Named, what: str) -> Finding:
    return Finding("unknown", what, named.generation, named.epoch, named.table, named.commit)


def differences(known: Mapping[str, Any], found: RowDigest) -> Iterator[str]:
    """Differences between the ledger's digest and the recomputed one, as messages."""
    if known["rows"] != found.rows:
        yield f"{known['rows']} rows, found {found.rows}"
    elif (int(known["high"]), int(known["low"])) != (found.high, found.low):
        yield "another hash"
    for path in sorted({*known["floats"], *found.floats}):
        if not _agrees(known["floats"].get(path), found.floats.get(path)):
            yield f"column {path}"


def _agrees(known: Mapping[str, Any] | None, found: Sums | None) -> bool:
    if known is None or found is None or (known["nulls"], known["nans"]) != (found.nulls, found.nans):
        return False
    sizes = float(known["size"]), found.size
    if max(sizes) > HUGE:  # whether parts of the sum overflow depends on the order of addition
        return min(sizes) > HUGE
    within = CLOSE * max(sizes)
    return abs(float(known["sum"]) - found.sum) <= within and abs(sizes[0] - sizes[1]) <= within
