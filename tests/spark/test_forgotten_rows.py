"""Rows that are forgotten: nowhere below the rule's home any more, while the rule continues exactly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.crash import Crash, crash_at
from support.flow import HOPPING, OVER, RUNNING, SESSIONS, START, STATELESS, Flow, event, rows_of
from support.holding import found_in
from support.lifekilling import killed, said
from support.oracle import ordered, totals, tumbling
from support.postgres import started
from support.relays import Relays
from support.running import backfill_all, crash, reset, run

from floodmark.audit.certificate import audit
from floodmark.audit.evidence import Finding
from floodmark.connectors.ports import connections
from floodmark.connectors.relay.holding import held_by
from floodmark.connectors.relay.memory import remember_fault
from floodmark.connectors.relay.shipping import ship_all
from floodmark.core.protocol.crashpoints import FORGET_POINTS
from floodmark.errors import FloodmarkError, Refused
from floodmark.spark.rule.forgetting import Forgot, Looked, forget, rehearse
from floodmark.spark.session.jvm import jvm_class

ALICE, WHERE = "alice@example.org", "k = 'alice@example.org'"
OWN = {"state", "late", "dead"}


def forgotten(spark: SparkSession, flow: Flow, where: str = WHERE) -> Forgot:
    return forget(spark, flow.place, "forgetter", where, lambda _: None)


def left_in(flow: Flow) -> list[str]:
    """The files of the rule's home that still hold her name."""
    return found_in(flow.place.path, ALICE)


def folders(found: list[str]) -> set[str]:
    return {one.split("/")[0] for one in found}


def flow_of(place: Path, **more: Any) -> Flow:
    """Two epochs: a window of each key is final, and each key has rows in an open one; some are late, some dead."""
    flow = Flow(place, sinks=1, stream={"start": {"version": 0}}, **more)
    flow.settings["epoch"] = {"max_files": 1}
    for portion in PORTIONS:
        flow.arrive(portion)
    return flow


PORTIONS = [
    [event(0, ALICE), event(1, "bob"), event(50, ALICE, n=4), event(100, "bob"), event(110, ALICE)],
    [event(5, ALICE), event(6, "bob"), event(None, ALICE), event(None, "bob"), event(120, ALICE)],
]


@pytest.mark.prove
@pytest.mark.parametrize("table", ["state/g1/events", "late", "ledger"])
def test_no_copy_of_before_a_forget_brings_rows_back(spark: SparkSession, place: Path, table: str) -> None:
    flow = flow_of(place)
    run(spark, flow)
    kept, there = place / "copy", flow.home / flow.name / table
    shutil.copytree(there, kept)
    forgotten(spark, flow)
    shutil.rmtree(there)
    kept.rename(there)
    jvm_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    flow.arrive([event(500, "bob")])
    before = rows_of(flow.sink())
    problem = "ahead of the ledger" if table == "ledger" else "the table was restored from an older copy"
    for attempt in (run, partial(forgotten, where="k = 'bob'")):
        with pytest.raises(FloodmarkError, match=problem):
            attempt(spark, flow)
    assert rows_of(flow.sink()) == before
    reset(spark, flow)
    run(spark, flow)
    assert any(row["k"] == "bob" for row in rows_of(flow.sink()))


SENT = "at timestamptz, k text, v float8, n bigint"


def shipped(flow: Flow) -> None:
    [done] = ship_all(flow.rule(), flow.place)
    assert done.fault is None


def lines_of(shop: Path) -> list[str]:
    return [line for file in shop.glob("data/[!.]*") for line in file.read_text().splitlines()]


LATER = [event(115, ALICE, n=7), event(118, "bob"), event(300, ALICE)]
FINAL = START + timedelta(seconds=270)


def findings(flow: Flow, deep: bool = True) -> list[Finding]:
    found = audit(flow.name, flow.home, deep, targets=partial(held_by, flow.place))
    assert found is not None
    return found.findings


