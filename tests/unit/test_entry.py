"""Offset-log entries are kept to the letter: Spark compares offsets as strings."""

from __future__ import annotations

import json

import pytest

from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.core.protocol.entry import Entry

LINE = '{"sourceVersion":1,"reservoirId":"3f","reservoirVersion":4,"index":-1,"isStartingVersion":false}'


def test_an_offset_is_written_as_spark_writes_it() -> None:
    assert DeltaOffset("3f", 4, -1, False).line() == LINE
    assert DeltaOffset.parse(LINE) == DeltaOffset("3f", 4, -1, False)


def test_an_entry_reads_back_and_pins_only_the_shuffle_partitions() -> None:
    entry = Entry(1_000, (LINE, LINE))
    header = json.loads(entry.text(3).split("\n")[1])
    assert header == {"batchWatermarkMs": 0, "batchTimestampMs": 1000, "conf": {"spark.sql.shuffle.partitions": "3"}}
    assert Entry.parse(entry.text(3)) == entry == Entry.parse(entry.text())


def test_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="v1"):
        Entry.parse("v2\n{}\n")
