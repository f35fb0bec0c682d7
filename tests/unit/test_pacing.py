"""How long an epoch is to take, and how much input that is."""

from __future__ import annotations

from typing import Any

import pytest

from floodmark.core.lifecycle.pacing import PROBE, limit, rate, wanted
from floodmark.core.protocol.records.rows import Commit, Counts, Row


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