@pytest.mark.prove
def test_a_window_by_key_continues_and_the_audit_says_what_it_can_no_longer_prove(
    spark: SparkSession, place: Path
) -> None:
    flow = flow_of(place)
    run(spark, flow)
    (flow.place.checkpoints / "left" / "sources").mkdir(parents=True)
    (flow.place.checkpoints / "left" / "sources" / "0").write_text(ALICE)
    assert folders(left_in(flow)) == {*OWN, "checkpoint"}
    half = Path(flow.place.dead) / "part-of-a-killed-writer.parquet"
    half.write_bytes(b"PAR1")
    sink = rows_of(flow.sink())
    seen = rehearse(spark, flow.place, WHERE)
    done = forgotten(spark, flow)
    assert done.found == seen
    assert {name: (one.gone, one.rows) for name, one in done.left.items()} == {
        "state/events": (2, 1),
        "late": (1, 1),
        "dead": (1, 1),
    }
    assert [one.rows for one in seen.sinks.values()] == [1], "one result of hers is in the sink, which is not touched"
    assert {name for name, one in seen.own.items() if one.older} == {"dead"} and not half.exists()
    assert left_in(flow) == []
    assert rows_of(flow.sink()) == sink
    told = findings(flow)
    assert {one.verdict for one in told} == {"unknown"}, told
    assert {one.table for one in told if "because forget 1 removed" in one.what} == {*done.left}

    flow.arrive(LATER)
    run(spark, flow)
    folded = [event(0, ALICE), event(1, "bob"), event(50, ALICE, n=4), event(100, "bob"), *LATER]
    found = ordered(tuple(row[name] for name in ("start", "k", "c", "total", "top")) for row in rows_of(flow.sink()))
    assert found == tumbling(folded, FINAL), "her open window starts from nothing, and all else is as in batch"
    assert {one.verdict for one in findings(flow)} == {"unknown"}


@pytest.mark.prove
def test_a_class_forgets_all_of_a_key_and_an_old_value_does_not_come_back(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, process="totals:Totals")
    flow.write_rule()
    run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    before = {one.rsplit("/", 1)[0] for one in left_in(flow)}
    assert {"state/g1/last", "state/g2/last", "state/g2/counters", "state/g2/timers", "state/g2/events"} <= before
    done = forgotten(spark, flow)
    assert done.asked is not None and {one.split("/")[1] for one in done.asked.removed} == {"g1"}
    assert left_in(flow) == []
    assert {one.verdict for one in findings(flow)} == {"unknown"}

    flow.arrive([*LATER, event(310, "bob", n=9)])
    flow.arrive([event(345, "carl")])
    run(spark, flow)
    names, mark = ("k", "at", "what", "n", "v"), START + timedelta(seconds=315)
    rows = [tuple(row[name] for name in names) for row in rows_of(flow.sink())]
    mine = [event(1, "bob"), event(100, "bob"), event(118, "bob"), event(310, "bob", n=9)]
    assert ordered(row for row in rows if row[0] == "bob") == totals(mine, mark)
    hers = [row for row in rows if row[0] == ALICE and row[1] > START + timedelta(seconds=110)]
    assert ordered(hers) == totals([event(115, ALICE, n=7), event(300, ALICE)], mark)

    values = {(row["k"], row["n"]) for row in rows_of(flow.place.state(2, "last"))}
    assert {("bob", 9), ("bob", -1), (ALICE, 0)} <= values, "the newest of bob is 9, an older one is -1"
    again = forgotten(spark, flow, "n = 9")
    assert again.found is not None and again.found.own["state/counters"].why == "has no column n"
    assert [row["k"] for row in rows_of(flow.place.state(2, "last"))] == [ALICE], "-1 does not come back"


@pytest.mark.prove
def test_a_forget_that_is_killed_at_each_step_is_finished_and_nothing_runs_until_then(
    spark: SparkSession, place: Path
) -> None:
    flow = flow_of(place)
    run(spark, flow)
    rows = ordered(row for row in rows_of(flow.place.late) if row["k"] != ALICE)
    for point in FORGET_POINTS:
        if point in ("forget.state.removed", "forget.commit.after") or ".copy." in point:
            continue  # there is no older state, and no landing; the last one is below
        with crash_at(point) as planned, pytest.raises(Crash):
            forgotten(spark, flow)
        assert planned.fired
        assert not [one for one in findings(flow, deep=False) if one.verdict == "broken"], point
        if point != "forget.before":
            with pytest.raises(Refused, match="a forget has not finished"):
                run(spark, flow)
            with pytest.raises(Refused, match="with another condition"):
                forgotten(spark, flow, "k = 'bob'")
    with crash_at("forget.commit.after"), pytest.raises(Crash):
        forgotten(spark, flow)
    assert left_in(flow) == []
    assert ordered(row for row in rows_of(flow.place.late)) == rows
    assert forgotten(spark, flow).asked is None
    flow.arrive(LATER)
    run(spark, flow)


