"""Ledgers, state and rows set apart as epochs leave them, made by hand and without Spark."""

from __future__ import annotations

import pyarrow as pa
from deltalake import write_deltalake

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Counts, Intent
from floodmark.ledger.ledger import Ledger
from support.flow import Flow, event

APART = [("_epoch", pa.int64()), ("_stream", pa.string()), ("_reason", pa.string()), ("_source", pa.string())]
ROW = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("k", pa.string())])


def offset(flow: Flow, version: int) -> str:
    first = DeltaOffset.parse(next(iter(sources(flow.rule(), flow.place).values())).start())
    return DeltaOffset(first.table_id, version, -1, False).line()


def intent(flow: Flow, version: int, watermark: int | None, top: int, counts: Counts) -> Intent:
    rule, line = flow.rule(), offset(flow, version)
    log_sum = sources(rule, flow.place)["events"].log_sum(line)
    return Intent(
        entry=Entry(0, (line,)).text(),
        log_sums={} if log_sum is None else {"events": log_sum},
        watermark_before=None,
        watermark=watermark,
        maxima={"events": top},
        counts={"events": counts},
        rule=rule.to_json(),
        rule_hash=rule.hash,
        zone="UTC",
        ansi=True,
    )


def commit(of: Intent, output: int = 0) -> Commit:
    body = of.model_dump(include={"entry", "watermark", "maxima", "counts", "log_sums"})
    return Commit(intent=of.digest, output_rows=output, **body)


def begun(flow: Flow) -> Ledger:
    """A ledger whose first generation stands before version 0 of the source."""
    flow.arrive([event(1)])
    flow.write_rule()
    ledger = Ledger.open(flow.place.ledger, "by hand")
    columns = {"events": [("at", "timestamp"), ("k", "string")]}
    entry = Entry(0, (offset(flow, 0),)).text()
    text = flow.rule().to_json()
    ledger.begin(1, "token", Commit(entry=entry, watermark=None, maxima={"events": None}, columns=columns, rule=text))
    return ledger


def folded(flow: Flow, ledger: Ledger, version: int, top: int, watermark: int | None) -> None:
    found = intent(flow, version, watermark, top, Counts(read=3, folded=2, late=1))
    ledger.intend(found)
    ledger.commit(commit(found, output=1))


def keep(flow: Flow, epoch: int, *seconds: float) -> None:
    """Rows of the state table, as an epoch writes them."""
    rows = [{"at": event(at)["at"], "k": "a", "_epoch": epoch} for at in seconds]
    schema = ROW.append(pa.field("_epoch", pa.int64()))
    write_deltalake(flow.place.state(1, "events"), pa.Table.from_pylist(rows, schema=schema), mode="append")


def set_apart(address: str, *epochs: int, reason: str = "r") -> None:
    rows = [{"at": event(0)["at"], "k": "a", "_epoch": e, "_stream": "events", "_reason": reason} for e in epochs]
    schema = pa.schema([*ROW, *APART])
    write_deltalake(address, pa.Table.from_pylist(rows, schema=schema), mode="append")
