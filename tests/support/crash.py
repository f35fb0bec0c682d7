"""Crashes inside the test's own process: cheap, and enough wherever only what lies on disk matters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from floodmark.spark.rule import abandoning, backfilling, compaction, epoch, generation, run


class Crash(Exception):
    """What a planned crash raises; no code of the engine knows it."""


class Planned:
    """A crash at the `nth` time that `point` is reached."""

    def __init__(self, point: str, nth: int = 1):
        self.point, self.nth = point, nth
        self.seen = 0

    @property
    def fired(self) -> bool:
        return self.seen >= self.nth

    def reach(self, rule: str, point: str, epoch: int | None = None) -> None:
        if point == self.point:
            self.seen += 1
            if self.seen == self.nth:
                raise Crash(f"{rule}: {point}")


@contextmanager
def crash_at(point: str, nth: int = 1) -> Iterator[Planned]:
    planned = Planned(point, nth)
    with pytest.MonkeyPatch.context() as patch:
        for module in (abandoning, backfilling, compaction, epoch, generation, run):
            patch.setattr(module, "reach", planned.reach)
        yield planned
