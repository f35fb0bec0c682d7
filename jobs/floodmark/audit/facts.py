"""What the auditor looks at, as values, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Verdict = Literal["proven", "broken", "unknown"]
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "broken": 3, "unknown": 1}


@dataclass(frozen=True)
class Finding:
    """Something that is not as it must be, or that cannot be told. Where: as far as it has a place.

    `what` is a sentence; `table` the ledger's name of one, `commit` a version of it, `row` a sequence number.
    """

    verdict: Literal["broken", "unknown"]
    what: str
    generation: int | None = None
    epoch: int | None = None
    table: str | None = None
    commit: int | None = None
    row: int | None = None


def worst(findings: list[Finding]) -> Verdict:
    """One thing broken breaks all; else one thing unknown leaves it open."""
    found = {finding.verdict for finding in findings}
    return "broken" if "broken" in found else "unknown" if "unknown" in found else "proven"


@dataclass(frozen=True)
class Row:
    """One row of the ledger. `body` is JSON as text: its hash is taken over that very text."""

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
class File:
    """A file that a commit added. `rows`: by its statistics, None where they do not tell; `plain`: without a deletion
    vector, so that its rows are the table's; `vector`: its deletion vector's file. `partition`: column → value as text
    (None: null), of columns that have one value in all its rows."""

    path: str
    size: int
    rows: int | None
    plain: bool = True
    vector: str | None = None
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class LogEntry:
    """One commit of a table, as its log has it. `said`: the JSON object in its metadata, if that is one.

    `removed`: paths of the files that went; `changes`: whether it adds or removes rows; `owner`: the ledger whose table
    this is from here on.
    """

    version: int
    transactions: tuple[tuple[str, int], ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)
    operation: str = ""
    added: tuple[File, ...] = ()
    removed: tuple[str, ...] = ()
    changes: bool = False
    owner: str | None = None

    @property
    def brought(self) -> tuple[File, ...]:
        """The files that came with rows. One that also went only lost some: they are marked in its deletion vector."""
        return tuple(file for file in self.added if file.path not in self.removed)


@dataclass(frozen=True)
class TableLog:
    """All that is left of a table's log, oldest first. `id`: the table's; None where there is no table.

    `live`: size of each file of the newest version, by path; `there`: of those in the table's folder. `plain`: a file's
    columns are the table's, under their own names. `types`: of its columns, as Delta names them.
    """

    address: str
    id: str | None
    entries: tuple[LogEntry, ...] = ()
    live: Mapping[str, int] = field(default_factory=dict)
    there: Mapping[str, int] = field(default_factory=dict)
    plain: bool = True
    types: Mapping[str, Any] = field(default_factory=dict)

    @property
    def first(self) -> int:
        return self.entries[0].version if self.entries else 0

    @property
    def last(self) -> int:
        return self.entries[-1].version if self.entries else -1

    def at(self, version: int) -> LogEntry | None:
        return self._by_version.get(version)

    @cached_property
    def _by_version(self) -> dict[int, LogEntry]:
        return {entry.version: entry for entry in self.entries}
