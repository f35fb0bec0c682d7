"""A lake that is moved between runs: its tables are the same, so the rule goes on, whatever is open."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import SCHEMA, STATELESS, Flow, event, rows_of
from support.running import crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.core.protocol.places import places_of
from floodmark.errors import FloodmarkError, HistoryGone


def _move(flow: Flow, to: str) -> None:
    """The lake, and in the rule's file its addresses."""
    source = Path(str(flow.stream.get("delta", flow.source)).removeprefix("file://"))
    names = {"source": source, **{str(i): _sink(flow, i) for i in range(2)}}
    new = flow.root / to
    names["source"].parent.rename(new)
    flow.stream["delta"] = f"file://{new}/{names['source'].name}/"
    flow.settings["sinks"] = [{"delta": f"{new}//{names[str(i)].name}/"} for i in range(2)]


def _sink(flow: Flow, number: int) -> Path:
    sinks = flow.settings.get("sinks")
    return Path(sinks[number]["delta"]) if sinks else Path(flow.sink(number))


def _arrive(flow: Flow, *events: dict[str, object]) -> None:
    address = str(flow.stream.get("delta", flow.source)).removeprefix("file://").rstrip("/")
    write_deltalake(address, pa.Table.from_pylist(list(events), schema=SCHEMA), mode="append")


def _proven(flow: Flow) -> bool:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    return found.verdict == "proven"


@pytest.mark.parametrize(
    "point",
    ["sink0.after", *(pytest.param(point, marks=pytest.mark.prove) for point in ("intent.after", "commit.after"))],
)
def test_an_epoch_that_is_open_is_finished_in_the_lake_that_was_moved(
    spark: SparkSession, place: Path, point: str
) -> None:
    flow = Flow(place, sql=STATELESS)
    flow.arrive([event(1), event(2)])
    run(spark, flow)
    flow.arrive([event(3)])
    assert crash(spark, flow, point)
    _move(flow, "elsewhere")
    run(spark, flow)
    _arrive(flow, event(4))
    run(spark, flow)
    assert [len(rows_of(str(_sink(flow, i)))) for i in range(2)] == [4, 4]
    assert not (place / "lake").exists()
    assert _proven(flow)
    head = flow.ledger().head
    assert head is not None and sorted(places_of(head).values()) == [str(_sink(flow, i)) for i in range(2)]


@pytest.mark.prove
@pytest.mark.parametrize("settings", [{}, {"rebuild": True, "epoch": "none"}], ids=["appended", "rebuilt"])
@pytest.mark.parametrize("point", [None, "intent.after", "sink0.after", "commit.after"])
def test_sinks_that_exchange_their_addresses_keep_what_they_take(
    spark: SparkSession, place: Path, settings: dict[str, object], point: str | None
) -> None:
    flow = Flow(place, sql=STATELESS, settings=settings)
    first, second = flow.sink(0), flow.sink(1)
    flow.settings["sinks"] = [{"delta": first, "where": "n > 0"}, {"delta": second}]
    flow.arrive([event(1, n=1), event(2)])
    run(spark, flow)
    flow.arrive([event(3, n=1), event(4)])
    assert point is None or crash(spark, flow, point)
    Path(first).rename(place / "passing")
    Path(second).rename(first)
    (place / "passing").rename(second)
    flow.settings["sinks"] = [{"delta": second, "where": "n > 0"}, {"delta": first}]
    run(spark, flow)
    flow.arrive([event(5, n=1), event(6)])
    run(spark, flow)
    assert [len(rows_of(one)) for one in (first, second)] == [6, 3]
    assert _proven(flow)
    reset(spark, flow)
    run(spark, flow)
    assert [len(rows_of(one)) for one in (first, second)] == [6, 3]
    assert _proven(flow)


@pytest.mark.prove
def test_a_reset_that_was_killed_is_finished_in_the_lake_that_was_moved(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=STATELESS)
    flow.arrive([event(1), event(2)])
    run(spark, flow)
    with crash_at("reset.empty.after"), pytest.raises(Crash):
        reset(spark, flow)
    _move(flow, "elsewhere")
    run(spark, flow)
    assert [len(rows_of(str(_sink(flow, i)))) for i in range(2)] == [2, 2]
    assert not (place / "lake").exists()
    assert _proven(flow)


@pytest.mark.prove
def test_after_a_move_a_reset_and_another_move_all_generations_are_proven(spark: SparkSession, place: Path) -> None:
    from floodmark.spark.rule.run import RuleRun

    flow = Flow(place, sql=STATELESS)
    flow.arrive([event(1), event(2)])
    run(spark, flow)
    _move(flow, "second")
    assert run(spark, flow).epochs == []
    assert [row.kind for row in flow.ledger().rows][-1] == "life"
    assert _proven(flow)
    RuleRun(spark, flow.rule(), flow.home, "reset", lambda _: None).reset(keep_output=False)
    run(spark, flow)
    _move(flow, "third")
    run(spark, flow)
    assert _proven(flow)
    assert len(rows_of(str(_sink(flow, 0)))) == 2


@pytest.mark.parametrize("open_too", [False, pytest.param(True, marks=pytest.mark.prove)])
def test_a_source_that_was_put_back_from_an_older_copy_and_written_to_since_is_refused(
    spark: SparkSession, place: Path, open_too: bool
) -> None:
    """It has the same id and more versions than were read; what it holds up to there would be passed over."""
    flow = Flow(place, sql=STATELESS, sinks=1)
    source, copy, newest = Path(flow.source), place / "copy", place / "newest"
    flow.arrive([event(1)])
    run(spark, flow)
    shutil.copytree(source, copy)
    flow.arrive([event(2)])
    if open_too:
        assert crash(spark, flow, "intent.after")
    else:
        run(spark, flow)
    source.rename(newest)
    copy.rename(source)
    flow.arrive([event(3)])
    flow.arrive([event(4)])
    for _ in range(2):
        with pytest.raises(HistoryGone, match=r"stream events: version 1 of .* is not the commit that was read"):
            run(spark, flow)
    shutil.rmtree(source)
    newest.rename(source)
    flow.arrive([event(5)])
    run(spark, flow)
    assert len(rows_of(flow.sink())) == 3
    assert _proven(flow)


def test_a_link_that_was_switched_with_an_epoch_open_loses_nothing(spark: SparkSession, place: Path) -> None:
    """The open epoch goes on in the tables that the ledger knows; nothing is written where the link leads now."""
    flow = Flow(place, sql=STATELESS)
    flow.arrive([event(1)])
    (place / "link").symlink_to(place / "lake")
    flow.settings["sinks"] = [{"delta": str(place / "link" / f"counted_out{i}")} for i in range(2)]
    run(spark, flow)
    flow.arrive([event(2)])
    assert crash(spark, flow, "sink0.after")
    (place / "empty").mkdir()
    (place / "link").unlink()
    (place / "link").symlink_to(place / "empty")
    flow.arrive([event(3)])
    for _ in range(2):
        with pytest.raises(FloodmarkError, match=r"expected the table with id .*, which was at .*, found no table"):
            run(spark, flow)
    assert list((place / "empty").iterdir()) == []
    (place / "link").unlink()
    (place / "link").symlink_to(place / "lake")
    run(spark, flow)
    assert [len(rows_of(flow.sink(i))) for i in range(2)] == [3, 3]
    assert _proven(flow)
