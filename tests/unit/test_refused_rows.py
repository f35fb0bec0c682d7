"""Rows that a target refused: which it lacks, which it may still get, and where they are kept."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import event
from support.outboxed import Outboxed
from test_portions import LEDGER, SINK, at, backfill, begins, commit, ended
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.ports.target import Operation
from floodmark.connectors.relay.aside import Aside, Refusal
from floodmark.connectors.relay.contents import picked, without
from floodmark.core.protocol.records.rows import Life, Redelivery, Row
from floodmark.core.relay import redeliveries
from floodmark.core.relay.portions import Portion, Replaced, portions
from floodmark.core.relay.positions import Position
from floodmark.core.relay.redeliveries import RefusedRow, Sifted, sifted, still_due, waiting
from floodmark.errors import HistoryGone, Undeliverable
from floodmark.ledger.forgetting import copies
from floodmark.ledger.ledger import Ledger


def again(seq: int, *rows: tuple[int, int], target: str = SINK) -> Row:
    body = Life(what="redelivered", redelivery=Redelivery(target=target, rows=rows)).model_dump_json()
    return Row(seq, "life", 1, "t1", 1, 1, "run", f"at {seq}", body, "", f"h{seq}")


# --- In the ledger


def test_a_replay_is_a_portion_that_moves_the_position() -> None:
    rows = [begins(1, 1), commit(2, 1, 1), again(3, (2, 5), target="sink/other"), again(4, (2, 0), (2, 7))]
    [_, found] = portions(rows, SINK, at(0))
    assert (found.position, found.again, found.rows, found.is_empty) == (at(4, epoch=1), ((2, 0), (2, 7)), 2, False)
    assert portions(rows, SINK, at(4, epoch=1)) == []
    reset = [*rows, begins(6, 2)]
    assert [one.again for one in portions(reset, SINK, at(2, epoch=1))] == [()]


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ([begins(1, 1), commit(2, 1, 1)], {(2, 0), (2, 1)}),
        ([begins(1, 1), commit(2, 1, 1), again(3, (2, 0))], {(2, 1)}),
        ([begins(1, 1), commit(2, 1, 1), begins(3, 2)], set()),
        ([begins(1, 1), commit(2, 1, 1), begins(3, 2, keeps=True)], {(2, 0), (2, 1)}),
        ([begins(1, 1), commit(2, 1, 1), begins(3, 2, kept_output=True), commit(4, 2, 1)], {(2, 0), (2, 1)}),
    ],
)
def test_a_target_lacks_refused_rows_until_a_replay_or_a_reset(rows: list[Row], left: set[tuple[int, int]]) -> None:
    assert waiting([(2, 0), (2, 1)], rows, SINK, LEDGER) == left


LIVES = {
    "a replay": [begins(1, 1), commit(2, 1, 1), commit(3, 1, 2), again(4, (2, 0)), commit(5, 1, 3), commit(6, 1, 4)],
    "a reset": [begins(1, 1), commit(2, 1, 1), commit(3, 1, 2), begins(4, 2), commit(5, 2, 1), commit(6, 2, 2)],
    "a reset that keeps": [begins(1, 1), commit(2, 1, 1), commit(3, 1, 2), begins(4, 2, keeps=True), commit(5, 2, 1)],
    "a rebuild": [
        begins(1, 1, rebuild=True), commit(2, 1, 1), commit(3, 1, 2), begins(4, 2, rebuild=True), commit(5, 2, 1, None),
        commit(6, 2, 2), commit(7, 2, 3, None),
    ],
    "a backfill": [
        begins(1, 1), commit(2, 1, 1), commit(3, 1, 2), backfill(4, 1, 2, 0, 9), ended(5, 1, 2, 1), again(6, (5, 0)),
        commit(7, 1, 3, None),
    ],
    "a backfill of everything": [
        begins(1, 1), commit(2, 1, 1), commit(3, 1, 2), backfill(4, 1, 2, 0, 0, whole=True), ended(5, 1, 2, 1),
        commit(6, 1, 3),
    ],
}  # fmt: skip


@pytest.mark.parametrize("life", LIVES)
def test_what_is_noted_at_any_time_says_as_much_as_all_rows(life: str) -> None:
    """A relay may note at each row, with what it has noted before, and a look may follow after any number of rows."""
    rows, ids = LIVES[life], {(2, 0), (2, 1), (3, 0)}
    noted: list[Sifted] = []
    for upto in range(3, len(rows) + 1):
        known = noted[-1] if noted else None
        first = known.seq if known else 1
        new = sifted(ids - (known.settled if known else set()), rows[first - 1 : upto], SINK, LEDGER)
        assert new is not None
        noted.append(replace(new, settled=new.settled | (known.settled if known else set())))
        assert Sifted.parse(noted[-1].text()) == noted[-1]
    for made, one in enumerate(noted, 3):
        assert one.knows(ids) and one.settled | one.lacked == ids
        for upto in range(made, len(rows) + 1):
            left = waiting(ids - one.settled, rows[one.seq - 1 : upto], SINK, LEDGER)
            assert left == waiting(ids, rows[:upto], SINK, LEDGER), (made, upto, one)
    assert noted[-1].seq > 3, "a look reads the rows after this one"


def test_a_row_that_is_set_aside_after_newer_epochs_is_not_known() -> None:
    found = sifted({(2, 0)}, [begins(1, 1), commit(2, 1, 1), commit(3, 1, 2)], SINK, LEDGER)
    assert found is not None and (found.seq, found.lacked) == (3, {(2, 0)})
    assert found.knows({(2, 0), (3, 7), (4, 0)}) and not found.knows({(2, 0), (2, 1)})


def test_nothing_is_noted_before_an_epoch() -> None:
    assert sifted({(1, 0)}, [again(2, (1, 0))], SINK, LEDGER) is None


def later(seq: int, **how: Any) -> Portion:
    return Portion(Position(LEDGER, 1, "t1", 1, seq, "h"), "at", 1, 1, None, **how)


@pytest.mark.parametrize(
    ("portion", "keys", "compares", "due"),
    [
        (later(3), {("b",): False}, False, True),
        (later(3), {("a",): False}, False, False),
        (later(1), {("a",): False}, False, True),
        (later(2), {("a",): False}, False, True),
        (later(3), {("a",): False}, True, True),
        (later(3), {("a",): True}, True, False),
        (later(3, whole=True), {("a",): False}, True, False),
        (later(3, empties=True), {}, False, False),
        (later(3, replaces=Replaced("at", ((10, 20),))), {}, False, True),
        (later(3, replaces=Replaced("at", ((0, 1), (5, 6)))), {}, False, False),
        (later(3, replaces=Replaced("other", ((5, 6),))), {}, False, True),
    ],
)
def test_a_row_that_something_later_has_decided_about_must_not_come(
    portion: Portion, keys: dict[Any, bool], compares: bool, due: bool
) -> None:
    one = RefusedRow(2, 7, ("a",), {"at": 5})
    assert still_due([one], [(portion, keys)], compares) == ([one] if due else [])


def test_rows_come_in_the_order_of_their_portions() -> None:
    rows = [RefusedRow(4, 0, ("c",)), RefusedRow(2, 9, ("b",)), RefusedRow(2, 1, ("a",))]
    assert [one.id for one in still_due(rows, [], compares=False)] == [(2, 1), (2, 9), (4, 0)]
    assert [one.id for one in still_due(rows, [(later(4), {("a",): False})], compares=False)] == [(2, 9), (4, 0)]


def test_backfills_do_not_hide_a_replay() -> None:
    assert ended(3, 1, 1, 1).kind == "backfilled"
    assert [one.again for one in portions([begins(1, 1), again(3, (2, 0))], SINK, at(0))] == [((2, 0),)]


# --- In their table


def batches(*sizes: int) -> list[pa.RecordBatch]:
    found, first = [], 0
    for size in sizes:
        found.append(pa.record_batch({"n": pa.array(range(first, first + size), pa.int64())}))
        first += size
    return found


def test_rows_keep_their_numbers_whatever_is_left_out() -> None:
    left = pa.Table.from_batches(list(without(iter(batches(3, 2, 4)), {0, 3, 4, 8})))
    assert left["n"].to_pylist() == [1, 2, 5, 6, 7]
    one = Operation("x/3", Position("x"), False, None, False, 5, lambda: iter(()), frozenset({0, 3, 4, 8}))
    numbers = one.numbers()
    assert [next(numbers) for _ in range(5)] == [1, 2, 5, 6, 7]
    assert (one.call, picked(iter(batches(3, 2, 4)), [4, 0])["n"].to_pylist()) == ("x/3-4", [0, 4])


def refusal(seq: int, *numbers: int) -> Refusal:
    rows = pa.table({"n": pa.array(numbers, pa.int64())})
    return Refusal(Position("l", 1, "t", 4, seq, "h"), rows, dict.fromkeys(numbers, "r"))


def test_a_refused_row_is_kept_once(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox" / "rows"
    write_deltalake(str(outbox), pa.table({"n": pa.array([], pa.int64())}))
    aside = Aside("postgres://shop/rows", outbox)
    assert aside.ids() == set()
    assert aside.add([refusal(2, 1, 3), refusal(4, 0)]) == 3
    assert Aside("postgres://shop/rows", outbox).add([refusal(2, 1, 3)]) == 0
    assert aside.add([refusal(2, 3, 5)]) == 1
    assert aside.ids() == {(2, 1), (2, 3), (2, 5), (4, 0)}
    found = pa.Table.from_batches(list(aside.rows([(4, 0), (2, 5), (2, 1)], ["n"])))
    assert found["n"].to_pylist() == [0, 5, 1]
    row = DeltaTable(str(aside.folder)).to_pyarrow_table().to_pylist()[0]
    assert (row["_reason"], row["_generation"], row["_epoch"]) == ("r", 1, 4)
    with pytest.raises(
        HistoryGone,
        match=r"expected 2 rows that it refused at .*, found 1: if `floodmark forget` .*; else restore the home",
    ):
        list(aside.rows([(2, 1), (9, 9)], ["n"]))


def test_columns_that_results_gain_are_kept(tmp_path: Path) -> None:
    outbox = tmp_path / "outbox" / "rows"
    write_deltalake(str(outbox), pa.table({"n": pa.array([], pa.int64())}))
    assert Aside("a", outbox).add([refusal(2, 1)]) == 1
    write_deltalake(str(outbox), pa.table({"k": pa.array([], pa.string())}), mode="append", schema_mode="merge")
    wider = Refusal(Position("l", seq=3), pa.table({"n": pa.array([7]), "k": ["x"]}), {0: "r"})
    assert Aside("a", outbox).add([wider]) == 1
    found = pa.Table.from_batches(list(Aside("a", outbox).rows([(2, 1), (3, 0)], ["n", "k"])))
    assert found.to_pylist() == [{"n": 1, "k": None}, {"n": 7, "k": "x"}]


# --- By a class of one's own

CLASS = """
import json
from pathlib import Path

