"""Reports of runs and epochs, for progress and for the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from floodmark.core.protocol.records.head import Head
from floodmark.spark.rule.landing import LandedReport


@dataclass(frozen=True)
class EpochReport:
    """What a committed epoch did. `failed`: the number of failed rows by expectation, as `STREAM.NAME` or
    `results.NAME`, if there are any. `skipped`: by stream, commits that remove rows and were passed over."""

    rule: str
    epoch: int
    attempt: int
    read: int
    folded: int
    late: int
    dead: int
    dropped: int
    failed: dict[str, int]
    output: int
    watermark: int | None
    seconds: float
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CorrectionReport:
    """What a correction did. `left`, `came`: rows of the sources; `replaced`: by sink, new rows and those that went."""

    number: int
    commits: tuple[str, ...]
    left: int
    came: int
    replaced: dict[str, tuple[int, int]]


Report = Callable[[EpochReport | LandedReport], None]


@dataclass
class RunReport:
    """What a run did. `skipped`: by stream, deferred commits that it gave up correcting. `left`: who corrects those
    that it has left to another run."""

    rule: str
    epochs: list[EpochReport] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    corrections: list[CorrectionReport] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    landed: list[LandedReport] = field(default_factory=list)
    head: Head | None = None
    left: str | None = None
