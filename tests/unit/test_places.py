"""A table is known by its id and recorded version: ids × versions × addresses, and what becomes of a run."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.byhand import intent
from support.flow import Flow
from support.lives import an_epoch, lived
from test_audit import MOVED, SINK, World
from test_lives import call

from floodmark.audit.certificate import audit
from floodmark.connectors.backlog.news import look
from floodmark.connectors.places import check_same_sinks, head_now, text_now
from floodmark.core.protocol.places import TableName, moves, name_at, names_of, places_of
from floodmark.core.protocol.places import relocated as settle
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts, Life, Seal
from floodmark.core.protocol.recovery import SEAL
from floodmark.core.rules.rule import Rule, load_rules
from floodmark.core.text.addresses import same_address
from floodmark.errors import FloodmarkError, HistoryGone, RuleChanged, RunFailed, Sealed
from floodmark.ledger.delta.tables import newest_version
from floodmark.ledger.ledger import Ledger
from floodmark.reading import read
from floodmark.views.status.refusals import refused


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/lake/out", "/lake/out/"),
        ("/lake/out", "/lake//x/.././out"),
        ("/lake/out", "file:///lake/out"),
        ("/lake/out", "file:/lake/out/"),
        ("/lake/o t", "file:///lake/o%20t"),
        ("s3://b/out", "s3a://b//out/"),
        ("abfs://c@a.dfs/out", "abfss://c@a.dfs/out"),
        ("wasb://c@a.blob/out", "wasbs://c@a.blob/./out"),
    ],
)
def test_spellings_of_one_place(one: str, other: str) -> None:
    assert same_address(one, other)


@pytest.mark.parametrize(("one", "other"), [("/lake/out", "/lake/Out"), ("s3://b/out", "gs://b/out"), ("/a", "/b")])
def test_places_that_differ(one: str, other: str) -> None:
    assert not same_address(one, other)


# ------------------------------------------------------------------------------------------------------ the decision


def _head(flow: Flow, **facts: Any) -> Head:
    head = lived(flow).head
    assert head is not None
    return replace(head, table_ids={"sink/a": "1", "sink/b": "2", "late": "3"}, written={"sink/a": 9}, **facts)


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return _head(Flow(tmp_path))


@pytest.mark.parametrize(
    ("found", "recorded", "places"),
    [
        ({"a": "1", "b": "2"}, {"a": 9}, {}),
        ({"A": "1", "b": "2"}, {"A": 9}, {"sink/a": "A"}),
        ({"A": "1", "b": "2"}, {"A": 10}, {"sink/a": "A"}),  # of an epoch that is open
        ({"A": "1"}, None, {"sink/a": "A"}),
        ({"b": "1", "a": "2"}, {"b": 9}, {"sink/a": "b", "sink/b": "a"}),
        ({"a": "1", "B": "2"}, {"B": None}, {"sink/b": "B"}),  # nothing was ever written to it
        ({"A": "1", "b": "2"}, {"A": 8}, "the ledger wrote version 9, but the table has recorded 8"),
        ({"A": "1", "b": "2"}, {"A": None}, "the ledger wrote version 9, but the table has recorded None"),
        ({"A": "1", "a": "7"}, {"A": 9}, "the ledger knows the table with id 1 by this address, which is at A now"),
        ({"a": "7", "b": "2"}, {"a": None}, {}),  # refused by who compares ids
        ({}, {}, {}),
    ],
)
def test_a_sink_is_found_by_its_id(
    head: Head, found: dict[str, str], recorded: dict[str, int | None] | None, places: Any
) -> None:
    if isinstance(places, str):
        with pytest.raises(HistoryGone, match=places):
            settle(head, found, recorded)
        return
    now = settle(head, found, recorded)
    assert moves(head, now) == places
    assert {name: place for name, place in places_of(now).items() if place != name.removeprefix("sink/")} == places


def test_a_moved_sink_may_be_sealed_by_the_reset_that_is_pending(head: Head) -> None:
    with pytest.raises(Sealed, match="the ledger does not know"):
        settle(head, {"A": "1"}, {"A": SEAL})
    seal = Seal(why="reset", successor=2, token="next", keep_output=False, discarded=None)
    resetting = replace(head, seal=seal)
    assert moves(resetting, settle(resetting, {"A": "1"}, {"A": SEAL})) == {"sink/a": "A"}
    with pytest.raises(HistoryGone, match="the table has recorded 8"):
        settle(resetting, {"A": "1"}, {"A": 8})


def test_a_sink_that_comes_back_is_where_its_name_says(head: Head) -> None:
    there = settle(head, {"A": "1"}, None)
    back = settle(there, {"a": "1"}, None)
    assert moves(there, back) == {"sink/a": "a"}
    assert (name_at(there, "A"), name_at(back, "a"), name_at(back, "A")) == ("sink/a", "sink/a", "sink/A")
    assert name_at(None, "a") == "sink/a"


def _texts(rule: Rule, *addresses: str) -> Rule:
    sinks = tuple(rule.sinks[0].model_copy(update={"address": address}) for address in addresses)
    return rule.model_copy(update={"sinks": sinks})


@pytest.mark.parametrize(
    ("addresses", "places", "found"),
    [
        (["/l/a", "/l/b"], {"/l/b": None, "/l/a": None}, ["/l/a", "/l/b"]),
        (["file:///l/a%20b/"], {"/l/a b": None}, ["/l/a b"]),
        (["l/a", "l/b"], {"/w/l/b": None, "/w/l/a": None}, ["/w/l/a", "/w/l/b"]),
        (["/link/a", "/link/b"], {"/real/b": None, "/real/a": None}, ["/real/a", "/real/b"]),
        (["/new/a"], {"/old/a": "/new/a"}, ["/old/a"]),
        (["/old/a"], {"/old/a": "/new/a"}, ["/old/a"]),  # a text from before the move
        (["/b", "/a"], {"/a": "/b", "/b": "/a"}, ["/a", "/b"]),  # two that changed places
        (["/link"], {"/real": None}, ["/real"]),
        (["/link/x", "/link/y"], {"/real/a": None, "/real/b": None}, [None, None]),
        (["/l/a", "/l/new"], {"/l/a": None}, ["/l/a", None]),
    ],
)
def test_what_an_old_text_meant_by_its_addresses(
    head: Head, addresses: list[str], places: dict[str, str | None], found: list[str | None]
) -> None:
    known = {f"sink/{name}": place or name for name, place in places.items()}
    names = names_of(_texts(head.rule, *addresses), known)
    assert [names[one] for one in addresses] == [None if one is None else f"sink/{one}" for one in found]


# ------------------------------------------------------------------------------------------ tables on a disk, by hand


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path, sinks=2)


def _respell(flow: Flow, how: Any) -> None:
    flow.settings["sinks"] = [{"delta": how(flow.sink(i))} for i in range(flow.sinks)]
    flow.stream["delta"] = how(flow.source)


def _move(flow: Flow) -> Path:
    """The lake, to another folder, which the rule names from then on."""
    flow.write_rule()
    new = flow.root / "elsewhere" / "lake"
    new.parent.mkdir()
    (flow.root / "lake").rename(new)
    _respell(flow, lambda address: str(new / Path(address).name))
    return new


def _goes_on(flow: Flow) -> Head:
    ledger = flow.ledger()
    assert ledger.head is not None
    return check_same_sinks(ledger.head, flow.rule(), ledger.id)


@pytest.mark.parametrize(
    ("fault", "is_edit"), [(RunFailed("the store is down"), False), (RuleChanged("another key"), True), (None, None)]
)
def test_what_stops_the_next_run_is_an_edit_or_a_sink_that_cannot_be_opened(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, fault: FloodmarkError | None, is_edit: bool | None
) -> None:
    lived(flow)
    head = flow.ledger().head
    assert head is not None

    def check(head: Head, rule: Rule) -> None:
        if fault is not None:
            raise fault

    monkeypatch.setattr("floodmark.views.status.refusals.check_same_sinks", check)
    found = refused(flow.rule(), head)
    assert (found and (found.said, found.is_edit)) == (fault and (str(fault), is_edit))


SPELLINGS = [
    lambda address: f"{address}/",
    lambda address: f"file://{address}",
    lambda address: f"{Path(address).parent}/../lake//{Path(address).name}",
    lambda address: os.path.relpath(address),
]


@pytest.mark.parametrize("how", SPELLINGS)
def test_another_spelling_of_a_sinks_address_is_no_edit(flow: Flow, how: Any) -> None:
    lived(flow)
    _respell(flow, how)
    head = flow.ledger().head
    assert _goes_on(flow) == head
    assert "moved" not in str(look(flow.rule(), flow.home).why)


def test_a_lake_that_was_moved_goes_on_and_is_recorded(flow: Flow) -> None:
    ledger = lived(flow)
    new = _move(flow)
    assert "a sink was moved" in str(look(flow.rule(), flow.home).why)
    head = flow.ledger().head
    assert head is not None
    moved = moves(head, _goes_on(flow))
    assert moved == {f"sink/{flow.root}/lake/{name}": str(new / name) for name in ("counted_out0", "counted_out1")}
    ledger.live(Life(what="moved", places=moved))
    found = flow.ledger().head
    assert found is not None and found == _goes_on(flow) and name_at(found, str(new / "counted_out1")) in moved
    assert "a sink was moved" not in str(look(flow.rule(), flow.home).why)
    assert [len(one.arrow()) for one in read(flow.name, flow.home)] == [1, 1]
    assert read(flow.name, flow.home, 0).sinks[0].name == "counted_out0"
    made = audit(flow.name, flow.home, deep=False)
    assert made is not None and not [one for one in made.findings if "no table" in one.what]


def _exchange(flow: Flow) -> tuple[Path, Path]:
    one, other = (Path(flow.sink(i)) for i in range(2))
    one.rename(flow.root / "passing")
    other.rename(one)
    (flow.root / "passing").rename(other)
    return one, other


def _intended(flow: Flow, ledger: Ledger) -> str:
    """An open epoch of sinks that take different rows; its text."""
    found = intent(flow, newest_version(flow.source) + 1, None, 0, Counts(read=1, folded=1))
    ledger.intend(found)
    return found.rule


def _choosy(flow: Flow, order: tuple[int, int] = (0, 1)) -> None:
    """Of the sinks, the first takes some of the results, the second all of them."""
    first, second = (flow.sink(i) for i in order)
    flow.settings["sinks"] = [{"delta": first, "where": "c > 1"}, {"delta": second}]


def _of_text(flow: Flow, text: str) -> tuple[Head, dict[str | None, str]]:
    """The head as of now, and the table of each sink of an open text, by its `where`."""
    head = flow.ledger().head
    assert head is not None
    now = head_now(head, flow.rule(), flow.ledger().id)
    sinks = text_now(text, now, flow.rule()).sinks
    return now, {sink.where: DeltaTable(str(sink.address)).metadata().id for sink in sinks}


def test_an_open_text_is_finished_in_its_own_tables_though_these_changed_places(flow: Flow) -> None:
    """And though the lake is moved after that: the name of a sink says where its table was at first."""
    _choosy(flow)
    ledger = lived(flow)
    head = ledger.head
    assert head is not None
    tables = dict(zip(("c > 1", None), (head.table_ids[f"sink/{flow.sink(i)}"] for i in range(2)), strict=True))
    text = _intended(flow, ledger)
    _exchange(flow)
    now, found = _of_text(flow, text)
    assert found == tables
    ledger.live(Life(what="moved", places=moves(head, now)))
    _move(flow)
    assert _of_text(flow, text)[1] == tables


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("file_too", [False, True])
def test_sinks_that_changed_places_keep_what_they_take_or_are_refused(
    flow: Flow, recorded: bool, file_too: bool
) -> None:
    """Exchanged tables alone would each get the rows of the other from then on."""
    _choosy(flow)
    ledger = lived(flow)
    _exchange(flow)
    _choosy(flow, (1, 0))
    if recorded:
        ledger.live(Life(what="moved", places=moves(ledger.head, _goes_on(flow))))  # type: ignore[arg-type]
    _choosy(flow, (1, 0) if file_too else (0, 1))
    if file_too:
        assert len(places_of(_goes_on(flow))) == 2
    else:
        told = (
            r"where of a sink"
            if recorded
            else r"where of a sink.* Tables of its sinks were moved: sink .* is at .*out1, "
        )
        with pytest.raises(RuleChanged, match=told):
            _goes_on(flow)


def test_two_sinks_that_changed_places_are_told_before_any_input_comes(flow: Flow) -> None:
    """Each address still leads to a table of the rule's: until that is recorded, the auditor would call both BROKEN."""
    ledger = lived(flow)
    one, other = _exchange(flow)
    assert "a sink was moved" in str(look(flow.rule(), flow.home).why)
    moved = moves(ledger.head, _goes_on(flow))  # type: ignore[arg-type]
    assert moved == {f"sink/{one}": str(other), f"sink/{other}": str(one)}
    ledger.live(Life(what="moved", places=moved))
    assert look(flow.rule(), flow.home).why is None
    made = audit(flow.name, flow.home, deep=False)
    assert made is not None and not [found for found in made.findings if "the table has id" in found.what]


