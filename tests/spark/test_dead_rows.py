"""Rows that cannot be read or that a rule rejects: set apart once, or the run stops before anything is visible."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import CLASSES, SCHEMA, START, Flow, event, rows_of
from support.oracle import ordered
from support.running import abandon, backfill_all, crash, run
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.cli.commands import replay as cli_replay
from floodmark.cli.shared import withspark
from floodmark.core.lifecycle.replays import replay_of
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Replay
from floodmark.errors import InputFault, ProcessFault, Refused, WrongColumn
from floodmark.ledger.delta.datafiles import query
from floodmark.spark.rule.run import RuleRun
from floodmark.views.contents.tablerows import plain

READ = {"start": {"version": 0}, "event_time": {"name": "time", "expr": "timestampadd(SECOND, CAST(k AS INT), at)"},
        "where": "10 / n > 0"}  # fmt: skip
WINDOWS = """SELECT window.start AS start, count(*) AS c, sum(60 / (n - 3) + 60 / (n - 3)) AS s,
       max(variant_get(parse_json(concat('[', CAST(n AS STRING), if(v = 5, '', ']'))), '$[0]', 'int')) AS top
  FROM events WHERE 1 / v < 1 GROUP BY window(time, '1 minute')"""
ROWS = [
    event(0, "0", 2.0, 1),
    event(1, "x", 2.0, 1),  # no whole number in k
    event(2, "x", 2.0, -1),  # nor here, but `where` leaves it out
    event(3, "0", 2.0, 0),  # `where` divides by zero
    event(4, "0", 2.0, 3),  # an argument of an aggregate does
    event(5, "0", 1.0, 3),  # and here, but the WHERE leaves the row out
    event(6, "0", 0.0, 2),  # the WHERE divides by zero
    event(7, "0", 5.0, 2),  # bad JSON
    event(8, None, 2.0, 2),  # no event time
    event(50, "60", 2.0, 4),
]
MORE = [event(300, "0", 2.0, 4), event(310, "1e5", 2.0, 4), event(320, "0", 2.0, 3)]
REASONS = {1: "event_time.expr fails: timestampadd(SECOND, CAST(k AS INT), at)", 3: "where fails: 10 / n > 0",
           4: "argument of sum fails: 60 / (n - 3) + 60 / (n - 3)", 6: "WHERE fails: 1 / v < 1",
           7: "argument of max fails: variant_get(parse_json(concat('[', CAST(n AS STRING), if(v = 5, '', ']'))), "
              "'$[0]', 'int')",
           8: "no event time", 310: "event_time.expr fails: timestampadd(SECOND, CAST(k AS INT), at)",
           320: "argument of sum fails: 60 / (n - 3) + 60 / (n - 3)"}  # fmt: skip
RESULTS = [(START, 1, -60.0, 1), (START + timedelta(minutes=1), 1, 120.0, 4)]


def reading(root: Path, name: str, on_error: str) -> Flow:
    settings = {"on_error": on_error, "epoch": {"max_files": 1}}
    return Flow(root, name, sql=WINDOWS, stream=READ, settings=settings, sinks=1)


def sink(flow: Flow) -> list[tuple[Any, ...]]:
    rows = (tuple(row.values()) for row in rows_of(flow.sink()))
    return ordered(tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row) for row in rows)


def dead(flow: Flow) -> dict[int, str]:
    """Second of each dead row → its reason."""
    rows = rows_of(flow.place.dead)
    assert len({row["at"] for row in rows}) == len(rows)
    return {int((row["at"] - START).total_seconds()): row["_reason"] for row in rows}


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and (found.verdict, found.findings) == ("proven", [])


def versions(flow: Flow) -> dict[str, int]:
    """Of every table of the rule, the ledger included."""
    tables = [*(path for path in flow.place.path.rglob("_delta_log")), *Path(flow.root, "lake").rglob("_delta_log")]
    return {str(log.parent): DeltaTable(str(log.parent)).version() for log in tables}


def test_rows_that_cannot_be_read_are_dead_once(spark: SparkSession, place: Path) -> None:
    flow = reading(place, "once", "dead")
    for rows in (ROWS, MORE):
        flow.arrive(rows)
    assert crash(spark, flow, "commit.before")
    run(spark, flow)
    assert sink(flow) == ordered(RESULTS)
    assert dead(flow) == REASONS
    assert flow.counts() == {"read": 13, "filtered": 1, "dead": 8, "late": 0, "folded": 4}
    [row] = [row for row in rows_of(flow.place.dead) if row["_reason"].startswith("where")]
    assert (row["_stream"], row["_epoch"], row["k"], row["n"], row["time"]) == ("events", 1, "0", 0, row["at"])
    assert json.loads(row["_source"])["reservoirVersion"] == 1
    proven(flow)


def test_by_default_the_run_stops_before_anything_is_visible(spark: SparkSession, place: Path) -> None:
    flow = reading(place, "stops", "fail")
    good = [row for row in ROWS if int((row["at"] - START).total_seconds()) not in {*REASONS} - {8}]
    flow.arrive(good)
    run(spark, flow)
    flow.arrive(MORE)
    before = versions(flow)
    with pytest.raises(InputFault) as told:
        run(spark, flow)
    assert "rule stops, stream events: " in str(told.value)
    assert "fails" in str(told.value) and "for 2 rows" in str(told.value) and "k = '" in str(told.value)
    assert versions(flow) == before
    flow.settings["on_error"] = "dead"  # goes on in the same generation
    run(spark, flow)
    assert sink(flow) == ordered(RESULTS)
    assert dead(flow) == {second: REASONS[second] for second in (8, 310, 320)}
    proven(flow)


def test_a_row_that_no_window_of_rows_can_take_never_waits_for_one(spark: SparkSession, place: Path) -> None:
    sql = """SELECT n, state_window.start AS start, count(*) AS c FROM events
      GROUP BY state_window(CAST(k AS INT) > 3, k = '0'), n"""
    settings = {"on_error": "dead", "unbounded": True}
    flow = Flow(place, "waiting", sql=sql, stream={"start": {"version": 0}}, settings=settings, sinks=1)
    flow.arrive([event(0, "4"), event(10, "x"), event(20, "0")])
    run(spark, flow)
    flow.arrive([event(300, "1")])
    run(spark, flow)
    assert sink(flow) == [(0, START, 2)]
    assert dead(flow) == {10: "begin of state_window fails: CAST(k AS INT) > 3"}


@pytest.mark.parametrize("where", ["v > 0", "c.city = 'Bonn' AND e.v > 0"])
def test_a_row_is_not_dead_by_a_key_of_a_join_that_excludes_it(spark: SparkSession, place: Path, where: str) -> None:
    cities = str(place / "lake" / "cities")
    write_deltalake(cities, pa.table({"number": [7], "city": ["Bonn"]}))
    sql = f"""SELECT e.k, c.city FROM events e JOIN cities c ON CAST(e.k AS INT) = c.number WHERE {where}
      UNION ALL SELECT k, 'none' FROM events WHERE NOT v > 0"""
    settings = {"on_error": "dead", "lookups": {"cities": {"delta": cities}}}
    flow = Flow(place, "excluded", sql=sql, stream={"start": {"version": 0}}, settings=settings, sinks=1)
    flow.arrive([event(0, "7"), event(1, "x", -1.0), event(2, "y"), event(3, "8")])
    run(spark, flow)
    assert sink(flow) == [("7", "Bonn"), ("x", "none")]
    assert dead(flow) == {2: "ON fails: CAST(k AS INT)"}


def picky(rows: Iterable[dict[str, Any]]) -> tuple[list[tuple[Any, ...]], list[int]]:
    """What the class Picky gives for rows in the order of their time, and the seconds of the rows that it refuses."""
    found, refused, state = [], [], dict[str, tuple[int, int]]()
    calls: dict[tuple[datetime, str], list[int]] = {}
    for row in sorted(rows, key=lambda row: (row["at"], row["k"], row["n"])):
        calls.setdefault((row["at"], row["k"]), []).append(row["n"])
    for (at, k), numbers in calls.items():
        if 9 in numbers:
            refused += [int((at - START).total_seconds())] * len(numbers)
            continue
        for n in numbers:
            total, count = state.get(k, (0, 0))
            state[k] = (total + n, count + 1)
            found.append((k, at, *state[k]))
    return ordered(found), sorted(refused)


CALLS = [event(s, k, n=n) for s, k, n in ((0, "a", 1), (10, "a", 9), (10, "a", 2), (10, "b", 3), (20, "a", 4),
                                          (90, "a", 9), (95, "b", 5))]  # fmt: skip
LATER = [event(100, "b", n=9), event(101, "b", n=1), event(200, "a", n=6)]


def test_a_call_that_raises_is_undone_and_its_rows_are_dead_once(spark: SparkSession, place: Path) -> None:
    settings = {"on_error": "dead", "epoch": {"max_files": 1}}
    flow = Flow(place, "picky", process="picky:Picky", stream={"start": {"version": 0}}, settings=settings, sinks=1)
    for rows in (CALLS, LATER):
        flow.arrive(rows)
    assert crash(spark, flow, "commit.before")
    run(spark, flow)
    results, refused = picky(row for row in CALLS + LATER if row["at"] < START + timedelta(seconds=170))
    assert sink(flow) == results
    rows = rows_of(flow.place.dead)
    assert sorted(int((row["at"] - START).total_seconds()) for row in rows) == refused == [10, 10, 90, 100]
    assert {row["n"] for row in rows} == {9, 2}, "as they came, whatever the class has done to them"
    assert {row["_epoch"] for row in rows if row["k"] == "b"} == {2}
    assert all(row["_reason"].startswith("process fails for key ('") for row in rows)
    assert all(row["_reason"].endswith("): ValueError: nine is too many") for row in rows)
    commits = [json.loads(row.body) for row in flow.ledger().rows if row.kind == "commit"]
    assert [commit.get("rejected") for commit in commits] == [None, {"events": 2}, {"events": 2}]
    assert flow.counts() == {"read": 10, "filtered": 0, "dead": 0, "late": 0, "folded": 10}
    proven(flow)


def test_a_waiting_row_that_python_cannot_hold_is_dead_without_a_reset(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, "picky", process="picky:Picky", stream={"start": {"version": 0}}, sinks=1)
    due = pa.field("due", pa.timestamp("us", "UTC"))
    for events, beyond in (([event(0), event(10, "b")], 253402300800 * 10**6), ([event(100)], 0)):
        rows = pa.Table.from_pylist(events, SCHEMA)
        times = pa.array([0] * (rows.num_rows - 1) + [beyond], due.type)
        write_deltalake(flow.source, rows.append_column(due, times), mode="append")
        if beyond:
            run(spark, flow)
    with pytest.raises(ProcessFault, match=r"in stream events, column due, for key \('b',\).*`on_error: dead`"):
        run(spark, flow)
    flow.settings = {"on_error": "dead"}
    run(spark, flow)
    assert sink(flow) == [("a", START, 0, 1)]
    [row] = [plain(one) for one in query(DeltaTable(flow.place.dead), "SELECT * FROM t")]
    assert (row["k"], row["due"], row["_epoch"]) == ("b", "+10000-01-01T00:00:00Z", 2)
    assert row["_reason"].startswith("expected a value that Python has")
    proven(flow)


PLAIN = "SELECT at, CAST(k AS INT) AS i, n FROM events"
UNREADABLE = [event(0, "1"), event(10, "x"), event(20, "y2"), event(None, "3", n=7), event(30, "z9", n=-1)]
DIGITS = "k=regexp_replace(k, '[^0-9]', '')"
OF_SQL = "_reason LIKE 'SELECT%' AND n >= 0"


@pytest.fixture
def flow(spark: SparkSession, place: Path) -> Flow:
    """One epoch, whose rows are dead but for the first."""
    found = Flow(place, "plain", sql=PLAIN, settings={"on_error": "dead"}, sinks=1)
    found.stream = {"start": {"version": 0}, "lateness": None}
    found.arrive(UNREADABLE)
    run(spark, found)
    assert sink(found) == [(START, 1, 0)]
    return found


def replay(spark: SparkSession, flow: Flow, where: str | None = None, *sets: str) -> dict[str, int] | None:
    """Counts of the epoch; None where there was nothing to replay."""
    before = flow.ledger().head

    def wanted(head: Head) -> Replay:
        return replay_of(head, None, where, sets, ("at", "k", "n"))

    head = RuleRun(spark, flow.rule(), flow.home, "test", lambda _: None).replay(wanted).head
    assert before is not None and head is not None and head.open is None
    if before.open is None and head.epoch == before.epoch:
        return None
    counts: dict[str, int] = json.loads(flow.ledger().rows[-1].body)["counts"]["events"]
    return {part: rows for part, rows in counts.items() if rows}


@pytest.mark.prove
def test_rows_that_a_class_rejected_come_with_a_replay_and_a_backfill_of_everything(
    spark: SparkSession, place: Path
) -> None:
    flow = Flow(place, "picky", process="picky:Picky", stream={"start": {"version": 0}}, sinks=1)
    flow.settings = {"on_error": "dead"}
    flow.arrive(CALLS + LATER)
    run(spark, flow)
    good = (CLASSES / "picky.py").read_text()
    flow.write_class(good.replace("if n == 9", "if ctx.now and n == 10"))
    with pytest.raises(Refused, match=r"found 4 of 4 below.*picky.py:\d+: ctx.now"):
        replay(spark, flow)
    flow.write_class(good.replace("if n == 9", "if n == 10"))
    assert replay(spark, flow) == {"read": 4, "late": 4}
    backfill_all(spark, flow)
    assert sorted(row[1] for row in sink(flow)) == sorted(
        row["at"] for row in CALLS + LATER if row["at"] < START + timedelta(seconds=170)
    )
    proven(flow)


@pytest.mark.parametrize("point", ["sink0.after", pytest.param("intent.after", marks=pytest.mark.prove)])
@pytest.mark.prove
def test_a_replay_that_is_taken_back_leaves_its_rows_dead(spark: SparkSession, flow: Flow, point: str) -> None:
    with crash_at(point) as planned, pytest.raises(Crash):
        replay(spark, flow, OF_SQL, DIGITS)
    assert planned.fired
    abandon(spark, flow)
    proven(flow)
    assert sink(flow) == [(START, 1, 0)]
    flow.arrive([event(40, "4")])
    run(spark, flow)
    assert replay(spark, flow, OF_SQL, DIGITS) == {"read": 2, "folded": 1, "dead": 1}
    seconds = {0: 1, 20: 2, 40: 4}
    assert sink(flow) == ordered((START + timedelta(seconds=s), i, 0) for s, i in seconds.items())
    assert replay(spark, flow, OF_SQL, DIGITS) == {"read": 1, "dead": 1}
    proven(flow)


def test_dead_rows_are_replayed_once_whatever_is_killed(spark: SparkSession, flow: Flow) -> None:
    for point in ("intent.after", "sink0.after"):
        with crash_at(point) as planned, pytest.raises(Crash):
            replay(spark, flow, OF_SQL, DIGITS)
        assert planned.fired
    flow.arrive([event(40, "4")])
    assert replay(spark, flow, OF_SQL, DIGITS) == {"read": 1, "dead": 1}, "what the open replay left dead again"
    head = flow.ledger().head
    assert head is not None and (head.epoch, list(head.replays)) == (3, [2, 3])
    assert sink(flow) == ordered([(START, 1, 0), (START + timedelta(seconds=20), 2, 0)])
    run(spark, flow)  # the row that has come meanwhile
    assert replay(spark, flow, OF_SQL, "k='7'") == {"read": 1, "folded": 1}
    assert replay(spark, flow, OF_SQL, "k='7'") is None
    assert replay(spark, flow, None, "at=coalesce(at, timestamp'2001-01-01 01:00:00Z')") == {
        "read": 2,
        "folded": 1,
        "dead": 1,
    }
    assert replay(spark, flow, "n = 0", "k='8'") is None
    seconds = {0: 1, 10: 7, 20: 2, 40: 4}
    expected = [(START + timedelta(seconds=s), i, 0) for s, i in seconds.items()]
    assert sink(flow) == ordered([*expected, (START + timedelta(hours=1), 3, 7)])
    assert sorted(row["_epoch"] for row in rows_of(flow.place.dead) if row["n"] == -1) == [1, 6]
    proven(flow)


@pytest.mark.prove
def test_a_mended_rule_takes_its_dead_rows_by_the_command(
    spark: SparkSession, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cli_replay, withspark):
        monkeypatch.setattr(module, "with_spark", lambda rule, master, work: work(spark))
    flow.sql = "SELECT at, try_cast(k AS INT) AS i, n FROM events"
    flow.write_rule()

    places = ["--rules", str(flow.root / "rules"), "--home", str(flow.home)]

    def call(*arguments: str, code: int = 0) -> str:
        told = CliRunner().invoke(app, ["dead", *arguments, *places])
        assert told.exit_code == code, told.output
        return told.output

    shown = json.loads(call("plain", "replay", "--dry-run", "--json"))
    assert [shown[name] for name in ("done", "epoch", "read", "folded", "dead")] == [False, None, 4, 3, 1]
    assert {(row["k"], row["_becomes"], row["_reason"]) for row in shown["shown"]} == {
        ("x", "folded", None), ("y2", "folded", None), ("z9", "folded", None), ("3", "dead", "no event time"),
    }  # fmt: skip
    far = ["--set", "at=timestamp_millis(978307201000000)", "--json"]
    assert {row["at"] for row in json.loads(call("replay", "plain", "--dry-run", *far))["shown"]} == {
        "+32971-04-28T00:16:40.000000Z"
    }
    assert "did you mean k?" in call("replay", "plain", "--set", "kk=1", code=2)
    assert "UNRESOLVED_COLUMN" in call("replay", "plain", "--where", "nobody > 1", code=2)
    assert "epoch 2 committed: 3 dead rows read again: 3 folded" in call("replay", "plain", "--where", "at IS NOT NULL")
    listed = json.loads(call("list", "plain", "--json"))["shown"]
    assert {(row["k"], row["_replayed"]) for row in listed} == {
        (k, "2 if at IS NOT NULL") for k in ("x", "y2", "z9", "3")
    }
    assert "1 dead row read again: 1 dead" in call("replay", "plain", "--stream=events", "--run-id", "again")
    assert "1 dead row read again: 1 folded" in call("replay", "plain", "--set", "at=timestamp_seconds(0)")
    assert call("replay", "plain") == "plain: nothing to replay at epoch 4\n"
    told = CliRunner().invoke(app, ["epochs", "plain", *places, "--json"])
    epochs = json.loads(told.output)["epochs"]
    assert [(one["replay"], one["dead"]) for one in epochs[1:]] == [(False, 4), (True, 0), (True, 1), (True, 0)]
    assert epochs[3]["run"] == "again", "by which Airflow's form believes a replay"
    assert sorted(str(i) for _, i, _ in sink(flow)) == ["1", "3", "None", "None", "None"]
    proven(flow)


NESTED, NUMBER = "named_struct('a', 1) AS s", "1 AS s"


def _source(spark: SparkSession, flow: Flow, column: str, *times: str) -> None:
    rows = " UNION ALL ".join(f"SELECT CAST({at} AS TIMESTAMP) AS at, 'x' AS k, {column}" for at in times)
    spark.sql(rows).write.format("delta").mode("append").save(flow.source)


def _at(time: str) -> str:
    return f"'2001-01-01 {time}'"


def test_late_and_dead_rows_have_the_fields_that_a_struct_of_the_source_gains(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT at, k, s.a AS a FROM events", sinks=1, stream={"start": {"version": 0}})
    _source(spark, flow, NESTED, _at("01:00:00"), "NULL")
    run(spark, flow)
    _source(spark, flow, NESTED, _at("00:00:00"))
    run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` ADD COLUMNS (s.b INT)")
    _source(spark, flow, "named_struct('a', 1, 'b', 2) AS s", _at("00:00:01"), "NULL")
    run(spark, flow)
    for table in (flow.place.late, flow.place.dead):
        assert [row["s"] for row in rows_of(str(table))].count({"a": 1, "b": 2}) == 1
    made = audit(flow.name, flow.home, deep=True)
    assert made is not None and made.verdict == "proven", made.findings


@pytest.mark.prove
@pytest.mark.parametrize("point", ["intent.after", "late.after", "commit.before"])
def test_a_struct_gains_a_field_while_an_epoch_with_late_and_dead_rows_is_open(
    spark: SparkSession, place: Path, point: str
) -> None:
    flow = Flow(place, sql="SELECT at, k, s.a AS a FROM events", sinks=1, stream={"start": {"version": 0}})
    _source(spark, flow, NESTED, _at("01:00:00"), "NULL")
    run(spark, flow)
    _source(spark, flow, NESTED, _at("00:00:00"), "NULL")
    assert crash(spark, flow, point)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` ADD COLUMNS (s.b INT)")
    _source(spark, flow, "named_struct('a', 1, 'b', 2) AS s", _at("00:00:01"), "NULL")
    run(spark, flow)
    for table in (flow.place.late, flow.place.dead):
        fields = [row["s"] for row in rows_of(str(table))]
        assert fields.count({"a": 1, "b": 2}) == 1
        assert len(fields) == (2 if table == flow.place.late else 3)
    made = audit(flow.name, flow.home, deep=True)
    assert made is not None and made.verdict == "proven", made.findings


def test_a_type_made_wider_stops_a_rule_where_late_or_dead_rows_have_the_older_one(
    spark: SparkSession, place: Path
) -> None:
    for name, times in (("clean", []), ("dead", ["NULL"])):
        flow = Flow(place, name, sql="SELECT at, k, CAST(s AS BIGINT) AS s FROM events", sinks=1,
                    stream={"start": {"version": 0}})  # fmt: skip
        _source(spark, flow, NUMBER, _at("00:00:00"), *times)
        run(spark, flow)
        spark.sql(f"ALTER TABLE delta.`{flow.source}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
        spark.sql(f"ALTER TABLE delta.`{flow.source}` ALTER COLUMN s TYPE BIGINT")
        _source(spark, flow, "3000000000L AS s", _at("00:00:05"), "NULL")
        if times:
            with pytest.raises(WrongColumn, match=r"s`: kept as int, found bigint.*no epoch is open.*reset dead"):
                run(spark, flow)
            continue
        run(spark, flow)
        assert [row["s"] for row in rows_of(str(flow.place.dead))] == [3_000_000_000]
        made = audit(flow.name, flow.home, deep=True)
        assert made is not None and made.verdict == "proven", made.findings
