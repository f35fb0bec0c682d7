"""The manifests of a target that is a folder of files. Each is one transaction, and says which files it added."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from floodmark.core.relay.positions import Position

DATA, MANIFESTS = "data", "manifests"  # folders
_WIDTH = 12  # of numbers in names, so that the order of names is theirs
_ATTEMPT = 8  # hex digits


@dataclass(frozen=True)
class Listed:
    """A data file: `name`, and the name that it has until it is renamed. sha256: of its bytes, as hex digits."""

    name: str
    staged: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """`number`: 0 of the first, then one more each. first: files of manifests before that number no longer count.

    position: the target's afterwards. schema: of the rows, as in CREATE TABLE. at: UTC, ISO 8601.
    """

    number: int
    first: int
    position: Position
    files: tuple[Listed, ...]
    schema: str
    at: str

    @property
    def name(self) -> str:
        return manifest_name(self.number)

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def parse(cls, text: str) -> Manifest:
        """The manifest that `text` wrote. Raises ValueError for any other text."""
        try:
            found: dict[str, Any] = json.loads(text)
            files = tuple(Listed(**one) for one in found.pop("files"))
            position = Position.parse(json.dumps(found.pop("position")))
            return cls(**found, files=files, position=position)
        except (KeyError, TypeError, AttributeError) as fault:
            raise ValueError(f"expected a manifest, found {text[:200]!r}: {fault}") from None


def manifest_name(number: int) -> str:
    return f"{number:0{_WIDTH}}.json"


def numbers_in(names: Collection[str]) -> list[int]:
    """The numbers of the manifests among file names, in order."""
    found = (re.fullmatch(rf"(\d{{{_WIDTH}}})\.json", name) for name in names)
    return sorted(int(one[1]) for one in found if one)


def data_name(number: int, suffix: str) -> str:
    """Of the data file of a transaction."""
    return f"{number:0{_WIDTH}}.{suffix}"


def staged_name(number: int, attempt: str, suffix: str) -> str:
    """Of the same file before its manifest is there. Programs that read folders leave names with a dot out."""
    return f".{number:0{_WIDTH}}-{attempt}.{suffix}"


def staged_in(names: Collection[str]) -> set[int]:
    """The numbers of the staged files among file names."""
    return {number for number, staged in filter(None, map(_parsed, names)) if staged}


def _parsed(name: str) -> tuple[int, bool] | None:
    """The number in the name of a data file, and whether it is staged. None: it is no file of ours."""
    found = re.fullmatch(rf"(?:(\d{{{_WIDTH}}})|\.(\d{{{_WIDTH}}})-[0-9a-f]{{{_ATTEMPT}}})\.(parquet|json|csv)", name)
    return None if found is None else (int(found[1] or found[2]), found[1] is None)


def unlisted(names: Collection[str], first: int, listed: Collection[Listed]) -> list[str]:
    """Of all data files, those that readers of the folder see and no manifest has. `first`: see `Manifest`; relays
    remove older ones."""
    known, older = {one.name for one in listed}, range(first)
    found = ((name, _parsed(name)) for name in sorted(names) if name not in known and not name.startswith((".", "_")))
    return [name for name, one in found if one is None or one[0] not in older]


@dataclass(frozen=True)
class Move:
    """What is to be done with a file of the data folder: rename it to `to`; None: remove it."""

    name: str
    to: str | None


def strays(names: Collection[str], newest: int) -> list[str]:
    """The named data files above the newest manifest's number: of manifests that somebody took away."""
    found = ((name, _parsed(name)) for name in sorted(names))
    return [name for name, one in found if one is not None and one[0] > newest and not one[1]]


def moves(names: Collection[str], newest: Manifest, listed: Collection[Listed]) -> Iterator[Move]:
    """What a relay tidies up in the data folder. `names`: of its files; `listed`: of manifests that still count. Files
    of other programs stay.

    A staged file gets its name once its manifest is there. One that lost its number to another relay is removed, and so
    is what a reset took away. A staged file with a number that no manifest has yet may be one that a relay now writes.
    """
    ours = {one.staged: one.name for one in listed}
    for name in sorted(names):
        found = _parsed(name)
        if found is None or found[0] > newest.number:
            continue
        number, staged = found
        if staged and name in ours:
            yield Move(name, ours[name])
        elif staged or number < newest.first:
            yield Move(name, None)
