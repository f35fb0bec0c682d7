"""A landing: the table in the rule's home to which a stream's rows are copied first, as the source that epochs read.

An offset is one of that table. Each commit that copies rows (a chunk) records the offsets of the stream's own source
between which they were read. So the table alone says how far the source was copied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from deltalake import DeltaTable

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.source import DeltaSource
from floodmark.connectors.ports.source import MALFORMED, Backlog
from floodmark.core.protocol.entry import compact
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.rules.model import Stream
from floodmark.core.text.tablenames import about
from floodmark.errors import FloodmarkError, HistoryGone
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.landings import FIRST, LandedTable, app_of, cut_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.connectors.ports.source import Source
    from floodmark.core.lifecycle.retention import Limit

T = TypeVar("T")
START = "floodmark.landing"  # table property: the source's offset at which copying started
KIND = "floodmark.landing.kind"  # table property: the source's kind, which spells offsets; older landings have none


@dataclass(frozen=True)
class Chunk:
    """The newest copy: its number (0: none yet), the commit's version, and the source's offset up to which it reaches.

    log_sum: the source's, at that offset.
    """

    number: int
    version: int
    end: str
    log_sum: str | None = None


class Landed(DeltaSource):
    """`inner`: the stream's own source. `place`: the table; None for a look without a home.

    As long as there is no table, questions about rows go to the source.
    """

    def __init__(self, name: str, stream: Stream, inner: Source, place: str | None):
        super().__init__(name, Stream(kind="delta", address=place or stream.address))
        self.inner, self.place, self.stream_of = inner, place, stream

    # --- The landing itself

    def landing(self) -> DeltaTable | None:
        """The landing's table; None before the rule's first run."""
        return None if self.place is None else tables.open_table(self.place)

    def table(self) -> DeltaTable:
        found = self.landing()
        if found is None:
            raise _lost(self)
        return found

    @property
    def origin(self) -> Source:
        return self.inner

    @property
    def app(self) -> str:
        """The app id of its chunks."""
        return app_of(str(tables.owner_of(self.table())), self.name)

    @property
    def other_kind(self) -> str | None:
        """The kind of source that was copied, where the stream names another; None also if it is not recorded."""
        return _other_kind(self.table(), self.stream_of.kind)

    def newest(self) -> Chunk:
        """The newest chunk. Raises HistoryGone without a table, and if another kind of source was copied."""
        table = self.table()
        other = _other_kind(table, self.stream_of.kind)
        if other is not None:
            raise _another_kind(self, other)
        found = _newest(table, self.address, app_of(str(tables.owner_of(table)), self.name))
        if not _is_spelt_by(self.inner, found.end):
            raise _another_kind(self, "another one")
        return found

    def cut(self) -> int:
        """The first version whose rows are all there: upkeep has removed those of earlier ones."""
        return cut_at(self.address, self.app)

    def upkeep(self, read: str | None, keep_us: int | None) -> LandedTable:
        """For upkeep. `read`: the offset up to which nothing reads its rows any more; None: unknown, so all stay."""
        folded = FIRST if read is None else DeltaOffset.parse(read).version
        return LandedTable(self.name, self.address, self.app, keep_us, folded)

    @contextmanager
    def of_source(self) -> Iterator[None]:
        """For questions to the source: a reset, as its HistoryGone advises, does not help, as the landing stays."""
        try:
            yield
        except HistoryGone as fault:
            raise HistoryGone(
                f"{fault}. The stream has a landing, which a reset keeps: to land the source from its start again, "
                f"first move the folder {self.address} out of the home, with all rows that were landed. It is a Delta "
                "table, which another stream can read"
            ) from fault

    def _asked(self, ask: Callable[[str], T]) -> tuple[Chunk, T]:
        """Ask the source from where the landing ends, for a look. A run beside may land more meanwhile, and the source
        forget that: then ask again from there."""
        chunk = self.newest()
        while True:
            try:
                with self.of_source():
                    return chunk, ask(chunk.end)
            except HistoryGone:
                later = self.newest()
                if later.number == chunk.number:
                    raise
                chunk = later

    def check_source(self) -> None:
        """Raise HistoryGone if the source cannot be copied on from where the landing ends."""
        chunk = self.newest()
        with self.of_source():
            self.inner.check_identity(chunk.end, chunk.log_sum)
            self.inner.check_columns(chunk.end, self.columns())
            self.inner.check_appended(chunk.end)

    # --- Offsets

    def start(self) -> str:
        """The landing's earliest rows; `start` of the stream applies to what is copied."""
        table = self.landing()
        return self.inner.start() if table is None else self._at(table, self.cut())

    def end(self) -> str:
        """Where a run that starts now would end: it is known as an offset of the source, because nothing is copied."""
        return compact({"source": self.inner.end()})

    def take_end(self, since: str) -> str:
        return super().end()

    def news(self, line: str, upto: str | None = None) -> bool:
        if self.landing() is None:
            return self.inner.news(line, _source_end(upto) if upto else None)
        if upto is None:
            return super().news(line) or self._asked(self.inner.news)[1]
        reached = self._reached(upto)
        return reached is None or super().news(line, reached)

    def _reached(self, upto: str) -> str | None:
        """The landing's offset at which a look's end is reached; None if it is not copied yet."""
        source, table = _source_end(upto), self.table()
        if source is None:
            return upto
        if not self.inner.news(table.metadata().configuration[START], source):
            return self._at(table, FIRST)
        reached = None
        for version, end in _ends(self.address):
            if self.inner.news(end, source):
                break
            reached = self._at(table, version + 1)
        return reached

    def describe(self, line: str) -> str:
        return f"landing, {super().describe(line)}"

    # --- What the source is asked, too

    def columns(self) -> dict[str, str]:
        found = self.inner.columns() if self.landing() is None else super().columns()
        return {name: kind for name, kind in found.items() if name != MALFORMED}

    def backlog(self, line: str, rebuilt: bool = False) -> Backlog:
        chunk, waits = self._asked(self.inner.backlog)
        folds = super().backlog(line, rebuilt)
        text = f"not landed: {waits.text}; landed and not folded: {folds.text}"
        facts = {
            "landed": self.inner.describe(chunk.end),
            "not_landed": {"amount": waits.amount, "unit": waits.unit, **waits.facts},
            "not_folded": {"amount": folds.amount, "unit": folds.unit, **folds.facts},
        }
        return Backlog(waits.amount + folds.amount, f"{waits.unit} and {folds.unit}", text, facts)

    def notices(self, since: str) -> tuple[str, ...]:
        return self.inner.notices(self.newest().end)

    def remains(self) -> str | None:
        return self.inner.remains()

    def check_release(self, read: str | None = None) -> None:
        self.inner.check_release(_landed_up_to(self))

    def release(self, read: str | None = None) -> None:
        self.inner.release(_landed_up_to(self))

    def waiting(self, line: str | None, enough: int | None = None) -> int:
        if self.landing() is None:
            return self.inner.waiting(None, enough)
        return super().waiting(line, enough) + self.inner.waiting(self.newest().end, enough)

    def bytes_a_row(self) -> float | None:
        return self.inner.bytes_a_row() if self.landing() is None else super().bytes_a_row()

    def check_appended(self, line: str) -> None:
        super().check_appended(line)
        self._asked(self.inner.check_appended)

    def _refuse_removed(self, commits: Iterable[tablelog.DataCommit]) -> None:
        found = next((commit for commit in commits if commit.removes and not commit.gone), None)
        if found is not None:
            raise self._gone(
                f"version {found.version} of its landing removes or changes rows; only this rule may write it. "
                "Restore the table, or start over with `floodmark reset`"
            )

    def rewrite(self, since: str, upto: str | None = None) -> Rewrite | None:
        return None

    def passed_over(self, begin: str, end: str) -> tuple[str, ...]:
        return ()

    def forgets(self, line: str, now_us: int) -> list[Limit]:
        """What the source may forget before it is landed. Landed rows stay until upkeep removes folded ones."""
        return self.inner.forgets(self.newest().end, now_us)

    def is_to_follow(self, line: str, now_us: int) -> bool:
        return self.inner.is_to_follow(line if self.landing() is None else self.newest().end, now_us)

    def log_sum(self, line: str) -> str | None:
        """Of what the newest commit that is read says of its rows: `forget` may write the same commit without some."""
        try:
            said = tablelog.commit_info(self.address, DeltaOffset.parse(line).newest_read)
        except FileNotFoundError:
            return None
        return sha256(str(said.get("userMetadata")).encode()).hexdigest()

    def is_another(self, line: str, log_sum: str | None = None) -> bool:
        if self.landing() is None or self.other_kind is not None:
            return True
        chunk = self.newest()
        return super().is_another(line, log_sum) or self.inner.is_another(chunk.end, chunk.log_sum)

    def check_landing(self, line: str, log_sum: str | None) -> None:
        """As `check_identity`, of the landing alone."""
        super().check_identity(line, log_sum)

    def check_identity(self, line: str, log_sum: str | None) -> None:
        self.check_landing(line, log_sum)
        chunk = self.newest()
        with self.of_source():
            self.inner.check_identity(chunk.end, chunk.log_sum)

    # --- Rows

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        """A look's end has rows that are not landed yet; these are read from the source."""
        source = _source_end(end)
        if self.landing() is None:
            return self.inner.frame(spark, begin, end if source is None else source)
        self.check_kept(begin, end if source is None else begin)
        if source is None:
            return super().frame(spark, begin, end)
        chunk, more = self._asked(lambda since: _not_landed(self.inner, spark, since, source))
        passed = DeltaOffset.parse(begin).version > chunk.version  # commits without rows may follow the chunk
        landed = super().frame(spark, begin, begin if passed else self._at(self.table(), chunk.version + 1))
        return landed if more is None else landed.unionByName(more, allowMissingColumns=True)

    def check_kept(self, begin: str, end: str) -> None:
        """Raise HistoryGone if rows of the range were removed by upkeep."""
        if begin != end and DeltaOffset.parse(begin).version < self.cut():
            raise self._gone(
                f"expected landed rows from version {DeltaOffset.parse(begin).version} of its landing on, found them "
                f"from version {self.cut()} on: upkeep removed older ones, because the stream has `landing` with "
                "`keep`. Give `keep` a longer time for what is to come; `floodmark reset` starts with the rows that "
                "are left. `floodmark correct RULE --skip` gives up a correction that needs them"
            )

    def whole(self, spark: SparkSession) -> DataFrame:
        return self.inner.whole(spark) if self.landing() is None else super().whole(spark)

    def typed(self, spark: SparkSession) -> DataFrame:
        return self.inner.typed(spark) if self.landing() is None else super().whole(spark)


