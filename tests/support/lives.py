"""A rule that has run, its tables made by hand and without Spark, as far as commands on its whole life look at them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Counts, Written
from floodmark.core.protocol.recovery import ATTEMPTS
from floodmark.ledger.delta import tables
from floodmark.ledger.delta.tables import newest_version
from floodmark.ledger.ledger import Ledger
from support.byhand import commit, intent, offset
from support.flow import Flow, event

RESULT = pa.schema([("k", pa.string()), ("c", pa.int64())])
SCHEMA = json.dumps({"type": "struct", "fields": [
    {"name": "k", "type": "string", "nullable": True, "metadata": {}},
    {"name": "c", "type": "long", "nullable": True, "metadata": {}},
]})  # fmt: skip
STATE = json.dumps({"type": "struct", "fields": [
    {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}},
    {"name": "k", "type": "string", "nullable": True, "metadata": {}},
    {"name": "_epoch", "type": "long", "nullable": True, "metadata": {}},
]})  # fmt: skip


def lived(flow: Flow) -> Ledger:
    """Generation 1 with one committed epoch: state, late, dead and two sinks."""
    flow.arrive([event(1)])
    flow.write_rule()
    ledger = Ledger.open(flow.place.ledger, "by hand")
    places = {f"sink/{flow.sink(i)}": flow.sink(i) for i in range(flow.sinks)}
    places |= {"state/events": flow.place.state(1, "events"), "late": flow.place.late, "dead": flow.place.dead}
    for name, address in places.items():
        tables.create(address, STATE if name.startswith("state/") else SCHEMA, {tables.OWNER: ledger.id})
    ids = {name: tables.table_id(DeltaTable(address)) for name, address in places.items()}
    adopted = {name: at + 1 for name, one in places.items() if (at := tables.adopted_at(DeltaTable(one))) is not None}
    entry, text = Entry(0, (offset(flow, 0),)).text(), flow.rule().to_json()
    columns = {"events": [("at", "timestamp"), ("k", "string")]}
    ledger.begin(
        1,
        "token",
        Commit(
            entry=entry, watermark=None, maxima={"events": None}, columns=columns, rule=text, table_ids=ids,
            adopted=adopted,
        ),
    )  # fmt: skip
    an_epoch(flow, ledger)
    return ledger


def an_epoch(flow: Flow, ledger: Ledger) -> None:
    """One epoch that reads a version of the source and writes one row to each sink."""
    assert ledger.head is not None
    flow.arrive([event(2)])
    number, version = ledger.head.epoch + 1, newest_version(flow.source) + 1
    found = intent(flow, version, None, 0, Counts(read=1, folded=1))
    ledger.intend(found)
    written = {f"sink/{flow.sink(i)}": wrote(flow.sink(i), ledger, number) for i in range(flow.sinks)}
    ledger.commit(commit(found, output=1).model_copy(update={"tables": written}))


def wrote(sink: str, ledger: Ledger, epoch: int, attempt: int = 0) -> Written:
    """A row, committed as an epoch does it; `attempt`: where each writes again."""
    assert ledger.head is not None
    app, version = f"floodmark/{ledger.id}/g1-{ledger.head.token}/sink", epoch * ATTEMPTS + attempt
    said = json.dumps({"app": app, "version": version, "epoch": epoch}, separators=(",", ":"))
    properties = CommitProperties({"userMetadata": said}, app_transactions=[Transaction(app, version)])
    rows = pa.Table.from_pylist([{"k": "a", "c": epoch}], schema=RESULT)
    write_deltalake(sink, rows, mode="append", commit_properties=properties)
    return Written(version=version, commit=DeltaTable(sink).version(), rows=1)


def by_hand(address: str, count: int = 1) -> None:
    """Rows that somebody writes without Floodmark."""
    Path(address).parent.mkdir(parents=True, exist_ok=True)
    write_deltalake(address, pa.Table.from_pylist([{"k": "b", "c": 0}] * count, schema=RESULT), mode="append")
