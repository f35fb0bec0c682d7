"""The ledger: a chain of rows, written by one client, fenced by the handle that was loaded at the gate."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Restated
from floodmark.core.protocol.records.chain import check_chained
from floodmark.core.protocol.records.following import head_at, read_head
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.headtext import head_from_text, head_to_text
from floodmark.core.protocol.records.rows import (
    Commit,
    Counts,
    Intent,
    Life,
    Lost,
    Redelivery,
    Replay,
    Row,
    Seal,
    Written,
    text_of,
)  # fmt: skip
from floodmark.core.protocol.recovery import ATTEMPTS, Gate, at_the_gate, backfill_version, check_tables, check_unfailed
from floodmark.core.rules.rule import Rule, Sink, Stream
from floodmark.errors import Fenced, FloodmarkError, HistoryGone, LedgerBroken, Sealed, VerifyFailed
from floodmark.ledger import ledger as module
from floodmark.ledger.ledger import Ledger, LedgerReader, schema

RULE = Rule(
    rule="r",
    streams={"s": Stream(kind="delta", address="lake/s")},
    sql="SELECT * FROM s",
    sinks=(Sink(kind="delta", address="lake/out"),),
    hash="h",
)


def entry(place: int) -> str:
    return Entry(place, (f'{{"at":{place}}}',)).text()


def first(**more: object) -> Commit:
    ids = {"sink/lake/out": "id"}
    return Commit(entry=entry(0), watermark=None, maxima={"s": None}, rule=RULE.to_json(), table_ids=ids, **more)  # type: ignore[arg-type]


def intent(place: int, qos: int = 2) -> Intent:
    rule = RULE.model_copy(update={"qos": qos})
    return Intent(
        entry=entry(place),
        watermark_before=None,
        watermark=None,
        maxima={"s": None},
        counts={"s": Counts(read=3, folded=3)},
        rule=rule.to_json(),
        rule_hash="h",
        zone="UTC",
        ansi=True,
    )


def commit(of: Intent) -> Commit:
    return Commit(intent=of.digest, entry=of.entry, watermark=None, maxima=of.maxima, counts=of.counts)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger.open(str(tmp_path / "ledger"), "one")
    made.begin(1, "token", first())
    return made


def test_an_empty_ledger_asks_for_a_first_generation(tmp_path: Path) -> None:
    assert at_the_gate(Ledger.open(str(tmp_path / "ledger"), "one").head) is Gate.BEGIN


@pytest.mark.parametrize(
    ("rows", "newest"),
    [
        ([], 0),
        (["backfill"], backfill_version(0, 1)),
        (["backfill", "backfilled"], backfill_version(0, 1)),
        (["intent"], ATTEMPTS),
        (["backfill", "backfilled", "intent"], ATTEMPTS + 7),  # an attempt at qos 1
        (["intent", "commit"], ATTEMPTS + 7),
        (["backfill", "backfilled", "intent", "commit"], ATTEMPTS + 7),
        (["intent", "commit", "backfill"], backfill_version(1, 1)),
        (["backfill", "backfilled", "intent", "commit", "backfill"], backfill_version(1, 2)),
    ],
)
def test_a_table_may_have_what_stands_in_the_ledger_and_nothing_after_it(
    ledger: Ledger, rows: list[str], newest: int
) -> None:
    """Also where no epoch, but a backfill alone was forgotten."""
    head = ledger.head
    for kind in rows:
        head = follows(ledger, kind)
    assert head is not None
    check_tables(head, {NAME: newest}, {NAME: "id"}, {})
    after = [backfill_version(epoch, len(head.backfills) + (head.backfill is not None) + 1) for epoch in (0, 1, 2)]
    for version in [*(one for one in after if one > newest), ATTEMPTS * (head.epoch + 2)]:
        with pytest.raises(LedgerBroken, match="the table is ahead of the ledger"):
            check_tables(head, {NAME: version}, {NAME: "id"}, {})


def follows(ledger: Ledger, kind: str) -> Head:
    assert ledger.head is not None
    number = len(ledger.head.backfills) + 1
    if kind == "backfill":
        return ledger.start_backfill(backfill(number))
    if kind == "backfilled":
        return ledger.end_backfill(backfilled(backfill(number)))
    return ledger.intend(intent(1)) if kind == "intent" else ledger.commit(commit(intent(1)))


@pytest.mark.parametrize("kind", ["intent", "backfill"])
def test_a_failed_check_is_kept_until_somebody_has_decided(ledger: Ledger, kind: str) -> None:
    follows(ledger, kind)
    ledger.live(Life(what="failed", said="rows are doubled"))
    assert ledger.head is not None and head_from_text(head_to_text(ledger.head)) == ledger.head
    with pytest.raises(VerifyFailed, match="rows are doubled"):
        check_unfailed(ledger.head)

    head = ledger.live(Life(what="recheck"))
    check_unfailed(head)
    assert (head.open or head.backfill) is not None
    assert follows(ledger, "commit" if kind == "intent" else "backfilled").failed is None


def test_a_seal_decides_on_a_failed_check_too(ledger: Ledger) -> None:
    follows(ledger, "intent")
    ledger.live(Life(what="failed", said="rows are doubled"))
    head = ledger.seal(Seal(why="reset", successor=2, token="other", keep_output=False, discarded=1))
    assert head.failed is None


@pytest.mark.parametrize("life", [Life(what="failed", said="nothing is open"), Life(what="recheck")])
def test_no_check_can_fail_or_be_repeated_where_nothing_is_open(ledger: Ledger, life: Life) -> None:
    with pytest.raises(LedgerBroken, match=f"cannot be {life.what}"):
        ledger.live(life)


def test_rows_that_a_target_gets_after_all_are_named_before_a_seal(ledger: Ledger) -> None:
    """Also while an epoch is open: it stays open."""
    rows = Redelivery(target="sink/postgres://shop/public.rows", rows=((2, 0), (2, 5)))
    opened = ledger.intend(intent(1))
    assert ledger.live(Life(what="redelivered", redelivery=rows)).open == opened.open
    with pytest.raises(LedgerBroken, match="cannot be redelivered"):
        ledger.live(Life(what="redelivered"))
    ledger.seal(Seal(why="reset", successor=2, token="other", keep_output=False, discarded=1))
    with pytest.raises(LedgerBroken, match="cannot be redelivered"):
        ledger.live(Life(what="redelivered", redelivery=rows))


def test_the_head_knows_the_epochs_that_read_dead_rows_and_no_other_intent_hashes_anew(ledger: Ledger) -> None:
    """A lost one counts, too: its rows are gone for good."""
    plain = intent(1)
    assert "replay" not in plain.model_dump_json()
    ledger.intend(plain)
    ledger.commit(commit(plain))
    committed, lost = (intent(1).model_copy(update={"replay": Replay(upto=upto, where="n > 0")}) for upto in (1, 2))
    ledger.intend(committed)
    ledger.commit(commit(committed))
    ledger.intend(lost)
    ledger.lose(Lost(intent=lost.digest, entry=lost.entry, watermark=None, maxima={}, counts=lost.counts, lost=3,
                     lost_epochs=(3,), due=(None, None)))  # fmt: skip
    found = read_head(ledger.rows)
    assert found is not None
    assert found.replays == {2: Replay(upto=1, where="n > 0"), 3: Replay(upto=2, where="n > 0")}


def test_the_head_knows_each_text_by_which_a_committed_epoch_was_written(ledger: Ledger) -> None:
    edited = RULE.model_copy(update={"sql": "SELECT at FROM s"})
    lone = intent(4).model_copy(update={"rule": RULE.model_copy(update={"sql": "SELECT 1"}).to_json()})
    for place, rule in enumerate((RULE, edited, RULE.model_copy(update={"hash": "other"})), 1):
        planned = intent(place).model_copy(update={"rule": rule.to_json()})
        ledger.intend(planned)
        ledger.commit(commit(planned))
    assert ledger.intend(lone).texts == (text_of(RULE), text_of(edited))
    assert ledger.head is not None
    assert ledger.head == head_from_text(head_to_text(ledger.head)) == read_head(ledger.rows)


def test_epochs_that_fold_no_rows_end_no_silence(ledger: Ledger) -> None:
    """Folded rows do, also at qos 0, and a watermark that has taken the silence into account."""
    nothing, rows = {"s": Counts()}, {"s": Counts(read=2, filtered=1, folded=1)}
    others = {"s": Counts(read=3, filtered=1, dead=1, late=1)}
    for place, counts, watermark, ticks, since in (
        (1, nothing, None, (), 0),
        (2, rows, None, (), 2),
        (3, nothing, None, (), 2),
        (4, others, None, (), 2),
        (5, nothing, 7, (), 5),
        (6, nothing, 7, (), 5),
        (7, nothing, 7, ("until 7",), 7),
    ):
        planned = intent(place).model_copy(update={"counts": counts, "watermark": watermark, "ticks": ticks})
        ledger.intend(planned)
        ledger.commit(commit(planned).model_copy(update={"watermark": watermark}))
        assert ledger.begun.quiet_since_ms == since
    assert head_from_text(head_to_text(ledger.begun)) == ledger.begun


def backfill(number: int = 1, begin: int = 0) -> Backfill:
    return Backfill(
        number=number,
        begin=begin,
        end=begin + 60,
        high=begin + 60,
        upto=0,
        entry=entry(0),
        column="at",
        shift=0,
        counts={"s": Counts(read=3, folded=3)},
        restated={"s": 1},
        digests={},
        results=Digest(),
        rule=RULE.to_json(),
        rule_hash="h",
    )


def backfilled(of: Backfill) -> Backfilled:
    name = "sink/lake/out"
    written = Written(version=backfill_version(0, of.number), commit=7, rows=2)
    return Backfilled(number=of.number, intent=of.digest, tables={name: written}, removed={name: 1})


def test_a_backfill_stands_between_two_epochs_and_moves_nothing(ledger: Ledger) -> None:
    before = ledger.head
    assert before is not None
    assert at_the_gate(ledger.start_backfill(backfill())) is Gate.FINISH_BACKFILL
    assert ledger.start_backfill(backfill()).attempt == 2
    after = ledger.end_backfill(backfilled(backfill()))
    assert at_the_gate(after) is Gate.PLAN
    assert after.backfills == {1: Restated(begin=0, end=60, high=60, upto=0)}
    assert (after.commits["sink/lake/out"], after.written["sink/lake/out"]) == (7, backfill_version(0, 1))
    assert (after.epoch, after.entry, after.watermark) == (before.epoch, before.entry, before.watermark)
    again = LedgerReader.load(ledger.address)
    assert again is not None and again.head == after == head_from_text(head_to_text(after))
    planned = intent(1)
    ledger.intend(planned)
    assert ledger.commit(commit(planned)).backfills == after.backfills


def test_nothing_else_happens_while_a_backfill_is_open_but_a_seal(ledger: Ledger) -> None:
    planned = intent(1)
    ledger.intend(planned)
    with pytest.raises(LedgerBroken, match="expected what follows on epoch 0"):
        ledger.start_backfill(backfill())
    ledger.commit(commit(planned))
    with pytest.raises(LedgerBroken, match="expected backfill 1, found backfill 2"):
        ledger.start_backfill(backfill(2))
    ledger.start_backfill(backfill())
    with pytest.raises(LedgerBroken, match="expected the end of backfill 1, found intent of epoch 2"):
        ledger.intend(intent(2))
    with pytest.raises(LedgerBroken, match="another backfill than 1"):
        ledger.start_backfill(backfill(begin=60))
    with pytest.raises(LedgerBroken, match="committed without its intent"):
        ledger.end_backfill(backfilled(backfill(begin=60)))
    sealed = ledger.seal(Seal(why="reset", successor=2, token="next", keep_output=False, discarded=None))
    assert (sealed.backfill, at_the_gate(sealed)) == (None, Gate.CHANGE_GENERATION)
    assert ledger.begin(2, "next", first()).backfills == {}


def test_an_intent_is_open_until_its_commit(ledger: Ledger) -> None:
    planned = intent(1)
    assert at_the_gate(ledger.intend(planned)) is Gate.FINISH_EPOCH
    assert at_the_gate(ledger.commit(commit(planned))) is Gate.PLAN
    again = LedgerReader.load(ledger.address)
    assert again is not None and again.head == ledger.head
    assert again.head is not None and (again.head.epoch, again.head.entry.clock_ms) == (1, 1)


def test_the_head_of_an_earlier_epoch(ledger: Ledger) -> None:
    heads = []
    for place in (1, 2, 3):
        planned = intent(place)
        ledger.intend(planned)
        table = {"state/s": Written(version=place << 20, commit=place + 1, rows=1)} if place != 2 else {}
        heads.append(ledger.commit(commit(planned).model_copy(update={"tables": table})))
    ledger.intend(intent(4))
    assert [head_at(ledger.rows, epoch) for epoch in (1, 2, 3)] == heads
    assert [head.commits["state/s"] for head in heads] == [2, 2, 4]
    seal = Seal(why="reset", successor=2, token="next", keep_output=False, discarded=4)
    ledger.seal(seal)
    assert head_at(ledger.rows, 3) == heads[2]
    begun = ledger.begin(2, "next", first())
    assert head_at(ledger.rows, 0) == begun


def test_rows_of_ledgers_from_before_streams_could_be_excused_read_and_hash_as_they_did() -> None:
    for record in (intent(1), commit(intent(1)), first()):
        assert "heard" not in record.model_dump_json()
    text = intent(1).model_dump_json()
    assert Intent.model_validate_json(text).digest == hashlib.sha256(text.encode()).hexdigest()
    assert Intent.model_validate_json(text).heard == {}


def test_the_head_knows_when_streams_were_last_heard(tmp_path: Path) -> None:
    ledger = Ledger.open(str(tmp_path / "other"), "one")
    assert ledger.begin(1, "token", first(heard={"s": 1})).heard == {"s": 1}
    planned = intent(1).model_copy(update={"heard": {"s": 5}})
    ledger.intend(planned)
    assert ledger.commit(commit(planned).model_copy(update={"heard": planned.heard})).heard == {"s": 5}
    assert read_head(ledger.rows) == ledger.head


def test_an_intent_from_before_there_were_digests_keeps_its_hash() -> None:
    now = json.loads(intent(1).model_dump_json())
    before = {**{name: value for name, value in now.items() if name != "digests"}, "format": 1}
    text = json.dumps(before, separators=(",", ":"))
    assert Intent.model_validate_json(text).digest == hashlib.sha256(text.encode()).hexdigest()


def test_a_retry_announces_the_same_intent_with_the_next_attempt(ledger: Ledger) -> None:
    planned = intent(1)
    assert [ledger.intend(planned).attempt for _ in range(3)] == [1, 2, 3]


def test_an_open_epoch_is_never_planned_anew(ledger: Ledger) -> None:
    ledger.intend(intent(1))
    with pytest.raises(LedgerBroken, match="planned again"):
        ledger.intend(intent(2))


def test_at_qos_0_an_open_epoch_is_lost(ledger: Ledger) -> None:
    planned = intent(1, qos=0)
    assert at_the_gate(ledger.intend(planned)) is Gate.LOSE_EPOCH
    lost = Lost(
        intent=planned.digest,
        entry=planned.entry,
        watermark=None,
        maxima={},
        counts=planned.counts,
        lost=3,
        lost_epochs=(1,),
        due=(None, 5),
    )
    head = ledger.lose(lost)
    assert (head.epoch, head.lost, head.open) == (1, (1,), None)


def test_a_seal_comes_before_the_next_generation(ledger: Ledger) -> None:
    seal = Seal(why="reset", successor=2, token="next", keep_output=False, discarded=None)
    assert at_the_gate(ledger.seal(seal)) is Gate.CHANGE_GENERATION
    with pytest.raises(LedgerBroken):
        ledger.intend(intent(1))
    with pytest.raises(LedgerBroken, match="no seal announced"):
        ledger.begin(3, "other", first())
    assert at_the_gate(ledger.begin(2, "next", first())) is Gate.PLAN


def test_a_twin_that_loaded_the_ledger_before_is_fenced(ledger: Ledger) -> None:
    twin = Ledger.open(ledger.address, "two")
    ledger.intend(intent(1))
    with pytest.raises(Fenced, match="by one"):
        twin.intend(intent(1))
    assert [row.run for row in LedgerReader.load(ledger.address).rows] == ["one", "one"]  # type: ignore[union-attr]


@pytest.mark.parametrize("field", ["body", "run", "epoch", "prev"])
def test_an_edited_row_breaks_the_chain(ledger: Ledger, field: str) -> None:
    rows = [*ledger.rows]
    ledger.intend(intent(1))
    edited = {**rows[0].__dict__, field: {"epoch": 5}.get(field, '{"format":1}')}
    with pytest.raises(LedgerBroken):
        read_head([Row(**edited), *ledger.rows[1:]])


def test_a_missing_row_breaks_the_chain(ledger: Ledger) -> None:
    planned = intent(1)
    ledger.intend(planned)
    ledger.commit(commit(planned))
    with pytest.raises(LedgerBroken):
        read_head([ledger.rows[0], ledger.rows[2]])


def test_a_forged_row_is_found(ledger: Ledger) -> None:
    head = ledger.head
    assert head is not None
    forged = Row(2, "commit", 1, "token", 1, 1, "x", "now", commit(intent(1)).model_dump_json(), head.hash).sealed()
    write_deltalake(ledger.address, pa.Table.from_pylist([forged.__dict__], schema=schema()), mode="append")
    with pytest.raises(LedgerBroken, match="without its intent"):
        LedgerReader.load(ledger.address)


def five_epochs(ledger: Ledger) -> list[Row]:
    for place in range(1, 6):
        planned = intent(place)
        ledger.intend(planned)
        ledger.commit(commit(planned))
    return ledger.rows


def changed(rows: list[Row], at: int, how: str) -> list[Row]:
    """`at`: the place of the row that is lacking, doubled or changed; `how` may name the column."""
    row, rest = rows[at], rows[at + 1 :]
    if how in ("missing", "missing with all after it"):
        return [*rows[:at], *(rest if how == "missing" else [])]
    if how == "twice":
        return [*rows[:at], row, row, *rest]
    return [*rows[:at], replace(row, **{how: {"seq": row.seq + 20, "epoch": 9}.get(how, "other")}), *rest]


def fault_of(check: Callable[[], object]) -> str | None:
    try:
        check()
    except LedgerBroken as fault:
        return str(fault)
    return None


WAYS = ("missing", "missing with all after it", "twice", "seq", "body", "hash", "prev", "run", "epoch")


@pytest.mark.parametrize("how", WAYS)
def test_a_ledger_is_checked_in_portions_as_it_is_at_once(
    ledger: Ledger, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the place of the damage within a portion, and however many portions there are."""
    rows, address = five_epochs(ledger), ledger.address
    for at in range(len(rows)):
        found = changed(rows, at, how)
        data = pa.Table.from_pylist([row.__dict__ for row in found], schema=schema())
        write_deltalake(address, data, mode="overwrite")
        reader = LedgerReader(address, DeltaTable(address), ledger)
        monkeypatch.setattr(module, "PORTION", 100)
        whole = fault_of(lambda: list(reader.each()))  # noqa: B023
        at_once = fault_of(lambda: check_chained(sorted(found, key=lambda row: row.seq)))  # noqa: B023
        assert whole is not None and at_once in (whole, None), "without its newest rows, only the log tells"
        for portion in (1, 2, 3, 4, 11):
            monkeypatch.setattr(module, "PORTION", portion)
            assert fault_of(lambda: list(reader.each())) == whole, (at, portion)  # noqa: B023