@pytest.mark.prove
def test_what_is_open_or_unknown_is_refused_and_writes_nothing(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place)
    assert crash(spark, flow, "sink0.after")
    with pytest.raises(Refused, match=r"epoch 1 is open.*`floodmark run counted` finishes it, then forget"):
        forgotten(spark, flow)
    run(spark, flow)
    before = len(flow.ledger().rows)
    with pytest.raises(Refused, match=r"no table of rule counted has user_id; expected columns of one of them: .*late"):
        forgotten(spark, flow, "user_id = 'alice'")
    done = forgotten(spark, flow, "k = 'zoe'")
    assert done.found is not None and (done.asked, {one.rows for one in done.found.own.values()}) == (None, {0})
    assert len(flow.ledger().rows) == before


# Of the landing, then of the outbox, where the landing is done. In each commit: those behind a step.
COPY_POINTS = (("forget.copy.before", 1), ("forget.copy.after", 1), ("forget.files.during", 1),
               ("maintain.landing.after", 1), ("forget.copy.before", 2), ("forget.copy.after", 2))  # fmt: skip
BEHIND_A_STEP = [one for one in COPY_POINTS if one[0].endswith(".after")]


@pytest.mark.parametrize(
    "points",
    [pytest.param(BEHIND_A_STEP, id="behind"), pytest.param(COPY_POINTS, id="each", marks=pytest.mark.prove)],
)
def test_landed_and_shipped_rows_go_too_whatever_is_killed(
    spark: SparkSession, place: Path, points: Sequence[tuple[str, int]]
) -> None:
    """Others stay in the landing: a reset gives what a rule gives that never had hers."""
    shop = {"path": str(place / "shop"), "format": "json"}
    flow = Flow(place, sinks=0, sql=STATELESS, stream={"start": {"version": 0}, "landing": True})
    flow.settings = {"epoch": {"max_files": 1}, "sinks": [{"files": shop}, {"delta": flow.sink()}]}
    for number in range(3):
        flow.arrive([event(number, ALICE, n=1), event(number, "bob", n=number), event(None, ALICE)][: 3 - number])
    run(spark, flow)
    with pytest.raises(Refused, match=r"target shop has not got all of it.*`floodmark relay counted --target shop`"):
        rehearse(spark, flow.place, WHERE)
    shipped(flow)
    gone = flow.place.path / "outbox" / "gone"  # of a sink that the rule no longer has
    remember_fault(gone, f"Key (k)=({ALICE}) already exists")
    assert {"landing", "outbox", "dead"} <= folders(left_in(flow))
    for point, nth in points:
        with crash_at(point, nth) as planned, pytest.raises(Crash):
            forgotten(spark, flow)
        assert planned.fired, point
        assert not [one for one in findings(flow) if one.verdict == "broken"], point
    done = forgotten(spark, flow)
    assert done.asked is not None and {name.split("/")[0]: rows for name, rows in done.asked.copies.items()} == {
        "landing": 4, "outbox": 3}  # fmt: skip
    assert left_in(flow) == []
    remember_fault(gone, f"Key (k)=({ALICE}) already exists")
    assert forgotten(spark, flow).asked is None and left_in(flow) == []
    assert [row["k"] for row in rows_of(flow.place.landing("events"))] == ["bob", "bob"]

    flow.arrive([event(9, "bob", n=9)])
    run(spark, flow)
    shipped(flow)
    assert sorted(row["n"] for row in rows_of(flow.sink()) if row["k"] == "bob") == [0, 1, 9]
    assert sum(1 for line in lines_of(place / "shop") if ALICE in line) == 3, "the target is not touched"
    assert {one.verdict for one in findings(flow)} == {"unknown"}
    assert any("until it has got all rows anew" in one.what for one in findings(flow))
    reset(spark, flow)
    run(spark, flow)
    shipped(flow)
    assert sorted((row["k"], row["n"]) for row in rows_of(flow.sink())) == [("bob", 0), ("bob", 1), ("bob", 9)]
    assert not [one for one in findings(flow) if "which rows the target has to hold" in one.what]


