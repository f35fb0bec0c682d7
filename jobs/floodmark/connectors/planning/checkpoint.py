"""Spark's checkpoint directory, made anew by every run from the ledger. It is never the truth."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from uuid import uuid4

from floodmark.core.protocol.entry import Entry, compact

HEAD = 1  # the batch that stands for the head's epoch; those that Spark folds come after it


def make(parent: Path, head: Entry, open_entry: Entry | None, shuffle_partitions: int) -> Path:
    """A directory in which batch HEAD is the head's commit and the next the open intent, if any: Spark replays that.

    Batch 0 ends where the head does, too. Spark asks each source once more for the rows of its last batch, and were
    there no batch before, Delta would list all files of the source's table to answer.
    """
    directory = parent / uuid4().hex
    _put(directory / "metadata", compact({"id": str(uuid4())}))
    for batch in range(HEAD + 1):
        _put(directory / "offsets" / str(batch), head.text(shuffle_partitions))
        _put(directory / "commits" / str(batch), "v1\n" + compact({"nextBatchWatermarkMs": 0}))
    if open_entry is not None:
        _put(directory / "offsets" / str(HEAD + 1), open_entry.text(shuffle_partitions))
    return directory


def query(directory: Path) -> str:
    """Id of the streaming query that runs on the directory."""
    return str(json.loads((directory / "metadata").read_text())["id"])


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def planned(directory: Path, batch: int) -> Entry:
    """The entry that Spark planned for a batch; it is on disk before the batch's function is called."""
    return Entry.parse((directory / "offsets" / str(batch)).read_text())


def sweep(parent: Path) -> None:
    """Remove what killed runs left behind. Only the holder of the rule's lock may call this."""
    shutil.rmtree(parent, ignore_errors=True)
