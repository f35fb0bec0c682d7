"""Every type of Spark's SQL in every place of a rule: it works and is proven, or it is refused beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from support.crash import Crash, crash_at
from support.flow import STATELESS, Flow, event, rows_of
from support.running import crash, reset, run
from support.types import KINDS, REFUSED, Refused, most, source_sql

from floodmark.audit.certificate import audit
from floodmark.errors import ProcessFault, WrongColumn
from floodmark.ledger.delta.keybounds import MEASURES, Bound, may_hold
from floodmark.spark.read.digesting import Digesting


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, True)
    assert found is not None and found.verdict == "proven", found and found.findings


def arrive(flow: Flow, rows: DataFrame, name: str = "events") -> None:
    """One commit, one file."""
    place = flow.source if name == "events" else str(flow.root / "lake" / name)
    rows.coalesce(1).write.format("delta").mode("append").save(place)


def same_rows(one: DataFrame, other: DataFrame) -> None:
    """To the bit, but for NaN and zeros."""
    found, wanted = (Digesting(rows.schema, exact=True).of(rows) for rows in (one, other))
    assert list(found.differences(wanted)) == []


def names(role: str) -> list[str]:
    return [f"c{i}" for i, kind in enumerate(KINDS) if kind.can(role)]


def table(spark: SparkSession, address: str) -> DataFrame:
    return spark.read.format("delta").load(address)


@pytest.fixture(scope="module")
def rows(spark: SparkSession, root: Path) -> DataFrame:
    """A row for each value, and one of nulls; out of a table, for plans of so much SQL take long."""
    spark.sql(source_sql(KINDS, most(KINDS))).coalesce(1).write.format("delta").save(str(root / "values"))
    return table(spark, str(root / "values"))


FEW = ("FLOAT", "DECIMAL(38,38)", "TIMESTAMP", "nested in each other", "VARIANT nested")


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.prove)], ids=["few", "every"])
def test_values_of_types_are_copied_set_apart_and_proven(
    spark: SparkSession, place: Path, rows: DataFrame, few: bool
) -> None:
    if few:  # so many columns, digested in five tables, take their time
        rows = rows.select("id", "at", *(f"c{i}" for i, kind in enumerate(KINDS) if kind.sql in FEW))
    flow = Flow(place, sql="SELECT * FROM events", settings={"epoch": {"max_files": 1}})
    flow.stream = {"start": {"version": 0}, "lateness": "0 seconds"}
    feed = {"delta.enableChangeDataFeed": True}
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "key": ["id"], "properties": feed}]
    later = rows.withColumn("id", F.expr("id + 1000"))
    later = later.withColumn("at", F.expr("at + INTERVAL '1' HOUR"))
    late, dead = (rows.withColumn("at", F.expr(at)) for at in ("at - INTERVAL '1' HOUR", "CAST(NULL AS TIMESTAMP)"))
    arrive(flow, rows)
    arrive(flow, later.unionByName(late).unionByName(dead))
    assert crash(spark, flow, "sink0.after", 2)
    run(spark, flow)
    proven(flow)
    whole = rows.unionByName(later)
    for address in (flow.sink(0), flow.sink(1)):
        same_rows(table(spark, address), whole)
    for address in (flow.place.late, flow.place.dead):
        same_rows(table(spark, address).select(rows.columns).drop("at"), rows.drop("at"))


@pytest.mark.prove
def test_keys_of_every_type_are_found_again(spark: SparkSession, place: Path, rows: DataFrame) -> None:
    """Each epoch updates one row, whose key lies at a bound of its file, or beyond what statistics show."""
    keys = names("key")
    flow = Flow(place, sql=f"SELECT id, n, {', '.join(keys)} FROM events", sinks=1)
    flow.settings = {"epoch": {"max_files": 1}, "sinks": [{"delta": flow.sink(), "key": keys, "newest": "n"}]}
    flow.stream = {"start": {"version": 0}, "lateness": None}
    rows = rows.withColumn("n", F.lit(0))
    arrive(flow, rows)
    for number in range(most(KINDS)):
        arrive(flow, rows.where(f"id = {number}").withColumn("n", F.lit(1)))
    assert crash(spark, flow, "sink0.after", 5)
    run(spark, flow)
    proven(flow)
    same_rows(table(spark, flow.sink()), rows.select("id", F.lit(1).alias("n"), *keys))


def test_statistics_hold_every_key_of_their_file(spark: SparkSession, place: Path, rows: DataFrame) -> None:
    """Of each type, in a file with all values of it, and in one with a value alone."""
    kinds = [(i, kind) for i, kind in enumerate(KINDS) if kind.can("key")]
    rows.coalesce(1).write.format("delta").save(str(place / "t"))
    rows.repartitionByRange(most(KINDS), "id").write.format("delta").mode("append").save(str(place / "t"))
    logs = sorted((place / "t" / "_delta_log").glob("*.json"))
    files = [json.loads(line)["add"] for log in logs for line in log.read_text().split("\n") if '"add"' in line]
    assert len(files) == 1 + most(KINDS)
    types = {i: rows.schema[f"c{i}"].dataType.simpleString() for i, _ in kinds}
    bounded = [i for i, _ in kinds if types[i] in MEASURES]
    measured = rows.select("id", *(F.expr(MEASURES[types[i]].format(f"c{i}")).alias(f"c{i}") for i in bounded))
    found = {row["id"]: row.asDict() for row in measured.collect()}
    assert len(bounded) > 6
    passed_over = 0
    for number, file in enumerate(files):
        there = json.loads(file["stats"])
        for i in bounded:
            held = [one for one in found.values() if one[f"c{i}"] is not None]
            least, most_ = there["minValues"], there["maxValues"]
            mine = held if number == 0 else [one for one in held if one["id"] == least["id"] == most_["id"]]
            for one in mine:
                assert may_hold(file["stats"], [_bound(f"c{i}", types[i], one)]), (types[i], one["id"], there)
            for one in held:
                passed_over += not may_hold(file["stats"], [_bound(f"c{i}", types[i], one)])
    assert passed_over > 500, "bounds that hold everything are of no use"


def _bound(column: str, kind: str, row: dict[str, object]) -> Bound:
    return Bound(column, kind, row[column], row[column])


@pytest.mark.prove
@pytest.mark.parametrize("way", ["slices", "rows"])
def test_windows_keep_values_of_every_type(spark: SparkSession, place: Path, rows: DataFrame, way: str) -> None:
    grouped, ordered = names("GROUP BY, join"), names("newest")
    counted = ", ".join(f"count(c{i}) AS n{i}" for i in range(len(KINDS)))
    peaks = ", ".join(f"min({name}) AS min_{name}, max({name}) AS max_{name}" for name in ordered)
    flow = Flow(place, sinks=1, settings={"windows": way, "epoch": {"max_files": 1}})
    flow.sql = (
        f"SELECT window.start AS w, {', '.join(grouped)}, {counted}, {peaks} FROM events "
        f"GROUP BY window(at, '1 minute'), {', '.join(grouped)}"
    )
    _through_windows(spark, flow, rows)


def _through_windows(spark: SparkSession, flow: Flow, rows: DataFrame) -> None:
    """The same rows twice, in two epochs, before their window closes; the sink against the SQL in batch."""
    flow.stream = {"start": {"version": 0}, "lateness": "1 minute"}
    arrive(flow, rows)
    arrive(flow, rows)
    arrive(flow, rows.withColumn("at", F.expr("at + INTERVAL '1' HOUR")))
    assert crash(spark, flow, "state.after", 2)
    run(spark, flow)
    proven(flow)
    rows.unionByName(rows).createOrReplaceTempView("events")
    same_rows(table(spark, flow.sink()), spark.sql(flow.sql))


@pytest.mark.prove
def test_totals_keep_values_of_every_type(spark: SparkSession, place: Path, rows: DataFrame) -> None:
    grouped, ordered = names("GROUP BY, join"), names("newest")
    peaks = ", ".join(f"min({name}) AS min_{name}, max({name}) AS max_{name}" for name in ordered)
    flow = Flow(place, sinks=1, settings={"unbounded": True, "epoch": {"max_files": 1}})
    flow.stream = {"start": {"version": 0}, "lateness": None}
    grouped = [name for name in grouped if name in names("key")]
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": grouped}]
    flow.sql = f"SELECT {', '.join(grouped)}, count(*) AS n, {peaks} FROM events GROUP BY {', '.join(grouped)}"
    for _ in range(2):
        arrive(flow, rows)
    assert crash(spark, flow, "state.after", 2)
    run(spark, flow)
    proven(flow)
    rows.unionByName(rows).createOrReplaceTempView("events")
    same_rows(table(spark, flow.sink()), spark.sql(flow.sql))


@pytest.mark.prove
def test_joins_and_lookups_go_by_values_of_every_type(spark: SparkSession, place: Path, rows: DataFrame) -> None:
    keys = [name for name in names("GROUP BY, join") if KINDS[int(name[1:])].orders]
    same = " AND ".join(f"e.{name} <=> o.{name}" for name in keys)
    every = ", ".join(f"o.c{i} AS d{i}" for i in range(len(KINDS)))
    looked = ", ".join(f"l.c{i} AS l{i}" for i in range(len(KINDS)))
    flow = Flow(place, sinks=1)
    flow.settings = {
        "streams": {
            name: {"delta": str(place / "lake" / name), "event_time": "at", "lateness": "10 seconds"}
            for name in ("first", "second")
        },
        "lookups": {"looked": {"delta": str(place / "lake" / "looked")}},
    }
    flow.sql = (
        f"SELECT e.id, e.at, {every}, {looked} FROM first e JOIN second o ON {same} AND o.at BETWEEN "
        f"e.at - INTERVAL '10' SECONDS AND e.at + INTERVAL '10' SECONDS LEFT JOIN looked l ON "
        + " AND ".join(f"e.{name} <=> l.{name}" for name in keys)
    )
    for name in ("first", "looked"):
        arrive(flow, rows, name)
    arrive(flow, rows.where("false"), "second")
    run(spark, flow)
    arrive(flow, rows, "second")
    for name in ("first", "second"):
        arrive(flow, rows.withColumn("at", F.expr("at + INTERVAL '1' HOUR")), name)
    assert crash(spark, flow, "sink0.after")
    run(spark, flow)
    proven(flow)
    same_rows(
        table(spark, flow.sink()).drop("at"),
        rows.select("id", *(F.col(f"c{i}").alias(f"{p}{i}") for p in "dl" for i in range(len(KINDS)))),
    )


@pytest.mark.prove
def test_partitions_by_every_type(spark: SparkSession, place: Path) -> None:
    by = names("partition_by")
    flow = Flow(place, sql=f"SELECT id, n, {', '.join(by)} FROM events")
    flow.stream = {"start": {"version": 0}, "lateness": None}
    flow.settings = {
        "epoch": {"max_files": 1},
        "sinks": [
            {"delta": flow.sink(0), "partition_by": [*by]},
            {"delta": flow.sink(1), "key": [*by, "id"], "newest": "n", "partition_by": [*by]},
        ],
    }
    rows = spark.sql(source_sql(KINDS, most(KINDS), mild=True)).withColumn("n", F.lit(0))
    for number in range(2):
        arrive(flow, rows.withColumn("n", F.lit(number)))
    assert crash(spark, flow, "sink1.after", 2)
    run(spark, flow)
    proven(flow)
    assert table(spark, flow.sink(1)).where("n = 1").count() == table(spark, flow.sink(1)).count() == rows.count()
    same_rows(table(spark, flow.sink(0)).where("n = 1"), rows.select("id", F.lit(1).alias("n"), *by))


@pytest.mark.parametrize("one", REFUSED, ids=lambda one: one.name)
def test_a_type_that_no_table_has_is_refused_before_anything_is_made(
    spark: SparkSession, place: Path, one: Refused
) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive([event(0)])
    nested = ("{}", "named_struct('a', {}, 'b', n)", "map('a', array({}))")
    for sql in nested:
        flow.sql = f"SELECT at, {sql.format(one.sql)} AS x FROM events"
        with pytest.raises(WrongColumn) as refused:
            run(spark, flow)
        assert f"In the SQL write {one.instead}" in str(refused.value)
        assert refused.value.exit_code == 2
    assert not Path(flow.place.ledger).exists()
    assert not Path(flow.sink()).exists()


def test_state_of_a_type_that_no_table_has_is_refused_with_the_aggregate(spark: SparkSession, place: Path) -> None:
    between = "at - TIMESTAMP'2000-01-01 00:00:00Z'"
    flow = Flow(place, sinks=1)
    flow.arrive([event(0)])
    flow.sql = f"SELECT k, CAST(max({between}) AS STRING) AS x FROM events GROUP BY k"
    flow.settings = {"unbounded": True, "sinks": [{"delta": flow.sink(), "key": ["k"]}]}
    with pytest.raises(WrongColumn, match=r"state totals: .* found max\(at - .* Aggregate, or group by, text or a"):
        run(spark, flow)
    flow.settings = {"windows": "slices"}
    flow.sql = f"SELECT CAST(max({between}) AS STRING) AS x FROM events GROUP BY window(at, '1 hour')"
    with pytest.raises(WrongColumn, match=r"state slices: .* found max\(at - .* Write `windows: rows`"):
        run(spark, flow)
    flow.settings = {"windows": "rows"}
    flow.arrive([event(7200)])
    run(spark, flow)
    assert [row["x"] for row in rows_of(flow.sink())] == ["INTERVAL '366 00:00:00' DAY TO SECOND"]
    proven(flow)


@pytest.mark.prove
def test_tables_of_a_killed_begin_have_the_types_of_the_next_text(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.settings["sinks"] = [{"delta": flow.sink(), "partition_by": ["k"]}]
    flow.arrive([event(0)])
    assert crash(spark, flow, "begin.tables.after")
    flow.stream["delta"] = str(place / "lake" / "other")
    rows = spark.sql("SELECT timestamp_seconds(978307200 + id * 100) AS at, id AS k, 'x' AS v, 'y' AS n FROM range(3)")
    dead = rows.withColumn("at", F.expr("CAST(NULL AS TIMESTAMP)"))
    arrive(flow, rows, "other")
    arrive(flow, dead, "other")
    flow.settings["sinks"] = [{"delta": flow.sink(), "partition_by": ["n"]}]
    run(spark, flow)
    arrive(flow, rows, "other")  # of which the first two are late
    run(spark, flow)
    assert [(row["k"], row["n"]) for row in rows_of(flow.place.dead)] == [(0, "y"), (1, "y"), (2, "y")]
    assert sorted(row["v"] for row in rows_of(flow.place.late)) == ["x", "x"]
    assert len(rows_of(flow.sink())) == 4
    proven(flow)


@pytest.mark.prove
def test_tables_of_a_killed_reset_have_the_types_of_the_next_text(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.arrive([event(0)])
    run(spark, flow)
    flow.sql = "SELECT at, k, n FROM events"
    with crash_at("reset.empty.after") as planned, pytest.raises(Crash):
        reset(spark, flow)
    assert planned.fired
    flow.stream["delta"] = str(place / "lake" / "other")
    rows = spark.sql("SELECT timestamp_seconds(978307200 + id * 100) AS at, id AS k, 'y' AS n FROM range(3)")
    arrive(flow, rows, "other")
    arrive(flow, rows.withColumn("at", F.expr("CAST(NULL AS TIMESTAMP)")), "other")
    reset(spark, flow)
    run(spark, flow)
    assert [(row["k"], row["n"]) for row in rows_of(flow.place.dead)] == [(0, "y"), (1, "y"), (2, "y")]
    assert len(rows_of(flow.sink())) == 3
    proven(flow)


def as_class(flow: Flow, rows: DataFrame, keys: list[str]) -> None:
    """A class that keeps its newest row, and gives each row with the one before."""
    columns = [field for field in rows.schema if field.name not in ("id", "at")]
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns)
    twice = ", ".join(f"b{field.name} {field.dataType.simpleString()}" for field in columns)
    kept = ", ".join(f"s{field.name} {field.dataType.simpleString()}" for field in columns)
    names = [field.name for field in columns]
    flow.process = "copies:Copies"
    flow.write_class(
        f"""
