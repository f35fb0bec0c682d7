"""Committed epochs reach a target as the rule's text had it when they were written, whatever the file says by now."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from support.flow import event
from support.outboxed import Outboxed

from floodmark.connectors.relay.aside import Aside
from floodmark.connectors.relay.backlogs import check_rest, check_shipped, outboxes, refused_by
from floodmark.connectors.relay.memory import recall
from floodmark.connectors.relay.shipping import ship_one
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.errors import Refused
from floodmark.ledger.ledger import Ledger, LedgerReader

CLASS = """
import json
import os

from floodmark.errors import Undeliverable


def came(path):
    return open(path).readlines() if os.path.exists(path) else []


class Table:
    def __init__(self, path):
        self.path = path

    def apply(self, batch, token):
        bad = {i: "odd" for i, row in enumerate(batch.to_pylist()) if row["n"] % 2}
        if os.path.exists(self.path + ".down") and len(came(self.path)) == 1:
            raise RuntimeError("it is down")
        if bad and os.path.exists(self.path + ".odd"):
            raise Undeliverable(bad)
        with open(self.path, "a") as file:
            for row in batch.to_pylist():
                file.write(json.dumps([row["k"], row["n"], row.get("_floodmark_gone", "no key")]) + "\\n")

    def empty(self, token):
        open(self.path, "w").close()

    def rows(self):
        return []
"""


def own(place: Path, **how: Any) -> tuple[Outboxed, Path]:
    (place / "rules").mkdir(exist_ok=True)
    (place / "rules" / "plain.py").write_text(CLASS)
    path = place / "rows"
    sink = {"python": {"class": "plain:Table", "settings": {"path": str(path)}}, "qos": 1, **how}
    return Outboxed(place, sink), path


def edited(rule: Outboxed, *without: str) -> None:
    for name in without:
        rule.flow.settings["sinks"][0].pop(name)
    rule.flow.write_rule()


def came(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_edit_that_the_rule_cannot_follow_does_not_reach_the_target(place: Path) -> None:
    rule, path = own(place, key=["k"], delete="n < 0")
    rule.epoch([event(1, "a", n=1), {**event(2, "b", n=-1), DELETE_COLUMN: True}])
    edited(rule, "key", "delete")
    done = rule.relays.ship()
    assert (done.code, came(path)) == (0, [["a", 1, False], ["b", -1, True]]), done.said


def test_what_was_not_shipped_before_a_reset_comes_by_the_key_of_then(place: Path) -> None:
    rule, path = own(place, key=["k"], on_reset="keep")
    rule.epoch([event(1, "a", n=1)])
    edited(rule, "key")
    rule.begin()
    [rule.sink] = rule.flow.rule().sinks
    rule.epoch([event(2, "a", n=2)])
    done = rule.relays.ship()
    assert (done.code, came(path)) == (0, [["a", 1, False], ["a", 2, "no key"]]), done.said


def retyped(rule: Outboxed, **types: str) -> str:
    """Give the outbox other types, as a reset does; the schema then, as Spark's JSON."""
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in types.items()]
    schema = json.dumps({"type": "struct", "fields": fields})
    none = pa.schema(Schema.from_json(schema).to_arrow()).empty_table()
    write_deltalake(rule.outbox, none, mode="overwrite", schema_mode="overwrite")
    return schema


def test_rows_that_do_not_fit_the_types_after_a_reset_stop_a_relay_with_a_way_on(place: Path) -> None:
    """Airflow would try again for ever what no retry mends."""
    rule, path = own(place, on_reset="keep")
    rule.epoch([event(1, "a", n=1)])
    retyped(rule, at="timestamp", k="long", v="double", n="integer")
    done = rule.relays.ship()
    assert (done.code, "column k of rows from before a reset has another type, string" in done.said) == (2, True)
    assert "Give the column the earlier type in the SQL, and reset the rule" in done.said
    retyped(rule, at="timestamp", k="string", v="double", n="integer")
    assert (rule.relays.ship().code, came(path)) == (0, [["a", 1, "no key"]])


