"""One page of the table of epochs: the columns of `floodmark epochs`, with offsets and digests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable

from floodmark.connectors.ports.registry import sources
from floodmark.connectors.ports.source import Source
from floodmark.core.lifecycle.zones import zoned
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import NOWHERE, Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Row
from floodmark.core.rules.rule import Rule
from floodmark.core.text.tablenames import table_label
from floodmark.ledger.delta.datafiles import query
from floodmark.views.epochs import epoch_entries, is_replay

COUNT = 25


@dataclass(frozen=True)
class EpochPage:
    """`epochs`: newest first. `older`, `newer`: last epoch of the neighbouring pages; None if there is none."""

    generation: int
    epochs: list[dict[str, Any]]
    older: int | None
    newer: int | None


def epoch_page(rule: Rule, head: Head, ledger: DeltaTable, generation: int, upto: int | None) -> EpochPage | None:
    """The epochs of a generation up to number `upto` (None: the newest); None if there is no such generation."""
    newest = query(ledger, f"SELECT max(epoch) AS newest FROM t WHERE generation = {generation:d}")[0]["newest"]  # noqa: S608 - a number
    if newest is None:
        return None
    last = newest if upto is None else min(upto, newest)
    rows = _rows(ledger, generation, last - COUNT + 1, last)
    entries = epoch_entries(rows, zoned(rule, head), len(rows))
    known = sources(rule, None)
    found = [{**entry, "replay": is_replay(head, entry), **_more(entry, rows, known)} for entry in reversed(entries)]
    return EpochPage(
        generation, found, last - COUNT if last >= COUNT else None, last + COUNT if last < newest else None
    )


def _rows(ledger: DeltaTable, generation: int, first: int, last: int) -> list[Row]:
    condition = f"generation = {generation:d} AND epoch BETWEEN {first:d} AND {last:d}"
    return [Row(**row) for row in query(ledger, f"SELECT * FROM t WHERE {condition} ORDER BY seq")]  # noqa: S608 - numbers


def _more(entry: dict[str, Any], rows: list[Row], known: Mapping[str, Source]) -> dict[str, Any]:
    """`offsets` and `prints` (digests): each a list of pairs of name and text."""
    if entry["read"] is None or entry["backfill"] is not None:  # a seal, or a lifecycle row
        return {"offsets": [], "prints": []}
    row = [row for row in rows if row.epoch == entry["epoch"] and row.kind in ("intent", "commit", "lost")][-1]
    body = json.loads(row.body)
    names = sorted(body["maxima"])  # the streams at that time, in the order of their offsets
    lines = zip(names, Entry.parse(body["entry"]).offsets, strict=False)
    return {"offsets": [(name, _offset(known.get(name), line)) for name, line in lines], "prints": list(_prints(body))}


def _offset(source: Source | None, line: str) -> str:
    """The end offset of an epoch in a stream, as text; the raw offset if the rule no longer has the stream."""
    if line == NOWHERE:
        return "nothing yet"
    return line if source is None else source.describe(line)


def _prints(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The digests of the rows that an epoch folded and wrote."""
    for name, digest in body.get("digests", {}).items():
        yield f"stream {name}", _print(digest)
    for name, written in body.get("tables", {}).items():
        yield f"{table_label(name)}, commit {written['commit']}", _print(written.get("digest"))


def _print(digest: dict[str, Any] | None) -> str:
    return "no digest" if digest is None else f"{digest['rows']} rows {Digest.model_validate(digest)}"
