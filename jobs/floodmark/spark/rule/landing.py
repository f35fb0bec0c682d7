"""Copy new rows of the streams that have a landing into their tables, before epochs are planned. The lock is held.

Each copy (a chunk) is one Delta commit under an app transaction, which also records the source's offsets. A kill before
the commit leaves nothing that anybody sees; the next run asks the source anew. After the commit, the source is told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.connectors.columns import named, needed, spoken_of, with_checked_columns
from floodmark.connectors.delta.landed import KIND, START, Landed
from floodmark.connectors.planning.epochends import steps
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.ports.source import MALFORMED, Source, unrecorded
from floodmark.core.lifecycle.replays import MALFORMED_RECORD
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.kinds import SourceCan, source_can
from floodmark.core.rules.rule import EpochLimits, Rule
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.tablenames import about
from floodmark.errors import Fenced, NotOwned, RunFailed, WrongColumn
from floodmark.ledger.comparing import check_before_commit
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.syncing import sync_commit
from floodmark.ledger.home import Home
from floodmark.spark.read.batch import unread
from floodmark.spark.read.typechanges import gained_fields, wrong_types
from floodmark.spark.session.session import cores, rule_session
from floodmark.spark.write import layouts, tablesink
from floodmark.spark.write.appending import Appending

MOST = EpochLimits(max_files=1_000, max_bytes=1 << 30, max_rows=500_000)  # of one copy, where its source can bound it
# The log holds the source's offsets, and epochs read it entry by entry: only upkeep removes of it what nobody needs.
PROPERTIES = {"delta.enableExpiredLogCleanup": "false"}
Which = Callable[[Rule, str, Mapping[str, str]], list[str]]  # columns of a stream, among those that are there


@dataclass(frozen=True)
class LandedReport:
    """A committed copy of a stream's rows: its number in the landing, and how many rows. `upto`: where it ends in the
    source, for people. `lacking`: columns that are NULL in its rows for a rule that reads every column, because the
    source has them no more."""

    rule: str
    stream: str
    chunk: int
    rows: int
    upto: str
    seconds: float
    lacking: tuple[str, ...] = ()


def prepare(session: SparkSession, rule: Rule, home: Home, ledger: str) -> None:
    """Create the landings that are not there, for a generation that begins. What is there stays, with its rows, and
    gains the columns that its source has gained and that the rule reads."""
    for name, source in _landed(rule, home):
        table, kind = source.landing(), source.stream_of.kind
        if table is None:
            start = source.inner.take_start()
            columns = source.inner.typed(session).schema
            tablesink.create(session, source.address, columns, ledger, {**PROPERTIES, START: start, KIND: kind})
        elif tables.owner_of(table) != ledger:
            raise NotOwned(
                about(f"stream {name}", source.address, f"expected a landing of ledger {ledger}, found another's")
            )
        else:
            wanted = _read(rule, name, source.inner, session, needed)
            _gain(session, source.address, layouts.schema_of(source.address), wanted)


def check_columns(session: SparkSession, rule: Rule, home: Home) -> None:
    """Raise WrongColumn for a landing that is there and that its source's columns do not fit."""
    for name, source in _landed(rule, home):
        if source.landing() is not None:
            there = layouts.schema_of(source.address)
            _check_fits(session, rule, name, source, there, source.inner.typed(session).schema)


def _gain(session: SparkSession, address: str, there: StructType, wanted: StructType) -> StructType:
    """Add columns, and fields in columns, that the source has gained. Returns the table's columns, as they are then."""
    fields, known = list(gained_fields(there, wanted)), {one.lower() for one in there.names}
    if not fields and known.issuperset(one.lower() for one in wanted.names):
        return there
    layouts.add_columns(session, address, wanted)
    layouts.add_fields(session, address, fields)
    return layouts.schema_of(address)


