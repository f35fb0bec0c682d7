"""Rewrite a state table between epochs: to its live rows, or to the columns of an edited class.

The transaction starts before the rows are read, so it conflicts with another driver's epoch in the meantime. Its commit
records no version of the app, because only epochs do, and says what an auditor needs: the digest of the rows that it
leaves, how many rows it adds and removes, and which epochs still find all that they saw.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced
from floodmark.ledger.comparing import check_before_commit
from floodmark.ledger.delta import datafiles
from floodmark.ledger.delta.syncing import sync_commit
from floodmark.spark.write.replacing import ReplacingAll
from floodmark.spark.write.sites import Site, check_not_overtaken


class StateRewrite(ReplacingAll):
    """A rewrite of the state at `site`, after `epoch`.

    Raises Fenced if another driver has written a later epoch to the table.
    """

    def __init__(self, session: SparkSession, site: Site, epoch: int):
        super().__init__(session, site.address, site.app, exact=True)
        check_not_overtaken(site, epoch)
        self._site = site

    def fit(self, schema: StructType) -> None:
        """Give the table these columns."""
        said = json.loads(self._txn.metadata().json())
        said["metaData"]["schemaString"] = schema.json()
        self._txn.updateMetadata(self._delta("actions.Action").fromJson(json.dumps(said)), False)

    def finish(self, frame: DataFrame, holds_from: int, after: int | None = None) -> None:
        """Put these rows in place of all. `holds_from`, `after`: as for `holding_from`."""
        self.write(frame)
        check_before_commit(self._site.name, self.moves(), self.expected_effect())
        metadata = json.dumps(datafiles.holding_from(holds_from, after) | self.facts(), separators=(",", ":"))
        commit = self._commit([], self._write_operation("Overwrite", metadata))
        if commit is None:
            what = "another writer committed in between; this rewrite had no effect"
            raise Fenced(about_named(self._site.name, what))
        sync_commit(self._site.address, commit)
