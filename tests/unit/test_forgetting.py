"""Rows that are forgotten: what is decided about it, and what goes with a table's older files and entries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from support.aged import entries
from support.byhand import begun, folded, intent
from support.flow import Flow
from support.holding import found_in

from floodmark.core.lifecycle.cleanup import ForgetStep, check_forgets, check_maintainable, forget_step, newest_by
from floodmark.core.lifecycle.life import check_forgettable, check_not_forgetting, condition_digest, retiring
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts, Forgetting, Forgotten, Left, Life, Redelivery, Row, Seal
from floodmark.core.sql import literals_in
from floodmark.errors import HistoryGone, LedgerBroken, Refused, RunFailed, TableBroken
from floodmark.ledger.delta.datafiles import paths_in
from floodmark.ledger.forgetting import (
    files_beside,
    mentions,
    naming,
    own_tables,
    purge,
    remove_folder,
    remove_needless,
    unseen_bounds,
)
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark.views.status.rulestatus import describe_open

ASKED = Forgetting(number=1, condition="c", tables={"late": 1})
LEFT = Left(version=2, commit=4, gone=1, rows=3, digest=Digest())
BEGIN, END = (
    Life(what="forgetting", forgetting=ASKED),
    Life(what="forgot", forgotten=Forgotten(number=1, tables={"late": LEFT})),
)


@pytest.mark.parametrize(
    ("recorded", "rows", "step"),
    [
        (None, 3, ForgetStep.REWRITE),
        (None, 0, ForgetStep.MARK),
        (2, 3, ForgetStep.REWRITE),  # an earlier forget has ended
        (2, 0, ForgetStep.MARK),
        (3, 3, ForgetStep.MARK),
        (4, 3, ForgetStep.PURGE),
        (4, 0, ForgetStep.PURGE),
    ],
)
def test_the_second_forget_continues_where_a_kill_left_each_table(
    recorded: int | None, rows: int, step: ForgetStep
) -> None:
    assert forget_step(recorded, 2, rows) is step


EACH_TABLE = ("events", "last", "counters", "timers", "dropped", "clock_timers")


def test_which_state_is_the_newest_row_of_a_key(tmp_path: Path) -> None:
    rule = Flow(tmp_path, process="totals:Totals").rule()
    assert {name: newest_by(rule, name) for name in EACH_TABLE} == {
        "events": None,
        "last": ("k",),
        "counters": ("k", "name"),
        "timers": ("k", "name"),
        "dropped": ("k",),
        "clock_timers": ("k", "name"),
    }, "the class has dropped two of them, and may declare them again"
    assert newest_by(Flow(tmp_path).rule(), "events") is None


def test_rows_held_for_open_windows_of_rows_are_the_newest_of_their_key(tmp_path: Path) -> None:
    sql = "SELECT k, count_window.start AS start, count(*) AS c FROM events GROUP BY k, count_window(3, 2)"
    rule = Flow(tmp_path, sql=sql, settings={"unbounded": True}).rule()
    how = rule.query.collected
    assert how is not None and (newest_by(rule, how.held), newest_by(rule, how.stream)) == (("k",), None)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


def test_the_ledger_keeps_a_forget_open_until_its_end_and_nothing_comes_between(flow: Flow) -> None:
    ledger = begun(flow)
    ledger.live(BEGIN)
    assert (ledger.begun.forgetting, ledger.begun.forgets) == (ASKED, 0)
    with pytest.raises(LedgerBroken, match="intent while forget 1 was open"):
        folded(flow, ledger, 1, 0, None)
    with pytest.raises(LedgerBroken, match="cannot be forgetting"):
        ledger.live(BEGIN)
    ledger.live(END)
    assert (ledger.begun.forgetting, ledger.begun.forgets, ledger.begun.forgotten) == (None, 1, {"late": 4})
    with pytest.raises(LedgerBroken, match="cannot be forgot"):
        ledger.live(END)
    with pytest.raises(LedgerBroken, match="cannot be forgetting"):
        ledger.live(BEGIN)  # it would be the second
    folded(flow, ledger, 1, 0, None)


def test_a_table_or_a_ledger_from_before_a_forget_is_noticed(flow: Flow) -> None:
    ledger = begun(flow)
    before = ledger.begun
    ledger.live(BEGIN)
    during = ledger.begun
    ledger.live(END)
    for head, recorded, version in ((before, None, 0), (during, 2, 0), (ledger.begun, 2, 4), (ledger.begun, None, 4)):
        check_forgets(head, {"late": (recorded, version), "dead": (None, 0)})
    for head, recorded in ((before, 1), (during, 3), (ledger.begun, 3)):
        with pytest.raises(LedgerBroken, match="late: the table is ahead of the ledger"):
            check_forgets(head, {"late": (recorded, 9)})
    with pytest.raises(HistoryGone, match=r"late: expected version 4, by which rows were forgotten.* found 3"):
        check_forgets(ledger.begun, {"late": (2, 3)})


def test_an_open_epoch_comes_first(flow: Flow) -> None:
    ledger = begun(flow)
    ledger.intend(intent(flow, 1, None, 0, Counts(read=1, folded=1)))
    with pytest.raises(LedgerBroken, match="cannot be forgetting"):
        ledger.live(BEGIN)
    with pytest.raises(Refused, match=r"epoch 1 is open.*`floodmark run counted` finishes it, then forget"):
        check_forgettable(ledger.begun, "counted", "c")


def test_a_reset_ends_a_forget_whose_condition_is_lost(flow: Flow) -> None:
    ledger = begun(flow)
    ledger.live(BEGIN)
    ledger.seal(Seal(why="reset", successor=2, token="t", keep_output=False, discarded=None))
    assert ledger.begun.forgetting is None


def test_what_is_refused_while_a_forget_is_open(flow: Flow) -> None:
    ledger = begun(flow)
    assert check_forgettable(ledger.begun, "counted", "c") is None
    ledger.live(BEGIN)
    head = ledger.begun
    assert check_forgettable(head, "counted", "c") == ASKED
    assert "no run starts until `floodmark forget` is repeated" in str(describe_open(head))
    with pytest.raises(Refused, match="with another condition has not finished"):
        check_forgettable(head, "counted", "d")
    for check in (check_not_forgetting, check_maintainable):
        with pytest.raises(Refused, match="a forget has not finished: `floodmark forget counted`"):
            check(head, "counted")
    with pytest.raises(Refused, match="`floodmark forget counted` with the same --where finishes it first"):
        retiring(head, "counted", as_is=False)


def test_a_rule_whose_results_do_not_follow_its_sources_yet_is_not_retired_without_a_word(flow: Flow) -> None:
    head = replace(begun(flow).begun, deferred={"events": ()})
    with pytest.raises(Refused, match=r"rewrites of events have yet to be corrected.*`floodmark run counted` finishes"):
        retiring(head, "counted", as_is=False)
    assert retiring(head, "counted", as_is=True) is not None


def test_nobody_is_forgotten_before_a_correction_that_takes_the_person_out_of_the_sinks(flow: Flow) -> None:
    head = replace(begun(flow).begun, deferred={"events": ()})
    ways = "`floodmark run counted` finishes it, or `floodmark correct counted --skip` gives it up, then forget"
    with pytest.raises(Refused, match=f"rewrites of events have yet to be corrected.*{ways}"):
        check_forgettable(head, "counted", "c")


def test_a_ledger_with_a_replay_in_the_middle_of_a_forget_can_be_read(flow: Flow) -> None:
    """Earlier versions wrote such ledgers; only what is written now is refused."""
    ledger = begun(flow)
    ledger.live(BEGIN)
    ledger.live(Life(what="redelivered", redelivery=Redelivery(target="sink/t", rows=((2, 0),))))
    assert Ledger.open(flow.place.ledger, "again").begun.forgetting == ASKED


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"seal": Seal(why="reset", successor=2, token="t", keep_output=False, discarded=None)}, "a reset has not"),
        ({"dropping": Life(what="dropping", tables={"late": "id"})}, "a drop of late has not finished"),
        ({"name": "other"}, "is being renamed to other"),
    ],
)
def test_another_change_that_is_open_comes_first(flow: Flow, change: dict[str, Any], what: str) -> None:
    head: Head = replace(begun(flow).begun, **change)
    with pytest.raises(Refused, match=what):
        check_forgettable(head, "counted", "c")


def test_a_condition_is_known_by_a_digest_of_its_own_in_each_ledger() -> None:
    where = "k = 'alice'"
    assert condition_digest("one", where) == condition_digest("one", f" {where}\n") != condition_digest("two", where)
    assert "alice" not in condition_digest("one", where)


def table(place: Path) -> str:
    """Two files, the first of which has a value; then the second alone is left, under an app's transaction."""
    address = str(place / "late")
    write_deltalake(address, pa.table({"k": ["alice"]}))
    write_deltalake(address, pa.table({"k": ["bob"]}), mode="append")
    DeltaTable(address).create_checkpoint()
    told = CommitProperties(app_transactions=[Transaction("a", 3)])
    write_deltalake(address, pa.table({"k": ["bob"]}), mode="overwrite", commit_properties=told)
    _with_statistics(Path(address) / "_delta_log" / f"{2:020}.json")
    write_deltalake(address, pa.table({"k": pa.array([], pa.string())}), mode="append")
    return address


