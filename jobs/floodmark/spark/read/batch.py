"""READ: one frame of rows from all of a rule's sources, sorted into filtered, dead, late and folded rows.

The frame (`frames.read_range`) is the union of the rule's streams. `_s` is the stream's number, `_k` whether its
`where` keeps the row, `_t` the event time in microseconds. `_e` is the number of the expression that raised, if any (a
reason of `rowchecks.Checks`). `_x` has the expectations that the row fails (bits, as in `expecting.Asked`). `_m` says
which record could not be read; only the frame of a rule with streams that have such records has it. The columns of
stream i follow as `s<i>_<column>`.
An epoch reads this union over the relations that Spark planned for its batch, if they are available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from pyspark.sql.types import StructType

from floodmark.core.lifecycle.replays import MALFORMED_RECORD
from floodmark.core.lifecycle.zones import furthest_offset_ms
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.rows import Counts
from floodmark.core.rules.rule import Rule, Stream
from floodmark.core.sql.words.lexis import quoted
from floodmark.errors import InputFault
from floodmark.spark.read import expectationchecks, rowchecks
from floodmark.spark.read.digesting import HASH, Digesting
from floodmark.spark.read.expectationchecks import ExpectationChecks
from floodmark.spark.read.frames import ROW
from floodmark.spark.read.rowchecks import NONE
from floodmark.spark.read.shape import Shape, time_type
from floodmark.spark.session.constants import uncompiled_constant

# A row's `_kind` is an index into this tuple; the last three are for rows that fail an expectation.
KINDS = ("filtered", "no_time", "ahead", "late", "folded", "failed", "malformed", "dropped", "unmet", "stopping")
EVERY = FILTERED, NO_TIME, AHEAD, LATE, FOLDED, FAILED, UNREAD, DROPPED, UNMET, STOPPING = range(len(KINDS))
DEAD = NO_TIME, AHEAD, FAILED, UNREAD, UNMET
CHECKED = FOLDED, DROPPED, UNMET, STOPPING  # rows on which expectations run
BY_EXPECTATION = {STOPPING: "fail", UNMET: "dead", DROPPED: "drop"}
REASONS = {
    NO_TIME: "no event time",
    AHEAD: "event time further ahead of the epoch's clock than max_ahead allows",
    LATE: "event time below the watermark of the epoch before",
}
NO_LIMIT = (1 << 63) - 1


@dataclass(frozen=True)
class Limits:
    """Limits that sort rows: the previous epoch's watermark, and by stream the latest event time that is not dead."""

    watermark: int | None
    latest: dict[str, int]


def latest_times(rule: Rule, shape: Shape, clock_ms: int) -> dict[str, int]:
    """By stream: event time after which a row is dead."""
    return {
        name: latest_time(stream, time_type(stream, shape.streams[name]), rule.timezone, clock_ms)
        for name, stream in rule.streams.items()
    }


def latest_time(stream: Stream, kind: str | None, zone: str, clock_ms: int) -> int:
    """The same of one stream, whose event time has this type. A time without zone is compared in the rule's zone."""
    if stream.max_ahead_us is None:
        return NO_LIMIT
    local = furthest_offset_ms(zone, clock_ms) if kind == "timestamp_ntz" else 0
    return (clock_ms + local) * 1000 + stream.max_ahead_us


