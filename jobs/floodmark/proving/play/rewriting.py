"""Rewrite the inputs of copies: in one commit, rows of earlier commits leave, and others come in their place.

The rows that come are of the sample, too: they are withheld from the input until it is rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.sinkcolumns import QUARANTINE_COLUMNS
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.datafiles import added_paths
from floodmark.ledger.home import Home
from floodmark.proving.faultplan import REFERENCE
from floodmark.proving.play.sampling import commit
from floodmark.proving.scratch import Scratch, correctable

PLACE, PART = "_prove_place", "_prove_part"
# Of a rewritten commit every third row leaves, and every fifth of the others comes: never as many, so that rows which
# the rule cannot tell apart do not make up for each other.
PARTS = f"CASE WHEN {PLACE} % 3 = 0 THEN 'leaves' WHEN {PLACE} % 5 = 1 THEN 'comes' ELSE 'stays' END"


@dataclass(frozen=True)
class Rewriting:
    """The rewrite of a stream's sample: `rows` before it, those that leave and those that come."""

    stream: str
    rows: int
    left: int
    came: int

    def facts(self) -> dict[str, object]:
        return asdict(self)


def prepare(session: SparkSession, rule: Rule, scratch: Scratch) -> list[Rewriting]:
    """Make the inputs that copies are to rewrite, out of the sample, after the undisturbed run."""
    return [_Prepared(session, rule, scratch, name).make() for name in correctable(rule)]


def rewrite(rule: Rule, scratch: Scratch) -> None:
    """Rewrite a copy's inputs, unless that was done before."""
    for name in (name for name in rule.streams if rule.streams[name].address == scratch.rewritten(rule.rule, name)):
        address, newest = rule.streams[name].address, DeltaTable(scratch.fresh(name)).version()
        places = sorted(scratch.coming(name).glob("*"))
        if places and DeltaTable(address).version() == newest:
            removed = [file for place in places for file in added_paths(address, int(place.name))]
            commit(address, newest, [file for place in places for file in _files(place)], removed)


class _Prepared:
    """The sample of one stream, as its input before the rewrite, and the files that come with that."""

    def __init__(self, session: SparkSession, rule: Rule, scratch: Scratch, name: str):
        self._session, self._rule, self._scratch, self._name = session, rule, scratch, name
        self._sample = scratch.input(name)
        self._left = self._came = 0

    def make(self) -> Rewriting:
        sampled = DeltaTable(self._sample)
        tables.create(str(self._scratch.fresh(self._name)), sampled.schema().to_json(), {})
        for version in range(1, sampled.version() + 1):
            files = [Path(self._sample, file) for file in added_paths(self._sample, version)]
            if files and version in _rewritten(sampled.version()):
                files = self._divide(version, files)
            commit(str(self._scratch.fresh(self._name)), version - 1, files)
        rows = DeltaTable(self._scratch.fresh(self._name)).to_pyarrow_dataset().count_rows()
        return Rewriting(self._name, rows, self._left, self._came)

    def _divide(self, version: int, files: Sequence[Path]) -> list[Path]:
        """The files of a commit without the rows that are to come; writes its files after the rewrite, too."""
        read = self._session.read.parquet(*map(str, files)).coalesce(1)
        rows = read.withColumn(PLACE, F.monotonically_increasing_id()).withColumn(PART, F.expr(PARTS))
        rows = self._without_dead(rows).drop(PLACE).persist()
        counts = {row[PART]: row["count"] for row in rows.groupBy(PART).count().collect()}
        self._left += counts.get("leaves", 0)
        self._came += counts.get("comes", 0)
        before = self._scratch.root / "staging" / "before" / self._name / str(version)
        rows.where(f"{PART} <> 'comes'").drop(PART).write.parquet(str(before))
        after = self._scratch.coming(self._name) / str(version)
        rows.where(f"{PART} <> 'leaves'").drop(PART).write.parquet(str(after))
        rows.unpersist()
        return _files(before)

    def _without_dead(self, rows: DataFrame) -> DataFrame:
        """The rows, of which none comes that would be dead: that would stop the correction."""
        dead = Home(self._scratch.home, REFERENCE).dead
        if not Path(dead).exists():
            return rows
        found = self._session.read.format("delta").load(str(dead)).where(F.col("_stream") == self._name)
        time = self._rule.streams[self._name].event_time
        other = {*QUARANTINE_COLUMNS, time.name} if time and time.expr else {*QUARANTINE_COLUMNS}  # it is computed
        known = {name.lower() for name in found.columns if name not in other}
        text = F.to_json(F.struct(*(quoted(name) for name in sorted(rows.columns) if name.lower() in known)))
        texts = [row[0] for row in found.select(text).distinct().collect()]
        return rows.withColumn(
            PART, F.when(text.isin(texts) & (F.col(PART) == "comes"), "stays").otherwise(F.col(PART))
        )


def _rewritten(newest: int) -> set[int]:
    """The versions whose rows are rewritten: one in the middle, whose results are final soon, and the newest."""
    return {(newest + 1) // 2, newest}


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.parquet"))
