"""The recovery table: what a write site does, given what its table has recorded."""

from __future__ import annotations

import pytest

from floodmark.core.recovery import ATTEMPTS, SEAL, Step, before_write, version_of
from floodmark.errors import Fenced, LedgerBroken, Sealed

EPOCH = 7
BASE = EPOCH * ATTEMPTS


@pytest.mark.parametrize(
    ("recorded", "attempt", "again", "step"),
    [
        (None, 1, False, Step.WRITE),
        (BASE - ATTEMPTS, 1, False, Step.WRITE),
        (BASE - 1, 1, False, Step.WRITE),
        (BASE, 1, False, Step.COMPARE),
        (BASE, 2, False, Step.COMPARE),
        (None, 1, True, Step.WRITE),
        (BASE + 1, 2, True, Step.WRITE),
        (BASE + 2, 2, True, Step.COMPARE),
    ],
)
def test_a_site_writes_or_compares(recorded: int | None, attempt: int, again: bool, step: Step) -> None:
    assert before_write(recorded, EPOCH, attempt, again) is step


@pytest.mark.parametrize("again", [False, True])
def test_a_sealed_table_stops_every_write(again: bool) -> None:
    with pytest.raises(Sealed):
        before_write(SEAL, EPOCH, 1, again)


@pytest.mark.parametrize("again", [False, True])
def test_a_table_ahead_of_the_epoch_stops_the_write(again: bool) -> None:
    with pytest.raises(LedgerBroken):
        before_write(BASE + ATTEMPTS, EPOCH, 1, again)


def test_a_newer_attempt_fences_an_older_one() -> None:
    with pytest.raises(Fenced):
        before_write(BASE + 3, EPOCH, 2, True)


def test_only_a_site_that_writes_again_has_the_attempt_in_its_version() -> None:
    assert version_of(EPOCH, 3, writes_again=False) == BASE
    assert version_of(EPOCH, 3, writes_again=True) == BASE + 3
