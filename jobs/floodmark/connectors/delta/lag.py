"""How far a rule is behind its sources, from their logs alone."""

from __future__ import annotations

from dataclasses import dataclass

from floodmark.connectors.delta.table import DeltaSource
from floodmark.core.protocol.entry import DeltaOffset


@dataclass(frozen=True)
class Lag:
    """`commits`: commits with data that are not folded yet, a first snapshot counted as one."""

    version: int
    newest: int
    commits: int
    in_snapshot: bool


def lag_of(source: DeltaSource, line: str, rebuilt: bool = False) -> Lag:
    """The lag of a source whose offset-log line is `line`. `rebuilt`: the rule reads everything again in each run.

    Raises HistoryGone where rows were taken out of it, unless `rebuilt`.
    """
    at, newest = DeltaOffset.parse(line), source.newest()
    waiting = list(source.fresh(at, newest))
    if not rebuilt:
        source.check_appended(waiting)
    return Lag(at.version, newest, len(waiting) + int(at.snapshot and source.news(line, at.version)), at.snapshot)
