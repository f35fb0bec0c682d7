"""An Iceberg catalogue of one test's own, and other writers of its tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

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

    def append(self, name: str, rows: pa.Table) -> None:
        """As another program does."""
        self.table(name).append(rows)

    def expire(self, name: str, left: int = 1) -> None:
        """Forget all snapshots but the newest, and those with a tag."""
        table = self.table(name)
        table.maintenance.expire_snapshots().older_than(datetime.now() + timedelta(days=1)).commit()
        assert len(self.table(name).snapshots()) <= left
