"""The interval in which whole sessions lie: those that rows touched, and those that late rows have joined since.

1. SEARCH   the sessions of the rows around, as they are now, together with those that left.
2. WIDEN    the interval holds each that has a row that left or came. Epochs have left out late rows, which are counted
            now, and dead and dropped rows, which count neither then nor now. So it also holds each session with such a
            row of which it would hold a part.
3. MEASURE  when the last of them ends. If one goes on beyond the rows that were read, search again, further out.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know

from floodmark.core.lifecycle.backfills import Interval, of_no_interval
from floodmark.core.lifecycle.corrections import (
    BEFORE,
    SECOND,
    Parts,
    check_ended,
    keep_late,
    nothing_touched,
    of_sessions,
    parted,
    same_expectations,
    spanning,
    times_of,
)
from floodmark.core.protocol.records.backfills import Restated
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.checks.recomputing import LATE_UNKNOWN
from floodmark.core.sql.forms.bounds import HIDDEN
from floodmark.core.sql.words.lexis import quoted
from floodmark.ledger.home import Home
from floodmark.spark.read.shape import micros
from floodmark.spark.rule.backfill.deadcolumns import texts_of
from floodmark.spark.rule.backfill.rereading import PastRows, has_rows, within
from floodmark.spark.rule.generation import Plan
from floodmark.spark.session.views import put_view

REACH, FURTHER = 8, 4  # gaps around the interval in which sessions are searched at first; how much further each time
FINENESS = 10_000  # parts in which sessions are told apart, at most
TIME, MARK = f"{HIDDEN}at", f"{HIDDEN}mark"
LEFT_OUT, TOUCHED = 1, 2  # marks of rows; of a session, the largest that its rows have


def touched(past: PastRows, times: Parts, rows: DataFrame, newest: int) -> Interval | None:
    """The interval of all sessions that these rows, which left or came, have touched. times: theirs. newest: no row
    has a later one.

    If one of the sessions is not final, it holds all that are not, and what started after the first of them. None:
    before the rule's file was edited, sessions were made of other rows.
    """
    rule, watermark = past.plan.rule, past.head.watermark
    texts = [text.rule for text in texts_of(past.home, past.head)]
    if watermark is None or not same_expectations(rule, texts) or not keep_late(texts):
        return None
    search = _Search(past, rows)
    found, _ = search.around(times, [])
    if not found.final:
        found, _ = replace(search, newest=newest).around([*times, (watermark, newest + 1)], [])
    return found


def opens_at(interval: Interval) -> int:
    """From when on an interval that is not final holds all sessions."""
    return interval.gaps[-1][1] if interval.gaps else interval.begin


def requested(session: SparkSession, plan: Plan, home: Home, head: Head, interval: Interval) -> Interval:
    """The interval, widened to whole sessions. Raises Refused if one of them is not final, or was made otherwise."""
    rule, wanted = plan.rule, [(interval.begin, interval.end)]
    texts = [text.rule for text in texts_of(home, head)]
    if not keep_late(texts):
        raise of_no_interval(rule.rule, LATE_UNKNOWN)
    if not same_expectations(rule, texts):
        raise of_no_interval(
            rule.rule, "a stream had another `expect` in earlier epochs, which may have had other rows in its sessions"
        )
    with closing(PastRows(session, plan, home, head)) as past:
        found, until = _Search(past, None).around(wanted, wanted)
    check_ended(rule.rule, found, until, head.watermark, interval.shown)
    return found


@dataclass(frozen=True)
class _Search:
    """The sessions of a rule as of a head. touched: rows of the rule's frame that left or came. newest: of all rows, if
    those that are not final are searched, too."""

    past: PastRows
    touched: DataFrame | None
    newest: int | None = None

    def around(self, times: Parts, wanted: Parts) -> tuple[Interval, int | None]:
        """The interval that holds what is wanted and what is touched, and when its last session ends (None: it has
        none). times: around which to search."""
        reach = REACH * self._gap
        while True:
            span = spanning(parted(times, 2 * reach), reach, reach, self.past.head.epoch)
            found = self._sessions(span).persist(StorageLevel.MEMORY_AND_DISK)
            parts = self._parts(found, span, wanted)
            measured = _measured(found, parts, span, self._gap) if parts else None
            found.unpersist()
            if measured is None:
                return nothing_touched(self._plan.rule), None
            if not measured["cut"]:
                read = spanning(parts, self._gap, measured["after"] or 0, self.past.head.epoch)
                interval = of_sessions(self._plan.rule, read, measured["until"], self.past.head.watermark)
                return interval, measured["until"]
            reach *= FURTHER

    @property
    def _plan(self) -> Plan:
        return self.past.plan

    @property
    def _gap(self) -> int:
        found = self._plan.rule.query.lone_sessions
        assert found is not None
        return found[1]

    def _sessions(self, span: Restated) -> DataFrame:
        """The sessions of the rows in a span: from `since` to `until`, with the last row at `last`, and their mark."""
        found = self._plan.rule.query.lone_sessions
        assert found is not None
        (name,) = self._plan.rule.streams
        own = self.past.in_span(span)
        marked = [self._marked(own, f"IF(coalesce(_x, 0L) = 0, 0, {LEFT_OUT})")]
        for table in self._quarantines:
            apart = within(self._plan, self.past.quarantined(table), span)
            marked.append(self._marked(apart, str(LEFT_OUT)))
        if self.touched is not None:
            marked.append(self._marked(self.touched, str(TOUCHED)))
        put_view(reduce(DataFrame.unionAll, marked), name)
        rows = self.past.session.sql(found[0].marked(self._plan.rule.query.sql, TIME, MARK))
        kind = rows.schema[f"{HIDDEN}since"].dataType.simpleString()
        since, until = (micros(f"{HIDDEN}{side}", kind) for side in ("since", "until"))
        return rows.selectExpr(
            f"{since} AS since", f"{until} AS until", f"{HIDDEN}last AS last", f"{HIDDEN}mark AS mark"
        )

    @property
    def _quarantines(self) -> list[str]:
        """The late and dead tables that have rows."""
        return [table for table in (self.past.home.late, self.past.home.dead) if has_rows(table)]

    def _marked(self, rows: DataFrame, mark: str) -> DataFrame:
        """Rows of the rule's frame as the stream's own. mark: theirs, as SQL."""
        shape = self._plan.fold.shape
        (name,) = shape.streams
        prefix = shape.prefix(name)
        own = (f"{quoted(prefix + field.name)} AS {quoted(field.name)}" for field in shape.streams[name])
        read = "_k AND _e IS NULL" + (" AND _m IS NULL" if shape.malformed else "")
        return rows.where(read).selectExpr(*own, f"_t AS {TIME}", f"{mark} AS {MARK}")

    def _parts(self, sessions: DataFrame, span: Restated, wanted: Parts) -> Parts:
        """What is wanted, touched or open, widened to whole sessions with a row that is left out."""
        left_out = bool(self._quarantines or self._plan.fold.shape.expectations)
        if self.touched is None and not left_out:
            return wanted
        grain = max(SECOND, (span.high - span.first) // FINENESS)
        first, last = (f"({at} - pmod({at}, {grain})) DIV {grain}" for at in ("since", "last"))
        each = F.explode(F.expr(f"sequence({first}, {last})")).alias("part")
        if self.newest is not None:
            first_open = sessions.where(f"until >= {self.past.head.watermark}").agg(F.min("since")).head()
            assert first_open is not None
            wanted = [*wanted, (first_open[0], self.newest + 1)]
        parts: Parts | None = None
        while parts is None or left_out:
            held = " OR ".join(f"(since < {end} AND last >= {begin})" for begin, end in parts or wanted) or "false"
            found = sessions.where(f"mark = {TOUCHED} OR (mark = {LEFT_OUT} AND ({held}))").select(each).distinct()
            times = times_of([row["part"] for row in found.collect()], grain)
            more = parted([*wanted, *((begin, end + 1) for begin, end in times)], 2 * self._gap)
            if more == parts:
                break
            parts = more
        return parts


def _measured(sessions: DataFrame, parts: Parts, span: Restated, gap: int) -> Row | None:
    """Of the sessions that start in the parts: when the last ends, how far beyond their part rows can join them, and
    whether one may go on beyond the rows that were read."""
    held = " OR ".join(f"(since >= {begin} AND since < {end})" for begin, end in parts)
    after = " ".join(f"WHEN since < {end} THEN until + 1 - {end}" for _, end in parts)
    cut = " OR ".join(
        f"(since >= {low} AND since < {low + BEFORE * gap}) OR (last < {high} AND until >= {high})"
        for low, high in span.reads
    )
    found = sessions.where(held).selectExpr(
        "max(until) AS until", f"max(greatest(CASE {after} END, 0)) AS after", f"coalesce(bool_or({cut}), false) AS cut"
    )
    return found.head()
