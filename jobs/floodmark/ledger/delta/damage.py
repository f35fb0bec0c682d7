"""Finds damage in the files of a table in a local folder: which file, and what is wrong with it.

A table's log entries are authoritative. Checkpoints, `_last_checkpoint` and Delta's own checksum files only repeat
them: a damaged one of these can be removed if the entries exist.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from floodmark.errors import RunFailed
from floodmark.ledger.delta.hadoopsums import fits
from floodmark.ledger.delta.storefaults import cannot_take, make_room

HELD = "_floodmark_log"  # a folder of the table, for the log's files while files are joined; readers pass over it
PART = ".new"  # ends the name of a copy in the making, which begins with a dot
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:.+\.)?(?:parquet|json)")
_PART = re.compile(r"(\d{20}\.checkpoint)\.\d{10}\.(\d{10})\.parquet")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_SUMS = re.compile(r"\.(\d{20})\.json\.crc")
HINT = "_last_checkpoint"
PARQUET_END = b"PAR1"
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)  # other errors of the system may pass; corrupt content has none


@dataclass(frozen=True)
class Listed:
    """The contents of a `_delta_log`: names by version, in order.

    `checksums`: Delta's; `sums`: Hadoop's, of entries.
    """

    entries: dict[int, str] = field(default_factory=dict)
    checkpoints: dict[int, list[str]] = field(default_factory=dict)
    checksums: dict[int, str] = field(default_factory=dict)
    sums: dict[int, str] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        return max([*self.entries, *self.checkpoints], default=-1)

    @property
    def base(self) -> int:
        """The newest checkpoint; -1 if there is none."""
        return max(self.checkpoints, default=-1)

    def tail(self) -> list[str]:
        """The entries that a reader needs beside the newest checkpoint."""
        return [name for version, name in self.entries.items() if version > self.base]

    def stale(self) -> list[str]:
        """Checksum files of versions that do not exist: those of commits that were lost."""
        return [name for version, name in self.checksums.items() if version > self.newest]

    def complete_without(self, checkpoint: int) -> bool:
        """Whether the entries since the previous checkpoint, or since the start, suffice up to the newest version."""
        older = max((version for version in self.checkpoints if version < checkpoint), default=-1)
        return all(version in self.entries for version in range(older + 1, self.newest + 1))


def listed(names: Iterable[str]) -> Listed:
    """The contents of a log from its file names.

    A checkpoint of several parts counts only if complete, as for readers.
    """
    found = Listed()
    for name in _whole(sorted(names)):
        if match := _ENTRY.fullmatch(name):
            found.entries[int(match[1])] = name
        elif match := _CHECKPOINT.fullmatch(name):
            found.checkpoints.setdefault(int(match[1]), []).append(name)
        elif match := _CHECKSUM.fullmatch(name):
            found.checksums[int(match[1])] = name
        elif match := _SUMS.fullmatch(name):
            found.sums[int(match[1])] = name
    return found


def _whole(names: list[str]) -> Iterator[str]:
    """The names without parts of incomplete checkpoints."""
    parts = {name: match.groups() for name in names if (match := _PART.fullmatch(name))}
    there = Counter(parts.values())
    return (name for name in names if name not in parts or there[parts[name]] == int(parts[name][1]))


def log_of(address: str) -> Path | None:
    """A table's log if it is in a local folder; else None."""
    log = Path(address) / "_delta_log"
    return log if log.is_dir() else None


def file_damage(file: Path) -> str | None:
    """The damage of one file, by itself and by the checksum beside it, in words; None if there is none."""
    if not file.exists():
        return f"{file} is missing"
    data, sums = file.read_bytes(), file.with_name(f".{file.name}.crc")
    if not data:
        return f"{file} is empty"
    if sums.exists() and not fits(data, sums.read_bytes()):
        return f"{file} does not match its checksum in {sums.name}: one of the two was changed or truncated"
    return None


def log_faults(address: str) -> list[str]:
    """Damage to the part of the log that a reader of the newest version needs. Reads some fifty small files."""
    log = log_of(address)
    if log is None:
        return []
    found = listed(file.name for file in log.iterdir())
    needed = [*found.checkpoints.get(found.base, []), *found.tail()]
    return [what for name in needed if (what := file_damage(log / name))]


def why_unreadable(address: str) -> str | None:
    """The file that makes a table unreadable, in words; None if no file shows damage."""
    log = log_of(address)
    if log is None:
        return None
    found = listed(file.name for file in log.iterdir())
    unparsed = (what for name in found.tail() if (what := _unparsed(log / name)))
    stale = (
        f"{log / name} is the checksum of a commit that was lost; the next run removes it" for name in found.stale()
    )
    return next(chain(_gaps(found), _bad_hint(log, found), _bad_checkpoint(log, found), unparsed, stale), None)


def _gaps(found: Listed) -> Iterator[str]:
    for version in range(found.base + 1, found.newest + 1):
        if version not in found.entries:
            yield f"its log entry {version:020}.json is missing"


