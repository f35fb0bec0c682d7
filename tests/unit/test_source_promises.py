"""Every kind of source keeps what the port promises; what needs Spark is in `tests/spark/test_source_ranges.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from support.flow import event
from support.sourcekinds import KINDS, Growing, promised, rewrites_promised

from floodmark.connectors.planning.epochends import steps
from floodmark.connectors.ports import fakes
from floodmark.connectors.ports.registry import check_rereads
from floodmark.core.lifecycle.backfills import requested_interval
from floodmark.core.rules import kinds
from floodmark.core.rules.rule import EpochLimits, Rule, json_schema, load_rule
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.errors import HistoryGone, Refused, RuleInvalid, SourceBroken


@pytest.fixture(params=KINDS)
def growing(request: pytest.FixtureRequest, place: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    kind = KINDS[request.param]
    if kind.registered is not None:
        monkeypatch.setitem(kinds.SOURCES, request.param, kind.registered)
    return Growing(kind, place / "rows")


def test_it_keeps_what_is_promised(growing: Growing) -> None:
    promised(growing)


REWRITTEN = [kind for kind, one in KINDS.items() if one.remove is not None]


@pytest.mark.parametrize("growing", REWRITTEN, indirect=True)
def test_rows_that_are_removed_are_named(growing: Growing) -> None:
    rewrites_promised(growing)


@pytest.mark.parametrize("growing", ["delta"], indirect=True)
def test_a_rewrite_whose_log_entry_is_gone_is_not_guessed_at(growing: Growing) -> None:
    assert growing.kind.remove is not None
    growing.kind.remove(growing.place, 0)
    table = DeltaTable(growing.place)
    table.create_checkpoint()
    (growing.place / "_delta_log" / f"{table.version():020}.json").unlink()
    with pytest.raises(HistoryGone, match=rf"expected the log entry of version {table.version()}.*floodmark reset"):
        growing.source.rewrite(growing.offsets[-1])


def test_another_one_in_its_place_is_noticed(growing: Growing) -> None:
    known = growing.offsets[-1]
    if growing.stream.kind == "fake":
        del fakes.ROWS[str(growing.place)]
    else:
        growing.place.rename(growing.place.with_name("away"))
    growing.kind.add(growing.place, [event(i) for i in range(20)])
    assert growing.source.is_another(known)
    with pytest.raises(HistoryGone, match="floodmark reset"):
        growing.source.check_identity(known, None)


@pytest.fixture
def fake(place: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    monkeypatch.setitem(kinds.SOURCES, "fake", str(KINDS["fake"].registered))
    return Growing(KINDS["fake"], place / "rows")


@pytest.mark.parametrize(
    ("most", "ends"), [(1, [0, 1, 2, 3, 4, 5, 6]), (4, [0, 4, 6]), (6, [0, 6]), (7, [0, 6]), (None, [0, 6])]
)
def test_epochs_end_within_the_limits_of_the_rule(fake: Growing, most: int | None, ends: list[int]) -> None:
    found = steps(fake.source, fake.offsets[0], EpochLimits(max_rows=most))
    assert [fake.source.describe(offset) for offset in found] == [f"{end} rows" for end in ends]


def test_nothing_new_is_no_epoch(fake: Growing) -> None:
    assert steps(fake.source, fake.offsets[-1], EpochLimits(max_rows=1)) == [fake.offsets[-1]]


def test_a_source_that_does_not_go_on_is_named(fake: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fakes.FakeSource, "after", lambda self, since, upto, limits: since)
    with pytest.raises(SourceBroken, match=r"stream s: expected an offset beyond .* FakeSource\.after"):
        steps(fake.source, fake.offsets[0], EpochLimits(max_rows=1))


# --- What a rule asks of a kind that can do less

ONCE = """\
rule: counted
streams: {events: {once: {name: rows, columns: 'k STRING, n BIGINT'}}}
sql: SELECT k, n FROM events
qos: 0
sinks: [{delta: /lake/out}]
"""


GIVES_ONCE = dataclasses.replace(fakes.SOURCE, can=kinds.SourceCan(starts=frozenset({"latest", "earliest"})))


@pytest.fixture
def load(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Rule]:
    monkeypatch.setitem(kinds.SOURCES, "once", f"{__name__}:GIVES_ONCE")
    monkeypatch.setitem(kinds.SOURCES, "fake", str(KINDS["fake"].registered))

    def loaded(text: str) -> Rule:
        (place / "counted.yaml").write_text(text)
        return load_rule(place / "counted.yaml", {})

    return loaded


def test_a_rule_names_a_kind_that_was_registered(load: Callable[[str], Rule]) -> None:
    stream = load(ONCE).streams["events"]
    assert (stream.kind, stream.address) == ("once", "fake://rows")
    assert stream.options == {"name": "rows", "columns": "k STRING, n BIGINT"}
    assert Rule.from_json(load(ONCE).to_json()) == load(ONCE)
    assert delivery(load(ONCE))[0].source == "at most once"
    assert "once" in json_schema()["$defs"]["WrittenStream"]["properties"]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("qos: 0", "qos: 1", "2: streams.events.once: expected a source whose rows can be read again"),
        ("BIGINT'}", "BIGINT'}, start: {version: 3}", "2: streams.events.start: expected earliest or latest, because"),
        ("qos: 0", "qos: 0\nepoch: {max_rows: 3}", "5: epoch.max_rows: Once streams cannot count rows"),
        ("qos: 0", "qos: 0\nepoch: {max_files: 3}", "5: epoch.max_files: Once streams cannot be bounded by max_files"),
        ("qos: 0", "qos: 0\nepoch: none\nrebuild: true", "6: rebuild: expected sources whose rows can be read again"),
        ("{name: rows, ", "{nam: rows, ", "2: streams.events.once.nam: unknown key 'nam': did you mean 'nam"),
        ("once: {name: rows, ", "once: {", "2: streams.events.once.name: expected `name: ...`"),
        ("once: {name", "new: {name", "2: streams.events.new: unknown key 'new': expected a kind of stream (delta, "),
        ("BIGINT'}", "BIGINT'}, delta: /lake/in", "expected exactly one kind of stream (delta, "),
    ],
)  # fmt: skip
def test_what_a_kind_cannot_do_is_refused_by_name(
    load: Callable[[str], Rule], old: str, new: str, problem: str
) -> None:
    assert old in ONCE
    with pytest.raises(RuleInvalid) as fault:
        load(ONCE.replace(old, new))
    assert problem in str(fault.value)


def test_a_look_takes_no_rows_that_come_once(load: Callable[[str], Rule]) -> None:
    with pytest.raises(Refused, match="stream events is a once source"):
        check_rereads(load(ONCE))


def test_rows_that_come_once_are_not_backfilled(load: Callable[[str], Rule]) -> None:
    with pytest.raises(
        Refused, match=("stream events is a once source, whose rows can be read only once, and a backfill")
    ):
        requested_interval(load(ONCE), cast(Any, None), 0, 1, str)
