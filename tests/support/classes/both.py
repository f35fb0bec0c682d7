"""A class over two streams."""

from __future__ import annotations


class Both:
    """The streams of a key's rows in their order."""

    output = "k STRING, at TIMESTAMP, what STRING"

    def process(self, key, rows, ctx):
        for row in rows:
            yield key[0], row["at"], f"{row['_stream']} {ctx.incr_counter('rows') - 1}"
