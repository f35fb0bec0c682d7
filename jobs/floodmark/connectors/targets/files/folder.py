"""The folder of a target of files: its manifests, put where none is yet, and its data files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from floodmark.connectors.targets.files.places import place_at
from floodmark.core.relay.manifests import (
    DATA,
    MANIFESTS,
    Listed,
    Manifest,
    manifest_name,
    moves,
    numbers_in,
    staged_in,
    strays,
    unlisted,
)
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, LedgerBroken, Refused, TableBroken


@dataclass(frozen=True)
class DataFile:
    """A file with delivered rows. generation, epoch: the last whose rows it has; schema: as in CREATE TABLE.

    path: of an object, its address (`s3://…`). sha256: of its bytes, as hex digits.
    """

    path: Path | str
    rows: int
    bytes: int
    sha256: str
    generation: int
    epoch: int
    schema: str


class Folder:
    """The folder of the target at `address`. `place`: its own address."""

    def __init__(self, address: str, place: str):
        self._address = address
        self.place = place_at(address, place)

    # --- Manifests

    def newest(self) -> Manifest | None:
        """None if there is none. Raises LedgerBroken for one that cannot be read."""
        numbers = self._numbers()
        return self.manifest(numbers[-1]) if numbers else None

    def manifest(self, number: int) -> Manifest:
        name = manifest_name(number)
        try:
            return Manifest.parse(self.place.content(f"{MANIFESTS}/{name}").decode())
        except (ValueError, FileNotFoundError) as fault:
            problem = f"its manifest {name} cannot be read: {fault}. Restore it"
            raise LedgerBroken(about_sink(self._address, problem)) from None

    def _numbers(self) -> list[int]:
        return numbers_in(self.place.names(MANIFESTS))

    def put(self, manifest: Manifest, sent: Callable[[], None]) -> None:
        """Put the manifest where none with its number is. Raises Fenced if there is one, Refused if the file system
        cannot do that. `sent`: called just before."""
        try:
            self.place.put_new(f"{MANIFESTS}/{manifest.name}", manifest.text().encode(), sent)
        except FileExistsError:
            problem = f"expected no manifest {manifest.name} yet, found one: another relay was faster; ship again"
            raise Fenced(about_sink(self._address, problem)) from None

    def make(self) -> None:
        self.place.make((DATA, MANIFESTS))

    # --- Data files

    def tidy(self, newest: Manifest) -> None:
        """Give files that count their names, and remove what does not. Another relay may do the same."""
        names = self.place.names(DATA)
        listed = [
            one for number in sorted(staged_in(names)) if newest.first <= number <= newest.number
            for one in self.manifest(number).files
        ]  # fmt: skip
        for move in moves(names, newest, listed):
            with suppress(FileNotFoundError):
                if move.to is None:
                    self.place.remove(f"{DATA}/{move.name}")
                else:
                    self.place.rename(f"{DATA}/{move.name}", f"{DATA}/{move.to}")

    def clear(self) -> None:
        """Remove data files of manifests that are gone. Names come first: a file has one once its manifest is there."""
        names = self.place.names(DATA)
        newest = self.newest()
        for name in strays(names, newest.number) if newest else ():
            with suppress(FileNotFoundError):
                self.place.remove(f"{DATA}/{name}")

    def files(self) -> list[DataFile]:
        """Those that count, the oldest first. Raises Refused without a manifest, TableBroken if one is missing."""
        return [
            DataFile(
                self.place.whole(path), one.rows, one.bytes, one.sha256,
                manifest.position.generation, manifest.position.epoch, manifest.schema,
            )
            for path, manifest, one in self._counted(self._there())
        ]  # fmt: skip

    def paths(self) -> list[str]:
        """Of the same files, below the folder. Raises as `files`."""
        return [path for path, _, _ in self._counted(self._there())]

    def damage(self) -> Iterator[str]:
        """What readers of the data get otherwise than the manifests say. Names come first, as in `clear`."""
        names = self.place.names(DATA)
        newest, listed = self._there(), list[Listed]()
        try:
            for path, manifest, one in self._counted(newest):
                listed.append(one)
                yield from self._changed(path, manifest, one)
        except (LedgerBroken, TableBroken) as fault:
            yield f"it lacks a file: {fault}"
            return
        more = unlisted(names, newest.first, listed)
        if more:
            files = f"{len(more)} files" if len(more) > 1 else "a file"
            problem = f"it holds {files} in {DATA} that no manifest lists, such as {more[0]}"
            yield f"{problem}, whose rows readers of {DATA} see"

    def _changed(self, path: str, manifest: Manifest, one: Listed) -> Iterator[str]:
        expected, found = (one.bytes, one.sha256), self._sum(path)
        if found != expected:
            words = [f"{size} bytes with the SHA-256 {digest[:16]}…" for size, digest in (expected, found)]
            problem = f"it holds a changed file {path}: expected {words[0]} by {manifest.name}, found {words[1]}"
            yield f"{problem}. Restore the file"

    def _sum(self, path: str) -> tuple[int, str]:
        """Bytes and SHA-256 of a file."""
        size, found = 0, sha256()
        with self.place.opened(path) as file:
            while part := file.read(1 << 20):
                size += len(part)
                found.update(part)
        return size, found.hexdigest()

    def _there(self) -> Manifest:
        newest = self.newest()
        if newest is None:
            raise Refused(about_sink(self._address, "expected a folder that a rule delivers to, found no manifest"))
        return newest

    def _counted(self, newest: Manifest) -> Iterator[tuple[str, Manifest, Listed]]:
        for number in range(newest.first, newest.number + 1):
            manifest = self.manifest(number)
            yield from ((self._path(manifest, one), manifest, one) for one in manifest.files)

    def _path(self, manifest: Manifest, one: Listed) -> str:
        for _ in range(2):  # a relay may rename it meanwhile
            for name in (one.name, one.staged):
                if self.place.has(f"{DATA}/{name}"):
                    return f"{DATA}/{name}"
        problem = f"expected the file {one.name} of {manifest.name}, found none: somebody removed it. Restore it"
        raise TableBroken(about_sink(self._address, problem))
