"""Run the rule's SQL in plain Spark batch over the rows that a ledger counts as folded, for final results."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.delta.lookups import NO_TIMES, pinned_now
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.lifecycle.zones import earliest_moment, zoned
from floodmark.core.protocol.records.backfills import Restated
from floodmark.core.protocol.records.following import head_at
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Expectation, Rule, Sink, Stream
from floodmark.core.rules.sinks.sinkcolumns import QUARANTINE_COLUMNS
from floodmark.core.sql.asof import first_start
from floodmark.core.sql.timecolumn import time_column_of
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.delta.datafiles import added_paths
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.proving.faultplan import REFERENCE
from floodmark.proving.scratch import Scratch, by_epoch
from floodmark.spark.read import lookuprows
from floodmark.spark.read.rowchecks import tried
from floodmark.spark.read.shape import instant, micros
from floodmark.spark.session.jvm import materialised
from floodmark.spark.session.session import rule_session
from floodmark.spark.write.replacing import Span


def write_expected(root: SparkSession, rule: Rule, scratch: Scratch) -> None:
    """Write the results for each sink as a Delta table of the case; if epochs were lost, one for each epoch."""
    ledger = LedgerReader.load(Home(scratch.home, rule.rule).ledger)
    assert ledger is not None
    head = ledger.begun
    answer = partial(_Batch, root, rule, scratch, ledger, head)
    if not head.lost:
        _write(answer().results(), rule, partial(scratch.expected, rule.rule))
    elif by_epoch(rule):
        for epoch in range(1, head.epoch + 1):
            _write(answer(epoch).results(), rule, partial(scratch.expected, rule.rule, epoch=epoch))


def _write(results: DataFrame, rule: Rule, address: Callable[[int], str]) -> None:
    answers: dict[tuple[object, ...], str] = {}
    for place, sink in enumerate(rule.sinks):
        asked = (sink.where, sink.delete, sink.columns, sink.key, sink.partition_by)
        known = answers.setdefault(asked, address(place))
        if known == address(place):
            for_sink(results, sink).coalesce(1).write.format("delta").mode("overwrite").save(known)
        else:
            shutil.copytree(known, address(place))


def for_sink(results: DataFrame, sink: Sink) -> DataFrame:
    """The results that a sink must hold, without epoch numbers."""
    rows = results.where(F.expr(f"({sink.where}\n)")) if sink.where else results
    rows = rows.where(F.expr(f"NOT coalesce(({sink.delete}\n), false)")) if sink.delete else rows
    rows = rows.select(*(F.col(quoted(name)) for name in sink.columns)) if sink.columns else rows
    key = {name.lower() for name in sink.key}  # an empty text there is another key than NULL
    laid = {name.lower() for name in sink.partition_by} - key
    texts = [name for name, kind in rows.dtypes if name.lower() in laid and kind == "string"]
    return rows.withColumns({name: F.expr(f"nullif({quoted(name)}, '')") for name in texts})


class _Batch:
    """Results of all epochs, or of `epoch` given the committed ones before it: its results, or possible ones if it was
    lost."""

    def __init__(
        self, root: SparkSession, rule: Rule, scratch: Scratch, ledger: LedgerReader, head: Head, epoch: int = 0
    ):
        self._session = rule_session(root, rule, rule.timezone, rule.ansi)
        self._rule, self._scratch, self._ledger, self._head, self._epoch = rule, scratch, ledger, head, epoch
        self._alone = bool(epoch) and not rule.query.windows
        self._lost = [lost for lost in head.lost if lost != epoch]

    def results(self) -> DataFrame:
        lookuprows.show(self._session, self._rule, pinned_now(self._rule), lambda _: self._first())
        restated = self._head.backfills.values()
        if any(one.whole for one in restated):
            return self._results(apart=("dead",))
        found = self._results(apart=("late", "dead"))
        again = " OR ".join(f"({self._recomputed(one, found).holds})" for one in restated if one.is_bounded)
        return found.where(f"NOT ({again})").unionByName(self._results(("dead",)).where(again)) if again else found

    def _first(self) -> lookuprows.First:
        """The first moments of all rows that results may be computed from."""
        kind = "timestamp" if zoned(self._rule, self._head) else "timestamp_ntz"
        found = list[int | None]()
        for place, (name, stream) in enumerate(self._rule.streams.items()):
            if stream.event_time is not None:
                rows = self._folded(place, name, stream, ("dead",))
                found += [row[0] for row in rows.selectExpr(f"min({micros(stream.event_time.name, kind)})").collect()]
        row = min((one for one in found if one is not None), default=NO_TIMES)
        start = first_start(self._rule.query.windows, row)
        if kind == "timestamp" or row == NO_TIMES:
            return lookuprows.First(row, start)
        return lookuprows.First(*(earliest_moment(one, self._rule.timezone) for one in (row, start)))

    def _results(self, apart: Collection[str]) -> DataFrame:
        """The final results of rows that are in none of these tables. Late rows count where results are recomputed."""
        for place, (name, stream) in enumerate(self._rule.streams.items()):
            self._folded(place, name, stream, apart).createOrReplaceTempView(name)
        return self._expected(self._final_results(), self._rule.expect)

    def _recomputed(self, restated: Restated, results: DataFrame) -> Span:
        """The results that a correction has recomputed."""
        time = time_column_of(self._rule.sql, self._rule.event_times, self._rule.lookups)
        assert time is not None
        [(name, kind)] = [one for one in results.dtypes if one[0].lower() == time.column]
        gaps = tuple((begin + time.shift, end + time.shift) for begin, end in restated.gaps)
        return Span(name, kind, restated.begin + time.shift, restated.end + time.shift, gaps)

    def _final_results(self) -> DataFrame:
        """The final results of the SQL."""
        query = self._rule.query
        if not query.windows:
            return lookuprows.results_of_rows(self._session, self._rule)
        kind = "timestamp" if zoned(self._rule, self._head) else "timestamp_ntz"
        low, high = self._watermarks()
        if high is None:
            return self._session.sql(query.sql).limit(0)
        found = self._session.sql(query.bounded(low, high, lambda at, _: instant(at, kind)))
        # Spark would apply conditions on sessions that follow to single rows, before they are merged.
        return materialised(found, self._session) if query.sessions else found

    def _watermarks(self) -> tuple[int | None, int | None]:
        """The watermarks between which the results become final."""
        if not self._epoch:
            return None, self._head.watermark
        return self._at(self._epoch - 1).watermark, self._at(self._epoch).watermark

    def _at(self, epoch: int) -> Head:
        return head_at(self._ledger.rows, epoch)

    def _folded(self, place: int, name: str, stream: Stream, apart: Collection[str]) -> DataFrame:
        """The stream's rows that are neither filtered, dropped nor lost, nor in the tables `apart`."""
        rows = self._read(place, name)
        if stream.event_time and stream.event_time.expr:
            rows = rows.withColumn(stream.event_time.name, F.expr(stream.event_time.expr))
        if stream.where:
            rows = rows.where(F.expr(f"coalesce({stream.where}\n, false)"))
        rows = self._expected(rows, stream.expect)
        for table in apart:
            rows = self._without(rows, table, name)
        return rows

    def _expected(self, rows: DataFrame, expect: Mapping[str, Expectation]) -> DataFrame:
        """The rows without those that an expectation drops; a check that raises is a failure."""
        for check in (one.check for one in expect.values() if one.on_fail == "drop"):
            rows = rows.where(F.coalesce(tried(rows, check)["v"], F.lit(False)))
        return rows

    def _without(self, rows: DataFrame, table: str, stream: str) -> DataFrame:
        apart = self._quarantined(table, stream)
        names = {name.lower() for name in apart.columns if name not in QUARANTINE_COLUMNS}
        columns = [name for name in rows.columns if name.lower() in names]
        rows = rows.select(*map(quoted, columns))
        return rows if apart.isEmpty() else rows.exceptAll(apart.select(*map(quoted, columns)))

    def _quarantined(self, table: str, stream: str) -> DataFrame:
        """The stream's late or dead rows, among those that `_read` returns."""
        epoch, case = F.col("_epoch"), self._rule.rule
        found = self._quarantine_table(case, table)
        if self._head.lost:
            found = found.where(~epoch.isin(*self._head.lost))
        if self._epoch in self._head.lost:  # the copy may lack its rows; the undisturbed run has the same epochs
            found = found.unionByName(self._quarantine_table(REFERENCE, table).where(epoch == self._epoch))
        if self._alone:
            found = found.where(epoch == self._epoch)
        return found.where(F.col("_stream") == stream)

    def _quarantine_table(self, case: str, table: str) -> DataFrame:
        return self._session.read.format("delta").load(str(Home(self._scratch.home, case).path / table))

    def _read(self, place: int, name: str) -> DataFrame:
        """The rows of the sample without those of lost epochs, or of one epoch if it does not depend on others."""
        rows = self._session.read.format("delta").load(self._rule.streams[name].address)
        file = rows.metadataColumn("_metadata").getField("file_name")  # a column may have this name, too
        if self._alone:
            return rows.where(file.isin(*self._files(place, name, [self._epoch])))
        lost = self._files(place, name, self._lost)
        return rows.where(~file.isin(*lost)) if lost else rows

    def _files(self, place: int, name: str, epochs: Iterable[int]) -> list[str]:
        """Names of the files that these epochs read: one file is one commit."""
        versions = [version for epoch in epochs for version in self._span(epoch, place)]
        return [path for version in versions for path in added_paths(self._scratch.input(name), version)]

    def _span(self, epoch: int, place: int) -> range:
        """The versions whose files the epoch read."""
        before, after = (DeltaOffset.parse(self._at(number).entry.offsets[place]) for number in (epoch - 1, epoch))
        return range(before.version + (before.index >= 0), after.version + (after.index >= 0))
