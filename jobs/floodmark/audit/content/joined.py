"""Group commits whose files were joined into larger ones, and removed: their digests add up.

A group has the joined files, the commits that added them, and the resulting files. Its rows are those of its commits,
and so is its digest, unless some of its rows were added or removed in other ways.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from floodmark.audit.evidence import TableLog

Digest = Mapping[str, Any]  # as the ledger has it
_SUMMED = ("rows", "high", "low")


@dataclass
class Group:
    """`commits`: versions; `files`: those that hold their rows now; `mixed`: they may hold other rows than these."""

    commits: set[int] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    mixed: bool = False

    def take(self, other: Group) -> None:
        self.commits |= other.commits
        self.files |= other.files
        self.mixed |= other.mixed


@dataclass
class Groups:
    """Groups by commit, and by file, for every file that ever existed, as of the last version with the file."""

    of_commit: dict[int, Group] = field(default_factory=dict)
    of_file: dict[str, Group] = field(default_factory=dict)

    def commits(self, path: str) -> set[int]:
        """The commits that may have added rows of a file."""
        return self.of_file[path].commits if path in self.of_file else set()


def groups(log: TableLog, named: Iterable[int]) -> Groups:
    """`named`: the commits that the ledger names and that only added rows; only these have a group by commit."""
    known, of_file, of_commit, ever = set(named), dict[str, Group](), dict[int, Group](), dict[str, Group]()
    for entry in log.entries:
        brought, gone = ({file.path for file in files} for files in (entry.added, entry.removed))
        if entry.changes:
            group = Group({entry.version}, brought, mixed=entry.version not in known)
            of_commit[entry.version] = group
            for path in gone:
                of_file.setdefault(path, Group()).mixed = True
        elif gone:
            group = Group(files=brought)
            for path in gone:  # a file from before the log's start has rows of unknown commits
                group.take(of_file.pop(path, Group(mixed=True)))
            group.files -= gone
        else:
            continue
        for path in group.files:
            of_file[path] = group
            ever[path] = group
        of_commit |= dict.fromkeys(group.commits, group)
    return Groups({version: group for version, group in of_commit.items() if version in known}, ever)


def total(digests: Sequence[Digest]) -> dict[str, Any]:
    """The digest of all rows together."""
    found: dict[str, Any] = {"rows": 0, "high": 0, "low": 0, "floats": {}}
    for one in digests:
        found |= {name: found[name] + int(one[name]) for name in _SUMMED}
    for path in {path for one in digests for path in one["floats"]}:
        found["floats"][path] = _summed([one["floats"].get(path) or _lacking(one) for one in digests])
    return found


def _lacking(one: Digest) -> dict[str, Any]:
    """Sums of a column that the table did not have yet: null in all rows."""
    return {"nulls": one["rows"], "nans": 0, "sum": 0.0, "size": 0.0}


def _summed(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    counts = {name: sum(int(one[name]) for one in columns) for name in ("nulls", "nans")}
    return {**counts, **{name: sum(float(one[name]) for one in columns) for name in ("sum", "size")}}
