"""Check a table's log: versions increase, no entry is missing, and every file of the newest version is in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from floodmark.audit.evidence import Finding, TableLog, Vector


@dataclass(frozen=True)
class Since:
    """Versions from which a table possibly, and surely, belongs to a ledger."""

    possibly: int
    surely: int


def owned_since(log: TableLog, ledger: str, adopted: int | None) -> Since:
    """`adopted`: the version that the ledger names, for a table that existed before.

    Each change of properties names the owner again. If the entry that set it is pruned, and no checkpoint from before
    the first entry names the owner, the table surely belongs to the ledger from the ledger's first commit on. The same
    applies if the first entry that names the owner comes after that commit.
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
    """App ids whose versions do not increase from commit to commit. `ours`: prefix of ids that never repeat one."""
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
        found = log.present.get(path)
        if found != size:
            whats.append(f"the file {path} {'is gone' if found is None else f'has {found} bytes, the log says {size}'}")
        epoch = by.metadata.get("epoch") if by else None
        for what in whats:
            yield Finding("broken", what, epoch=epoch, table=table, commit=by.version if by else None)


def _harmed(vector: Vector, path: str, log: TableLog) -> Iterator[str]:
    """Faults of the deletion vector of the file at `path`."""
    size = log.present.get(vector.file, -1) if vector.file is not None else vector.end
    if size < 0:
        yield f"the deletion vector {vector.file} of {path} is gone"
    elif size < vector.end:
        yield f"the deletion vector {vector.file} of {path} has {size} bytes, the log says {vector.end} or more"
