"""The play of `floodmark prove` with real processes and signals, and drivers without Spark."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow

from floodmark.core.protocol.crashpoints import CORRECTION_POINTS
from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused, RunFailed
from floodmark.proving import report
from floodmark.proving.faultplan import CORRECTED, NOT_ASKED, Baseline
from floodmark.proving.judge.judging import Matrix
from floodmark.proving.play import applications
from floodmark.proving.play.orders import Orders
from floodmark.proving.play.played import Played, Wish
from floodmark.proving.play.processes import of_session
from floodmark.proving.play.script import Play, raise_outcome
from floodmark.proving.scratch import Scratch

GROUND = Baseline(qos=2, sinks=2, state=True, epochs=3, target=2)
TESTS = Path(__file__).parents[1]


class Silent:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def doing(self, what: str, done: int = 0, of: int = 0) -> None:
        if what not in self.said:
            self.said.append(what)


@pytest.fixture
def puppets(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Drivers without Spark; the leaders of all sessions that are started."""
    leaders: list[int] = []
    popen = subprocess.Popen

    def noted(*args: object, **more: object) -> object:
        process = popen(*args, **more)
        leaders.append(process.pid)
        return process

    monkeypatch.setattr("floodmark.proving.play.processes.subprocess.Popen", noted)
    monkeypatch.setattr(applications, "WORKER", "support.puppet")
    monkeypatch.setattr(Play, "_ground", lambda play: GROUND)
    monkeypatch.setattr(Play, "_corrected_tables", lambda play: {"sink/here", "state/events"})
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    return leaders


def play(root: Path, wish: Wish, **stream: Any) -> tuple[Played, Silent]:
    teller = Silent()
    rule: Rule = Flow(root, stream=stream).rule()
    scratch = Scratch(root / "scratch")
    scratch.root.mkdir()
    return Play(rule, wish, scratch, teller).run(), teller


def test_every_planned_fault_fires_and_every_copy_is_recovered(tmp_path: Path, puppets: list[int]) -> None:
    found, teller = play(tmp_path, Wish(8))
    assert {case.name: found.fired[case.name] for case in found.cases} == {
        case.name: len(case.kills) for case in found.cases
    }
    assert {end["code"] for end in found.ends.values()} == {0}
    assert found.ends.keys() >= {case.name for case in found.cases}
    stopped = {case.name for case in found.cases if case.fault == "stopped"}
    assert found.retries.keys() == stopped
    assert {retry["type"] for retry in found.retries.values()} == {"Busy"}
    assert {case.point for case in found.cases} >= {*CORRECTION_POINTS}
    assert [(one["left"], one["came"]) for one in found.rewrites] == [(2, 1)]
    assert found.killed >= 2
    assert any(text.endswith("min") for text in teller.said)
    assert not [pid for leader in puppets for pid in of_session(leader)], "nothing is left running"


def test_a_copy_that_does_not_come_to_its_point_is_seen(
    tmp_path: Path, puppets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUPPET_SKIPS", "Killed_sink0_after")
    found, _ = play(tmp_path, Wish(8, ("sink0.after", "sink0.before"), ("killed",)))
    assert found.fired == {"Killed_sink0_after": 0, "Killed_sink0_before": 1}


def test_a_matrix_without_a_case_is_refused(tmp_path: Path, puppets: list[int]) -> None:
    with pytest.raises(Refused, match=r"found none: compact\.before: state is rewritten after many epochs"):
        play(tmp_path, Wish(8, ("compact.before",), ("killed",)))


def test_a_rule_that_cannot_follow_a_rewrite_has_no_faults_of_corrections(
    tmp_path: Path, puppets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = play(tmp_path, Wish(8, ("defer.after", "sink0.after"), ("killed",)), start={"version": 0})
    assert [case.point for case in found.cases] == ["sink0.after"]
    [left_out] = found.skipped
    assert left_out.point == "defer.after"
    assert left_out.why.startswith("it cannot follow a rewrite: with another `start` than earliest")


def test_corrections_are_played_only_if_faults_may_hit_them(tmp_path: Path, puppets: list[int]) -> None:
    found, teller = play(tmp_path, Wish(8, ("sink0.after",), ("killed",)))
    assert (found.ground.uncorrected, found.rewrites) == (NOT_ASKED, [])
    assert not [text for text in teller.said if "correct" in text]
    assert report.restricted(Matrix(found))


@pytest.mark.parametrize(("type_", "kept"), [("InputFault", False), ("ReplayDiffers", True)])
def test_a_correction_that_fails_without_a_fault(
    tmp_path: Path, puppets: list[int], monkeypatch: pytest.MonkeyPatch, type_: str, kept: bool
) -> None:
    """What the rule refuses is left out; any other failure is judged."""
    monkeypatch.setenv("PUPPET_FAILS", type_)
    found, teller = play(tmp_path, Wish(8, ("defer.after", "sink0.after"), ("killed",)))
    assert [case.point for case in found.cases] == ["sink0.after"]
    assert (CORRECTED in found.ends) is kept
    assert any(text.startswith("corrections are left out: ") for text in teller.said)


def test_an_application_that_dies_ends_the_play(
    tmp_path: Path, puppets: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications, "WORKER", "support.nowhere")
    with pytest.raises(RunFailed, match=r"support\.nowhere"):
        play(tmp_path, Wish(8))


def test_what_the_undisturbed_run_meets_is_told_as_the_rules_own(tmp_path: Path) -> None:
    told = {"code": 3, "type": "InputFault", "error": "rule Undisturbed: the SQL fails on a row"}
    with pytest.raises(Exception, match="rule counted: the SQL fails") as met:
        raise_outcome(told, "counted")
    assert type(met.value).__name__ == "InputFault"


def test_orders_are_read_as_they_were_written(tmp_path: Path) -> None:
    given = {"resets": ["b"], "corrections": ["a"], "rows": 5, "sampled": "a"}
    orders = Orders("one", str(tmp_path), "local[2]", ["a", "b"], **given)
    assert Orders.read(orders.write()) == orders
    assert json.loads(orders.write().read_text())["rows"] == 5
