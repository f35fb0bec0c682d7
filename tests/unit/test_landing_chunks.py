"""Landings without Spark: the rule's keys, what a stream can do, and what is asked of landing and source."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from pyspark.sql.types import StringType, StructField, StructType
from support.aged import age, files
from support.flow import SCHEMA, STATELESS, Flow, event, rows_of
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.runs.progress import landed_line
from floodmark.connectors.backlog import landings
from floodmark.connectors.columns import named, needed
from floodmark.connectors.delta import landed
from floodmark.connectors.delta.landed import KIND, START, Landed
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.delta.source import DeltaSource
from floodmark.connectors.ports import fakes
from floodmark.connectors.ports.source import MALFORMED
from floodmark.connectors.preflight import check_sql_columns
from floodmark.connectors.sources.files import journal as files_journal
from floodmark.connectors.sources.iceberg.offsets import At
from floodmark.connectors.sources.kafka.offsets import KafkaOffset
from floodmark.connectors.sources.postgres.offsets import Place, RowsOffset, SlotOffset
from floodmark.connectors.sources.python import offsets as python_offsets
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.lifecycle.cleanup import first_kept
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.rules import kinds
from floodmark.core.rules.kinds import stream_can
from floodmark.core.rules.model import Landing
from floodmark.core.rules.rule import EpochLimits, Rule, Stream, load_rule
from floodmark.core.rules.sinks.delivery import before_landing, delivery
from floodmark.errors import Fenced, HistoryGone, RuleChanged, RuleInvalid, RunFailed, SqlRefused, WrongColumn
from floodmark.ledger.delta import tables
from floodmark.ledger.landings import app_of, cut, cut_app, due_cut
from floodmark.ledger.ledger import Ledger
from floodmark.spark.rule import landing
from floodmark.spark.rule.landing import MOST, Which, _read, chunk_limits
from floodmark.views.needs import needs_of

RULE = """\
rule: counted
streams: {events: {KIND: {name: rows, columns: 'k STRING, n BIGINT'}, landing: LANDING}}
sql: SELECT k, n FROM events
sinks: [{delta: /lake/out}]
"""
WEAK = kinds.SourceKind(
    written=fakes.FakeConfig,
    summary="rows that can be read once",
    can=kinds.SourceCan(starts=frozenset({"latest"})),
    address=lambda said: f"weak://{said.name}",
    open=fakes.FakeSource,
)
SLOT = kinds.SourceKind(
    written=fakes.FakeConfig,
    summary="rows that can be read until they are landed",
    can=kinds.SourceCan(lands=True),
    address=lambda said: f"slot://{said.name}",
    open=fakes.FakeSource,
)


@pytest.fixture
def load(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rule]:
    monkeypatch.setitem(kinds.SOURCES, "weak", f"{__name__}:WEAK")
    monkeypatch.setitem(kinds.SOURCES, "slot", f"{__name__}:SLOT")
    monkeypatch.setitem(kinds.SOURCES, "fake", "floodmark.connectors.ports.fakes:SOURCE")

    def loaded(kind: str, landing: str, more: str = "") -> Rule:
        text = RULE.replace("KIND", kind).replace("LANDING", landing)
        (place / "counted.yaml").write_text(text + more)
        return load_rule(place / "counted.yaml", {})

    return loaded


# --- The rule's keys


@pytest.mark.parametrize(
    ("kind", "written", "landing"),
    [
        ("fake", "true", Landing()),
        ("fake", "false", None),
        ("fake", "null", None),
        ("fake", "{keep: 30 days}", Landing(keep_us=30 * 86_400_000_000)),
        ("weak", "true", Landing()),
        ("slot", "null", Landing()),
        ("slot", "{keep: 1 hour}", Landing(keep_us=3_600_000_000)),
    ],
)
def test_what_a_stream_lands(load: Callable[..., Rule], kind: str, written: str, landing: Landing | None) -> None:
    rule = load(kind, written + (", start: latest" if kind == "weak" else ""))
    assert rule.streams["events"].landing == landing
    assert Rule.from_json(rule.to_json()) == rule
    assert ("landing" in json.loads(rule.to_json())["streams"]["events"]) == (landing is not None), "as in old ledgers"


@pytest.mark.parametrize(
    ("kind", "written", "problem"),
    [
        ("weak", "null, start: latest", "2: streams.events.weak: expected a source whose rows can be read again"),
        ("weak", "false, start: latest", "Add `landing: true` to the stream"),
        ("weak", "true", "2: streams.events.start: expected latest, because a weak source can start nowhere else"),
        ("slot", "false", "2: streams.events.landing: expected true or {keep: DURATION}, found false: rows of a slot"),
        ("fake", "{keep: 0 days}", "2: streams.events.landing.keep: "),
        ("fake", "{kep: 1 day}", "2: streams.events.landing.kep: unknown key 'kep': did you mean 'keep'"),
        ("rebuilt", "{keep: 1 day}", "2: streams.events.landing.keep: expected none with `rebuild: true`"),
        ("fake", "7", "2: streams.events.landing: expected true, false or {keep: DURATION}"),
        ("fake", "true, on_rewrite: skip", "2: streams.events.on_rewrite: expected none beside `landing`"),
    ],
)
def test_what_does_not_fit_a_landing_is_refused(
    load: Callable[..., Rule], kind: str, written: str, problem: str
) -> None:
    rebuilt = kind == "rebuilt"
    with pytest.raises(RuleInvalid) as fault:
        load("fake" if rebuilt else kind, written, "epoch: none\nrebuild: true\n" if rebuilt else "")
    assert problem in str(fault.value)


def test_a_landed_stream_is_bounded_as_a_table(load: Callable[..., Rule]) -> None:
    assert load("fake", "true", "epoch: {max_bytes: 9000000}\n").epoch.max_bytes == 9_000_000
    with pytest.raises(RuleInvalid, match=r"epoch\.max_rows: Landed streams cannot count rows"):
        load("fake", "true", "epoch: {max_rows: 3}\n")


def test_a_landed_stream_can_what_a_table_can_from_where_its_source_starts(load: Callable[..., Rule]) -> None:
    can = stream_can(load("weak", "true, start: latest").streams["events"])
    assert can.rereads and can.planned and not can.rewrites and not can.table
    assert can.starts == frozenset({"latest"})


@pytest.mark.parametrize(("kind", "said"), [("weak", "may lose rows"), ("slot", "keeps rows"), ("fake", "gives rows")])
def test_delivery_says_what_a_crash_does_before_the_landing(load: Callable[..., Rule], kind: str, said: str) -> None:
    rule = load(kind, "true" + (", start: latest" if kind == "weak" else ""))
    assert said in str(before_landing(rule.streams["events"]))
    assert delivery(rule)[0].delivery == "exactly once"
    assert before_landing(load("fake", "false").streams["events"]) is None


def test_only_how_long_rows_are_kept_can_be_edited(load: Callable[..., Rule]) -> None:
    rules = [load("fake", landing) for landing in ("true", "{keep: 1 day}", "false")]
    check_edit(rules[0], rules[1])
    for old, new in ((rules[0], rules[2]), (rules[2], rules[0])):
        with pytest.raises(RuleChanged, match="changed streams"):
            check_edit(old, new)


# --- The landing as a source


class Once:
    """A landing beside its source, with chunks as a run commits them."""

    def __init__(self, place: Path):
        self.name, self.address = str(place), str(place / "landing")
        said = {"name": self.name, "columns": "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"}
        self.stream = Stream(kind="fake", address=f"fake://{place}", options=said, landing=Landing())
        fakes.append(self.name, [])
        self.app, self.number = app_of("l", "events"), 0

    @property
    def inner(self) -> fakes.FakeSource:
        return fakes.FakeSource("events", self.stream)

    @property
    def source(self) -> Landed:
        return Landed("events", self.stream, self.inner, self.address)

    def create(self, kind: str = "fake") -> None:
        """kind: of the source; "": not recorded, as by earlier versions."""
        types = {"at": "timestamp", "k": "string", "v": "double", "n": "long", MALFORMED: "string"}
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
        schema = {"type": "struct", "fields": fields}
        said = {tables.OWNER: "l", START: self.inner.take_start()} | ({KIND: kind} if kind else {})
        tables.create(self.address, json.dumps(schema), said)

    def give(self, *numbers: int) -> None:
        fakes.append(self.name, [event(n, n=n) for n in numbers])

    def land(self) -> None:
        """All that is not landed, as one chunk."""
        since, end = self.source.newest().end, self.inner.end()
        found = self.inner._rows.rows[json.loads(since)["rows"] : json.loads(end)["rows"]]
        rows = table_of(found)
        self.number += 1
        said = {"app": self.app, "version": self.number, "rows": len(rows), "since": since, "end": end, "log_sum": None}
        self.commit(rows, said, Transaction(self.app, self.number))

    def commit(self, rows: pa.Table, said: dict[str, Any], txn: Transaction) -> None:
        text = json.dumps(said, separators=(",", ":"))
        how = CommitProperties(custom_metadata={"userMetadata": text}, app_transactions=[txn])
        write_deltalake(self.address, rows, mode="append", commit_properties=how)

    def at(self, version: int) -> str:
        """The offset before a version."""
        return DeltaOffset(tables.table_id(self.source.table()), version, -1, False).line()


def table_of(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA.append(pa.field(MALFORMED, pa.string())))


@pytest.fixture
def once(place: Path) -> Once:
    return Once(place)


def test_before_there_is_a_landing_the_source_answers(once: Once) -> None:
    once.give(1, 2)
    source = once.source
    assert source.columns() == once.inner.columns()
    assert source.start() == once.inner.start()
    assert source.news(once.inner.start(), source.end()) and source.is_another(once.inner.start())
    with pytest.raises(HistoryGone, match="expected its landing"):
        source.check_identity("{}", None)


def test_a_landing_starts_at_its_first_chunk_and_hides_what_is_not_a_column(once: Once) -> None:
    once.create()
    assert once.source.newest().number == 0 and once.source.newest().end == once.inner.start()
    assert once.source.start() == once.source.take_start() == once.at(1) and not once.source.in_snapshot(once.at(1))
    assert once.source.columns() == once.inner.columns()


def test_news_is_what_is_not_folded_and_what_is_not_landed(once: Once) -> None:
    once.create()
    assert not once.source.news(once.at(1))
    once.give(1, 2)
    assert once.source.news(once.at(1)), "not landed"
    once.land()
    assert once.source.news(once.at(1)), "not folded"
    assert not once.source.news(once.at(2))
    assert once.source.take_end(once.at(1)) == once.at(2)


def test_a_run_has_done_what_a_look_saw_once_that_is_landed_and_folded(once: Once) -> None:
    once.create()
    nothing = once.source.end()
    once.give(1, 2)
    seen = once.source.end()
    assert not once.source.news(once.at(1), nothing)
    assert once.source.news(once.at(1), seen), "not landed"
    once.land()
    once.give(3)
    once.land()
    assert once.source.news(once.at(1), seen), "landed"
    assert not once.source.news(once.at(2), seen), "what came after the look does not count"
    assert once.source.news(once.at(2), once.source.end())
    assert not once.source.news(once.at(3), once.source.end())


def test_backlog_has_both_parts(once: Once) -> None:
    once.create()
    once.give(1, 2)
    once.land()
    once.give(3)
    found = once.source.backlog(once.at(1))
    assert found.amount == 2
    assert found.text == "not landed: 1 rows; landed and not folded: 1 commit with new data up to table version 1"
    assert found.facts["landed"] == "2 rows"
    assert once.source.newest() == once.source.newest().__class__(1, 1, once.inner._line(2))


def test_a_source_that_was_replaced_is_named_with_the_landing_that_a_reset_keeps(once: Once) -> None:
    once.create()
    once.give(1)
    once.land()
    fakes.ROWS[once.name] = fakes.Rows()
    assert once.source.is_another(once.at(2))
    for asks in (once.source.check_source, lambda: once.source.check_identity(once.at(2), None)):
        with pytest.raises(HistoryGone, match=r"floodmark reset`.*a landing, which a reset keeps.*move the folder"):
            asks()


@pytest.mark.parametrize("asked", ["check_source", "backlog", "check_appended", "news", "check_identity"])
def test_a_landing_of_another_kind_of_source_is_told_before_its_offsets_are_read(once: Once, asked: str) -> None:
    once.create("kafka")
    asks = {"check_source": once.source.check_source, "check_identity": lambda: once.source.check_identity(at, None)}
    at = once.at(1)
    with pytest.raises(
        HistoryGone, match=r"copied \(kafka\), found fake.*Restore the stream .*move the folder"
    ) as fault:
        asks.get(asked, lambda: getattr(once.source, asked)(at))()
    assert str(fault.value).count("move the folder") == 1
    assert once.source.is_another(at) and once.source.start() == at


def test_a_landing_of_an_earlier_version_has_no_kind_and_goes_on(once: Once) -> None:
    once.create("")
    once.give(1)
    once.land()
    once.source.check_source()
    assert once.source.other_kind is None and not once.source.is_another(once.at(2))


PARSED: dict[str, tuple[Callable[[str], object], str]] = {
    "delta": (DeltaOffset.parse, DeltaOffset("t", 1, -1, False).line()),
    "files": (files_journal.Offset.parse, files_journal.Offset(0, 3, "s").line()),
    "kafka": (KafkaOffset.parse, KafkaOffset("c").line()),
    "iceberg": (At.parse, At("t").line()),
    "python": (python_offsets.parsed, python_offsets.line("t", {"snapshot": 1})),
    "slot": (SlotOffset.parse, SlotOffset(Place("1", "d", "t")).line()),
    "snapshots": (RowsOffset.parse, RowsOffset(Place("1", "d", "t")).line()),
}


@pytest.mark.parametrize("end", [*(line for _, line in PARSED.values() if '"of"' not in line), "[1]", "7"])
def test_a_landing_of_an_earlier_version_is_refused_where_its_offsets_are_of_another_kind(
    once: Once, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once.create("")
    monkeypatch.setattr(landed, "_newest", lambda *_: landed.Chunk(1, 1, end))
    for ask in (once.source.check_source, lambda: once.source.is_another(once.at(1))):
        with pytest.raises(HistoryGone, match=r"copied \(another one\), found fake.*move the folder"):
            ask()


@pytest.mark.parametrize("kind", PARSED)
def test_no_kind_of_source_takes_an_offset_of_another_for_its_own(kind: str) -> None:
    parse, own = PARSED[kind]
    parse(own)
    for other in (line for name, (_, line) in PARSED.items() if name != kind):
        with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
            parse(other)


@pytest.mark.parametrize("asked", ["check_appended", "backlog", "news", "check_columns", "frame"])
def test_what_a_source_has_lost_is_named_with_the_landing_that_a_reset_keeps(
    once: Once, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once.create()
    once.give(1)
    once.land()
    once.give(2)
    asks = {
        "check_appended": lambda: once.source.check_appended(once.at(2)),
        "backlog": lambda: once.source.backlog(once.at(2)),
        "news": lambda: once.source.news(once.at(2)),
        "check_columns": once.source.check_source,
        "frame": lambda: once.source.frame(None, once.at(2), once.source.end()),  # type: ignore[arg-type]
    }

    def gone(*_: Any) -> None:
        raise HistoryGone("the source has lost rows: start over with `floodmark reset`")

    monkeypatch.setattr(fakes.FakeSource, asked, gone)
    monkeypatch.setattr(DeltaSource, "frame", lambda *_: None)
    with pytest.raises(HistoryGone, match=r"lost rows: .*a landing, which a reset keeps.*move the folder .*/landing"):
        asks[asked]()


@pytest.mark.parametrize("asked", ["check_appended", "backlog", "news"])
def test_a_run_that_lands_more_beside_a_look_is_no_loss(
    once: Once, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a slot, the source gives only what is not landed, and its reader looked at the landing just before."""
    once.create()
    once.give(1)
    asks, line = getattr(fakes.FakeSource, asked), once.source.newest().end

    def forgetful(source: fakes.FakeSource, since: str, *more: Any) -> Any:
        if since == line:
            if once.number == 0:
                once.land()
            raise HistoryGone("another reader has advanced it: start over with `floodmark reset`")
        return asks(source, since, *more)

    monkeypatch.setattr(fakes.FakeSource, asked, forgetful)
    getattr(once.source, asked)(once.source._at(once.source.table(), 1))
    assert once.number == 1