class Batch:
    """One epoch's rows, sorted. `counts`, `maxima` and `digests` come from one pass; the frames are lazy.

    again: epochs have read the rows, so none of them can die any more, whatever the rule's `on_error`.
    """

    def __init__(self, frame: DataFrame, rule: Rule, shape: Shape, limits: Limits, again: bool = False):
        self.rule, self.shape, self._limits, self._again = rule, shape, limits, again
        self._frame = frame.withColumn("_kind", F.expr(self._kind()))
        self.counts: dict[str, Counts] = {}
        self.maxima: dict[str, int | None] = {}
        self.digests: dict[str, Digest] = {}
        self._failed: dict[str, dict[int, int]] = {}  # rows by stream and kind
        self._of: dict[str, int] = {}  # rows on which expectations run, by stream
        hashed = reduce(lambda rows, digesting: digesting.hashed(rows), self._digesting, self._frame)
        self._take(hashed.selectExpr(*self._measures()).head())
        self._refuse_unexpected()
        if rule.on_error == "fail":
            self._refuse_failed()

    @property
    def speaking(self) -> set[str]:
        """The streams of which the epoch folds rows, which ends their silence."""
        return {name for name, counts in self.counts.items() if counts.folded}

    @property
    def _digesting(self) -> list[Digesting]:
        """Digests of each stream's folded rows, over their event time only: no other column is read here."""
        return [
            Digesting(
                StructType([field for field in schema if self._is_time(name, field.name)]),
                before=f"`{self.shape.prefix(name)}",
                column=f"{HASH}{i}",
                only=f"_s = {i} AND _kind = {FOLDED}",
            )
            for i, (name, schema) in enumerate(self.shape.streams.items())
        ]

    def _is_time(self, stream: str, column: str) -> bool:
        time = self.rule.streams[stream].event_time
        return time is not None and time.name.lower() == column.lower()

    def _kind(self) -> str:
        """One CASE for all streams: the kind of a row."""
        watermark = self._limits.watermark
        timed = [str(i) for i, stream in enumerate(self.rule.streams.values()) if stream.event_time]
        cases = [f"WHEN _m IS NOT NULL THEN {UNREAD}"] if self.shape.malformed else []
        cases += [f"WHEN _e < {rowchecks.SQL} THEN {FAILED}", f"WHEN NOT _k THEN {FILTERED}"]
        if timed:
            cases.append(f"WHEN _t IS NULL AND _s IN ({', '.join(timed)}) THEN {NO_TIME}")
        for i, latest in enumerate(self._limits.latest.values()):
            if latest != NO_LIMIT:
                cases.append(f"WHEN _s = {i} AND _t > {uncompiled_constant(f'{latest}L', '_t')} THEN {AHEAD}")
        marked = [str(i) for i, stream in enumerate(self.rule.streams.values()) if stream.lateness_us is not None]
        if watermark is not None and marked:
            cases.append(
                f"WHEN _s IN ({', '.join(marked)}) AND _t < {uncompiled_constant(f'{watermark}L', '_t')} THEN {LATE}"
            )
        for i, expected in self._checks:
            bits = {kind: expected.bits(on_fail) for kind, on_fail in BY_EXPECTATION.items()}
            cases += [f"WHEN _s = {i} AND (_x & {bit}L) <> 0 THEN {kind}" for kind, bit in bits.items() if bit]
        cases.append(f"WHEN _e IS NOT NULL THEN {FAILED}")  # a late row is not computed
        return f"CASE {' '.join(cases)} ELSE {FOLDED} END"

    @property
    def _checks(self) -> list[tuple[int, ExpectationChecks]]:
        """The expectations on rows, by the position of their stream."""
        return [
            (i, self.shape.expectations[name])
            for i, name in enumerate(self.shape.streams)
            if name in self.shape.expectations
        ]

    def _measures(self) -> list[str]:
        found: list[str] = []
        for i, expected in self._checks:
            found += expected.measures("_x", _is(i, *CHECKED), _is(i, DROPPED, UNMET), f"_{i}")
        for i, name in enumerate(self.shape.streams):
            found += [f"count_if({_is(i, kind)}) AS {KINDS[kind]}{i}" for kind in self._possible(i, name)]
            found.append(f"max(CASE WHEN _s = {i} AND _kind = {FOLDED} THEN _t END) AS max{i}")
        return found + [measure for digesting in self._digesting for measure in digesting.measures()]

    def _possible(self, place: int, name: str) -> tuple[int, ...]:
        """The kinds that rows of a stream can have: the others are not counted."""
        stream = self.rule.streams[name]
        impossible = {
            FILTERED: stream.where is None,
            NO_TIME: stream.event_time is None,
            AHEAD: self._limits.latest[name] == NO_LIMIT,
            LATE: self._limits.watermark is None or stream.lateness_us is None,
            FAILED: name not in self.shape.checks,
            UNREAD: name not in self.shape.malformed,
        }
        kinds = EVERY if any(place == checked for checked, _ in self._checks) else EVERY[:DROPPED]
        return tuple(kind for kind in kinds if not impossible.get(kind))

    def _take(self, found: Row | None) -> None:
        assert found is not None
        measured = found.asDict()
        for i, name in enumerate(self.shape.streams):
            rows = {kind: measured.get(f"{kind}{i}", 0) for kind in KINDS}
            self._failed[name] = {kind: rows[KINDS[kind]] for kind in (UNREAD, FAILED)}
            self._of[name] = sum(rows[KINDS[kind]] for kind in CHECKED)
            expected = self.shape.expectations.get(name, ExpectationChecks()).counts(measured, f"_{i}")
            dead = sum(rows[KINDS[kind]] for kind in DEAD)
            known = {kind: rows[kind] for kind in ("filtered", "dropped", "late", "folded")}
            read = sum(rows.values())
            self.counts[name] = Counts(read=read, dead=dead, **known, expected=expected)
            self.maxima[name] = measured[f"max{i}"]
            self.digests[name] = self._digesting[i].digest(measured)

    def _refuse_unexpected(self) -> None:
        """Raise InputFault if a row fails an expectation that stops the run."""
        for i, expected in self._checks:
            name = list(self.shape.streams)[i]
            rows = self._frame.where(_is(i, *CHECKED)).selectExpr("_x", *self._own(name))
            counts, where = self.counts[name].expected, f"rule {self.rule.rule}, stream {name}"
            expectationchecks.refuse(rows, "_x", expected, counts, where, self._of[name], self.shape.columns(name))

    def _refuse_failed(self) -> None:
        """Raise InputFault if a record could not be read, or an expression raises for a row; the message shows one."""
        for i, (name, counts) in enumerate(self._failed.items()):
            for kind in (kind for kind, rows in counts.items() if rows):
                found = self._frame.where(f"_s = {i} AND _kind = {kind}")
                row = found.withColumn("_reason", self._reason(name)).selectExpr(*self._own(name), "_reason").head()
                assert row is not None
                if kind == UNREAD:
                    fault = unread_again if self._again else unread
                    raise fault(self.rule, name, counts[kind], row["_reason"])
                raise InputFault(_failing(self.rule.rule, name, counts[kind], row.asDict(), self._again))

    def earliest(self) -> int | None:
        """The smallest event time of a folded row, in microseconds; computed in a separate pass."""
        row = self._frame.where(f"_kind = {FOLDED}").agg(F.min("_t")).head()
        return None if row is None else row[0]

    def folded(self, name: str) -> DataFrame:
        """Rows of stream `name` for the rule's SQL, with the stream's own column names."""
        place, counts = list(self.shape.streams).index(name), self.counts[name]
        rows = self._frame if len(self.shape.streams) == 1 else self._frame.where(f"_s = {place}")
        if counts.folded < counts.read:  # otherwise all rows are folded
            rows = rows.where(f"_kind = {FOLDED}")
        return rows.selectExpr(*self._own(name, self.shape.streams[name]))

    def quarantined(self, kinds: tuple[int, ...], epoch: int, offsets: Mapping[str, str]) -> DataFrame:
        """Late or dead rows of all streams, with their columns and `_epoch`, `_stream`, `_reason`, `_source`."""
        frames = []
        for i, name in enumerate(self.shape.streams):
            rows = self._frame.where(F.expr(f"_s = {i}") & F.col("_kind").isin(*kinds))
            rows = rows.withColumn("_reason", self._reason(name)).selectExpr(*self._own(name), "_reason")
            frames.append(stamped(rows, epoch, name, offsets[name]))
        return united(frames)

    def classified(self) -> DataFrame:
        """Every row with its `_stream`, its outcome (`_becomes`) and the `_reason`."""
        what = {FILTERED: "filtered", LATE: "late", FOLDED: "folded", DROPPED: "dropped"}
        cases = " ".join(f"WHEN {kind} THEN '{what.get(kind, 'dead')}'" for kind in EVERY)
        frames = []
        for i, name in enumerate(self.shape.streams):
            rows = self._frame.where(f"_s = {i}").withColumn("_reason", self._reason(name))
            told = (f"'{name}' AS _stream", f"CASE _kind {cases} END AS _becomes", "_reason")
            frames.append(rows.selectExpr(*self._own(name), *told))
        return united(frames)

    def _reason(self, name: str) -> Column:
        cases = " ".join(f'WHEN {kind} THEN "{why}"' for kind, why in REASONS.items())
        if self.shape.malformed:
            cases += f" WHEN {UNREAD} THEN concat('{MALFORMED_RECORD}', _m)"
        failures = F.array(*map(F.lit, self.shape.checks.get(name, NONE).reasons))
        unmet = F.when(
            F.col("_kind").isin(*BY_EXPECTATION), self.shape.expectations.get(name, ExpectationChecks()).reason("_x")
        )
        error = F.try_element_at(failures, F.col("_e") + 1)
        return F.coalesce(F.expr(f"CASE _kind {cases} END"), unmet, error)

    def _own(self, name: str, columns: StructType | None = None) -> list[str]:
        """SQL for the columns of a stream (None: all that are read) under their own names."""
        prefix = self.shape.prefix(name)
        return [
            f"{quoted(prefix + field.name)} AS {quoted(field.name)}" for field in columns or self.shape.columns(name)
        ]


