"""The settings that every Spark application of Floodmark starts with, however it is started. Pure: no Spark here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from floodmark.errors import RunFailed

JARS = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")


def jars_folder() -> Path:
    """Where set-up put the Delta jars: FLOODMARK_JARS, or `.cache/jars` of the checkout."""
    return Path(os.environ.get("FLOODMARK_JARS") or Path(__file__).parents[3] / ".cache" / "jars")


def jar_paths() -> list[str]:
    """Raises RunFailed where set-up has not been run."""
    paths = [jars_folder() / name for name in JARS]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise RunFailed(
            f"expected the jars {', '.join(missing)}: run `make setup`, or name their folder in FLOODMARK_JARS"
        )
    return [str(path) for path in paths]


def static_conf(driver_memory: str, shuffle_partitions: int) -> dict[str, str]:
    """Settings every run starts with, whether by spark-submit or from the command line."""
    return {
        "spark.jars": ",".join(jar_paths()),
        "spark.driver.memory": driver_memory,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        # Delta's own defaults (50 tasks for one small snapshot) cost seconds on every write.
        "spark.databricks.delta.snapshotPartitions": "1",
        # INT96, the default, cannot be read back as microseconds by others beyond the year 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Unused, but Spark makes it; by default wherever the command was called.
        "spark.sql.warehouse.dir": str(jars_folder().parent / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON", sys.executable),
    }
