"""What the auditor holds a target to: the rows of its outbox, by the qos of the sink, also after a reset."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.audit.content.rowhash import digest
from floodmark.audit.evidence import Row
from floodmark.audit.logreader import read_table
from floodmark.audit.targets import LOOKS, Books, Held, TargetCheck

ADDRESS, LEDGER = "kafka://bus/sold", "1234"
TABLE = f"sink/{ADDRESS}"
FIRST, SECOND = [("a", 1), ("b", 2)], [("c", 3)]


@dataclass
class Holding:
    position: Mapping[str, Any] | None
    held: list[tuple[str, int]]
    damaged: Sequence[str] = ()
    gone: int = 0

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from batch(self.held).to_batches()

    def damage(self) -> Iterator[str]:
        yield from self.damaged

    def expired(self) -> int:
        return self.gone


def batch(rows: list[tuple[str, int]]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.string()), "n": pa.array([n for _, n in rows], pa.int64())})


def row(seq: int, generation: int, epoch: int, **body: Any) -> Row:
    return Row(
        seq, "commit", generation, "t", epoch, 1, "run", "now", json.dumps({"tables": {}, **body}), "", f"h{seq}"
    )


def found(
    place: Path, held: list[tuple[str, int]], qos: int = 2, on_reset: str = "empty", damaged: Sequence[str] = (),
    gone: int = 0,
) -> list[str]:  # fmt: skip
    """The findings on a rule that wrote FIRST, was reset, and wrote SECOND."""
    for rows in (FIRST, SECOND):
        write_deltalake(str(place), batch(rows), mode="append")
    begun = {"rule": json.dumps({"sinks": [{"kind": "kafka", "address": ADDRESS, "on_reset": on_reset}]})}
    rows = [
        row(1, 1, 0, **begun),
        row(2, 1, 1, tables={TABLE: {"commit": 0, "rows": 2, "digest": None}}),
        row(3, 2, 0, **begun),
        row(4, 2, 1, tables={TABLE: {"commit": 1, "rows": 1, "digest": None}}),
    ]
    last = rows[-1]
    position = {"ledger": LEDGER, "generation": 2, "token": "t", "epoch": 1, "seq": last.seq, "hash": last.hash}
    sink = {"address": ADDRESS, "qos": qos}
    log, none = read_table(str(place)), read_table(str(place / "undelivered"))
    books, holding = Books(rows, log, [none]), Holding(position, held, damaged, gone)
    return [one.what for one in TargetCheck(TABLE, sink, LEDGER, lambda _: holding, lambda: books).findings({}, {})]


@pytest.mark.parametrize(
    ("qos", "held", "good"),
    [
        (2, SECOND, True),
        (2, SECOND * 2, False),
        (2, [], False),
        (1, SECOND * 2, True),
        (1, [], False),
        (1, [*SECOND, ("d", 4)], False),
        (0, [], True),
        (0, SECOND * 2, False),
    ],
)
def test_each_qos_is_held_to_its_promise(place: Path, qos: int, held: list[tuple[str, int]], good: bool) -> None:
    assert (found(place, held, qos) == []) is good


def test_what_a_target_tells_by_itself_is_broken_whatever_its_rows_are(place: Path) -> None:
    assert found(place, SECOND, damaged=["it holds a changed file"]) == ["it holds a changed file"]


@pytest.mark.parametrize(
    ("held", "gone", "said"),
    [
        ([*FIRST, *SECOND], 2, []),
        ([FIRST[1], *SECOND], 1, ["1 missing rows cannot be compared: the topic's retention removed 1 records"]),
        (SECOND, 2, ["2 missing rows cannot be compared: the topic's retention removed 2 records"]),
        (SECOND, 1, ["it holds other rows than its outbox says: 2 missing"]),
        ([("b", 3), *SECOND], 2, ["it holds other rows than its outbox says: 2 missing, 1 too many"]),
        ([*FIRST, *SECOND, *SECOND], 2, ["it holds other rows than its outbox says: 0 missing, 1 too many"]),
    ],
)
def test_rows_that_a_topics_retention_may_have_removed_are_not_judged(
    place: Path, held: list[tuple[str, int]], gone: int, said: list[str]
) -> None:
    """A changed row is too many, and more cannot be missing than was removed."""
    told = found(place, held, on_reset="keep", gone=gone)
    assert len(told) == len(said)
    assert all(what.startswith(words) for what, words in zip(told, said, strict=True))


def test_a_reset_leaves_rows_where_the_sink_says_so(place: Path) -> None:
    assert found(place, [*FIRST, *SECOND], on_reset="keep") == []
    (said,) = found(place / "other", [*FIRST, *SECOND])
    assert "2 too many" in said
    assert "fill the target again" in said
    (said,) = found(place / "third", SECOND, on_reset="keep")
    assert "2 missing" in said


@pytest.mark.parametrize(
    ("newest", "held", "said"),
    [("n", [("a", 5)], []), (None, [("a", 5)], ["cannot be compared: a reset left them"])],
)
def test_rows_that_a_reset_has_left_are_judged_by_the_text_of_then(
    place: Path, newest: str | None, held: list[tuple[str, int]], said: list[str]
) -> None:
    """The second text lacks `newest`: it holds only for what was written by it."""
    texts = [
        json.dumps({"sinks": [{"kind": "kafka", "address": ADDRESS, "on_reset": "keep", "key": ["k"], "newest": one}]})
        for one in ("n", newest)
    ]
    for k, n in (("a", 5), ("a", 3), ("a", 4)):
        write_deltalake(str(place), batch([(k, n)]), mode="append")
    rows = [
        row(1, 1, 0, rule=texts[0]),
        *(row(2 + i, 1, 1 + i, tables={TABLE: {"commit": i, "rows": 1, "digest": None}}) for i in range(2)),
        row(4, 2, 0, rule=texts[1]),
        row(5, 2, 1, tables={TABLE: {"commit": 2, "rows": 1, "digest": None}}),
    ]
    sink = {"address": ADDRESS, "key": ["k"], "newest": newest}
    for upto, expected in ((3, []), (5, said)):
        last = rows[upto - 1]
        at = {"ledger": LEDGER, "generation": last.generation, "token": "t", "epoch": last.epoch, "seq": upto}
        where, none = {**at, "hash": last.hash}, read_table(str(place / "undelivered"))
        holding, books = Holding(where, held), Books(rows, read_table(str(place)), [none])
        told = TargetCheck(TABLE, sink, LEDGER, lambda _, h=holding: h, lambda b=books: b).findings({}, {})
        found = [one.what for one in told]
        assert len(found) == len(expected)
        assert all(words in what for words, what in zip(expected, found, strict=True))


# --- Targets whose relay works meanwhile


@dataclass
class Shipping:
    """A rule with an epoch of one row each, whose relay ships the next one whenever `ships` says so.

    It is asked for its position first, and then again after its rows.
    """

    place: Path
    ships: Callable[[int], bool]  # by how often it was asked already
    kind: str = "postgres"
    qos: int = 2
    gone: int = 0
    key: tuple[str, ...] = ()
    asked: int = 0
    at: int = 1

    def __post_init__(self) -> None:
        text = json.dumps({"sinks": [{"kind": self.kind, "address": ADDRESS, "qos": self.qos, "key": self.key}]})
        self.rows = [row(1, 1, 0, rule=text)]

    def epoch(self) -> None:
        write_deltalake(str(self.place), batch([("a", len(self.rows))]), mode="append")
        found = digest(batch([("a", len(self.rows))]), computed=False)
        said = {"rows": 1, "high": str(found.high), "low": str(found.low), "floats": {}}
        written = {"commit": len(self.rows) - 1, "rows": 1, "digest": said}
        self.rows.append(row(len(self.rows) + 1, 1, len(self.rows), tables={TABLE: written}))

    def books(self) -> Books:
        return Books(list(self.rows), read_table(str(self.place)), [])

    def ask(self, _: Any) -> Held:
        if self.ships(self.asked):
            self.epoch()
            self.at = len(self.rows)
        self.asked += 1
        return Now(self)

    def verdicts(self) -> list[tuple[str, str]]:
        sink = {"address": ADDRESS, "qos": self.qos, "kind": self.kind, "key": self.key}
        told = TargetCheck(TABLE, sink, LEDGER, self.ask, self.books).findings({}, {})
        return [(one.verdict, one.what) for one in told]

    def held(self) -> list[tuple[str, int]]:
        return [("a", number) for number in range(1, self.at)]


class Now:
    """Its position is that of when it was asked; its rows are those of when they are read."""

    def __init__(self, target: Shipping):
        last = target.rows[target.at - 1]
        self.position = {
            "ledger": LEDGER, "generation": 1, "token": "t", "epoch": last.epoch, "seq": last.seq, "hash": last.hash,
        }  # fmt: skip
        self._target = target

    def rows(self) -> Iterator[pa.RecordBatch]:
        if self._target.ships(-1):
            self._target.epoch()
            self._target.at = len(self._target.rows)
        yield from batch(self._target.held()).to_batches()

    def damage(self) -> Iterator[str]:
        return iter(())

    def expired(self) -> int:
        return self._target.gone


def test_a_position_that_is_newer_than_the_ledger_was_is_one_of_it(place: Path) -> None:
    target = Shipping(place, lambda asked: asked == 0)
    target.epoch()
    assert target.verdicts() == []


def test_a_target_that_moved_while_it_was_read_is_read_again(place: Path) -> None:
    left = iter([True, False])
    target = Shipping(place, lambda asked: asked < 0 and next(left))
    target.epoch()
    target.at = 2
    assert target.verdicts() == []


def test_rows_that_fit_their_position_are_proven_whatever_comes_then(place: Path) -> None:
    target = Shipping(place, lambda asked: asked > 0)
    target.epoch()
    target.at = 2
    assert target.verdicts() == []


def test_a_target_that_moves_all_the_time_is_unknown(place: Path) -> None:
    target = Shipping(place, lambda asked: asked < 0)
    target.epoch()
    [(verdict, what)] = target.verdicts()
    assert (verdict, f"it moved while it was read, {LOOKS} times" in what) == ("unknown", True)


@pytest.mark.parametrize(
    ("kind", "qos", "ahead", "held", "verdicts"),
    [
        ("postgres", 1, True, [1, 2], ["unknown"]),  # the rows of the next epoch are there, its position is not yet
        ("postgres", 1, False, [1, 2], ["broken"]),
        ("postgres", 2, True, [1, 2], ["broken"]),
        ("python", 2, True, [1, 2], ["broken"]),
        ("postgres", 1, True, [1, 1], []),
    ],
)
def test_rows_under_way_are_no_fault(
    place: Path, kind: str, qos: int, ahead: bool, held: list[int], verdicts: list[str]
) -> None:
    target = Shipping(place, lambda _: False, kind, qos)
    for _ in range(1 + ahead):
        target.epoch()
    target.at = 2
    target.held = lambda: [("a", number) for number in held]  # type: ignore[method-assign]
    assert [verdict for verdict, _ in target.verdicts()] == verdicts


@pytest.mark.parametrize(("kind", "verdict"), [("python", "unknown"), ("postgres", "broken")])
def test_a_class_may_be_between_the_calls_of_a_reset(place: Path, kind: str, verdict: str) -> None:
    target = Shipping(place, lambda _: False, kind)
    target.epoch()
    target.rows.append(row(3, 2, 0, rule=json.loads(target.rows[0].body)["rule"]))
    target.at = 2
    target.held = list  # type: ignore[method-assign]
    assert [found for found, _ in target.verdicts()] == [verdict]


# --- Losses at qos 0, and an outbox that has lost rows


@pytest.mark.parametrize(
    ("qos", "held", "verdicts"),
    [
        (0, [2], []),
        (0, [1], []),  # the portion with 2 was lost
        (0, [], []),
        (0, [3], ["broken"]),
        (2, [1], ["broken"]),
    ],
)
def test_a_portion_that_was_lost_leaves_the_row_of_before(
    place: Path, qos: int, held: list[int], verdicts: list[str]
) -> None:
    target = Shipping(place, lambda _: False, qos=qos, key=("k",))
    for _ in range(2):
        target.epoch()
    target.at = 3
    target.held = lambda: [("a", number) for number in held]  # type: ignore[method-assign]
    assert [verdict for verdict, _ in target.verdicts()] == verdicts


@pytest.mark.parametrize(
    ("qos", "held", "gone", "verdicts"),
    [
        (1, [1, 2], 0, []),
        (1, [1, 2, 2], 0, ["unknown"]),
        (1, [1], 0, ["broken"]),
        (0, [1], 0, ["unknown"]),
        (0, [], 0, ["unknown"]),
        (0, [1, 2, 2], 0, ["broken"]),
        (2, [1, 2, 2], 0, ["broken"]),
        (2, [], 0, ["broken"]),
        (2, [2], 1, ["unknown"]),
        (2, [], 2, ["unknown"]),
        (2, [], 1, ["broken"]),
        (2, [2, 3], 1, ["broken"]),
        (2, [1, 2], 1, []),
        (1, [2, 2], 1, ["unknown"]),  # doubled, and one removed
    ],
)
def test_sums_are_held_to_the_promise_of_their_qos(
    place: Path, qos: int, held: list[int], gone: int, verdicts: list[str]
) -> None:
    target = Shipping(place, lambda _: False, qos=qos, gone=gone)
    for _ in range(2):
        target.epoch()
    target.at = 3
    for file in place.glob("*.parquet"):
        file.unlink()
    target.held = lambda: [("a", number) for number in held]  # type: ignore[method-assign]
    assert [verdict for verdict, _ in target.verdicts()] == verdicts