@pytest.mark.parametrize("portion", [1, 2, 3, 10, 11, 12])
def test_a_ledger_in_portions_has_the_same_rows_and_head(
    ledger: Ledger, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, head = five_epochs(ledger), ledger.head
    monkeypatch.setattr(module, "PORTION", portion)
    for known in (False, True):
        reader = LedgerReader.load(ledger.address)
        assert reader is not None and (reader.rows, reader.head) == (rows, head), known
        ledger.tidy()  # which remembers the head


def test_a_run_keeps_no_rows_of_its_ledger(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It checks them all from time to time, and a rule runs for years."""
    five_epochs(ledger)
    monkeypatch.setattr(module, "COMPACT_ABOVE", 3)
    again = Ledger.open(ledger.address, "two")
    assert len(DeltaTable(ledger.address).file_uris()) == 1
    assert not [one for one in vars(again).values() if isinstance(one, list)]


def test_the_ledger_is_compacted_at_the_gate(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPACT_ABOVE", 10)
    for place in range(1, 7):
        planned = intent(place)
        ledger.intend(planned)
        ledger.commit(commit(planned))
    before = ledger.head
    again = Ledger.open(ledger.address, "two")
    assert len(DeltaTable(ledger.address).file_uris()) == 1
    assert again.head == before
    assert again.intend(intent(1000)).epoch == before.epoch  # type: ignore[union-attr]


def test_replaced_files_stay_for_who_loaded_the_ledger_before_and_go_later(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPACT_ABOVE", 3)
    for place in range(1, 4):
        planned = intent(place)
        ledger.intend(planned)
        ledger.commit(commit(planned))
    reader, folder = LedgerReader.load(ledger.address), Path(ledger.address)
    assert reader is not None
    left = [folder / f"part-of-a-killed-writer-{age}.parquet" for age in ("old", "fresh")]
    for file in left:
        file.write_bytes(b"")
    os.utime(left[0], (0, 0))
    Ledger.open(ledger.address, "two")
    assert reader.rows == ledger.rows
    assert [file.exists() for file in left] == [False, True]
    monkeypatch.setattr(module, "RETAINED_HOURS", 0)
    again = Ledger.open(ledger.address, "three")
    for _ in range(4):
        again.intend(intent(9))
    rows = again.rows
    newest = Ledger.open(ledger.address, "four")
    assert [path.name for path in folder.glob("*.parquet")] == [Path(uri).name for uri in newest._table.file_uris()]
    assert newest.rows == rows
    planned = intent(9)
    assert newest.commit(commit(planned)).epoch == 4


NAME = "sink/lake/out"


@pytest.mark.parametrize(
    ("recorded", "found", "fault"),
    [
        (None, None, HistoryGone),
        (None, "another", HistoryGone),
        (None, "id", HistoryGone),  # the ledger wrote version 2**20
        (2 * ATTEMPTS, "id", LedgerBroken),
        ((1 << 63) - 1, "id", Sealed),
        (ATTEMPTS, "id", None),
    ],
)
def test_tables_and_ledger_must_tell_one_story(
    ledger: Ledger, recorded: int | None, found: str | None, fault: type[FloodmarkError] | None
) -> None:
    planned = intent(1)
    ledger.intend(planned)
    wrote = {NAME: {"version": ATTEMPTS, "commit": 1, "rows": 3}}
    head = ledger.commit(Commit.model_validate({**commit(planned).model_dump(), "tables": wrote}))
    if fault is None:
        check_tables(head, {NAME: recorded}, {NAME: found}, {})
        return
    with pytest.raises(fault):
        check_tables(head, {NAME: recorded}, {NAME: found}, {})
