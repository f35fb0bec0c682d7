"""Forgets what lies beside the rows of a rule's own tables: old data files, log entries with statistics, leftovers.

The newest version of a table is all that stays: its files, a checkpoint of it, and its own log entry. Only the rule and
its pages read these tables; one that has an older version open then misses files, and reads again. Each step can be
repeated after a kill.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from deltalake import DeltaTable

from floodmark.core.lifecycle.cleanup import is_plain
from floodmark.core.lifecycle.life import check_forgettable, check_not_forgetting, condition_digest
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Forgetting, Row
from floodmark.core.sql import columns_in
from floodmark.core.text.tablenames import about_named, about_table
from floodmark.errors import Busy, Refused, RunFailed, TableBroken
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.delta.damage import HINT, listed, unreadable_checkpoint
from floodmark.ledger.delta.syncing import sync_log
from floodmark.ledger.dropping import remove_trash
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.home import Home
from floodmark.ledger.landings import OUTBOX, ROLE
from floodmark.ledger.ledger import LedgerReader

LOG = "_delta_log"


@dataclass(frozen=True)
class OwnTable:
    """A table in the rule's home. `name`: the ledger's; of an earlier generation's state, with the generation."""

    name: str
    address: str

    @property
    def is_old(self) -> bool:
        """Whether it is state of an earlier generation, which nothing reads any more."""
        return bool(re.match(r"state/g\d+/", self.name))


def own_tables(head: Head, home: Home) -> list[OwnTable]:
    """All tables with rows in the rule's home: state, late, dead, and what earlier generations have left of state."""
    known_now = {**head.table_ids, **head.written}  # older ledgers lack ids of state that only a backfill has written
    mine = [name for name in known_now if not TableName.parse(name).is_sink]
    now = [OwnTable(name, str(home.path / TableName.parse(name).in_generation(head.generation))) for name in mine]
    known = {one.address for one in now}
    left = sorted(place for place in home.path.glob("state/g*/*") if place.is_dir() and str(place) not in known)
    return [*now, *(OwnTable(str(place.relative_to(home.path)), str(place)) for place in left)]


def copies(home: Home) -> list[OwnTable]:
    """The landings, outboxes and refused rows in the rule's home, also those that the rule no longer uses."""
    places = (place for role in (ROLE, OUTBOX, "undelivered") for place in home.path.glob(f"{role}/*"))
    found = sorted(place for place in places if (place / LOG).is_dir())
    return [OwnTable(str(place.relative_to(home.path)), str(place)) for place in found]


def check_forget_ended(home: Home, head: Head) -> None:
    """Raise Refused if a forget was left unfinished, and Busy while one is at work. `head`: read just before."""
    if head.forgetting is None:
        return
    if holder_pid(home.lock) is not None:
        raise Busy(holder_text(home.lock))
    ledger = LedgerReader.load(home.ledger)
    if ledger is not None and ledger.head is not None:  # it may have ended since
        check_not_forgetting(ledger.head, home.rule)


def check_askable(ledger: LedgerReader, home: Home, where: str) -> Forgetting | None:
    """The forget that is to be continued, if one has not finished.

    Raises Refused if rows cannot be forgotten now, or if no table has the columns of the condition.
    """
    head, wanted = ledger.begun, columns_in(where)
    asked = check_forgettable(head, home.rule, condition_digest(ledger.id, where))
    mine = [*own_tables(head, home), *copies(home)]
    if asked is None and all(lacks(one, wanted) for one in mine):
        known = "; ".join(f"{one.name}: {', '.join(there)}" for one in mine if (there := _columns(one.address)))
        raise Refused(
            f"--where: no table of rule {home.rule} has {', '.join(wanted)}; expected columns of one of them: {known}"
        )
    return asked


def lacks(one: OwnTable, wanted: Sequence[str]) -> str:
    """Why a table cannot be looked at; '' if it can. `wanted`: columns, in lower case."""
    columns = {name.lower() for name in _columns(one.address)}
    lacking = [name for name in wanted if name not in columns]
    if not columns:
        return "no table is there"
    return f"has no column {', '.join(lacking)}" if lacking else ""


def _columns(address: str) -> list[str]:
    table = tables.open_table(address)
    return [] if table is None else list(tables.columns_of(table))


