"""The columns that the ledger knows to have been read, as a rule's edits and its sources' types change."""

from __future__ import annotations

import pytest

from floodmark.core.protocol.records.rows import Columns
from floodmark.spark.rule.epochs.intents import known_columns

BEFORE: Columns = {"s": [("at", "timestamp"), ("k", "int")], "other": [("v", "int")]}


@pytest.mark.parametrize("star", [False, True])
def test_columns_keep_their_place_and_have_the_types_of_today(star: bool) -> None:
    now: Columns = {"s": [("k", "bigint"), ("at", "timestamp")], "other": [("v", "int")]}
    assert known_columns(now, BEFORE, star) == {**BEFORE, "s": [("at", "timestamp"), ("k", "bigint")]}


def test_a_column_that_an_edit_no_longer_reads_stays_known() -> None:
    assert known_columns({"s": [("at", "timestamp")], "other": []}, BEFORE, False) == BEFORE


def test_a_column_that_an_edit_reads_for_the_first_time_becomes_known() -> None:
    now: Columns = {"s": [("at", "timestamp"), ("n", "int")], "other": [("V", "int"), ("w", "string")]}
    found = known_columns(now, BEFORE, False)
    assert found == {"s": [*BEFORE["s"], ("n", "int")], "other": [("v", "int"), ("w", "string")]}
    wider: Columns = {**now, "s": [("at", "timestamp"), ("n", "bigint")]}
    assert known_columns(wider, found, False)["s"] == [*BEFORE["s"], ("n", "bigint")]


def test_a_star_means_the_columns_of_the_start() -> None:
    assert known_columns({**BEFORE, "s": [*BEFORE["s"], ("n", "int")]}, BEFORE, True) == BEFORE
