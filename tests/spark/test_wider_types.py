"""A source's owner makes a column wider, or gives a struct a field, while an epoch is open (ADR 0049).

The epoch is finished with the types that it was begun with; then the rule goes on, or is refused with no epoch open.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name all of Spark's users know
from support.crash import Crash, crash_at
from support.flow import START, Flow, event, rows_of
from support.running import backfill, crash, run

from floodmark.audit.certificate import audit
from floodmark.core.protocol.records.rows import Intent
from floodmark.errors import WrongColumn
from floodmark.ledger.delta import tables
from floodmark.spark.read.narrowing import narrowed, older_types

# Of each change: the column before and after, and what the owner says.
CHANGES = {
    "field": ("named_struct('a', 1) AS s", "named_struct('a', 1, 'b', 2) AS s", ["ADD COLUMNS (s.b INT)"]),
    "wider": (
        "1 AS s",
        "3000000000L AS s",
        ["SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", "ALTER COLUMN s TYPE BIGINT"],
    ),
}
MINUTE = int(START.timestamp()) * 1_000_000
WINDOW = "GROUP BY window(at, '1 minute')"
COUNTING = """
class T:
    output = "n BIGINT"
    state = {"last": "n BIGINT"}

    def process(self, key, rows, ctx):
        for row in rows:
            ctx.put_state("last", (ctx.incr_counter("rows"),))
            yield (1,)
"""
# What the rule gives, and what it says once no epoch is open; None: it goes on. The first keeps rows, the last takes
# nothing of the column but what is set apart.
RULES = {
    "kept": (f"SELECT window.start AS at, count(DISTINCT s) AS c FROM events {WINDOW}", "the rows in its state"),
    "stateless": ("SELECT at, s FROM events", "the table's columns differ from the rule's"),
    "grouped": (f"SELECT window.start AS at, s, count(*) AS c FROM events {WINDOW}, s", "the rows in its state"),
    "unread": ("SELECT at FROM events WHERE s IS NOT NULL", None),
}


def _add(spark: SparkSession, flow: Flow, column: str, time: str) -> None:
    rows = spark.sql(f"SELECT CAST('2001-01-01 {time}' AS TIMESTAMP) AS at, {column}")
    rows.write.format("delta").mode("append").save(flow.source)


def _alter(spark: SparkSession, flow: Flow, changes: list[str]) -> None:
    for change in changes:
        spark.sql(f"ALTER TABLE delta.`{flow.source}` {change}")


@pytest.mark.parametrize(
    ("kind", "change", "point"),
    [
        ("kept", "wider", "state.after"),
        *(
            pytest.param(kind, change, point, marks=pytest.mark.prove)
            for kind in RULES
            for change in CHANGES
            for point in ("intent.after", "sink0.before", "sink0.after", "commit.before")
        ),
    ],
)
def test_the_open_epoch_is_finished_with_the_types_it_began_with(
    spark: SparkSession, place: Path, kind: str, change: str, point: str
) -> None:
    (sql, told), (before, after, changes) = RULES[kind], CHANGES[change]
    flow = Flow(place, sql=sql, sinks=1, stream={"start": {"version": 0}})
    _add(spark, flow, before, "00:00:00")
    run(spark, flow)
    _add(spark, flow, before, "00:01:10")
    assert crash(spark, flow, point)
    _alter(spark, flow, changes)
    _add(spark, flow, after, "00:03:10")
    if told is None:
        run(spark, flow)
    else:
        with pytest.raises(WrongColumn, match=told):
            run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.open is None and head.epoch == (3 if told is None else 2)
    assert len(rows_of(flow.sink())) == (0 if "window" in sql else head.epoch), "no window has ended yet"
    made = audit(flow.name, flow.home, deep=True)
    assert made is not None and made.verdict == "proven", made.findings


@pytest.mark.parametrize(
    ("change", "sql", "settings", "told"),
    [
        (
            "wider",
            "SELECT at, max(s) > 0 AS b FROM events GROUP BY at",
            {"unbounded": True},
            "state/totals rows (`max_0`: kept as int, found bigint)",
        ),
        pytest.param(
            "wider",
            f"SELECT window.start AS at, max(s) > 0 AS b FROM events {WINDOW}",
            {"windows": "slices"},
            "state/slices rows (`max_0`: kept as int, found bigint)",
            marks=pytest.mark.prove,
        ),
        (
            "field",
            "SELECT at, max(s).a > 0 AS b FROM events GROUP BY at",
            {"unbounded": True},
            "state/totals rows (`max_0`.`b`: found int, kept without it)",
        ),
        pytest.param(
            "field",
            f"SELECT window.start AS at, s.a > 0 AS b, count(*) AS n FROM events {WINDOW}, s",
            {"windows": "slices"},
            "state/slices rows (`s`.`b`: found int, kept without it)",
            marks=pytest.mark.prove,
        ),
    ],
)
def test_parts_of_another_type_are_refused_before_an_epoch(
    spark: SparkSession, place: Path, change: str, sql: str, settings: dict[str, object], told: str
) -> None:
    """The sink's columns are as before; only the parts in state are of another type."""
    flow = Flow(place, sql=sql, stream={"start": {"version": 0}}, settings=settings)
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": ["at"]}]
    before, after, changes = CHANGES[change]
    for time in ("00:00:00", "00:01:10"):
        _add(spark, flow, before, time)
        run(spark, flow)
    _alter(spark, flow, changes)
    _add(spark, flow, after, "00:03:10")
    with pytest.raises(WrongColumn, match=re.escape(told)):
        run(spark, flow)
    head = flow.ledger().head
    assert head is not None and (head.open, head.epoch) == (None, 2)