@pytest.mark.prove
def test_a_backfill_of_everything_takes_forgotten_landed_rows_out_of_the_sinks(
    spark: SparkSession, place: Path
) -> None:
    """The way for sources that cannot say which rows were removed."""
    flow = Flow(place, sinks=1, stream={"start": {"version": 0}, "landing": True})
    flow.settings = {"epoch": {"max_files": 1}}
    for portion in (*PORTIONS, LATER):
        flow.arrive(portion)
    run(spark, flow)
    assert {row["k"] for row in rows_of(flow.sink())} == {ALICE, "bob"}
    forgotten(spark, flow)
    backfill_all(spark, flow)
    assert {row["k"] for row in rows_of(flow.sink())} == {"bob"}
    flow.arrive([event(500, "bob")])
    run(spark, flow)
    forgotten(spark, flow)
    assert left_in(flow) == []
    theirs = [row for portion in (*PORTIONS, LATER) for row in portion if row["k"] == "bob" and row["at"]]
    expected = tumbling([*theirs, event(500, "bob")], START + timedelta(seconds=470))
    assert ordered(tuple(row.values()) for row in rows_of(flow.sink())) == expected
    assert "broken" not in {one.verdict for one in findings(flow)}


@pytest.mark.prove
def test_rows_that_a_target_refused_go_too(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that it refused can still be replayed."""
    flow = Flow(place, sinks=0, sql=STATELESS, stream={"start": {"version": 0}})
    flow.settings = {"sinks": [{"postgres": {"connection": "shop", "table": "sent"}, "on_error": "dead"}]}
    with started(place / "postgres") as server:
        monkeypatch.setattr(connections, "_KEEPERS", {})
        monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)
        server.run(f"CREATE TABLE sent ({SENT}, CONSTRAINT small CHECK (n < 5))")
        flow.arrive([event(n, ALICE if n % 2 else "bob", n=n) for n in range(3, 9)])
        run(spark, flow)
        shipped(flow)
        assert server.ask("SELECT n FROM sent ORDER BY n") == [(3,), (4,)]
        assert {"outbox", "undelivered"} <= folders(left_in(flow))

        forgotten(spark, flow)
        assert left_in(flow) == []
        server.run("ALTER TABLE sent DROP CONSTRAINT small")
        relays, rules = Relays(flow.name, flow.root, {}), str(flow.write_rule().parent)
        done = relays.command("undelivered", "replay", flow.name, "--rules", rules, "--home", str(flow.home))
        assert (done.code, "2 rows of 1 portion shipped" in done.said) == (0, True), done.said
        flow.arrive([event(9, "bob", n=9)])
        run(spark, flow)
        shipped(flow)
        assert server.ask("SELECT n FROM sent ORDER BY n") == [(3,), (4,), (6,), (8,), (9,)]
    assert {one.verdict for one in findings(flow)} == {"unknown"}


@pytest.mark.prove
def test_a_row_that_stops_its_relay_is_set_aside_and_then_forgotten(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correction has taken it away, which the target gets only after the row: the relay is stuck without a way out
    of its own."""
    flow = Flow(place, sinks=0, sql=STATELESS, stream={"on_rewrite": "correct"})
    sink: dict[str, Any] = {"postgres": {"connection": "shop", "table": "sent"}}
    flow.settings = {"sinks": [sink]}
    with started(place / "postgres") as server:
        monkeypatch.setattr(connections, "_KEEPERS", {})
        monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)
        server.run(f"CREATE TABLE sent ({SENT}, CONSTRAINT small CHECK (n < 5))")
        flow.arrive([event(1, ALICE, n=11), event(2, "bob", n=2)])
        run(spark, flow)
        DeltaTable(flow.source).delete(WHERE)
        run(spark, flow)
        [stuck] = ship_all(flow.rule(), flow.place)
        assert "write `on_error: dead` at the sink" in stuck.text()
        with pytest.raises(Refused, match="write `on_error: dead` at the sink and ship again"):
            forgotten(spark, flow)
        sink["on_error"] = "dead"
        shipped(flow)
        assert server.ask("SELECT k, n FROM sent") == [("bob", 2)]
        assert folders(left_in(flow)) == {"outbox", "undelivered"}
        forgotten(spark, flow)
        assert left_in(flow) == []
        del sink["on_error"]
        flow.arrive([event(20, "bob", n=4)])
        run(spark, flow)
        shipped(flow)
        assert server.ask("SELECT k, n FROM sent ORDER BY n") == [("bob", 2), ("bob", 4)]


