"""A backfill puts what plain batch gives, late rows included, in the place of an interval, and nothing else changes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at, put_reach
from support.flow import HOPPING, START, STATELESS, Flow, event, rows_of
from support.oracle import ordered
from support.running import listed, reset, run

from floodmark.audit.certificate import audit
from floodmark.cli.commands import backfill as cli_backfill
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.lifecycle.backfills import Interval, requested_interval
from floodmark.core.lifecycle.replays import replay_of
from floodmark.core.protocol.crashpoints import BACKFILL_POINTS
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.errors import InputFault, ReplayDiffers
from floodmark.ledger.ledger import LedgerReader
from floodmark.spark.rule.backfill import rereading
from floodmark.spark.rule.backfill.backfilling import BackfillResult
from floodmark.spark.rule.backfill.rereading import at_hand
from floodmark.spark.rule.run import RuleRun

LIVE = [event(s, k, v) for s, k, v in ((0, "a", 1.0), (10, "b", 2.0), (70, "a", 4.0), (130, "a", 8.0), (400, "b", 1.0))]
LATE = [event(20, "a", 16.0), event(30, "c", 32.0), event(75, "a", 64.0), event(410)]
WINDOWS = ("start", "k", "c", "total")
ROWS = ("at", "k", "v", "n")
Rows = list[tuple[Any, ...]]


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def asking(flow: Flow, begin: float, end: float) -> Callable[[Head], Interval]:
    rule = flow.rule()
    low, high = (micros(at(seconds)) for seconds in (begin, end))
    return lambda head: requested_interval(rule, head, low, high, str)


def backfill(spark: SparkSession, flow: Flow, begin: float, end: float) -> BackfillResult:
    job = RuleRun(spark, flow.rule(), flow.home, "backfill", lambda _: None)
    return job.backfill(asking(flow, begin, end), 0, lambda _: None)


def sink(flow: Flow, number: int = 0, names: tuple[str, ...] = WINDOWS) -> Rows:
    return ordered(tuple(row[name] for name in names) for row in rows_of(flow.sink(number)))


def windows(events: Iterable[Mapping[str, Any]], until: float, since: float = 0) -> Rows:
    """What plain Python gives of each minute that begins in [since, until)."""
    found: dict[tuple[datetime, Any], list[float]] = {}
    for one in events:
        start = one["at"].replace(second=0, microsecond=0)
        if at(since) <= start < at(until):
            found.setdefault((start, one["k"]), []).append(one["v"])
    return [(*key, len(values), sum(values)) for key, values in found.items()]


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    assert (found.verdict, found.findings) == ("proven", [])


def late_then(spark: SparkSession, flow: Flow) -> Flow:
    """The windows up to 360 s are final; rows of the first two have come late."""
    for portion in (LIVE, LATE):
        flow.arrive(portion)
        run(spark, flow)
    return flow


@pytest.mark.prove  # `test_sinks_as_wanted.py` has it in each commit
def test_late_rows_come_into_the_interval_and_nothing_else_changes(spark: SparkSession, place: Path) -> None:
    flow = late_then(spark, Flow(place))
    done = backfill(spark, flow, 0, 60)
    assert sink(flow) == sink(flow, 1) == ordered(windows(LIVE + LATE, 60) + windows(LIVE, 360, 60))
    assert set(done.sinks.values()) == {(3, 2)}
    assert (done.intent.counts["events"].folded, done.intent.restated) == (4, {"events": 2})
    proven(flow)
    flow.arrive([event(420, "d"), event(600, "d")])
    run(spark, flow)
    assert sink(flow)[-3:] == [(at(360), "a", 1, 1.0), (at(360), "b", 1, 1.0), (at(420), "d", 1, 1.0)]
    proven(flow)


@pytest.mark.parametrize(("beside", "kept"), [(0, True), (-1, False)])
def test_rows_are_kept_unless_they_are_many(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, beside: int, kept: bool
) -> None:
    """By the bytes of the files that may have such rows; the table has others."""
    flow = Flow(place)
    flow.arrive(LIVE)
    [file] = Path(flow.source).glob("*.parquet")
    monkeypatch.setattr(rereading, "FEW", file.stat().st_size + beside)
    flow.arrive([event(10_000)])
    rows = spark.read.format("delta").load(flow.source).where(f"at < TIMESTAMP'{at(1000)}'")
    found = at_hand(rows)
    assert (found.storageLevel.useMemory, found.count()) == (kept, len(LIVE))
    found.unpersist()


@pytest.mark.prove
def test_a_source_whose_first_snapshot_had_deletion_vectors_is_read_again(spark: SparkSession, place: Path) -> None:
    """The rows that they mark as deleted stay out."""
    flow = Flow(place)
    flow.arrive([*LIVE, event(25, "gone", 512.0)])
    source = f"delta.`{flow.source}`"
    spark.sql(f"ALTER TABLE {source} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    spark.sql(f"DELETE FROM {source} WHERE k = 'gone'")
    run(spark, flow)
    for portion in (LATE[:2], LATE[2:]):
        rows = spark.createDataFrame(portion, "at timestamp, k string, v double, n bigint").coalesce(1)
        rows.write.format("delta").mode("append").save(flow.source)
    run(spark, flow)
    backfill(spark, flow, 0, 60)
    assert sink(flow) == sink(flow, 1) == ordered(windows(LIVE + LATE, 60) + windows(LIVE, 360, 60))


def between_computing_and_replacing(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Do `work` the first time that a backfill has been computed, before it asks for the rule's lock."""
    seen: list[str] = []

    def reach(rule: str, point: str, epoch: int | None = None) -> None:
        if point == "backfill.computed" and not seen:
            seen.append(point)
            work()

    monkeypatch.setattr("floodmark.spark.rule.run.reach", reach)


