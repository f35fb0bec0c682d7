"""Check abandoned epochs: in each sink, one commit undoes exactly what the epoch's commits did, and names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from floodmark.audit.effects.moves import Problems
from floodmark.audit.effects.sinktables import PREFIX, Sinks
from floodmark.audit.evidence import Finding, LogEntry, TableLog
from floodmark.audit.ledger.generations import Epoch, Generation
from floodmark.audit.ledger.named import ATTEMPTS, BACKFILLS, SEAL, ids_of

Keys = set[tuple[str, str]]


def version_of(epoch: int) -> int:
    """The app version of the commit that undoes an epoch: after those of all attempts."""
    return epoch * ATTEMPTS + BACKFILLS


def is_undo(version: int) -> bool:
    return version != SEAL and version % ATTEMPTS == BACKFILLS


def is_allowed(epoch: Epoch, table: str, commit: int, version: int, intent: Any) -> bool:
    """Whether this commit, under the epoch's app, is one that an abandoned epoch leaves in a log."""
    if epoch.result != "abandoned" or intent != epoch.intent_hash:
        return False
    if not table.startswith(PREFIX):
        return not is_undo(version)  # rows of the epoch, which readers ignore
    undone = epoch.end["tables"].get(table, {"commit": -1, "undoes": ()})
    return commit == undone["commit"] if is_undo(version) else commit in undone["undoes"]


def unlisted(epoch: Epoch) -> dict[str, str]:
    """The sinks of an abandoned epoch, without ids: no row lists a table that the epoch was the first to write."""
    return dict.fromkeys(epoch.end["tables"], "") if epoch.result == "abandoned" else {}


def unnamed(epoch: Epoch, sinks: Sinks | None) -> Iterator[Finding]:
    """Sinks that are tables and have no undoing commit: an attempt might still write there."""
    for table in sorted((sinks or {}).keys() - epoch.end["tables"].keys()):
        what = "the epoch was abandoned, and the ledger names no commit that keeps it from being written here"
        yield Finding("broken", what, epoch.generation, epoch.number, table)


def table_of(written: Mapping[str, Any], generation: Generation, table: str) -> str | None:
    """The id of the table in which an epoch was undone. A sink that no commit names may be another table since."""
    id_: str | None = written.get("table_id") or ids_of(generation).get(table)
    return id_


def undone(epoch: Epoch, table: str, app: str, log: TableLog) -> Iterator[Finding]:
    """Faults of the commit that the ledger names as undoing the epoch in a sink."""
    written: Mapping[str, Any] = epoch.end["tables"][table]
    commit, entry = written["commit"], log.at(written["commit"])

    def broken(what: str) -> Finding:
        return Finding("broken", what, epoch.generation, epoch.number, table, commit)

    if written["version"] != version_of(epoch.number):
        yield broken(f"the epoch was abandoned under version {written['version']}, not {version_of(epoch.number)}")
    if commit < log.first:
        what = f"what took the epoch back cannot be looked up: the log begins at version {log.first}"
        yield Finding("unknown", what, epoch.generation, epoch.number, table, commit)
    elif entry is None:
        yield broken(f"the ledger names commit {commit}, which took the epoch back, and the log has none")
    elif (app, written["version"]) not in entry.transactions:
        yield broken(f"the commit does not record version {written['version']} of {app}")
    elif (entry.metadata.get("intent"), entry.metadata.get("undoes")) != (epoch.intent_hash, list(written["undoes"])):
        yield broken("the commit that took the epoch back carries another intent, or names other commits")


def reversed_by(entry: LogEntry, log: TableLog, app: str, epoch: int) -> Problems:
    """Verdict and message if a commit that undoes an epoch is not the reverse of the commits that it names."""
    undoes = entry.metadata.get("undoes", [])
    them = [log.at(version) for version in undoes]
    if any(version < log.first for version in undoes):
        yield "unknown", "what the commit has undone cannot be looked up: the log begins later"
        return
    mine = [one for one in them if one is not None and one.version < entry.version and _is_of(one, app, epoch)]
    if len(mine) != len(undoes):
        yield "broken", f"a commit that undoes {_shown(undoes)}, not all of which are attempts at epoch {epoch}"
        return
    came, went = net(mine)
    if (came, went) != (_keys(entry.removed), _keys(entry.added)):
        yield "broken", f"a commit that undoes {_shown(undoes)} does not reverse what these added and removed"


def _is_of(entry: LogEntry, app: str, epoch: int) -> bool:
    return any(one == app and epoch * ATTEMPTS <= version < version_of(epoch) for one, version in entry.transactions)


def net(entries: Iterable[LogEntry]) -> tuple[Keys, Keys]:
    """The files that several commits together added, and those that they removed."""
    came: Keys = set()
    went: Keys = set()
    for entry in entries:
        removed, added = _keys(entry.removed), _keys(entry.added)
        went |= removed - came
        came = (came - removed) | (added - went)
        went -= added
    return came, went


def _keys(files: Iterable[Any]) -> Keys:
    return {file.key for file in files}


def _shown(versions: Iterable[int]) -> str:
    return f"commits {', '.join(map(str, versions))}" if versions else "nothing"


def cancelled(generations: Iterable[Generation], table: str, id_: str | None) -> set[int]:
    """A sink's commits of abandoned epochs, and the commits that undid them: together they change nothing.

    `id_`: the table's; another one may have had its name in older generations.
    """
    found = ((one, epoch.end["tables"]) for one in generations for epoch in one.epochs if epoch.result == "abandoned")
    undone = [tables[table] for one, tables in found if table in tables and table_of(tables[table], one, table) == id_]
    return {version for one in undone for version in (one["commit"], *one["undoes"])}
