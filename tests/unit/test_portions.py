"""What a target has still to get, and whether its position can be trusted: decided by the ledger's rows alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from floodmark.core.protocol.records.backfills import Backfill
from floodmark.core.protocol.records.rows import Kind, Row
from floodmark.core.relay.portions import MOST_BYTES, Portion, Replaced, batches, check_position, portions
from floodmark.core.relay.positions import Position
from floodmark.core.relay.terms import Terms, terms_at
from floodmark.errors import LedgerBroken, NotOwned, Refused

SINK = "sink/postgres://shop/public.rows"
LEDGER = "l"


def _row(seq: int, kind: Kind, generation: int, epoch: int, **body: Any) -> Row:
    return Row(seq, kind, generation, f"t{generation}", epoch, 1, "run", f"at {seq}", json.dumps(body), "", f"h{seq}")


def begins(
    seq: int, generation: int, kept_output: bool = False, has: bool = True, keeps: bool = False, **sink: Any
) -> Row:
    ids = {SINK: "id"} if has else {}
    said = {"address": SINK.removeprefix("sink/"), **({"on_reset": "keep"} if keeps else {}), **sink}
    rule = json.dumps({"sinks": [said], "rebuild": bool(sink.get("rebuild"))})
    return _row(seq, "commit", generation, 0, tables={}, table_ids=ids, kept_output=kept_output, rule=rule)


def commit(seq: int, generation: int, epoch: int, rows: int | None = 1) -> Row:
    written = {} if rows is None else {SINK: {"commit": 10 * seq, "rows": rows, "digest": {"rows": rows}}}
    return _row(seq, "commit", generation, epoch, tables=written)


def backfill(seq: int, generation: int, epoch: int, begin: int, end: int, **more: Any) -> Row:
    digest: dict[str, Any] = {"rows": 0}
    found = Backfill(
        begin=begin, end=end, high=end, upto=epoch, number=1, entry="", column="at", shift=5, counts={}, restated={},
        digests={}, results=digest, rule="", rule_hash="", **more,
    )  # fmt: skip
    return Row(seq, "backfill", generation, f"t{generation}", epoch, 1, "", "", found.model_dump_json(), "", f"h{seq}")


def ended(seq: int, generation: int, epoch: int, rows: int) -> Row:
    return _row(seq, "backfilled", generation, epoch, tables={SINK: {"commit": 10 * seq, "rows": rows, "digest": {}}})


def at(seq: int, generation: int = 1, epoch: int = 0) -> Position:
    return Position(LEDGER, generation, f"t{generation}", epoch, seq, f"h{seq}") if seq else Position(LEDGER)


def seqs(found: list[Portion]) -> list[int]:
    return [one.position.seq for one in found]


def test_epochs_with_rows_come_in_order_after_the_position() -> None:
    rows = [begins(1, 1), commit(3, 1, 1), commit(5, 1, 2, None), commit(7, 1, 3, 4)]
    assert seqs(portions(rows, SINK, at(0))) == [3, 7]
    [last] = portions(rows, SINK, at(3))
    assert (last.position, last.commit, last.rows, last.empties) == (at(7, epoch=3), 70, 4, False)
    assert portions(rows, SINK, at(7)) == []


def test_intents_lost_and_abandoned_epochs_give_nothing() -> None:
    rows = [begins(1, 1), _row(2, "intent", 1, 1), _row(3, "lost", 1, 1), _row(4, "abandoned", 1, 2), commit(5, 1, 3)]
    assert seqs(portions(rows, SINK, at(0))) == [5]


def test_a_reset_empties_a_target_that_has_rows_and_what_came_before_is_left_out() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), commit(3, 1, 2), _row(4, "seal", 1, 2), begins(5, 2), commit(6, 2, 1)]
    found = portions(rows, SINK, at(2, epoch=1))
    assert [(one.position.seq, one.empties) for one in found] == [(5, True), (6, False)]
    assert seqs(portions(rows, SINK, at(5, 2))) == [6]


def test_a_reset_that_keeps_the_output_empties_nothing() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), begins(5, 2, kept_output=True), commit(6, 2, 1)]
    found = portions(rows, SINK, at(0))
    assert [(one.position.seq, one.empties) for one in found] == [(2, False), (6, False)]


def test_a_target_that_keeps_its_rows_in_a_reset_is_not_emptied() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), begins(5, 2, keeps=True), commit(6, 2, 1)]
    assert [(one.position.seq, one.empties) for one in portions(rows, SINK, at(0))] == [(2, False), (6, False)]


def test_a_target_that_has_nothing_is_not_emptied() -> None:
    rows = [begins(1, 1), begins(5, 2), commit(6, 2, 1)]
    assert [(one.position.seq, one.empties) for one in portions(rows, SINK, at(0))] == [(6, False)]


def test_a_generation_that_did_not_know_the_target_cannot_have_emptied_it() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), begins(5, 2, has=False), commit(6, 2, 1)]
    with pytest.raises(Refused, match="it has rows from before the reset that began generation 2"):
        portions(rows, SINK, at(2, epoch=1))


def test_a_target_that_a_reset_has_left_out_is_emptied_by_the_next_that_has_it() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), begins(5, 2, has=False), commit(6, 2, 1), begins(7, 3), commit(8, 3, 1)]
    for since in (at(0), at(2, epoch=1)):
        found = portions(rows, SINK, since)
        assert [(one.position.seq, one.empties) for one in found] == [(7, True), (8, False)]
    whole = [*rows[:4], backfill(7, 2, 1, -9, 9, whole=True), ended(8, 2, 1, 3)]
    assert seqs(portions(whole, SINK, at(2, epoch=1))) == [8]
    kept = [*rows[:4], begins(7, 3, keeps=True), commit(8, 3, 1)]
    with pytest.raises(Refused, match="the reset that began generation 2"):
        portions(kept, SINK, at(2, epoch=1))
    never = [*rows[:3], begins(7, 3, has=False)]
    with pytest.raises(Refused, match="the reset that began generation 2"):
        portions(never, SINK, at(2, epoch=1))


def test_a_rebuilt_target_is_emptied_together_with_the_epoch_that_fills_it() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), begins(5, 2, rebuild=True)]
    assert portions(rows, SINK, at(2, epoch=1)) == []
    found = portions([*rows, commit(6, 2, 1)], SINK, at(2, epoch=1))
    assert [(one.position.seq, one.empties) for one in found] == [(5, True), (6, False)]


def test_a_portion_has_the_terms_of_its_own_text() -> None:
    """With `on_reset: keep`, what was not shipped before a reset comes as the generation before has meant it."""
    before, now = Terms(("k",), "n"), Terms((), None, 1)
    rows = [begins(1, 1, key=["K"], newest="N"), commit(2, 1, 1), begins(5, 2, keeps=True, qos=1), commit(6, 2, 1)]
    found = portions(rows, SINK, at(0))
    assert [one.terms for one in found] == [before, now]
    assert [len(one) for one in batches(found)] == [1, 1], "a transaction merges in one way"
    assert [one.terms for one in portions(rows, SINK, at(2, epoch=1))] == [now]
    assert [terms_at(rows, SINK, seq) for seq in (2, 5)] == [before, now]


def test_the_terms_of_a_sink_that_an_epoch_has_added_are_those_of_its_intent() -> None:
    text = json.dumps({"sinks": [{"address": SINK.removeprefix("sink/"), "key": ["k"]}]})
    rows = [begins(1, 1, address="else"), _row(2, "intent", 1, 1, rule=text), commit(3, 1, 1)]
    assert [one.terms for one in portions(rows, SINK, at(0))] == [Terms(("k",))]
    [unknown] = portions(rows[2:], SINK, at(0))
    assert unknown.terms is None


def test_a_backfill_of_everything_empties_the_target_with_its_rows() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), backfill(3, 1, 1, -9, 9, whole=True), ended(4, 1, 1, 3), commit(5, 1, 2)]
    whole, after = portions(rows, SINK, at(2, epoch=1))
    assert (whole.empties, whole.whole, whole.replaces, whole.commit, whole.rows) == (True, True, None, 40, 3)
    assert (after.position.seq, after.empties) == (5, False)
    assert seqs(portions(rows, SINK, at(0))) == [4, 5], "what it replaces need not be shipped first"


def test_a_backfill_says_which_rows_it_replaces() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), backfill(3, 1, 1, 100, 200, gaps=((120, 130),)), ended(4, 1, 1, 0)]
    [found] = portions(rows, SINK, at(2, epoch=1))
    assert (found.replaces, found.whole, found.commit) == (Replaced("at", ((105, 125), (135, 205))), True, None)
    assert not found.is_empty


def test_a_correction_by_key_replaces_no_interval() -> None:
    rows = [begins(1, 1), backfill(3, 1, 1, 0, 0), ended(4, 1, 1, 2)]
    [found] = portions(rows, SINK, at(1))
    assert (found.replaces, found.whole, found.rows) == (None, True, 2)


@pytest.mark.parametrize(("most", "sizes"), [(1, [1, 1, 1, 1]), (3, [2, 1, 1]), (4, [3, 1]), (9, [4]), (8, [3, 1])])
def test_batches_have_as_many_rows_as_fit_but_always_one_portion(most: int, sizes: list[int]) -> None:
    """Of 1, 2, 1 and 5 rows."""
    found = [Portion(at(i), "", i, rows, None) for i, rows in enumerate((1, 2, 1, 5), 1)]
    assert [len(one) for one in batches(found, most)] == sizes


def test_batches_of_wide_rows_end_by_their_bytes() -> None:
    """Of 3, 3, 1 and 9 quarters of what one may have."""
    found = [Portion(at(i), "", quarters, 1, None) for i, quarters in enumerate((3, 3, 1, 9), 1)]
    taken = batches(found, 99, lambda one: (one.commit or 0) * MOST_BYTES // 4)
    assert [[one.commit for one in batch] for batch in taken] == [[3], [3, 1], [9]]


def test_what_empties_a_target_is_in_one_transaction_with_what_fills_it() -> None:
    found = [Portion(at(1), "", None, 0, None, empties=True), Portion(at(2), "", 1, 100, None)]
    assert [len(one) for one in batches(found, 10)] == [2]


def test_what_takes_rows_away_begins_a_batch() -> None:
    """A target may have to read what it has."""
    interval = Replaced("at", ((1, 2),))
    found = [Portion(at(i), "", i, 1, None, replaces=interval if i in (3, 4) else None) for i in range(1, 6)]
    assert [len(one) for one in batches(found, 10)] == [2, 1, 2]


def test_a_position_of_the_ledgers_own_is_trusted() -> None:
    check_position("t", at(0), LEDGER, None, 5)
    check_position("t", at(3, epoch=1), LEDGER, commit(3, 1, 1), 3)


@pytest.mark.parametrize(
    ("position", "kind", "said"),
    [
        (Position("other"), NotOwned, "it belongs to another rule's ledger"),
        (at(6), LedgerBroken, "Restore the newest home, or remove the target with its position"),
        (at(3, epoch=2), LedgerBroken, "its position is not one of the ledger's"),
        (at(3, generation=2, epoch=1), LedgerBroken, "its position is not one of the ledger's"),
        (Position(LEDGER, 1, "t1", 1, 3, "x"), LedgerBroken, "its position is not one of the ledger's"),
    ],
)
def test_a_position_that_is_not_the_ledgers_is_refused(position: Position, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        check_position("postgres://shop/t", position, LEDGER, commit(3, 1, 1), 5)


def test_a_position_survives_its_text() -> None:
    position = at(3, epoch=1)
    assert Position.parse(position.text()) == position
    with pytest.raises(ValueError, match="expected a position with ledger"):
        Position.parse('{"ledger": "l"}')
