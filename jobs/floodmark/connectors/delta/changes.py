"""The change feed of a Delta table as a source: a row for each row that was inserted, updated or deleted.

An epoch reads whole versions. The first snapshot comes as inserts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from floodmark.connectors.delta import mapping
from floodmark.connectors.delta.expiry import expiring
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.rewrites import entry_gone
from floodmark.connectors.delta.source import DeltaSource
from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.sql.tree.names import has_feed
from floodmark.core.text.ddl import columns_of, delta_name
from floodmark.core.text.tablenames import about
from floodmark.errors import Refused, WrongColumn
from floodmark.ledger.delta import datafiles, tablelog, tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.lifecycle.retention import Limit

# Beside the table's columns: insert, update_before, update_after or delete; the version that did it; when it did.
ADDED = columns_of("_change STRING, _version BIGINT, _committed TIMESTAMP")
TURN_ON = "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"


class ChangesSource(DeltaSource):
    """Offsets are those of the table, with whole versions only."""

    def _line(self, at: DeltaOffset) -> str:
        """With the blanks with which Spark writes the offsets of a source that plans itself."""
        return json.dumps(json.loads(at.line()))

    # --- Whether the feed has what is to be read

    def columns(self) -> dict[str, str]:
        table = self.table()
        found = tables.columns_of(table)
        taken = [name for name in found if name.lower() in {one.name for one in ADDED}]
        if taken:
            raise WrongColumn(
                self._about(
                    f"expected no column {', '.join(taken)} in a table with `changes: true`, which adds columns of "
                    "these names: rename it in the table"
                )
            )
        if not has_feed(tables.properties_of(self.address)):
            raise Refused(
                self._about(
                    "expected a table with a change feed, because of `changes: true`; found none. Turn it on: "
                    f"{TURN_ON.format(self.address)}"
                )
            )
        return found | {one.name: delta_name(one.type) for one in ADDED}

    def _about(self, problem: str) -> str:
        return about(f"stream {self.name}", self.address, problem)

    def check_appended(self, line: str) -> None:
        """Raise HistoryGone if the feed lacks versions that are to be read."""
        at = DeltaOffset.parse(line)
        fresh = list(self._fresh(at, self.table().version()))
        if fresh:
            self._check_fed(fresh[0].version, fresh[-1].version)

    def _check_fed(self, first: int, last: int) -> None:
        """Raise HistoryGone unless the feed was on from version `first` to `last`, and its files can be read."""
        self._check_laid_out(first)
        fed = has_feed(self._as_of(first).metadata().configuration)
        needed: dict[str, int] = {}
        for version, actions in tablelog.logged(self.address, range(first, last + 1)):
            for settings in (action["metaData"].get("configuration", {}) for action in actions if "metaData" in action):
                fed = has_feed(settings)
            if not fed:
                raise self._gone(
                    f"expected the changes of version {version}, found none: the table had no change feed then. "
                    "Leave it on, and start over with `floodmark reset`, which begins with all rows as inserts"
                )
            for path in _needed(actions):
                needed.setdefault(unquote(path), version)
        missing = datafiles.absent(self.address, list(needed))
        if missing:
            raise self._gone(
                f"expected the changes of version {needed[missing[0]]}, found no file {missing[0]}: VACUUM removed it. "
                "Start over with `floodmark reset`, which begins with all rows as inserts; give the table a longer "
                "`delta.deletedFileRetentionDuration`"
            )

    def check_readable(self, since: str, upto: str | None = None) -> None:
        """The feed is checked where its rows are read."""

    def _check_laid_out(self, first: int) -> None:
        """Raise HistoryGone if files of the feed since version `first` are partitioned by other columns than those of
        now: Spark would read the feed by the latter, and find NULL in the columns that it expects in paths.
        """
        problem = mapping.relaid(self.address, first - 1, self.table(), self._as_of)
        if problem is not None:
            raise self._gone(
                f"{problem}: Spark does not read changes from before together with later ones. Start over with "
                "`floodmark reset`, which begins with all rows as inserts"
            )

    def _refuse_removed(self, commits: Iterable[tablelog.DataCommit]) -> None:
        """Rows that were removed are rows of the feed."""
        for version in (commit.version for commit in commits if commit.gone):
            raise self._gone(entry_gone(version))

    def rewrite(self, since: str, upto: str | None = None) -> Rewrite | None:
        return None

    def passed_over(self, begin: str, end: str) -> tuple[str, ...]:
        return ()

    def forgets(self, line: str, now_us: int) -> list[Limit]:
        """Also files that a commit removed: the feed may have its changes only there."""
        at, table = DeltaOffset.parse(line), self.table()
        fresh = [commit.version for commit in self._fresh(at, table.version())]
        whole = self._paths_at(at.version) if at.snapshot else set[str]()
        if tables.table_id(table) != at.table_id:
            return []
        return expiring(self.name, self.address, table, at, fresh, needed=whole, compares=True, now_us=now_us)

    # --- Rows

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        from floodmark.connectors.planning.versionrows import changes_of, inserted_at

        at, upto = DeltaOffset.parse(begin), DeltaOffset.parse(end)
        found, first = [self.typed(spark)], at.version
        if at.snapshot and not upto.snapshot:
            if self._paths_at(first):  # else its log entry, which says when, may be gone
                found.append(inserted_at(spark, self.address, first, self._committed(first, first)[first]))
            first += 1
        fresh = [one.version for one in self._fresh(replace(at, version=first, snapshot=False), upto.newest_read)]
        if fresh:
            self._check_fed(fresh[0], fresh[-1])
            found.append(changes_of(spark, self.address, self._committed(fresh[0], fresh[-1])))
        return reduce(lambda one, other: one.unionByName(other), found)

    def _committed(self, first: int, last: int) -> dict[int, int | None]:
        """When each version was committed, as its own log entry says, in milliseconds: the file's time may change."""
        return {version: _said(one) for version, one in tablelog.logged(self.address, range(first, last + 1))}

    def whole(self, spark: SparkSession) -> DataFrame:
        return self.frame(spark, self.start(), self.end())

    def typed(self, spark: SparkSession) -> DataFrame:
        from floodmark.connectors.planning.versionrows import no_changes

        return no_changes(spark, self.address)


def _said(actions: Iterable[Mapping[str, Mapping[str, Any]]]) -> int | None:
    """When a log entry says that it was committed."""
    for info in (action.get("commitInfo", {}) for action in actions):
        at = info.get("inCommitTimestamp", info.get("timestamp"))
        if at is not None:
            return int(at)
    return None


def _needed(actions: Iterable[dict[str, dict[str, object]]]) -> Iterator[str]:
    """The files with a version's changes: those of the feed, if it has any, else those that came and left."""
    moves = list(actions)
    fed = [str(action["cdc"]["path"]) for action in moves if "cdc" in action]
    changed = (action[kind] for action in moves for kind in ("add", "remove") if kind in action)
    yield from fed or (str(file["path"]) for file in changed if file.get("dataChange"))
