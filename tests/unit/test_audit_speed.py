"""A certificate of 1,000 epochs takes less than ten seconds of processor time. The tables are real, without Spark."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake

from floodmark.audit.certificate import audit
from floodmark.audit.chain import hash_of
from floodmark.audit.facts import Row
from floodmark.ledger.ledger import schema

EPOCHS = 1000
COLUMNS = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
DIGEST = {"rows": 2, "high": "5", "low": "7", "floats": {}}


class Made:
    """A rule's ledger with its late and state tables and one sink, each with one commit of one file for every epoch."""

    def __init__(self, root: Path):
        self.home, self.sink = root / "home" / "r", root / "lake" / "out"
        self.ledger = self._table(self.home / "ledger", schema(), {})
        self.places = {"late": self.home / "late", "state/s": self.home / "state" / "g1" / "s",
                       f"sink/{self.sink}": self.sink}  # fmt: skip
        owner: dict[str, str | None] = {"floodmark.owner": self.ledger}
        self.ids = {name: self._table(place, Schema.from_json(COLUMNS), owner) for name, place in self.places.items()}
        self.rows: list[Row] = []
        rule = {"qos": 2, "streams": {"s": {}}, "sinks": [{"kind": "delta", "address": str(self.sink), "qos": 2}]}
        self.rule = json.dumps({**rule, "sql": "SELECT " + "x, " * 500})
        self._begin()
        for number in range(1, EPOCHS + 1):
            self._fold(number)
        data = pa.Table.from_pylist([row.__dict__ for row in self.rows], schema=schema())
        write_deltalake(str(self.home / "ledger"), data, mode="append")

    @staticmethod
    def _table(place: Path, columns: Any, configuration: dict[str, str | None]) -> str:
        place.mkdir(parents=True)
        made = DeltaTable.create(str(place), columns, configuration=configuration, raise_if_key_not_exists=False)
        return str(made.metadata().id)

    def _put(self, kind: str, epoch: int, body: dict[str, Any]) -> None:
        before = self.rows[-1].hash if self.rows else ""
        row = Row(len(self.rows) + 1, kind, 1, "token", epoch, 1, "run", "at", json.dumps(body), before, "")
        self.rows.append(replace(row, hash=hash_of(row)))

    def _begin(self) -> None:
        body = {"format": 2, "entry": self._entry(0), "watermark": None, "maxima": {}, "counts": {}, "tables": {},
                "table_ids": self.ids, "intent": None, "output_rows": 0}  # fmt: skip
        self._put("commit", 0, body)

    @staticmethod
    def _entry(version: int) -> str:
        line = {"reservoirId": "source", "reservoirVersion": version, "index": -1, "isStartingVersion": False}
        return "\n".join(("v1", "{}", json.dumps(line)))

    def _fold(self, number: int) -> None:
        counts = {"s": {"read": 4, "filtered": 0, "dead": 0, "late": 2, "folded": 2}}
        kept = {"format": 2, "entry": self._entry(number), "watermark": number, "maxima": {}, "counts": counts}
        intent = {**kept, "watermark_before": number - 1 or None, "rule": self.rule}
        self._put("intent", number, intent)
        digest = hashlib.sha256(json.dumps(intent).encode()).hexdigest()
        tables = {name: self._write(name, place, number, digest) for name, place in self.places.items()}
        self._put("commit", number, {**kept, "intent": digest, "tables": tables, "table_ids": {}, "output_rows": 2})

    def _write(self, name: str, place: Path, number: int, intent: str) -> dict[str, Any]:
        app, version = f"floodmark/{self.ledger}/g1-token/{name.partition('/')[0]}", number << 20
        (place / f"{number}.parquet").write_bytes(b"x" * 10)
        said = {"app": app, "version": version, "epoch": number, "intent": intent, "digest": DIGEST}
        add = {"path": f"{number}.parquet", "size": 10, "partitionValues": {}, "modificationTime": 0,
               "dataChange": True, "stats": '{"numRecords":2}'}  # fmt: skip
        actions = [
            {"commitInfo": {"operation": "WRITE", "timestamp": 0, "userMetadata": json.dumps(said)}},
            {"txn": {"appId": app, "version": version, "lastUpdated": 0}},
            {"add": add},
        ]
        (place / "_delta_log" / f"{number:020}.json").write_text("\n".join(map(json.dumps, actions)))
        return {"version": version, "commit": number, "rows": 2, "digest": DIGEST}


def test_a_thousand_epochs(tmp_path: Path) -> None:
    made = Made(tmp_path)
    begun = time.process_time()
    found = audit("r", made.home.parent, deep=False)
    spent = time.process_time() - begun
    assert found is not None
    assert (found.verdict, found.findings[:3]) == ("proven", [])
    assert [tally.seen for tally in found.tables.values()] == [EPOCHS] * 3
    assert spent < 10
