"""The recovery table: what a write site does, given what its table has recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow

from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Intent, Seal
from floodmark.core.protocol.recovery import (
    ATTEMPTS,
    BACKFILLS,
    SEAL,
    Gate,
    Step,
    app_id,
    at_the_gate,
    backfill_version,
    before_backfill,
    before_write,
    check_tables,
    fault_of,
    opened_at_qos,
    overtaken,
    version_of,
)
from floodmark.errors import Fenced, HistoryGone, LedgerBroken, Sealed

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


# --- the gate, and tables beside the ledger


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Head:
    """Epoch 7 of generation 1 is committed, nothing is open."""
    rule = Flow(Path(tmp_path_factory.mktemp("flow"))).rule()
    begun = Commit(entry="v1\n{}", watermark=None, maxima={}, heard={}, rule=rule.to_json())
    return Head(9, "", 1, "token", EPOCH, Entry(0, ()), None, {}, rule, begun, table_ids={"t": "id"})


def opened(head: Head, qos: int) -> Head:
    rule = head.rule.model_copy(update={"qos": qos})
    text = {"entry": "v1\n{}", "watermark_before": None, "watermark": None, "maxima": {}, "heard": {}, "counts": {}}
    return replace(head, open=Intent(**text, rule=rule.to_json(), rule_hash="0", zone="UTC", ansi=True))  # type: ignore[arg-type]


BACKFILL: Any = object()
SEALED = Seal(why="reset", successor=2, token="next", keep_output=False, discarded=None)


def test_the_gate_goes_by_what_stands_open(head: Head) -> None:
    assert at_the_gate(None) is Gate.BEGIN
    assert at_the_gate(head) is Gate.PLAN
    assert at_the_gate(opened(head, 2)) is at_the_gate(opened(head, 1)) is Gate.FINISH_EPOCH
    assert at_the_gate(opened(head, 0)) is Gate.LOSE_EPOCH
    assert at_the_gate(replace(head, backfill=BACKFILL)) is Gate.FINISH_BACKFILL
    assert at_the_gate(replace(opened(head, 2), seal=SEALED)) is Gate.CHANGE_GENERATION
    assert [opened_at_qos(opened(head, qos)) for qos in (0, 1, 2)] == [0, 1, 2]


def test_the_app_says_whose_generation_and_which_site_writes() -> None:
    assert app_id("ledger", 3, "token", "sink") == "floodmark/ledger/g3-token/sink"
    assert (ATTEMPTS, BACKFILLS, SEAL) == (2**20, 2**19, 2**63 - 1)
    assert backfill_version(7, 2) == BASE + 2**19 + 2


@pytest.mark.parametrize(
    ("recorded", "attempt", "again", "raised"),
    [
        (BASE + ATTEMPTS - 1, 1, False, Fenced),
        (BASE + ATTEMPTS, 1, False, LedgerBroken),
        (BASE + 1, 1, False, Fenced),
        (BASE + 2, 1, True, Fenced),
        (SEAL, 1, True, Sealed),
    ],
)
def test_who_was_there_is_told(recorded: int, attempt: int, again: bool, raised: type[Exception]) -> None:
    told = {
        Fenced: f"attempt {recorded % ATTEMPTS} of epoch 7 has written after attempt {attempt} began",
        LedgerBroken: "a table has recorded epoch 8, while epoch 7 is being written",
        Sealed: "this generation was sealed by a newer one; nothing was written",
    }[raised]
    with pytest.raises(raised) as fault:
        before_write(recorded, EPOCH, attempt, again)
    assert str(fault.value) == told


@pytest.mark.parametrize(
    ("recorded", "number", "step"),
    [
        (None, 1, Step.WRITE),
        (BASE, 1, Step.WRITE),
        (BASE + BACKFILLS, 1, Step.WRITE),
        (BASE + BACKFILLS + 1, 1, Step.COMPARE),
        (BASE + BACKFILLS + 1, 2, Step.WRITE),
    ],
)
def test_a_backfill_is_written_once(recorded: int | None, number: int, step: Step) -> None:
    assert before_backfill(recorded, EPOCH, number) is step


def test_a_backfill_is_not_written_over_a_newer_one_or_a_seal() -> None:
    newer = BASE + BACKFILLS + 2
    with pytest.raises(LedgerBroken) as fault:
        before_backfill(newer, EPOCH, 1)
    assert str(fault.value) == f"a sink has recorded version {newer}, while backfill 1 is to be version {newer - 1}"
    with pytest.raises(Sealed, match=r"^this generation was sealed by a newer one; nothing was written$"):
        before_backfill(SEAL, EPOCH, 1)


WAYS = "restore the right table, or start over with `floodmark reset`"


@pytest.mark.parametrize(
    ("found", "written", "recorded", "told"),
    [
        (None, None, None, f"t: the table that the ledger has written to is gone; {WAYS}"),
        ("other", None, None, f"t: expected the table with id id, found another with id other; {WAYS}"),
        ("id", 5, SEAL, f"t: this generation was sealed by a newer one that the ledger does not know; {WAYS}"),
        ("id", 5, 4, f"t: the ledger wrote version 5, but the table has recorded 4; {WAYS}"),
        ("id", 5, None, f"t: the ledger wrote version 5, but the table has recorded None; {WAYS}"),
        ("id", 5, 5, None),
        ("id", 5, 6, None),
        ("id", None, None, None),
        ("id", None, 3, None),
    ],
)
def test_what_is_wrong_with_a_table(found: str | None, written: int | None, recorded: int | None, told: Any) -> None:
    fault = fault_of("t", "id", found, written, recorded)
    assert (None if fault is None else str(fault)) == told
    assert told is None or isinstance(fault, Sealed if recorded == SEAL else HistoryGone)


def ahead(head: Head, recorded: int | None) -> str | None:
    try:
        return check_tables(head, {"t": recorded}, {"t": "id"}, {})
    except LedgerBroken as fault:
        return str(fault)


@pytest.mark.parametrize(
    ("changed", "newest"),
    [
        ({}, BASE + BACKFILLS),
        ({"backfills": {1: None, 2: None}}, BASE + BACKFILLS + 2),
        ({"backfills": {1: None}, "backfill": BACKFILL}, BASE + BACKFILLS + 2),
    ],
)
def test_a_table_has_at_most_what_the_ledger_can_have_written(head: Head, changed: Any, newest: int) -> None:
    now = replace(head, **changed)
    assert ahead(now, None) is None and ahead(now, newest) is None
    assert ahead(now, newest + 1) == (
        f"t: the table is ahead of the ledger (version {newest + 1}, expected {newest} at most): the home was "
        "restored from an older copy; restore the newest ledger, or start over with `floodmark reset`"
    )


def test_an_open_epoch_may_have_written_and_only_one_that_is_abandoned_was_undone(head: Head) -> None:
    now, undo = opened(head, 2), BASE + ATTEMPTS + BACKFILLS
    for recorded in (BASE + BACKFILLS, BASE + ATTEMPTS, undo - 1):
        assert ahead(now, recorded) is None, recorded
    for recorded in (BASE + BACKFILLS + 1, BASE + ATTEMPTS - 1, undo, BASE + 2 * ATTEMPTS):
        assert ahead(now, recorded) is not None, recorded
    taken_back = replace(now, abandoning=True)
    assert ahead(taken_back, undo) is None and ahead(taken_back, undo + 1) is not None


def test_tables_are_looked_at_one_by_one_and_state_by_its_rewrite(head: Head) -> None:
    now = replace(head, table_ids={"t": "id", "u": "uid"}, written={"u": BASE})
    check_tables(now, {"u": BASE}, {"t": "id", "u": "uid"}, {"s": EPOCH})
    with pytest.raises(HistoryGone, match=r"^u: the ledger wrote"):
        check_tables(now, {"u": BASE - 1}, {"t": "id", "u": "uid"}, {})
    with pytest.raises(HistoryGone, match=r"^t: the table that"):
        check_tables(now, {"u": BASE}, {"u": "uid"}, {})
    with pytest.raises(LedgerBroken) as fault:
        check_tables(now, {"u": BASE}, {"t": "id", "u": "uid"}, {"s": EPOCH + 1})
    assert str(fault.value) == (
        "s: the table was rewritten after epoch 8, the ledger ends at epoch 7: its newest rows are gone; restore the "
        "newest ledger, or start over with `floodmark reset`"
    )


def test_a_table_shows_that_a_newer_ledger_goes_on_with_it(head: Head) -> None:
    assert overtaken("t", head, None) is overtaken("t", head, BASE) is overtaken("t", head, BASE - ATTEMPTS) is None
    found = f"it is ahead of this ledger, which ends at epoch {EPOCH} (version {BASE + ATTEMPTS} of its writes)"
    assert overtaken("t", head, BASE + ATTEMPTS) == found
    assert overtaken("t", head, SEAL) == "a generation that this ledger does not know goes on with it"
    assert overtaken("t", replace(head, seal=SEALED), SEAL) is None
    assert overtaken("t", opened(head, 2), BASE + ATTEMPTS) is None, "of an open epoch"