def test_what_commands_do_to_the_tables_of_a_rule_they_do_where_these_lie_now(flow: Flow) -> None:
    ledger = lived(flow)
    new = _move(flow)
    ledger.live(Life(what="moved", places=moves(ledger.head, _goes_on(flow))))  # type: ignore[arg-type]
    call(flow, "retire", "counted", "--yes")
    assert str(new / "counted_out0") in call(flow, "drop", "counted", "--sinks", "--yes")
    assert [one.name for one in new.iterdir()] == ["counted_events"]


def test_a_switched_link_above_a_sink_is_not_taken_for_another_sink(flow: Flow) -> None:
    link = flow.root / "link"
    link.symlink_to(flow.root / "lake")
    lived(flow)
    flow.settings["sinks"] = [{"delta": str(link / f"counted_out{i}")} for i in range(2)]
    assert _goes_on(flow) == flow.ledger().head
    link.unlink()
    (flow.root / "empty").mkdir()
    link.symlink_to(flow.root / "empty")
    with pytest.raises((HistoryGone, RuleChanged), match=r"is at none of the addresses of the sinks|one was removed"):
        _goes_on(flow)


def _other_tables(flow: Flow, link: Path) -> str:
    other = flow.root / "other"
    shutil.copytree(flow.root / "lake", other)
    for checksum in other.glob("*/_delta_log/*.crc"):  # they have the id, too
        checksum.unlink()
    for log in other.glob("*/_delta_log/*.json"):
        log.write_text(re.sub(r'("metaData":\{.*?"id":")', r"\1f", log.read_text()))
    link.symlink_to(other)
    return "found another table, with id f.* to which the address now leads"


