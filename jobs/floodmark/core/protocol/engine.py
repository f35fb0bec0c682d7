"""Compares the engines of an epoch's attempts, and gives a retry the settings that the intent recorded.

Sums of floating point depend on the order of their parts, so on how Spark splits files into tasks and shuffles into
tasks of the next stage. Spark splits by the number of cores. A retry on another number must give the same sums to the
last bit, because a cast or a HAVING may turn a difference of one bit into a different row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from floodmark.errors import ReplayDiffers

# Settings by which Spark splits files and shuffles. The default of these two is the number of cores.
BY_CORES = ("spark.sql.leafNodeDefaultParallelism", "spark.sql.adaptive.coalescePartitions.minPartitionNum")
CUTTING = (
    *BY_CORES,
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.maxPartitionNum",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.adaptive.enabled",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
    "spark.sql.adaptive.autoBroadcastJoinThreshold",
    "spark.sql.adaptive.coalescePartitions.enabled",
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum",
    "spark.sql.adaptive.coalescePartitions.minPartitionSize",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst",
    "spark.sql.adaptive.localShuffleReader.enabled",
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold",
    "spark.sql.adaptive.skewJoin.enabled",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.join.preferSortMergeJoin",
)


def cutting(recorded: Mapping[str, str], given: Mapping[str, str], cores: int) -> dict[str, str | None]:
    """The value of each of CUTTING for a session; None: Spark's own.

    recorded: the settings in the intent to be finished, if there is one. given: the session's settings.
    """
    if recorded:
        return {name: recorded.get(name) for name in CUTTING}
    found = {name: given.get(name) for name in CUTTING}
    return {name: value or (str(cores) if name in BY_CORES else None) for name, value in found.items()}


def differing(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The differences between the attempts' engines, in words."""
    names = [*recorded, *(name for name in now if name not in recorded)]
    return [
        f"{name} {recorded.get(name, 'not set')}, now {now.get(name, 'not set')}"
        for name in names
        if recorded.get(name) != now.get(name)
    ]


@contextmanager
def named(recorded: Mapping[str, str], now: Mapping[str, str]) -> Iterator[None]:
    """Add the differences between the attempts' engines to a ReplayDiffers error."""
    try:
        yield
    except ReplayDiffers as fault:
        found = differing(recorded, now) if recorded else []
        if not found:
            raise
        raise type(fault)(
            f"{fault}. The first attempt ran in another environment: {'; '.join(found)}. If that is the cause, a run "
            "in the first attempt's environment finishes what is open"
        ) from fault