def test_refused_rows_that_do_not_fit_the_types_after_a_reset_are_not_replayed(place: Path) -> None:
    rule, path = own(place, on_error="dead", on_reset="keep")
    path.with_suffix(".odd").touch()
    rule.epoch([event(1, "a", n=1)])
    assert rule.relays.ship().code == 0
    retyped(rule, at="timestamp", k="long", v="double", n="long")
    code, said = rule.command("undelivered", "replay", "refused")
    assert (code, "column k of rows from before a reset has another type" in said) == (2, True), said


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        ({"k": "string", "n": "integer"}, None),
        ({"k": "string", "n": "long", "more": "string"}, None),
        ({"k": "long", "n": "long"}, r"column k of .* another type, string, of which a value is no int64 \("),
        ({"k": "string"}, "the results have no column n any more"),
    ],
)
def test_a_reset_waits_for_rows_that_would_not_fit_its_columns(
    place: Path, types: dict[str, str], problem: str | None
) -> None:
    rule, _ = own(place, on_reset="keep")
    rule.epoch([event(1, "a", n=1)])
    schema = retyped(rule, at="timestamp", v="double", **types)
    retyped(rule, at="timestamp", k="string", v="double", n="long")
    known = LedgerReader.load(rule.flow.place.ledger)
    assert known is not None
    check = partial(check_rest, rule.flow.rule(), rule.flow.place, known, {str(rule.sink.address): schema})
    if problem is None:
        return check()
    with pytest.raises(Refused, match=f"{problem}.*ship the rest with `floodmark relay refused --target plain:Table`"):
        check()
    assert rule.relays.ship().code == 0
    check()
    return None


def overtaken(place: Path) -> tuple[Outboxed, Path]:
    """A rule whose target has refused two rows; a later one of the key `a` has overtaken the first."""
    rule, path = own(place, key=["k"], on_error="dead")
    path.with_suffix(".odd").touch()
    rule.epoch([event(1, "a", n=1), event(1, "b", n=3)])
    rule.epoch([event(2, "a", n=2)])
    assert rule.relays.ship().code == 0
    return rule, path


def test_a_replay_goes_by_the_key_that_the_rule_runs_with(place: Path) -> None:
    """The key's row that came since must not be undone by an older one."""
    rule, _ = overtaken(place)
    edited(rule, "key")
    found = rule.command("undelivered", "replay", "refused", "--dry-run", "--json")
    assert json.loads(found[1])["rows"] == 1, found


def test_a_replay_takes_superseded_rows_out_of_the_count(place: Path) -> None:
    rule, path = overtaken(place)
    assert "1 rows are left out" in rule.command("undelivered", "replay", "refused", "--dry-run")[1]
    assert "2 rows are undelivered" in rule.command("status", "refused")[1]
    path.with_suffix(".odd").unlink()
    code, said = rule.command("undelivered", "replay", "refused")
    assert (code, "1 rows are left out" in said, came(path)[-1]) == (0, True, ["b", 3, False]), said
    assert "undelivered" not in rule.command("status", "refused")[1]
    again = json.loads(rule.command("undelivered", "replay", "refused", "--json")[1])
    assert (again["rows"], again["left_out"], len(rule.undelivered())) == (0, 0, 2)


def test_a_look_reads_the_ledger_from_the_last_relay_on_to_count_refused_rows(place: Path) -> None:
    """The rows stay in their table for good, and the ledger grows with each epoch."""
    rule, path = own(place, on_error="dead")
    path.with_suffix(".odd").touch()
    for n in (1, 2, 4):
        rule.epoch([event(n, "a", n=n)])
        assert rule.relays.ship().code == 0
    aside = Aside(str(rule.sink.address), Path(rule.outbox))
    noted, ledger = aside.sifted(), LedgerReader.load(rule.flow.place.ledger)
    assert ledger is not None and ledger.head is not None and noted is not None
    assert (noted.seq, noted.hash, noted.lacked) == (ledger.head.seq, ledger.head.hash, {(3, 0)})
    look = partial(refused_by, rule.sink, rule.flow.place, ledger)
    other = replace(noted, lacked=frozenset(), settled=noted.lacked)
    aside.note(other)
    assert look() == set(), "the note is believed"
    for wrong in (replace(other, hash="gone"), replace(other, seq=99), replace(other, ledger="another")):
        aside.note(wrong)
        assert look() == {(3, 0)}, "it is of a ledger that has gone back, or of another one"
    (file,) = aside.folder.parent.glob("*.sifted")
    file.write_text("{}")
    assert look() == {(3, 0)}
    path.with_suffix(".odd").unlink()
    assert rule.command("undelivered", "replay", "refused")[0] == 0
    rule.ledger = Ledger.open(rule.flow.place.ledger, "by hand")
    rule.epoch([event(6, "a", n=6)])
    assert rule.relays.ship().code == 0
    again = aside.sifted()
    assert again is not None and (again.lacked, again.settled) == (set(), {(3, 0)})
    assert "undelivered" not in rule.command("status", "refused")[1]