def _is(stream: int, *kinds: int) -> str:
    """SQL: whether a row belongs to the stream at this position, and has one of these kinds."""
    return f"_s = {stream} AND _kind IN ({', '.join(map(str, kinds))})"


def stamped(rows: DataFrame, epoch: int, stream: str, source: str) -> DataFrame:
    """Rows of a stream and their `_reason`, with the other columns of a late or dead table."""
    columns = [F.col(quoted(name)) for name in rows.columns if name != "_reason"]
    stamps = [F.lit(epoch).cast("long").alias("_epoch"), F.lit(stream).alias("_stream"), F.col("_reason")]
    return rows.select(*columns, *stamps, F.lit(source).alias("_source"))


def united(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows and columns of all frames; a column that a frame lacks is null."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def unread(rule: Rule, stream: str, rows: int, reason: str, lands: bool = False) -> InputFault:
    """For records that could not be read. `lands`: they are not landed yet, so they may still be read otherwise."""
    ways = "Correct the `schema` of the stream, or quarantine such records with `on_error: dead`"
    if rule.streams[stream].landing and not lands:
        ways = (
            "They were landed as malformed, which they stay. Quarantine them with `on_error: dead`; or correct the "
            "stream, move the folder of its landing out of the home, and start over with `floodmark reset`"
        )
    nothing = "Nothing of this copy was landed" if lands else "Nothing of the epoch was written"
    return InputFault(f"rule {rule.rule}, stream {stream}: {reason}{_others(rows)}. {nothing}. {ways}")


def unread_again(rule: Rule, stream: str, rows: int, reason: str) -> InputFault:
    """For records that cannot be read now, and that epochs have folded."""
    return InputFault(
        f"rule {rule.rule}, stream {stream}: {reason}{_others(rows)}. Nothing was replaced. Epochs have folded such "
        "records as rows, so a backfill or correction cannot quarantine them, whatever `on_error` says. Start over "
        f"with `floodmark reset {rule.rule}`, which reads them as the schema is now; `floodmark correct {rule.rule} "
        "--skip` gives up a correction"
    )


def _others(rows: int) -> str:
    return "" if rows == 1 else f" ({rows} such records)"


def _failing(rule: str, stream: str, rows: int, row: dict[str, Any], again: bool = False) -> str:
    reason = row.pop("_reason")
    shown = ", ".join(f"{name} = {value!r}" for name, value in row.items())
    shown = shown if len(shown) <= ROW else f"{shown[: ROW - 3]}..."
    found = f"rule {rule}, stream {stream}: {reason}, for {rows} {'row' if rows == 1 else 'rows'}; one of them: {shown}"
    ways = "Use try_cast, try_divide or a `where` that excludes such rows"
    if again:
        return (
            f"{found}. Nothing was replaced, and a backfill or correction quarantines no row. {ways}, or mend the row "
            f"in the source; `floodmark correct {rule} --skip` gives up a correction"
        )
    return f"{found}. Nothing of the epoch was written. {ways}, or quarantine them with `on_error: dead`"
