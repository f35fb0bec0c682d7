"""`floodmark prove` without Spark: which cases are planned, what is compared how, and what the report says."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from support.flow import RUNNING, STATELESS, Flow, event
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.core.protocol.crashpoints import (
    BEGIN_POINTS,
    CORRECTION_POINTS,
    EPOCH_POINTS,
    LOST_POINTS,
    RELAY_POINTS,
    RESET_POINTS,
    reach,
)
from floodmark.core.rules.rule import Rule, StartAt
from floodmark.errors import Refused
from floodmark.ledger.home import Home
from floodmark.proving import report
from floodmark.proving.faultplan import (
    FAULTS,
    Baseline,
    Case,
    Skipped,
    cut,
    plan_cases,
    points,
    replays,
    shipped,
    target,
    undisturbed,
    waves,
)
from floodmark.proving.judge import verdicts
from floodmark.proving.judge.compared import Difference, as_rows, difference, like_one_of, rows_of
from floodmark.proving.judge.judging import Judged, Matrix
from floodmark.proving.judge.verdicts import Check
from floodmark.proving.page import page
from floodmark.proving.play.played import Played
from floodmark.proving.scratch import (
    Scratch,
    clocked,
    copy_of,
    corrected_copy,
    not_corrected,
    not_in_batch,
    omitted,
    replaces,
)

GROUND = Baseline(qos=2, sinks=2, state=True, epochs=4, target=2, corrects_state=True)
SCRATCH = Scratch(Path("/scratch"))


def by_fault(ground: Baseline, fault: str) -> dict[str, Case]:
    return {case.point: case for case in plan_cases(ground)[0] if case.fault == fault}


def whys(ground: Baseline, fault: str = "killed") -> dict[str, str]:
    return {one.point: one.why for one in plan_cases(ground)[1] if one.fault == fault}


def test_every_crash_point_is_planned_or_left_out_with_a_reason() -> None:
    others = ({"qos": 0}, {"sinks": 0, "state": False}, {"sinks": 3}, {"uncorrected": "no"}, {"corrects_state": False})
    for ground in (GROUND, *(replace(GROUND, **other) for other in others)):
        tried, skipped = plan_cases(ground)
        for fault in FAULTS:
            told = [one.point for one in (*tried, *skipped) if one.fault == fault]
            assert sorted(told) == sorted(points(ground.sinks))
        assert all(one.why for one in skipped)
        assert set(EPOCH_POINTS) <= set(points(ground.sinks))


def test_a_kill_hits_the_epoch_that_is_aimed_at() -> None:
    found = by_fault(replace(GROUND, target=3), "killed")
    assert found["sink0.after"].kills == ("sink0.after@3",)
    assert found["offsets.before"].kills == ("offsets.before@1",)
    assert [found[point].kills for point in BEGIN_POINTS] == [(point,) for point in BEGIN_POINTS]
    assert {found[point].how for point in RESET_POINTS} == {"reset"}
    assert {found[point].how for point in CORRECTION_POINTS} == {"correct"}
    rest = found.keys() - {*RESET_POINTS, *CORRECTION_POINTS}
    assert {found[point].how for point in rest} == {"run"}


def test_twice_is_a_second_kill_wherever_the_recovery_comes_to_the_point() -> None:
    found = by_fault(GROUND, "twice")
    assert found["state.after"].kills == ("state.after@2", "state.after")
    assert "begin.commit.after" not in found
    assert "does not reach" in whys(GROUND, "twice")["begin.commit.after"]


def test_what_a_rule_cannot_reach_is_left_out() -> None:
    assert whys(GROUND)["lost.before"] == "epochs are given up at qos 0 only"
    assert "4" in whys(GROUND)["compact.before"]
    few = whys(replace(GROUND, sinks=1, state=False))
    assert few["sink1.after"] == "the rule has 1 Delta sink"
    assert few["state.before"] == "the rule keeps no state"
    assert "reset.empty.after" in by_fault(GROUND, "killed")
    none = whys(replace(GROUND, sinks=0))
    assert none["reset.empty.after"] == "the rule has no sink whose rows a reset removes"
    assert "reset.empty.before" not in none
    lost = by_fault(replace(GROUND, qos=0), "killed")
    assert [lost[point].kills for point in LOST_POINTS] == [("intent.after@2", point) for point in LOST_POINTS]


def test_corrections_are_hit_wherever_they_come_to_a_point() -> None:
    assert by_fault(GROUND, "killed")["backfill.sink.after"].kills == ("backfill.sink.after",)
    twice = by_fault(GROUND, "twice")
    assert {*CORRECTION_POINTS} - twice.keys() == {"defer.after", "backfill.commit.after"}
    assert twice["backfill.intent.after"].kills == ("backfill.intent.after", "backfill.intent.after")
    assert by_fault(GROUND, "stopped").keys() >= {*CORRECTION_POINTS}
    stateless = by_fault(replace(GROUND, corrects_state=False), "killed")
    assert {*CORRECTION_POINTS} - stateless.keys() == {"backfill.state.before", "backfill.state.after"}
    left_out = whys(replace(GROUND, uncorrected="it reads the clock"))
    assert {left_out[point] for point in CORRECTION_POINTS} == {"it reads the clock"}


def test_a_stream_of_which_no_rewrite_can_be_followed_is_not_rewritten(tmp_path: Path) -> None:
    (tmp_path / "scratch" / "fresh" / "events").mkdir(parents=True)
    scratch = Scratch(tmp_path / "scratch")
    followed = corrected_copy(rule(Flow(tmp_path)), "Case", scratch, 2).streams["events"]
    assert (followed.address, followed.start) == (scratch.rewritten("Case", "events"), "earliest")
    assert followed.on_rewrite == "correct"
    timed = rule(Flow(tmp_path, settings={"qos": 0}))
    assert not_corrected(timed) == "it cannot follow a rewrite: at qos 0 epochs may be lost, and a backfill would " \
        "restore their rows"  # fmt: skip
    assert corrected_copy(timed, "Other", scratch, 2) == copy_of(timed, "Other", scratch, 2)


def test_a_third_sink_has_its_points() -> None:
    assert by_fault(replace(GROUND, sinks=3), "stopped")["sink2.before"].kills == ("sink2.before@2",)


def test_relays_have_points_where_there_are_targets() -> None:
    assert {whys(GROUND)[point] for point in RELAY_POINTS} == {"the rule has no target"}
    aimed = replace(GROUND, target=2, relays=(2, 2), shipped=3)
    found = by_fault(aimed, "killed")
    assert found["relay.sent"].kills == ("relay.sent@3",)
    assert whys(aimed)["relay.between"] == "at qos 2, rows and position move together"
    assert by_fault(aimed, "twice")["relay.sent"].kills == ("relay.sent@3", "relay.sent")
    assert {point for point in by_fault(aimed, "stopped") if point.startswith("relay")} == {
        "relay.before", "relay.sent", "relay.after"
    }  # fmt: skip
    mixed = replace(aimed, relays=(2, 1))
    assert by_fault(mixed, "killed")["relay.between"].kills == ("relay.between@3",)
    assert "goes on behind it" in whys(mixed, "twice")["relay.between"]


def test_a_relay_is_hit_in_a_portion_with_rows() -> None:
    assert shipped([5, 1, 3, 9]) == 3
    assert shipped([0, 2, 2, 0]) == 2
    for rows in ([7, 0, 0, 9], [7, 7], []):
        assert shipped(rows) is None, "no epoch in the middle has any"
    first = by_fault(replace(GROUND, relays=(2,)), "killed")
    assert first["relay.sent"].kills == ("relay.sent",)


def test_a_point_may_be_in_several_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay ships several at once: the one that is aimed at may be among them."""
    monkeypatch.setenv("FLOODMARK_CRASH_AT", "Killed:relay.sent@3")
    monkeypatch.setenv("FLOODMARK_CRASH_MARKS", str(tmp_path))
    for epochs in ((), (1, 2), (4,)):
        reach("Killed", "relay.sent", *epochs)  # goes on at once
    waiting = Thread(target=reach, args=("Killed", "relay.sent", 2, 3, 4), daemon=True)
    waiting.start()
    mark = tmp_path / "Killed.relay.sent"
    while not mark.exists():
        assert waiting.is_alive()
        waiting.join(0.01)
    mark.unlink()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_target_that_cannot_be_emptied_leaves_resets_out() -> None:
    kept = replace(GROUND, relays=(2,), unreset="sold")
    assert not set(by_fault(kept, "killed")) & set(RESET_POINTS)
    assert whys(kept)["reset.seal.after"].endswith("nobody can take rows away from target sold")