from floodmark.errors import Undeliverable


class Again:
    def __init__(self, path):
        self.path = Path(path)

    def apply(self, batch, token):
        rows = batch.to_pylist()
        bad = {number: f"{row['n']} is odd" for number, row in enumerate(rows) if row["n"] % 2 and not self.takes()}
        if bad:
            raise Undeliverable(bad)
        with self.path.open("a") as file:
            file.writelines(json.dumps([row["n"], row["_floodmark_row"], token]) + "\\n" for row in rows)

    def takes(self):
        return self.path.with_suffix(".takes").exists()

    def rows(self):
        return []


class Once(Again):
    def position(self):
        place = self.path.with_suffix(".position")
        return place.read_text() if place.exists() else None

    def apply(self, batch, token, since, upto):
        super().apply(batch, token)
        self.path.with_suffix(".position").write_text(upto)


class Wrong(Again):
    def apply(self, batch, token):
        raise Undeliverable({batch.num_rows: "none of them"})
"""


def own(place: Path, name: str, **how: Any) -> tuple[Outboxed, Path]:
    (place / "rules").mkdir(exist_ok=True)
    (place / "rules" / "odd.py").write_text(CLASS)
    path = place / "rows"
    sink = {"python": {"class": f"odd:{name}", "settings": {"path": str(path)}}, "on_error": "dead", **how}
    return Outboxed(place, sink), path


def lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers(token: str) -> str:
    """A token without the ledger's id and the start of its row's hash."""
    return re.sub(r"^[^/]+/(\d+)-[0-9a-f]{8}", r"\1", token)


def test_other_rows_have_other_tokens_after_the_home_was_restored(place: Path) -> None:
    rule, path = own(place, "Again", qos=1)
    rule.epoch([event(1, n=2)])
    assert rule.relays.ship().code == 0
    shutil.copytree(rule.flow.home, place / "backup")
    rule.epoch([event(1, n=4)])
    assert rule.relays.ship().code == 0
    shutil.rmtree(rule.flow.home)
    shutil.copytree(place / "backup", rule.flow.home)
    rule.ledger = Ledger.open(rule.flow.place.ledger, "by hand")
    rule.epoch([event(1, n=6)])
    assert rule.relays.ship().code == 0
    found = [(n, numbers(token)) for n, _, token in lines(path)]
    assert found == [(2, "3"), (4, "5"), (6, "5")]
    assert len({token for *_, token in lines(path)}) == len({row for _, row, _ in lines(path)}) == 3


@pytest.mark.parametrize(("name", "qos"), [("Once", 2), ("Again", 1)])
def test_a_class_says_which_rows_it_cannot_take(place: Path, name: str, qos: int) -> None:
    """Tokens of rows stay the same, and the call's token is another one."""
    rule, path = own(place, name, qos=qos)
    rule.epoch([event(1, n=2), event(1, n=3), event(1, n=4)])
    rule.epoch([event(1, n=5), event(1, n=6)])
    assert "rows that it refuses go to its undelivered table" in rule.command("plan", "refused")[1]
    done = rule.relays.ship()
    assert (done.code, "3 rows of 2 portions shipped, 2 refused" in done.said) == (0, True), done.said
    assert [(n, numbers(row), numbers(token)) for n, row, token in lines(path)] == [
        (2, "3/0", "3-1"), (4, "3/2", "3-1"), (6, "5/1", "5-1"),
    ]  # fmt: skip
    assert rule.undelivered() == [(3, 1, 3), (5, 0, 5)]
    path.with_suffix(".takes").touch()
    code, said = rule.command("undelivered", "replay", "refused", "--target", rule.sink.label)
    assert (code, "2 rows of 1 portion shipped" in said) == (0, True), said
    assert [(n, numbers(row)) for n, row, _ in lines(path)[3:]] == [(3, "6/0"), (5, "6/1")]


