"""The auditor's values: logs, files and ledger rows that it reads, and its findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

Verdict = Literal["proven", "broken", "unknown"]
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "broken": 3, "unknown": 1}


@dataclass(frozen=True)
class Finding:
    """A fault, or something that cannot be decided, with its place if it has one.

    `what` is a sentence; `table` the ledger's name of one, `commit` a version of it, `row` a sequence number.
    """

    verdict: Literal["broken", "unknown"]
    what: str
    generation: int | None = None
    epoch: int | None = None
    table: str | None = None
    commit: int | None = None
    row: int | None = None


@dataclass(frozen=True, order=True)
class Since:
    """The first epoch that a verdict is about, such as the last one of an earlier certificate."""

    generation: int
    epoch: int

    def leaves_out(self, finding: Finding) -> bool:
        """Whether a finding says only that something of earlier epochs cannot be decided."""
        if finding.verdict == "broken" or finding.generation is None:
            return False
        if finding.epoch is None:
            return finding.generation < self.generation
        return Since(finding.generation, finding.epoch) < self


def decided_since(findings: Iterable[Finding], newest: Since) -> Since | None:
    """The first epoch of which nothing is undecided; None if that is none up to the newest, or something is broken."""
    found = list(findings)
    ends = (
        Since(one.generation, one.epoch + 1) for one in found if one.generation is not None and one.epoch is not None
    )
    since = max(ends, default=None)
    if since is None or since > newest:
        return None
    return since if all(map(since.leaves_out, found)) else None


@dataclass
class Tally:
    """Counts of one table's commits. `repeated`: of earlier attempts at qos 1; `rewrites`: of its state; `undone`: of
    abandoned epochs, with the commits that undid them; `undigested`: those that name no digest of their rows, for the
    code that made them had none."""

    named: int = 0
    seen: int = 0
    pruned: int = 0
    repeated: int = 0
    undone: int = 0
    pending: int = 0
    rewrites: int = 0
    recomputed: int = 0
    undigested: int = 0


def worst(findings: list[Finding]) -> Verdict:
    """`broken` if a finding is broken, else `unknown` if one is unknown, else `proven`."""
    found = {finding.verdict for finding in findings}
    return "broken" if "broken" in found else "unknown" if "unknown" in found else "proven"


@dataclass(frozen=True)
class Row:
    """One row of the ledger. `body` is JSON as text: its hash covers exactly that text."""

    seq: int
    kind: str
    generation: int
    token: str
    epoch: int
    attempt: int
    run: str
    at: str
    body: str
    prev: str
    hash: str


@dataclass(frozen=True)
class Vector:
    """A deletion vector, which marks `rows` rows of its file as deleted. `id`: identifies it.

    `file`: its path in the table's folder, None if it is elsewhere; `end`: minimal size of that file, in bytes; `size`:
    of its bitmap, in bytes; `text`: the bitmap, if the log itself holds it.
    """

    id: str
    rows: int
    file: str | None = None
    end: int = 0
    size: int = 0
    text: str | None = None


@dataclass(frozen=True)
class File:
    """A file that a commit added or removed. `rows`: its row count by the statistics, None if they lack it.

    `partition`: column → value as text (None: null), of columns that have one value in all its rows; `bounds`: the
    rest of its statistics, as the log has them.
    """

    path: str
    size: int
    rows: int | None
    vector: Vector | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Delta identifies a file by path and deletion vector: one path is added and removed with each vector."""
        return self.path, self.vector.id if self.vector else ""

    @property
    def live_rows(self) -> int | None:
        """Its rows without those that the deletion vector marks; None if unknown."""
        return self.rows if self.rows is None or self.vector is None else self.rows - self.vector.rows


def live_rows_of(files: Iterable[File]) -> int | None:
    """Rows of the table in all of these files; None if the number is unknown for one of them."""
    counts = [file.live_rows for file in files]
    return None if None in counts else sum(count or 0 for count in counts)