def test_only_keeps_points_and_kinds() -> None:
    tried, skipped = plan_cases(GROUND, ["sink0.after"], ["killed", "stopped"])
    assert [(case.point, case.fault) for case in tried] == [("sink0.after", "killed"), ("sink0.after", "stopped")]
    assert not skipped
    with pytest.raises(Refused, match=r"sink9\.after"):
        plan_cases(GROUND, ["sink9.after"])


def test_the_names_of_copies_are_no_rules_names_yet_a_home_takes_them() -> None:
    names = [*(case.name for case in plan_cases(GROUND)[0]), *undisturbed(100, True)]
    assert len(set(names)) == len(names)
    assert [Home(Path("/home"), name).rule for name in names] == names
    assert not any(re.fullmatch(r"[a-z][a-z0-9_]{0,62}", name) for name in names)


def test_the_fault_hits_the_busiest_epoch_between_others() -> None:
    assert target([5, 1, 3, 9]) == 3
    assert target([1, 2, 2, 2]) == 2
    with pytest.raises(Refused, match="--rows"):
        target([4, 4])


@given(st.integers(1, 10_000))
def test_a_sample_is_cut_into_commits_that_make_three_epochs_where_it_can(rows: int) -> None:
    commits, files = cut(rows)
    assert commits <= min(rows, 6)
    assert -(-commits // files) >= min(rows, 3)
    sizes = [replay.files for replay in replays(files)]
    assert files not in sizes
    assert sizes[-1] is None


def test_waves_hold_every_case_once() -> None:
    cases = plan_cases(GROUND)[0]
    found = waves(cases, 20)
    assert sorted(case.name for wave in found for case in wave) == sorted(case.name for case in cases)
    assert max(map(len, found)) <= 20
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert waves([], 20) == []


# --- the copies ---


def rule(flow: Flow) -> Rule:
    return flow.rule()


def test_a_copy_writes_nowhere_else(tmp_path: Path) -> None:
    flow = Flow(tmp_path, settings={"close_idle_after": "1 minute", "schedule": "@daily", "epoch": {"max_bytes": 9}})
    mine = rule(flow)
    copy = copy_of(mine, "Killed_sink0_after", SCRATCH, 2)
    assert {stream.address for stream in copy.streams.values()} == {"/scratch/input/events"}
    assert [sink.address for sink in copy.sinks] == [f"/scratch/sinks/Killed_sink0_after/{i}" for i in (0, 1)]
    assert copy.streams["events"].start == StartAt(version=1)
    assert (copy.epoch.max_files, copy.epoch.max_bytes) == (2, None)
    assert copy.close_idle_after_us is None
    assert any("close_idle_after" in one for one in omitted(mine))
    same = ("sql", "qos", "lookups", "process", "spark", "timezone", "late", "windows")
    assert all(getattr(copy, name) == getattr(mine, name) for name in same)
    assert str(tmp_path) not in copy.to_json()


TARGETS: list[dict[str, Any]] = [
    {"postgres": {"connection": "shop", "table": "shop.sold"}, "key": ["k"], "outbox": {"max_bytes": 1000}},
    {"kafka": {"connection": "bus", "topic": "sold", "key": ["k"]}, "name": "topic"},
    {"files": {"path": "/out/sold", "format": "csv"}, "name": "folder", "qos": 1},
]


def test_copies_of_targets_have_places_of_their_own(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    flow.settings["sinks"] = TARGETS
    mine = rule(flow)
    copy = copy_of(mine, "Killed_relay_sent", SCRATCH, 2)
    word = SCRATCH.word
    assert [sink.address for sink in copy.sinks] == [
        f"postgres://shop/floodmark_prove_{word}.Killed_relay_sent_0",
        f"kafka://bus/sold.floodmark_prove_{word}.Killed_relay_sent_1",
        "files:///scratch/targets/Killed_relay_sent_2",
    ]
    assert [sink.kind for sink in copy.sinks] == ["postgres", "kafka", "files"]
    assert not {sink.outbox for sink in copy.sinks} & {sink.outbox for sink in mine.sinks}
    assert copy.sinks[0].outbox_bytes is None
    for kept in ("key", "qos", "on_reset", "where"):
        assert [getattr(sink, kept) for sink in copy.sinks] == [getattr(sink, kept) for sink in mine.sinks]
    assert (copy.sinks[1].options["key"], copy.sinks[2].options["format"]) == (["k"], "csv")
    others = copy_of(mine, "Killed_relay_sent", Scratch(Path("/other")), 2).sinks
    assert not {sink.address for sink in copy.sinks} & {sink.address for sink in others}


def test_what_hangs_on_the_time_of_day_is_known(tmp_path: Path) -> None:
    assert not clocked(rule(Flow(tmp_path)))
    sql = "SELECT at, k, current_timestamp() AS folded FROM events"
    assert clocked(rule(Flow(tmp_path, "clock", sql=sql)))
    assert not_in_batch(rule(Flow(tmp_path, "clock", sql=sql))) is not None
    assert not_in_batch(rule(Flow(tmp_path))) is None
    process = rule(Flow(tmp_path, "cls", process="totals:Totals"))
    assert "class" in str(not_in_batch(process))
    seen = {"event_time": {"name": "seen", "expr": "current_timestamp()"}}
    assert not clocked(process)
    assert clocked(rule(Flow(tmp_path, "seen", stream=seen, process="totals:Totals")))


def test_sinks_whose_rows_replace_each_other_have_no_answer_in_batch(tmp_path: Path) -> None:
    flow = Flow(tmp_path, sql=STATELESS, stream={"lateness": None})
    flow.settings["sinks"] = [{"delta": flow.sink(0)}, {"delta": flow.sink(1), "key": ["k"], "newest": "at"}]
    found = rule(flow)
    assert [replaces(found, sink) for sink in found.sinks] == [False, True]
    flow = Flow(tmp_path, "totals", sql=RUNNING)
    flow.settings |= {"unbounded": True, "sinks": [{"delta": flow.sink(0), "key": ["k"]}]}
    assert not replaces(rule(flow), rule(flow).sinks[0])


# --- comparing ---


def test_rows_are_compared_as_multisets() -> None:
    assert not difference([(1,), (2,), (1,)], [(1,), (1,), (2,)])
    assert difference([(1,)], [(1,), (1,)]) == Difference([(1,)], [])
    assert difference([(1,), (3,)], [(2,)]) == Difference([(2,)], [(1,), (3,)])


def test_floating_point_is_compared_within_a_billionth() -> None:
    assert not difference([("a", 0.1 + 0.2, 7.0)], [("a", 0.3, 7.0)])
    assert difference([("a", 0.3 + 1e-8)], [("a", 0.3)])
    assert difference([("a", 0.3)], [("b", 0.3)])
    assert difference([("a", -4e-10)], [("a", 5e-10)]) == Difference([("a", 5e-10)], [("a", -4e-10)])
    assert not difference([("a", 0.1 + 0.2 - 0.3)], [("a", 0.0)]), "noise of a sum that cancels"
    assert not difference([("a", 1e-11), ("b", 1e5)], [("a", 0.0), ("b", 1e5)]), "the same, next to larger values"
    assert difference([("a", 1e-11, 1e5)], [("a", 0.0, 1e5)]), "another column's values do not count"
    assert difference([("a", 2e-9), ("b", 1e9)], [("a", 0.0), ("b", 1e9)]), "1e-9 is the most"
    assert like_one_of([("a", 5e-10)], [("a", -4e-10), ("a", 0.0)]) == [("a", 5e-10)]
    crossed = [(1.0, 5.0), (1.0 + 1e-12, 3.0)], [(1.0, 3.0), (1.0 + 1e-12, 5.0)]
    assert not difference(*crossed)


def test_values_that_mean_the_same_are_equal() -> None:
    noon = datetime(2001, 1, 1, 12, tzinfo=UTC)
    one = as_rows([{"a": noon, "b": Decimal("1.50"), "c": [1, {"x": math.nan}], "d": None, "e": {"y": 1, "x": 2}}])
    other = as_rows(
        [
            {
                "e": {"x": 2, "y": 1},
                "d": None,
                "c": [1, {"x": math.nan}],
                "b": Decimal("1.5"),
                "a": noon.astimezone(timezone(timedelta(hours=2))),
            }
        ]
    )
    assert not difference(one, other)


def test_decimals_differ_by_their_last_digit() -> None:
    whole = Decimal("12345678901234567890123456789012345678")
    for one, other in ((whole, whole + 1), (Decimal("99999999999999999999.0000000001"), Decimal("1E20"))):
        assert difference(as_rows([{"d": one}]), as_rows([{"d": other}]))
        assert difference(as_rows([{"d": [one]}]), as_rows([{"d": [other]}]))


def test_times_beyond_pythons_calendar_are_compared_as_numbers(tmp_path: Path) -> None:
    ever = (10**9, 253_402_300_800_000_000)  # the other is the first moment of the year 10000
    kind = pa.timestamp("us", tz="UTC")
    times = [pa.array(list(ever), kind), pa.array([[at] for at in ever], pa.list_(kind))]
    write_deltalake(str(tmp_path), pa.table({"id": [0, 1], "at": times[0], "all": times[1]}))
    found = rows_of(str(tmp_path))
    assert found is not None
    assert sorted((row["id"], row["at"], row["all"]) for row in found) == [(i, at, [at]) for i, at in enumerate(ever)]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(allow_nan=False, allow_infinity=False)), max_size=30))
