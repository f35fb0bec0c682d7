"""Taking an epoch back: what a sink asks for, what is undone, what is refused, and the rows that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.pretend import MemoryLedger, World

from floodmark.core.lifecycle.abandoning import (
    Net,
    SinkState,
    Undo,
    abandonable,
    abandoned_row,
    before_undo,
    check_sink,
    is_of,
    is_undone,
    net_of,
    still_undoable,
    undoing,
)
from floodmark.core.lifecycle.pinning import is_visible
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.following import head_at, read_head
from floodmark.core.protocol.records.rows import Commit, Counts, Intent, Lost, Replay, Row, Seal, Undone
from floodmark.core.protocol.recovery import (
    ATTEMPTS,
    SEAL,
    Gate,
    Step,
    app_id,
    at_the_gate,
    backfill_version,
    before_write,
    check_tables,
    undo_version,
)
from floodmark.errors import Fenced, LedgerBroken, Refused, Sealed

EPOCH = 7
BASE = EPOCH * ATTEMPTS
UNDONE = undo_version(EPOCH)
LINE = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":%d,"index":-1,"isStartingVersion":false}'


@pytest.mark.parametrize(
    ("recorded", "undo"),
    [
        (None, Undo.FENCE),
        (BASE - 1, Undo.FENCE),
        (backfill_version(EPOCH - 1, 3), Undo.FENCE),
        (BASE, Undo.TAKE_BACK),
        (BASE + 1, Undo.TAKE_BACK),
        (UNDONE - 1, Undo.TAKE_BACK),
        (UNDONE, Undo.DONE),
    ],
)
def test_a_sink_says_by_its_recorded_version_how_far_it_is(recorded: int | None, undo: Undo) -> None:
    assert before_undo(recorded, EPOCH) is undo


def test_a_sink_that_is_sealed_or_ahead_is_not_touched() -> None:
    with pytest.raises(Sealed):
        before_undo(SEAL, EPOCH)
    with pytest.raises(LedgerBroken):
        before_undo(UNDONE + 1, EPOCH)


@pytest.mark.parametrize("again", [False, True])
def test_once_taken_back_no_attempt_writes_any_more_and_the_next_epoch_does(again: bool) -> None:
    with pytest.raises(Fenced):
        before_write(UNDONE, EPOCH, 1, again)
    assert before_write(UNDONE, EPOCH + 1, 1, again) is Step.WRITE


def test_the_undo_lies_between_the_attempts_and_the_backfills_that_stand_after_it() -> None:
    assert is_of(EPOCH, BASE)
    assert is_of(EPOCH, UNDONE - 1)
    assert not is_of(EPOCH, UNDONE)
    assert not is_of(EPOCH, BASE - 1)
    assert UNDONE < backfill_version(EPOCH, 1) < (EPOCH + 1) * ATTEMPTS


def add(path: str, vector: str = "") -> dict[str, Any]:
    marks = {"deletionVector": {"storageType": "u", "pathOrInlineDv": vector, "offset": 1}} if vector else {}
    return {"add": {"path": path, **marks}}


def remove(path: str, vector: str = "") -> dict[str, Any]:
    return {"remove": add(path, vector)["add"]}


def test_of_several_attempts_only_what_is_left_is_undone() -> None:
    net = net_of([[remove("a"), add("b")], [{"txn": {}}, remove("b"), add("c"), add("d")]])
    assert (set(net.added), set(net.removed)) == ({("c", ""), ("d", "")}, {("a", "")})
    assert net_of([[add("a")], [remove("a")]]).is_nothing
    assert net_of([[remove("a")], [add("a")]]).is_nothing


def test_a_file_is_told_by_its_deletion_vector_too() -> None:
    net = net_of([[remove("a"), add("a", "v")]])
    assert (set(net.added), set(net.removed)) == ({("a", "uv@1")}, {("a", "")})
    assert is_undone(net_of([[remove("a", "v"), add("a")]]), net)
    assert not is_undone(net_of([[remove("a", "w"), add("a")]]), net)


def test_an_undo_does_the_reverse_and_nothing_else() -> None:
    did = net_of([[remove("a"), add("b")]])
    assert is_undone(net_of([[remove("b"), add("a")]]), did)
    assert not is_undone(net_of([[remove("b")]]), did)
    assert not is_undone(net_of([[remove("b"), add("a"), add("c")]]), did)
    assert not is_undone(net_of([[remove("b"), remove("c"), add("a")]]), did)


def test_a_later_commit_of_others_counts_only_where_it_moves_the_epochs_files() -> None:
    entries = [(4, [remove("a"), add("b")]), (5, [add("x")]), (6, [remove("x"), add("y")])]
    assert undoing(entries, [4]) == (net_of([entries[0][1]]), None)
    assert undoing([*entries, (7, [remove("b"), add("z")])], [4])[1] == 7
    assert undoing([*entries, (7, [add("a")])], [4])[1] == 7
    joined, restored = (7, [remove("b"), add("z")]), (8, [remove("z"), add("b")])
    assert undoing([*entries, joined, restored], [4])[1] is None, "a RESTORE has brought it back"
    assert undoing([*entries, joined, (8, [remove("z")])], [4])[1] == 7


DID = net_of([[remove("a"), add("b")]])
SEEN = SinkState("sink/out", "/out", Undo.TAKE_BACK, (4,), DID)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(SEEN, readers=("rule other reads /out",)), "rule other reads /out"),
        (replace(SEEN, touched=9), "version 9, by another writer"),
        (replace(SEEN, absent="a"), "the file a, which is gone"),
        (replace(SEEN, only_grows="delta.appendOnly"), "delta.appendOnly is set"),
    ],
)
def test_what_cannot_be_undone_is_refused_with_the_way_out(seen: SinkState, words: str) -> None:
    with pytest.raises(Refused, match=words) as found:
        check_sink("r", EPOCH, [replace(SEEN, name="sink/other"), seen])
    assert "floodmark reset r" in str(found.value)
    for harmless in (Undo.FENCE, Undo.DONE):
        check_sink("r", EPOCH, [replace(seen, undo=harmless)])
    check_sink("r", EPOCH, [replace(seen, net=Net())])


def test_once_announced_readers_do_not_stop_it_and_changed_files_do() -> None:
    still_undoable("r", EPOCH, replace(SEEN, readers=("rule other",)))
    still_undoable("r", EPOCH, replace(SEEN, undo=Undo.DONE, touched=9))
    with pytest.raises(Refused, match="was changed meanwhile"):
        still_undoable("r", EPOCH, replace(SEEN, touched=9))


class Told:
    """A rule's ledger in memory, by epochs that read one version each."""

    def __init__(self, qos: int = 2):
        self.rule = World(qos).rule(sinks=1, files_an_epoch=1)
        self.store: list[Row] = []
        self.ledger = MemoryLedger(self.store, "run")
        self.ledger.begin(1, "token", Commit(**self.at(0), table_ids={"sink/out": "id"}, rule=self.rule.to_json()))

    def at(self, version: int) -> dict[str, Any]:
        entry = Entry(1000 * version, (LINE % version,)).text()
        return {"entry": entry, "watermark": version or None, "maxima": {"events": version or None}, "heard": {}}

    def intend(self, version: int, replay: Replay | None = None) -> Intent:
        assert self.ledger.head is not None
        counts = {"events": Counts(read=1, folded=1)}
        intent = Intent(
            **self.at(version),
            watermark_before=self.ledger.head.watermark,
            counts=counts,
            replay=replay,
            rule=self.rule.to_json(),
            rule_hash=self.rule.hash,
            zone="UTC",
            ansi=True,
        )
        self.ledger.intend(intent)
        return intent

    def lost(self, intent: Intent) -> Lost:
        kept = {name: getattr(intent, name) for name in ("entry", "watermark", "maxima", "heard", "counts")}
        return Lost(**kept, intent=intent.digest, lost=1, lost_epochs=(1,), due=(None, None))

    def commit(self, version: int, ids: dict[str, str] | None = None) -> None:
        self.ledger.commit(Commit(**self.at(version), intent=self.intend(version).digest, table_ids=ids or {}))

    def abandon(self, *sinks: str) -> None:
        head = self.ledger.abandon()
        undone = Undone(version=undo_version(head.epoch + 1), commit=5, undoes=(4,))
        self.ledger.take_back(abandoned_row(head, dict.fromkeys(sinks or ("sink/out",), undone)))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_announced_epoch_is_taken_back_by_whoever_runs_the_rule(qos: int) -> None:
    told = Told(qos)
    told.intend(1)
    told.ledger.abandon()
    assert at_the_gate(told.ledger.head) is Gate.ABANDON
    assert at_the_gate(read_head(told.store)) is Gate.ABANDON


