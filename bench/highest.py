"""The process class that is measured; Spark's runs in `processes`. It stands alone, for its text goes with the rule."""

from __future__ import annotations

from typing import ClassVar


class Highest:
    """How many values a key has had, and the highest of them."""

    output = "k BIGINT, n BIGINT, most DOUBLE"
    state: ClassVar = {"seen": "n BIGINT, most DOUBLE"}

    def process(self, key, rows, ctx):
        seen = ctx.get_state("seen")
        n, most = (seen["n"], seen["most"]) if seen else (0, float("-inf"))
        for row in rows:
            n, most = n + 1, max(most, row["v"])
        ctx.put_state("seen", (n, most))
        yield key[0], n, most
