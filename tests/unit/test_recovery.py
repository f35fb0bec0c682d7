"""The recovery table: what a write site does, given what its table has recorded."""

from __future__ import annotations

import pytest

from floodmark.core.recovery import ATTEMPTS, SEAL, Step, before_write, version_of
from floodmark.errors import Fenced, LedgerBroken, Sealed

EPOCH = 7
BASE = EPOCH * ATTEMPTS


@pytest.mark.parametrize(
    ("recorded", "attempt", "again", "rows", "step"),
    [
        (None, 1, False, 5, Step.WRITE),
        (None, 1, False, 0, Step.NOTHING),
        (BASE - ATTEMPTS, 1, False, 5, Step.WRITE),
        (BASE - 1, 1, False, 5, Step.WRITE),
        (BASE, 1, False, 5, Step.COMPARE),
        (BASE, 2, False, 5, Step.COMPARE),
        (BASE, 2, False, 0, Step.COMPARE),  # written with rows, computed again without: must not pass unseen
        (None, 1, True, 5, Step.WRITE),
        (BASE + 1, 2, True, 5, Step.WRITE),
        (BASE + 1, 2, True, 0, Step.NOTHING),
        (BASE + 2, 2, True, 5, Step.COMPARE),
    ],
)
def test_a_site_writes_compares_or_does_nothing(
    recorded: int | None, attempt: int, again: bool, rows: int, step: Step
) -> None:
    assert before_write(recorded, EPOCH, attempt, again, rows) is step


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("rows", [0, 5])
def test_a_sealed_table_stops_every_write(again: bool, rows: int) -> None:
    with pytest.raises(Sealed):
        before_write(SEAL, EPOCH, 1, again, rows)


@pytest.mark.parametrize("again", [False, True])
def test_a_table_ahead_of_the_epoch_stops_the_write(again: bool) -> None:
    with pytest.raises(LedgerBroken):
        before_write(BASE + ATTEMPTS, EPOCH, 1, again, 5)


def test_a_newer_attempt_fences_an_older_one() -> None:
    with pytest.raises(Fenced):
        before_write(BASE + 3, EPOCH, 2, True, 5)


def test_only_a_site_that_writes_again_has_the_attempt_in_its_version() -> None:
    assert version_of(EPOCH, 3, writes_again=False) == BASE
    assert version_of(EPOCH, 3, writes_again=True) == BASE + 3
