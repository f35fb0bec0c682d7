"""The class by which the head says that state is stored: that of an epoch, or of a backfill of everything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.byhand import offset
from support.flow import Flow, event
from support.pretend import MemoryLedger

from floodmark.audit.evidence import Row as AuditedRow
from floodmark.audit.ledger.named import ids_of
from floodmark.audit.ledger.story import Story
from floodmark.core.lifecycle.changes import check_state
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Backfill, Backfilled
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.headtext import head_from_text, head_to_text
from floodmark.core.protocol.records.rows import Commit, Intent
from floodmark.core.rules.rule import Rule
from floodmark.core.text.durations import parse_duration
from floodmark.errors import RuleChanged
from floodmark.spark.rule import evolution
from floodmark.spark.write.sites import Site

CLASS = """
class T:
    output = "k STRING"
    state = {"s": "%s"}

    def process(self, key, rows, ctx):
        pass
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    made = Flow(tmp_path, process="mine:T", sinks=1)
    made.arrive([event(1)])
    return made


def rule_of(flow: Flow, state: str) -> Rule:
    flow.write_class(CLASS % state)
    return flow.rule()


def begun(flow: Flow, rule: Rule) -> MemoryLedger:
    made = MemoryLedger([], "run")
    entry = Entry(0, (offset(flow, 0),)).text()
    made.begin(1, "token", Commit(entry=entry, watermark=None, maxima={"events": None}, rule=rule.to_json()))
    return made


def backfill(ledger: MemoryLedger, rule: Rule, added: dict[str, str] | None = None, **how: Any) -> Head:
    head = ledger.head
    assert head is not None
    body = {"number": len(head.backfills) + 1, "upto": 0, "begin": 0, "end": 0, "high": 0, "column": "", "shift": 0}
    body |= {"entry": head.entry.text(), "counts": {}, "restated": {}, "digests": {}, "results": Digest(), **how}
    intent = Backfill.model_validate({**body, "rule": rule.to_json(), "rule_hash": rule.hash})
    ledger.start_backfill(intent)
    ended = Backfilled(number=intent.number, intent=intent.digest, tables={}, removed={}, table_ids=added or {})
    return ledger.end_backfill(ended)


def epoch(ledger: MemoryLedger, rule: Rule) -> Head:
    assert ledger.head is not None
    body: dict[str, Any] = {"entry": ledger.head.entry.text(), "watermark": None, "maxima": {"events": None}}
    more = {"watermark_before": None, "counts": {}, "zone": "UTC", "ansi": True}
    intent = Intent.model_validate({**body, **more, "rule": rule.to_json(), "rule_hash": rule.hash})
    ledger.intend(intent)
    return ledger.commit(Commit(intent=intent.digest, output_rows=0, **body))


def declared(head: Head) -> str:
    assert head.process is not None
    return head.process.state["s"]


def test_a_backfill_of_everything_stores_the_state_by_its_own_class(flow: Flow) -> None:
    first, second = rule_of(flow, "n INT"), rule_of(flow, "n BIGINT, more INT")
    ledger = begun(flow, first)
    assert declared(backfill(ledger, second)) == "n int", "an interval alone leaves the state as it was"
    head = backfill(ledger, second, whole=True)
    assert (declared(head), head.rule) == ("n bigint, more int", first)
    assert head_from_text(head_to_text(head)) == head
    assert declared(backfill(ledger, second)) == "n bigint, more int"
    assert declared(epoch(ledger, first)) == "n int"


def test_the_table_of_a_state_that_is_new_is_known_from_the_backfill_on(flow: Flow) -> None:
    ledger, rule = begun(flow, rule_of(flow, "n INT")), rule_of(flow, "n BIGINT")
    assert backfill(ledger, rule, whole=True).table_ids == {}
    assert '"table_ids"' not in ledger.rows[-1].body, "ledgers without new state read as before"
    assert backfill(ledger, rule, {"state/new": "its id"}, whole=True).table_ids == {"state/new": "its id"}
    (generation,) = Story([AuditedRow(**row.__dict__) for row in ledger.rows]).generations
    assert (ids_of(generation), ids_of(generation, 0)) == ({"state/new": "its id"},) * 2