MORE = [event(25, "z", 5.0), event(430, "e"), event(700, "e")]
KNOWN = LIVE + LATE
# What comes between: the epoch as of which the interval is read in the end, and what the sink then holds.
BETWEEN = {
    "run": (2, windows(KNOWN, 60) + windows(LIVE, 360, 60)),
    "backfill": (3, windows(KNOWN + MORE, 120) + windows(LIVE, 360, 120)),
    "reset": (1, windows(KNOWN + MORE, 360)),
}


@pytest.mark.prove
@pytest.mark.parametrize("between", BETWEEN)
def test_it_is_computed_anew_only_where_its_interval_may_have_changed_meanwhile(
    spark: SparkSession, place: Path, between: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = late_then(spark, Flow(place, sinks=1))

    def other() -> None:
        flow.arrive(MORE)
        run(spark, flow)
        if between == "backfill":
            backfill(spark, flow, 0, 120)
        if between == "reset":
            reset(spark, flow)
            run(spark, flow)

    between_computing_and_replacing(monkeypatch, other)
    upto, past = BETWEEN[between]
    assert backfill(spark, flow, 0, 60).intent.upto == upto
    assert sink(flow) == ordered(past + windows(KNOWN + MORE, 660, 360))
    proven(flow)


@pytest.mark.prove
def test_rows_that_came_before_an_interval_was_final_stay(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stateless rule's interval that is not final when it is computed, and is when the sinks are written."""
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.arrive([event(70), event(100)])
    run(spark, flow)

    def other() -> None:
        flow.arrive([event(110, "z"), event(400)])
        run(spark, flow)

    between_computing_and_replacing(monkeypatch, other)
    assert backfill(spark, flow, 60, 120).intent.upto == 2
    arrived = ((70, "a"), (100, "a"), (110, "z"), (400, "a"))
    assert sink(flow, names=ROWS) == ordered((at(seconds), k, 1.0, 0) for seconds, k in arrived)
    proven(flow)


WITHOUT_INTENT = ("backfill.computed", "backfill.intent.before")


FINISHED_BY = (run, partial(backfill, begin=60, end=120))


@pytest.mark.prove
@pytest.mark.parametrize(
    ("point", "by"),
    [(point, FINISHED_BY) for point in BACKFILL_POINTS],
)
def test_killed_anywhere_it_is_finished_once_by_the_next_run_or_backfill(
    spark: SparkSession, place: Path, point: str, by: Sequence[Callable[..., object]]
) -> None:
    flow = late_then(spark, Flow(place))
    later = event(30, "later", 9.0)  # comes when the first is open, and is none of it
    for begin, finish in zip((0, 60), by, strict=False):
        with crash_at(point) as planned, pytest.raises(Crash):
            backfill(spark, flow, begin, begin + 60)
        head = flow.ledger().head
        assert planned.fired and head is not None
        assert (head.backfill is None) is (point in (*WITHOUT_INTENT, "backfill.commit.after"))
        flow.arrive([later, event(450 + begin)])
        finish(spark, flow)
    if point in WITHOUT_INTENT:
        backfill(spark, flow, 0, 60)
    read = [*KNOWN, later] if point in WITHOUT_INTENT else KNOWN
    assert sink(flow) == sink(flow, 1)
    expected = ordered(windows(read, 120) + windows(LIVE, 360, 120))
    assert [row for row in sink(flow) if row[0] < at(360)] == expected
    proven(flow)


@pytest.mark.prove
def test_one_without_rows_is_finished_like_any_other(spark: SparkSession, place: Path) -> None:
    """Its commit adds no file, so what was written is read back from none."""
    flow = late_then(spark, Flow(place, sinks=1))
    before = sink(flow)
    with crash_at("backfill.sink.after") as planned, pytest.raises(Crash):
        backfill(spark, flow, 180, 240)
    assert planned.fired
    run(spark, flow)
    assert sink(flow) == before
    proven(flow)


@pytest.mark.prove
def test_one_that_was_computed_before_an_epoch_and_killed_is_finished(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is checked up to what the newest epoch has read, not up to what the backfill has."""
    flow = late_then(spark, Flow(place, sinks=1))
    seen: list[str] = []

    def reach(rule: str, point: str, epoch: int | None = None) -> None:
        if point == "backfill.computed" and not seen:
            seen.append(point)
            flow.arrive(MORE)
            run(spark, flow)
        if point == "backfill.intent.after":
            raise Crash(point)

    with monkeypatch.context() as patch:
        put_reach(patch, reach)
        with pytest.raises(Crash):
            backfill(spark, flow, 0, 60)
    head = flow.ledger().head
    assert head is not None and head.backfill is not None and head.backfill.upto < head.epoch
    run(spark, flow)
    assert sink(flow) == ordered(windows(KNOWN, 60) + windows(LIVE, 360, 60) + windows(KNOWN + MORE, 660, 360))
    proven(flow)


@pytest.mark.prove
def test_files_that_were_joined_and_removed_since_are_not_needed(spark: SparkSession, place: Path) -> None:
    flow = late_then(spark, Flow(place, sinks=1))
    before = {file.name for file in Path(flow.source).glob("*.parquet")}
    DeltaTable(flow.source).optimize.compact()
    DeltaTable(flow.source).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not before & {file.name for file in Path(flow.source).glob("*.parquet")}
    backfill(spark, flow, 0, 60)
    assert sink(flow) == ordered(windows(LIVE + LATE, 60) + windows(LIVE, 360, 60))
    proven(flow)


def edit(file: Path) -> None:
    """Another count in the first row, and no checksum that would tell."""
    table = pq.ParquetFile(file).read()
    rows = table.to_pylist()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    pq.write_table(table.from_pylist([{**rows[0], "c": rows[0]["c"] + 1}, *rows[1:]], table.schema), file)


@pytest.mark.prove
def test_an_open_one_is_discarded_by_a_reset_and_compared_by_who_finishes_it(spark: SparkSession, place: Path) -> None:
    flow = late_then(spark, Flow(place, sinks=1))
    with crash_at("backfill.sink.after"), pytest.raises(Crash):
        backfill(spark, flow, 0, 60)
    added = DeltaTable(flow.sink()).get_add_actions()["path"].to_pylist()
    newest = max((Path(flow.sink()) / path for path in added), key=lambda file: file.stat().st_mtime_ns)
    edit(newest)
    with pytest.raises(ReplayDiffers, match=r"backfill 1, commit .* its files contain other rows than it wrote"):
        run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    assert sink(flow) == ordered(windows(KNOWN, 360))
    proven(flow)


@pytest.mark.prove
def test_todays_text_of_a_stateless_rule_stands_in_the_interval_only(spark: SparkSession, place: Path) -> None:
    flow = late_then(spark, Flow(place, sql=STATELESS, sinks=1))
    before = sink(flow, names=ROWS)
    flow.sql = "SELECT at, upper(k) AS k, v, n FROM events WHERE n IS NOT NULL"
    done = backfill(spark, flow, 10, 75)
    changed = {(one["at"], one["k"].upper(), one["v"], one["n"]) for one in KNOWN if at(10) <= one["at"] < at(75)}
    assert sink(flow, names=ROWS) == ordered([*(row for row in before if not at(10) <= row[0] < at(75)), *changed])
    assert done.intent.restated == {"events": 2}
    touched = {row["_restated"] for row in listed(flow, "late")["shown"]}
    assert touched == {"1", None}, "of the late rows, that at 75 s was not in the interval"
    flow.arrive([event(500, "x")])
    run(spark, flow)
    assert (at(500), "X", 1.0, 0) in sink(flow, names=ROWS)
    proven(flow)


@pytest.mark.prove
def test_dead_rows_stay_out_and_replayed_ones_come_as_they_were_corrected(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT at, CAST(k AS INT) AS i, n FROM events", sinks=1, settings={"on_error": "dead"})
    flow.stream = {"lateness": None}
    ahead = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    flow.arrive([event(0, "1"), event(10, "x"), event(20, "y2"), event(30, "x"), {**event(0, "5"), "at": ahead}])
    run(spark, flow)
    flow.sql = "SELECT at, try_cast(k AS INT) AS i, n FROM events"
    everything = ahead.timestamp() - START.timestamp() + 1

    done = backfill(spark, flow, 0, everything)
    assert (done.intent.counts["events"].dead, sink(flow, names=("at", "i"))) == (4, [(at(0), 1)])
    job = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None)
    job.replay(lambda head: replay_of(head, None, "k = 'y2'", ["k='2'"], ("at", "k", "n")))
    for _ in range(2):
        backfill(spark, flow, 0, everything)
        assert sink(flow, names=("at", "i")) == ordered([(at(0), 1), (at(20), 2)])
    proven(flow)


@pytest.mark.prove
def test_of_two_rows_alike_to_the_sql_the_one_that_an_expectation_made_dead_stays_out(
    spark: SparkSession, place: Path
) -> None:
    """It asks for a column that the SQL does not read; in whichever order the two came."""
    flow = Flow(place, sql="SELECT at, k FROM events", sinks=1)
    flow.stream = {"lateness": None, "expect": {"some": {"check": "n > 0", "on_fail": "dead"}}}
    flow.arrive([event(0, "a", n=-1), event(0, "a", n=1), event(0, "b", n=1), event(0, "b", n=-1)])
    run(spark, flow)
    done = backfill(spark, flow, 0, 60)
    assert (done.intent.counts["events"].dead, done.intent.counts["events"].folded) == (2, 2)
    assert sink(flow, names=("at", "k")) == ordered([(at(0), "a"), (at(0), "b")])
    proven(flow)


def test_a_row_that_the_sql_cannot_compute_stops_it_and_nothing_is_written(spark: SparkSession, place: Path) -> None:
    flow = late_then(spark, Flow(place, sql="SELECT at, k, v, n FROM events", sinks=1, settings={"on_error": "dead"}))
    rows = len(flow.ledger().rows)
    flow.sql = "SELECT at, k, v, CAST(CAST(k AS INT) AS BIGINT) AS n FROM events"
    with pytest.raises(InputFault, match="for 4 rows"):
        backfill(spark, flow, 0, 60)
    assert len(flow.ledger().rows) == rows


@pytest.mark.prove
def test_what_the_command_says(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_backfill, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = late_then(spark, Flow(place, sql=HOPPING, sinks=1))
    version = DeltaTable(flow.sink()).version()
    rows = len(flow.ledger().rows)
    sinks = {str(Path(flow.sink()).resolve()): {"before": 2, "after": 3}}
    bounds = ["--from", "2001-01-01T00:00:20Z", "--to", "2001-01-01T00:01:00Z"]

    found = listed(flow, "backfill", *bounds, "--dry-run")
    said = {name: found[name] for name in ("done", "backfill", "from", "to", "epoch", "folded", "restated")}
    assert said == {"done": False, "backfill": None, "from": "2001-01-01T00:00:20Z", "to": "2001-01-01T00:01:00Z",
                    "epoch": 2, "folded": 4, "restated": 3}  # fmt: skip
    (moves,) = found["sinks"].values()
    assert {name: moves.pop(name) for name in ("loses", "gains")} == {"loses": 2, "gains": 3}
    assert [len(moves.pop(name)) for name in ("lost", "gained")] == [2, 3]
    assert found["sinks"] == sinks
    assert (DeltaTable(flow.sink()).version(), len(flow.ledger().rows)) == (version, rows)

    between = ["--from", "2001-01-01T00:00:01Z", "--to", "2001-01-01T00:00:20Z", "--align"]
    assert listed(flow, "backfill", *between)["done"] is False, "no window starts there"
    found = listed(flow, "backfill", *bounds)
    assert (found["done"], found["backfill"], found["sinks"]) == (True, 1, sinks)
    assert [row for row in hops(flow) if at(20) <= row[0] < at(60)] == batch(spark, KNOWN, at(20), at(60))
    told = listed(flow, "epochs")["epochs"]
    assert [one["result"] for one in told] == ["begun", "committed", "committed", "backfilled"]
    assert told[-1]["backfill"]["restated"] == {"events": 3}
    assert [row["_restated"] for row in listed(flow, "late")["shown"]] == ["1 in part"] * 3
    proven(flow)


def batch(spark: SparkSession, events: list[dict[str, Any]], begin: datetime, end: datetime) -> Rows:
    """What the hopping windows are in plain Spark."""
    spark.createDataFrame(events, "at timestamp, k string, v double, n bigint").createOrReplaceTempView("events")
    found = [tuple(row) for row in spark.sql(HOPPING).collect()]
    zoned = [tuple(x.replace(tzinfo=UTC) if isinstance(x, datetime) else x for x in row) for row in found]
    return ordered(row for row in zoned if begin <= row[0] < end)


def hops(flow: Flow) -> Rows:
    return sink(flow, names=("start", "stop", "k", "c", "mean", "top"))


def random_portion(rng: Random, now: float) -> list[dict[str, Any]]:
    """Rows around `now`, one in three of the last minutes."""
    times = (now + rng.uniform(0, 60) if rng.random() < 0.67 else now - rng.uniform(0, 400) for _ in range(8))
    return [event(max(0, int(time)), rng.choice("abc"), float(rng.randrange(9))) for time in times]


RUN_POINTS = ("intent.after", "state.after", "late.after", "sink0.after", "commit.before", "commit.after")


class Play:
    """Portions that arrive, runs, backfills and crashes of both, in an order by chance."""

    def __init__(self, spark: SparkSession, place: Path, seed: int):
        self.spark, self.rng = spark, Random(seed)
        self.flow = Flow(place, sinks=1, stream={"start": {"version": 0}})
        self.portions: list[list[dict[str, Any]]] = []
        self.now = 0.0

    def play(self, steps: int) -> None:
        self.arrive()
        for _ in range(steps):
            step = self.rng.choice((self.arrive, self.run, self.backfill))
            if step == self.arrive or self.rng.random() < 0.5:
                step()
                continue
            points = RUN_POINTS if step == self.run else (*BACKFILL_POINTS, *RUN_POINTS[:2])
            with crash_at(self.rng.choice(points)), contextlib.suppress(Crash):
                step()
        self.run()

    def arrive(self) -> None:
        self.now += self.rng.uniform(30, 150)
        self.portions.append(random_portion(self.rng, self.now))
        self.flow.arrive(self.portions[-1])

    def run(self) -> None:
        run(self.spark, self.flow)

    def backfill(self) -> None:
        """Of some of the last windows that are final, if there are any."""
        known = LedgerReader.load(self.flow.place.ledger)
        if known is None or known.head is None or known.head.watermark is None:
            return
        final = (known.head.watermark / 1_000_000 - START.timestamp()) // 60
        end = final - self.rng.randrange(3)
        backfill(self.spark, self.flow, (end - 1 - self.rng.randrange(3)) * 60, end * 60)

    def expected(self) -> Rows:
        """What the ledger's story says that each final window holds, computed in Python from what arrived."""
        folded: list[dict[str, Any]] = []
        read, watermark = {0: 0}, None
        for row in self.flow.ledger().rows:
            if row.kind == "commit" and row.epoch:
                body = json.loads(row.body)
                offset = DeltaOffset.parse(Entry.parse(body["entry"]).offsets[0])
                read[row.epoch] = offset.version + (offset.index >= 0)
                fresh = chain.from_iterable(self.portions[read[row.epoch - 1] : read[row.epoch]])
                folded += [one for one in fresh if watermark is None or one["at"] >= watermark]
                since = body["watermark"]
                watermark = None if since is None else START + timedelta(microseconds=since - micros(START))
        head = self.flow.ledger().head
        assert head is not None and watermark is not None
        last = int((watermark - START).total_seconds() // 60)
        found: Rows = []
        for minute in range(last):
            start = micros(at(minute * 60))
            spans = [span for _, span in sorted(head.backfills.items()) if span.begin <= start < span.end]
            rows = list(chain.from_iterable(self.portions[: read[spans[-1].upto]])) if spans else folded
            found += windows(rows, minute * 60 + 60, minute * 60)
        return ordered(found)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(2, 30))])
def test_in_any_order_and_killed_anywhere_each_window_is_what_its_last_writer_read(
    spark: SparkSession, place: Path, seed: int
) -> None:
    play = Play(spark, place, seed)
    play.play(steps=10 if seed > 1 else 7)
    assert sink(play.flow) == play.expected()
    proven(play.flow)