def _with_statistics(entry: Path) -> None:
    """Have an entry say of the files that it removes what Spark's do."""
    told = json.dumps({"numRecords": 1, "minValues": {"k": "alice"}, "maxValues": {"k": "alice"}})
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in (one for one in actions if "remove" in one):
        action["remove"]["stats"] = told
    entry.write_text("\n".join(map(json.dumps, actions)))


def test_only_the_newest_version_is_left_of_a_table(tmp_path: Path) -> None:
    address = table(tmp_path)
    (tmp_path / "late" / ".part-1.snappy.parquet.crc").write_text("alice")
    (tmp_path / "late" / "_temporary").mkdir()
    (tmp_path / "late" / "_temporary" / "x").write_text("alice")
    (tmp_path / "late" / "_delta_log" / ".00000000000000000002.json.new").write_text("alice")
    assert len(files_beside(address)) == 2 and len(found_in(tmp_path, "alice")) >= 5
    version = purge("r", address)
    assert found_in(tmp_path, "alice") == [], "nor do the files that the checkpoint says were removed"
    assert entries(address) == [version]
    found = DeltaTable(address)
    assert (found.version(), found.to_pyarrow_table().to_pydict()) == (version, {"k": ["bob"]})
    assert found.transaction_version("a") == 3
    assert purge("r", address) == version, "once more"
    write_deltalake(address, pa.table({"k": ["carl"]}), mode="append")
    assert DeltaTable(address).to_pyarrow_table().num_rows == 2
    assert files_beside(address) == []


