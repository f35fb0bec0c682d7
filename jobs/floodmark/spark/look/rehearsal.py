"""What a replay of dead rows would do. Writes nothing, and takes no lock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import DataType

from floodmark.connectors.places import check_same_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts, Replay
from floodmark.core.rules.rule import Rule
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.home import Home
from floodmark.spark.read.batch import Batch, Limits, latest_times
from floodmark.spark.read.replaying import replayed
from floodmark.spark.rule.analysis import analyse
from floodmark.spark.rule.backfill.rereading import PastRows
from floodmark.spark.session.constants import AS_JSON
from floodmark.spark.session.faults import explained


@dataclass(frozen=True)
class Rehearsal:
    """`rows`: some of the replay's rows, with `_stream`, `_becomes` and `_reason`."""

    counts: dict[str, Counts]
    rows: list[dict[str, Any]]


def rehearse(
    root: SparkSession, rule: Rule, home: Path, head: Head, wanted: Callable[[Head], Replay], rows: int
) -> Rehearsal:
    """Sort the rows of a replay as its READ would now, and return at most `rows` of them."""
    check_same_sinks(head, rule)
    with explained(rule.rule):
        place = Home(home, rule.rule)
        session, plan = analyse(root, rule, place, head)
        shape, clock = plan.fold.shape, int(time.time() * 1000)
        with closing(PastRows(session, plan, place, head, replaying=True)) as past:
            assert past.dead is not None
            frame = replayed(rule, shape, past.dead, head, wanted(head), clock * 1000)
            limits = Limits(rule.late_below(head.watermark), latest_times(rule, shape, clock))
            batch = Batch(frame, rule, shape, limits)
            found = _shown(batch.classified().limit(rows))
    return Rehearsal(batch.counts, found)


def _shown(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows. Columns with times are as in JSON: Python lacks some years, and would use this machine's zone."""
    timed = [field.name for field in frame.schema if _has_time(field.dataType)]
    texts = {name: F.to_json(F.struct(F.col(quoted(name))), AS_JSON).alias(name) for name in timed}
    found = frame.select(*(texts.get(name, F.col(quoted(name))) for name in frame.columns)).collect()
    rows = (row.asDict(recursive=True) for row in found)
    return [row | {name: json.loads(row[name])[name] for name in timed} for row in rows]


def _has_time(kind: DataType) -> bool:
    return any(word in kind.simpleString() for word in ("timestamp", "date"))