def _no_tables(flow: Flow, link: Path) -> str:
    link.symlink_to(flow.root)
    return "found no table at .* to which the address now leads"


def _older_tables(flow: Flow, link: Path) -> str:
    link.symlink_to(flow.root / "older")
    return "the ledger wrote version 2097152, but the table has recorded 1048576"


@pytest.mark.parametrize("plant", [_other_tables, _no_tables, _older_tables])
def test_a_link_that_leads_to_other_or_older_tables_is_refused_and_named(flow: Flow, plant: Any) -> None:
    """The rule's text is the same; what it means is not."""
    link = flow.root / "link"
    link.symlink_to(flow.root / "lake")
    flow.settings["sinks"] = [{"delta": str(link / f"counted_out{i}")} for i in range(2)]
    ledger = lived(flow)
    shutil.copytree(flow.root / "lake", flow.root / "older")
    an_epoch(flow, ledger)
    link.unlink()
    with pytest.raises(HistoryGone, match=plant(flow, link)):
        _goes_on(flow)


def test_links_whose_names_tell_nothing_are_told_by_the_tables_that_they_lead_to(flow: Flow) -> None:
    """Of the last epoch's text it cannot be told which sink was which; that tables are missing can be."""
    links = [flow.root / "x", flow.root / "y"]
    flow.settings["sinks"] = [{"delta": str(link)} for link in links]
    for i, link in enumerate(links):
        link.symlink_to(flow.sink(i))
    lived(flow)
    assert _goes_on(flow) == flow.ledger().head
    links[1].unlink()
    links[1].symlink_to(flow.root / "empty")
    with pytest.raises(HistoryGone, match="is at none of the addresses of the sinks of rule counted"):
        _goes_on(flow)