def test_a_lost_and_a_doubled_row_always_show(rows: list[tuple[str, float]]) -> None:
    assert not difference(reversed(rows), rows)
    if rows:
        assert len(difference(rows[1:], rows).missing) == 1
        assert len(difference([*rows, rows[0]], rows).extra) == 1


# --- verdicts ---

ROWS = [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("qos", "found", "attempts", "verdict"),
    [
        (2, ROWS, True, "proven"),
        (2, [*ROWS, ROWS[0]], True, "broken"),
        (2, ROWS[1:], True, "broken"),
        (1, [*ROWS, ROWS[0]], True, "proven"),
        (1, [*ROWS, ROWS[0]], False, "broken"),
        (1, [*ROWS, ("c", 3)], True, "broken"),
        (1, ROWS[1:], True, "broken"),
        (0, ROWS[1:], True, "proven"),
        (0, ROWS[1:], False, "broken"),
        (0, [*ROWS, ROWS[0]], True, "broken"),
    ],
)
def test_each_qos_is_held_to_its_promise(qos: int, found: list[tuple[Any, ...]], attempts: bool, verdict: str) -> None:
    assert verdicts.delivered("sink", found, ROWS, "the other", qos, attempts).verdict == verdict


def test_a_table_that_is_gone_is_no_proof() -> None:
    assert verdicts.equal("sink", None, ROWS, "the other").verdict == "broken"
    assert verdicts.equal("sink", ROWS, None, "the other").verdict == "unknown"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([("a", 1), ("c", 3)], "proven"),
        ([("a", 1), ("b", 2), ("c", 3)], "proven"),
        ([("a", 1), ("a", 1), ("c", 3)], "broken"),
        ([("a", 1), ("b", 2), ("b", 2), ("c", 3)], "broken"),
        ([("a", 1), ("b", 2)], "broken"),
        ([("a", 1), ("c", 3), ("d", 4)], "broken"),
    ],
)
def test_beside_lost_epochs_no_row_is_made_up(found: list[tuple[Any, ...]], verdict: str) -> None:
    of_each = {1: [("a", 1)], 2: [("b", 2)], 3: [("c", 3)]}
    assert verdicts.beside_lost("sink", found, of_each, [2]).verdict == verdict


