"""Follow the rewrites of sources that the ledger defers: each of them is corrected, or skipped, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SINCE = 10  # the first format in which the offsets are behind a rewrite before its correction
Rewrites = Mapping[str, Mapping[str, Any]]  # by stream


@dataclass(frozen=True)
class Deferral:
    """A row that put offsets behind rewrites. `epoch`: the one before it; `after`: how many backfills had begun.

    before: the rule's status at that time.
    """

    epoch: int
    after: int
    body: Mapping[str, Any]
    before: Mapping[str, Any]


class Outstanding:
    """The deferred rewrites of a generation that have yet to be corrected, by stream, in their order."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def defer(self, rewrites: Rewrites) -> None:
        for name, one in rewrites.items():
            self._known.setdefault(name, []).append((str(one["since"]), str(one["upto"])))

    def correct(self, rewrites: Rewrites) -> Iterator[str]:
        """Take out what a correction has followed; what it follows that was not deferred."""
        for name, one in rewrites.items():
            known = self._known.get(name, [])
            ends = [upto for _, upto in known]
            if one["upto"] not in ends or known[0][0] != one["since"]:
                yield f"stream {name}: a correction of rewrites that were not deferred"
            else:
                self._known[name] = known[ends.index(one["upto"]) + 1 :]

    def skip(self, streams: Iterable[str]) -> Iterator[str]:
        """Take out what will not be corrected; streams without any."""
        for name in streams:
            if not self._known.pop(str(name), []):
                yield f"stream {name}: there was no deferred rewrite to skip"
