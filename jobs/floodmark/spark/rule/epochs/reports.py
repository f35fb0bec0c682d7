"""Reports of runs and epochs, for progress and for the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from floodmark.core.protocol.records.head import Head


@dataclass(frozen=True)
class EpochReport:
    """What a committed epoch did. `failed`: the number of failed rows by expectation, as `STREAM.NAME` or
    `results.NAME`, if there are any."""

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


Report = Callable[[EpochReport], None]


@dataclass
class RunReport:
    """What a run did."""

    rule: str
    epochs: list[EpochReport] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    head: Head | None = None
