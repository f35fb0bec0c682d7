"""Copy a bounded sample of each stream to small Delta tables, from the rule's start on, in the source's order."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.planning import checkpoint
from floodmark.connectors.planning.plannedrows import relations
from floodmark.connectors.ports.registry import source
from floodmark.connectors.ports.source import MALFORMED
from floodmark.core.protocol.entry import Entry
from floodmark.core.rules.kinds import stream_can
from floodmark.core.rules.rule import EpochLimits, Rule
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import NotThereYet
from floodmark.ledger.delta import tables
from floodmark.proving.faultplan import cut
from floodmark.proving.scratch import UNDECIDED_DAYS, Scratch
from floodmark.spark.read.batch import latest_time
from floodmark.spark.read.planning import streamed
from floodmark.spark.read.rowchecks import tried
from floodmark.spark.read.shape import micros
from floodmark.spark.session.faults import explained
from floodmark.spark.session.session import rule_session

BATCH, PLACE, PORTION, TIME = "_prove_batch", "_prove_place", "_prove_portion", "_prove_time"
DAY_US = 86_400_000_000
NEWEST = "start: latest: future rows do not exist yet, so the rows of the table are used instead"


@dataclass(frozen=True)
class Sampled:
    """`table`, `upto`: the source of the rows, and how far it extends; `rows`, `commits`: how many of them.

    `version`: of a table, its newest.
    """

    stream: str
    table: str
    version: object
    upto: str
    rows: int
    commits: int
    note: str | None = None

    def facts(self) -> dict[str, object]:
        return asdict(self)


def sample(root: SparkSession, rule: Rule, scratch: Scratch, rows: int) -> list[Sampled]:
    """Take at most `rows` rows of each stream. Raises NotThereYet if no stream has any."""
    with explained(rule.rule):
        session, clock = rule_session(root, rule, rule.timezone, rule.ansi), _now_ms()
        found = [_StreamSample(session, scratch, rule, name, rows, clock).take() for name in rule.streams]
    if not any(one.rows for one in found):
        where = ", ".join(f"{one.stream} ({one.table})" for one in found)
        raise NotThereYet(
            f"rule {rule.rule}: expected rows in its streams from their `start` on{_that_count(rule)}, found none in "
            f"{where}: there is nothing to prove it with yet"
        )
    return found


def _that_count(rule: Rule) -> str:
    if all(stream.max_ahead_us is None for stream in rule.streams.values()):
        return ""
    return f", and not up to {UNDECIDED_DAYS} days beyond `max_ahead`"


class _Enough(Exception):
    """Ends the query that takes the sample."""


class _StreamSample:
    """One stream's sample: first as its source delivers it, then divided into commits."""

    def __init__(self, session: SparkSession, scratch: Scratch, rule: Rule, name: str, rows: int, clock_ms: int):
        self._session, self._scratch, self._name, self._rows = session, scratch, name, rows
        self._rule, self._clock_ms, stream = rule, clock_ms, rule.streams[name]
        self._latest = stream.start == "latest"
        self._can = stream_can(stream.model_copy(update={"landing": None}))
        whole = stream.model_copy(update={"start": "earliest"}) if self._latest else stream
        self._source = source(name, whole, scratch.root / "sources" / name)
        self._left = rows
        self._enough = False

    @property
    def _staging(self) -> Path:
        return self._scratch.root / "staging" / self._name

    def take(self) -> Sampled:
        self._stage()
        rows = self._rows - self._left
        commits = self._write(rows)
        shutil.rmtree(self._staging, ignore_errors=True)
        note = NEWEST if self._latest else None
        end = self._source.end()
        version = self._source.backlog(end, rebuilt=True).facts.get("newest")
        return Sampled(self._name, self._source.address, version, self._source.describe(end), rows, commits, note)

    def _stage(self) -> None:
        """Write the stream's first rows as its source delivers them, in portions, as Spark plans epochs."""
        start = self._source.start()
        partitions = int(str(self._session.conf.get("spark.sql.shuffle.partitions")))
        directory = checkpoint.make_checkpoint(self._staging / "checkpoints", Entry(0, (start,)), None, partitions)
        query = (
            streamed(self._session, self._source, self._can, start, self._at_a_time())
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", directory.as_uri())
            .foreachBatch(partial(self._batch, directory))
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            if not self._enough:
                raise
        finally:
            query.stop()

    def _at_a_time(self) -> EpochLimits:
        """Limits of about one commit of the sample, since the order may change within one read."""
        rows = max(1, self._rows // cut(self._rows)[0])
        limits = self._can.limits
        if "max_rows" in limits:
            return EpochLimits(max_rows=rows)
        width = self._source.bytes_a_row() if "max_bytes" in limits else None
        if width:
            return EpochLimits(max_bytes=max(1, math.floor(rows * width)))
        return EpochLimits(max_files=1) if "max_files" in limits else EpochLimits()

    def _batch(self, directory: Path, _: DataFrame, number: int) -> None:
        if self._left:
            decided = decided_rows(self._portion(directory, number), self._rule, self._name, self._clock_ms)
            taken = decided.limit(self._left).coalesce(1)
            place = str(self._staging / "rows" / str(number))
            numbered = taken.withColumn(PLACE, F.monotonically_increasing_id()).withColumn(BATCH, F.lit(number))
            numbered.write.parquet(place)
            self._left -= self._session.read.parquet(place).count()
        if not self._left:
            self._enough = True
            raise _Enough

    def _portion(self, directory: Path, number: int) -> DataFrame:
        told = relations(self._session, checkpoint.query_id(directory), 1)
        if 0 in told:
            return _readable(self._source.whole(self._session).limit(0) if told[0] is None else told[0])
        begin, end = (checkpoint.planned_entry(directory, batch).offsets[0] for batch in (number - 1, number))
        return _readable(self._source.frame(self._session, begin, end))

    def _write(self, rows: int) -> int:
        """Write an empty table as version 0, then one file for each commit; one empty commit if there are no rows."""
        schema = _readable(self._source.typed(self._session)).schema
        address = self._scratch.input(self._name)
        tables.create(address, schema.json(), {})
        commits = cut(rows)[0]
        files = self._files(rows, commits) if rows else []
        for number in range(max(commits, 1)):
            commit(address, number, [file for file in files if file.parent.name == f"{PORTION}={number}"])
        return commits

    def _files(self, rows: int, commits: int) -> list[Path]:
        """Write the rows in order, each commit in its own folder. This is one job; commits by Spark take seconds."""
        numbered = self._session.read.parquet(str(self._staging / "rows" / "*")).withColumn(
            PORTION, F.floor((F.row_number().over(Window.orderBy(BATCH, PLACE)) - 1) * commits / rows)
        )
        cut_up = self._staging / "cut"
        numbered.drop(BATCH, PLACE).write.partitionBy(PORTION).parquet(str(cut_up))
        return list(cut_up.glob(f"{PORTION}=*/*.parquet"))


def _readable(rows: DataFrame) -> DataFrame:
    """The rows without malformed records: batch, which the results are compared with, knows no such records."""
    return rows.where(f"{MALFORMED} IS NULL").drop(MALFORMED) if MALFORMED in rows.columns else rows


def decided_rows(rows: DataFrame, rule: Rule, name: str, clock_ms: int) -> DataFrame:
    """The rows of a stream that all copies fold, or that are dead in all.

    Copies run at different times. A row a little further ahead than `max_ahead` allows now is dead in one copy, and
    folded in another that runs minutes later.
    """
    stream = rule.streams[name]
    time = stream.event_time
    if time is None or stream.max_ahead_us is None:
        return rows
    timed = rows.withColumn(TIME, tried(rows, time.expr or quoted(time.name))["v"])
    kind = timed.schema[TIME].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):  # the first run refuses it, and says why
        return rows
    first = latest_time(stream, kind, rule.timezone, clock_ms)
    undecided = f"{micros(TIME, kind)} BETWEEN {first + 1} AND {first + UNDECIDED_DAYS * DAY_US}"
    return timed.where(f"NOT coalesce({undecided}, false)").drop(TIME)


def commit(address: str, number: int, files: Sequence[Path], removed: Sequence[str] = ()) -> None:
    """Copy files of rows into a table and remove others of it, in one commit.

    Spark gives files of one job the same name in several folders.
    """
    actions: list[AddAction | RemoveAction] = [RemoveAction(name, True, _now_ms()) for name in removed]
    for file in files:
        name = f"commit{number}-{file.name}"
        shutil.copyfile(file, Path(address, name))
        actions.append(AddAction(name, file.stat().st_size, {}, _now_ms(), True, "{}"))
    table = DeltaTable(address)
    table.create_write_transaction(actions, "append", table.schema())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
