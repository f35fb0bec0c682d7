"""A class of test rules that refuses some rows, after it has kept and given something for them."""

from __future__ import annotations

from typing import ClassVar


class Picky:
    """The running sum of n by key. A row with n = 9 is refused, with all rows of its call."""

    output = "k STRING, at TIMESTAMP, total BIGINT, calls BIGINT"
    state: ClassVar = {"sum": "total BIGINT"}

    def process(self, key, rows, ctx):
        for row in rows:
            n = row.pop("n")
            total = (ctx.get_state("sum") or {"total": 0})["total"] + n
            ctx.put_state("sum", (total,))
            yield key[0], row["at"], total, ctx.incr_counter("calls")
            if n == 9:
                raise ValueError("nine\nis too many")