def test_without_an_answer_for_each_epoch_nothing_is_said_of_losses() -> None:
    assert verdicts.beside_lost("sink", [], {1: [], 2: None}, [2]).verdict == "unknown"
    assert verdicts.beside_lost("sink", None, {1: []}, []).verdict == "unknown"


def test_a_fault_that_did_not_fire_is_no_proof() -> None:
    assert verdicts.fired(1, 2).verdict == "unfinished"
    assert verdicts.fired(2, 2).verdict == "proven"


def test_the_retry_beside_a_stopped_driver_must_be_refused() -> None:
    assert verdicts.refused({"code": 1, "type": "Busy"}).verdict == "proven"
    assert verdicts.refused({"code": 0}).verdict == "broken"
    assert verdicts.refused({"code": 1, "type": "RunFailed", "error": "no memory"}).verdict == "broken"
    assert verdicts.refused(None).verdict == "unfinished"


def test_the_retry_beside_a_stopped_relay_may_work() -> None:
    assert verdicts.shipped_beside({"code": 0}).verdict == "proven"
    assert verdicts.shipped_beside({"code": 1, "type": "Busy"}).verdict == "proven"
    assert verdicts.shipped_beside({"code": 3, "type": "LedgerBroken", "error": "no"}).verdict == "broken"
    assert verdicts.shipped_beside(None).verdict == "unfinished"


