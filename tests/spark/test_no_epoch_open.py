"""What computes comes before an epoch's intent: a row that the SQL or a sink cannot take leaves no epoch open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.flow import RUNNING, Flow, event
from support.running import crash, run

from floodmark.errors import InputFault

BAD = 13
WINDOW = "GROUP BY window(at, '1 minute')"
# Of each: the form, SQL that fails for the bad row alone, and what it says. Spark gives the last two no SQLSTATE.
FORMS = {
    "windows": (f"SELECT window.start AS start, make_date(2024, int(max(n)), 1) AS d FROM events {WINDOW}", "MonthOf"),
    "having": (
        f"SELECT window.start AS start, max(n) AS m FROM events {WINDOW} HAVING to_json(map(max(n), 1, {BAD}, 2)) > ''",
        "DUPLICATED_MAP_KEY",
    ),
    "over": (
        "SELECT at, make_date(2024, int(sum(n) OVER (ORDER BY at RANGE BETWEEN INTERVAL '1' SECOND PRECEDING"
        " AND CURRENT ROW)), 1) AS d FROM events",
        "DATETIME_FIELD_OUT_OF_BOUNDS",
    ),
    "slices": (
        "SELECT window.start AS start, timestamp_millis(CASE WHEN max(n) = 13 THEN 9223372036854775807 END) AS t"
        " FROM events GROUP BY window(at, '1 minute', '20 seconds')",
        "ArithmeticException: long overflow",
    ),
    "sessions": (
        "SELECT session_window.start AS start, sequence(1, int(max(n)), CASE WHEN max(n) = 13 THEN -1 ELSE 1 END) AS s"
        " FROM events GROUP BY session_window(at, '20 seconds')",
        "Illegal sequence boundaries",
    ),
}
SMALL = {"small": {"check": f"n <> {BAD}", "on_fail": "drop"}}
ROWS = "SELECT at, k, v, n FROM events"


def refused(spark: SparkSession, flow: Flow, told: str) -> str:
    """What the run says; no epoch is open after it."""
    with pytest.raises(InputFault, match=told) as met:
        run(spark, flow)
    head = flow.ledger().head
    assert head is not None and head.open is None
    assert all(DeltaTable(flow.sink(i)).to_pyarrow_table().num_rows == 0 for i in range(flow.sinks))
    return str(met.value)


@pytest.mark.parametrize(
    "form",
    [form if form == "having" else pytest.param(form, marks=pytest.mark.prove) for form in FORMS],
)
def test_sql_that_fails_above_single_rows_leaves_no_epoch_open(spark: SparkSession, place: Path, form: str) -> None:
    sql, told = FORMS[form]
    flow = Flow(place, sql=sql, sinks=1, settings={"qos": list(FORMS).index(form) % 3})
    flow.arrive([event(0, n=BAD), event(1, n=3), event(300, n=1)])
    said = refused(spark, flow, f"the SQL fails on a row.*{told}")
    assert "Nothing of epoch 1 was written" in said and "abandon" not in said
    flow.stream["expect"] = SMALL
    assert [epoch.dropped for epoch in run(spark, flow).epochs] == [1]
    assert DeltaTable(flow.sink()).to_pyarrow_table().num_rows > 0


@pytest.mark.parametrize(
    ("sql", "sink", "told"),
    [
        (ROWS, {"where": "make_date(2024, int(n), 1) > DATE'2000-01-01'"}, "DATETIME_FIELD_OUT_OF_BOUNDS"),
        (ROWS, {"key": ["k"]}, r"expected one result for each key \(k\), found 2.*Nothing of epoch 1 was written"),
        pytest.param(
            *(ROWS, {"key": ["k", "n"], "delete": "array(1, 2, 3, 4)[n] = 0"}, "INVALID_ARRAY_INDEX"),
            marks=pytest.mark.prove,
        ),
        pytest.param(
            *(RUNNING, {"key": ["k"], "where": f"1 / (low - {BAD + 1}) IS NOT NULL"}, "DIVIDE_BY_ZERO"),
            marks=pytest.mark.prove,
        ),
    ],
)
def test_what_a_sink_makes_of_the_results_leaves_no_epoch_open(
    spark: SparkSession, place: Path, sql: str, sink: dict[str, Any], told: str
) -> None:
    """The sink beside it gets nothing either."""
    flow = Flow(place, sql=sql)
    plain = {"delta": flow.sink(1)} | ({"key": ["k"]} if sql is RUNNING else {})
    flow.settings = {"sinks": [{"delta": flow.sink(), **sink}, plain], "unbounded": sql is RUNNING}
    flow.arrive([event(0, n=BAD), event(1, k="a" if "delete" not in sink else "b", n=3)])
    if sql is RUNNING:
        flow.arrive([event(2, k="bad", n=BAD)])
    refused(spark, flow, told)
    flow.stream["expect"] = SMALL
    assert run(spark, flow).epochs
    assert DeltaTable(flow.sink()).to_pyarrow_table().num_rows == 1


def test_a_sinks_own_constraint_and_the_console_leave_no_epoch_open(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sql=ROWS, sinks=1)
    flow.arrive([event(0, n=1)])
    run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.sink()}` ADD CONSTRAINT small CHECK (n <> {BAD})")
    flow.arrive([event(1, n=BAD)])
    with pytest.raises(InputFault, match=r"the table's own constraint.*Drop the constraint.*`expect`"):
        run(spark, flow)
    flow.settings["sinks"] = [{"delta": flow.sink()}, {"console": True, "qos": 1, "where": f"1 / (n - {BAD}) < 0"}]
    spark.sql(f"ALTER TABLE delta.`{flow.sink()}` DROP CONSTRAINT small")
    with pytest.raises(InputFault, match=r"DIVIDE_BY_ZERO.*Nothing of epoch 2 was written"):
        run(spark, flow)
    head = flow.ledger().head
    assert head is not None and (head.epoch, head.open) == (1, None)


def test_an_epoch_that_is_open_all_the_same_says_so_with_the_ways_out(spark: SparkSession, place: Path) -> None:
    """Its first attempt was by what computed then; the table's constraint has come since."""
    flow = Flow(place, sql=ROWS, sinks=1)
    flow.arrive([event(0, n=BAD)])
    assert crash(spark, flow, "sink0.before")
    spark.sql(f"ALTER TABLE delta.`{flow.sink()}` ADD CONSTRAINT small CHECK (n <> {BAD})")
    said = r"own constraint.*Epoch 1 is open.*editing.*floodmark abandon counted.*floodmark reset count"
    with pytest.raises(InputFault, match=said):
        run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.sink()}` DROP CONSTRAINT small")
    assert [epoch.attempt for epoch in run(spark, flow).epochs] == [3]
