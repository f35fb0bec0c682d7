"""Replays of rows that a target with a key refused: of each key one row comes, and as what it came the first time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
import support.outboxed
from support.flow import SCHEMA, event
from support.outboxed import Outboxed
from test_portions import SINK, at, begins, commit, ended
from test_refused_rows import again, later
from test_relay_terms import edited, retyped

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.relay.contents import compared, spelt_as
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Life, Redelivery
from floodmark.core.relay.portions import portions
from floodmark.core.relay.redeliveries import RefusedRow, older_twins, redelivering, still_due, whole_in
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Refused, WrongColumn
from floodmark.ledger.ledger import LedgerReader

FAR = 568_971_820_800_000_000  # the year 20000


def refused(seq: int, order: int = 0, key: str = "a", **how: Any) -> RefusedRow:
    return RefusedRow(seq, 0, (key,), order=(order,), **how)


# --- Of each key one


@pytest.mark.parametrize(("orders", "left"), [((1, 2), 3), ((2, 1), 2), ((1, 1), 3)])
def test_of_two_refused_rows_of_a_key_the_newer_comes(orders: tuple[int, int], left: int) -> None:
    rows = [refused(2, orders[0]), refused(3, orders[1]), refused(2, key="b")]
    due = still_due(rows, [(later(3), {})], compares=True)
    assert sorted((one.key, one.seq) for one in due) == [(("a",), left), (("b",), 2)]


def test_without_a_key_all_refused_rows_come() -> None:
    rows = [RefusedRow(2, 0), RefusedRow(2, 1), RefusedRow(3, 0)]
    assert still_due(rows, [(later(3), {})], compares=False) == rows


def test_what_lies_between_two_refused_rows_decides_about_the_first_alone() -> None:
    rows, between = [refused(2, 9), refused(4, 1)], [(later(3), {("a",): True}), (later(4), {})]
    assert still_due(rows, between, compares=True) == [rows[1]]


def test_a_recorded_replay_with_two_rows_of_a_key_sends_the_newer() -> None:
    """Else no relay would ever pass it."""
    assert older_twins([refused(2, 1), refused(3, 2), refused(4, key="b")]) == {0}
    assert older_twins([refused(2, 2), refused(3, 1)]) == {1}
    assert older_twins([]) == frozenset()


# --- As what it came


@pytest.mark.parametrize("how", [{"whole": True}, {"gone": True}])
def test_a_later_row_of_the_key_decides_about_a_corrections_row_and_about_a_deletion(how: dict[str, bool]) -> None:
    assert still_due([refused(2, 5, **how)], [(later(3), {("a",): False})], compares=True) == []
    assert still_due([refused(2, 5, **how)], [(later(3), {})], compares=True) == [refused(2, 5, **how)]


@pytest.mark.parametrize(
    ("first", "second", "due"),
    [
        (refused(2, 5, whole=True), refused(3, 7), refused(3, 7, whole=True)),
        (refused(2, 5, whole=True), refused(3, 3), refused(2, 5, whole=True)),
        (refused(2, 5, gone=True), refused(3, 3), refused(3, 3, whole=True)),
        (refused(2, 5), refused(3, 3, whole=True), refused(3, 3, whole=True)),
        (refused(2, 5), refused(3, 3, gone=True), refused(3, 3, gone=True)),
    ],
)
def test_of_two_refused_rows_the_one_that_comes_does_what_both_would_have_done(
    first: RefusedRow, second: RefusedRow, due: RefusedRow
) -> None:
    assert still_due([first, second], [(later(3), {})], compares=True) == [due]


IDLE: dict[str, Any] = {"seal": None, "dropping": None, "backfill": None, "forgetting": None}


def test_rows_that_take_their_keys_places_are_replayed_by_a_row_of_the_ledger_that_says_so() -> None:
    rows, head = [refused(2), refused(3, key="b", whole=True)], SimpleNamespace(**IDLE)
    plain, whole = redelivering(cast("Head", head), "r", SINK, rows)
    assert (plain.redelivery, whole.redelivery) == (
        Redelivery(target=SINK, rows=((2, 0),)), Redelivery(target=SINK, rows=((3, 0),), whole=True),
    )  # fmt: skip
    assert ("whole" in plain.model_dump_json(), redelivering(cast("Head", head), "r", SINK, [])) == (False, [])


@pytest.mark.parametrize("unfinished", [*IDLE])
def test_no_row_is_replayed_in_the_middle_of_work_whose_end_a_relay_could_not_read(unfinished: str) -> None:
    head = SimpleNamespace(**(IDLE | {unfinished: "begun"}))
    with pytest.raises(Refused, match="without an unfinished reset, drop, forget, backfill or correction, found one"):
        redelivering(cast("Head", head), "r", SINK, [refused(2)])


def test_the_ledger_says_of_a_portion_whether_its_rows_take_their_keys_places() -> None:
    life = Life(what="redelivered", redelivery=Redelivery(target=SINK, rows=((2, 0),), whole=True))
    whole = again(4)
    whole = type(whole)(*[life.model_dump_json() if name == "body" else one for name, one in vars(whole).items()])
    rows = [begins(1, 1), commit(2, 1, 1), again(3, (2, 1)), whole]
    assert [one.whole for one in portions(rows, SINK, at(2, epoch=1))] == [False, True]
    assert [whole_in(one, SINK) for one in [*rows, ended(5, 1, 1, 1)]] == [False, False, False, True, True]
    assert not whole_in(whole, "sink/other")


# --- Values to compare


def test_values_are_compared_as_spark_does_whatever_they_are() -> None:
    odd = pa.array([b"a\xff", b"a\xff", b"b"], pa.binary()).view(pa.string())
    columns = {
        "k": odd, "v": pa.array([math.nan, math.nan, -0.0]), "at": pa.array([FAR, FAR, None]).cast(pa.timestamp("us")),
        "d": pa.array([7_304_484, 7_304_484, None], pa.int32()).cast(pa.date32()),
        "l": pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), odd),
        "s": pa.StructArray.from_arrays([odd], ["x"]),
        "m": pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["x", "x", "y"]), odd),
    }  # fmt: skip
    layout = Layout(columns_of("k STRING, v DOUBLE, at TIMESTAMP_NTZ, d DATE, l ARRAY<STRING>"), tuple(columns), "v")
    batch = pa.record_batch({**columns, DELETE_COLUMN: pa.array([False, None, True])})
    found = list(compared(iter([batch]), layout))
    assert (found[0] == found[1], found[0][0] != found[2][0], [gone for _, _, gone in found]) == (
        True, True, [False, False, True],
    )  # fmt: skip
    assert len({hash(key) for key, _, _ in found}) == 2
    assert found[0][1] > found[2][1], "NaN is the largest"


# --- With a class

CLASS = """
from pathlib import Path