def test_parts_of_a_lookups_column_of_another_type_are_refused_before_an_epoch(
    spark: SparkSession, place: Path
) -> None:
    """No column of a stream has changed."""
    cities = str(place / "lake" / "cities")
    sql = "SELECT e.k AS k, max(c.price) > 0 AS b FROM events e JOIN cities c ON e.k = c.k GROUP BY e.k"
    flow = Flow(place, sql=sql, settings={"unbounded": True, "lookups": {"cities": {"delta": cities}}})
    flow.settings["sinks"] = [{"delta": flow.sink(), "key": ["k"]}]
    for type in (pa.int32(), pa.int64()):
        prices = pa.table({"k": ["a"], "price": pa.array([1], type)})
        write_deltalake(cities, prices, mode="overwrite", schema_mode="overwrite")
        flow.arrive([event(1)])
        if type == pa.int32():
            run(spark, flow)
    with pytest.raises(WrongColumn, match="its state/totals rows \\(`max_0`: kept as int, found bigint"):
        run(spark, flow)


def test_a_class_is_refused_before_its_state_is_rewritten(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, process="mine:T", settings={"key": ["s"]}, sinks=1, stream={"start": {"version": 0}})
    flow.write_class(COUNTING)
    before, after, changes = CHANGES["wider"]
    for time in ("00:00:00", "00:01:10"):
        _add(spark, flow, before, time)
    run(spark, flow)
    _alter(spark, flow, changes)
    _add(spark, flow, after, "00:03:10")
    state = flow.place.state(1, "last")
    kept = tables.newest_version(state)
    with pytest.raises(WrongColumn, match="the rows in its state"):
        run(spark, flow)
    assert tables.newest_version(state) == kept


@pytest.mark.prove
@pytest.mark.parametrize("earlier", [False, True], ids=["while it is open", "before it"])
@pytest.mark.parametrize("point", ["backfill.intent.after", "backfill.sink.after"])
@pytest.mark.parametrize("kind", ["stateless", "unread"])
def test_an_open_backfill_is_finished_with_the_types_it_began_with(
    spark: SparkSession, place: Path, kind: str, point: str, earlier: bool
) -> None:
    (sql, told), (before, _, changes) = RULES[kind], CHANGES["wider"]
    flow = Flow(place, sql=sql, sinks=1, stream={"start": {"version": 0}})
    for time in ("00:00:10", "00:00:20", "00:05:00"):
        _add(spark, flow, before, time)
    run(spark, flow)
    if earlier and told is None:
        _alter(spark, flow, changes)
    with crash_at(point) as planned, pytest.raises(Crash):
        _ = backfill(spark, flow, MINUTE, MINUTE + 60_000_000)
    assert planned.fired
    if not earlier:
        _alter(spark, flow, changes)
    if told is None or earlier:
        run(spark, flow)
    else:
        with pytest.raises(WrongColumn, match=told):
            run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.backfill is None and list(head.backfills) == [1]
    assert len(rows_of(flow.sink())) == 3
    made = audit(flow.name, flow.home, deep=True)
    assert made is not None and made.verdict == "proven", made.findings