def _bad_hint(log: Path, found: Listed) -> Iterator[str]:
    hint = log / HINT
    if hint.exists() and _hinted(hint) not in found.checkpoints:
        yield f"{hint} names a checkpoint that does not exist; it is only a hint: remove it"


def _hinted(hint: Path) -> int | None:
    try:
        return int(json.loads(hint.read_bytes())["version"])
    except (ValueError, KeyError, TypeError):
        return None


def _bad_checkpoint(log: Path, found: Listed) -> Iterator[str]:
    for name in found.checkpoints.get(found.base, []):
        if not _can_be_read(log / name):
            spare = f"; the log's entries have the same content: remove it and {HINT}"
            yield f"the checkpoint {log / name} cannot be read{spare if found.complete_without(found.base) else ''}"


def unreadable_checkpoint(address: str, version: int) -> str | None:
    """Why the checkpoint of a version cannot replace the entries before it; None if it can."""
    log = log_of(address)
    names = listed(file.name for file in log.iterdir()).checkpoints.get(version, []) if log else []
    if log is None or not names:
        return f"there is no checkpoint of version {version}"
    bad = next((name for name in names if not _can_be_read(log / name)), None)
    return bad and f"the checkpoint {log / bad} cannot be read"


def _can_be_read(file: Path) -> bool:
    """Whether a checkpoint can be read: one of rows, or one of actions with the files of rows that these name."""
    if file.suffix == ".json":
        return _unparsed(file) is None and all(map(_is_rows, _sidecars(file)))
    return _is_rows(file)


def _sidecars(checkpoint: Path) -> list[Path]:
    named = [action["sidecar"] for action in actions_of(checkpoint.read_bytes()) if "sidecar" in action]
    return [checkpoint.parent / "_sidecars" / unquote(one["path"]) for one in named]


