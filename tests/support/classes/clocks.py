"""A class of test rules with timers by the epochs' clock."""

from __future__ import annotations

from datetime import timedelta


class Clocks:
    """A row of each key a minute after an epoch has read one."""

    output = "k STRING, at TIMESTAMP"

    def process(self, key, rows, ctx):
        for _ in rows:
            ctx.set_clock_timer(ctx.now + timedelta(minutes=1))

    def on_clock(self, key, at, name, ctx):
        yield key[0], at


class Stamped:
    """Each row with the clock of the epoch that gives it to the class."""

    output = "k STRING, at TIMESTAMP"

    def process(self, key, rows, context):
        for _ in rows:
            yield key[0], context.now
