"""A folder of files as a target: each transaction is one data file, and one manifest that is put where none is yet.

The manifest decides. A data file has a name with a dot until its manifest is there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.targets.files.folder import Folder
from floodmark.connectors.targets.files.formats import Counted, read, write
from floodmark.core.relay.manifests import DATA, Listed, Manifest, data_name, staged_name
from floodmark.core.relay.positions import Position
from floodmark.core.text.ddl import text_of
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, InputFault, NotOwned, Refused, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.connectors.targets.files.options import WrittenFolder

BLANK = (
    "expected a value, found NULL in the only column: it would be an empty line, which most readers of CSV skip. Write "
    "another column, too, or another `format` with `on_reset: empty`"
)


class FilesTarget(Target):
    """One folder. `options`: its path, and what its files hold."""

    def __init__(self, address: str, options: WrittenFolder):
        self.address, self._kind, self.holds_all = address, options.format, options.format == "parquet"
        self._folder = Folder(address, options.place)
        self._accepts = False

    # --- The position

    def is_gone(self) -> bool:
        """A volume that is not mounted leaves an empty folder, or none."""
        with self._faults():
            return self._folder.newest() is None and self._folder.place.foreign() is None

    def accept(self) -> None:
        self._accepts = True

    def claim(self, owner: str, layout: Layout) -> Position:
        with self._faults():
            newest = self._folder.newest() or self._take(owner, layout)
            self._folder.tidy(newest)
            return newest.position

    def _take(self, owner: str, layout: Layout) -> Manifest:
        foreign = self._folder.place.foreign()
        if foreign is not None:
            problem = f"it has files, such as {foreign}, and no manifest of a rule: expected an empty folder, or none"
            raise NotOwned(about_sink(self.address, problem))
        self._folder.make()
        first = Manifest(0, 0, Position(owner), (), text_of(layout.columns), _now())
        self._folder.put(first, _nothing)
        return first

    def position(self) -> Position | None:
        with self._faults():
            newest = self._folder.newest()
            return None if newest is None else newest.position

    # --- Applying

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        with self._faults():
            before = self._before(since)
            number = before.number + 1
            empties = max((i for i, one in enumerate(operations) if one.empties), default=None)
            files = self._write(number, operations[empties or 0 :], layout)
            first = before.first if empties is None else number
            made = Manifest(number, first, upto, files, text_of(layout.columns), _now())
            if self._accepts:  # once the rows are read, and before they count
                self._folder.clear()
            self._folder.put(made, sent)
            self._folder.tidy(made)

    def _before(self, since: Position) -> Manifest:
        found = self._folder.newest()
        if found is None:
            problem = f"expected its manifests ({since.words}), found none: somebody removed them. Restore them"
            raise Refused(about_sink(self.address, problem))
        if found.position != since:
            problem = f"expected its position at {since.words}, found {found.position.words}: another relay moved it"
            raise Fenced(about_sink(self.address, problem))
        return found

    def _write(self, number: int, operations: Sequence[Operation], layout: Layout) -> tuple[Listed, ...]:
        """One file with all rows, under a name that no other attempt has; none if there are no rows."""
        if not any(one.count for one in operations):
            return ()
        staged = staged_name(number, secrets.token_hex(4), self._kind)
        batches = (batch for one in operations if one.count for batch in self._rows(one, layout))
        with self._folder.place.new(f"{DATA}/{staged}") as file:
            out = Counted(file)
            rows = write(out, self._kind, layout.columns, batches)
        return (Listed(data_name(number, self._kind), staged, rows, out.bytes, out.sha256),)

    def _rows(self, one: Operation, layout: Layout) -> Iterator[pa.RecordBatch]:
        """Raises InputFault at the first that no line of CSV tells."""
        numbers = one.numbers()
        for batch in one.rows():
            here = list(islice(numbers, batch.num_rows))
            for place in self._blank(batch, layout):
                raise InputFault(about_sink(self.address, f"row {one.token}/{here[place]}: {BLANK}"))
            yield batch

    def _blank(self, batch: pa.RecordBatch, layout: Layout) -> list[int]:
        """The places of rows that would be empty lines."""
        alone = batch.column(layout.columns[0].name) if self._kind == "csv" and len(layout.columns) == 1 else None
        if alone is None or not alone.null_count:
            return []
        return [place for place, null in enumerate(alone.is_null().to_pylist()) if null]

    def refused(
        self, fault: InputFault, operations: Sequence[Operation], layout: Layout, since: Position
    ) -> list[dict[int, str]]:
        found = [dict[int, str]() for _ in operations]
        for one, blank in zip(operations, found, strict=True):
            first = 0
            for batch in one.rows() if one.count else ():
                blank |= {first + place: BLANK for place in self._blank(batch, layout)}
                first += batch.num_rows
        return found

    # --- Reading back

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        with self._faults():
            for path in self._folder.paths():
                with self._folder.place.opened(path) as file:
                    yield from read(file, path.rpartition(".")[2], layout.columns)

    def damage(self) -> Iterator[str]:
        with self._faults():
            yield from self._folder.damage()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as fault:
            raise Refused(
                about_sink(self.address, f"{fault.strerror}: {fault.filename}. Give the right to it")
            ) from None
        except OSError as fault:
            problem = f"it cannot be read or written: {fault}. What is committed stays in the outbox; a retry ships it"
            raise RunFailed(about_sink(self.address, problem)) from fault

    def close(self) -> None:
        """No file stays open."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _nothing() -> None:
    """No test stops here."""
