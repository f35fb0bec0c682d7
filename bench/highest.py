"""The measured process class; Spark's is in `processes`. It has its own module: its text goes with the rule."""

from __future__ import annotations

from typing import ClassVar


class Highest:
    """The number of values of a key so far, and the highest of them."""

    output = "k BIGINT, n BIGINT, most DOUBLE"
    state: ClassVar = {"seen": "n BIGINT, most DOUBLE"}

    def process(self, key, rows, ctx):
        seen = ctx.get_state("seen")
        n, most = (seen["n"], seen["most"]) if seen else (0, float("-inf"))
        for row in rows:
            n, most = n + 1, max(most, row["v"])
        ctx.put_state("seen", (n, most))
        yield key[0], n, most


class HighestOfText(Highest):
    """The same, of keys that are texts."""

    output = "k STRING, n BIGINT, most DOUBLE"