def test_a_drop_names_the_rows_that_a_target_has_not_got(place: Path) -> None:
    rule, _ = own(place, "Again", qos=1)
    rule.epoch([event(1, n=3), event(1, n=4)])
    assert rule.relays.ship().code == 0
    rule.epoch([event(1, n=5), event(1, n=6)])
    lacks = (
        "target odd:Again has not got 2 rows of 1 epoch: `floodmark relay refused --target odd:Again` ships them; "
        "target odd:Again has refused 1 rows"
    )
    code, said = rule.command("retire", "refused", "--yes")
    assert (code, f"refused: {lacks}" in said) == (0, True), said
    code, said = rule.command("drop", "refused", "--all", "--yes")
    assert (code, lacks in said, rule.flow.place.path.exists()) == (2, True, True), said
    for how in ("--dry-run", "--yes"):
        code, said = rule.command("drop", "refused", "--all", "--leave-others", how)
        assert (code, f"never shipped: {lacks}" in said) == (0, True), said
    assert not rule.flow.place.path.exists()


def test_a_reset_names_the_rows_that_a_removed_target_has_not_got(place: Path) -> None:
    rule, _ = own(place, "Again", qos=1)
    rule.epoch([event(1, n=5), event(1, n=6)])
    kept = rule.command("reset", "refused", "--dry-run")
    rule.flow.settings["sinks"] = [{"delta": str(place / "lake" / "other")}]
    rule.flow.write_rule()
    code, said = rule.command("reset", "refused", "--dry-run")
    assert (code, "never shipped: target odd:Again has not got 2 rows of 1 epoch" in said) == (0, True), said
    assert "never shipped" not in kept[1]


