"""Run the rule's SQL, or its class, in batch over a bounded sample of each stream. Writes nothing, reads no ledger."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.connectors.delta.lookups import pinned_now
from floodmark.connectors.ports.registry import check_rereads
from floodmark.core.protocol.expectations import ExpectationResult, uncommitted_results
from floodmark.core.protocol.records.rows import Counts
from floodmark.core.protocol.watermark import advance
from floodmark.core.rules.rule import Rule
from floodmark.spark.fold.fold import Moment
from floodmark.spark.read import lookuprows
from floodmark.spark.read.batch import Batch, Limits, latest_times
from floodmark.spark.read.expectationchecks import ExpectationChecks, check_results
from floodmark.spark.read.frames import sampled
from floodmark.spark.read.shape import Shape, instant, time_type
from floodmark.spark.rule.analysis import analyse
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.constants import AS_JSON
from floodmark.spark.session.faults import explained
from floodmark.spark.session.views import put_view

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Preview:
    """`rows`: values, and whether the row's window would be final; `more`: there are more rows than those shown.

    `expected`: the outcome of each expectation.
    """

    columns: list[tuple[str, str]]
    rows: list[tuple[Values, bool]]
    more: bool
    counts: dict[str, Counts]
    expected: list[ExpectationResult]
    watermark: int | None
    zoned: bool


def preview(root: SparkSession, rule: Rule, sample: int, rows: int) -> Preview:
    """Read at most `sample` rows of each stream, and return at most `rows` of the results."""
    check_rereads(rule)
    with explained(rule.rule):
        session, plan = analyse(root, rule, None, None)
        shape = plan.fold.shape
        batch = _batch(session, rule, shape, sample)
        lookuprows.show(session, rule, pinned_now(rule), partial(lookuprows.first_moments, batch))
        mark = _watermark(rule, batch)
        parts = _folded(session, plan, batch, mark) if _is_ours(rule) else _results(session, rule, batch, mark)
        results = [
            (check_results(frame, plan.expectations if final else ExpectationChecks(), rule.rule, session), final)
            for frame, final in parts
        ]
        found = [_shown(part.rows, final, rows + 1) for part, final in results]
        counts = {name: one for part, _ in results for name, one in part.counts.items()}  # one part at most is final
    columns = [(field.name, field.dataType.simpleString()) for field in plan.output]
    more = sum(map(len, found)) > rows
    zoned, told = _time(rule, shape) == "timestamp", uncommitted_results(rule, batch.counts, counts)
    return Preview(columns, _some(found, rows), more, batch.counts, told, mark, zoned)


def _shown(frame: DataFrame | None, final: bool, rows: int) -> list[tuple[Values, bool]]:
    return [] if frame is None else [(values, final) for values in values_of(frame, rows)]


def _some(parts: list[list[tuple[Values, bool]]], rows: int) -> list[tuple[Values, bool]]:
    """The first rows of each part; if there are too many, rows that are not final get half of the room."""
    room = rows // 2 if len(parts) > 1 else 0
    first = [row for part in parts[:1] for row in part][: rows - min(room, sum(map(len, parts[1:])))]
    return [*first, *(row for part in parts[1:] for row in part)][:rows]


def _batch(session: SparkSession, rule: Rule, shape: Shape, sample: int) -> Batch:
    clock = int(time.time() * 1000)
    latest = latest_times(rule, shape, clock)
    frame = sampled(session, rule, shape, sample).persist()  # a limit may return other rows each time
    return Batch(frame, rule, shape, Limits(None, latest))


def _watermark(rule: Rule, batch: Batch) -> int | None:
    lateness = {name: stream.lateness_us for name, stream in rule.streams.items() if stream.lateness_us is not None}
    return advance(None, batch.maxima, lateness, in_snapshot=False)


def _is_ours(rule: Rule) -> bool:
    """Whether the rule is more than SQL that Spark can run."""
    return rule.process is not None or rule.query.collected is not None


def _folded(session: SparkSession, plan: Plan, batch: Batch, mark: int | None) -> list[tuple[DataFrame, bool]]:
    """The rule's results for the rows that the sample's watermark has passed, without state."""
    moment = Moment(1, None, mark, (), int(time.time()) * 1_000_000)
    output = plan.fold.fold(batch, dict.fromkeys(plan.fold.tables, _empty), session, moment).output
    return [] if output is None else [(output, True)]


def _empty(needed_from: int | None) -> DataFrame | None:
    return None


def _results(session: SparkSession, rule: Rule, batch: Batch, mark: int | None) -> list[tuple[DataFrame, bool]]:
    """The results in parts: those that would be final, and those that would not. Stateless results are final."""
    for name in rule.streams:
        put_view(batch.folded(name), name)
    if not rule.query.windows:
        return [(lookuprows.results_of_rows(session, rule), True)]
    if mark is None:
        return [(session.sql(rule.query.sql), False)]
    kind = _time(rule, batch.shape)

    def at(moment: int, _: str) -> str:
        return instant(moment, kind)

    return [
        (session.sql(rule.query.bounded(None, mark, at)), True),
        (session.sql(rule.query.bounded(mark, _END, at)), False),
    ]


def values_of(frame: DataFrame, rows: int) -> list[Values]:
    """Values as in JSON: Spark prints times in the rule's zone, Python would use this machine's."""
    texts = frame.select(F.to_json(F.struct("*"), AS_JSON)).take(rows)
    return [tuple(json.loads(text).values()) for (text,) in texts]


_END = 253_402_300_799_999_999  # the last microsecond of the year 9999: no window that SQL can print ends later


def _time(rule: Rule, shape: Shape) -> str:
    kinds = (time_type(stream, shape.streams[name]) for name, stream in rule.streams.items())
    return next((kind for kind in kinds if kind), "timestamp")
