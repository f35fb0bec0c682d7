"""A class over two streams."""

from __future__ import annotations

from datetime import timedelta


class Both:
    """The streams of a key's rows in their order."""

    output = "k STRING, at TIMESTAMP, what STRING"

    def process(self, key, rows, ctx):
        for row in rows:
            yield key[0], row["at"], f"{row['_stream']} {ctx.incr_counter('rows') - 1}"


class Clockless:
    """Timers of event times without a zone."""

    output = "k STRING, moment TIMESTAMP_NTZ"

    def process(self, key, rows, ctx):
        for row in rows:
            ctx.set_timer(row["moment"] + timedelta(seconds=1), str(row["moment"]))

    def on_timer(self, key, at, name, ctx):
        yield key[0], at