def check_purgeable(one: OwnTable) -> None:
    """Refuse a table with features by which delta-rs cannot write a checkpoint."""
    protocol = DeltaTable(one.address).protocol()
    if not is_plain(protocol.min_writer_version, protocol.writer_features):
        said = ", ".join(sorted(protocol.writer_features or [])) or f"writer version {protocol.min_writer_version}"
        raise Refused(
            about_named(one.name, f"its old log entries cannot be removed, because it uses {said}. Nothing was changed")
        )


def files_beside(address: str) -> list[Path]:
    """The Parquet files in a table's folder that its newest version does not have."""
    live = _live_files(DeltaTable(address), address)
    return [file for file in files_in(address) if file not in live]


def _live_files(table: DeltaTable, address: str) -> set[Path]:
    """The files of the newest version, spelt as a walk through `address` spells them.

    delta-rs resolves links and `..` in the table's folder, so only paths within the table can be compared.
    """
    return {Path(address, path) for path in datafiles.paths_in(table)}


def files_in(address: str) -> list[Path]:
    """The Parquet files in a folder, without those of a log."""
    return sorted(file for file in Path(address).rglob("*.parquet") if LOG not in file.relative_to(address).parts)


def unseen_bounds(address: str) -> set[str]:
    """The columns of which the log has smallest and largest values in files that are gone, in lower case.

    Nobody can tell whose they are.
    """
    found = set[str]()
    for file, bounds in _logged(Path(address) / LOG):
        if not (Path(address) / unquote(file)).exists():
            found |= {name.lower() for kind in ("minValues", "maxValues") for name in bounds.get(kind, {})}
    return found


