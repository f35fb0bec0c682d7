"""Spark's checkpoint directory: every run recreates it from the ledger, which alone is the truth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import uuid4

from floodmark.core.protocol.entry import Entry, compact

HEAD = 1  # the batch of the head's epoch; batches to fold come after it


def make_checkpoint(parent: Path, head: Entry, open_entry: Entry | None, shuffle_partitions: int) -> Path:
    """A directory in which batch HEAD is the head's commit and the next the open intent, if any, which Spark replays.

    Batch 0 has the same end as the head. Spark reads each source's last batch again, and without a batch before it
    Delta would list all files of the source's table.
    """
    directory = parent / uuid4().hex
    _write(directory / "metadata", compact({"id": str(uuid4())}))
    for batch in range(HEAD + 1):
        _write(directory / "offsets" / str(batch), head.text(shuffle_partitions))
        _write(directory / "commits" / str(batch), "v1\n" + compact({"nextBatchWatermarkMs": 0}))
    if open_entry is not None:
        _write(directory / "offsets" / str(HEAD + 1), open_entry.text(shuffle_partitions))
    return directory


def query_id(directory: Path) -> str:
    """Id of the streaming query that runs on the directory."""
    return str(json.loads((directory / "metadata").read_text())["id"])


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def planned_entry(directory: Path, batch: int) -> Entry:
    """The entry that Spark planned for a batch; it is on disk before the batch's function is called."""
    return Entry.parse((directory / "offsets" / str(batch)).read_text())


def sweep(parent: Path) -> None:
    """Remove directories of killed runs. Only the holder of the rule's lock may call this."""
    shutil.rmtree(parent, ignore_errors=True)
