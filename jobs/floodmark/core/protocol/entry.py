"""Reads and writes the offset-log entry, which holds the offset of every stream of a rule, as Spark's streaming does.

An entry is text: `v1`, one JSON line with the batch's clock and pinned settings, then one JSON line for each stream, by
position. Spark compares offsets as strings, so each line is stored verbatim.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

NOWHERE = "-"  # a stream without an offset yet, in Spark's own notation


@dataclass(frozen=True)
class Entry:
    """`clock_ms`: milliseconds since 1970, the epoch's recorded clock. `offsets`: one line for each stream."""

    clock_ms: int
    offsets: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Entry:
        version, header, *offsets = text.rstrip("\n").split("\n")
        if version != "v1":
            raise ValueError(f"expected an offset-log entry of version v1, found {version!r}")
        return cls(int(json.loads(header)["batchTimestampMs"]), tuple(offsets))

    def text(self, shuffle_partitions: int | None = None) -> str:
        """The entry as Spark reads it.

        Spark refuses an open entry whose `conf` is empty or differs from the one before.
        """
        conf = {} if shuffle_partitions is None else {"spark.sql.shuffle.partitions": str(shuffle_partitions)}
        header = {"batchWatermarkMs": 0, "batchTimestampMs": self.clock_ms, "conf": conf}
        return "\n".join(("v1", compact(header), *self.offsets))


def compact(value: object) -> str:
    """JSON without blanks: the form in which Spark writes offsets."""
    return json.dumps(value, separators=(",", ":"))
