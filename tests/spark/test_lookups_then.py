"""Backfills with lookup tables as each epoch read them: without late rows, they give what the epochs gave."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.aged import age
from support.corrected import proven
from support.crash import Crash, crash_at
from support.flow import START, Flow, event, rows_of
from support.running import backfill, backfill_all, listed, run
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.commands import backfill as cli_backfill
from floodmark.core.lifecycle.replays import replay_of
from floodmark.errors import HistoryGone, Refused
from floodmark.spark.rule.run import RuleRun

CITIES = pa.schema([("k", pa.string()), ("city", pa.string())])
EVER = -(1 << 50), 1 << 51  # microseconds around all events, at which every window starts
SINGLE = "SELECT at, e.k, n, city FROM events e LEFT JOIN cities c ON e.k = c.k"
MINUTES = """SELECT window.start AS start, city, count(*) AS c, max(n) AS top FROM events e JOIN cities c ON e.k = c.k
             GROUP BY window(at, '1 minute'), city"""
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "single rows": (SINGLE, {}),
    "windows": (MINUTES, {}),
    "hops": (MINUTES.replace("'1 minute'", "'1 minute', '20 seconds'"), {}),
    "over": (
        """SELECT at, e.k, n, city, count(*) OVER (PARTITION BY city ORDER BY at RANGE BETWEEN INTERVAL '40' SECONDS
           PRECEDING AND INTERVAL '5' SECONDS FOLLOWING) AS c FROM events e JOIN cities c ON e.k = c.k""",
        {},
    ),
    "join": (
        """SELECT e.at, f.at AS other, e.n, city FROM events e JOIN (SELECT at, k FROM events) f ON e.k = f.k
           AND f.at BETWEEN e.at AND e.at + INTERVAL '30' SECONDS JOIN cities c ON e.k = c.k""",
        {},
    ),
    "history": (SINGLE + " AND e.at >= c._valid_from AND e.at < c._valid_to", {"history": True}),
}
WHOLE = {
    "sessions": (
        """SELECT session_window.start AS start, e.k, max(city) AS city, count(*) AS c FROM events e
           LEFT JOIN cities c ON e.k = c.k GROUP BY session_window(at, '20 seconds'), e.k""",
        {},
    ),
    "sizes": (
        MINUTES + " UNION ALL " + MINUTES.replace("'1 minute'", "'90 seconds'"),
        {},
    ),
    "distinct": (SINGLE, {"distinct": {"key": ["n"], "within": "1 minute"}}),
    "rows by key": (SINGLE, {"key": ["n"]}),
    "no event time": (SINGLE, {"event_time": None}),
}


def _flow(root: Path, form: str, **settings: Any) -> Flow:
    sql, more = {**FORMS, **WHOLE}[form]
    lookup = {"delta": str(root / "lake" / "cities")}
    if "history" in more:
        lookup["history"] = True
    flow = Flow(root, sql=sql, settings={"lookups": {"cities": lookup}, **settings}, sinks=1)
    if "distinct" in more:
        flow.stream = {"distinct": more["distinct"]}
    if "event_time" in more:
        flow.stream = {"event_time": None, "lateness": None}
    if "key" in more:
        flow.settings["sinks"] = [{"delta": flow.sink(), "key": more["key"]}]
        flow.stream = {"lateness": None}
    return flow


def _cities(flow: Flow, **cities: str) -> None:
    rows = [{"k": key, "city": city} for key, city in cities.items()]
    address = flow.settings["lookups"]["cities"]["delta"]
    write_deltalake(address, pa.Table.from_pylist(rows, schema=CITIES), mode="overwrite")


def _rows(flow: Flow) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.items()) for row in rows_of(flow.sink())), key=str)


def _played(spark: SparkSession, flow: Flow, epochs: int = 4) -> None:
    """Epochs of 50 seconds each, before each of which, but the last, the cities change."""
    rng = Random(flow.sql)
    for epoch in range(epochs):
        if epoch < epochs - 1:
            _cities(flow, a=f"A{epoch}", b="B", **({} if epoch % 2 else {"c": f"C{epoch}"}))
        times = sorted(rng.sample(range(500), 25))
        flow.arrive([event(50 * epoch + at / 10, rng.choice("abc"), n=100 * epoch + i) for i, at in enumerate(times)])
        run(spark, flow)
    _cities(flow, a="later", b="later", c="later")


def _again(form: str) -> Callable[..., Any]:
    if form in WHOLE:
        return backfill_all
    return lambda spark, flow, then=False: backfill(spark, flow, *_bounds(flow), then)


def _bounds(flow: Flow) -> tuple[int, int]:
    """All windows that are final, or all rows."""
    begin = int(START.timestamp()) * 1_000_000
    return begin, begin + (120_000_000 if flow.rule().query.windows else 1_000_000_000)


PROVED = ("windows",)  # in each commit


@pytest.mark.parametrize(
    "form", [one if one in PROVED else pytest.param(one, marks=pytest.mark.prove) for one in (*FORMS, *WHOLE)]
)
def test_every_form_gives_again_what_its_epochs_gave(spark: SparkSession, place: Path, form: str) -> None:
    flow = _flow(place, form)
    _played(spark, flow)
    before = _rows(flow)
    done = _again(form)(spark, flow, then=True)
    assert _rows(flow) == before
    assert [one.lookups["cities"].version for one in done.intent.then] == [0, 1, 2]
    proven(flow)
    _again(form)(spark, flow)
    assert (_rows(flow) == before) == (form == "history")
    proven(flow)


def test_epochs_whose_landed_rows_are_there_suffice(spark: SparkSession, place: Path) -> None:
    """Upkeep has removed the rows of the first epoch, which the interval does not need."""
    flow = _flow(place, "single rows")
    flow.stream = {"landing": {"keep": "1 day"}}
    for second, city in ((1, "Aachen"), (100, "Athens")):
        if second > 1:
            age(flow.place.landing("events"), 2)
        _cities(flow, a=city)
        flow.arrive([event(second), event(second + 1)])
        run(spark, flow)
    invoked = CliRunner().invoke(app, ["maintain", flow.name, "--yes", "--home", str(flow.home)])
    assert "landing events: removing 1 old chunk" in invoked.stdout
    before = _rows(flow)
    _cities(flow, a="Avignon")
    begin = int(START.timestamp()) * 1_000_000
    backfill(spark, flow, begin + 60_000_000, begin + 120_000_000, then=True)
    assert _rows(flow) == before
    proven(flow)
    with pytest.raises(HistoryGone, match="upkeep removed older ones"):
        backfill(spark, flow, begin, begin + 120_000_000, then=True)


def _minutes(flow: Flow) -> list[tuple[Any, ...]]:
    return sorted(
        ((row["start"] - START) // timedelta(minutes=1), row["city"], row["c"]) for row in rows_of(flow.sink())
    )


@pytest.mark.prove
@pytest.mark.parametrize("point", [None, "backfill.intent.after", "backfill.sink.after", "backfill.commit.after"])
def test_a_late_row_is_joined_as_its_window_was(spark: SparkSession, place: Path, point: str | None) -> None:
    """A kill in between, and a table that has changed once more, change nothing: the ledger names the versions."""
    flow = _flow(place, "windows")
    _cities(flow, a="Aachen")
    flow.arrive([event(1), event(100)])
    run(spark, flow)  # minute 0
    _cities(flow, a="Amsterdam")
    flow.arrive([event(170), event(2), event(3)])  # late: 2 and 3
    run(spark, flow)  # minute 1
    _cities(flow, a="Athens")
    flow.arrive([event(230)])
    run(spark, flow)  # minute 2
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE at = TIMESTAMP '2001-01-01T00:00:03Z'")
    flow.stream = {"on_rewrite": "correct"}
    run(spark, flow)  # with the table as it is now
    assert _minutes(flow) == [(0, "Athens", 2), (1, "Amsterdam", 1), (2, "Athens", 1)]
    begin = int(START.timestamp()) * 1_000_000
    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            backfill(spark, flow, begin, begin + 120_000_000, then=True)
        assert planned.fired
        _cities(flow, a="Avignon")
        run(spark, flow)
    else:
        backfill(spark, flow, begin, begin + 120_000_000, then=True)
    assert _minutes(flow) == [(0, "Aachen", 2), (1, "Amsterdam", 1), (2, "Athens", 1)]
    proven(flow)


def test_dead_rows_stay_out_and_replayed_ones_are_joined_as_their_replay_was(spark: SparkSession, place: Path) -> None:
    flow = _flow(place, "single rows", on_error="dead")
    flow.stream = {"expect": {"small": {"check": "n < 10", "on_fail": "dead"}}}
    _cities(flow, a="Aachen")
    flow.arrive([event(1, n=1), event(2, n=20), event(3, n=30), event(2, n=20)])
    run(spark, flow)
    _cities(flow, a="Amsterdam")
    flow.arrive([event(4, n=2), event(2, n=20)])
    run(spark, flow)
    _cities(flow, a="Athens")
    job = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None)
    job.replay(lambda head: replay_of(head, None, "n = 30", ["n=3"], ("at", "k", "n")))
    _cities(flow, a="Avignon")
    flow.arrive([event(5, n=4)])
    run(spark, flow)
    _cities(flow, a="Arles")
    before = _rows(flow)
    assert [dict(row)["city"] for row in before] == ["Aachen", "Athens", "Amsterdam", "Avignon"]
    done = backfill(spark, flow, *EVER, then=True)
    assert _rows(flow) == before
    counts = done.intent.counts["events"]
    assert (counts.read, counts.dead, counts.folded) == (8, 4, 4)
    proven(flow)
    backfill(spark, flow, *EVER)
    assert {dict(row)["city"] for row in _rows(flow)} == {"Arles"}


@pytest.mark.prove
def test_what_is_not_known_any_more_is_refused_with_the_way(spark: SparkSession, place: Path) -> None:
    flow = _flow(place, "single rows")
    flow.stream = {"on_rewrite": "correct"}
    lookups, flow.sql = flow.settings.pop("lookups"), "SELECT at, k, n, '' AS city FROM events e"
    flow.arrive([event(1)])
    run(spark, flow)
    with pytest.raises(Refused, match="with its lookup tables as each epoch read them: it has none"):
        backfill(spark, flow, *EVER, then=True)
    flow.settings["lookups"], flow.sql = lookups, SINGLE
    _cities(flow, a="Aachen")
    flow.arrive([event(2)])
    run(spark, flow)
    with pytest.raises(
        Refused, match="epochs 1 to 1 did not read lookup cities: name an interval after them, or leave"
    ):
        backfill(spark, flow, *EVER, then=True)
    address = lookups["cities"]["delta"]
    before, second = _rows(flow), int(START.timestamp() + 2) * 1_000_000
    done = backfill(spark, flow, second, EVER[1], then=True)
    assert (done.intent.counts["events"].folded, _rows(flow)) == (1, before)
    entry = Path(address) / "_delta_log" / f"{0:020}.json"
    kept = entry.read_text()
    entry.write_text(f"{kept}\n")
    with pytest.raises(Refused, match="at version 0, which is another commit now"):
        backfill(spark, flow, second, EVER[1], then=True)
    entry.write_text(kept)
    Path(address).rename(place / "kept")
    _cities(flow, a="Amsterdam")
    with pytest.raises(Refused, match="epochs 2 to 2 have read lookup cities in the table with id"):
        backfill(spark, flow, second, EVER[1], then=True)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE at < '2001-01-01T00:00:02Z'")
    run(spark, flow)
    assert len(_rows(flow)) == len(before) - 1
    with pytest.raises(Refused, match="rows of its sources were changed since"):
        backfill(spark, flow, *EVER, then=True)


def test_a_version_whose_files_are_gone_is_named(spark: SparkSession, place: Path) -> None:
    flow = _flow(place, "single rows")
    _cities(flow, a="Aachen")
    flow.arrive([event(1)])
    run(spark, flow)
    _cities(flow, a="Amsterdam")
    before = _rows(flow)
    table = DeltaTable(flow.settings["lookups"]["cities"]["delta"])
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(HistoryGone, match="leave out `lookups`"):
        backfill(spark, flow, *EVER, then=True)
    assert _rows(flow) == before and flow.ledger().begun.backfill is None
    backfill(spark, flow, *EVER)
    assert [dict(row)["city"] for row in _rows(flow)] == ["Amsterdam"]


@pytest.mark.prove
def test_input_whose_files_were_joined_and_removed_is_read_as_it_is_now_alone(spark: SparkSession, place: Path) -> None:
    """No file says any more which epoch has read a row; of windows the watermarks do."""
    flow = _flow(place, "single rows")
    _played(spark, flow, 3)
    before = _rows(flow)
    table = DeltaTable(flow.source)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(HistoryGone, match="or leave out `lookups`, to read the lookup tables as they are now"):
        backfill(spark, flow, *EVER, then=True)
    assert _rows(flow) == before
    backfill(spark, flow, *EVER)
    assert {dict(row)["city"] for row in _rows(flow)} == {"later"}


@pytest.mark.prove
def test_the_command_says_which_versions_are_read(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_backfill, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = _flow(place, "single rows")
    _played(spark, flow, 2)
    before = _rows(flow)
    bounds = ["--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z"]
    for joined, changes in (("now", len(before)), ("then", 0)):
        found = listed(flow, "backfill", *bounds, "--lookups", joined, "--dry-run")
        (moves,) = found["sinks"].values()
        assert (found["lookups"], moves["loses"], moves["gains"]) == (joined, changes, changes)
    assert listed(flow, "backfill", *bounds, "--lookups", "then")["lookups"] == "then"
    assert listed(flow, "epochs")["epochs"][-1]["backfill"]["lookups"] == "then"
    assert _rows(flow) == before
