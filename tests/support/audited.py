"""A rule's home and its sink with real tables and real files, made without Spark: what the auditor proves."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake

from floodmark.audit.certificate import audit
from floodmark.audit.content.rowhash import digest
from floodmark.audit.evidence import Row
from floodmark.audit.ledger.chain import hash_of
from floodmark.audit.logreader import LEDGER_APP
from floodmark.ledger.ledger import schema

TOKEN = "token"
COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'


def rows_of_epoch(number: int) -> pa.Table:
    """The two rows that each table gets of an epoch."""
    return pa.table({"id": pa.array([10 * number, 10 * number + 1], pa.int64())})


def said(rows: pa.Table) -> dict[str, Any]:
    """Their digest, as the ledger has it."""
    found = digest(rows, computed=True)
    return {"rows": found.rows, "high": str(found.high), "low": str(found.low), "floats": {}}


class Made:
    """A ledger with its late, dead and state tables and one sink; all but `dead` get a commit of one file an epoch."""

    def __init__(self, root: Path, epochs: int):
        self.home, self.sink = root / "home" / "r", root / "lake" / "out"
        self.ledger = self._table(self.home / "ledger", schema(), {})
        self.places = {"late": self.home / "late", "dead": self.home / "dead",
                       "state/s": self.home / "state" / "g1" / "s", f"sink/{self.sink}": self.sink}  # fmt: skip
        self.ids = {name: self.owned(place) for name, place in self.places.items()}
        self.rows: list[Row] = []
        self._written = 0
        rule = {"qos": 2, "streams": {"s": {}}, "sinks": [{"kind": "delta", "address": str(self.sink), "qos": 2}]}
        self.rule = json.dumps({**rule, "sql": "SELECT " + "x, " * 500})
        self.begin(1, TOKEN)
        for number in range(1, epochs + 1):
            self._fold(number)
        self.save()

    @staticmethod
    def _table(place: Path, columns: Any, configuration: dict[str, str | None]) -> str:
        place.mkdir(parents=True)
        made = DeltaTable.create(str(place), columns, configuration=configuration, raise_if_key_not_exists=False)
        return str(made.metadata().id)

    def owned(self, place: Path) -> str:
        """A new table of the ledger's; its id."""
        return self._table(place, Schema.from_json(COLUMNS), {"floodmark.owner": self.ledger})

    def put(self, kind: str, epoch: int, body: dict[str, Any], generation: int = 1, token: str = TOKEN) -> None:
        before = self.rows[-1].hash if self.rows else ""
        text = json.dumps(body)
        row = Row(len(self.rows) + 1, kind, generation, token, epoch, 1, "run", "at", text, before, "")
        self.rows.append(replace(row, hash=hash_of(row)))

    def save(self) -> None:
        """Append the rows that the ledger has not yet."""
        data = pa.Table.from_pylist([row.__dict__ for row in self.rows[self._written :]], schema=schema())
        last = CommitProperties(app_transactions=[Transaction(LEDGER_APP, len(self.rows))])
        write_deltalake(str(self.home / "ledger"), data, mode="append", commit_properties=last)
        self._written = len(self.rows)

    def begin(self, generation: int, token: str, emptied: Mapping[str, Any] | None = None) -> None:
        tables = emptied or {}
        body = {"format": 2, "entry": self._entry(0), "watermark": None, "maxima": {}, "counts": {}, "tables": tables,
                "table_ids": self.ids, "intent": None, "output_rows": 0}  # fmt: skip
        self.put("commit", 0, body, generation, token)

    @staticmethod
    def _entry(version: int) -> str:
        line = {"reservoirId": "source", "reservoirVersion": version, "index": -1, "isStartingVersion": False}
        return "\n".join(("v1", "{}", json.dumps(line)))

    def reset(self, newest: int, emptied: Mapping[str, Any] | None = None) -> None:
        """Generation 2 begins after this epoch, and keeps the output but for tables with a commit in `emptied`."""
        self.put("seal", newest, {"format": 2, "successor": 2, "token": "second"})
        self.places["state/s"] = self.home / "state" / "g2" / "s"
        self.ids["state/s"] = self.owned(self.places["state/s"])
        self.begin(2, "second", emptied)
        self.save()

    def more(self, number: int) -> None:
        """One more epoch."""
        self._fold(number)
        self.save()

    def _fold(self, number: int) -> None:
        counts = {"s": {"read": 4, "filtered": 0, "dead": 0, "late": 2, "folded": 2}}
        kept = {"format": 2, "entry": self._entry(number), "watermark": number, "maxima": {}, "counts": counts}
        intent = {**kept, "watermark_before": number - 1 or None, "rule": self.rule}
        self.put("intent", number, intent)
        hashed = hashlib.sha256(json.dumps(intent).encode()).hexdigest()
        data, found = io.BytesIO(), said(rows_of_epoch(number))
        pq.write_table(rows_of_epoch(number), data)
        tables = {name: self._write(name, number, hashed, data.getvalue(), found) for name in self.places
                  if name != "dead"}  # fmt: skip
        self.put("commit", number, {**kept, "intent": hashed, "tables": tables, "table_ids": {}, "output_rows": 2})

    def _write(self, name: str, number: int, intent: str, data: bytes, found: dict[str, Any]) -> dict[str, Any]:
        app, version, place = self.app(name), number << 20, self.places[name]
        (place / f"{number}.parquet").write_bytes(data)
        told = {"app": app, "version": version, "epoch": number, "intent": intent, "digest": found}
        add = {"path": f"{number}.parquet", "size": len(data), "partitionValues": {}, "modificationTime": 0,
               "dataChange": True, "stats": '{"numRecords":2}'}  # fmt: skip
        actions = [
            {"commitInfo": {"operation": "WRITE", "timestamp": 0, "userMetadata": json.dumps(told)}},
            {"txn": {"appId": app, "version": version, "lastUpdated": 0}},
            {"add": add},
        ]
        self.log(name, number).write_text("\n".join(map(json.dumps, actions)))
        return {"version": version, "commit": number, "rows": 2, "digest": found}

    def app(self, name: str) -> str:
        return f"floodmark/{self.ledger}/g1-{TOKEN}/{name.partition('/')[0]}"

    def log(self, name: str, version: int) -> Path:
        return self.places[name] / "_delta_log" / f"{version:020}.json"

    def verdicts(self, deep: bool = False) -> list[tuple[str, str]]:
        """What an audit finds."""
        found = audit("r", self.home.parent, deep)
        assert found is not None
        return [(one.verdict, one.what) for one in found.findings]
