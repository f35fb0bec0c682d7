"""Files of a folder as a source. Each file is read once, whatever its time says; only `frame` needs a JVM."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.connectors.ports.source import Backlog, Stepped
from floodmark.connectors.sources.files import schemas
from floodmark.connectors.sources.files.comparing import Comparison
from floodmark.connectors.sources.files.csvlines import has_no_quotes
from floodmark.connectors.sources.files.delivered import refuse_delivered
from floodmark.connectors.sources.files.folder import File, Folder, Listing, LocalFolder, Wanted
from floodmark.connectors.sources.files.journal import Journal, Listed, Offset
from floodmark.connectors.sources.files.jsonlines import has_lone_objects
from floodmark.connectors.sources.files.options import WrittenFiles
from floodmark.connectors.sources.files.unread import (
    changed,
    extended,
    is_settled,
    late_text,
    long_waiting,
    once,
    renewed,
    unmarked,
    unread,
    within,
)
from floodmark.core.application.sparkconf import AVRO_JARS, check_jars
from floodmark.core.text.addresses import is_object, location
from floodmark.core.text.ddl import delta_name
from floodmark.core.text.durations import parse_duration
from floodmark.errors import HistoryGone, NotThereYet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.connectors.planning.filerows import Records
    from floodmark.core.rules.rule import EpochLimits, Stream
    from floodmark.core.text.ddl import Column


class FilesSource(Stepped):
    """A folder that a rule reads. An offset is a position in the list of its files (`journal`).

    keep: the folder of the list; None for a look without a home.
    """

    def __init__(self, name: str, stream: Stream, keep: Path | None):
        self.name, self.address = name, location(stream.address)
        self._said, self._starts_at = WrittenFiles.model_validate(stream.options), stream.start
        self._keep = keep

    @property
    def _what(self) -> str:
        return f"stream {self.name}"

    @property
    def _list(self) -> Path | None:
        return self._keep and self._keep / "files.jsonl"

    @property
    def _schema(self) -> Path | None:
        return self._keep and self._keep / "schema.ddl"

    @cached_property
    def _journal(self) -> Journal:
        return Journal.load(self._list)

    @cached_property
    def _folder(self) -> Folder:
        return _folder_at(self._what, self.address)

    @cached_property
    def _comparison(self) -> Comparison:
        return Comparison(self._what, self._folder)

    @cached_property
    def _listing(self) -> Listing:
        return _listing(self._what, self._said, self._folder)

    def columns(self) -> dict[str, str]:
        refuse_delivered(self._what, self.address, ())
        return {column.name: delta_name(column.type) for column in (*self._columns, *self._said.folders)}

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        """The columns in the files. Raises NotThereYet if they are to be found in a file, and there is none."""
        known = self._said.columns or schemas.kept_columns(self._schema)
        if known:
            return known
        file = next((one for one in self._unread(()) if one.size), None)
        if file is None:
            raise NotThereYet(
                f"{self._what}: expected a file at {self.address} to find the columns in, found none{self._pattern}"
                f"{_unsettled(len(self._listing.files))}{self._waiting_text(self._listing.waiting)}. "
                "Write one first, or declare the columns with `schema`; a retry checks again"
            )
        return schemas.columns_in(self._what, self._said, self._folder.content(file.path))

    def _waiting_text(self, files: Sequence[File]) -> str:
        return f" ({_files(len(files))} without {self._said.done} yet)" if files else ""

    @property
    def _pattern(self) -> str:
        return "" if self._said.glob == "*" else f" of the pattern {self._said.glob}"

    def _unread(self, read: Sequence[Listed]) -> list[File]:
        return unread(once(self._listing, read), read, time.time_ns(), self._settle)

    @property
    def _settle(self) -> int:
        """Nanoseconds; none for objects, which are whole once they are listed."""
        whole = self._said.done or is_object(self.address)
        return 0 if whole else parse_duration(self._said.settle) * 1000

    def start(self) -> str:
        """Where a generation starts; earlier ones may have read files, which it reads again."""
        first = len(self._journal.files)
        skipped = len(self._unread(())) if self._starts_at == "latest" else 0
        return self._ahead(first, first + skipped).line()

    def end(self) -> str:
        journal = self._journal
        new = self._unread(journal.files[journal.first :])
        return self._ahead(journal.first, len(journal.files) + len(new)).line()

    def _ahead(self, first: int, files: int) -> Offset:
        """An offset that may lie beyond the list."""
        known = files <= len(self._journal.files)
        return self._journal.offset(files, first) if known else Offset(first, files, "")

    def take_start(self) -> str:
        first = len(self._journal.files)
        new = self._unread(()) if self._starts_at == "latest" else ()
        found = [one for one in map(self._listed, new) if one is not None]
        self._comparison.tell_left()
        self._journal.write(first, first, found)
        return self._journal.offset(first + len(found), first).line()

    def take_end(self, since: str) -> str:
        journal, at = self._journal, Offset.parse(since)
        self.check_identity(since, None)
        fresh = self._unread(self._read(at))
        found = extended(journal.files[at.files :], fresh, self._listed)
        self._comparison.tell_left()
        keep = at.files + found.kept
        if found.added or keep < len(journal.files):
            self._keep_columns()
            for one in found.added:
                self._check(one.file)
        same, again = renewed(journal.files[:keep], self._comparison.proven)
        if found.added or same < len(journal.files):
            journal.write(same, at.first, (*again, *found.added))
        return journal.offset(len(journal.files), at.first).line()

    def _keep_columns(self) -> None:
        """What the first run finds in a file holds for all."""
        if self._schema is not None and not self._said.columns and not self._schema.exists():
            schemas.keep_columns(self._schema, self._columns)

    def _listed(self, file: File) -> Listed | None:
        """With its checksum, which is computed only for a file that was not listed before as it is."""
        known = self._sums.get(file)
        return Listed(file, known) if known else self._comparison.listed(file)

    @cached_property
    def _sums(self) -> dict[File, str]:
        return {one.file: one.sum for one in self._journal.files}

    def _check(self, file: File) -> None:
        if file.size:
            content = self._folder.content(file.path)
            schemas.check_file(self._what, self._said, self._columns, content, whole=not is_object(self.address))

    def news(self, since: str, upto: str | None = None) -> bool:
        at, end = Offset.parse(since), None if upto is None else Offset.parse(upto)
        if end is not None and (end.sum or end.files <= at.files):
            return at.files < end.files
        return bool(self._unread(self._read(at)))

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        if not rebuilt:
            self.check_appended(since)
        at = Offset.parse(since)
        new = self._unread(self._read(at))
        size = sum(one.size for one in new)
        now, settle = time.time_ns(), self._settle
        unsettled = sum(not is_settled(one, now, settle) for one in self._listing.files)
        text = f"{_files(len(new))}, {size:,} bytes" if new else "nothing new"
        waits = self._unmarked(since)
        text += _unsettled(unsettled) + self._waiting_text(waits)
        facts = {"files": len(new), "bytes": size, "unsettled": unsettled + len(waits), "read": at.count}
        return Backlog(len(new), "files", text, facts)

    def notices(self, since: str) -> tuple[str, ...]:
        found = long_waiting(self._unmarked(since), time.time_ns())
        return (f"{self._what}: {late_text(found, self._said.done)}",) if found else ()

    def _unmarked(self, since: str) -> list[File]:
        return unmarked(self._listing.waiting, self._read(Offset.parse(since)))

    def waiting(self, since: str | None, enough: int | None = None) -> int:
        read = () if since is None else self._read(Offset.parse(since))
        return sum(one.size for one in self._unread(read))

    def _read(self, at: Offset) -> list[Listed]:
        """The files of the generation that are read at an offset."""
        return self._journal.files[at.first : at.files]

    def describe(self, offset: str) -> str:
        return _files(Offset.parse(offset).count)

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        at, end = Offset.parse(since), Offset.parse(upto)
        count = within(self._journal.files[at.files : end.files], limits)
        return self._journal.offset(at.files + count, at.first).line()

    # --- Whether what was read is as it was

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        at = Offset.parse(offset)
        return not self._journal.has(at) or self._overwritten(at) is not None

    def check_identity(self, offset: str, log_sum: str | None) -> None:
        at = Offset.parse(offset)
        self._check_list(at)
        found = self._overwritten(at)
        if found is not None:
            raise self._comparison.changed(*found)

    def _check_list(self, at: Offset) -> None:
        if not self._journal.has(at):
            raise HistoryGone(
                f"{self._what}: expected a list with the {_files(at.files)} that were read ({self._list}), found "
                "another list or none. Restore it, or start over with `floodmark reset`"
            )

    def check_appended(self, since: str) -> None:
        self.check_identity(since, None)

    def _overwritten(self, at: Offset) -> tuple[Listed, File] | None:
        """A file that was read and has other content now. Its content is compared only if its times or size differ."""
        if self._said.overwritten == "skip":
            return None
        read = self._read(at)
        now = [*once(self._listing, read), *self._listing.waiting]  # a newer file than its marker waits for the next
        return self._comparison.first_changed(changed(now, read))

    # --- Rows

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        """Spark opens the files after they were checked: do not change them then."""
        at, upto = Offset.parse(begin), Offset.parse(end)
        if not upto.sum:  # a look's, beyond the list
            return self._rows(spark, self._unread(self._read(at))[: upto.files - at.files])
        self._check_list(at)
        self._check_list(upto)
        files = self._journal.files[at.files : upto.files]
        self._comparison.check(files)
        return self._rows(spark, [one.file for one in files])

    def whole(self, spark: SparkSession) -> DataFrame:
        return self._rows(spark, self._unread(()))

    def typed(self, spark: SparkSession) -> DataFrame:
        return self._rows(spark, [])

    def _rows(self, spark: SparkSession, files: Sequence[File]) -> DataFrame:
        from floodmark.connectors.planning.filerows import Records, rows_of

        said = self._said
        if said.format == "avro":
            check_jars(AVRO_JARS)
        records = Records(said.format, said.for_spark, self._columns, said.folders)
        paths = [one.path for one in files if one.size]
        return rows_of(spark, records, self.address, paths, *_looks(self._what, said, self._folder, records, paths))


def _looks(
    what: str, said: WrittenFiles, folder: Folder, records: Records, paths: Sequence[str]
) -> tuple[set[str], dict[str, str], dict[str, frozenset[str]]]:
    """What is read of files before Spark does: which are plain, the heads of Avro that `records` needs, and the
    columns of Parquet without a type."""
    wanted = paths if records.record is not None else ()
    heads = {one: schemas.head_of(what, said, folder.content(one)) for one in wanted}
    footed = paths if said.format == "parquet" else ()
    untyped = {one: schemas.untyped_columns(what, said, folder.content(one)) for one in footed}
    return _plain(said, folder, paths), heads, untyped


def _plain(said: WrittenFiles, folder: Folder, paths: Sequence[str]) -> set[str]:
    """Files whose lines surely are records as Spark reads them: of JSON, with an object alone; of CSV, without quotes.

    Compressed ones and objects are not looked at.
    """
    if said.format not in ("json", "csv") or said.multiline or not isinstance(folder, LocalFolder):
        return set()
    quote = said.quote or '"'
    looked = ((one, folder.content(one)) for one in paths if not schemas.is_compressed(one))
    if said.format == "json":
        return {one for one, content in looked if has_lone_objects(content)}
    return {one for one, content in looked if has_no_quotes(content, quote)}


def _listing(what: str, said: WrittenFiles, folder: Folder) -> Listing:
    """The stream's files as they are now. Raises Refused for those of a target."""
    found = folder.files(Wanted(said.glob, said.recursive or bool(said.folders), said.done))
    refuse_delivered(what, folder.address, (one.path for one in found.files))
    return found


def _folder_at(what: str, address: str) -> Folder:
    if not is_object(address):
        return LocalFolder(what, address)
    from floodmark.connectors.sources.files.objects import ObjectFolder, store_at

    return ObjectFolder(what, address, store_at(what, address))


def _files(count: int) -> str:
    return f"{count:,} file" if count == 1 else f"{count:,} files"


def _unsettled(count: int) -> str:
    return f" ({_files(count)} not settled yet)" if count else ""
