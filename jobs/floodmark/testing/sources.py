"""Checks whether a source of one's own keeps its promise: the same rows again, elsewhere, and in any split."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from floodmark.connectors.sources.python.offsets import beyond, reaches
from floodmark.connectors.sources.python.options import check_class
from floodmark.core.application.connections import Connection
from floodmark.errors import FloodmarkError
from floodmark.testing.ranges import SourceClass, request

STEPS = 20  # of a split, before the rest is read as one
SPLITS = (1, 2, 7)  # rows of the shortest ranges
UNEVEN = (3, 40, 1, 11, 2, 97)


@dataclass(frozen=True)
class Checked:
    """What was read: how many rows, and in how many splits of the same range."""

    rows: int
    splits: int


def check_source(
    found: type,
    schema: str,
    settings: Mapping[str, Any] | None = None,
    connection: Connection | None = None,
    offsets: Sequence[Any] = (),
) -> Checked:
    """Check a class with the `schema` and the `settings` of a rule. Raises AssertionError: what differs.

    It reads from `earliest()` to `latest()`: twice by one object, by another object, in another process with another
    seed of hashes, and in parts, which end at offsets from `split` and at `offsets`.
    """
    file = Path(inspect.getfile(found))
    code = file.read_text(encoding="utf-8")
    of = SourceClass(code, str(file), found.__name__, schema, dict(settings or {}), connection)
    try:
        check_class(code, file.name, of.name)
        return _Check(of).all(offsets)
    except (ValueError, FloodmarkError) as fault:
        raise AssertionError(str(fault)) from fault


class _Check:
    def __init__(self, of: SourceClass):
        self._of, self._author = of, of.author()
        self._begin, self._end = self._author.offset("earliest"), self._author.offset("latest")
        assert reaches(self._begin, self._end), f"expected latest() at or beyond {self._begin!r}, found {self._end!r}"

    def all(self, offsets: Sequence[Any]) -> Checked:
        assert beyond(self._begin, self._end), "expected a source with rows, found earliest() equal to latest()"
        rows = self._of.rows(self._author, self._begin, self._end)
        self._compare("the same object", rows, self._of.rows(self._author, self._begin, self._end))
        other = self._of.author()
        self._compare("another object", rows, self._of.rows(other, self._begin, self._end))
        self._compare_identity(other)
        (elsewhere,) = self._elsewhere([(self._begin, self._end)])
        self._compare("another process", rows, elsewhere)
        splits = list(self._splits(offsets))
        for ends in splits:
            parts = [self._of.rows(other, begin, end) for begin, end in pairwise(ends)]
            self._compare(f"the parts between {ends}", rows, [row for part in parts for row in part])
        later = self._author.offset("latest")
        assert reaches(self._end, later), f"expected latest() at or beyond {self._end!r}, found {later!r} afterwards"
        return Checked(len(rows), len(splits))

    def _compare(self, where: str, first: list[str], again: list[str]) -> None:
        lost, more = Counter(first) - Counter(again), Counter(again) - Counter(first)
        if lost or more:
            shown = [f"lacks {next(iter(lost))}"] if lost else []
            shown += [f"has also {next(iter(more))}"] if more else []
            raise AssertionError(
                f"{self._of.name}.read({self._begin!r}, {self._end!r}): expected the same {len(first)} rows from "
                f"{where}, found {len(again)}, with {lost.total() + more.total()} differences: {' and '.join(shown)}"
            )

    def _compare_identity(self, other: Any) -> None:
        if self._author.has("identity"):
            one, again = self._author.call("identity"), other.call("identity")
            assert one == again, f"expected identity() of another object to be {one!r}, found {again!r}"

    def _elsewhere(self, ranges: Sequence[tuple[Any, Any]]) -> list[list[str]]:
        """Read by another process, whose hashes of text have another seed."""
        done = subprocess.run(
            [sys.executable, "-m", "floodmark.testing.ranges"],
            input=request(self._of, ranges),
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert not done.returncode, f"{self._of.name}.read in another process: {done.stderr.strip().splitlines()[-1]}"
        found: list[list[str]] = json.loads(done.stdout)
        return found

    def _splits(self, offsets: Sequence[Any]) -> Iterator[list[Any]]:
        if offsets:
            yield [self._begin, *offsets, self._end]
        if self._author.has("split"):
            yield from (self._split([most] * STEPS) for most in SPLITS)
            yield self._split(UNEVEN)

    def _split(self, sizes: Sequence[int]) -> list[Any]:
        ends = [self._begin]
        for most in sizes:
            if ends[-1] == self._end:
                return ends
            found = self._author.offset("split", ends[-1], self._end, most)
            assert beyond(ends[-1], found) and reaches(found, self._end), (
                f"expected split({ends[-1]!r}, {self._end!r}, {most}) beyond the first and at most the second, found "
                f"{found!r}"
            )
            ends.append(found)
        return ends if ends[-1] == self._end else [*ends, self._end]
