"""Lists properties of Delta tables: which ones a sink may have, and why not the others.

Names are case-insensitive, as in Delta. The lists hold all properties that Delta 4.4 knows; a test compares them with
Delta's. Delta refuses unknown ones.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping

DAY_US = 86_400_000_000

# These work, and change nothing on which the protocol depends.
WORKING = (
    "delta.appendOnly",
    "delta.autoOptimize",
    "delta.autoOptimize.autoCompact",
    "delta.autoOptimize.optimizeWrite",
    "delta.checkpoint.writeStatsAsJson",
    "delta.checkpoint.writeStatsAsStruct",
    "delta.checkpointInterval",
    "delta.checkpointPolicy",
    "delta.checkpointRetentionDuration",
    "delta.columnMapping.mode",
    "delta.compatibility.symlinkFormatManifest.enabled",
    "delta.dataSkippingNumIndexedCols",
    "delta.dataSkippingStatsColumns",
    "delta.dataSkippingStringPrefixLength",
    "delta.deletedFileRetentionDuration",
    "delta.dropFeatureTruncateHistory.retentionDuration",
    "delta.enableChangeDataCapture",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableExpiredLogCleanup",
    "delta.enableFullRetentionRollback",
    "delta.enableInCommitTimestamps",
    "delta.enableRowTracking",
    "delta.isolationLevel",
    "delta.logRetentionDuration",
    "delta.parquet.format.version",
    "delta.randomPrefixLength",
    "delta.randomizeFilePrefixes",
    "delta.sampleRetentionDuration",
)

FORGETS = "the table would forget which epochs it has, and accept one of them twice"
_COORDINATED = "commits would go through a coordinator, and Floodmark reads them in the table's log"
_ICEBERG = "for Iceberg readers, Delta needs classes that are not in Floodmark's jars"
_REDIRECTED = "the table's commits would be another table's"
_OWN = "Delta sets it itself"
_VERSIONS = "a table gets the versions and features that its other properties need: name those"
_UNLIKE = "the auditor could not read the table's files"
REFUSED = {
    "delta.castIcebergTimeType": _ICEBERG,
    "delta.columnMapping.maxColumnId": _OWN,
    "delta.coordinatedCommits.commitCoordinator-preview": _COORDINATED,
    "delta.coordinatedCommits.commitCoordinatorConf-preview": _COORDINATED,
    "delta.coordinatedCommits.tableConf-preview": _COORDINATED,
    "delta.enableIcebergCompatV1": _ICEBERG,
    "delta.enableIcebergCompatV2": _ICEBERG,
    "delta.enableIcebergCompatV3": _ICEBERG,
    "delta.enableMaterializePartitionColumnsFeature": _UNLIKE,
    "delta.enableTypeWidening": "delta-rs, which reads sinks without Spark, rejects such a table",
    "delta.enableVariantShredding": _UNLIKE,
    "delta.ignoreIcebergBucketPartition": _ICEBERG,
    "delta.ignoreProtocolDefaults": _VERSIONS,
    "delta.inCommitTimestampEnablementTimestamp": _OWN,
    "delta.inCommitTimestampEnablementVersion": _OWN,
    "delta.minReaderVersion": _VERSIONS,
    "delta.minWriterVersion": _VERSIONS,
    "delta.redirectReaderWriter-preview": _REDIRECTED,
    "delta.redirectWriterOnly-preview": _REDIRECTED,
    "delta.requireCheckpointProtectionBeforeVersion": _OWN,
    "delta.rowTrackingSuspended": _OWN,
    "delta.setTransactionRetentionDuration": FORGETS,
    "delta.universalFormat.enabledFormats": _ICEBERG,
    "delta.universalFormat.iceberg.atomicConversion.supported": _ICEBERG,
    "delta.writePartitionColumnsToParquet": _UNLIKE,
}
FAMILIES = {
    "delta.constraints.": "a row that violates one would fail an open epoch; use `expect` instead",
    "delta.feature.": _VERSIONS,
    "delta.universalformat.": _ICEBERG,
    "delta.rowtracking.": _OWN,
}
# Properties of an existing table, whoever set them, that prevent a rule from writing to it.
NEVER = (
    "delta.setTransactionRetentionDuration",
    "delta.coordinatedCommits.commitCoordinator-preview",
    "delta.redirectReaderWriter-preview",
    "delta.redirectWriterOnly-preview",
)
SPARKS_OWN = ("external", "is_managed_location", "location", "owner", "provider")
STATISTICS = ("delta.checkpoint.writeStatsAsJson", "delta.checkpoint.writeStatsAsStruct")  # a checkpoint needs one
RETENTIONS = ("delta.logretentionduration", "delta.deletedfileretentionduration")

_REASONS = {name.lower(): why for name, why in REFUSED.items()}
_KNOWN = {name.lower(): name for name in (*WORKING, *REFUSED)}
_UNITS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6,
          "day": DAY_US, "week": 7 * DAY_US}  # fmt: skip
_PART = re.compile(r"(\d+)\s*([a-z]+?)s?\b")


def unfit_property(name: str, value: str) -> str | None:
    """Why a sink cannot have this property; None if it can."""
    low = name.lower()
    family = next((why for start, why in FAMILIES.items() if low.startswith(start)), None)
    if why := _REASONS.get(low, family):
        return why
    if low in SPARKS_OWN:
        return "Spark reserves that name"
    if low.startswith("delta.") and low not in _KNOWN:
        near = difflib.get_close_matches(low, _KNOWN, 1)
        return f"Delta 4.4 knows no such property{f'; did you mean {_KNOWN[near[0]]}?' if near else ''}"
    if low not in RETENTIONS:
        return None
    span = _span_us(value)
    if span is None:  # Spark knows more spellings, such as fractions of seconds and negative parts
        return f"expected whole numbers with their units, such as `interval 7 days`, found {value}"
    if span < DAY_US:
        return f"an open epoch is compared with the content of its commit: expected a day or more, found {value}"
    return None


def _span_us(text: str) -> int | None:
    """An interval as Delta writes it, such as `interval 1 day 12 hours`; None if it is not in that form."""
    words = text.lower().removeprefix("interval").strip()
    parts = _PART.findall(words)
    if not parts or _PART.sub("", words).strip() or any(unit not in _UNITS for _, unit in parts):
        return None
    return sum(int(count) * _UNITS[unit] for count, unit in parts)


def forgetful(properties: Collection[str]) -> str | None:
    """The property of an existing table that prevents any rule from writing to it; None if it has none."""
    there = {name.lower() for name in properties}
    return next((name for name in NEVER if name.lower() in there), None)


def lacks_statistics(properties: Mapping[str, str]) -> bool:
    """Whether checkpoints of a table with these properties hold no statistics of files. An upsert needs how many rows
    each file has."""
    given = {name.lower(): value.lower() for name, value in properties.items()}
    return all(given.get(name.lower()) == "false" for name in STATISTICS)