def _read(rule: Rule, name: str, source: Source, session: SparkSession, which: Which) -> StructType:
    """The columns of a source that the rule reads. A column that no row has brought may be a mistake, and a landing
    never loses one."""
    columns = source.typed(session).schema
    types = {one.name: one.dataType.simpleString() for one in columns}
    read = {*with_checked_columns(rule, name, which(rule, name, types), types), MALFORMED}
    return StructType([one for one in columns if one.name in read])


def _check_fits(
    session: SparkSession, rule: Rule, name: str, source: Landed, there: StructType, wanted: StructType
) -> tuple[str, ...]:
    """A column that the source has no more may be missing only if no landed row has a value there and the rule's text
    does not have its name: its rows have NULL from now on, whatever the records have.

    Returns the missing columns that the rule reads all the same, because it reads every column.
    """
    given = {one.lower() for one in wanted.names}
    wrong = [f"{path}: landed as {known}, found {now}" for path, known, now in wrong_types(there, wanted)]
    lacking = [one for one in there.names if one.lower() not in given and one != MALFORMED]
    types = {one.name: one.dataType.simpleString() for one in there}
    if lacking:
        read = spoken_of(rule, name, types)
        valued = {one for one in lacking if _has_values(session, source.address, one)}
        text = "the rule has the name, be it for an alias or another table's column"
        as_null = f"landed as NULL, found none, and {text if rule.process is None else 'the class has the name'}"
        found = {one: "landed, found none" if one in valued else as_null for one in lacking}
        wrong += [f"{one}: {said}" for one, said in found.items() if one in valued or one in read]
    if wrong:
        raise WrongColumn(
            about(
                f"stream {name}",
                source.address,
                f"expected the columns of the rows that were landed ({'; '.join(wrong)}). Only columns that are added "
                "fit a landing. Restore these in the source; or move the folder of the landing, with its rows, out of "
                "the home, and start over with `floodmark reset`",
            )
        )
    return tuple(one for one in lacking if one in needed(rule, name, types))


def _has_values(session: SparkSession, address: str, column: str) -> bool:
    """Whether any landed row has a value there. Files whose statistics deny it are not read."""
    rows = session.read.format("delta").load(address)
    return not rows.where(F.col(quoted(column)).isNotNull()).isEmpty()


def land(
    root: SparkSession, rule: Rule, home: Home, head: Head, tell: Callable[[LandedReport], None]
) -> list[LandedReport]:
    """Copy what the sources have. Returns, and tells at once, what each copy did.

    Raises HistoryGone for a landing from an older copy, before anything is written to it.
    """
    found = list[LandedReport]()
    session = rule_session(root, rule, rule.timezone, rule.ansi) if any(_landed(rule, home)) else root
    for name, source in _landed(rule, home):
        if name in head.lines:
            source.check_landing(head.lines[name], head.log_sums.get(name))
        for report in _Copying(session, rule, name, source).copies():
            found.append(report)
            tell(report)
    return found


def _landed(rule: Rule, home: Home) -> Iterator[tuple[str, Landed]]:
    return ((name, one) for name, one in sources(rule, home).items() if isinstance(one, Landed))