@pytest.mark.prove
def test_sigkill_in_the_midst_of_removing_files(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place)
    run(spark, flow)
    words = ("forget", flow.name, "--where", WHERE, "--yes")
    killed(flow, "forget.files.during", *words)
    told = answer(flow, *words)
    assert (told["done"], told["found"], told["left"]["late"]) == (True, None, {"gone": 1, "rows": 1})
    assert left_in(flow) == []


def answer(flow: Flow, *words: str) -> Any:
    """The document that the command prints, among what Spark says as it starts."""
    text = said(flow, *words, "--json")
    return json.JSONDecoder().raw_decode(text[text.index("{\n") :])[0]


@pytest.mark.prove
def test_a_dry_run_tells_what_would_go_and_what_stays_elsewhere(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place)
    run(spark, flow)
    rows, words = len(flow.ledger().rows), ("forget", flow.name, "--where", WHERE, "--dry-run")
    found = answer(flow, *words)["found"]
    assert {name: one["rows"] for name, one in found["tables"].items()} == {"state/events": 2, "late": 1, "dead": 1}
    assert found["unproven"] == ["state/events", "late", "dead"]
    text = said(flow, *words)
    assert "  late: 1 rows\n" in text and "  sink counted_out0: 1 rows. DELETE the rows there, or" in text
    assert "audit can no longer recompute what was in state events, late, dead before" in text
    assert len(flow.ledger().rows) == rows
    nothing = said(flow, "forget", flow.name, "--where", "k = 'zoe'", "--yes")
    assert "counted: no table of the rule has such rows: nothing to forget" in nothing
    assert len(flow.ledger().rows) == rows


@pytest.mark.parametrize(
    ("landing", "table", "column"),
    [
        pytest.param({}, "dead", "_reason", id="dead", marks=pytest.mark.prove),
        pytest.param({"landing": True}, "landing/events", "_floodmark_malformed", id="landed"),
    ],
)
def test_malformed_records_and_names_of_files_are_listed(
    spark: SparkSession, place: Path, landing: dict[str, Any], table: str, column: str
) -> None:
    """Columns of a malformed record are NULL. Whoever forgets a person has to know of the text."""
    flow = Flow(place, sql="SELECT k FROM events", sinks=1)
    files = {"path": flow.source, "format": "json", "schema": "k STRING", "settle": "0 seconds"}
    flow.stream = {"delta": None, "event_time": None, "lateness": None, "files": files, **landing}
    flow.settings = {"on_error": "dead"}
    folder = Path(flow.source) / f"of={ALICE}"
    folder.mkdir(parents=True)
    files["recursive"] = True
    (folder / "a.json").write_text('{"k": "eve')
    lines = (f'{{"k": "{name}' for name in (ALICE, "bob", f"x{ALICE}"))
    (folder.parent / "b.json").write_text("\n".join(lines))
    run(spark, flow)
    found = rehearse(spark, flow.place, WHERE)
    looked = (found.own | found.copies)[table]
    assert (looked.rows, looked.malformed, found.names) == (0, 2, ["sources/events/files.jsonl"])
    assert found.is_nothing and not found.corrects
    assert forgotten(spark, flow, f"{column} LIKE '%{ALICE}%'").asked is not None
    left = rehearse(spark, flow.place, WHERE)
    assert (left.own | left.copies)[table].malformed == 0