@pytest.mark.parametrize("what", ["", "/_delta_log"])
def test_a_rule_whose_outbox_is_gone_can_be_dropped(place: Path, what: str) -> None:
    rule, _ = own(place, "Again", qos=1)
    rule.epoch([event(1, n=4)])
    assert rule.command("retire", "refused", "--yes", "--json")[0] == 0
    shutil.rmtree(f"{rule.outbox}{what}")
    code, said = rule.command("drop", "refused", "--all", "--leave-others", "--yes")
    assert (code, "never shipped: " in said) == (0, True), said


def test_a_class_that_names_no_row_of_its_batch_stops(place: Path) -> None:
    rule, _ = own(place, "Wrong", qos=1)
    rule.epoch([event(1, n=2)])
    done = rule.relays.ship()
    assert (done.code, "expected Undeliverable with numbers of rows from 0 to 0, found 1" in done.said) == (3, True)


def test_the_rows_that_a_class_refuses_stop_its_relay_without_a_word_in_the_rule(place: Path) -> None:
    rule, path = own(place, "Again", qos=1, on_error="stop")
    rule.epoch([event(1, n=2), event(1, n=3)])
    done = rule.relays.ship()
    assert (done.code, "row 1: 3 is odd" in done.said, path.exists()) == (3, True, False), done.said
    assert str(Undeliverable({})) == "no row is named"


