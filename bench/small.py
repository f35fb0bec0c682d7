"""Measure costs that do not grow with the input: an epoch's fixed cost, a ledger row, an idle run, a cold start."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from bench import contenders
from bench.events import write_events
from bench.table import Line, Measured
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Counts, Intent
from floodmark.core.rules.rule import load_rule
from floodmark.ledger.ledger import Ledger

EPOCHS = 24
ROWS_IN_A_TABLE = 60  # of the ledger that the rows go to
BACKLOG = 10_000


def warm_epoch(spark: SparkSession, work: Path) -> list[Line]:
    """Epochs of 1,000 rows in one run, without and with sync; only the second half counts, when the JVM is warm."""
    write_events(spark, work / "events", EPOCHS * 1_000, 50, EPOCHS)
    plain, synced = (_epochs(spark, work, sync) for sync in ("0", "1"))
    line = Line.of("  the same, synced (FLOODMARK_SYNC=1)", synced)
    return [Line.of("warm epoch of 1,000 rows", plain), replace(line, ratio=f"{plain.median / synced.median:.2f}")]


def _epochs(spark: SparkSession, work: Path, sync: str) -> Measured:
    os.environ["FLOODMARK_SYNC"] = sync
    try:
        done = contenders.floodmark(spark, work / "events", work / sync, EPOCHS)[1]
    finally:
        del os.environ["FLOODMARK_SYNC"]
    return Measured([epoch.seconds for epoch in done[EPOCHS // 2 :]])


def ledger_rows(work: Path) -> list[Line]:
    """Ledger rows of the size that a rule with one stream and one sink writes."""
    rule = load_rule(contenders.rule_file(work / "rules", work / "events", work / "sink"), os.environ)
    entry = Entry(1_700_000_000_000, (DeltaOffset("0" * 36, 1, -1, False).line(),)).text()
    facts: dict[str, Any] = {"entry": entry, "watermark": 2, "maxima": {"events": 2}}
    counts = {"events": Counts(read=5, folded=5)}
    intent = Intent(**facts, watermark_before=1, counts=counts, rule=rule.to_json(), rule_hash=rule.hash,
                    zone="UTC", ansi=True)  # fmt: skip
    ledger = Ledger.open(str(work / "ledger"), "bench")
    ledger.begin(1, "0" * 16, Commit(**facts, rule=rule.to_json()))
    intents, commits = Measured(), Measured()
    for _ in range(ROWS_IN_A_TABLE // 2):
        intents.add(_seconds(partial(ledger.intend, intent)))
        commits.add(_seconds(partial(ledger.commit, Commit(**facts, intent=intent.digest, counts=counts))))
    return [Line.of("intent row", intents, 0.02), Line.of("commit row", commits, 0.02)]


def idle_run(work: Path, repeats: int) -> list[Line]:
    """`floodmark run` without new data: a process of its own, from its start to its exit."""
    _backlog(work)
    _run(work)
    found = Measured([_run(work) for _ in range(repeats)])
    return [Line.of("floodmark run, nothing new", found, 1.0)]


def cold_start(work: Path, repeats: int) -> list[Line]:
    """`floodmark run` on a backlog of 10,000 rows, with and without the fast-start measures, in turn."""
    fast, slow = Measured(), Measured()
    for place in range(repeats):
        for times, measures in ((fast, "1"), (slow, "0")):
            root = work / f"{place}-{measures}"
            _backlog(root)
            times.add(_run(root, FLOODMARK_FAST_START=measures))
    ratio = fast.median / slow.median
    aim = f"<= 0.6 {'met' if ratio <= 0.6 else 'MISSED'}"
    return [
        Line.of("cold run, backlog of 10,000 rows, fast start", fast),
        Line("  without fast start", slow.text(), ratio=f"{1 / ratio:.2f}", aim=f"fast takes {ratio:.2f} of it: {aim}"),
    ]


def _backlog(root: Path) -> None:
    """Write a rule, and the events that wait for it, without Spark."""
    contenders.rule_file(root / "rules", root / "events", root / "sink")
    begin = datetime(2001, 1, 1, tzinfo=UTC)
    times = [begin + timedelta(milliseconds=60 * place) for place in range(BACKLOG)]
    rows = pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "k": [str(place % 50) for place in range(BACKLOG)],
            "v": [float(place % 1000) for place in range(BACKLOG)],
        }
    )
    write_deltalake(str(root / "events"), rows.slice(0, 0))
    write_deltalake(str(root / "events"), rows, mode="append")


def _run(root: Path, **settings: str) -> float:
    """Seconds of `floodmark run bench`, until its JVM has exited, too: the JVM holds the pipe."""
    places = {"FLOODMARK_RULES": str(root / "rules"), "FLOODMARK_HOME": str(root / "home")}
    command = [sys.executable, "-c", "from floodmark.cli import main; main()", "run", "bench"]
    call = partial(subprocess.run, command, env={**os.environ, **places, **settings}, check=True, capture_output=True)
    return _seconds(call)


def _seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
