"""Corrections of a source's dead rows: a row that was corrected there counts once, also after a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.corrected import CORRECT, at, proven
from support.flow import CLASSES, Flow, event, rows_of
from support.running import backfill, backfill_all, run

from floodmark.core.lifecycle.replays import replay_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Replay
from floodmark.errors import HistoryGone
from floodmark.spark.look.rehearsal import rehearse
from floodmark.spark.rule.run import RuleRun

NUMBERS = "SELECT at, CAST(k AS INT) AS i, n FROM events"
MINUTES = """SELECT window.start AS start, sum(CAST(k AS INT)) AS s, count(*) AS c FROM events
GROUP BY window(at, '1 minute')"""
TOTALS = "SELECT n, sum(CAST(k AS INT)) AS s, count(*) AS c FROM events GROUP BY n"
SESSIONS = """SELECT session_window.start AS start, sum(CAST(k AS INT)) AS s, count(*) AS c FROM events
GROUP BY session_window(at, '1 minute')"""
CHANGES = (
    "DELETE FROM {} WHERE k = '5'",
    "UPDATE {} SET k = '2' WHERE k = 'x'",
    "DELETE FROM {} WHERE k = '2'",
)
MINUTE = [int(at(seconds).timestamp()) * 1_000_000 for seconds in (0, 60)]
FAR = 1000  # no value of a row that a test is about


@dataclass(frozen=True)
class Kind:
    """A rule, and columns of what its sink has after each of the CHANGES."""

    sql: str
    columns: tuple[str, ...]
    expected: tuple[list[tuple[int, ...]], ...]
    lateness: str | None = "1 hour"


KINDS = {
    "single rows": Kind(NUMBERS, ("i",), ([(1,), (7,), (9,)], [(1,), (2,), (7,)], [(1,), (7,)]), None),
    "totals": Kind(TOTALS, ("n", "s", "c"), ([(0, 17, 3)], [(0, 10, 3)], [(0, 8, 2)]), None),
    "windows": Kind(MINUTES, ("s", "c"), ([(7, 1), (10, 2)], [(3, 2), (7, 1)], [(1, 1), (7, 1)])),
    "sessions": Kind(SESSIONS, ("s", "c"), ([(7, 1), (10, 2)], [(3, 2), (7, 1)], [(1, 1), (7, 1)])),
}


def flow_of(place: Path, sql: str, lateness: str | None, **expect: object) -> Flow:
    stream = {**CORRECT, "lateness": lateness, **expect}
    flow = Flow(place, sql=sql, stream=stream, sinks=1, settings={"on_error": "dead"})
    if sql == TOTALS:
        flow.settings |= {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["n"]}]}
    return flow


def wanted(where: str | None, *sets: str) -> Callable[[Head], Replay]:
    return lambda head: replay_of(head, None, where, sets, ("at", "k", "n", "v"))


def replay(spark: SparkSession, flow: Flow, where: str | None, *sets: str) -> None:
    RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).replay(wanted(where, *sets))


def corrected(spark: SparkSession, flow: Flow, change: str) -> None:
    spark.sql(change.format(f"delta.`{flow.source}`"))
    assert len(run(spark, flow).corrections) == 1


def found(flow: Flow, *columns: str) -> list[tuple[Any, ...]]:
    rows = (tuple(row[name] for name in columns) for row in rows_of(flow.sink()))
    return sorted(row for row in rows if FAR not in row)


IN_CI = ("windows",)


@pytest.mark.parametrize("kind", [one if one in IN_CI else pytest.param(one, marks=pytest.mark.prove) for one in KINDS])
def test_what_a_replay_made_of_a_row_goes_once_the_source_corrects_the_row(
    spark: SparkSession, place: Path, kind: str
) -> None:
    about = KINDS[kind]
    flow = flow_of(place, about.sql, about.lateness)
    flow.arrive([event(0, "1"), event(10, "x"), event(20, "5"), event(300, "7")])
    run(spark, flow)
    replay(spark, flow, None, "k='9'")
    flow.arrive([event(100_000, str(FAR), n=FAR), event(200_000, str(FAR), n=FAR + 1)])
    run(spark, flow)
    for change, expected in zip(CHANGES, about.expected, strict=True):
        corrected(spark, flow, change)
        assert found(flow, *about.columns) == expected
    proven(flow)


def moved(spark: SparkSession, place: Path, dead: dict[str, Any], *sets: str) -> Flow:
    """A rule of windows, all of them final, with a dead row that a replay has put into one."""
    flow = flow_of(place, MINUTES, "1 hour")
    flow.arrive([event(0, "1"), dead, event(300, "7")])
    run(spark, flow)
    replay(spark, flow, None, *sets)
    flow.arrive([event(100_000, str(FAR), n=FAR)])
    run(spark, flow)
    return flow


def test_a_replayed_row_leaves_the_window_that_the_replay_put_it_in(spark: SparkSession, place: Path) -> None:
    """The source corrects its event time to that of another window."""
    flow = moved(spark, place, event(None, "5"), "at=timestamp'2001-01-01 00:00:30Z'")
    assert found(flow, "s", "c") == [(6, 2), (7, 1)]
    corrected(spark, flow, "UPDATE {} SET at = timestamp'2001-01-01 00:05:10Z' WHERE at IS NULL")
    assert found(flow, "s", "c") == [(1, 1), (12, 2)]
    proven(flow)


@pytest.mark.prove
def test_a_row_that_died_again_and_was_replayed_again_goes_likewise(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, NUMBERS, None)
    flow.arrive([event(0, "1"), event(10, "x"), event(10, "x"), event(20, "5")])
    run(spark, flow)
    replay(spark, flow, None, "k=concat(k, 'y')")
    replay(spark, flow, None, "k='8'")
    corrected(spark, flow, "DELETE FROM {} WHERE k = '5'")
    assert found(flow, "i") == [(1,), (8,), (8,)]
    corrected(spark, flow, "UPDATE {} SET k = '2' WHERE k = 'x'")
    assert found(flow, "i") == [(1,), (2,), (2,)]
    proven(flow)


@pytest.mark.prove
def test_a_second_death_hides_no_row_of_the_source(spark: SparkSession, place: Path) -> None:
    """The source gets the values of the row that died again, which the rule takes by now."""
    flow = flow_of(place, NUMBERS, None)
    flow.arrive([event(0, "1", n=1), event(10, "x", n=2)])
    run(spark, flow)
    replay(spark, flow, None, "k=concat(k, 'y')")
    flow.sql = "SELECT at, try_cast(k AS INT) AS i, n FROM events"
    corrected(spark, flow, "UPDATE {} SET k = 'xy' WHERE k = 'x'")
    assert found(flow, "n") == [(1,), (2,)]
    proven(flow)


def test_a_row_that_its_class_rejected_is_found_without_what_only_an_expectation_reads(
    spark: SparkSession, place: Path
) -> None:
    """The source gained that column after the generation began: rows that wait for the class do not have it."""
    flow = flow_of(place, "", "30 seconds")
    flow.process = "picky:Picky"
    flow.arrive([event(0, "a", n=1), event(10, "a", n=2)])
    run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` ADD COLUMN quality INT")
    flow.stream["expect"] = {"good": {"check": "quality IS NULL OR quality > 0", "on_fail": "dead"}}
    rows = [f"(timestamp'2001-01-01 00:{at}Z', '{k}', 1.0, {n}, {q})" for at, k, n, q in NEW]
    spark.sql(f"INSERT INTO delta.`{flow.source}` VALUES {', '.join(rows)}")
    run(spark, flow)
    assert sorted((row["k"], row["quality"]) for row in rows_of(flow.place.dead)) == [("a", -5), ("b", None)]
    corrected(spark, flow, "UPDATE {} SET n = 5, quality = 1 WHERE n = 2")
    assert found(flow, "k", "total") == [("a", 1), ("a", 6)]
    proven(flow)


NEW = (("00:20", "b", 9, 5), ("00:20", "a", 7, -5), ("20:00", "c", 0, 5))
TWICE = {"as it came": (), "with another value": ("n=9",)}


@pytest.mark.parametrize("how", ["as it came", pytest.param("with another value", marks=pytest.mark.prove)])
def test_a_replayed_row_that_its_class_rejects_epochs_later_stays_dead(
    spark: SparkSession, place: Path, how: str
) -> None:
    """It waited in the state meanwhile. A correction leaves it out, and a replay finds it."""
    flow = flow_of(place, "", "30 seconds", expect={"early": {"check": "v < 5", "on_fail": "dead"}})
    flow.process = "picky:Picky"
    first = event(500, "a", v=7.0, n=3 if TWICE[how] else 9)
    flow.arrive([event(0, "a", n=1), event(10, "a", n=2), first, event(510, "b", n=9)])
    run(spark, flow)
    del flow.stream["expect"]
    replay(spark, flow, None, *TWICE[how])
    flow.arrive([event(1000, "c")])
    run(spark, flow)
    assert sum(row["_reason"].startswith("process fails") for row in rows_of(flow.place.dead)) == 2
    corrected(spark, flow, "UPDATE {} SET n = 5 WHERE n = 2")
    assert found(flow, "k", "total") == [("a", 1), ("a", 6)]
    _ = backfill_all(spark, flow)
    assert found(flow, "k", "total") == [("a", 1), ("a", 6)]
    flow.write_class((CLASSES / "picky.py").read_text().replace("if n == 9", "if False"))
    replay(spark, flow, "k = 'a'")
    _ = backfill_all(spark, flow)
    assert found(flow, "k", "total") == [("a", 1), ("a", 6), ("a", 15)]
    proven(flow)
    corrected(spark, flow, "DELETE FROM {} WHERE v = 7")
    assert found(flow, "k", "total") == [("a", 1), ("a", 6)]
    proven(flow)


@pytest.mark.prove
def test_of_equal_dead_rows_as_many_replays_stay_as_the_source_still_holds(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, NUMBERS, None)
    flow.arrive([event(0, "x")])
    flow.arrive([event(0, "x"), event(5, "1")])
    flow.arrive([event(0, "x")])
    run(spark, flow)
    replay(spark, flow, None, "k='9'")
    numbered = f"SELECT *, row_number() OVER (PARTITION BY k ORDER BY at) AS place FROM delta.`{flow.source}`"
    corrected(spark, flow, f"INSERT OVERWRITE {{}} SELECT at, k, v, n FROM ({numbered}) WHERE k = 'x' AND place < 3")
    assert found(flow, "i") == [(9,), (9,)]
    corrected(spark, flow, "UPDATE {} SET k = '3'")
    assert found(flow, "i") == [(3,), (3,)]
    proven(flow)


@pytest.mark.prove
def test_a_row_that_the_source_corrected_for_an_expectation_counts(spark: SparkSession, place: Path) -> None:
    """The expectation reads a column that the SQL does not: for the SQL the two rows are equal."""
    flow = flow_of(place, "SELECT at, k FROM events", None, expect={"some": {"check": "n > 0", "on_fail": "dead"}})
    flow.arrive([event(0, "a", n=-1), event(0, "b", n=1), event(0, "c", n=None), event(0, "d", n=0)])
    run(spark, flow)
    corrected(spark, flow, "UPDATE {} SET n = 1 WHERE k = 'a' OR k = 'c'")
    assert found(flow, "k") == [("a",), ("b",), ("c",)]
    backfill(spark, flow, *MINUTE)
    assert found(flow, "k") == [("a",), ("b",), ("c",)]
    proven(flow)


@pytest.mark.prove
def test_a_dead_row_is_found_by_what_the_rule_read_when_it_died(spark: SparkSession, place: Path) -> None:
    """A later expectation reads another column, which the dead table has no value of for this row."""
    flow = flow_of(place, NUMBERS, None)
    flow.arrive([event(0, "1"), event(10, "x"), event(20, "5")])
    run(spark, flow)
    replay(spark, flow, None, "k='9'")
    flow.stream["expect"] = {"known": {"check": "v > 0", "on_fail": "dead"}}
    flow.arrive([event(30, "6"), event(40, "7", v=-1.0)])
    run(spark, flow)
    corrected(spark, flow, "DELETE FROM {} WHERE k = '5'")
    assert found(flow, "i") == [(1,), (6,), (9,)]
    proven(flow)


POSITIVE = {"positive": {"check": "n > 0", "on_fail": "dead"}}  # the SQL of these rules does not read n
COUNTS = "SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k"
MAPPED = "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"


def test_a_good_row_stays_though_its_dead_twin_left_and_the_expectation_too(spark: SparkSession, place: Path) -> None:
    """Nothing but a column that the rule reads no more tells the two rows apart."""
    flow = flow_of(place, COUNTS, "30 seconds", expect=POSITIVE)
    flow.arrive([event(6, "b", n=-1), event(6, "b", n=5), event(9, "c", n=1), event(600, "z", n=1)])
    run(spark, flow)
    corrected(spark, flow, "DELETE FROM {} WHERE n = -1")
    del flow.stream["expect"]
    flow.arrive([event(700, "z")])
    run(spark, flow)
    corrected(spark, flow, "UPDATE {} SET k = 'd' WHERE k = 'c'")
    assert found(flow, "k", "c") == [("b", 1), ("d", 1), ("z", 1)]
    backfill(spark, flow, *MINUTE)
    assert found(flow, "k", "c") == [("b", 1), ("d", 1), ("z", 1)]
    proven(flow)


@pytest.mark.prove
def test_a_row_counts_once_corrected_for_an_expectation_that_is_gone(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "SELECT at, k FROM events", None, expect=POSITIVE)
    flow.arrive([event(0, "a", n=-1), event(1, "b", n=-1), event(2, "c", n=1)])
    run(spark, flow)
    del flow.stream["expect"]
    corrected(spark, flow, "UPDATE {} SET n = 7 WHERE k = 'a'")
    assert found(flow, "k") == [("a",), ("c",)]
    proven(flow)


def mapped(spark: SparkSession, place: Path) -> Flow:
    """A rule with a dead row, whose source has renamed or dropped the column for which the row died."""
    flow = flow_of(place, "SELECT at, k FROM events", None, expect=POSITIVE)
    flow.arrive([event(0, "a", n=-1), event(2, "c", n=1)])
    spark.sql(MAPPED.format(f"delta.`{flow.source}`"))
    run(spark, flow)
    del flow.stream["expect"]
    return flow


def test_a_backfill_leaves_out_rows_that_died_before_the_sql_read_a_column(spark: SparkSession, place: Path) -> None:
    """A good row is equal to the dead one in what the SQL read then, and has NULL in what it reads since."""
    flow = flow_of(place, "SELECT at, k, CAST(0 AS DOUBLE) AS x FROM events", "1 hour", expect=POSITIVE)
    flow.arrive([event(1, v=5.0, n=-1), event(1, v=None, n=1), event(2, v=2.0, n=2)])
    run(spark, flow)
    flow.sql = "SELECT at, k, v AS x FROM events"
    del flow.stream["expect"]
    flow.arrive([event(3, v=3.0, n=-3)])
    run(spark, flow)
    backfill(spark, flow, *MINUTE)
    assert sorted(row["x"] or 0 for row in rows_of(flow.sink())) == [0, 2, 3]
    proven(flow)


def test_a_correction_stops_where_a_column_that_told_dead_rows_apart_is_gone(spark: SparkSession, place: Path) -> None:
    flow = mapped(spark, place)
    table = f"delta.`{flow.source}`"
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN n TO m")
    spark.sql(f"UPDATE {table} SET m = 7 WHERE k = 'a'")
    spark.sql(f"UPDATE {table} SET k = 'd' WHERE k = 'c'")
    with pytest.raises(HistoryGone, match=r'same name and type: n\. .* to 1 of them, such as {"at":.*,"k":"a"'):
        run(spark, flow)
    assert found(flow, "k") == [("c",)]
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN m TO n")
    run(spark, flow)
    assert found(flow, "k") == [("a",), ("d",)]
    proven(flow)


def test_a_correction_stops_where_another_column_has_the_name_of_that(spark: SparkSession, place: Path) -> None:
    """The dead row would seem to have left: the new column has NULL for it."""
    flow = mapped(spark, place)
    table = f"delta.`{flow.source}`"
    spark.sql(f"ALTER TABLE {table} DROP COLUMN n")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN n BIGINT")
    flow.arrive([event(3, "e")])
    run(spark, flow)  # which does not read the column
    spark.sql(f"UPDATE {table} SET k = 'd' WHERE k = 'c'")
    with pytest.raises(HistoryGone, match="column n, as it was read up to version 1, was dropped or renamed since"):
        run(spark, flow)
    assert found(flow, "k") == [("c",), ("e",)]


@pytest.mark.prove
def test_a_row_that_comes_back_brings_what_its_replay_made(spark: SparkSession, place: Path) -> None:
    """In the window that the replay put it in, not in its own."""
    flow = moved(spark, place, event(10, "x"), "k='5'", "at=timestamp'2001-01-01 00:05:30Z'")
    corrected(spark, flow, "DELETE FROM {} WHERE k = 'x'")
    assert found(flow, "s", "c") == [(1, 1), (7, 1)]
    corrected(spark, flow, "RESTORE TABLE {} TO VERSION AS OF 1")
    assert found(flow, "s", "c") == [(1, 1), (12, 2)]
    proven(flow)


@pytest.mark.prove
def test_a_replay_leaves_out_dead_rows_that_the_source_has_corrected(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, NUMBERS, None)
    flow.arrive([event(0, "1"), event(10, "x"), event(20, "y")])
    run(spark, flow)
    corrected(spark, flow, "UPDATE {} SET k = '2' WHERE k = 'x'")
    shown = rehearse(spark, flow.rule(), flow.home, flow.ledger().begun, wanted(None, "k='9'"), 5)
    assert shown.counts["events"].read == 1
    replay(spark, flow, None, "k='9'")
    assert found(flow, "i") == [(1,), (2,), (9,)]
    proven(flow)