def test_what_stops_a_relay_names_the_way_on_and_that_way_loses_nothing(place: Path) -> None:
    rule, path = own(place, "Again", qos=1, on_error="stop")
    rule.epoch([event(1, n=2), event(1, n=3)])
    rule.epoch([event(1, n=4)])
    way = "`on_error: dead` at the sink: the next relay sets such rows aside, and ships all others"
    assert way in rule.relays.ship().said
    assert way in rule.command("status", "refused")[1]
    [sink] = rule.flow.settings["sinks"]
    sink["on_error"] = "dead"
    rule.flow.write_rule()
    done = rule.relays.ship()
    assert (done.code, "2 rows of 2 portions shipped, 1 refused" in done.said) == (0, True), done.said
    assert ([n for n, *_ in lines(path)], rule.undelivered()) == ([2, 4], [(3, 1, 3)])
    sink["on_error"] = "stop"
    rule.flow.write_rule()
    path.with_suffix(".takes").touch()
    code, said = rule.command("undelivered", "replay", "refused")
    assert (code, [n for n, *_ in lines(path)]) == (0, [2, 4, 3]), said


@pytest.mark.parametrize("qos", [0, 1])
def test_at_a_lower_qos_the_rest_of_the_portion_is_delivered_too(place: Path, qos: int) -> None:
    rule, path = own(place, "Once", qos=qos)
    rule.epoch([event(1, n=2), event(1, n=3), event(1, n=4)])
    assert rule.relays.ship().code == 0
    assert [n for n, *_ in lines(path)] == [2, 4]
    assert rule.undelivered() == [(3, 1, 3)]


