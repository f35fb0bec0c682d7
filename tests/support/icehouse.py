"""An Iceberg catalogue of one test's own, and other writers of its tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from support.flow import SCHEMA

NAMESPACE = "shop"


@dataclass(frozen=True)
class Icehouse:
    """In a folder: a catalogue in SQLite, and the warehouse beside it."""

    root: Path

    @property
    def properties(self) -> dict[str, str]:
        return {
            "type": "sql", "uri": f"sqlite:///{self.root}/catalog.db", "warehouse": f"file://{self.root}/warehouse"
        }  # fmt: skip

    @property
    def connection(self) -> str:
        return json.dumps({"conn_type": "iceberg", "extra": self.properties})

    def made(self) -> Icehouse:
        """The catalogue, with one namespace."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.catalog().create_namespace(NAMESPACE)
        return self

    def catalog(self) -> Catalog:
        return load_catalog("lake", **self.properties)

    def table(self, name: str) -> Table:
        return self.catalog().load_table((NAMESPACE, name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(name).scan().to_arrow().to_pylist()
        return found

    def add(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Events, to a table that is made if it is not there."""
        found = self.catalog().create_table_if_not_exists((NAMESPACE, name), SCHEMA)
        found.append(pa.Table.from_pylist(rows, schema=SCHEMA))

    def empty(self, name: str) -> None:
        """As Spark's CREATE OR REPLACE TABLE does: the table and its snapshots stay, and none is the current one."""
        self.catalog().commit_table(self.table(name), (), (RemoveSnapshotRefUpdate(ref_name="main"),))

    def append(self, name: str, rows: pa.Table) -> None:
        """As another program does."""
        self.table(name).append(rows)

    def expire(self, name: str, left: int = 1) -> None:
        """Forget all snapshots but the newest, and those with a tag."""
        table = self.table(name)
        table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
        assert len(self.table(name).snapshots()) <= left


def compact(table: Table) -> None:
    """Put all rows into one file, as another engine does: pyiceberg has no such operation."""
    with table.transaction() as transaction:
        tasks = list(table.scan().plan_files())
        producer = _Compacting(Operation.OVERWRITE, transaction, table.io)
        with producer:
            for task in tasks:
                producer.delete_data_file(task.file)
            rows = table.scan().to_arrow()
            for file in _dataframe_to_data_files(table.metadata, rows, table.io, producer.commit_uuid):
                producer.append_data_file(file)


class _Compacting(_OverwriteFiles):
    """A snapshot with the same rows in other files."""

    def commit(self) -> None:
        self.delete_by_predicate(AlwaysTrue())
        super().commit()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        return Summary(Operation.REPLACE, **super()._summary(snapshot_properties).additional_properties)