def _is_rows(file: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        pq.ParquetFile(file).read()
    except (OSError, ValueError, pa.ArrowException) as fault:  # a UnicodeDecodeError is a ValueError
        if isinstance(fault, OSError) and fault.errno not in (None, *ABSENT):
            raise RunFailed(f"{file} cannot be read now: {fault}; fix the disk or the store, then retry") from fault
        return False
    return True


def _unparsed(entry: Path) -> str | None:
    try:
        actions_of(entry.read_bytes())
    except ValueError as fault:
        return f"{entry} is truncated or was changed: {fault}"
    return None


def actions_of(data: bytes) -> list[dict[str, Any]]:
    """The actions of a log entry, one a line. Raises ValueError, which says what is wrong with which line.

    It splits bytes, not text: in text Python treats some characters as line ends that JSON may contain as they are.
    """
    return [_action(number, line) for number, line in enumerate(data.splitlines(), 1) if line]


# Fields that Delta's protocol requires of the actions that are read here.
_NEEDED: dict[str, dict[str, type]] = {
    "add": {"path": str, "size": int},
    "remove": {"path": str},
    "txn": {"appId": str, "version": int},
    "sidecar": {"path": str},
}


def _action(number: int, line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        raise ValueError(f"line {number} is not JSON") from None
    if not isinstance(found, dict) or not all(isinstance(value, dict) for value in found.values()):
        raise ValueError(f"line {number} is not an action")
    for kind, value in found.items():
        for name, expected in _NEEDED.get(kind, {}).items():
            if not isinstance(value.get(name), expected):
                raise ValueError(f"line {number}: expected {kind}.{name}, found {value.get(name)!r}")
    return found


def rename_torn_entries(address: str, above: int, app: str | None = None) -> list[str]:
    """Rename incomplete log entries above version `above`, from the newest down.

    Only the table's writer may call it, for versions that nothing relies on. `app`: entries of other writers are kept.
    """
    log = log_of(address)
    aside = []
    while log is not None:
        found = listed(file.name for file in log.iterdir())
        entry = log / found.entries.get(found.newest, "")
        if found.newest <= max(above, found.base) or not _torn(entry, app):
            break
        entry.rename(entry.with_name(f"{entry.name}.torn-{uuid4().hex[:8]}"))
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
        aside.append(entry.name)
    return aside


def torn_newest(address: str) -> Path | None:
    """The newest log entry, if it or a file that it adds was not written completely; otherwise None."""
    log = log_of(address)
    found = listed(file.name for file in log.iterdir()) if log else Listed()
    entry = found.entries.get(found.newest)
    return log / entry if log and entry and _torn(log / entry, None) else None


def _torn(entry: Path, app: str | None) -> bool:
    """Whether an entry cannot be read; or, for one of this app, whether its checksum or files do not match."""
    data = entry.read_bytes()
    if not data:
        return True
    try:
        actions = actions_of(data)
    except ValueError:
        return True
    if app is not None and app.encode() not in data:
        return False
    added = [action["add"] for action in actions if "add" in action]
    return file_damage(entry) is not None or any(map(partial(_lacks, entry.parent.parent), added))


def _lacks(folder: Path, added: dict[str, Any]) -> bool:
    """Whether a file that an entry adds is missing or cut off, in length or by zeros in its content.

    Other checks detect a complete file with different content.
    """
    file = folder / unquote(added["path"])
    return not file.exists() or _last_bytes(file) != PARQUET_END


def _last_bytes(file: Path) -> bytes:
    with file.open("rb") as data:
        data.seek(max(0, file.stat().st_size - len(PARQUET_END)))
        return data.read()


def repair_log(address: str, named: int, app: str | None = None) -> None:
    """Clean up after a power loss or a full disk: incomplete writes that the ledger does not name; they are repeated.

    named: the newest version that the ledger names. app: as for `rename_torn_entries`.
    """
    rename_torn_entries(address, named, app)
    drop_checksums(address)


def drop_checksums(address: str) -> list[str]:
    """Remove checksum files of missing versions, and a changed one of Delta's, which readers do not need.

    Only the table's writer may call it. The checksum of a lost commit would pass for the next commit's, and
    Hadoop's would keep Delta from writing that one: Delta treats an existing checksum as another writer's commit.
    """
    log = log_of(address)
    if log is None:
        return []
    found = listed(file.name for file in log.iterdir())
    newest = [found.checksums[found.newest]] if found.newest in found.checksums else []
    stale = [
        name for name in found.stale() if not (log / name).with_suffix(".json").exists()
    ]  # nor since it was listed
    dropped = stale + [name for name in newest if file_damage(log / name)]
    for name in dropped:
        (log / f".{name}.crc").unlink(missing_ok=True)
        (log / name).unlink(missing_ok=True)  # another start may drop them, too
    for version, name in found.sums.items():
        if version > found.newest and not (log / f"{version:020}.json").exists():
            (log / name).unlink(missing_ok=True)
            dropped.append(name)
    return dropped


def restore_log(root: Path, must_go: bool = True) -> None:
    """Put back held files that the log lacks, unless another log is there by now; then remove those held.

    must_go: raise RunFailed also if the log is whole, and the folder cannot be removed.
    """
    if not is_held(root) or not (root / "_delta_log").is_dir():
        return
    try:
        for file in to_put_back(root):
            link(file, root / "_delta_log" / file.name)
    except OSError as fault:
        problem = f"log entries in {root / HELD} cannot be put back into the table's log"
        raise _stuck(problem, fault, "Give the right to both") from fault
    try:
        shutil.rmtree(root / HELD)
    except OSError as fault:
        problem = f"{root / HELD}, a copy of the log from an upkeep that was killed, cannot be removed"
        if must_go:
            raise _stuck(f"{problem}; the log is whole", fault, "Give the right to it, or remove it by hand") from fault


def _stuck(problem: str, fault: OSError, way: str) -> RunFailed:
    """`way`: what helps, unless the disk takes nothing."""
    why = cannot_take(str(fault))
    return RunFailed(f"{problem}: {fault.strerror or fault}. {make_room(why).capitalize() if why else way}, then retry")


def to_put_back(root: Path) -> list[Path]:
    """Held files that the log lacks; none if another log is there by now."""
    held, log = root / HELD, root / "_delta_log"
    found = is_held(root) and log.is_dir() and _is_continued(held, log)
    return [one for one in held.iterdir() if one.suffix != PART and not (log / one.name).exists()] if found else []


def is_held(root: Path) -> bool:
    """Whether files of the log are held: files are being joined, or that was killed."""
    return (root / HELD).is_dir()


def is_held_by(root: Path, ledger: str) -> bool:
    """Whether the newest entry held that names a ledger names this one. The log may be cut too short to tell."""
    texts = (file.read_text() for file in sorted((root / HELD).glob("*.json"), reverse=True))
    return ledger in next((text for text in texts if "floodmark/" in text or "floodmark.owner" in text), "")


def _is_continued(held: Path, log: Path) -> bool:
    """Whether the log has gone on from the entries held: it reaches as far, and the newest that both have is the same.

    The newest entry held may have been cleaned up since.
    """
    here, there = ({file.name for file in folder.iterdir() if file.suffix == ".json"} for folder in (held, log))
    both = max(here & there, default=None)
    return both is not None and max(there) >= max(here) and (held / both).read_bytes() == (log / both).read_bytes()


def link(file: Path, to: Path) -> None:
    """Give a file a second name; a copy with its times where the file system has no hard links.

    The copy comes whole: readers of the log pass over names that begin with a dot, and a kill may leave only these.
    """
    try:
        to.hardlink_to(file)
    except (FileNotFoundError, FileExistsError):
        pass  # others may clean the log meanwhile, or put a file back
    except OSError:
        part = to.with_name(f".{to.name}{PART}")
        shutil.copy2(file, part)
        with part.open("rb") as copy:
            os.fsync(copy.fileno())
        part.rename(to)