def test_the_retry_beside_a_run_that_is_about_to_correct_must_work() -> None:
    assert verdicts.left_beside({"code": 0}).verdict == "proven"
    assert verdicts.left_beside({"code": 1, "type": "Busy"}).verdict == "unfinished"
    assert verdicts.left_beside({"code": 3}).verdict == "broken"
    assert verdicts.left_beside(None).verdict == "unfinished"


def test_a_rewrite_that_was_not_corrected_is_no_proof() -> None:
    assert verdicts.corrected(1, 4, 2, 0).verdict == "proven"
    assert verdicts.corrected(0, 0, 0, 0).verdict == "broken"
    assert verdicts.corrected(1, 4, 2, 1).verdict == "broken"


def test_how_a_run_may_end() -> None:
    found = [verdicts.ended({"code": code, "error": "why"}).verdict for code in (0, 1, 2, 3)]
    assert found == ["proven", "unfinished", "broken", "broken"]


def test_the_worst_decides_and_has_its_exit_code() -> None:
    assert verdicts.worst([]) == "unknown"
    assert verdicts.worst(["proven", "unknown", "broken", "unfinished"]) == "broken"
    assert verdicts.worst(["proven", "unknown", "unfinished"]) == "unfinished"
    assert verdicts.EXIT_CODES == {"proven": 0, "unknown": 1, "unfinished": 1, "broken": 3}


