"""What an attempt ran on, as its intent records it, and what of it a retry takes from there.

Sums of floating point hang on the order of their parts: on how files are cut into tasks, and shuffles into those of the
next stage. Spark cuts by the number of cores. A retry on another number must give the same sums to the last bit, for
a cast or a HAVING makes a difference of one bit a different row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from floodmark.errors import ReplayDiffers

# Settings by which Spark cuts files and shuffles. Of these two its default is the number of cores.
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

    `recorded`: what the intent says that is to be finished, if one is; `given`: what the session has.
    """
    if recorded:
        return {name: recorded.get(name) for name in CUTTING}
    found = {name: given.get(name) for name in CUTTING}
    return {name: value or (str(cores) if name in BY_CORES else None) for name, value in found.items()}


def differing(recorded: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What the attempts ran on that is not the same, in words."""
    names = [*recorded, *(name for name in now if name not in recorded)]
    return [
        f"{name} {recorded.get(name, 'not set')}, now {now.get(name, 'not set')}"
        for name in names
        if recorded.get(name) != now.get(name)
    ]


@contextmanager
def named(recorded: Mapping[str, str], now: Mapping[str, str]) -> Iterator[None]:
    """Where an attempt computes something else than the one before, say what they ran on that is not the same."""
    try:
        yield
    except ReplayDiffers as fault:
        found = differing(recorded, now) if recorded else []
        if not found:
            raise
        raise type(fault)(
            f"{fault}. The first attempt ran on something else: {'; '.join(found)}. Where that is the cause, a run on "
            "what the first attempt had finishes what is open"
        ) from fault