@dataclass(frozen=True)
class LogEntry:
    """One commit in a table's log. `metadata`: the JSON object in its metadata, if there is one.

    `removed`: the files that it removes, as far as it lists them; `changes`: whether it says that it adds or removes
    rows; `owner`: the ledger that owns the table from here on; `declared`: the table's columns,
    partitions and properties, where it says them.
    """

    version: int
    transactions: tuple[tuple[str, int], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    operation: str = ""
    added: tuple[File, ...] = ()
    removed: tuple[File, ...] = ()
    changes: bool = False
    owner: str | None = None
    declared: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files_with_rows(self) -> tuple[File, ...]:
        """Added files with new rows. A file that is also removed only lost rows: its deletion vector marks them."""
        gone = {file.path for file in self.removed}
        return tuple(file for file in self.added if file.path not in gone)


@dataclass(frozen=True)
class Base:
    """A table as of one version, -1 before its first commit: its files, by key, and the ledger that owned it."""

    version: int = -1
    files: Mapping[tuple[str, str], File] = field(default_factory=dict)
    owner: str | None = None


@dataclass(frozen=True)
class TableLog:
    """The remaining entries of a table's log, oldest first. `id`: the table's; None if there is no table.

    `live`: size of each file of the newest version, by path; `present`: of those in the table's folder. `plain`: a
    file's columns are the table's, under their own names. `types`: of its columns, as Delta names them. `tracking`:
    columns that files may have besides, for row tracking. `checkpoint`: the oldest one, where the log does not begin at
    its first entry. `version`: the newest, as readers see it. `readable`: else nothing is known of it, and that is
    told. `partitions`: columns by which it is partitioned. `shown`: the newest checkpoint, which readers believe, where
    it is newer than the first entry. `twice`: files of the newest version that the log has under two spellings.
    `compacted`: entries that stand for those from one version to another, which some readers read in their place.

    Of a sink that is no Delta table: `moves`: rows that came and went, by entry; `held`: the digest of those that came,
    read back, None where some have gone since.
    """

    address: str
    id: str | None
    entries: tuple[LogEntry, ...] = ()
    live: Mapping[str, int] = field(default_factory=dict)
    present: Mapping[str, int] = field(default_factory=dict)
    plain: bool = True
    types: Mapping[str, Any] = field(default_factory=dict)
    tracking: frozenset[str] = frozenset()
    checkpoint: Base | None = None
    version: int = -1
    readable: bool = True
    partitions: tuple[str, ...] | None = None
    shown: Base | None = None
    twice: tuple[str, ...] = ()
    compacted: Mapping[tuple[int, int], LogEntry] = field(default_factory=dict)
    moves: Mapping[int, tuple[int, int]] | None = None
    held: Mapping[int, Mapping[str, Any] | None] = field(default_factory=dict)

    @property
    def base(self) -> Base | None:
        """The version that the entries start from; None if it is unknown."""
        return Base() if self.entries and self.first == 0 else self.checkpoint

    @property
    def first(self) -> int:
        return self.entries[0].version if self.entries else self.version + 1

    @property
    def last(self) -> int:
        return self.entries[-1].version if self.entries else self.version

    def has_vector(self, vector: Vector | None) -> bool:
        """Whether a vector, if there is one, is in its file, judged by the file's size."""
        return vector is None or vector.file is None or self.present.get(vector.file, -1) >= vector.end

    def at(self, version: int) -> LogEntry | None:
        return self._by_version.get(version)

    @cached_property
    def newest(self) -> dict[str, File]:
        """Each file as it was added last, by path, with the bounds that readers use."""
        shown = self.shown or Base()
        bounds = {file.path: file.bounds for file in shown.files.values() if file.bounds}
        found: dict[str, File] = {}
        for entry in self.entries:
            told = bounds if entry.version <= shown.version else {}
            found |= {file.path: replace(file, bounds=told.get(file.path, file.bounds)) for file in entry.added}
        return found

    @cached_property
    def _by_version(self) -> dict[int, LogEntry]:
        return {entry.version: entry for entry in self.entries}
