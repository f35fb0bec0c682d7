"""Removes old chunks from landings, whose rows are folded, and from outboxes, whose rows were shipped. The caller holds
the rule's lock.

One commit takes the files of these chunks out of the newest version, and records where the rest begins. It says that no
data changes, because to a stream that reads the table nothing does: it has passed these rows. The files go once they
are old enough, like those of any table.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from floodmark import __version__
from floodmark.core.lifecycle.cleanup import first_kept
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.syncing import sync_commit

FIRST = 1  # the version after the one that creates a landing
ROLE, OUTBOX = "landing", "outbox"


def app_of(ledger: str, stream: str, role: str = ROLE) -> str:
    """The app id under which chunks are committed; their numbers are its versions."""
    return f"floodmark/{ledger}/{role}/{stream}"


def cut_app(app: str) -> str:
    """The app id under which the first version is recorded whose chunk is not removed."""
    return f"{app}/cut"


@dataclass(frozen=True)
class LandedTable:
    """A stream's landing, or a target's outbox. `app`: of its chunks. `keep_us`: how long folded rows stay, in
    microseconds; None: for good.

    folded: the first version with rows that are not folded (shipped), or that something still reads.
    """

    stream: str
    address: str
    app: str
    keep_us: int | None
    folded: int
    role: str = ROLE

    @property
    def name(self) -> str:
        return f"{self.role}/{self.stream}"


@dataclass(frozen=True)
class Cut:
    """What to remove from a landing: the chunks before version `first`, and how many these are."""

    table: LandedTable
    first: int
    chunks: int


def is_landed(name: str) -> bool:
    """Whether a table's name is that of a landing or an outbox.

    Only upkeep cuts their logs, by the rule's settings: outboxes of older homes say of theirs that it stays for good.
    """
    return name.partition("/")[0] in (ROLE, OUTBOX)


def cut_at(address: str, app: str) -> int:
    """The first version whose rows are all there."""
    return tablelog.recorded_version(address, cut_app(app)) or FIRST


def due_cut(one: LandedTable) -> Cut | None:
    """The chunks that are old enough and folded; None if there are none."""
    if one.keep_us is None:
        return None
    begins = cut_at(one.address, one.app)
    written = {version: tablelog.written_us(one.address, version) for version in range(begins, one.folded)}
    first = first_kept(written, begins, one.folded, time.time_ns() // 1000 - one.keep_us)
    chunks = sum(1 for version in range(begins, first) if _added(one.address, version))
    return Cut(one, first, chunks) if chunks else None


def cut(rule: str, wanted: Cut) -> None:
    """Commit the removal."""
    one = wanted.table
    begins = cut_at(one.address, one.app)
    files = [file for version in range(begins, wanted.first) for file in _added(one.address, version)]
    reach(rule, "maintain.landing.before")
    version = tables.newest_version(one.address) + 1
    _commit(one, version, _actions(cut_app(one.app), wanted.first, files))
    reach(rule, "maintain.landing.after")


def _added(address: str, version: int) -> list[dict[str, Any]]:
    actions = tables.entry_actions(address, version)
    return [action["add"] for action in actions if action.get("add", {}).get("dataChange")]


def _actions(app: str, first: int, files: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the log entry says, by Delta's protocol."""
    now = int(time.time() * 1000)
    yield {
        "commitInfo": {
            "timestamp": now,
            "operation": "DELETE",
            "operationParameters": {},
            "isBlindAppend": False,
            "engineInfo": f"Floodmark/{__version__}",
            "userMetadata": json.dumps({"app": app, "version": first}, separators=(",", ":")),
        }
    }
    yield {"txn": {"appId": app, "version": first, "lastUpdated": now}}
    for file in files:
        known = {key: file[key] for key in ("path", "partitionValues", "size") if key in file}
        yield {"remove": {**known, "deletionTimestamp": now, "dataChange": False, "extendedFileMetadata": True}}


def _commit(one: LandedTable, version: int, actions: Iterator[dict[str, Any]]) -> None:
    """Write a log entry whole, unless another writer has written that version."""
    entry = tables.local_entry(one.address, version)
    new = entry.with_name(f".{entry.name}.new")
    new.write_text("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions))
    try:
        os.link(new, entry)
    except FileExistsError:
        raise Fenced(about_named(one.name, f"another writer committed version {version}; maintain again")) from None
    finally:
        new.unlink()
    tables.write_sums(entry)
    sync_commit(one.address, version)