COUNTED = """
SELECT k, count_window.start AS start, count(*) AS c, sum(n) AS total FROM events GROUP BY k, count_window(3, 2)
"""
KINDS = {
    "slices": HOPPING,
    "sessions": SESSIONS,
    "over": OVER,
    "running": RUNNING,
    "rows of a key": COUNTED,
    "none": STATELESS,
}


@pytest.mark.prove
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_state_continues_as_if_the_key_had_never_been(
    spark: SparkSession, place: Path, kind: str
) -> None:
    flow, twin = (Flow(place / name, sql=KINDS[kind], sinks=1, stream={"start": {"version": 0}}) for name in "ab")
    for one in (flow, twin):
        one.settings = {"epoch": {"max_files": 1}, "unbounded": kind in ("running", "rows of a key")}
        if kind == "running":
            one.settings["sinks"] = [{"delta": one.sink(), "key": ["k"]}]
            one.stream["lateness"] = None
    portions = [
        [event(s, k, n=s) for s in (0, 10, 50, 95) for k in ("bob", "carl", ALICE)] + [event(None, ALICE)],
        [event(s, k, n=s) for s in (5, 100, 110) for k in ("bob", ALICE)] + [event(130, "carl")],
    ]
    for portion in portions:
        flow.arrive(portion)
        twin.arrive([row for row in portion if row["k"] != ALICE])
    run(spark, flow)
    forgotten(spark, flow, f"lower(k) = '{ALICE}'")
    assert (left_in(flow), found_in(flow.place.path, ALICE.upper())) == ([], [])
    later = [event(s, "bob", n=s) for s in (120, 140, 200)] + [event(500, "carl")]
    for one in (flow, twin):
        one.arrive(later)
        run(spark, one)
    rows, others = ([str(row) for row in rows_of(one.sink())] for one in (flow, twin))
    assert sorted(row for row in rows if ALICE not in row.lower()) == sorted(others)
    assert not [one for one in findings(flow) if one.verdict == "broken"]


@pytest.mark.prove
def test_a_delete_in_the_source_takes_her_out_of_the_sinks_and_forget_out_of_the_rest(
    spark: SparkSession, place: Path
) -> None:
    flow = Flow(place, sinks=1, stream={"on_rewrite": "correct"})
    for portion in PORTIONS:
        flow.arrive(portion)
        run(spark, flow)
    DeltaTable(flow.source).delete(WHERE)
    run(spark, flow)
    assert {row["k"] for row in rows_of(flow.sink())} == {"bob"}
    done = forgotten(spark, flow)
    assert done.found is not None and [one.rows for one in done.found.sinks.values()] == [0]
    assert done.found.own["state/events"] == Looked(0, older=True), "the correction has rewritten it"
    assert left_in(flow) == []
    flow.arrive([event(118, "bob"), event(300, "bob")])
    run(spark, flow)
    folded = [event(s, "bob") for s in (1, 6, 100, 118, 300)]  # the late row counts since the correction
    found = ordered(tuple(row[name] for name in ("start", "k", "c", "total", "top")) for row in rows_of(flow.sink()))
    assert found == tumbling(folded, FINAL)
    assert not [one for one in findings(flow) if one.verdict == "broken"]


@pytest.mark.prove
def test_a_reset_is_the_way_out_and_another_forget_takes_what_it_leaves(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place)
    run(spark, flow)
    with crash_at("forget.marked", nth=2), pytest.raises(Crash):
        forgotten(spark, flow)
    reset(spark, flow)
    assert left_in(flow), "the reset leaves old files"
    assert not [one for one in findings(flow) if one.verdict == "broken"]
    done = forgotten(spark, flow)
    assert left_in(flow) == [] and done.asked is not None
    assert not [one for one in findings(flow) if one.verdict == "broken"]
    run(spark, flow)


@pytest.mark.prove
@pytest.mark.parametrize("point", [one for one in FORGET_POINTS if not one.startswith("forget.copy")])  # it has none
def test_sigkill_at_every_step(spark: SparkSession, place: Path, point: str) -> None:
    flow = flow_of(place)
    run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    words = ("forget", flow.name, "--where", WHERE, "--yes")
    killed(flow, point, *words)
    said(flow, *words)
    assert left_in(flow) == []
    flow.arrive(LATER)
    run(spark, flow)
    assert not [one for one in findings(flow) if one.verdict == "broken"]
