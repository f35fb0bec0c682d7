"""One upsert into a Delta table under an app transaction, through Delta's own transaction.

1. CHECK   one row for each key; the smallest and the largest key.
2. FIND    which rows change the table as the transaction sees it, and in which of its files. Only files whose
           statistics allow one of the keys are read, and only the key's columns (all, if `newest` decides).
3. WRITE   the new rows, and again the files that lose a row. If the table has deletion vectors, rows of large files
           are marked there instead.
4. COMMIT  added files, removed files and the app's version.

The transaction has read the table, so any commit of rows in the meantime makes it conflict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.rules.sinks.upserts import Effect, Upsert, is_marked
from floodmark.core.sql.tree.names import CHANGE_FEED
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.tablenames import about_named
from floodmark.errors import InputFault, LedgerBroken
from floodmark.ledger.delta.keybounds import MEASURES, Bound
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.session.jvm import materialised
from floodmark.spark.write.appending import files_for
from floodmark.spark.write.merging import keyed
from floodmark.spark.write.merging.keyed import DELETE, INSERT, UPDATE
from floodmark.spark.write.merging.marking import deletion_vectors
from floodmark.spark.write.rewriting import LiveFile, Rewriting, name_of, rows_of

VECTORS = "delta.enableDeletionVectors"
MOST_SENT = 100_000  # keys that are broadcast to every task: some 10 MB


class Upserting(Rewriting):
    """A transaction on the table at `address`, started at the newest version, that merges rows by key as `app`."""

    def __init__(self, session: SparkSession, address: str, app: str, upsert: Upsert, where: str):
        """`where`: the prefix of error messages."""
        super().__init__(session, address, app)
        self._upsert, self._where = upsert, where

    def write(self, frame: DataFrame) -> int:
        """Write the files that the rows change, none if nothing changes; returns the number of rows.

        Raises InputFault if two rows have one key and nothing says which of them is to remain.
        """
        rows = materialised(keyed.one_for_each_key(frame, self._upsert), self._session)
        checked, self.effect = self._checked(rows), Effect(0)
        if checked["keys"]:
            self._merge(rows, checked)
        return int(checked["results"])

    def compute(self, frame: DataFrame) -> int:
        """Compute the digest of the results, without writing; returns the number of rows."""
        return int(self._checked(keyed.one_for_each_key(frame, self._upsert))["results"])

    def _checked(self, rows: DataFrame) -> dict[str, Any]:
        """`results`, `keys`: how many of each; the most frequent key; the bounds of the keys.

        Computes the digest of each key's remaining row, including rows that delete.
        """
        measures = [*several(self._upsert), F.coalesce(F.sum("times"), F.lit(0)).alias("results")]
        digesting = keyed_digesting(rows)
        measures += [*map(F.expr, digesting.measures()), *self._extremes(rows)]
        found = _only(digesting.hashed(rows).agg(*measures)).asDict()
        self.results = digesting.digest(found)
        refuse_several(self._where, self._upsert, found)
        return found

    def _merge(self, rows: DataFrame, checked: dict[str, Any]) -> None:
        files = self._files_within(self._bounds(rows, checked))
        wanted = self._sent(rows, checked["keys"])
        place = keyed.PLACE if files and self._may_mark() else keyed.FILE
        there = keyed.matching_rows(self._table(files), wanted, self._upsert, place)
        changes = materialised(keyed.changes(rows, there, self._upsert, place), self._session)
        counted = self._counted(changes)
        counts, goes = Counter[str](), Counter[str]()
        for one in counted:
            counts[one["effect"]] += one["count"]
            goes[one["file"]] += one["count"]
        touched = [file for file in files if name_of(file) in goes]
        effect = Effect(checked["results"], counts[INSERT], counts[UPDATE], counts[DELETE])
        self.effect = self._changed(effect, changes, touched, goes) if effect.changed else effect

    def _counted(self, changes: DataFrame) -> list[Row]:
        """How many rows (`count`) each `effect` has on each `file`; for inserted rows the file is null."""
        found = changes.groupBy("effect", "file").agg(F.count(F.lit(1)).alias("count"), F.max("rows").alias("rows"))
        counted = found.collect()
        most = max((one["rows"] or 0 for one in counted), default=0)
        if most > 1:
            raise LedgerBroken(
                about_named(
                    self._where,
                    f"expected one row of the table for each key ({', '.join(self._upsert.key)}), found "
                    f"{most} for one; the table still has rows from before the sink had this key, or another writer "
                    "added rows. Start over with `floodmark reset`, without --keep-output",
                )
            )
        return counted

    def _extremes(self, rows: DataFrame) -> Iterator[Column]:
        """The smallest and the largest value of each column of the key; null if any value is null."""
        for field in rows.select(*keyed.keys_of(self._upsert)).schema:
            measure = MEASURES.get(field.dataType.simpleString())
            for name, extreme in (("low", F.min), ("high", F.max)) if measure else ():
                value = F.expr(str(measure).format(field.name))
                yield F.when(F.count(field.name) == F.count(F.lit(1)), extreme(value)).alias(f"{name}_{field.name}")

    def _bounds(self, rows: DataFrame, checked: dict[str, Any]) -> list[Bound]:
        found = []
        for i, column in enumerate(self._upsert.key):
            low, high = (checked.get(name) for name in (f"low_k{i}", f"high_k{i}"))
            if low is not None and high is not None:
                found.append(Bound(column, rows.schema[f"k{i}"].dataType.simpleString(), low, high))
        return found

    def _changed(
        self, effect: Effect, changes: DataFrame, touched: Sequence[LiveFile], goes: Mapping[str, int]
    ) -> Effect:
        """Write the new rows; files that lose rows are rewritten, or get deletion vectors for these rows."""
        kept: dict[bool, list[LiveFile]] = {True: [], False: []}
        may_mark = self._may_mark()
        for file in touched:
            kept[may_mark and self._marks(file, goes[name_of(file)], effect.changed)].append(file)
        written, marked = self._rewritten(effect, changes, kept[False]), kept[True]
        self._files = self._files.concat(self._seq(*self._marked(changes, marked)))
        return effect.with_written(written, sum(rows_of(file) - goes[name_of(file)] for file in marked))

    def _may_mark(self) -> bool:
        """A change feed needs the removed rows, which are read only when files are rewritten."""
        return self._has_setting(VECTORS) and not self._has_setting(CHANGE_FEED)

    def _marks(self, file: LiveFile, goes: int, changed: int) -> bool:
        return is_marked(file.rows_written or 0, rows_of(file), goes, changed)

    def _marked(self, changes: DataFrame, files: Sequence[LiveFile]) -> Iterator[Any]:
        """Write the deletion vectors by which these files lose rows; yields the actions that re-add and remove each."""
        if not files:
            return
        rows = changes.where(F.col("effect") != INSERT).where(F.col("file").isin(list(map(name_of, files))))
        marked = self._deltas(files)
        vectors = deletion_vectors(self._session, self._txn, rows, self._seq_of(marked))
        for file, one in zip(files, marked, strict=True):
            moves = one.removeRows(vectors[name_of(file)], True, True)
            yield from (moves._1(), moves._2())

    def _rewritten(self, effect: Effect, changes: DataFrame, touched: Sequence[LiveFile]) -> int:
        """Write the new rows, and the remaining rows of files that lose a row; these are removed. Returns how many."""
        before = self._table(touched)
        comes = changes.where(F.col("effect") != DELETE).select("row.*").select(*map(quoted, before.columns))
        stays = keyed.without(before, self._sent(changes, effect.changed), self._upsert)
        after = stays.unionByName(comes) if touched else comes
        fed = bool(touched) and self._has_setting(CHANGE_FEED)
        if fed:
            effects = self._sent(changes, effect.changed, "effect")
            feed = keyed.feed(changes, before, effects, self._upsert)
            after = after.withColumn(keyed.CHANGE, F.lit(None).cast("string")).unionByName(feed)
        rows = super().write(after.coalesce(files_for(effect.changed + sum(map(rows_of, touched)))))
        self._files = self._files.concat(self._removed(touched))
        return rows

    def _digesting(self, frame: DataFrame) -> Digesting:
        """Rows for the change feed are not rows of the table."""
        if keyed.CHANGE not in frame.columns or not self._has_setting(
            CHANGE_FEED
        ):  # without a feed: the rule's own column
            return super()._digesting(frame)
        rows = StructType([field for field in frame.schema if field.name != keyed.CHANGE])
        return Digesting(rows, only=f"{keyed.CHANGE} IS NULL")

    def _sent(self, rows: DataFrame, count: int, *more: str) -> DataFrame:
        """The rows' keys for a join with the table; if they are few, they are broadcast to every task."""
        keys = rows.select(*keyed.keys_of(self._upsert), *more)
        return F.broadcast(keys) if count <= MOST_SENT else keys


