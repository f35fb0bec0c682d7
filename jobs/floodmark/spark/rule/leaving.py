"""Takes rows out of one table of a rule's home, step by step; a step that was killed is taken again.

A state, late or dead table is rewritten as a whole, and keeps its newest version alone. A landing and an outbox are
read commit by commit, so each of their commits stays: in a landing without the rows, in an outbox without any rows,
because its target has got them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.ports.source import MALFORMED
from floodmark.core.lifecycle.cleanup import ForgetStep, forget_step, mark_version, newest_by, rewrite_version
from floodmark.core.lifecycle.replays import MALFORMED_RECORD
from floodmark.core.protocol.crashpoints import reach
from floodmark.core.protocol.places import TableName
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Forgetting, Left
from floodmark.core.sql.words.lexis import quoted
from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced
from floodmark.ledger.comparing import check_before_commit
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.delta.pastcommits import Added, live_files, rewrite
from floodmark.ledger.delta.syncing import sync_commit
from floodmark.ledger.forgetting import OwnTable, purge, remove_needless
from floodmark.ledger.landings import OUTBOX, Cut, LandedTable, app_of, cut
from floodmark.spark.read.digesting import Digesting
from floodmark.spark.session.jvm import added_files, jvm_class
from floodmark.spark.write.appending import Appending, files_for
from floodmark.spark.write.replacing import ReplacingAll

_NEWEST = "_floodmark_newest"


def rows_in(session: SparkSession, address: str) -> DataFrame:
    return session.read.format("delta").load(address)


def matching(frame: DataFrame, where: str) -> DataFrame:
    return frame.where(F.expr(f"({where}\n)"))


def malformed_with(frame: DataFrame, values: Sequence[str]) -> DataFrame:
    """The malformed records whose text has one of these values as a word of its own. Their columns are NULL."""
    texts = [F.col(MALFORMED)] if MALFORMED in frame.columns else []
    if "_reason" in frame.columns:
        texts.append(F.when(F.startswith("_reason", F.lit(MALFORMED_RECORD)), F.col("_reason")))
    words = [rf"(?<![\p{{L}}\p{{N}}])\Q{value}\E(?![\p{{L}}\p{{N}}])" for value in values if value]
    return frame.where(reduce(or_, (text.rlike(word) for text in texts for word in words), F.lit(False)))


def forget_cached(session: SparkSession) -> None:
    """Have Delta read logs anew: it knows entries that are gone, or were others."""
    jvm_class(session, "org.apache.spark.sql.delta.DeltaLog").clearCache()


@dataclass(frozen=True)
class Leaving:
    """Rows that leave a state, late or dead table."""

    session: SparkSession
    rule: str
    head: Head
    table: OwnTable
    app: str
    asked: Forgetting

    def finish(self, where: str) -> Left:
        """Take the steps that are left for this table."""
        while (step := self._step()) is not ForgetStep.PURGE:
            if step is ForgetStep.REWRITE:
                self._rewrite(where)
                reach(self.rule, "forget.rewritten")
            else:
                self._mark()
                reach(self.rule, "forget.marked")
        commit = purge(self.rule, self.table.address)
        said = json.loads(tablelog.commit_info(self.table.address, commit)["userMetadata"])
        return Left.model_validate({**said["left"], "version": said["version"], "commit": commit})

    def _step(self) -> ForgetStep:
        recorded = tablelog.recorded_version(self.table.address, self.app)
        return forget_step(recorded, self.asked.number, self.asked.tables[self.table.name])

    def _rewrite(self, where: str) -> None:
        """The transaction starts before the rows are read, so it conflicts with whatever changes them meanwhile."""
        begun = ReplacingAll(self.session, self.table.address, self.app)
        stay = self._current(rows_in(self.session, self.table.address))
        stay = stay.where(f"NOT coalesce(({where}\n), false)")
        begun.write(stay.coalesce(files_for(stay.count())))
        check_before_commit(self.table.name, begun.moves(), begun.expected_effect())
        self._commit(begun, rewrite_version(self.asked.number), {"gone": self._gone(begun)})

    def _gone(self, begun: ReplacingAll) -> int:
        assert begun.effect is not None
        return begun.effect.deleted - begun.effect.inserted

    def _current(self, rows: DataFrame) -> DataFrame:
        """The rows without those that newer ones replaced, where the table is one of newest rows."""
        kind = TableName.parse(self.table.name)
        keys = newest_by(self.head.rule, kind.rest) if kind.is_state else None
        if keys is None:
            return rows
        lost = f" AND _epoch NOT IN ({', '.join(map(str, self.head.lost))})" if self.head.lost else ""
        by = f"PARTITION BY {', '.join(map(quoted, keys))}" if keys else ""
        counted = rows.where(f"_epoch <= {self.head.epoch}{lost}")
        newest = counted.withColumn(_NEWEST, F.expr(f"max(_epoch) OVER ({by})"))
        return newest.where(f"_epoch = {_NEWEST}").drop(_NEWEST)

    def _mark(self) -> None:
        """The rows that stay are counted as they are now: after the rewrite, if there was one."""
        begun = Appending(self.session, self.table.address, self.app)
        rows = rows_in(self.session, self.table.address)
        digest = Digesting(rows.schema).of(rows)
        left = {"gone": self._rewritten(), "rows": digest.rows, "digest": digest.model_dump()}
        self._commit(begun, mark_version(self.asked.number), {"left": left})

    def _rewritten(self) -> int:
        """How many rows the rewrite took away; 0 without one."""
        if self.asked.tables[self.table.name] == 0:
            return 0
        found = tablelog.our_commit(self.table.address, self.app, rewrite_version(self.asked.number))
        return int(found.metadata["gone"])

    def _commit(self, begun: Appending, version: int, facts: dict[str, Any]) -> None:
        said = {
            "app": self.app,
            "version": version,
            "epoch": self.head.epoch,
            "forget": self.asked.number,
            "intent": self.asked.condition,
            **facts,
        }
        if TableName.parse(self.table.name).is_state:
            said |= {"holds_from": self.head.epoch, "after": self.head.epoch}
        commit = begun.commit(version, json.dumps(said, separators=(",", ":")))
        if commit is None:
            raise Fenced(about_named(self.table.name, "another writer committed in between; forget again"))
        sync_commit(self.table.address, commit)


@dataclass(frozen=True)
class LeavingCopy:
    """Rows that leave a landing or an outbox. `ledger`: its id; `rows`: how many matched when they were looked for."""

    session: SparkSession
    rule: str
    ledger: str
    table: OwnTable
    rows: int

    def finish(self, where: str) -> None:
        """Take the steps that are left."""
        forget_cached(self.session)
        replaced: Mapping[str, list[Added]] = {}
        if self.rows and TableName.parse(self.table.name).role == OUTBOX:
            self._cut()
        elif self.rows:
            replaced = self._without(where)
        reach(self.rule, "forget.copy.before")
        rewrite(self.table.address, replaced)
        reach(self.rule, "forget.copy.after")
        remove_needless(self.rule, self.table.address)

    def _cut(self) -> None:
        """The target has all rows of the outbox."""
        if not live_files(self.table.address):
            return
        name = TableName.parse(self.table.name).rest
        first = tables.newest_version(self.table.address) + 1
        of = LandedTable(name, self.table.address, app_of(self.ledger, name, OUTBOX), None, first, OUTBOX)
        cut(self.rule, Cut(of, first, first))

    def _without(self, where: str) -> dict[str, list[Added]]:
        """The files of a landing that hold such rows, each with what takes its place."""
        frame = matching(rows_in(self.session, self.table.address), where)
        path = frame.metadataColumn("_metadata").getField("file_path")
        hit = {row[0].rpartition("/")[2] for row in frame.select(path).distinct().collect()}
        live = live_files(self.table.address)
        return {path: self._stay(added, where) for path, added in live.items() if path.rpartition("/")[2] in hit}

    def _stay(self, added: Added, where: str) -> list[Added]:
        return _Without(self.session, self.table.address, f"{self.ledger}/forget").write_without(added, where)


class _Without(Appending):
    """Writes files of a table as Delta does. It commits nothing: past entries of the log name the files."""

    def write_without(self, added: Added, where: str) -> list[Added]:
        """Write the rows of a file that do not match to another, if there are any."""
        rows = self._table_of(added_files(self._session, [added]))
        self.write(rows.where(f"NOT coalesce(({where}\n), false)").coalesce(1))
        return [action["add"] for action in self._actions() if self.digest.rows]
