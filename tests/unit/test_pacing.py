"""How long an epoch is to take, and how much input that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.byhand import begun
from support.flow import Flow, event

from floodmark.connectors.backlog import pacing
from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.pacing import PROBE, limit, rate, wanted
from floodmark.core.protocol.records.rows import Commit, Counts, Row
from floodmark.errors import TableBroken
from floodmark.ledger.delta.datafiles import size_of
from floodmark.ledger.delta.tables import local_entry


def committed(read: int, seconds: float, epoch: int = 1, generation: int = 1) -> Row:
    parts: dict[str, Any] = {"read": seconds / 4, "write": seconds * 3 / 4}
    body = Commit(entry="e", watermark=None, maxima={}, counts={"events": Counts(read=read)}, seconds=parts)
    return Row(1, "commit", generation, "t", epoch, 1, "run", "at", body.model_dump_json(), "")


def test_the_rate_is_that_of_the_newest_epochs_that_read_anything() -> None:
    rows = [committed(100, 1), committed(300, 1), committed(0, 5), committed(9000, 1, generation=2), committed(9, 1, 0)]
    assert rate(rows, 1) == 200
    assert rate([*[committed(1, 1)] * 50, *[committed(500, 1)] * 10], 1) == 500
    assert rate([], 1) is None


def test_before_anything_was_measured_a_first_epoch_is_small() -> None:
    assert wanted(300, None, 10.0) == PROBE == wanted(300, 5.0, None)
    assert wanted(300, 1000, 10.0) == 3_000_000
    assert wanted(1, 0.001, 1.0) == 1


@pytest.mark.parametrize(
    ("waiting", "total", "most"),
    [
        ([1000], 300, 300),
        ([1000, 1000], 300, 150),
        ([10, 1000], 300, 290),
        ([0, 1000, 1000], 300, 150),
        ([10, 20], 300, 20),
        ([], 300, 1),
        ([1000] * 500, 300, 1),
    ],
)
def test_what_short_streams_leave_the_others_get(waiting: list[int], total: int, most: int) -> None:
    assert limit(waiting, total) == most


def test_unread_commits_beyond_the_next_epoch_are_not_read_to_size_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third one is here no log entry at all, and a read of all of them is refused."""
    flow = Flow(tmp_path, settings={"epoch": {"max_seconds": 60}})
    ledger = begun(flow)
    for second in (2, 3, 4):
        flow.arrive([event(second)])
    table, (source,) = DeltaTable(flow.source), sources(flow.rule(), flow.place).values()
    line, whole = ledger.begun.entry.offsets[0], size_of(table)
    assert pacing.paced(flow.rule(), flow.place, ledger).max_bytes == source.waiting(line) <= whole
    table.create_checkpoint()
    local_entry(flow.source, table.version()).write_text("x")
    monkeypatch.setattr("floodmark.core.lifecycle.pacing.PROBE", 1)
    monkeypatch.setattr(pacing, "PROBE", 1)
    assert pacing.paced(flow.rule(), flow.place, ledger).max_bytes == 1
    assert 0 < source.waiting(line, 1) < whole
    with pytest.raises(TableBroken, match="log entry"):
        source.waiting(line)
