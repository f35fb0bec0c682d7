"""A table of PostgreSQL, read whole: by Floodmark's first snapshot, and by Spark's own JDBC reader.

    python -m bench.postgres [--rows N] [--repeats N]

Both write the rows to Parquet with the same session. The reader of Spark has one partition, as it has by default, and
10,000 rows a fetch; and one for each core, by ranges of the key. The server is the one of the tests.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.postgres import Server, started

from floodmark.connectors.sources.postgres.slot import SlotSource
from floodmark.core.rules.rule import Stream
from floodmark.spark.session.jars import resolved

DRIVER = "org.postgresql:postgresql:42.7.8"
CACHE = Path(__file__).parents[1] / ".cache"
AIM = 1.0
FILLED = (
    "INSERT INTO orders SELECT i, now() - i * interval '1 second', 'k' || i % 1000, random(), (i % 10000) / 100.0 "
    "FROM generate_series(1, {rows}) i"
)


def driver_jar() -> Path:
    """JDBC's driver, fetched once for the checkout."""
    folder = CACHE / "postgresql"
    if not folder.exists():
        folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="floodmark-jdbc-") as work:
            for jar in resolved([DRIVER], "none:none", Path(work)).values():
                (folder / jar.name).write_bytes(jar.read_bytes())
    return next(folder.glob("*postgresql*.jar"))


def by_jdbc(spark: SparkSession, server: Server, rows: int, partitions: int) -> DataFrame:
    reader = spark.read.format("jdbc").option("url", f"jdbc:postgresql://127.0.0.1:{server.port}/postgres")
    reader = reader.option("user", "airflow").option("password", server.password).option("dbtable", "orders")
    reader = reader.option("fetchsize", "10000").option("driver", "org.postgresql.Driver")
    if partitions > 1:
        ranges = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": str(partitions)}
        reader = reader.options(**ranges)
    return reader.load()


def by_snapshot(spark: SparkSession, keep: Path) -> DataFrame:
    """With the slot's making, which the first run of a rule pays."""
    stream = Stream(kind="postgres", address="x", options={"connection": "shop", "table": "orders", "metadata": []})
    source = SlotSource("orders", stream, keep)
    begin = source.take_start()
    return source.frame(spark, begin, source.take_end(begin)).drop("_floodmark_malformed")


def measured(place: Path, repeats: int, read: Callable[[], DataFrame]) -> float:
    """Seconds, the median; the first time does not count."""
    spent = []
    for number in range(repeats + 1):
        begun = time.perf_counter()
        read().write.mode("overwrite").parquet(str(place / "out"))
        spent.append(time.perf_counter() - begun)
        print(f"  {spent[-1]:.2f} s{'' if number else ' (warm-up)'}", flush=True)
    return median(spent[1:])


def main(rows: int, repeats: int) -> None:
    place = CACHE / "bench" / "postgres"
    place.mkdir(parents=True, exist_ok=True)
    spark = (
        SparkSession.builder.master("local[*]").config("spark.jars", str(driver_jar()))
        .config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    )  # fmt: skip
    with started(place) as server:
        os.environ["FLOODMARK_CONN_SHOP"] = server.uri
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY, at timestamptz, k text, v float8, price numeric(10,2))",
                   FILLED.format(rows=rows), "VACUUM ANALYZE orders")  # fmt: skip
        cores = spark.sparkContext.defaultParallelism
        keep = place / "home" / "rule" / "sources" / "orders"
        ours = measured(place, repeats, lambda: by_snapshot(spark, keep))
        for partitions in dict.fromkeys((1, cores)):
            theirs = measured(place, repeats, lambda n=partitions: by_jdbc(spark, server, rows, n))  # type: ignore[misc]
            ratio = theirs / ours
            note = "" if ratio >= AIM else f", short of the aim of {AIM}"
            print(f"{rows:,} rows: Floodmark {ours:.2f} s, JDBC with {partitions} partition(s) {theirs:.2f} s: "
                  f"ratio {ratio:.2f}{note}")  # fmt: skip
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    said = parser.parse_args()
    main(said.rows, said.repeats)
