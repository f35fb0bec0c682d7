"""Findings and counts, collected while the tables' logs are checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from floodmark.audit.evidence import Finding, Tally
from floodmark.redaction import redacted


@dataclass
class Findings:
    """`tallies`: by table; `unverifiable`: versions of a table that add or remove an unknown number of rows."""

    findings: list[Finding] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    unverifiable: dict[str, set[int]] = field(default_factory=dict)

    @contextmanager
    def followed(self, table: str, commit: int | None = None, epoch: int | None = None) -> Iterator[None]:
        """Turn any error that forged metadata cause into a finding with its place, so that other checks continue."""
        try:
            yield
        except Exception as fault:
            whose = "its log" if commit is None else "the commit's metadata"
            what = redacted(f"{whose} cannot be followed ({type(fault).__name__}: {fault})")
            self.findings.append(Finding("broken", what, epoch=epoch, table=table, commit=commit))

    def tally(self, table: str) -> Tally:
        """The counts of a table."""
        return self.tallies.setdefault(table, Tally())

    def mark_unverifiable(self, table: str, version: int) -> None:
        """Note a commit for which the log does not record how many rows it adds or removes."""
        self.unverifiable.setdefault(table, set()).add(version)
