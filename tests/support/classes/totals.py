"""Classes of test rules: each leans on the order of rows and timers, so that a wrong order shows in its output."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar


class Totals:
    """What changed since the row before, a running number, and an alarm when a key has been quiet for 40 seconds."""

    output = "k STRING, at TIMESTAMP, what STRING, n BIGINT, v DOUBLE"
    state: ClassVar = {"last": "at TIMESTAMP, n BIGINT, seen ARRAY<BIGINT>"}

    def process(self, key, rows, ctx):
        for row in rows:
            last = ctx.get_state("last")
            count = ctx.incr_counter("rows")
            if row["n"] == 3:
                ctx.delete_state("last")
            else:
                seen = [*(last["seen"] if last else []), row["n"]][-3:]
                ctx.put_state("last", {"at": row["at"], "n": row["n"], "seen": seen})
            ctx.set_timer(row["at"] + timedelta(seconds=40))
            gap = None if last is None else (row["at"] - last["at"]).total_seconds()
            yield {"k": key[0], "at": row["at"], "what": f"row {last and last['seen']}", "n": count, "v": gap}

    def on_timer(self, key, at, name, ctx):
        last = ctx.get_state("last")
        ctx.put_state("last", {"at": at, "n": -1, "seen": []})
        yield key[0], at, "quiet", last and last["n"], None


class Forgetting:
    """A count that is forgotten 60 seconds after the last row."""

    output = "k STRING, at TIMESTAMP, rows BIGINT, hits BIGINT"
    state: ClassVar = {"seen": "rows BIGINT"}
    ttl: ClassVar = {"seen": "60 seconds", "counters": "60 seconds"}

    def process(self, key, rows, ctx):
        for row in rows:
            seen = ctx.get_state("seen")
            rows_seen = (seen["rows"] if seen else 0) + 1
            ctx.put_state("seen", (rows_seen,))
            yield key[0], row["at"], rows_seen, ctx.incr_counter("hits")