from floodmark.errors import Undeliverable


class Odd:
    def __init__(self, path):
        self.path = Path(path)

    def apply(self, batch, token):
        ns = batch["n"].to_pylist()
        bad = {number: f"{n} is odd" for number, n in enumerate(ns) if n % 2 and not self.path.exists()}
        if bad:
            raise Undeliverable(bad)
        with self.path.with_suffix(".rows").open("a") as file:
            file.writelines(f"{n}\\n" for n in ns)

    def rows(self):
        return []
"""


def odd(place: Path, **how: Any) -> tuple[Outboxed, Path]:
    """A rule with a class that refuses odd numbers until the file `takes` is there."""
    (place / "rules").mkdir()
    (place / "rules" / "odd.py").write_text(CLASS)
    settings = {"class": "odd:Odd", "settings": {"path": str(place / "takes")}}
    return Outboxed(place, {"python": settings, "on_error": "dead", "qos": 1, **how}), place / "takes"


def replay(rule: Outboxed, path: Path) -> list[int]:
    """The rows that the class has once it takes all of them, and those that it refused were replayed."""
    assert rule.relays.ship().code == 0
    path.touch()
    code, said = rule.command("undelivered", "replay", "refused")
    assert code == 0, said
    return [int(n) for n in path.with_suffix(".rows").read_text().split()]


def replayed(place: Path, *epochs: Sequence[Mapping[str, Any]], **how: Any) -> list[int]:
    rule, path = odd(place, **how)
    for rows in epochs:
        rule.epoch(rows)
    return replay(rule, path)


def test_a_replay_of_a_corrections_row_is_recorded_as_one(tmp_path: Path) -> None:
    rule, path = odd(tmp_path, key=["k"])
    rule.epoch([event(1, "a", n=2), event(1, "b", n=3)])
    rule.correct([event(1, "a", n=5)])
    assert replay(rule, path) == [2, 3, 5]
    ledger = LedgerReader.load(rule.flow.place.ledger)
    assert ledger is not None
    lives = [Life.model_validate_json(row.body).redelivery for row in ledger.since(0) if row.kind == "life"]
    assert [(one.rows, one.whole) for one in lives if one] == [(((3, 1),), False), (((5, 0),), True)]


def test_a_replay_is_shipped_after_a_reset_that_drops_the_key(tmp_path: Path) -> None:
    rule, path = odd(tmp_path, key=["k"], on_reset="keep")
    rule.epoch([event(1, "a", n=1), event(1, "b", n=2)])
    assert rule.relays.ship().code == 0
    path.touch()
    rule.ledger.live(Life(what="redelivered", redelivery=Redelivery(target=rule.name, rows=((3, 0),))))
    edited(rule, "key")
    retyped(rule, at="timestamp", k="string", v="double", n="long")
    rule.begin()
    done = rule.relays.ship()
    assert (done.code, path.with_suffix(".rows").read_text()) == (0, "2\n1\n"), done.said


def test_a_backfill_whose_column_a_reset_has_removed_is_refused_by_name() -> None:
    columns = columns_of("Day DATE, n INT")
    assert spelt_as("a", "day", columns) == "Day"
    with pytest.raises(WrongColumn, match=r"expected column at, by whose interval .*found none.*on_reset: empty"):
        spelt_as("a", "at", columns)


def test_a_row_whose_values_python_lacks_keeps_no_other_from_its_replay(tmp_path: Path) -> None:
    rows = [event(1, n=1), {**event(2, n=4), "k": b"a\xff"}, {**event(2, n=3), "at": FAR}, event(3, n=2)]
    assert replayed(tmp_path, rows) == [2, 1, 3]


def test_a_key_that_is_no_number_has_its_newer_row(tmp_path: Path) -> None:
    assert replayed(tmp_path, [event(1, v=math.nan, n=1)], [event(2, v=math.nan, n=2)], key=["v"]) == [2]


def test_rows_are_replayed_by_a_key_that_is_an_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = {"type": "array", "elementType": "string", "containsNull": True}
    monkeypatch.setitem(support.outboxed.FIELDS, "k", kind)
    monkeypatch.setattr(support.outboxed, "SCHEMA", SCHEMA.set(1, pa.field("k", pa.list_(pa.string()))))
    first = [{**event(1, n=1), "k": ["x"]}, {**event(1, n=3), "k": ["y"]}]
    assert replayed(tmp_path, first, [{**event(2, n=2), "k": ["y"]}], key=["k"]) == [2, 1]