class _Copying:
    """Copies of one stream's rows."""

    def __init__(self, session: SparkSession, rule: Rule, name: str, source: Landed):
        self._session, self._rule, self._name = session, rule, name
        self._source, self._inner, self._address = source, source.inner, source.address
        self._app, self._lacking = source.app, tuple[str, ...]()

    def copies(self) -> Iterator[LandedReport]:
        newest = self._source.newest()
        self._source.check_source()
        layouts.set_properties(self._session, self._address, {KIND: self._source.stream_of.kind})
        self._inner.landed(newest.end)
        limits = chunk_limits(self._inner, source_can(self._rule.streams[self._name].kind), self._rule.epoch)
        with self._source.of_source():
            ends = steps(self._inner, newest.end, limits)
            if len(ends) == 1:  # no copy brings the columns that the SQL may read of rows that wait
                which = named if self._rule.process is None else needed
                wanted = _read(self._rule, self._name, self._inner, self._session, which)
                _gain(self._session, self._address, layouts.schema_of(self._address), wanted)
        for number, (since, end) in enumerate(pairwise(ends), newest.number + 1):
            yield self._copy(number, since, end)

    def _copy(self, number: int, since: str, end: str) -> LandedReport:
        """One commit. Its transaction starts before it is checked that nobody else has copied."""
        begun, frame = time.monotonic(), self._rows(since, end)
        at = Appending(self._session, self._address, self._app)
        recorded = tablelog.recorded_version(self._address, self._app) or 0
        if recorded != number - 1:
            raise self._fenced()
        rows = self._write(at, frame)
        self._check_copied(at, end)
        check_before_commit(f"landing/{self._name}", at.moves(), at.expected_effect())
        reach(self._rule.rule, "landing.before", number)
        said = {"rows": rows, "since": since, "end": end, "log_sum": self._inner.log_sum(end), **at.facts()}
        named = {"app": self._app, "version": number, **said}
        commit = at.commit(number, json.dumps(named, separators=(",", ":")))
        if commit is None:
            raise self._fenced()
        sync_commit(self._address, commit)
        reach(self._rule.rule, "landing.after", number)
        self._inner.landed(end)
        upto = self._inner.describe(end)
        seconds = time.monotonic() - begun
        return LandedReport(self._rule.rule, self._name, number, rows, upto, seconds, self._lacking)

    def _write(self, at: Appending, frame: DataFrame) -> int:
        """Write the rows, and count malformed ones in the same pass, if the rule stops on them.

        Raises InputFault if there are any: once landed, no corrected schema would reach them.
        """
        if self._rule.on_error != "fail" or MALFORMED not in frame.columns:
            return at.write(frame)
        seen = Observation()
        rows = at.write(frame.observe(seen, F.count(MALFORMED).alias("rows"), F.max(MALFORMED).alias("one")))
        found = seen.get
        if found["rows"]:
            at.discard()  # each run tries again: its files would fill the disk
            raise unread(self._rule, self._name, found["rows"], f"{MALFORMED_RECORD}{found['one']}", lands=True)
        return rows

    def _check_copied(self, at: Appending, end: str) -> None:
        try:
            self._inner.check_copied(end)
        except RunFailed:
            at.discard()  # likewise
            raise

    def _rows(self, since: str, end: str) -> DataFrame:
        """The rows of a range as the table has them, in few files. The table gains the columns that these rows have.

        Raises WrongColumn where their columns differ otherwise. Somebody may alter the source between two copies, so
        each copy's own columns are compared.
        """
        with self._source.of_source(), unrecorded():
            frame = self._inner.frame(self._session, since, end)
        landed = layouts.schema_of(self._address)
        self._lacking = _check_fits(self._session, self._rule, self._name, self._source, landed, frame.schema)
        columns = _gain(self._session, self._address, landed, frame.schema)
        there = {name.lower() for name in frame.columns}
        found = {
            one.name: F.col(quoted(one.name)) if one.name.lower() in there else F.lit(None).cast(one.dataType)
            for one in columns
        }
        return frame.select(*(column.alias(name) for name, column in found.items())).coalesce(cores(self._session))

    def _fenced(self) -> Fenced:
        return Fenced(
            about(f"stream {self._name}", self._address, "another writer copied rows into the landing; run again")
        )


def chunk_limits(source: Source, can: SourceCan, epoch: EpochLimits) -> EpochLimits:
    """The limits of one copy: those of the rule's epochs, if these are lower, as far as the source can bound it."""
    if not source.splits:
        return EpochLimits()
    most = {key: value for key, value in MOST.model_dump().items() if key in can.limits and value is not None}
    return EpochLimits(**{key: min(value, getattr(epoch, key) or value) for key, value in most.items()})