NAMES = {names}


class Copies:
    output = "id INT, {ddl}, {twice}"
    state = {{"kept": "{kept}"}}

    def process(self, key, rows, ctx):
        for row in rows:
            now = tuple(row[name] for name in NAMES)
            kept = ctx.get_state("kept") or {{}}
            yield (row["id"], *now, *(kept.get("s" + name) for name in NAMES))
            ctx.put_state("kept", now)
"""
    )
    flow.settings |= {"key": keys}


@pytest.mark.prove
def test_a_class_has_values_of_every_type(spark: SparkSession, place: Path, rows: DataFrame) -> None:
    keys, columns = names("class: key"), names("class: column")
    flow = Flow(place, sinks=1, settings={"epoch": {"max_files": 1}})
    flow.stream = {"start": {"version": 0}, "lateness": "1 minute"}
    given = spark.sql(source_sql(KINDS, most(KINDS), mild=True)).select("id", "at", *columns)
    as_class(flow, given, keys)
    for hours in (0, 1, 2):
        arrive(flow, given.withColumn("at", F.expr(f"at + INTERVAL '{hours}' HOUR")))
    assert crash(spark, flow, "sink0.after", 2)
    run(spark, flow)
    proven(flow)
    found = table(spark, flow.sink())
    same_rows(found.select("id", *columns), given.unionByName(given).select("id", *columns))
    before = found.where("id = 0").select(*(f"b{name}" for name in columns)).collect()
    assert sorted(sum(value is not None for value in row) for row in before) == [0, len(columns)]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("CAST(X'80' AS STRING)", "text that is UTF-8"),
        pytest.param("timestamp_micros(-99999999999999999)", "year 1", marks=pytest.mark.prove),
    ],
)
def test_a_class_is_not_given_what_python_has_not(spark: SparkSession, place: Path, value: str, said: str) -> None:
    flow = Flow(place, sinks=1, stream={"lateness": "0 seconds"})
    given = spark.sql(f"SELECT 1 AS id, TIMESTAMP'2001-01-01 00:00:00Z' AS at, 'a' AS k, {value} AS c")
    as_class(flow, given, ["k"])
    arrive(flow, given.unionByName(given.withColumn("at", F.expr("at + INTERVAL '1' HOUR"))))
    with pytest.raises(ProcessFault, match=said):
        run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.open is None, "no epoch is open"
