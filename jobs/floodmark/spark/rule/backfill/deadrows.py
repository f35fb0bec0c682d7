"""Which dead rows of a generation the sources still hold, and what replays have made of dead rows.

A rewrite may have removed a dead row from its source, mostly since somebody corrected it there. Then it hides no equal
row any more, and what a replay made of it does not count beside the corrected row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from floodmark.core.lifecycle.replays import MALFORMED_RECORD
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import HistoryGone
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.read.replaying import replayed
from floodmark.spark.rule.backfill.deadcolumns import REJECTED, Compared
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.constants import AS_JSON

SCHEMAS = "avro_schema"  # option of a stream: `core.lifecycle.changes` lets it change
THERE = "_floodmark_there"  # whether a source still holds the dead row
TIMES, PLACE, WHOLE, SIGN = "_floodmark_times", "_floodmark_place", "_floodmark_whole", "_floodmark_sign"


def replays_of(plan: Plan, dead: DataFrame, head: Head, first: int, upto: int) -> list[DataFrame]:
    """What each replay from epoch `first` to `upto` makes of these dead rows, in the rule's frame."""
    earlier = {epoch: replay for epoch, replay in head.replays.items() if epoch <= upto}
    found = []
    for epoch in sorted((one for one in earlier if one >= first), reverse=True):
        replay = earlier.pop(epoch)
        before = dataclasses.replace(head, replays=dict(earlier))
        found.append(replayed(plan.rule, plan.fold.shape, dead, before, replay, 0))
    return found


def of_epochs(head: Head, first: int, upto: int) -> str:
    """SQL: whether an epoch from `first` to `upto` has quarantined a row. Abandoned ones, which are in the table too,
    don't count."""
    return f"_epoch BETWEEN {first} AND {upto}" + "".join(f" AND _epoch <> {epoch}" for epoch in head.lost)


def check_still_malformed(plan: Plan, dead: DataFrame, read: DataFrame) -> None:
    """Raise HistoryGone if records that died as malformed can be read by now: they would be dead, and count, too.

    Of a schema's text only, which may change within a generation. A landing keeps such records as they were. dead: of
    the epochs that have read these rows. read: in the rule's frame.
    """
    shape, streams = plan.fold.shape, plan.rule.streams
    for name in shape.malformed:
        if streams[name].landing is not None or SCHEMAS not in streams[name].options:
            continue
        then = dead.where((F.col("_stream") == name) & F.startswith("_reason", F.lit(MALFORMED_RECORD))).count()
        now = read.where(f"_s = {list(shape.streams).index(name)} AND _m IS NOT NULL").count() if then else 0
        if now < then:
            raise HistoryGone(
                f"rule {plan.rule.rule}, stream {name}: expected {then} records that were malformed to be so still, "
                f"found {then - now} of them that the present `{SCHEMAS}` can read: they are dead, and would count, "
                f"too. `floodmark reset {plan.rule.rule}` reads them; `floodmark correct {plan.rule.rule} --skip` "
                "gives up a correction"
            )


@dataclass(frozen=True)
class Originals:
    """The rows among which dead ones are looked for: what the sources hold, or what left or came.

    compared: by which columns, for all epochs. every: all dead rows with equal columns are THERE, else as many as there
    are. held: frames that are persisted.
    """

    plan: Plan
    head: Head
    compared: Sequence[Compared]
    rows: DataFrame
    held: list[DataFrame]
    every: bool = False

    def marked(self, dead: DataFrame) -> DataFrame:
        """The generation's rows of the dead table, with THERE.

        A row that died again, in a replay, is there if the row that the replay read is there. A row that a class has
        rejected may have waited: it is looked for among the source's rows and what all replays up to then have made.
        """
        rows = dead.where(of_epochs(self.head, 1, self.head.epoch))
        waited = F.lit(False) if self.plan.rule.process is None else F.expr(REJECTED)
        again = F.col("_epoch").isin(*self.head.replays) & ~waited
        epochs = set(map(tuple, rows.where(again | waited).select("_epoch", waited).distinct().collect()))
        found, among = self._kept(self._told(rows.where(~again & ~waited), [self.rows])), [self.rows]
        for replay, end in pairwise([0, *sorted(self.head.replays), self.head.epoch + 1]):
            late = [epoch for epoch, has_waited in epochs if has_waited and epoch >= replay]
            if late or (replay, False) in epochs:
                among += replays_of(self.plan, found.where(THERE).drop(THERE), self.head, replay, replay)
            if (replay, False) in epochs:
                died = self._told(rows.where(again).where(f"_epoch = {replay}"), among[-1:])
                found = self._kept(found.unionByName(died))
            if any(epoch < end for epoch in late):
                rejected = rows.where(waited).where(f"_epoch BETWEEN {replay} AND {end - 1}")
                found = self._kept(found.unionByName(self._told(rejected, among, [found.where(THERE)])))
        return found

    def _kept(self, rows: DataFrame) -> DataFrame:
        """The rows, persisted: the next step reads them in two places."""
        self.held.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
        return rows

    def _told(self, dead: DataFrame, among: Sequence[DataFrame], used: Sequence[DataFrame] = ()) -> DataFrame:
        """The dead rows with THERE: those that are among these rows. used: dead rows that have been found there."""
        frames = []
        for one in self.compared:
            for i, name in enumerate(one.columns):
                mine, *others = (rows.where(F.col("_stream") == name) for rows in (dead.where(one.which), *used))
                theirs = [rows.where(f"_s = {i}") for rows in among]
                frames.append(self._counted(mine, theirs, one, name, others))
        return reduce(DataFrame.unionByName, frames)

    def _counted(
        self, dead: DataFrame, among: Sequence[DataFrame], how: Compared, stream: str, used: Sequence[DataFrame]
    ) -> DataFrame:
        """The dead rows of a stream with THERE."""
        alike, prefix = StructType(how.columns[stream]), self.plan.fold.shape.prefix(stream)
        digesting, of_frame = Digesting(alike, exact=True), Digesting(alike, exact=True, before=f"`{prefix}")
        wanted = digesting.hashed(_widened(dead, alike))
        found = reduce(DataFrame.unionAll, [of_frame.hashed(rows).select(HASH) for rows in among])
        if how.gone[stream] and not self.every:  # where more rows count as touched than are, nothing is lost
            unsure = wanted.join(found, HASH, "left_semi").select(*map(quoted, alike.names))
            _refuse_unsure(self.plan.rule, stream, how.gone[stream], unsure)
        taken = [] if self.every else [digesting.hashed(_widened(rows, alike)).select(HASH) for rows in used]
        signed = [found.withColumn(SIGN, F.lit(1)), *(rows.withColumn(SIGN, F.lit(-1)) for rows in taken)]
        own = reduce(DataFrame.unionAll, signed).join(wanted.select(HASH).distinct(), HASH, "left_semi")
        often = own.groupBy(HASH).agg(F.sum(SIGN).alias(TIMES))
        place = F.row_number().over(Window.partitionBy(HASH).orderBy("_epoch", "_reason"))
        told = wanted.withColumn(PLACE, F.lit(1) if self.every else place).join(often, HASH, "left")
        return told.withColumn(THERE, F.expr(f"{PLACE} <= coalesce({TIMES}, 0)")).drop(HASH, PLACE, TIMES)


