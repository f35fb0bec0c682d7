"""Rules of one run that read each other: who waits for whom."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.byhand import begun
from support.flow import Flow
from test_chains import ENV, source, write

from floodmark.cli.runs.drain import _Application, _note_status, _pending_rules, _PendingRule
from floodmark.cli.runs.outcome import Outcome
from floodmark.connectors.backlog.news import News
from floodmark.core.rules.rule import Rule, load_rules
from floodmark.errors import TableBroken


def rules_of(folder: Path) -> list[Rule]:
    source(folder)
    write(folder, "b", "{s: {rule: first}}")
    write(folder, "a", "{s: {rule: b}}")
    source(folder, "other")
    return list(load_rules(folder, ENV)[0].values())


def test_who_reads_a_rule_that_is_to_run_is_looked_at_after_it(tmp_path: Path) -> None:
    looked: list[str] = []

    def look_at(rule: Rule) -> News:
        looked.append(rule.rule)
        return News("new data" if rule.rule == "first" else None, 1, {}, 7)

    due = _pending_rules(rules_of(tmp_path), look_at)
    assert [(one.rule.rule, one.why, [before.rule.rule for before in one.after]) for one in due] == [
        ("first", "new data", []),
        ("b", "reads what first may write in this run", ["first"]),
        ("a", "reads what b may write in this run", ["b"]),
    ]
    assert looked == ["first", "other"]


def test_with_nothing_new_nobody_waits(tmp_path: Path) -> None:
    assert _pending_rules(rules_of(tmp_path), lambda rule: News(None, 1, {}, 0)) == []


def test_a_rule_that_cannot_be_looked_at_holds_nobody_up(tmp_path: Path) -> None:
    due = _pending_rules(rules_of(tmp_path), lambda rule: None if rule.rule == "first" else News("new data", 1, {}, 0))
    assert [(one.rule.rule, len(one.after)) for one in due] == [("other", 0), ("b", 0), ("a", 1)]


class Threads(_Application):
    """Without Spark: the rule `slow` takes until all of `before` have ended."""

    def __init__(self, before: set[str]):
        self._before, self._done, self.ended = before, threading.Event(), list[str]()
        self._mutex, self._at_work, self.most = threading.Lock(), 0, 0

    def _has_news(self, rule: Rule) -> bool:
        return True

    def _one(self, session: Any, rule: Rule, check: Any) -> None:
        with self._mutex:
            self._at_work += 1
            self.most = max(self.most, self._at_work)
        if rule.rule == "slow":
            self._done.wait(10)
        with self._mutex:
            self._at_work -= 1
            self.ended.append(rule.rule)
            if self._before <= set(self.ended):
                self._done.set()


def test_who_waits_for_another_rule_keeps_no_thread_from_the_rest() -> None:
    slow, quick = (_PendingRule(named(name), "") for name in ("slow", "quick"))
    waiting = [_PendingRule(named(f"after_slow{number}"), "", after=[slow]) for number in range(3)]
    others = [_PendingRule(named(f"after_quick{number}"), "", after=[quick]) for number in range(3)]
    threads = Threads({one.rule.rule for one in (quick, *others)})
    threads._in_threads(SimpleNamespace(), [slow, quick, *waiting, *others], 2, lambda: None)  # type: ignore[arg-type]
    assert threads.ended[:5] == ["quick", "after_quick0", "after_quick1", "after_quick2", "slow"]
    assert len(threads.ended) == 8 and threads.most == 2


@pytest.mark.parametrize("fault", [TableBroken("a file of the state is missing"), OSError(5, "Input/output error")])
def test_state_that_cannot_be_read_is_the_fault_of_its_rule(
    place: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def broken(*_: Any) -> None:
        raise fault

    flow = Flow(place, "counted")
    begun(flow)
    monkeypatch.setattr("floodmark.views.contents.openwindows.open_windows", broken)
    outcome = Outcome("counted")
    _note_status(flow.rule(), flow.home, outcome, stale_ok=False)
    assert outcome.fault is fault
    assert outcome.head is not None


def named(name: str) -> Rule:
    return SimpleNamespace(rule=name)  # type: ignore[return-value]
