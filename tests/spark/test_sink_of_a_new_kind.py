"""A kind of sink that the engine has never seen: one file, one line, and all of a rule's life.

The kind lies beside the port (`connectors/ports/fakes.py`); these tests register it, and change nothing else.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.corrected import SESSIONS, watermark
from support.crash import Crash, crash_at
from support.flow import START, STATELESS, Flow, event
from support.oracle import ordered, sessions, tumbling
from support.running import abandon, backfill, backfill_all, backfill_killed, crash, rehearse_backfill, reset, run
from typer.testing import CliRunner

from floodmark.audit.certificate import Certificate, audit
from floodmark.cli.app import app
from floodmark.connectors.ports import fakes
from floodmark.connectors.ports.registry import account
from floodmark.core.protocol.crashpoints import BACKFILL_POINTS, EPOCH_POINTS, RESET_POINTS
from floodmark.core.protocol.recovery import SEAL
from floodmark.core.rules import kinds
from floodmark.core.rules.kinds import SinkCan, SinkKind
from floodmark.errors import HistoryGone, LedgerBroken, NotOwned, Refused, VerifyFailed
from floodmark.ledger.ledger import Ledger

WINDOWS = ("start", "k", "c", "total", "top")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(kinds.SINKS, "fake", "floodmark.connectors.ports.fakes:SINK")
    yield
    fakes.TABLES.clear()


def flow_of(place: Path, sql: str | None = None, **sink: Any) -> Flow:
    """A rule with two sinks: the first of the new kind, the second a table."""
    flow = Flow(place, "counted", **({} if sql is None else {"sql": sql}))
    flow.settings = {"sinks": [{"fake": {"name": "counted"}, **sink}, {"delta": flow.sink(1)}], **flow.settings}
    return flow


def some(count: int = 12) -> list[dict[str, Any]]:
    return [event(i * 20, "ab"[i % 2], float(i), i) for i in range(count)]


def table() -> fakes.FakeTable:
    return fakes.TABLES["counted"]


def held(names: Sequence[str] = WINDOWS) -> list[tuple[Any, ...]]:
    places = [table().columns.index(name) for name in names]
    return ordered(tuple(_aware(row[place]) for place in places) for row in table().rows())


def _aware(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def windows(flow: Flow, events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    head = flow.ledger().head
    assert head is not None and head.watermark is not None
    return tumbling(events, datetime.fromtimestamp(head.watermark / 1e6, UTC))


def certificate(flow: Flow) -> Certificate:
    found = audit(flow.name, flow.home, deep=True, accounts=account)
    assert found is not None
    return found


def proven(flow: Flow) -> bool:
    found = certificate(flow)
    assert not found.findings
    assert found.tables["sink/fake://counted"].recomputed > 0
    return found.verdict == "proven"


@pytest.mark.parametrize(
    ("qos", "point"),
    [(2, "sink0.after"), pytest.param(1, "sink0.after", marks=pytest.mark.prove)]
    + [pytest.param(qos, point, marks=pytest.mark.prove) for qos in (1, 2) for point in EPOCH_POINTS],
)
def test_an_epoch_that_was_killed_goes_on(spark: SparkSession, place: Path, qos: int, point: str) -> None:
    """At qos 1 rows may come again, and never go."""
    flow, events = flow_of(place, qos=qos), some()
    flow.arrive(events[:6])
    run(spark, flow)
    flow.arrive([*events[6:9], event(-600), event(None)])
    assert crash(spark, flow, point)
    flow.arrive(events[9:])
    run(spark, flow)

    expected = windows(flow, events)
    assert (held() if qos == 2 else sorted(set(held()))) == expected
    assert proven(flow)


@pytest.mark.parametrize(
    "point",
    ["backfill.sink.after", *(pytest.param(point, marks=pytest.mark.prove) for point in (None, *BACKFILL_POINTS))],
)
def test_a_backfill_replaces_rows_of_it(spark: SparkSession, place: Path, point: str | None) -> None:
    flow, events = flow_of(place, sql="SELECT window.start AS start, k, count(*) AS c, sum(v) AS total, max(n) AS top "
                           "FROM events GROUP BY window(at, '1 minute'), k"), some()  # fmt: skip
    late = [event(5, "a", 64.0, 1), event(70, "b", 128.0, 2)]
    for portion in ([*events, event(1000)], late):
        flow.arrive(portion)
        run(spark, flow)
    low, high = (round(START.timestamp() + seconds) * 1_000_000 for seconds in (0, 120))
    assert rehearse_backfill(spark, flow, low, high).sinks["fake://counted"] == (4, 4)
    backfill_killed(spark, flow, low, high, point)
    restated = [row for row in tumbling([*events, *late], START.replace(minute=2)) if row[0] >= START]
    assert [row for row in held() if row[0] < START.replace(minute=2)] == restated
    assert proven(flow)


@pytest.mark.prove
def test_a_backfill_of_everything_replaces_all_rows_of_it(spark: SparkSession, place: Path) -> None:
    flow, events, late = flow_of(place, sql=SESSIONS), [*some(), event(1000)], [event(5, "a", 64.0, 1)]
    for portion in (events, late):
        flow.arrive(portion)
        run(spark, flow)
    assert held() == sessions(events, watermark(flow))
    with crash_at("backfill.sink.after") as planned, pytest.raises(Crash):
        _ = backfill_all(spark, flow)
    assert planned.fired
    run(spark, flow)
    assert held() == sessions([*events, *late], watermark(flow)) != sessions(events, watermark(flow))
    assert proven(flow)


KEEPING = [point for point in RESET_POINTS if not point.startswith("reset.empty")]  # the sinks' rows


@pytest.mark.parametrize(
    ("keep_output", "point"),
    [(False, "reset.empty.after"), *(pytest.param(keep, None, marks=pytest.mark.prove) for keep in (True, False))]
    + [pytest.param(False, point, marks=pytest.mark.prove) for point in RESET_POINTS]
    + [pytest.param(True, point, marks=pytest.mark.prove) for point in KEEPING],
)
def test_a_reset_empties_it(spark: SparkSession, place: Path, keep_output: bool, point: str | None) -> None:
    flow, events = flow_of(place, sql=STATELESS), some(6)
    flow.arrive(events)
    run(spark, flow)

    if point is not None:
        with crash_at(point) as planned, pytest.raises(Crash):
            reset(spark, flow, keep_output)
        assert planned.fired
    if point in (None, "reset.seal.before"):
        reset(spark, flow, keep_output)
    run(spark, flow)
    assert len(held(("n",))) == len(events) * (2 if keep_output else 1)
    assert proven(flow)


@pytest.mark.prove
def test_a_rebuilt_rule_replaces_all_of_it(spark: SparkSession, place: Path) -> None:
    flow, events = flow_of(place, sql="SELECT k, count(*) AS c FROM events GROUP BY k"), some(6)
    flow.settings |= {"rebuild": True, "epoch": "none", "unbounded": True}
    for portion in (events[:2], events[2:]):
        flow.arrive(portion)
        assert crash(spark, flow, "sink0.after")
        run(spark, flow)
    assert held(("k", "c")) == [("a", 3), ("b", 3)]
    assert proven(flow)


def test_every_command_speaks_of_it(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    run(spark, flow)
    flow.write_rule()
    home, rules = ["--home", str(flow.home)], ["--rules", str(place / "rules")]
    maintained = answer(["maintain", flow.name, *home, *rules, "--dry-run", "--json"])
    assert "fake sink, which Floodmark does not maintain" in json.dumps(maintained)
    proved = CliRunner().invoke(app, ["prove", flow.name, *home, *rules])
    assert "because copies of the rule need sinks of their own; found fake" in " ".join(proved.output.split())
    wheres = {"status": home + rules, "plan": home + rules, "audit": home, "maintain": [*home, *rules, "--yes"]}
    said = {name: answer([name, flow.name, *where, "--json"]) for name, where in wheres.items()}
    assert "fake://counted" in json.dumps(said["plan"])
    assert "sink/fake://counted" in said["audit"]["tables"]
    assert said["audit"]["verdict"] == "proven"
    retired = CliRunner().invoke(app, ["retire", flow.name, *home, *rules, "--yes"])
    assert retired.exit_code == 0, retired.output
    dropped = CliRunner().invoke(app, ["drop", flow.name, *home, *rules, "--all", "--yes"])
    assert "fake sink, from which Floodmark removes nothing" in dropped.output.replace("\n", " "), dropped.output
    assert len(table().rows()) == 6


def answer(words: list[str]) -> Any:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_an_epoch_that_wrote_to_it_is_not_taken_back(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    assert crash(spark, flow, "sink0.after")
    with pytest.raises(Refused, match=r"expected sinks that are Delta tables or targets, .* found fake"):
        abandon(spark, flow)
    run(spark, flow)
    assert len(table().rows()) == 6


def test_another_one_in_its_place_is_refused(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    run(spark, flow)
    owner = table().owner
    fakes.TABLES["counted"] = fakes.FakeTable(table().columns, owner, table().schema)
    flow.arrive(some(3))
    with pytest.raises(HistoryGone, match="found another with id"):
        run(spark, flow)
    fakes.TABLES["counted"] = replace(table(), owner="somebody")
    with pytest.raises(NotOwned):
        run(spark, flow)
    assert [one.what for one in certificate(flow).findings if "has id" in one.what]


def test_a_ledger_without_rows_does_not_write_to_it_again(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    run(spark, flow)
    known = flow.ledger().id
    for one in (flow.place.ledger, flow.place.late, flow.place.dead, str(flow.place.path / "state"), flow.sink(1)):
        shutil.rmtree(one, ignore_errors=True)
    Ledger.open(flow.place.ledger, "by hand")
    table().owner = flow.ledger().id
    table().writes = [replace(one, app=one.app.replace(known, flow.ledger().id)) for one in table().writes]
    with pytest.raises(LedgerBroken, match="has no rows, but it has written to fake://counted"):
        run(spark, flow)


def test_what_others_do_to_it_is_noticed(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    assert crash(spark, flow, "sink0.after")
    at = next(i for i, one in enumerate(table().writes) if one.added)
    written = table().writes[at]
    table().writes[at] = replace(written, added=written.added[:5] + written.added[:1])
    with pytest.raises(VerifyFailed):
        run(spark, flow)


def test_the_audit_reads_its_account_and_says_where_it_cannot(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    run(spark, flow)
    assert proven(flow)
    for how, tampered in tampering(table().writes).items():
        fakes.TABLES["counted"] = replace(table(), writes=tampered)
        found = certificate(flow)
        assert (how, found.verdict) == (how, "broken")
        assert {one.table for one in found.findings} == {"sink/fake://counted"}, how
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and found.verdict == "unknown"
    assert "no way to read" in found.findings[0].what


def tampering(writes: list[fakes.FakeWrite]) -> dict[str, list[fakes.FakeWrite]]:
    """What others may do to the writes, one of which has rows."""
    at = next(i for i, one in enumerate(writes) if one.added)
    one, before, after = writes[at], writes[:at], writes[at + 1 :]
    row = one.added[0]
    return {
        "edited": [*before, replace(one, added=((*row[:-1], -1), *one.added[1:])), *after],
        "lost": [*before, replace(one, added=one.added[1:]), *after],
        "again": [*writes, replace(one, version=one.version + (1 << 20))],
        "foreign": [*writes, fakes.FakeWrite("", 0, (row,), (), {})],
        "gone": [*before, *after],
        "sealed": [*writes, fakes.FakeWrite(one.app, SEAL, (), one.added, one.metadata)],
    }


@pytest.mark.prove
def test_a_sink_that_comes_back_after_a_reset_with_its_old_rows_is_refused(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    run(spark, flow)
    both = flow.settings["sinks"]
    flow.settings["sinks"] = both[1:]
    reset(spark, flow)
    run(spark, flow)
    flow.settings["sinks"] = both
    flow.arrive(some(3))
    with pytest.raises(Refused, match="found rows from before the last reset"):
        run(spark, flow)
    assert len(table().rows()) == 6


def test_an_audit_goes_on_where_a_sink_cannot_be_asked(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_of(place, sql=STATELESS)
    flow.arrive(some(6))
    run(spark, flow)
    monkeypatch.delitem(kinds.SINKS, "fake")
    found = certificate(flow)
    assert found.verdict == "unknown"
    assert [one.table for one in found.findings] == ["sink/fake://counted"]
    assert (
        "expected one of the kinds delta, console, postgres, python, kafka, files, iceberg, found fake"
        in found.findings[0].what
    )
    assert found.tables[f"sink/{flow.sink(1)}"].seen > 0


FEWER = SinkKind(
    fakes.Name, "a table whose rows stay", SinkCan(qos=1), lambda said: f"fewer://{said.name}", fakes.FakeSink
)


def test_a_kind_that_can_do_less_is_refused_by_name(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kinds.SINKS, "fewer", f"{__name__}:FEWER")
    flow = Flow(place, "counted", sql=STATELESS)
    flow.settings = {"sinks": [{"fewer": {"name": "counted"}, "qos": 1}]}
    flow.arrive(some(6))
    run(spark, flow)
    low = round(START.timestamp()) * 1_000_000
    with pytest.raises(Refused, match="of kind fewer, in which no rows can be replaced"):
        _ = backfill(spark, flow, low, low + 60_000_000)
