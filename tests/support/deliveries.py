"""One rule whose results go to targets and, in the same way, to Delta tables, with which its relays are compared."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from support.flow import Flow, event, rows_of
from support.relays import Relays
from support.running import run

# An epoch each. Keys come, change, are deleted and come again; rows are older than what is there, or as old; one epoch
# has no row.
EPOCHS = (
    [event(1, "a", n=1), event(2, "b", n=2), event(3, None, n=3)],
    [event(4, "a", n=4), event(1, "b", n=5), event(5, "c", v=None, n=6), event(6, 'd,"\n\\', n=6)],
    [event(7, "b", n=-1), event(8, "a", n=7), event(9, "e", n=8)],
    [event(9, "e", n=None)],
    [event(10, "b", n=9), event(9, "e", v=0.5, n=10), event(2, None, n=11), event(4, "a", v=None, n=3)],
)
COLUMNS = ("at", "k", "v", "n")
KEYED: dict[str, Any] = {"key": ["k"], "delete": "n < 0", "where": "n <> 7"}


def flow_of(root: Path, sinks: Sequence[Mapping[str, Any]]) -> Flow:
    """A rule with these sinks and, for each way in which they take the results, a Delta table that does the same."""
    flow = Flow(root, "delivered", sql=f"SELECT {', '.join(COLUMNS)} FROM events WHERE n IS NOT NULL")
    flow.stream = {"lateness": None}
    ways = [_way(one) for one in sinks]
    twins = [{"delta": flow.sink(i), **deepcopy(way)} for i, way in enumerate(ways) if ways.index(way) == i]
    flow.settings = {"sinks": [*sinks, *twins]}
    return flow


def _way(sink: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in sink.items() if name in (*KEYED, "newest")}


def run_all(spark: SparkSession, flow: Flow) -> Flow:
    """Run all epochs, a file each; nothing is shipped."""
    flow.stream["start"] = {"version": 0}
    flow.settings["epoch"] = {"max_files": 1}
    for rows in EPOCHS:
        flow.arrive(rows)
    run(spark, flow)
    assert flow.ledger().begun.epoch == len(EPOCHS)
    return flow


class Copied:
    """A rule with relays of its own: its home and rules are copied to `place`, unless they are there. The Delta tables
    are those of the original."""

    def __init__(self, written: Flow, place: Path, env: Mapping[str, str]):
        self.written, self.root = written, place
        if place != written.root:
            shutil.copytree(written.home, place / "home")
            shutil.copytree(written.write_rule().parent, place / "rules")
        self.relays = Relays(written.name, place, env)

    def rewrite(self, old: str, new: str, file: str = "delivered.yaml") -> None:
        """Change the rule file, or another one beside it."""
        path = self.root / "rules" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def expected(self, number: int) -> list[tuple[Any, ...]]:
        """What sink `number` is to hold."""
        ways = [_way(one) for one in self.written.settings["sinks"]]
        return in_order(rows_of(self.written.sink(ways.index(ways[number]))))


def in_order(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COLUMNS) for row in rows), key=str)
