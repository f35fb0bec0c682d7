"""Defines the settings that every Spark application of Floodmark starts with, however it is started.

Pure: no Spark here.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from floodmark.core.application.distribution import jars_folder, set_up, warehouse
from floodmark.errors import RunFailed

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"
SMALL_BACKLOG = 32 << 20  # bytes of Parquet: a million rows or so
# Maven coordinates of the jars that pyspark does not bring. Those of Kafka and Avro are there for rules that read it.
DELTA, KAFKA = "4.4.0", "3.9.2"
DELTA_JARS = (f"io.delta:delta-spark_4.2_2.13:{DELTA}", f"io.delta:delta-storage:{DELTA}")
KAFKA_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    f"org.apache.kafka:kafka-clients:{KAFKA}",
    "org.apache.commons:commons-pool2:2.13.1",
)
AVRO_JARS = ("org.apache.spark:spark-avro_2.13:4.2.0",)


def jar_name(coordinates: str) -> str:
    """The file name of a jar."""
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


JARS = tuple(map(jar_name, (*DELTA_JARS, *KAFKA_JARS, *AVRO_JARS)))


def java_place() -> str | None:
    """The java that Spark would start: that of JAVA_HOME, else the one on PATH; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)


def jar_paths() -> list[str]:
    """The paths of the jars. Raises RunFailed if Delta's have not been fetched; only rules that read Kafka or
    Avro need others (`check_jars`)."""
    check_jars(DELTA_JARS)
    return [str(path) for path in (jars_folder() / name for name in JARS) if path.exists()]


def check_jars(wanted: Iterable[str]) -> None:
    """Raise RunFailed if jars, given by their coordinates, have not been fetched."""
    paths = [jars_folder() / jar_name(one) for one in wanted]
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise RunFailed(
            f"expected the jars {', '.join(missing)}: run `{set_up()}`, or name their folder in FLOODMARK_JARS"
        )


def application_conf(
    driver_memory: str, shuffle_partitions: int, own: Mapping[str, str], backlog: int | None
) -> dict[str, str]:
    """The settings of one application, whether started by spark-submit or from the command line.

    own: the rules' settings, which take precedence. backlog: bytes of unread input (None: unknown).
    """
    conf = {**static_conf(driver_memory, shuffle_partitions), **own}
    options = f"{fast_start(backlog)} {own.get(JAVA_OPTIONS, '')}".strip()
    return {**conf, JAVA_OPTIONS: options} if options else conf


def archive() -> Path:
    """The class-data archive that set-up creates: Spark's and Delta's classes, loaded and verified."""
    return jars_folder().parent / "classes" / "floodmark.jsa"


def fast_start(backlog: int | None) -> str:
    """The JVM's options for a quick start; FLOODMARK_FAST_START=0 turns them off, to measure them.

    The JVM itself ignores an archive that does not fit it or its class path. Little input uses the first compiler only:
    its code is ready sooner, yet slower.
    """
    if os.environ.get("FLOODMARK_FAST_START") == "0":
        return ""
    options = []
    if archive().exists():  # the JVM would write messages about the archive to standard output
        options += [f"-XX:SharedArchiveFile={archive()}", "-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
    if backlog is not None and backlog <= SMALL_BACKLOG:
        # With one compiler the JVM has a fifth of its usual space for code. Some dozen rules fill that, and then it
        # stops compiling.
        options += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    return " ".join(options)


# A missing or broken file is an error; with a cluster's own settings Spark might silently skip its rows.
WHOLE_FILES = {"spark.sql.files.ignoreCorruptFiles": "false", "spark.sql.files.ignoreMissingFiles": "false"}

# What a rule's SQL means: `validate` reads it by these defaults of Spark's, whatever a cluster's own settings say.
MEANING = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    # How the text is read: what is a name, a string, a number, an interval, and which relations a comma joins first.
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.relationPrecedence": "false",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "false",
    "spark.sql.legacy.interval.enabled": "false",
    # Which columns GROUP BY names.
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.groupByAliases": "true",
    "spark.sql.analyzer.preferColumnOverLcaInArrayIndex": "true",
    # What functions and casts return.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
    "spark.sql.legacy.decimal.retainFractionDigitsOnTruncate": "false",
    "spark.sql.legacy.castComplexTypesToString.enabled": "false",
    "spark.sql.legacy.typeCoercion.datetimeToString.enabled": "false",
    "spark.sql.legacy.sizeOfNull": "true",
    "spark.sql.legacy.followThreeValuedLogicInArrayExists": "true",
    "spark.sql.legacy.negativeIndexInArrayInsert": "false",
    "spark.sql.legacy.statisticalAggregate": "false",
    "spark.sql.legacy.percentileDiscCalculation": "false",
    "spark.sql.legacy.integerGroupingId": "false",
    "spark.sql.legacy.groupingIdWithAppendedUserGroupBy": "false",
    "spark.sql.legacy.allowNegativeScaleOfDecimal": "false",
    "spark.sql.legacy.fromDayTimeString.enabled": "false",
    "spark.sql.preserveCharVarcharTypeInfo": "false",
    # What columns of tables hold: those of type CHAR, and structs of rows older than their fields.
    "spark.sql.readSideCharPadding": "true",
    "spark.sql.legacy.charVarcharAsString": "false",
    "spark.sql.legacy.parquet.returnNullStructIfAllFieldsMissing": "false",
    # Of functions over texts: upper, split, encode, base64, concat, elt, lpad.
    "spark.sql.icu.caseMappings.enabled": "true",
    "spark.sql.legacy.truncateForEmptyRegexSplit": "false",
    "spark.sql.legacy.codingErrorAction": "false",
    "spark.sql.legacy.javaCharsets": "false",
    "spark.sql.chunkBase64String.enabled": "true",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.function.eltOutputAsString": "false",
    "spark.sql.legacy.lpadRpadAlwaysReturnString": "false",
    "spark.sql.legacy.collationAwareHashFunctions": "false",
    # Of functions over arrays and maps.
    "spark.sql.legacy.allowNullComparisonResultInArraySort": "false",
    "spark.sql.legacy.createEmptyCollectionUsingStringType": "false",
    "spark.sql.legacy.disableMapKeyNormalization": "false",
    "spark.sql.mapZipWithUsesJavaCollections": "true",
    # Of JSON, CSV and variants.
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.jsonGenerator.writeNullIfWithDefaultValue": "true",
    "spark.sql.json.enablePartialResults": "true",
    "spark.sql.json.enableExactStringParsing": "true",
    "spark.sql.legacy.json.allowEmptyString.enabled": "false",
    "spark.sql.legacy.nullValueWrittenAsQuotedEmptyStringCsv": "false",
    "spark.sql.columnNameOfCorruptRecord": "_corrupt_record",
    "spark.sql.variant.allowDuplicateKeys": "false",
    "spark.sql.variant.validateUnicodeInJsonParsing": "true",
    # A copy of the rule's session has these settings, too, not the cluster's.
    "spark.sql.legacy.sessionInitWithConfigDefaults": "false",
}
# Spark has no value for these, and then decides by the options of from_json and from_csv.
MEANING_UNSET = (
    "spark.sql.legacy.json.enableDateTimeParsingFallback",
    "spark.sql.legacy.csv.enableDateTimeParsingFallback",
)