def test_a_class_is_refused_that_cannot_take_what_a_backfill_has_stored(flow: Flow) -> None:
    first, second = rule_of(flow, "n INT"), rule_of(flow, "n BIGINT")
    head = backfill(begun(flow, first), second, whole=True)
    check_state(head.restated_by, second)
    check_state(None, first)
    with pytest.raises(RuleChanged, match=r"changed state\['s'\] n from bigint to int;"):
        check_state(head.restated_by, first)


MINUTE = 60_000_000


def gone(name: str, before: tuple[str, bool], now: tuple[str, bool], watermark: int | None = 5 * MINUTE) -> str | None:
    """The rows that go by an edit of a class, each with the lifetime of `s` and whether it has `on_timer`."""
    old, new = (
        SimpleNamespace(
            tables=("s", "counters", *(["timers"] if timers else [])), ttl_us={"s": parse_duration(ttl)} if ttl else {}
        )
        for ttl, timers in (before, now)
    )
    plan: Any = SimpleNamespace(
        rule=SimpleNamespace(process=new), fold=SimpleNamespace(instant=lambda at: f"{at // MINUTE} min")
    )
    head: Any = SimpleNamespace(process=old, watermark=watermark)
    return evolution._gone(plan, name, head)


def test_values_whose_lifetime_is_over_go_with_an_edit_that_makes_it_longer() -> None:
    over = "coalesce(_at <= 4 min, false)"
    for longer in ("2 minutes", ""):
        assert gone("s", ("1 minute", False), (longer, False)) == over
    assert gone("s", ("1 minute", False), ("1 minute", False)) is None
    assert gone("s", ("1 minute", False), ("30 seconds", False)) is None
    assert gone("s", ("", False), ("1 minute", False)) is None
    assert gone("s", ("1 minute", False), ("1 hour", False), watermark=None) is None
    assert gone("counters", ("1 minute", False), ("1 hour", False)) is None


def test_timers_go_where_the_class_before_had_no_method_for_them() -> None:
    assert gone("timers", ("", False), ("", True)) == "true"
    assert gone("clock_timers", ("", True), ("", True)) == "true"
    assert gone("timers", ("", True), ("", True)) is None


def test_values_of_a_dropped_state_go_by_the_lifetime_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evolution.tables, "open_table", lambda at: None if at.endswith("never") else object())
    known = Site("state/events", "state", "/homes/rule/state/g1/events", "app")
    found: Any = SimpleNamespace(state={"events": known, "s": known})
    plan: Any = SimpleNamespace(rule=SimpleNamespace(process=SimpleNamespace(state={"s": "n INT"}, ttl_us={})))
    head: Any = SimpleNamespace(process=SimpleNamespace(state={"s": "n INT", "gone": "n INT", "never": "n INT"}))
    dropped = list(evolution._dropped(plan, found, head))
    assert dropped == [("gone", replace(known, name="state/gone", address="/homes/rule/state/g1/gone"))]
    plan.rule.process = None
    assert list(evolution._dropped(plan, found, head)) == []


def test_a_value_is_gone_if_the_newest_one_is() -> None:
    """Whatever lost epochs have stored of it."""
    plan: Any = SimpleNamespace(rule=SimpleNamespace(process=SimpleNamespace(key=("k",))))
    assert evolution._names_of(plan, "s", ["K", "name", "_at"]) == ["K"]
    names = evolution._names_of(plan, "counters", ["K", "name", "value", "_at"])
    assert evolution._over("over", names, ()) == "coalesce(max_by(over, _epoch) OVER (PARTITION BY `K`, `name`), false)"
    assert "max_by(over, CASE WHEN _epoch NOT IN (3, 5) THEN _epoch END)" in evolution._over("over", names, (3, 5))
