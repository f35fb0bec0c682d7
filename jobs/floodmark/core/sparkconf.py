"""The settings that every Spark application of Floodmark starts with, however it is started. Pure: no Spark here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from floodmark.errors import RunFailed

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
SMALL_BACKLOG = 32 << 20  # bytes of Parquet: a million rows or so
DELTA = "4.4.0"
JARS = (f"delta-spark_4.2_2.13-{DELTA}.jar", f"delta-storage-{DELTA}.jar")


def jars_folder() -> Path:
    """Where set-up put the Delta jars: FLOODMARK_JARS, or `.cache/jars` of the checkout."""
    return Path(os.environ.get("FLOODMARK_JARS") or Path(__file__).parents[3] / ".cache" / "jars")


def java_place() -> str | None:
    """The java that Spark would start: that of JAVA_HOME, else the one on PATH; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


def jar_paths() -> list[str]:
    """Raises RunFailed where set-up has not been run."""
    paths = [jars_folder() / name for name in JARS]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise RunFailed(
            f"expected the jars {', '.join(missing)}: run `make setup`, or name their folder in FLOODMARK_JARS"
        )
    return [str(path) for path in paths]


def application_conf(
    driver_memory: str, shuffle_partitions: int, own: Mapping[str, str], backlog: int | None
) -> dict[str, str]:
    """The settings of one application, whether by spark-submit or from the command line.

    `own`: the rules' settings, which win; `backlog`: bytes of input that wait (None: not known).
    """
    conf = {**static_conf(driver_memory, shuffle_partitions), **own}
    options = f"{fast_start(backlog)} {own.get(JAVA_OPTIONS, '')}".strip()
    return {**conf, JAVA_OPTIONS: options} if options else conf


def archive() -> Path:
    """The class-data archive that set-up makes: Spark's and Delta's classes, loaded and verified."""
    return jars_folder().parent / "classes" / "floodmark.jsa"


def fast_start(backlog: int | None) -> str:
    """The JVM's options for a quick start; FLOODMARK_FAST_START=0 leaves them out, to measure them.

    An archive that does not fit this JVM or class path is left out by the JVM itself. The first compiler alone is
    for little input: its code is ready sooner, yet slower.
    """
    if os.environ.get("FLOODMARK_FAST_START") == "0":
        return ""
    options = []
    if archive().exists():  # what the JVM says of an archive would go to standard output
        options += [f"-XX:SharedArchiveFile={archive()}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if backlog is not None and backlog <= SMALL_BACKLOG:
        # With one compiler the JVM has a fifth of its usual room for code. Some dozen rules fill that, and it then
        # compiles no more.
        options += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    return " ".join(options)


# A missing or broken file is an error; what a cluster's own settings say of it would lose its rows without a word.
WHOLE_FILES = {"spark.sql.files.ignoreCorruptFiles": "false", "spark.sql.files.ignoreMissingFiles": "false"}

# Every commit is checked by how many rows its files hold, before it is made.
STATISTICS = {"spark.databricks.delta.stats.collect": "true"}

# By default Delta refuses a version that is a week old and not the newest, whether its files are there or not. An open
# epoch reads the versions that it began with, whenever it is finished; files that are gone are told by who reads them.
OLD_VERSIONS = {"spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"}


def static_conf(driver_memory: str, shuffle_partitions: int) -> dict[str, str]:
    """Settings every run starts with, whether by spark-submit or from the command line."""
    return {
        "spark.jars": ",".join(jar_paths()),
        # Twice, for only what the JVM's own class path has can come from the archive.
        "spark.driver.extraClassPath": os.pathsep.join(jar_paths()),
        "spark.driver.memory": driver_memory,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        # Rules are checked as they stand; Spark would put settings and environment variables into the text.
        "spark.sql.variable.substitute": "false",
        **WHOLE_FILES,
        **OLD_VERSIONS,
        # Delta's own defaults (50 tasks for one small snapshot) cost seconds on every write.
        "spark.databricks.delta.snapshotPartitions": "1",
        # VACUUM's own two commits of each rewrite of state would be log entries that nobody has the disk take.
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        # By default 100 pieces of generated code, half of what one rule needs: several would compile theirs each time.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # INT96, the default, cannot be read back as microseconds by others beyond the year 2262.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # A run's checkpoint is its own and no truth. By default each of its files starts eight processes (`readlink`)
        # to be renamed, which is more than half of all that an epoch starts.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        # Unused, but Spark makes it; by default wherever the command was called.
        "spark.sql.warehouse.dir": str(jars_folder().parent / "warehouse"),
        # Spark describes every plan it runs, for its UI; the default, formatted, takes several times as long.
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Said of the executors alone, Spark would start the driver by it, too, whatever PYSPARK_DRIVER_PYTHON says. The
        # driver always runs on this machine (client mode); theirs may be in an archive that only they unpack.
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "spark.pyspark.driver.python": os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
    }
