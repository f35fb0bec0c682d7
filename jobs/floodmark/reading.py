"""Read a rule's sinks as of one committed epoch: all of its rows, and none of an unfinished epoch.

    from floodmark.reading import read

    found = read("departure_delays", home="home")           # the last committed epoch; `epoch=41`: that one
    found.sql("SELECT origin, max(mean_delay) AS worst FROM departure_delays GROUP BY origin")
    found["departure_delays"].arrow()

The ledger records which version of each table that is. Reading needs no JVM and writes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, QueryBuilder

from floodmark.core.lifecycle.pinning import is_query, short_names
from floodmark.core.protocol.places import names_in_rule, places_of
from floodmark.core.protocol.records.following import head_at
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.environments import FOLDER, HOME, NAMED, SUFFIX, folder_at
from floodmark.core.text.addresses import location
from floodmark.errors import Refused
from floodmark.ledger.delta import datafiles, tables
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.ledger.pinning import pinned

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.connectors.targets.files.folder import DataFile

# Parts of Rust's messages if a file cannot be read; any other error is the query's fault.
UNREAD = ("Object at location", "No such file", "Parquet error", "Generic ", "Permission denied", "os error")


@dataclass(frozen=True)
class Sink:
    """A sink that is a table, pinned to a version. `name`: of the table in SQL."""

    name: str
    address: str
    table: DeltaTable

    @property
    def version(self) -> int:
        return int(self.table.version())

    @property
    def columns(self) -> dict[str, str]:
        """Column name → Delta type name, in the table's order."""
        return tables.columns_of(self.table)

    def arrow(self) -> pa.Table:
        """All rows."""
        import pyarrow as pa

        with tables.delta_errors(self.address):
            return pa.table(QueryBuilder().register("t", self.table).execute("SELECT * FROM t").read_all())

    def spark(self, session: SparkSession) -> DataFrame:
        """The same rows in Spark, which must have Delta.

        Delta refuses versions older than a week (`delta.deletedFileRetentionDuration`) unless the session has
        `spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration` set to false.
        """
        return session.read.format("delta").option("versionAsOf", self.version).load(self.address)


@dataclass(frozen=True)
class Reading:
    """A rule's sinks as of `epoch` of `generation`. `found[NAME]`: a sink, by its name or address."""

    rule: str
    ledger: LedgerReader
    head: Head

    @property
    def generation(self) -> int:
        return self.head.generation

    @property
    def epoch(self) -> int:
        return self.head.epoch

    @property
    def _places(self) -> dict[str, str]:
        """Addresses of the sinks, by the newest row: tables of an older epoch are read at their present addresses."""
        newest = self.ledger.head
        return places_of(replace(self.head, places=newest.places if newest else {}))

    @cached_property
    def sinks(self) -> list[Sink]:
        """The sinks that are tables, in the rule's order. Raises Refused if there is none, or HistoryGone."""
        known = {address: name for name, address in self._places.items()}
        if not known:
            raise Refused(
                f"rule {self.rule}: expected a sink that is a table at epoch {self.epoch}, found none: only Delta "
                "tables can be read as of an epoch"
            )
        called = names_in_rule(self.head)
        named = {called.get(str(sink.address)): sink.name for sink in self.head.rule.sinks if sink.name}
        given = {self._places[one]: name for one, name in named.items() if one is not None}
        names = short_names(list(known), given).items()
        return [Sink(name, at, pinned(self.ledger, self.head, known[at], at)) for name, at in names]

    def __iter__(self) -> Iterator[Sink]:
        return iter(self.sinks)

    def __getitem__(self, name: str) -> Sink:
        """Raises Refused for a name that no sink has."""
        found = next((one for one in self.sinks if name == one.name or location(name) == location(one.address)), None)
        if found is None:
            raise Refused(f"rule {self.rule}: expected a sink out of {self._names()}, found {name!r}")
        return found

    def sql(self, query: str) -> pa.Table:
        """Rows of a query over the sinks, in DataFusion's SQL. Raises Refused for anything but a query."""
        import pyarrow as pa

        if not is_query(query):
            raise Refused("expected a query (SELECT ...), because nothing is written here; found something else")
        builder = QueryBuilder()
        for sink in self.sinks:
            builder = builder.register(sink.name, sink.table)
        with tables.delta_errors(f"rule {self.rule}"):
            try:
                return pa.table(builder.execute(query).read_all())
            except Exception as fault:
                if any(word in str(fault) for word in UNREAD):
                    raise
                raise self._refused(str(fault)) from fault

    def _refused(self, said: str) -> Refused:
        why = " ".join(said.split())
        return Refused(f"the query failed: {why}. Tables: {self._names()}; names are case-sensitive")

    def _names(self) -> str:
        return ", ".join(f"{sink.name} ({', '.join(sink.columns)})" for sink in self.sinks)


def read(rule: str, home: str | Path | None = None, epoch: int | None = None) -> Reading:
    """The sinks of a rule after its last committed epoch, or after `epoch` of its newest generation.

    `home`: the directory of the ledgers (None: FLOODMARK_HOME, else ./home). Raises Refused if the rule has not run or
    has no such epoch; also without `home`, if FLOODMARK_ENV names an environment, whose file may set a home.
    """
    if home is None and (named := os.environ.get(NAMED)):
        raise Refused(
            f"expected home=..., because {NAMED} names the environment {named}, found none: pass "
            f'home="home/env-{named}", or the {HOME} of {FOLDER}/{named}{SUFFIX}'
        )
    root = folder_at(home or os.environ.get("FLOODMARK_HOME") or "home").absolute()
    ledger = LedgerReader.load(Home(root, rule).ledger)
    if ledger is None or ledger.head is None:
        raise Refused(f"rule {rule} has not run yet: there is no ledger at {Home(root, rule).ledger}")
    return Reading(rule, ledger, _head(ledger, ledger.head, epoch))


def _head(ledger: LedgerReader, newest: Head, epoch: int | None) -> Head:
    if epoch is None or epoch == newest.epoch:
        return newest
    if not 0 <= epoch < newest.epoch:
        raise Refused(
            f"expected an epoch from 0 to {newest.epoch}, the newest of generation {newest.generation}, found {epoch}"
        )
    return head_at(ledger.rows, epoch)


def rows_of(table: Any) -> list[list[Any]]:
    """Python's values of an Arrow table, row by row."""
    columns = [datafiles.values_of(table.column(i)) for i in range(table.num_columns)]
    return [list(row) for row in zip(*columns, strict=True)]


def files_of(path: str | Path) -> list[DataFile]:
    """The files of a `files` sink that count now, the oldest first: all rows that were delivered, and no others.

    path: of the folder, local or of an object store (`s3a://…`). Raises Refused if no rule delivers to the folder,
    TableBroken if a file is missing.
    """
    from floodmark.connectors.targets.files.folder import Folder

    return Folder(str(path), location(str(path))).files()
