"""Rules of one run that read each other: who waits for whom."""

from __future__ import annotations

from pathlib import Path

from test_chains import ENV, source, write

from floodmark.cli.drain import _due
from floodmark.connectors.news import News
from floodmark.core.rules import Rule, load_rules


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

    due = _due(rules_of(tmp_path), look_at)
    assert [(one.rule.rule, one.why, [before.rule.rule for before in one.after]) for one in due] == [
        ("first", "new data", []),
        ("b", "reads what first may write in this run", ["first"]),
        ("a", "reads what b may write in this run", ["b"]),
    ]
    assert looked == ["first", "other"]


def test_with_nothing_new_nobody_waits(tmp_path: Path) -> None:
    assert _due(rules_of(tmp_path), lambda rule: News(None, 1, {}, 0)) == []


def test_a_rule_that_cannot_be_looked_at_holds_nobody_up(tmp_path: Path) -> None:
    due = _due(rules_of(tmp_path), lambda rule: None if rule.rule == "first" else News("new data", 1, {}, 0))
    assert [(one.rule.rule, len(one.after)) for one in due] == [("other", 0), ("b", 0), ("a", 1)]
