"""Offsets in Delta tables, as Spark's Delta source writes them. Only this package parses them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from floodmark.core.protocol.entry import compact


@dataclass(frozen=True)
class DeltaOffset:
    """A position in a Delta table: the files of `version` up to position `index` are read (-1: none of them).

    `snapshot`: the files are those of the whole table at `version`, not those that the version added.
    """

    table_id: str
    version: int
    index: int
    snapshot: bool

    @property
    def newest_read(self) -> int:
        """The newest version of which any file was read."""
        return self.version if self.snapshot or self.index >= 0 else self.version - 1

    @classmethod
    def parse(cls, line: str) -> DeltaOffset:
        found = json.loads(line)
        return cls(found["reservoirId"], found["reservoirVersion"], found["index"], found["isStartingVersion"])

    def line(self) -> str:
        return compact(
            {
                "sourceVersion": 1,
                "reservoirId": self.table_id,
                "reservoirVersion": self.version,
                "index": self.index,
                "isStartingVersion": self.snapshot,
            }
        )