def test_the_types_that_an_epoch_was_begun_with_are_those_of_the_epoch_before_it(
    spark: SparkSession, place: Path
) -> None:
    """Made wider between two epochs, and wider again while the second is open."""
    flow = Flow(place, sql="SELECT at, CAST(s AS STRING) AS s FROM events", sinks=1, stream={"start": {"version": 0}})
    widening, bigint = CHANGES["wider"][2]
    _add(spark, flow, "1S AS s", "00:00:00")
    run(spark, flow)
    _alter(spark, flow, [widening, "ALTER COLUMN s TYPE INT"])
    _add(spark, flow, "70000 AS s", "00:00:01")
    assert crash(spark, flow, "sink0.after")
    _alter(spark, flow, [bigint])
    _add(spark, flow, "3000000000L AS s", "00:00:02")
    run(spark, flow)
    assert sorted(row["s"] for row in rows_of(flow.sink())) == ["1", "3000000000", "70000"]
    assert [dict(intent.columns["events"])["s"] for intent in _intents(flow)] == ["int", "bigint"]


def _intents(flow: Flow) -> list[Intent]:
    """One of each epoch that read other columns than the one before."""
    bodies = (Intent.model_validate_json(row.body) for row in flow.ledger().rows if row.kind == "intent")
    return list({intent.entry: intent for intent in bodies if intent.columns}.values())


def _frame(spark: SparkSession, sql: str) -> DataFrame:
    return spark.sql(f"SELECT {sql} AS c, 'other' AS `o.d`")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1Y", "1L"),
        ("named_struct('a', 1)", "named_struct('z', 0, 'a', 1, 'b', 2)"),
        ("array(named_struct('a', 1), NULL)", "array(named_struct('a', 1L, 'b', 2), NULL)"),
        ("map(1, named_struct('a', 1))", "map(1L, named_struct('b', 2, 'a', 1))"),
        ("CAST(NULL AS STRUCT<a: INT>)", "CAST(NULL AS STRUCT<a: INT, b: INT>)"),
        ("named_struct('a', CAST(NULL AS ARRAY<INT>))", "named_struct('a', CAST(NULL AS ARRAY<BIGINT>))"),
        ("CAST(NULL AS MAP<INT, INT>)", "CAST(NULL AS MAP<INT, BIGINT>)"),
        ("DATE'2001-02-03'", "TIMESTAMP_NTZ'2001-02-03 00:00:00'"),
        ("1.50BD", "CAST(1.5 AS DECIMAL(20, 4))"),
    ],
)
def test_wider_rows_that_fit_are_read_as_what_they_were(spark: SparkSession, before: str, after: str) -> None:
    old, new = _frame(spark, before), _frame(spark, after)
    recorded = [(field.name, field.dataType.simpleString()) for field in old.schema]
    found = narrowed(new, older_types(recorded, new.schema))
    assert found.schema.simpleString() == old.schema.simpleString()
    assert found.collect() == old.collect()
    assert older_types(recorded, old.schema) == {}


def test_a_type_that_cannot_be_had_again_is_left_as_it_is(spark: SparkSession) -> None:
    frame = _frame(spark, "named_struct('b', 2)").withColumn("odd", F.struct(F.lit(1).alias("a b")))
    assert older_types([("c", "struct<a:int>"), ("odd", "struct<a c:int>"), ("gone", "int")], frame.schema) == {}


def test_a_source_that_drops_a_nested_not_null_stops_nobody(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql="SELECT at, s FROM events", sinks=1, stream={"start": {"version": 0}})
    table = f"delta.`{flow.source}`"
    spark.sql(f"CREATE TABLE {table} (at TIMESTAMP, s STRUCT<a: INT NOT NULL>) USING delta")
    spark.sql(f"INSERT INTO {table} SELECT timestamp'2001-01-01 00:00:00', named_struct('a', 1)")
    run(spark, flow)
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN s.a DROP NOT NULL")
    _add(spark, flow, "named_struct('a', CAST(NULL AS INT)) AS s", "00:00:01")
    run(spark, flow)
    assert [row["s"] for row in rows_of(flow.sink())].count({"a": None}) == 1
