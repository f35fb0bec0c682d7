"""A table's log by itself: versions that grow, no hole, and every file of the newest version in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from floodmark.audit.facts import Finding, TableLog, Vector


@dataclass(frozen=True)
class Since:
    """Versions from which on a table may be, and surely is, a ledger's."""

    possibly: int
    surely: int


def owned_since(log: TableLog, ledger: str, adopted: int | None) -> Since:
    """`adopted`: the version that the ledger names, of a table that was there before.

    Each change of properties names the owner again, so where the entry that set it is pruned, and no checkpoint from
    before the first entry tells the owner, the table is surely the ledger's from its first commit there on. So it is
    where an entry after that one is the first to name the owner.
    """
    if adopted is not None:
        return Since(adopted, adopted)
    mine = [entry.version for entry in log.entries for app, _ in entry.transactions
            if app.startswith(f"floodmark/{ledger}/")]  # fmt: skip
    if log.base is None:
        return Since(log.first, mine[0] if mine else log.last + 1)
    named = [] if log.base.owner == ledger else [entry.version for entry in log.entries if entry.owner == ledger]
    since = min([*named, *mine]) if named else log.first
    return Since(since, since)


def ascending(log: TableLog, table: str, ours: str) -> Iterator[Finding]:
    """Under each app id the versions grow from commit to commit. `ours`: how those begin that never repeat one."""
    newest: dict[str, int] = {}
    for entry in log.entries:
        for app, version in entry.transactions:
            if app in newest and version < newest[app]:
                what = f"{app} goes back from version {newest[app]} to {version}"
                yield Finding("broken", what, table=table, commit=entry.version)
            elif version == newest.get(app) and app.startswith(ours):
                what = f"{app} records version {version} a second time"
                yield Finding("broken", what, table=table, commit=entry.version)
            newest[app] = max(version, newest.get(app, version))


def holes(log: TableLog, table: str) -> Iterator[Finding]:
    """Of a Delta table: other sinks may leave numbers out."""
    for one, other in pairwise(log.entries if log.moves is None else ()):
        if other.version != one.version + 1:
            what = f"the log has no entry between {one.version} and {other.version}"
            yield Finding("broken", what, table=table, commit=one.version + 1)


def absent(log: TableLog, table: str) -> Iterator[Finding]:
    """Files of the newest version that are not in the table's folder, or have another size."""
    added = {file.path: (file, entry) for entry in log.entries for file in entry.added}
    for path, size in log.live.items():
        file, by = added.get(path, (None, None))
        whats = list(_harmed(file.vector, path, log)) if file and file.vector else []
        found = log.there.get(path)
        if found != size:
            whats.append(f"the file {path} {'is gone' if found is None else f'has {found} bytes, the log says {size}'}")
        epoch = by.said.get("epoch") if by else None
        for what in whats:
            yield Finding("broken", what, epoch=epoch, table=table, commit=by.version if by else None)


def _harmed(vector: Vector, path: str, log: TableLog) -> Iterator[str]:
    """Of the deletion vector of the file at `path`."""
    size = log.there.get(vector.file, -1) if vector.file is not None else vector.end
    if size < 0:
        yield f"the deletion vector {vector.file} of {path} is gone"
    elif size < vector.end:
        yield f"the deletion vector {vector.file} of {path} has {size} bytes, the log tells of {vector.end} or more"
