"""The windows by Pathway, from CSV into CSV, in its own environment. Its Delta connector asks for a license key."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import pathway as pw


class Event(pw.Schema):
    ts: str
    k: str
    v: float


def main(table: str, out: str) -> None:
    begun = time.monotonic()
    events = pw.io.csv.read(table, schema=Event, mode="static")
    events = events.with_columns(ts=pw.this.ts.dt.strptime("%Y-%m-%d %H:%M:%S.%f"))
    minutes = pw.temporal.tumbling(duration=timedelta(minutes=1))
    found = events.windowby(events.ts, window=minutes, instance=events.k).reduce(
        minute=pw.this._pw_window_start,
        k=pw.this._pw_instance,
        n=pw.reducers.count(),
        most=pw.reducers.max(pw.this.v),
        mean=pw.reducers.avg(pw.this.v),
    )
    pw.io.csv.write(found, out)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print("seconds", time.monotonic() - begun, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