def keyed_digesting(rows: DataFrame) -> Digesting:
    """Digests of the rows in `keyed.one_for_each_key`."""
    kind = rows.schema["row"].dataType
    assert isinstance(kind, StructType)
    return Digesting(kind, before="row.`")


def several(upsert: Upsert) -> list[Column]:
    """Measures over `keyed.one_for_each_key`: how many `keys`, `times` that the most frequent `key` occurs."""
    key = F.to_json(F.struct(*(F.col(f"row.{quoted(name)}").alias(name) for name in upsert.key)))
    return [F.count(F.lit(1)).alias("keys"), F.max("times").alias("times"), F.max_by(key, "times").alias("key")]


def refuse_several(where: str, upsert: Upsert, found: Mapping[str, Any]) -> None:
    """Raise InputFault if two rows have one key, by the measures of `several`, and nothing says which is to remain."""
    if upsert.newest is None and found["keys"] and found["times"] > 1:
        raise InputFault(
            about_named(
                where,
                f"expected one result for each key ({', '.join(upsert.key)}), found "
                f"{found['times']} for {found['key']}; it is undefined which of them would stay. Exclude all but "
                "one (`expect`, `on_fail: drop`) and run again; or add columns to `key`, or set `newest` to the "
                "column that says which is newer, and start over with `floodmark reset`",
            )
        )


def _only(frame: DataFrame) -> Row:
    found = frame.head()
    assert found is not None
    return found
