"""Crashes inside the test's own process: cheap, and enough wherever only what lies on disk matters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from floodmark.core.protocol import crashpoints
from floodmark.spark.rule import run  # which loads all modules with crash points of a run


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
        put_reach(patch, planned.reach)
        yield planned


def put_reach(patch: pytest.MonkeyPatch, reach: Callable[..., None]) -> None:
    """Put `reach` in the place of the engine's own, in every module that calls it."""
    own = [module for name, module in sys.modules.items() if name.startswith("floodmark.")]
    modules = [one for one in own if getattr(one, "reach", None) is crashpoints.reach]
    assert run in modules, "the engine reaches its crash points by another name"
    for module in modules:
        patch.setattr(module, "reach", reach)
