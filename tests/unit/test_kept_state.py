"""State of another kind than the SQL needs, as after an upgrade: a rule is refused, whatever is open."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from floodmark.errors import RuleChanged
from floodmark.spark.rule import held
from floodmark.spark.rule.held import HeldRule

PLAN: Any = SimpleNamespace(
    rule=SimpleNamespace(rule="counted", process=None, rebuild=False, to_json=lambda: ""),
    fold=SimpleNamespace(tables={"slices": None}, shape=SimpleNamespace(older=False)),
)
OPEN: Any = SimpleNamespace(rule="", engine={}, lookups={})
HEAD: Any = SimpleNamespace(
    table_ids={"state/events": "1", "late": "2", "sink//lake/out": "3"}, columns={}, open=OPEN, backfill=OPEN
)


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Any:
    text = SimpleNamespace(rebuild=True, streams={})
    for name in ("check_sinks_exist", "check_same_sinks"):
        monkeypatch.setattr(held, name, lambda *_: None)
    monkeypatch.setattr(held, "text_now", lambda *_: text)
    monkeypatch.setattr(held, "analyse", lambda *_, **__: (None, PLAN))
    drainer: Any = SimpleNamespace(head=HEAD, check_tables=lambda: None)
    given: Any = (None, PLAN.rule, None, SimpleNamespace(id="l"), None)
    return HeldRule(*given, drainer)


@pytest.mark.parametrize(
    "step",
    [
        lambda rule: rule.fit_to_go_on(),
        lambda rule: rule._finish(HEAD, go_on=False),
        lambda rule: rule._finish_backfill(HEAD),
        lambda rule: rule.plan_now(),
    ],
    ids=["a new epoch", "an open epoch", "an open backfill", "a correction"],
)
def test_a_rule_whose_state_is_of_another_kind_is_refused(rule: HeldRule, step: Callable[[HeldRule], None]) -> None:
    with pytest.raises(RuleChanged, match=r"expected state slices, .* found events: the generation began with another"):
        step(rule)