# Before each commit, Floodmark checks how many rows its files hold.
STATISTICS = {"spark.databricks.delta.stats.collect": "true"}

# In a sink with the property, Delta would join small files right after a commit, in one of its own: nothing would sync
# that to disk, and an open epoch could not be taken back.
NO_COMPACTION = {"spark.databricks.delta.autoCompact.enabled": "false"}

# By default Delta refuses a version that is a week old and not the newest, even if its files exist. An open epoch reads
# the versions that it started with, whenever it is finished; reading reports missing files.
OLD_VERSIONS = {"spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"}


def static_conf(driver_memory: str, shuffle_partitions: int) -> dict[str, str]:
    """Settings that every run starts with, whether by spark-submit or from the command line."""
    return {
        "spark.jars": ",".join(jar_paths()),
        # Also here, because only jars on the JVM's own class path can come from the archive.
        "spark.driver.extraClassPath": os.pathsep.join(jar_paths()),
        "spark.driver.memory": driver_memory,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        # Rules are checked as written; Spark would substitute settings and environment variables in the text.
        "spark.sql.variable.substitute": "false",
        **WHOLE_FILES,
        **OLD_VERSIONS,
        **NO_COMPACTION,
        **MEANING,
        # Delta's own defaults (50 tasks for one small snapshot) cost seconds on every write.
        "spark.databricks.delta.snapshotPartitions": "1",
        # VACUUM's own two commits at each rewrite of state would add log entries that nothing syncs to disk.
        "spark.databricks.delta.vacuum.logging.enabled": "false",
        # By default 100 pieces of generated code, half of what one rule needs; several rules would compile theirs each
        # time.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Spark's default grows with the heap: 64 MB, of which each small table that a join broadcasts takes one until
        # garbage collection finds it.
        "spark.buffer.pageSize": "4m",
        # Rows that an epoch keeps for its second pass live for seconds. To compress them takes a third of the time in
        # which Spark parses them from JSON.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Beyond the year 2262, other readers cannot read INT96, the default, as microseconds.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # A run's checkpoint is its own and not authoritative. By default renaming each of its files starts eight
        # processes (`readlink`), more than half of all that an epoch starts.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        # Unused, but Spark creates it; by default in the current directory.
        "spark.sql.warehouse.dir": str(warehouse()),
        # Spark describes every plan it runs for its UI; the default, formatted, takes several times as long.
        "spark.sql.ui.explainMode": "simple",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # If only the executors' Python were set, Spark would use it for the driver, too, despite PYSPARK_DRIVER_PYTHON.
        # The driver always runs on this machine (client mode); the executors' Python may be in an archive that only
        # they unpack.
        "spark.pyspark.python": os.environ.get("PYSPARK_PYTHON") or sys.executable,
        "spark.pyspark.driver.python": os.environ.get("PYSPARK_DRIVER_PYTHON") or sys.executable,
    }
