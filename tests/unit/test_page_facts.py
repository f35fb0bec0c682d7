"""What the pages gather of rules: when it is there, from which folders it hangs, and what is told meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow

from floodmark.core.rules.rule import Rule
from floodmark.errors import Refused, RuleInvalid
from floodmark.views.rules.rulefiles import Catalog
from floodmark_airflow.pages import rulefacts as module
from floodmark_airflow.pages.rulefacts import ELSEWHERE, Audited, Facts

LONG = 20.0  # seconds in which what is awaited comes, even on a busy machine
AUDITED = Audited({"generations": [{"generation": 1}, {"generation": 2}]}, 0, 0.0)


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """Of the rules in a folder that `Flow` writes into."""
    (tmp_path / "rules").mkdir()
    made = Facts(tmp_path / "rules", lambda: tmp_path / "home", {})
    made.catalog(time.monotonic() + LONG)
    return made


class Slow:
    """A reading of rule files that ends when it is let."""

    def __init__(self) -> None:
        self.go, self.found = threading.Event(), Catalog()

    def __call__(self) -> Catalog:
        found = self.found
        assert self.go.wait(LONG)
        return found


def ended(facts: Facts) -> None:
    assert facts._reading is not None
    facts._reading.exception(LONG)


def test_rules_that_take_long_to_read_are_shown_as_they_were_read_last(tmp_path: Path) -> None:
    facts, slow = Facts(tmp_path, lambda: tmp_path, {}), Slow()
    facts._files.catalog = slow  # type: ignore[method-assign]
    first = slow.found
    assert facts.catalog(0) is None
    slow.go.set()
    ended(facts)
    slow.go.clear()
    slow.found = Catalog(errors={"a.yaml": "broken since"})
    assert facts.catalog(0) is first
    slow.go.set()
    ended(facts)
    slow.go.clear()
    assert facts.catalog(0).errors == {"a.yaml": "broken since"}  # type: ignore[union-attr]
    slow.go.set()


def test_a_home_that_cannot_be_told_is_refused_until_it_can(tmp_path: Path) -> None:
    homes: list[Any] = [RuleInvalid("expected the file of environment dev"), tmp_path / "home"]

    def home() -> Path:
        found = homes.pop(0)
        if isinstance(found, Exception):
            raise found
        return Path(found)

    facts = Facts(tmp_path, home, {})
    with pytest.raises(Refused, match="environment dev"):
        facts.catalog(time.monotonic() + LONG)
    assert facts.catalog(time.monotonic() + LONG) == Catalog()
    assert facts.home == tmp_path / "home"


def rule(root: Path, **settings: Any) -> Rule:
    return Flow(root, settings=settings).rule()


def passing(wanted: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether what is wanted is another after some time, though nothing was written."""
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now)
    before = wanted()
    monkeypatch.setattr(module.time, "time", lambda: now + ELSEWHERE)
    after = wanted()
    return bool(before.given != after.given)


def test_an_audit_hangs_on_the_state_tables_of_the_newest_generation(facts: Facts, tmp_path: Path) -> None:
    found = facts._audit(rule(tmp_path)).on(AUDITED)
    assert tmp_path / "home" / "counted" / "state" / "g2" / "events" / "_delta_log" in found


def test_an_audit_of_tables_whose_logs_no_folder_tells_of_is_not_believed_for_long(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, away = rule(tmp_path), rule(tmp_path, sinks=[{"delta": "s3://lake/out"}])
    assert not passing(lambda: facts._audit(here), monkeypatch)
    assert passing(lambda: facts._audit(away), monkeypatch)


def test_what_the_next_run_does_is_asked_again_where_it_hangs_on_the_clock(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, closing = rule(tmp_path), rule(tmp_path, close_idle_after="1 hour")
    heard = {name: stream.model_copy(update={"idle_after_us": 1}) for name, stream in plain.streams.items()}
    waiting = plain.model_copy(update={"streams": heard})
    found = [passing(lambda one=one: facts._plan(one), monkeypatch) for one in (plain, closing, waiting)]
    assert found == [False, True, True]


def rebuilt(root: Path, table: str) -> Rule:
    """A rule that each run rebuilds, and that looks rows up in a table."""
    sql = "SELECT events.k FROM events JOIN names ON events.k = names.k"
    more = {"rebuild": True, "epoch": "none", "lookups": {"names": {"delta": table}}}
    return Flow(root, sql=sql, settings=more).rule()


def test_what_the_next_run_does_hangs_on_the_lookup_tables_of_a_rule_that_is_rebuilt(
    facts: Facts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tmp_path / "names" / "_delta_log" in facts._plan(rebuilt(tmp_path, str(tmp_path / "names"))).on(None)
    away = rebuilt(tmp_path, "s3://lake/names")
    assert passing(lambda: facts._plan(away), monkeypatch)
    assert facts._plan(away).away


def test_a_rule_whose_tables_are_away_is_gathered_beside_the_others(facts: Facts, tmp_path: Path) -> None:
    away = Flow(tmp_path, stream={"delta": "s3://lake/in"}).rule()
    assert [facts._glance(one).away for one in (rule(tmp_path), away)] == [False, True]