def test_a_sink_that_was_taken_out_is_refused_as_before(flow: Flow) -> None:
    lived(flow)
    flow.settings["sinks"] = [{"delta": flow.sink(1)}]
    with pytest.raises(RuleChanged, match="one was removed"):
        _goes_on(flow)


def test_an_added_sink_and_a_moved_one_are_told_apart(flow: Flow) -> None:
    lived(flow)
    new = _move(flow)
    flow.settings["sinks"].append({"delta": str(new / "added")})
    now = _goes_on(flow)
    assert name_at(now, str(new / "added")) == f"sink/{new}/added"
    assert name_at(now, str(new / "counted_out0")) == f"sink/{flow.root}/lake/counted_out0"


def test_key_where_and_layout_are_compared_for_the_same_table(flow: Flow) -> None:
    lived(flow)
    _move(flow)
    flow.settings["sinks"][0]["where"] = "c > 1"
    with pytest.raises(RuleChanged, match="where of a sink"):
        _goes_on(flow)


def test_a_text_that_is_open_is_finished_where_its_tables_lie_now(flow: Flow) -> None:
    ledger = lived(flow)
    text = flow.rule().to_json()
    new = _move(flow)
    head = head_now(ledger.head, flow.rule(), ledger.id)  # type: ignore[arg-type]
    found = text_now(text, head, flow.rule())
    assert [sink.address for sink in found.sinks] == [str(new / f"counted_out{i}") for i in range(2)]
    assert found.streams["events"].address == str(new / "counted_events")
    assert text_now(flow.rule().to_json(), head, flow.rule()).sinks == found.sinks