def test_every_row_of_the_sample_must_have_been_read() -> None:
    assert verdicts.balanced({"a": 3}, {"a": 3}).verdict == "proven"
    assert verdicts.balanced({"a": 4}, {"a": 3}).verdict == "broken"


def test_an_audit_that_does_not_know_is_no_proof() -> None:
    found = [verdicts.certified(said, ["why"]).verdict for said in ("proven", "unknown", "broken", None)]
    assert found == ["proven", "unknown", "broken", "broken"]


# --- the report ---

NASTY = "<script>alert('x')</script> & \"quoted\""


def matrix(tmp_path: Path, verdict: str = "proven", text: str = "3 rows") -> Matrix:
    stream = {"stream": text, "table": text, "version": 3, "upto": text, "rows": 10, "commits": 6, "note": text}
    tried, skipped = plan_cases(GROUND)
    played = Played(
        rule(Flow(tmp_path)), SCRATCH, GROUND, 2, [stream], {"spark": "4.2.0"}, cases=tried, skipped=skipped
    )
    played.skipped.append(Skipped("sink0.before", "killed", text))
    played.replays = replays(2)
    case = Case("sink0.after", "killed", ("sink0.after@2",))
    checks = [Check("sink 0", "proven", text), Check(text, verdict, text)]  # type: ignore[arg-type]
    undisturbed = Judged("Undisturbed", "", "undisturbed", [Check("sink 0", "proven", text)])
    return Matrix(played, [undisturbed, Judged(case.name, case.point, case.fault, checks, 1, 1)])