def test_a_relay_whose_work_is_done_has_not_failed_if_the_refused_rows_cannot_be_read(
    place: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, path = own(place, on_error="dead")
    path.with_suffix(".odd").touch()
    rule.epoch([event(1, "a", n=1)])
    ship = partial(ship_one, rule.flow.rule(), rule.sink, rule.flow.place)
    assert (ship().fault, len(rule.undelivered())) == (None, 1)
    [file] = Aside(str(rule.sink.address), Path(rule.outbox)).folder.glob("*.parquet")
    file.unlink()
    assert (ship().fault, recall(Path(rule.outbox)).fault) == (None, None)
    [said] = [one.getMessage() for one in caplog.records]
    assert "it still lacks cannot be noted, so looks take longer: " in said and file.name in said
    monkeypatch.setattr(Aside, "ids", lambda _: 1 / 0)
    assert isinstance(ship().fault, ZeroDivisionError), "an error of the program is seen"


def test_a_target_that_no_relay_can_ship_to_stops_no_look_at_its_rule(place: Path) -> None:
    """A reset without the sink has left its rows; only a reset with it takes them away."""
    rule, path = own(place)
    rule.epoch([event(1, "a", n=1)])
    assert rule.relays.ship().code == 0
    rule.begin(has=False)
    rule.epoch([event(1, "b", n=2)])
    done = rule.relays.ship()
    assert (done.code, "did not empty it" in done.said) == (2, True), done.said
    code, said = rule.command("status", "refused")
    assert (code, "no relay can ship to it: sink" in said) == (0, True), said
    home, ledger = rule.flow.place, LedgerReader.load(rule.flow.place.ledger)
    assert ledger is not None
    assert [one.folded for one in outboxes(rule.flow.rule(), home)] == [0]
    with pytest.raises(Refused, match=r"has not got all of it: .*generation 2.*Then ship with"):
        check_shipped(rule.flow.rule(), home, ledger, [f"outbox/{Path(rule.outbox).name}"])
    rule.begin()
    rule.epoch([event(1, "c", n=3)])
    done = rule.relays.ship()
    assert (done.code, came(path)) == (0, [["c", 3, "no key"]]), done.said


def test_a_class_that_fails_does_not_get_the_portions_before_again(place: Path) -> None:
    """Not by a retry: only a relay that is killed between the rows and the position sends rows twice at qos 1."""
    rule, path = own(place)
    for n in (1, 2, 3):
        rule.epoch([event(n, "a", n=n)])
    path.with_suffix(".down").touch()
    for _ in range(3):
        assert rule.relays.ship().code != 0
    path.with_suffix(".down").unlink()
    assert (rule.relays.ship().code, [n for _, n, _ in came(path)]) == (0, [1, 2, 3])


def kept(place: Path, **how: Any) -> tuple[Outboxed, Path]:
    path = place / "kept"
    return Outboxed(place, {"files": {"path": str(path), "format": "json"}, **how}), path


def reformatted(rule: Outboxed, form: str) -> None:
    rule.flow.settings["sinks"][0]["files"]["format"] = form
    rule.flow.write_rule()
    [rule.sink] = rule.flow.rule().sinks


def test_an_edit_of_the_format_does_not_reach_rows_that_are_not_shipped(place: Path) -> None:
    rule, path = kept(place)
    rule.epoch([event(1, "a", n=1)])
    reformatted(rule, "csv")
    done = rule.relays.ship()
    assert (done.code, list(path.glob("data/**/*.*"))) == (2, []), done.said
    assert "expected `format: json`, in which rows were written that it has not got yet, found csv" in done.said
    reformatted(rule, "json")
    assert (rule.relays.ship().code, len(list(path.glob("data/**/*.json")))) == (0, 1)
    reformatted(rule, "csv")
    assert rule.relays.ship().code == 0, "nothing is left to ship"


def test_a_reset_to_another_format_waits_for_what_is_not_shipped(place: Path) -> None:
    rule, _ = kept(place, on_reset="keep")
    rule.epoch([event(1, "a", n=1)])
    reformatted(rule, "csv")
    known = LedgerReader.load(rule.flow.place.ledger)
    assert known is not None
    schema = json.dumps(DeltaTable(rule.outbox).schema().to_json())
    check = partial(check_rest, rule.flow.rule(), rule.flow.place, known, {str(rule.sink.address): json.loads(schema)})
    with pytest.raises(Refused, match=r"expected `format: json`.*Write json again, and ship.*`on_error: dead` sets"):
        check()
    reformatted(rule, "json")
    assert rule.relays.ship().code == 0
    reformatted(rule, "csv")
    check()


def test_a_reset_that_empties_a_target_may_change_its_format(place: Path) -> None:
    rule, path = kept(place)
    rule.epoch([event(1, "a", n=1)])
    reformatted(rule, "csv")
    rule.begin()
    rule.epoch([event(2, "b", n=2)])
    done = rule.relays.ship()
    assert (done.code, [one.suffix for one in path.glob("data/**/*.*")]) == (0, [".csv"]), done.said