def _logged(log: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each file that an entry or a checkpoint of a log adds or removes, with its statistics."""
    for place in log.glob("*.json"):
        for line in place.read_bytes().splitlines():
            action = json.loads(line)
            for kind in ("add", "remove"):
                if kind in action:
                    yield action[kind]["path"], json.loads(action[kind].get("stats") or "{}")
    for place in log.glob("*.checkpoint*.parquet"):
        yield from _in_checkpoint(place)


def _in_checkpoint(place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow.parquet as pq

    for add in pq.ParquetFile(place).read(["add.path", "add.stats"])["add"].to_pylist():
        if add is not None:
            yield add["path"], json.loads(add.get("stats") or "{}")


def purge(rule: str, address: str) -> int:
    """Remove all of a table's folder that its newest version does not need. Returns that version.

    Its log entry, the first that is left, is the caller's, and names no file.
    """
    table, log = DeltaTable(address), Path(address) / LOG
    version = table.version()
    if unreadable_checkpoint(address, version) is not None:
        table.create_checkpoint()
    reach(rule, "forget.checkpoint.during")
    name, *more = listed(_names(log)).checkpoints[version]
    if more:
        said = f"expected one checkpoint of its newest version {version}, in one file, found {len(more) + 1} files"
        way = f"if the log has all entries from 0 on, move these and {HINT} out of it, and forget again"
        raise TableBroken(about_table(address, f"{said}; nothing of it was removed; {way}"))
    actions = _strip(log / name)
    tables.write_whole(log / HINT, json.dumps({"version": version, "size": actions}).encode())
    for written in (name, HINT):
        tables.write_sums(log / written)
    sync_log(address, (name, HINT))
    fault = unreadable_checkpoint(address, version)
    if fault is not None:
        raise TableBroken(about_table(address, f"{fault}; nothing of it was removed"))
    reach(rule, "forget.checkpoint.after")
    remove_needless(rule, address)
    _remove(rule, "forget.log.during", _needless_entries(log, version))
    return version


def _strip(checkpoint: Path) -> int:
    """Leave out of a checkpoint the files that were removed, which delta-rs repeats with their statistics.

    Only VACUUM reads these, and it has nothing left to remove. Returns how many actions stay.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = pq.ParquetFile(checkpoint).read()
    left = found.filter(pc.is_null(found["remove"])) if "remove" in found.column_names else found
    new = checkpoint.with_name(f".{checkpoint.name}.new")
    pq.write_table(left, new)
    new.replace(checkpoint)
    return int(left.num_rows)


def _names(log: Path) -> list[str]:
    return [file.name for file in log.iterdir()]


def remove_needless(rule: str, address: str) -> None:
    """Remove all data files that the newest version of a table does not need."""
    _remove(rule, "forget.files.during", _needless_files(DeltaTable(address), address))


def _needless_files(table: DeltaTable, address: str) -> list[Path]:
    """Everything outside of the log but the live files and their checksums.

    Raises TableBroken if a live file is not among the files found: then what looks needless may be needed.
    """
    live = _live_files(table, address)
    found = {file for file in Path(address).rglob("*") if file.is_file()}
    if not live <= found:
        said = f"expected its {len(live)} live files in its folder, found {len(live & found)} of them"
        raise TableBroken(
            about_table(address, f"{said}; {min(live - found)} is missing. No file of it was removed; {tables.ANEW}")
        )
    kept = live | {file.with_name(f".{file.name}.crc") for file in live}
    return sorted(file for file in found - kept if LOG not in file.relative_to(address).parts)


def _needless_entries(log: Path, version: int) -> list[Path]:
    """The files of versions before this one, the oldest first, so that the log never has a gap; then leftovers."""
    found = [(_version(file), file.name, file) for file in log.rglob("*") if file.is_file()]
    kept = (HINT, f".{HINT}.crc")
    older = sorted((number, name, file) for number, name, file in found if number is not None and number < version)
    other = (file for number, name, file in found if number is None and name not in kept)
    return [*(file for _, _, file in older), *other]


def _version(file: Path) -> int | None:
    number = file.name.lstrip(".").split(".", 1)[0]
    return int(number) if number.isdigit() and len(number) == 20 else None


def _remove(rule: str, point: str, files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)
        reach(rule, point)


def remove_folder(home: Home, name: str) -> None:
    """Remove a table of an earlier generation, as a whole. Raises RunFailed if some of it cannot be removed."""
    place = home.path / name
    try:
        if place.exists() or place.is_symlink():
            remove_trash(place)
    except OSError as fault:
        why = f"{place} cannot be removed: {fault.filename or place}: {fault.strerror or fault}"
        raise RunFailed(about_named(name, f"{why}. Once it can, forget again")) from fault
    reach(home.rule, "forget.state.removed")


def mentions(rows: Iterable[Row], values: Iterable[str]) -> dict[int, str]:
    """The rows of the ledger whose text has one of these values as a word of its own: number of the row -> its kind.

    Offsets and digests do not count: a number in them is no value of a row.
    """
    spelt = {form for value in values if value for form in _forms(value)}
    wanted = [re.compile(rf"(?<!\w){re.escape(form)}(?!\w)") for form in spelt]
    return {row.seq: row.kind for row in rows if wanted and any(one.search(_said(row)) for one in wanted)}


def naming(home: Home, values: Iterable[str]) -> list[str]:
    """The files of what sources remember that have one of these values: a list of files has their names.

    As paths below the rule's home. Names may spell a value as JSON or an address does.
    """
    spelt = {form for value in values if value for form in (value, json.dumps(value)[1:-1], quote(value))}
    wanted = [re.compile(rf"(?<![^\W_]){re.escape(form)}(?![^\W_])") for form in spelt]
    files = sorted(file for file in (home.path / "sources").rglob("*") if file.is_file())
    texts = ((str(file.relative_to(home.path)), file.read_text(errors="replace")) for file in files)
    return [name for name, text in texts if any(one.search(text) for one in wanted)]


def _forms(value: str) -> set[str]:
    """A text as it is, and as SQL may spell it within quotes."""
    return {value.replace(mark, form) for mark in "'\"" for form in (mark, mark * 2, f"\\{mark}")}


def _said(row: Row) -> str:
    """What a row says in words: the rule's text, conditions of replays, failed checks."""
    body = json.loads(row.body)
    replay = body.get("replay") or {}
    rule = [] if body.get("rule") is None else _leaves(json.loads(body["rule"]))
    found = [*rule, body.get("said"), replay.get("where"), *(replay.get("corrected") or {}).values()]
    return "\n".join(str(one) for one in found if one)


def _leaves(value: Any) -> Iterator[Any]:
    """All texts and numbers within a value of JSON, and the keys of its objects."""
    if isinstance(value, dict):
        yield from value
        yield from _leaves(list(value.values()))
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
    else:
        yield value