def _not_landed(inner: Source, spark: SparkSession, since: str, upto: str) -> DataFrame | None:
    """The source's rows up to a look's end; None if a run beside has landed these meanwhile."""
    return inner.frame(spark, since, upto) if inner.news(since, upto) else None


def _landed_up_to(landed: Landed) -> str | None:
    """None also if the landing cannot be read any more, which stops no drop."""
    try:
        return None if landed.landing() is None else landed.newest().end
    except FloodmarkError:
        return None


def _other_kind(table: DeltaTable, kind: str) -> str | None:
    copied = table.metadata().configuration.get(KIND, kind)
    return None if copied == kind else copied


def _newest(table: DeltaTable, address: str, app: str) -> Chunk:
    number = tablelog.recorded_in(table, app)
    if number is None:
        return Chunk(0, 0, table.metadata().configuration[START])
    found = tablelog.our_commit(address, app, number)
    return Chunk(number, found.commit, str(found.metadata["end"]), found.metadata["log_sum"])


def _is_spelt_by(source: Source, offset: str) -> bool:
    """Whether an offset is one of the source's own: older landings do not say which kind of source they copied, and a
    kind may have several forms."""
    try:
        source.check_spelt(offset)
    except (AttributeError, KeyError, TypeError, ValueError):
        return False
    return True


def _lost(landed: Landed) -> HistoryGone:
    problem = (
        "expected its landing, to which its rows were copied, found no table. Restore it, or start over with "
        "`floodmark reset`, which lands what the source still has"
    )
    return HistoryGone(about(f"stream {landed.name}", landed.address, problem))


def _another_kind(landed: Landed, kind: str) -> HistoryGone:
    problem = (
        f"expected the kind of source from which its landing was copied ({kind}), found {landed.stream_of.kind}, to "
        "which offsets of the other mean nothing. Restore the stream in the rule file; or move the folder of the "
        "landing, with its rows, out of the home, and start over with `floodmark reset`"
    )
    return HistoryGone(about(f"stream {landed.name}", landed.address, problem))


def _ends(address: str) -> Iterator[tuple[int, str]]:
    """The version of each chunk and where it ends in the source, from the newest on, as far as the log has them."""
    for entry in tablelog.commit_infos(address):
        said = tables.metadata_of(entry)
        if said and "since" in said:
            yield int(entry["version"]), str(said["end"])


def _source_end(line: str | None) -> str | None:
    """The source's offset in the end that a look gives; None in an offset of the landing."""
    found = json.loads(line) if line else {}
    return str(found["source"]) if "source" in found else None