def test_an_abandoned_epoch_leaves_the_rule_where_it_stood() -> None:
    told = Told()
    told.commit(1)
    before = told.ledger.head
    assert before is not None
    told.intend(2, Replay(upto=1))
    told.abandon()
    after = read_head(told.store)
    assert after is not None
    assert at_the_gate(after) is Gate.PLAN
    assert (after.epoch, after.lost, after.abandoned, after.replays) == (2, (2,), (2,), {})
    kept = ("entry", "watermark", "maxima", "heard", "columns", "rule", "texts")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (after.written["sink/out"], after.commits["sink/out"]) == (undo_version(2), 5)
    check_tables(after, {"sink/out": undo_version(2)}, {"sink/out": "id"}, {})
    assert head_at(told.store, 2).abandoned == (2,)
    told.commit(2)
    assert told.ledger.head is not None
    assert (told.ledger.head.epoch, told.ledger.head.lost) == (3, (2,))


def test_a_sink_that_only_an_abandoned_epoch_wrote_may_be_made_anew() -> None:
    told = Told()
    told.intend(1)
    told.abandon("sink/out", "sink/added")
    head = told.ledger.head
    assert head is not None and head.written.keys() == head.commits.keys() == {"sink/out"}
    told.commit(1, {"sink/added": "made anew"})
    after = read_head(told.store)
    assert after is not None
    ids = {"sink/out": "id", "sink/added": "made anew"}
    check_tables(after, {"sink/out": undo_version(1), "sink/added": None}, ids, {})


