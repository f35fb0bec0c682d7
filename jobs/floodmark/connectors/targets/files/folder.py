"""The folder of a target of files: its manifests, put where none is yet, and its data files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from floodmark.core.relay.manifests import (
    DATA,
    MANIFESTS,
    Listed,
    Manifest,
    manifest_name,
    moves,
    numbers_in,
)
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, LedgerBroken, Refused, TableBroken


@dataclass(frozen=True)
class DataFile:
    """A file with delivered rows. generation, epoch: the last whose rows it has; schema: as in CREATE TABLE.

    sha256: of its bytes, as hex digits.
    """

    path: Path
    rows: int
    bytes: int
    sha256: str
    generation: int
    epoch: int
    schema: str


class Folder:
    """The folder of the target at `address`."""

    def __init__(self, address: str, path: Path):
        self._address = address
        self._path, self.data, self._manifests = path, path / DATA, path / MANIFESTS

    # --- Manifests

    def newest(self) -> Manifest | None:
        """None if there is none. Raises LedgerBroken for one that cannot be read."""
        numbers = self._numbers()
        return self.manifest(numbers[-1]) if numbers else None

    def manifest(self, number: int) -> Manifest:
        file = self._manifests / manifest_name(number)
        try:
            return Manifest.parse(file.read_text())
        except (ValueError, FileNotFoundError) as fault:
            problem = f"its manifest {file.name} cannot be read: {fault}. Restore it"
            raise LedgerBroken(about_sink(self._address, problem)) from None

    def _numbers(self) -> list[int]:
        try:
            return numbers_in([file.name for file in self._manifests.iterdir()])
        except FileNotFoundError:
            return []

    def put(self, manifest: Manifest, sent: Callable[[], None]) -> None:
        """Put the manifest where none with its number is. Raises Fenced if there is one, Refused if the file system
        cannot do that. `sent`: called just before."""
        staged = self._manifests / f".{manifest.name}-{os.getpid()}"
        with staged.open("w") as file:
            file.write(manifest.text())
            file.flush()
            os.fsync(file.fileno())
        try:
            sent()
            os.link(staged, self._manifests / manifest.name)
        except FileExistsError:
            problem = f"expected no manifest {manifest.name} yet, found one: another relay was faster; ship again"
            raise Fenced(about_sink(self._address, problem)) from None
        except OSError as fault:
            if fault.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            problem = f"expected a file system with hard links, by which a manifest is put once: {fault}"
            raise Refused(about_sink(self._address, problem)) from None
        finally:
            staged.unlink(missing_ok=True)
        sync(self._manifests)

    def make(self) -> None:
        for one in (self.data, self._manifests):
            one.mkdir(parents=True, exist_ok=True)
        sync(self._path)

    def foreign(self) -> str | None:
        """A file of somebody else, if there is one."""
        left = (file for file in self._path.rglob("*") if not file.is_dir() and not file.name.startswith("."))
        found = next(left, None)
        return None if found is None else str(found.relative_to(self._path))

    # --- Data files

    def tidy(self, newest: Manifest) -> None:
        """Give files that count their names, and remove what does not. Another relay may do the same."""
        names = [file.name for file in self.data.iterdir()]
        staged = {int(name[1:].partition("-")[0]) for name in names if name.startswith(".") and name[1:2].isdigit()}
        listed = [
            one for number in sorted(staged) if newest.first <= number <= newest.number
            for one in self.manifest(number).files
        ]  # fmt: skip
        for move in moves(names, newest, listed):
            with suppress(FileNotFoundError):
                if move.to is None:
                    (self.data / move.name).unlink()
                else:
                    (self.data / move.name).replace(self.data / move.to)

    def files(self) -> list[DataFile]:
        """Those that count, the oldest first. Raises Refused without a manifest, TableBroken if one is missing."""
        newest = self.newest()
        if newest is None:
            raise Refused(about_sink(self._address, "expected a folder that a rule delivers to, found no manifest"))
        counted = [self.manifest(number) for number in range(newest.first, newest.number + 1)]
        return [self._file(manifest, one) for manifest in counted for one in manifest.files]

    def _file(self, manifest: Manifest, one: Listed) -> DataFile:
        for _ in range(2):  # a relay may rename it meanwhile
            for name in (one.name, one.staged):
                path, position = self.data / name, manifest.position
                if path.exists():
                    return DataFile(
                        path, one.rows, one.bytes, one.sha256, position.generation, position.epoch, manifest.schema
                    )
        problem = f"expected the file {one.name} of {manifest.name}, found none: somebody removed it. Restore it"
        raise TableBroken(about_sink(self._address, problem))


def sync(path: Path) -> None:
    """Make a file or a folder durable."""
    known = os.open(path, os.O_RDONLY)
    try:
        os.fsync(known)
    finally:
        os.close(known)
