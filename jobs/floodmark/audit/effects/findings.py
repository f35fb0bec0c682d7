"""What is found of the tables' logs, while these are gone through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from floodmark.audit.facts import Finding, Tally
from floodmark.redaction import redacted


@dataclass
class Findings:
    """`tallies`: by table; `untold`: versions of a table of which nobody can tell how many rows come or go."""

    findings: list[Finding] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    untold: dict[str, set[int]] = field(default_factory=dict)

    @contextmanager
    def followed(self, table: str, commit: int | None = None, epoch: int | None = None) -> Iterator[None]:
        """Whatever forged metadata lead to is a finding of its place: all else is looked at all the same."""
        try:
            yield
        except Exception as fault:
            whose = "its log" if commit is None else "the commit's metadata"
            what = redacted(f"{whose} cannot be followed ({type(fault).__name__}: {fault})")
            self.findings.append(Finding("broken", what, epoch=epoch, table=table, commit=commit))

    def tally(self, table: str) -> Tally:
        """What is counted of a table."""
        return self.tallies.setdefault(table, Tally())

    def cannot_be_told(self, table: str, version: int) -> None:
        """Note a commit of which the log does not tell how many rows come or go."""
        self.untold.setdefault(table, set()).add(version)
