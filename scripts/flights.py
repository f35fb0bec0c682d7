"""The demo's input and its expected result: real flights in portions, and the rule's result by DuckDB alone.

Run as a program, it adds a portion to LAKE/flights every minute until all have arrived. With the argument `first`, it
adds the first portion alone, and that only for the example rule's sake: if FLOODMARK_RULES has the rule.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import TableNotFoundError

FLIGHTS = Path(__file__).resolve().parents[1] / "examples" / "data" / "flights.parquet"
EXAMPLE = "departure_delays.yaml"  # the rule that reads them
PORTIONS = 10
PAUSE = 60.0  # seconds between two portions
SPREAD_MINUTES = 25  # below the rule's lateness of 30 minutes: out of order, yet none late

# A flight arrives up to SPREAD_MINUTES after its time; hash() spreads the flights evenly and the same way every time.
IN_ORDER_OF_ARRIVAL = f"""
SELECT date, delay, distance, origin, destination FROM '{FLIGHTS}'
ORDER BY epoch_us(date) + hash(date, delay, distance, origin, destination) % {SPREAD_MINUTES * 60_000_000},
         origin, destination, delay, distance
"""  # noqa: S608 - our own file


@dataclass(frozen=True)
class Portion:
    """Flights that arrive together, in one commit of one file."""

    number: int
    table: pa.Table

    @property
    def span(self) -> str:
        times = self.table["date"].to_pylist()
        return f"{min(times):%d %b %H:%M} to {max(times):%d %b %H:%M}"


def portions(count: int) -> list[Portion]:
    """The flights in the order of their arrival, in `count` portions of one size, whose times overlap."""
    return uneven([1] * count)


def uneven(shares: Sequence[int]) -> list[Portion]:
    """The same in portions of different sizes: each gets its share of the flights."""
    with duckdb.connect() as db:
        found = db.sql(IN_ORDER_OF_ARRIVAL)
        assert found is not None
        everything: pa.Table = found.to_arrow_table()
    ends = [-(-everything.num_rows * sum(shares[:upto]) // sum(shares)) for upto in range(len(shares) + 1)]
    return [Portion(at + 1, everything.slice(ends[at], ends[at + 1] - ends[at])) for at in range(len(shares))]


def arrive(portion: Portion, table: str | Path) -> None:
    write_deltalake(str(table), portion.table, mode="append")


def arrived(table: str | Path) -> int:
    """How many portions are in the table: each was one commit."""
    try:
        return DeltaTable(str(table)).version() + 1
    except TableNotFoundError:
        return 0


def feed(table: str | Path) -> Iterator[str]:
    """Add one portion for each item taken, starting after the existing ones. Yields a message about each."""
    waiting = portions(PORTIONS)
    for portion in waiting[arrived(table) :]:
        arrive(portion, table)
        yield f"portion {portion.number} of {PORTIONS} has arrived: flights of {portion.span}"


@dataclass(frozen=True)
class Comparison:
    """The sink's rows compared with the rows of the answer."""

    expected: int
    found: int
    differing: int
    first: list[tuple[Any, ...]]

    @property
    def equal(self) -> bool:
        return self.differing == 0 and self.expected == self.found and self.expected > 0


# Only final windows: those that end at or before the watermark.
ANSWER = f"""
SELECT hour, origin, count(*) AS flights, avg(delay) AS mean_delay
FROM (SELECT date_trunc('hour', date) AS hour, origin, delay FROM '{FLIGHTS}')
WHERE epoch_us(hour) + 3600000000 <= $watermark
GROUP BY hour, origin
"""  # noqa: S608
# As multisets, since a doubled row must count: (hour, origin) is unique in the answer only.
DIFFERING = """
SELECT count(*) FROM answer FULL JOIN sink ON answer.hour = sink.hour AND answer.origin = sink.origin
WHERE answer.flights IS DISTINCT FROM sink.flights
   OR abs(answer.mean_delay - sink.mean_delay) > 1e-9 * greatest(1, abs(answer.mean_delay))
"""


def rows_of(sink: Path) -> pa.Table:
    """Read with Rust: pyarrow's data sets leave threads behind that may abort the process as it exits."""
    return pa.table(QueryBuilder().register("t", DeltaTable(str(sink))).execute("SELECT * FROM t").read_all())


def compare(written: pa.Table, watermark_us: int) -> Comparison:
    """Compare a sink's rows with the answer that DuckDB computes from the source file."""
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("written", written)
        db.execute("CREATE TABLE sink AS SELECT hour::TIMESTAMP AS hour, origin, flights, mean_delay FROM written")
        db.execute(f"CREATE TABLE answer AS {ANSWER}", {"watermark": watermark_us})
        (expected,), (found,), (differing,) = (
            _one(db, query) for query in ("SELECT count(*) FROM answer", "SELECT count(*) FROM sink", DIFFERING)
        )
        first = "SELECT hour, origin, flights, mean_delay FROM sink ORDER BY hour, flights DESC, origin LIMIT 5"
        return Comparison(expected, found, differing, db.execute(first).fetchall())


def _one(db: duckdb.DuckDBPyConnection, query: str) -> tuple[int]:
    (row,) = db.execute(query).fetchall()
    return (int(row[0]),)


def place(lake: str) -> str:
    """The address of the flights in a lake: a folder, or a URL of a store."""
    return f"{lake.rstrip('/')}/flights" if "://" in lake else str(Path(lake).absolute() / "flights")


def first(table: str, rules: Path) -> str:
    """Let the first portion arrive if nothing has, and if the example rule is there to read it. Returns a message."""
    if not (rules / EXAMPLE).exists():
        return f"no flights: {rules} has no {EXAMPLE}"
    return next(feed(table)) if arrived(table) == 0 else f"flights are in {table} already"


def main(arguments: list[str]) -> None:
    table = place(os.environ["LAKE"])
    if arguments == ["first"]:
        print(first(table, Path(os.environ["FLOODMARK_RULES"])), flush=True)
        return
    for text in feed(table):
        print(text, flush=True)
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1:])