@pytest.mark.parametrize("way", ["link", "dots"])
def test_live_files_stay_however_the_way_to_a_table_is_spelt(tmp_path: Path, way: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    home = tmp_path / "link" if way == "link" else tmp_path / "real" / ".." / "real"
    table(tmp_path / "real")
    address = str(home / "late")
    assert len(files_beside(address)) == 2
    purge("r", address)
    assert files_beside(address) == [] and found_in(tmp_path, "alice") == []
    assert DeltaTable(address).to_pyarrow_table().to_pydict() == {"k": ["bob"]}


def test_nothing_is_removed_unless_all_live_files_are_found(tmp_path: Path) -> None:
    address = table(tmp_path)
    write_deltalake(address, pa.table({"k": ["carl"]}), mode="append")
    gone = next(Path(address, path) for path in paths_in(DeltaTable(address)))
    gone.unlink()
    before = sorted(Path(address).glob("*.parquet"))
    with pytest.raises(TableBroken, match=r"expected its 2 live files in its folder, found 1 of them; .* is missing"):
        remove_needless("r", address)
    assert sorted(Path(address).glob("*.parquet")) == before


def test_nothing_is_removed_without_a_checkpoint_that_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = table(tmp_path)
    from floodmark.ledger import forgetting

    monkeypatch.setattr(forgetting, "unreadable_checkpoint", lambda *_: "it cannot be read")
    before = found_in(tmp_path, "alice")
    with pytest.raises(TableBroken, match="it cannot be read; nothing of it was removed"):
        purge("r", address)
    assert {*before} <= {*found_in(tmp_path, "alice")}


def test_state_of_an_earlier_generation_goes_behind_a_link_or_the_forget_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, disk = Home(tmp_path, "r"), tmp_path / "disk"
    disk.mkdir()
    (disk / "part.parquet").write_text("alice")
    (home.path / "state" / "g1").mkdir(parents=True)
    (home.path / "state" / "g1" / "events").symlink_to(disk)
    remove_folder(home, "state/g1/events")
    assert not disk.exists() and not (home.path / "state" / "g1" / "events").is_symlink()
    remove_folder(home, "state/g1/events")  # once more

    def held(_: Path) -> None:
        raise PermissionError(13, "Permission denied", "part.parquet")

    monkeypatch.setattr("floodmark.ledger.forgetting.remove_trash", held)
    (home.path / "state" / "g1" / "events").mkdir()
    with pytest.raises(
        RunFailed, match=r"cannot be removed: part.parquet: Permission denied. Once it can, forget again"
    ):
        remove_folder(home, "state/g1/events")


def test_a_checkpoint_of_several_parts_is_refused(tmp_path: Path) -> None:
    address = table(tmp_path)
    DeltaTable(address).create_checkpoint()
    log, version = Path(address) / "_delta_log", DeltaTable(address).version()
    whole = log / f"{version:020}.checkpoint.parquet"
    found = pq.read_table(whole)
    for number, part in enumerate((found.slice(0, 1), found.slice(1)), 1):
        pq.write_table(part, log / f"{version:020}.checkpoint.{number:010}.{2:010}.parquet")
    whole.unlink()
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": found.num_rows, "parts": 2}))
    before = sorted(log.iterdir())
    with pytest.raises(TableBroken, match="in one file, found 2 files; nothing of it was removed"):
        purge("r", address)
    assert sorted(log.iterdir()) == before
    for file in (*log.glob("*.parquet"), log / "_last_checkpoint"):
        file.unlink()
    assert purge("r", address) == version and found_in(tmp_path, "alice") == []


def test_smallest_and_largest_values_of_files_that_are_gone(tmp_path: Path) -> None:
    address = table(tmp_path)
    assert unseen_bounds(address) == set()
    for file in files_beside(address):
        file.unlink()
    assert unseen_bounds(address) == {"k"}
    purge("r", address)
    assert unseen_bounds(address) == set()


def test_the_tables_of_a_home_and_what_earlier_generations_left(flow: Flow) -> None:
    head, home = replace(begun(flow).begun, generation=2), flow.place
    head = replace(head, table_ids={"state/s": "i", "late": "i", f"sink/{flow.sink()}": "i"})
    head = replace(head, written={"state/restated": 1, f"sink/{flow.sink()}": 1})  # by a backfill without ids
    for name in ("g1/s", "g2/s", "g2/restated", "g2/other"):
        (home.path / "state" / name).mkdir(parents=True)
    found = own_tables(head, home)
    assert [(one.name, one.is_old) for one in found] == [
        ("state/s", False), ("late", False), ("state/restated", False), ("state/g1/s", True), ("state/g2/other", True),
    ]  # fmt: skip
    assert found[0].address == home.state(2, "s")


def test_rows_of_the_ledger_whose_text_has_a_value() -> None:
    def row(seq: int, body: str) -> Row:
        return Row(seq, "intent", 1, "t", 1, 1, "run", "at", body, "")

    rows = [
        row(1, '{"rule": "{\\"sql\\": \\"SELECT 1 WHERE k = \'alice\'\\"}", "entry": "bob"}'),
        row(2, '{"replay": {"upto": 1, "where": "k = \'bob\'", "corrected": {"n": "42"}}}'),
        row(3, '{"what": "failed", "said": "alices"}'),
    ]
    assert mentions(rows, ["alice"]) == {1: "intent"}
    assert mentions(rows, ["bob", "alice"]) == {1: "intent", 2: "intent"}
    assert mentions(rows, ["42"]) == {2: "intent"} and mentions(rows, ["4"]) == {} == mentions(rows, [])
    for spelt in ("'O''Brien'", r"'O\'Brien'", '"O\'Brien"'):
        body = json.dumps({"rule": json.dumps({"sql": f"SELECT 1 WHERE k = {spelt}"})})
        replay = json.dumps({"replay": {"upto": 1, "where": f"k = {spelt}"}})
        assert list(mentions([row(1, body), row(2, replay)], ["O'Brien"])) == [1, 2], spelt


@pytest.mark.parametrize(
    ("value", "found"),
    [("p4711", True), ("p471", False), ("4711", False), ("Zoë", True), ("a@b.c", True), ("", False), ("other", False)],
)
def test_lists_of_files_name_persons(tmp_path: Path, value: str, found: bool) -> None:
    home = Home(tmp_path, "r")
    home.source("s").mkdir(parents=True)
    names = ["who=p4711_orders.json", "Zoë.json", "who=a%40b.c/x.json"]
    (home.source("s") / "files.jsonl").write_text(json.dumps({"files": names}) + "\n")
    assert naming(home, [value]) == (["sources/s/files.jsonl"] if found else [])


def test_the_values_that_a_condition_names() -> None:
    assert literals_in("k IN ('alice', 'bob') AND n = 42L") == ["alice", "bob", "42"]
    assert literals_in(r"""k IN ('it''s', 'q\'r', "x""y", r'a\n', 'b' 'c', "it's")""") == [
        "it's",
        "q'r",
        'x"y',
        r"a\n",
        "bc",
    ]