def test_two_rules_whose_sinks_are_one_table_by_a_link_clash(flow: Flow) -> None:
    flow.write_rule()
    (flow.root / "link").symlink_to(flow.root / "lake")
    other = Flow(flow.root, "twin", settings={"sinks": [{"delta": f"file://{flow.root}/link/counted_out1/"}]})
    other.write_rule()
    good, faults = load_rules(flow.root / "rules", os.environ)
    assert not good and sorted(faults) == ["counted.yaml", "twin.yaml"]
    assert all("is a sink of rule" in str(fault) for fault in faults.values())


@pytest.mark.parametrize(("id_", "kept"), [("same", True), ("another", False), (None, True)])
def test_a_new_generation_knows_where_a_table_lies_that_it_goes_on_with(
    flow: Flow, id_: str | None, kept: bool
) -> None:
    """A table that it has made at the old address is another one, and lies there."""
    ledger = lived(flow)
    head = ledger.head
    assert head is not None
    name = f"sink/{flow.sink()}"
    ledger.live(Life(what="moved", places={name: "/elsewhere"}))
    ledger.seal(Seal(why="reset", successor=2, token="next", keep_output=False, discarded=None))
    ids = {} if id_ is None else {name: head.table_ids[name] if id_ == "same" else id_}
    ledger.begin(2, "next", head.begun_with.model_copy(update={"table_ids": ids}))
    assert flow.ledger().head.places == ({name: "/elsewhere"} if kept else {})  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------------------- the auditor


def test_the_auditor_finds_a_sink_at_the_newest_address_that_the_ledger_has() -> None:
    world = World()
    world.bodies.append(("life", 3, 1, {"format": 7, "what": "moved", "places": {f"sink/{SINK}": "/new/out"}}))
    world.gone.add("/new/out")
    assert f"no table at /new/out{MOVED}" in " ".join(one.what for one in world.findings())
    world.gone.clear()
    world.logs["/new/out"] = world.logs.pop(SINK)
    for files in (world.live, world.there):
        files["/new/out"] = files.pop(SINK)
    assert world.findings() == []


def test_a_row_that_moves_what_is_no_sink_is_told() -> None:
    for table in ("late", "sink/never"):
        world = World()
        world.bodies.append(("life", 3, 1, {"format": 7, "what": "moved", "places": {table: "/new"}}))
        assert any("which is not a sink of the generation" in one.what for one in world.findings())


@pytest.mark.parametrize(
    ("name", "role", "rest", "of_generation_3"),
    [
        ("late", "late", "", "late"),
        ("state/events", "state", "events", "state/g3/events"),
        ("sink//lake/out", "sink", "/lake/out", "sink//lake/out"),
        ("sink/s3://bucket/out", "sink", "s3://bucket/out", "sink/s3://bucket/out"),
    ],
)
def test_a_tables_name_has_a_role_and_for_state_a_generation(
    name: str, role: str, rest: str, of_generation_3: str
) -> None:
    table = TableName.parse(name)
    assert (table.role, table.rest) == (role, rest)
    assert table.in_generation(3) == of_generation_3
    assert (table.is_state, table.is_sink) == (role == "state", role == "sink")
