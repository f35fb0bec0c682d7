"""Rows that a target refused, as its undelivered table has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from floodmark.audit.content.content import GONE, rows_of
from floodmark.audit.delivered.columns import Columns
from floodmark.audit.delivered.portions import Id, Portion
from floodmark.audit.evidence import TableLog
from floodmark.audit.logreader import store_of

ASIDE = ("_reason", "_generation", "_epoch", "_seq", "_number", "_at")  # what is said of a refused row


@dataclass(frozen=True)
class Aside:
    """Rows that a target refused, by their portion's row of the ledger and their number in the portion."""

    table: pa.Table | None = None

    @cached_property
    def places(self) -> dict[Id, int]:
        """Where each is in the table."""
        if self.table is None:
            return {}
        ids = zip(self.table["_seq"].to_pylist(), self.table["_number"].to_pylist(), strict=True)
        return {one: place for place, one in enumerate(ids)}

    def numbers(self, seq: int) -> set[int]:
        return {number for one, number in self.places if one == seq}

    def rows(self, ids: Sequence[Id]) -> pa.Table:
        """These rows, in this order, without what is said of them. Raises KeyError."""
        assert self.table is not None or not ids
        if self.table is None:
            return pa.table({})
        return self.table.take([self.places[one] for one in ids]).drop_columns(list(ASIDE))

    def undelivered(self, shipped: Sequence[Portion]) -> list[Id]:
        """Those that these portions have left out, and that none of them has brought after all."""
        again = {one for portion in shipped for one in portion.again}
        seqs = {portion.seq for portion in shipped}
        return sorted(one for one in self.places if one[0] in seqs and one not in again)


def aside_in(logs: Sequence[TableLog], columns: Columns) -> Aside:
    """Those of all undelivered tables of a target: it gets another one where a column has another type."""
    parts = [columns.of(rows_of(store_of(log.address), path, log), (GONE, *ASIDE)) for log in logs for path in log.live]
    return Aside(pa.concat_tables(parts, promote_options="default") if parts else None)