class Shown(list[int]):
    """A frame as its rows."""

    def unionByName(self, more: Shown, allowMissingColumns: bool) -> Shown:  # noqa: N802, N803 - as Spark names them
        return Shown([*self, *more])


@pytest.mark.parametrize("when", ["before", "with the landing", "with the source", "after the source"])
@pytest.mark.parametrize(("folded", "given"), [(0, 1), (1, 1), (1, 0)])
def test_a_look_beside_a_run_that_lands_more_has_each_row_once(
    once: Once, when: str, folded: int, given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a slot, the source gives only what is not landed."""

    def land(now: str) -> None:
        if when == now and once.number == 1:
            once.land()

    def of_table(source: DeltaSource, _: None, begin: str, end: str) -> Shown:
        land("with the landing")
        chunks = range(DeltaOffset.parse(begin).version, DeltaOffset.parse(end).version)
        return Shown(n for chunk in chunks for n in landed[chunk])

    def of_source(source: fakes.FakeSource, _: None, since: str, upto: str) -> Shown:
        land("with the source")
        if since != once.source.newest().end:
            raise HistoryGone("another reader has advanced it: start over with `floodmark reset`")
        found = Shown(row["n"] for row in source._rows.rows[json.loads(since)["rows"] : json.loads(upto)["rows"]])
        land("after the source")
        return found

    landed = {1: [0, 1], 2: [2, 3][:given]}
    once.create()
    once.give(0, 1)
    once.land()
    once.give(*[2, 3][:given])
    seen, begin = once.source.end(), once.at(1 + folded)
    monkeypatch.setattr(DeltaSource, "frame", of_table)
    monkeypatch.setattr(fakes.FakeSource, "frame", of_source)
    land("before")
    assert once.source.frame(None, begin, seen) == [*[0, 1][2 * folded :], *[2, 3][:given]]  # type: ignore[arg-type]


def test_a_reset_is_refused_while_the_source_of_a_landing_cannot_be_copied_on(once: Once) -> None:
    once.create()
    once.give(1)
    once.land()
    rule = SimpleNamespace(streams={"events": once.stream})
    with mock.patch.object(landings, "sources", return_value={"events": once.source}):
        landings.check_sources_go_on(rule, None)  # type: ignore[arg-type]
        fakes.ROWS[once.name] = fakes.Rows()
        with pytest.raises(HistoryGone, match="a landing, which a reset keeps"):
            landings.check_sources_go_on(rule, None)  # type: ignore[arg-type]
        shutil.move(once.address, f"{once.address}.away")
        landings.check_sources_go_on(rule, None)  # type: ignore[arg-type]


def test_rows_that_upkeep_removed_are_not_read_as_none(once: Once) -> None:
    once.create()
    for n in (1, 2):
        once.give(n)
        once.land()
    once.commit(table_of([]), {"app": cut_app(once.app)}, Transaction(cut_app(once.app), 2))
    assert once.source.start() == once.at(2)
    with pytest.raises(HistoryGone, match=r"upkeep removed older ones, because the stream has `landing` with `keep`"):
        once.source.frame(None, once.at(1), once.at(3))  # type: ignore[arg-type]
    with pytest.raises(HistoryGone, match=r"upkeep removed older ones"):
        once.source.check_kept(once.at(1), once.at(3))
    once.source.check_kept(once.at(2), once.at(3))
    once.source.check_kept(once.at(1), once.at(1))


# --- Upkeep


@pytest.mark.parametrize(
    ("written", "folded", "first"),
    [
        ({1: 5, 2: 5, 3: 5}, 4, 4),
        ({1: 5, 2: 5, 3: 5}, 3, 3),
        ({1: 5, 2: 10, 3: 5}, 4, 2),
        ({1: 5, 2: None, 3: 5}, 4, 2),
        ({}, 1, 1),
        ({1: 10}, 2, 1),
    ],
)
def test_upkeep_removes_what_is_old_and_folded(written: dict[int, int | None], folded: int, first: int) -> None:
    assert first_kept(written, 1, folded, before=10) == first


def test_chunks_leave_the_newest_version_without_a_change_of_rows(once: Once) -> None:
    once.create()
    for n in (1, 2, 3):
        once.give(n)
        once.land()
    kept = once.source.upkeep(once.at(3), keep_us=None)
    assert due_cut(kept) is None
    age(once.address, 2)
    young = once.source.upkeep(once.at(3), keep_us=3 * 86_400_000_000)
    assert due_cut(young) is None and due_cut(once.source.upkeep(None, keep_us=1)) is None
    found = due_cut(once.source.upkeep(once.at(3), keep_us=86_400_000_000))
    assert found is not None and (found.first, found.chunks) == (3, 2)
    before, seen = once.source.newest(), once.source.end()
    cut("counted", found)
    assert [row["n"] for row in rows_of(once.address)] == [3] and len(files(once.address)) == 3
    assert once.source.cut() == 3 and once.source.start() == once.at(3)
    assert once.source.newest() == before, "the newest chunk says how far the source was copied"
    assert not once.source.news(once.at(4), seen) and once.source.news(once.at(3), seen)
    assert not once.source.news(once.at(5)) and once.source.backlog(once.at(4)).amount == 0
    once.source.check_appended(once.at(1))
    assert due_cut(once.source.upkeep(once.at(3), keep_us=86_400_000_000)) is None
    once.give(4)
    once.land()
    assert sorted(row["n"] for row in rows_of(once.address)) == [3, 4]


def test_a_removal_beside_another_writer_is_fenced(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    once.create()
    once.give(1)
    once.land()
    age(once.address, 2)
    found = due_cut(once.source.upkeep(once.at(2), keep_us=86_400_000_000))
    assert found is not None
    monkeypatch.setattr(tables, "newest_version", lambda address: 0)
    with pytest.raises(Fenced, match="landing events: another writer committed version 1"):
        cut("counted", found)
    assert [row["n"] for row in rows_of(once.address)] == [1]


def test_a_copy_of_the_columns_that_a_landing_has_reads_its_table_no_more() -> None:
    def columns(*names: str, inner: str) -> StructType:
        found = [StructField(name, StringType()) for name in names]
        return StructType([*found, StructField("o", StructType([StructField(one, StringType()) for one in inner]))])

    there = columns("k", MALFORMED, inner="xy")
    assert landing._gain(None, "/no/table", there, columns("K", inner="X")) is there  # type: ignore[arg-type]
    for more in (columns("n", inner="x"), columns("k", inner="xz")):
        with pytest.raises(AssertionError):
            landing._gain(None, "/no/table", there, more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epoch", "limits"),
    [
        (EpochLimits(), EpochLimits(max_files=MOST.max_files, max_bytes=MOST.max_bytes)),
        (EpochLimits(max_files=3, max_rows=1), EpochLimits(max_files=3, max_bytes=MOST.max_bytes)),
        (EpochLimits(max_bytes=1 << 40), EpochLimits(max_files=MOST.max_files, max_bytes=MOST.max_bytes)),
    ],
)
def test_a_copy_is_as_small_as_the_source_can_make_it(once: Once, epoch: EpochLimits, limits: EpochLimits) -> None:
    can = kinds.SourceCan(limits=frozenset({"max_files", "max_bytes", "max_seconds"}))
    assert chunk_limits(once.inner, can, epoch) == limits


# --- What readers of a sink still need of it


def reading(place: Path, landed: int | None, **stream: Any) -> Flow:
    """A rule that has read versions 0 and 1 of a table. `landed`: up to where it has copied it."""
    flow = Flow(place, "reader", sql=STATELESS, stream=stream)
    for n in range(4):
        flow.arrive([event(n)])
    table = DeltaTable(flow.source)
    lines = [DeltaOffset(tables.table_id(table), version, -1, False).line() for version in range(4)]
    ledger = Ledger.open(flow.place.ledger, "by hand")
    text = flow.rule().to_json()
    ledger.begin(1, "t", Commit(entry=Entry(0, (lines[2],)).text(), watermark=None, maxima={"events": None}, rule=text))
    if landed is not None:
        properties = {tables.OWNER: ledger.id, START: lines[landed]}
        tables.create(flow.place.landing("events"), table.schema().to_json(), properties)
    return flow


def test_sql_may_read_a_column_that_the_landing_is_about_to_gain(place: Path) -> None:
    flow = reading(place, 3, landing=True)
    check_sql_columns(flow.rule(), flow.place)
    flow.sql = "SELECT n, w FROM events"
    with pytest.raises(SqlRefused, match="column w: expected a column"):
        check_sql_columns(flow.rule(), flow.place)
    DeltaTable(flow.source).alter.add_columns([Field("w", "integer", nullable=True)])
    check_sql_columns(flow.rule(), flow.place)


@pytest.mark.parametrize(
    ("sql", "which", "found"),
    [
        ("SELECT n FROM events", named, ["at", "n", MALFORMED]),
        ("SELECT N, w AS x FROM events", named, ["at", "n", "w", MALFORMED]),
        ("SELECT * FROM events", named, ["at", MALFORMED]),
        ("SELECT * FROM events", needed, ["at", "n", "w", MALFORMED]),
    ],
)
def test_without_rows_a_landing_gains_only_columns_that_the_rule_reads(
    place: Path, sql: str, which: Which, found: list[str]
) -> None:
    flow = reading(place, 3, landing=True)
    flow.sql = sql
    types = StructType()
    for name, kind in {"at": "timestamp", "n": "long", "w": "integer", MALFORMED: "string"}.items():
        types.add(name, kind)
    source = SimpleNamespace(typed=lambda _: SimpleNamespace(schema=types))
    assert _read(flow.rule(), "events", source, None, which).names == found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT n, w FROM events", "has the name, be it for an alias"),
        ("SELECT n, at AS w FROM events", "has the name, be it for an alias"),
        ("SELECT n FROM events", None),
        ("SELECT * FROM events", None),
        ("SELECT *, n AS w FROM events", "has the name, be it for an alias"),
    ],
)
def test_a_column_without_values_may_be_missing_unless_the_rule_has_its_name(
    place: Path, monkeypatch: pytest.MonkeyPatch, sql: str, why: str | None
) -> None:
    flow = reading(place, 3, landing=True)
    flow.sql = sql
    here, there = StructType(), StructType()
    for name, kind in {"at": "timestamp", "n": "long"}.items():
        here.add(name, kind)
        there.add(name, kind)
    source: Any = SimpleNamespace(address=flow.place.landing("events"))
    monkeypatch.setattr(landing, "_has_values", lambda *_: False)
    problem = rf"w: landed as NULL, found none, and the rule {why}.*Restore these"
    with pytest.raises(WrongColumn, match=problem) if why else nullcontext():
        found = landing._check_fits(None, flow.rule(), "events", source, there.add("w", "integer"), here)  # type: ignore[arg-type]
        assert found == (("w",) if "*" in sql else ())  # which the report of the copy names
    monkeypatch.setattr(landing, "_has_values", lambda *_: True)
    with pytest.raises(WrongColumn, match=r"w: landed, found none\)"):
        landing._check_fits(None, flow.rule(), "events", source, there, here)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [True, False])
def test_a_column_without_values_may_be_missing_unless_the_class_has_its_name(
    monkeypatch: pytest.MonkeyPatch, said: bool
) -> None:
    text = "def process(self, row, ctx):\n    yield {'n': row['" + ("W" if said else "n") + "']}\n"
    stream = SimpleNamespace(where=None, event_time=None, expect={})
    query = SimpleNamespace(star=True, identifiers=frozenset())
    rule: Any = SimpleNamespace(streams={"events": stream}, query=query, process=SimpleNamespace(source=text))
    monkeypatch.setattr(landing, "_has_values", lambda *_: False)
    here, there = StructType().add("n", "long"), StructType().add("n", "long").add("w", "integer")
    source: Any = SimpleNamespace(address="/no/table")
    with pytest.raises(WrongColumn, match="w: landed as NULL, found none, and the class") if said else nullcontext():
        assert landing._check_fits(None, rule, "events", source, there, here) == ("w",)  # type: ignore[arg-type]


def test_a_copy_tells_which_columns_are_null_in_its_rows(once: Once, monkeypatch: pytest.MonkeyPatch) -> None:
    once.create()
    for name in ("layouts", "F", "cores", "_gain"):
        monkeypatch.setattr(landing, name, mock.MagicMock())
    monkeypatch.setattr(landing, "_check_fits", lambda *_: ("w", "x"))
    copying = landing._Copying(None, SimpleNamespace(), "events", once.source)  # type: ignore[arg-type]
    copying._inner = mock.MagicMock()
    copying._rows("1", "2")
    assert copying._lacking == ("w", "x")
    told = landing.LandedReport("counted", "events", 1, 3, "version 1", 0.5, ("w", "x"))
    end = "; NULL in these rows, because the source has no such column: w, x"
    assert landed_line(told) == f"counted: 3 rows of events landed, up to version 1, 0.5 s{end}"
    assert landed_line(dataclasses.replace(told, lacking=())).endswith("0.5 s")


@pytest.mark.parametrize(("process", "which"), [(None, named), ("a class", needed)])
def test_rows_that_wait_gain_all_columns_that_a_class_may_read(
    once: Once, monkeypatch: pytest.MonkeyPatch, process: str | None, which: Which
) -> None:
    once.create()
    monkeypatch.setitem(kinds.SOURCES, "fake", "floodmark.connectors.ports.fakes:SOURCE")
    asked, rule = mock.Mock(), SimpleNamespace(streams={"events": once.stream}, epoch=EpochLimits(), process=process)
    monkeypatch.setattr(landing, "_read", asked)
    monkeypatch.setattr(landing, "_gain", mock.Mock())
    monkeypatch.setattr(landing, "layouts", mock.Mock())
    assert [*landing._Copying(None, rule, "events", once.source).copies()] == []  # type: ignore[arg-type]
    assert asked.call_args.args[-1] is which


def test_a_copy_whose_rows_changed_while_it_was_written_is_not_committed(
    once: Once, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(_: fakes.FakeSource, end: str) -> None:
        raise RunFailed(f"rows up to {end} were updated meanwhile")

    once.create()
    written, rule = mock.Mock(), SimpleNamespace(rule="counted", on_error="dead")
    monkeypatch.setattr(landing, "Appending", lambda *_: written)
    monkeypatch.setattr(landing._Copying, "_rows", lambda *_: mock.Mock(columns=[]))
    monkeypatch.setattr(fakes.FakeSource, "check_copied", changed)
    with pytest.raises(RunFailed, match="rows up to 9 were updated"):
        landing._Copying(None, rule, "events", once.source)._copy(1, "8", "9")  # type: ignore[arg-type]
    assert [name for name, *_ in written.method_calls] == ["write", "discard"]


def test_upkeep_of_a_sink_keeps_nothing_for_a_landing_of_another_kind(place: Path) -> None:
    flow = reading(place, 3, landing=True)
    landing = flow.place.landing("events")
    DeltaTable(landing).alter.set_table_properties({KIND: "kafka"}, raise_if_not_exists=False)
    assert needs_of([flow.source], [flow.rule()], flow.home)[flow.source].since is None


def test_what_is_not_landed_is_needed_however_much_is_folded(place: Path) -> None:
    flow = reading(place, 3, landing=True)
    need = needs_of([flow.source], [flow.rule()], flow.home)[flow.source]
    assert (need.since, need.versions) == (3, frozenset())
    assert "rule reader reads reader_events (stream events) from version 3 on, to land them" in need.readers


def test_a_reader_of_a_feed_needs_the_files_that_were_removed(place: Path) -> None:
    flow = reading(place, None, changes=True)
    need = needs_of([flow.source], [flow.rule()], flow.home)[flow.source]
    assert need.versions == frozenset({1}), "a commit that removes a whole file has its changes there alone"


@pytest.mark.parametrize("options", [["--dry-run"], ["--yes"]])
def test_a_reset_that_a_landing_makes_vain_empties_nothing(place: Path, options: list[str]) -> None:
    flow = reading(place, 3, landing=True)
    flow.write_rule()
    shutil.rmtree(flow.source)
    flow.arrive([event(1)])
    env = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    found = CliRunner().invoke(app, ["reset", flow.name, *options], env=env)
    assert found.exit_code == 3 and "a landing, which a reset keeps" in found.output.replace("\n", " ")
    assert flow.ledger().begun.seal is None
