"""The columns that the ledger knows to have been read, as a rule's edits and its sources' types change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from support.flow import Flow

from floodmark.core.protocol.records.rows import Columns
from floodmark.spark.rule.epochs import intents
from floodmark.spark.rule.epochs.intents import Intents, known_columns

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


@pytest.mark.parametrize("opened", [{}, {"s": [("at", "timestamp"), ("n", "int")]}])
def test_a_retry_reads_the_columns_of_its_intent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opened: Columns
) -> None:
    """A column that the source has gained since, under a name of the SQL, would be none of the intent's."""
    before: Columns = {"s": [("at", "timestamp")]}
    now: Columns = {"s": [("at", "timestamp"), ("n", "int"), ("total", "int")]}
    monkeypatch.setattr(intents, "columns_of", lambda streams: now)
    plan = SimpleNamespace(fold=SimpleNamespace(shape=SimpleNamespace(streams={})), rule=Flow(tmp_path).rule())
    first = SimpleNamespace(_plan=plan, head=SimpleNamespace(columns=before, open=None))
    retry = SimpleNamespace(_plan=plan, head=SimpleNamespace(columns=before, open=SimpleNamespace(columns=opened)))
    assert Intents._columns(cast("Intents", first)) == now
    assert Intents._columns(cast("Intents", retry)) == opened
