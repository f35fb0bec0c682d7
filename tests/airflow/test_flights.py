"""The demo's input is what it says, and its comparison would find a fault."""

from __future__ import annotations

from datetime import UTC, timedelta
from itertools import pairwise
from pathlib import Path

import flights
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

LATENESS = timedelta(minutes=30)


def microseconds(table: pa.Table) -> int:
    """A watermark that all but the last hour of the flights has passed."""
    return int((pc.max(table["date"]).as_py().replace(tzinfo=UTC) - LATENESS).timestamp() * 1_000_000)


@pytest.fixture(scope="module")
def everything() -> pa.Table:
    return pq.read_table(flights.FLIGHTS)


def test_portions_hold_every_flight_once(everything: pa.Table) -> None:
    together = pa.concat_tables(portion.table for portion in flights.portions(5))
    keys = [(name, "ascending") for name in together.column_names]
    assert together.sort_by(keys).to_pydict() == everything.sort_by(keys).to_pydict()


def test_portions_may_be_uneven(everything: pa.Table) -> None:
    found = flights.uneven((3, 1, 4))
    assert pa.concat_tables(one.table for one in found) == flights.portions(1)[0].table
    assert [round(8 * one.table.num_rows / everything.num_rows, 3) for one in found] == [3, 1, 4]


def test_portions_overlap_out_of_order_and_yet_nothing_is_late() -> None:
    found = [portion.table["date"] for portion in flights.portions(5)]
    for before, after in pairwise(found):
        assert pc.max(before).as_py() - LATENESS < pc.min(after).as_py() < pc.max(before).as_py()
    first = found[0].to_pylist()
    assert first != sorted(first)


def answer(everything: pa.Table, watermark: int) -> pa.Table:
    with flights.duckdb.connect() as db:
        db.execute(f"CREATE TABLE answer AS {flights.ANSWER}", {"watermark": watermark})
        found = db.sql("FROM answer")
        assert found is not None
        table: pa.Table = found.to_arrow_table()
    return table


@pytest.mark.parametrize(
    ("spoil", "equal"),
    [
        (lambda rows: rows, True),
        (lambda rows: rows.slice(1), False),
        (lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]), False),
        (lambda rows: pa.concat_tables([rows.slice(1), rows.slice(1, 1)]), False),
        (lambda rows: rows.set_column(2, "flights", pc.add(rows["flights"], 1)), False),
        (lambda rows: rows.set_column(3, "mean_delay", pc.add(rows["mean_delay"], 1e-6)), False),
        (lambda rows: rows.set_column(3, "mean_delay", pc.add(rows["mean_delay"], 1e-13)), True),
    ],
    ids=["same", "one lost", "one doubled", "one lost and one doubled", "wrong count", "wrong mean", "rounding"],
)
def test_the_comparison_finds_what_differs(everything: pa.Table, place: Path, spoil, equal: bool) -> None:  # type: ignore[no-untyped-def]
    watermark = microseconds(everything)
    write_deltalake(str(place / "sink"), spoil(answer(everything, watermark)))
    assert flights.compare(flights.rows_of(place / "sink"), watermark).equal is equal


def test_a_feed_goes_on_where_it_stopped(place: Path) -> None:
    coming = flights.feed(place / "flights")
    assert next(coming).startswith("portion 1 of 10")
    assert next(flights.feed(place / "flights")).startswith("portion 2 of 10")
    assert flights.arrived(place / "flights") == 2


def test_the_first_portion_arrives_once_and_only_for_the_example_rule(tmp_path: Path) -> None:
    table = flights.place(str(tmp_path))
    assert flights.first(table, tmp_path) == f"no flights: {tmp_path} has no {flights.EXAMPLE}"
    assert flights.arrived(table) == 0
    (tmp_path / flights.EXAMPLE).touch()
    assert flights.first(table, tmp_path).startswith(f"portion 1 of {flights.PORTIONS} has arrived")
    assert flights.first(table, tmp_path) == f"flights are in {table} already"
    assert flights.arrived(table) == 1


@pytest.mark.parametrize(
    ("lake", "table"), [("s3a://lake", "s3a://lake/flights"), ("/data/lake/", "/data/lake/flights")]
)
def test_the_flights_lie_in_a_folder_or_in_a_store(lake: str, table: str) -> None:
    assert flights.place(lake) == table