def test_many_rows_are_replayed_by_several_rows_of_the_ledger(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule, path = own(place, "Again", qos=1)
    rule.epoch([event(1, n=3), event(1, n=4), event(1, n=5), event(1, n=7)])
    assert rule.relays.ship().code == 0
    path.with_suffix(".takes").touch()
    monkeypatch.setattr(redeliveries, "MOST", 2)
    folders = ["--rules", str(place / "rules"), "--home", str(rule.flow.home)]
    done = CliRunner().invoke(app, ["undelivered", "replay", "refused", "--json", *folders])
    assert (done.exit_code, json.loads(done.stdout)["rows"]) == (0, 3), done.output
    assert [(n, numbers(row)) for n, row, _ in lines(path)] == [
        (4, "3/1"), (3, "4/0"), (5, "4/1"), (7, "5/0"),
    ]  # fmt: skip
    done = CliRunner().invoke(app, ["undelivered", "refused", "list", "--json", *folders])
    found = json.loads(done.stdout)
    assert (found["rows"], sorted(one["_replayed"] for one in found["shown"])) == (3, [4, 4, 5])
    dry = CliRunner().invoke(app, ["undelivered", "replay", "refused", "--dry-run", "--json", *folders])
    assert (json.loads(dry.stdout)["rows"], json.loads(dry.stdout)["done"]) == (0, True)


def outbox(place: Path, **columns: pa.Array) -> Aside:
    """The refused rows of a target whose outbox has these columns."""
    folder = place / "outbox" / "t"
    write_deltalake(str(folder), pa.table(columns), mode="overwrite", schema_mode="overwrite")
    return Aside("postgres://shop/t", folder)


def test_refused_rows_of_before_a_reset_have_the_columns_of_now(tmp_path: Path) -> None:
    aside = outbox(tmp_path, n=pa.array([1], pa.int64()))
    aside.add([refusal(2, 7)])
    aside = outbox(tmp_path, n=pa.array([1], pa.int64()), k=pa.array(["a"]))
    [batch] = aside.rows([(2, 7)], ["k", "n"])
    assert batch.to_pylist() == [{"k": None, "n": 7}]
    rows = pa.table({"n": pa.array([8], pa.int64()), "k": ["b"]})
    aside.add([Refusal(Position("l", 1, "t", 4, 3, "h"), rows, {0: "r"})])
    assert [batch.to_pylist() for batch in aside.rows([(3, 0)], ["k", "n"])] == [[{"k": "b", "n": 8}]]


def test_refused_rows_of_another_type_are_kept_beside_those_of_before(tmp_path: Path) -> None:
    outbox(tmp_path, n=pa.array([1], pa.int64())).add([refusal(2, 7)])
    aside = outbox(tmp_path, n=pa.array(["x"]))
    aside.add([Refusal(Position("l", 1, "t", 4, 3, "h"), pa.table({"n": ["x"]}), {0: "r"})])
    assert [batch.to_pylist() for batch in aside.rows([(3, 0)], ["n"])] == [[{"n": "x"}]]
    older = DeltaTable(str(tmp_path / "undelivered" / "t-until-1")).to_pyarrow_table()
    assert pa.table(older)["n"].to_pylist() == [7]
    assert aside.ids() == {(2, 7), (3, 0)}
    assert aside.add([refusal(2, 7)]) == 0
    found = pa.Table.from_batches(list(aside.rows([(3, 0), (2, 7)], ["n"])))
    assert found["n"].to_pylist() == ["x", "7"]


def test_rows_that_were_refused_before_a_reset_that_changed_a_type_are_no_less_refused(place: Path) -> None:
    """They are counted, shown, replayed, and reached by `forget`."""
    rule, path = own(place, "Again", qos=1, on_reset="keep")
    rule.epoch([event(1, n=2), event(1, n=3)])
    assert rule.relays.ship().code == 0
    aside = Aside(str(rule.sink.address), Path(rule.outbox))
    refused = pa.table(DeltaTable(str(aside.folder)).to_pyarrow_table())
    narrow = refused.set_column(refused.column_names.index("n"), "n", refused["n"].cast(pa.int32()))
    write_deltalake(str(aside.folder), narrow, mode="overwrite", schema_mode="overwrite")
    rule.begin()
    rule.epoch([event(1, n=5)])
    assert rule.relays.ship().code == 0
    assert rule.undelivered() == [(7, 0, 5)]
    assert {place.name for place in map(Path, (one.address for one in copies(rule.flow.place)))} == {
        Path(rule.outbox).name, aside.folder.name, f"{aside.folder.name}-until-1",
    }  # fmt: skip
    assert "2 rows are undelivered" in rule.command("status", "refused")[1]
    shown = json.loads(rule.command("undelivered", "list", "refused", "--json")[1])
    assert (shown["rows"], [one["n"] for one in shown["shown"]]) == (2, [5, 3])
    path.with_suffix(".takes").touch()
    code, said = rule.command("undelivered", "replay", "refused")
    assert (code, [n for n, *_ in lines(path)]) == (0, [2, 3, 5]), said