def _widened(dead: DataFrame, fields: Iterable[StructField]) -> DataFrame:
    """Dead rows with the types that the columns have now. A hash depends on the type, which may have been widened."""
    plain = (field for field in fields if not isinstance(field.dataType, StructType | ArrayType | MapType))
    return dead.withColumns({field.name: F.col(quoted(field.name)).cast(field.dataType) for field in plain})


def check_sure(plan: Plan, rows: DataFrame, removed: DataFrame, alike: Sequence[StructField], how: Compared) -> None:
    """Raise HistoryGone if a dead row (`removed`) may be among the rows, but not all that it holds can be compared.

    alike: the columns of the rule's frame that can be.
    """
    digesting = Digesting(StructType(list(alike)), exact=True)
    for i, (name, gone) in enumerate(how.gone.items()):
        if gone:
            mine, theirs = (one.where(f"_s = {i}") for one in (removed, rows))
            found = digesting.hashed(_widened(mine, alike)).join(
                digesting.hashed(theirs).select(HASH), HASH, "left_semi"
            )
            own, prefix = how.columns[name], plan.fold.shape.prefix(name)
            unsure = found.select(*(F.col(quoted(prefix + one.name)).alias(one.name) for one in own))
            _refuse_unsure(plan.rule, name, gone, unsure)


def _refuse_unsure(rule: Rule, stream: str, gone: Sequence[str], rows: DataFrame) -> None:
    row = rows.select(F.to_json(F.struct("*"), AS_JSON)).head()  # Python lacks some years
    if row is not None:
        raise HistoryGone(
            f"rule {rule.rule}, stream {stream}: dead rows hold columns that the source has no more under the same "
            f"name and type: {', '.join(gone)}. Without these, rows of the source are equal to {rows.count()} of them, "
            f"such as {row[0]}, and nothing tells whether they are the dead rows or good ones. No result was changed. "
            f"Restore the columns in the source, or start over with `floodmark reset {rule.rule}`"
        )


def without(rows: DataFrame, removed: DataFrame, first: str, alike: Sequence[StructField]) -> DataFrame:
    """The rows minus those of another such frame, each as often as it occurs there, compared by the columns `alike`.

    `first`: SQL condition of rows to remove before others with equal columns. Of others, the same go each time.
    """
    digesting = Digesting(StructType(list(alike)), exact=True)
    own = StructType([field for field in rows.schema if field.name.startswith("s")])
    whole = Digesting(own, exact=True, column=WHOLE)
    often = digesting.hashed(_widened(removed, alike)).groupBy("_s", HASH).agg(F.count(F.lit(1)).alias(TIMES))
    order = [F.expr(f"coalesce({first}, false)").desc(), *([] if len(own) == len(alike) else [F.col(WHOLE)])]
    place = F.row_number().over(Window.partitionBy("_s", HASH).orderBy(*order))
    placed = whole.hashed(digesting.hashed(rows)).withColumn(PLACE, place).join(often, ["_s", HASH], "left")
    return placed.where(f"{PLACE} > coalesce({TIMES}, 0)").select(*map(quoted, rows.columns))