class Reader(HTMLParser):
    """Counts elements, and that every one that is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(text: str) -> Reader:
    found = Reader()
    found.feed(text)
    assert found.open == []
    return found


def test_the_page_escapes_whatever_comes_from_outside(tmp_path: Path) -> None:
    found = read(page(matrix(tmp_path, "broken", NASTY)))
    assert "script" not in found.seen
    assert NASTY in found.text
    assert not {"link", "img", "iframe"} & set(found.seen), "the page needs nothing else"


def test_the_page_shows_each_point_and_each_verdict(tmp_path: Path) -> None:
    text = page(matrix(tmp_path, "broken"))
    assert all(f"<code>{point}</code>" in text for point in points(2))
    assert 'class="verdict broken">BROKEN' in text
    assert 'class="cell broken"' in text
    assert 'class="cell skipped"' in text
    assert "power loss" in text


def test_what_is_not_proven_comes_first_and_is_unfolded(tmp_path: Path) -> None:
    text = page(matrix(tmp_path, "broken"))
    assert text.index("What is not proven") < text.index("The matrix")
    assert text.count("<details open>") == 1 and "<details><summary>" in text
    assert "<details open>" not in page(matrix(tmp_path))


def test_the_facts_name_what_was_not_proven(tmp_path: Path) -> None:
    found = report.facts(matrix(tmp_path, "broken", "one row too many"))
    assert json.loads(json.dumps(found)) == found
    assert (found["verdict"], found["exit_code"]) == ("broken", 3)
    assert found["faults"] == {"planned": 1, "fired": 1, "processes_signalled": 0}
    assert report.findings(matrix(tmp_path, "broken", "one row too many")) == [
        "BROKEN killed at sink0.after: one row too many: one row too many"
    ]
    assert report.findings(matrix(tmp_path)) == []


def test_a_part_of_the_matrix_is_named_as_one(tmp_path: Path) -> None:
    whole = matrix(tmp_path)
    assert not report.restricted(whole)
    whole.played.cases = whole.played.cases[:1]
    assert "for a part of the matrix" in report.summary(whole)[0]


# --- the command ---


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--only", "sink9.after"], "expected crash points out of"),
        (["--fault", "drowned"], "expected kinds out of"),
        (["--master", "spark://elsewhere:7077"], "only processes of this machine"),
        (["--report", "nowhere/at/all.html"], "create it first"),
        (["--scratch", "/tmp/prove"], "cannot persist"),
    ],
)
def test_what_is_refused_before_anything_is_made(place: Path, more: list[str], told: str) -> None:
    flow = Flow(place)
    flow.arrive([event(1)])
    flow.write_rule()
    call = ["prove", flow.name, "--rules", str(place / "rules"), "--home", str(place / "home"), *more]
    found = CliRunner().invoke(app, call)
    assert found.exit_code == 2, found.output
    assert told in found.output
    assert not (place / "home").exists()


def test_a_class_of_ones_own_has_no_other_place(place: Path) -> None:
    flow = Flow(place, settings={"qos": 1})
    flow.settings["sinks"] = [{"python": {"class": "own:Own"}}, {"delta": flow.sink(0)}]
    flow.arrive([event(1)])
    file = flow.write_rule()
    (file.parent / "own.py").write_text("class Own:\n    def apply(self, batch, token):\n        pass\n")
    call = ["prove", flow.name, "--rules", str(place / "rules"), "--home", str(place / "home")]
    found = CliRunner().invoke(app, call)
    assert found.exit_code == 2, found.output
    assert "only sinks of the kinds delta, postgres, kafka, files" in found.output
    assert "Prove a copy of the rule file without this sink" in found.output
    assert not (place / "home").exists()


def test_a_table_that_is_not_there_may_come(place: Path) -> None:
    flow = Flow(place)
    flow.write_rule()
    call = ["prove", flow.name, "--rules", str(place / "rules"), "--home", str(place / "home")]
    found = CliRunner().invoke(app, call)
    assert found.exit_code == 1
    assert "no Delta table" in found.output