@pytest.mark.parametrize("how", ["intend", "commit", "lose", "twice"])
def test_an_announced_epoch_gets_no_other_end(how: str) -> None:
    told = Told()
    intent = told.intend(1)
    told.ledger.abandon()
    ways: dict[str, Callable[[], object]] = {
        "intend": lambda: told.ledger.intend(intent),
        "commit": lambda: told.ledger.commit(Commit(**told.at(1), intent=intent.digest)),
        "lose": lambda: told.ledger.lose(told.lost(intent)),
        "twice": told.ledger.abandon,
    }
    with pytest.raises(LedgerBroken, match="which is being abandoned"):
        ways[how]()


def test_an_end_without_its_announcement_or_with_other_offsets_is_no_row() -> None:
    told = Told()
    told.intend(1)
    assert told.ledger.head is not None
    with pytest.raises(LedgerBroken, match="without a row that announced it"):
        told.ledger.take_back(abandoned_row(told.ledger.head, {}))
    head = told.ledger.abandon()
    moved = abandoned_row(head, {}).model_copy(update={"entry": told.at(1)["entry"]})
    with pytest.raises(LedgerBroken, match="moved"):
        told.ledger.take_back(moved)


def test_a_table_that_was_taken_back_is_ahead_of_a_ledger_that_never_said_so() -> None:
    told = Told()
    told.intend(1)
    at, ids = {"sink/out": undo_version(1)}, {"sink/out": "id"}
    assert told.ledger.head is not None
    with pytest.raises(LedgerBroken, match="ahead of the ledger"):
        check_tables(told.ledger.head, at, ids, {})
    check_tables(told.ledger.head, {"sink/out": undo_version(1) - 1}, ids, {})
    check_tables(told.ledger.abandon(), at, ids, {})


def test_a_reset_discards_what_was_to_be_abandoned() -> None:
    told = Told()
    told.intend(1)
    told.ledger.abandon()
    sealed = told.ledger.seal(Seal(why="reset", successor=2, token="t2", keep_output=False, discarded=1))
    assert (sealed.abandoning, sealed.open) == (False, None)
    assert at_the_gate(sealed) is Gate.CHANGE_GENERATION


def test_only_an_open_epoch_can_be_abandoned() -> None:
    told = Told()
    with pytest.raises(Refused, match="has not run yet"):
        abandonable(None, "r")
    with pytest.raises(Refused, match="expected an open epoch, found none"):
        abandonable(told.ledger.head, told.rule.rule)
    told.intend(1)
    assert abandonable(told.ledger.head, told.rule.rule) is told.ledger.head
    told.ledger.seal(Seal(why="reset", successor=2, token="t2", keep_output=False, discarded=1))
    with pytest.raises(Refused, match="a reset has not finished"):
        abandonable(told.ledger.head, told.rule.rule)


def test_readers_see_neither_the_epoch_nor_half_of_its_undo() -> None:
    told = Told()
    told.commit(1)
    told.intend(2)
    app = app_id("memory", 1, "token", "sink")
    before = told.ledger.head
    told.abandon()
    after = told.ledger.head
    assert before is not None and after is not None
    for version in (2 * ATTEMPTS, undo_version(2)):
        assert not is_visible([(app, version)], "memory", before)
        assert is_visible([(app, version)], "memory", after)
