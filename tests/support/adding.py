"""Rules whose results hang on the order in which floating point is added up, and so on how files are cut into tasks."""

from __future__ import annotations

from pathlib import Path

from support.flow import Flow, event, rows_of

# Two files of one window. In one task each 1 is lost beside 1e16; in a task each, those of the second file are not.
FILES = [[1e16, 1.0], [1.0, 1.0]]
SQL = {
    "cast": "SELECT window.start AS start, CAST(avg(v) AS STRING) AS m FROM events GROUP BY window(at, '1 minute')",
    "having": "SELECT window.start AS start, CAST(count(*) AS STRING) AS m FROM events GROUP BY window(at, '1 minute')"
    " HAVING avg(v) > 2.5e15D",
}
# The text of each sink's rows, by the cores of who wrote them.
WRITTEN = {"cast": {1: ["2.5E15"], 4: ["2.5000000000000005E15"]}, "having": {1: [], 4: ["4"]}}


def summed(place: Path, sql: str) -> Flow:
    flow = Flow(place, f"by_{sql}", SQL[sql], sinks=1)
    for values in FILES:
        flow.arrive([event(i, v=v) for i, v in enumerate(values)] + [event(300)])
    return flow


def written(flow: Flow) -> list[str]:
    return [row["m"] for row in rows_of(flow.sink())]
