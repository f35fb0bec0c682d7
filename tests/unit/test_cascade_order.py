"""Which rules follow a backfill or a correction, in which order, and how; decided from their files."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from support.byhand import intent
from support.flow import Flow, event
from support.lives import lived
from test_lives import call

from floodmark.cli.shared.rehearsals import lines
from floodmark.core.protocol.records.rows import Counts, Life
from floodmark.core.rules.rule import Rule
from floodmark.ledger.delta.tables import newest_version
from floodmark.spark.look.cascading import behind, idle
from floodmark.views.rehearsalpage import page
from floodmark.views.rules.cascade import Step, effect, steps, unknown

WINDOWS = """
SELECT window.start AS start, window.end AS at, k, sum(n) AS n FROM events GROUP BY window(at, '1 minute'), k
"""
LOOKUP = "SELECT e.at, e.k, e.n FROM events e JOIN names n ON e.k = n.k"


def rule(place: Path, name: str, reads: str | None = None, answer: str | None = None, **settings: Any) -> Rule:
    """reads: the rule whose sink it reads as a stream; None: a table that no rule writes."""
    stream: dict[str, Any] = {} if answer is None else {"on_rewrite": answer}
    if reads is not None:
        stream["delta"] = Flow(place, reads).sink()
    return Flow(place, name, settings.pop("sql", WINDOWS), settings, stream, sinks=1).rule()


def found(first: Rule, others: list[Rule]) -> list[tuple[str, str, list[str]]]:
    return [(one.rule.rule, one.does, [f"{it.name} of {it.after}" for it in one.reads]) for one in steps(first, others)]


def test_each_rule_comes_after_those_that_it_reads_whatever_their_names(place: Path) -> None:
    first = rule(place, "m")
    others = [rule(place, "z", "m", "correct"), rule(place, "b", "z", "correct"), rule(place, "a", "b", "correct")]
    for shuffled in itertools.permutations([first, *others, rule(place, "apart")]):
        assert found(first, list(shuffled)) == [
            ("z", "correct", ["events of m"]),
            ("b", "correct", ["events of z"]),
            ("a", "correct", ["events of b"]),
        ]


def test_a_rule_that_reads_two_of_them_follows_both_once(place: Path) -> None:
    first, left, right = rule(place, "m"), rule(place, "l", "m", "correct"), rule(place, "r", "m", "correct")
    time = {"event_time": "at", "lateness": "30 seconds", "on_rewrite": "correct"}
    both = {name: {"delta": Flow(place, name).sink(), **time} for name in ("l", "r")}
    union = "SELECT at, k, n FROM l UNION ALL SELECT at, k, n FROM r"
    last = rule(place, "both", sql=union, streams=both)
    assert found(first, [last, right, left])[-1] == ("both", "correct", ["l of l", "r of r"])
    assert steps(first, [last, right, left])[-1].corrects == {name: one["delta"] for name, one in both.items()}


def test_what_stops_holds_up_the_rules_behind_it(place: Path) -> None:
    first = rule(place, "m")
    others = [rule(place, "s", "m"), rule(place, "t", "s", "correct"), rule(place, "u", "t")]
    assert found(first, others) == [
        ("s", "stop", ["events of m"]),
        ("t", "wait", ["events of s"]),
        ("u", "wait", ["events of t"]),
    ]
    stops, waits, _ = steps(first, others)
    assert "`floodmark correct s`" in effect(stops)
    assert effect(waits) == "nothing changes for it until s has been answered"


def test_what_skips_has_no_effect_on_the_rules_behind_it(place: Path) -> None:
    assert found(rule(place, "m"), [rule(place, "s", "m", "skip"), rule(place, "t", "s", "correct")]) == [
        ("s", "skip", ["events of m"])
    ]


@pytest.mark.parametrize("reads", [None, "l"])
def test_lookups_come_last_and_are_not_followed(place: Path, reads: str | None) -> None:
    """A rule that also follows as a stream reads rows of a lookup table that would be others by then."""
    first, middle = rule(place, "m"), rule(place, "l", "m", "correct")
    looks = rule(place, "a", reads, "correct" if reads else None, sql=LOOKUP,
                 lookups={"names": {"delta": Flow(place, "m").sink()}})  # fmt: skip
    behind = rule(place, "c", "a", "correct")
    listed = steps(first, [looks, behind, middle])
    if reads is None:
        assert [(one.rule.rule, one.does) for one in listed] == [("l", "correct"), ("a", "look up")]
    else:
        assert [one.rule.rule for one in listed] == ["l", "a", "c"]
        assert [*unknown(listed[1], [])] == ["it looks rows up in m_out0, which m would have changed before"]


def test_rebuilt_rules_and_readers_of_changes_are_no_corrections(place: Path) -> None:
    first = rule(place, "m")
    rebuilt = rule(place, "r", "m", rebuild=True, epoch="none")
    reads = Flow(place, "c", "SELECT at, k, n, _change FROM events", sinks=1)
    reads.stream = {"delta": Flow(place, "m").sink(), "changes": True}
    behind = rule(place, "d", "r", "correct")
    assert found(first, [rebuilt, reads.rule(), behind]) == [
        ("r", "rebuild", ["events of m"]),
        ("c", "read", ["events of m"]),
        ("d", "correct", ["events of r"]),
    ]


def test_what_is_not_known_of_a_rule_is_not_known_of_its_readers(place: Path) -> None:
    step = steps(rule(place, "m"), [rule(place, "z", "m", "correct")])[0]
    assert [*unknown(step, ["other"])] == []
    assert [*unknown(step, ["m"])] == ["what m would change is not known"]


def test_what_is_computed_is_said_apart_from_what_is_not_known() -> None:
    one: dict[str, Any] = {
        "does": "correct", "because": None, "from": "T1", "to": "T2", "all": False, "gaps": [["T3", "T4"]],
        "keys": None, "first_keys": {}, "rewrites": {"events": {"left": 2, "came": 1}}, "notes": [],
    }  # fmt: skip
    assert lines(one) == [
        "stream events: 2 rows leave and 1 come",
        "results of T1 to T2 would be recomputed, except T3 to T4",
    ]
    by_key = one | {"from": None, "to": None, "gaps": [], "keys": 3, "first_keys": {"s": [{"k": "a"}, {"k": "b"}]}}
    assert lines(by_key)[1] == 'results of 3 keys would be recomputed: {"k": "a"}, {"k": "b"}, …'
    assert lines(by_key | {"keys": 0, "first_keys": {}})[1] == "no result depends on these rows"
    assert lines(by_key | {"keys": None, "all": True})[1] == "all results would be recomputed"
    assert lines(one | {"because": "it is behind"}) == ["what it would recompute is not known: it is behind"]
    assert lines(one | {"does": "skip"}) == []


def test_the_page_shows_each_rule_and_escapes_what_comes_from_outside() -> None:
    sink = {"before": 1, "after": 2, "loses": 0, "gains": 1, "lost": [], "gained": [{"k": "<b>", "n": None}]}
    one: dict[str, Any] = {
        "order": 1, "rule": "second", "does": "correct", "effect": "corrects", "because": None,
        "reads": [{"kind": "stream", "name": "e", "sink": "lake/<i>", "writer": "first"}],
        "from": "T1", "to": "T2", "all": False, "keys": None,
        "lines": ["results of T1 to T2"], "sinks": {"lake/out": sink},
    }  # fmt: skip
    whole = page("first", {"lake/first": sink}, [one | {"from": None, "to": None, "all": True}])
    assert "<td>everything</td>" in whole
    stops = one | {"order": 2, "rule": "third", "does": "stop", "effect": "its next run stops", "sinks": {}}
    shown = page("first: a backfill & more", {"lake/first": sink}, [one, stops])
    assert "<i>" not in shown
    assert shown.count("<td>&lt;b&gt;</td><td>null</td>") == 2
    assert "<title>first: a backfill &amp; more</title>" in shown
    assert "<td>1</td><td>second</td><td>correct</td><td>T1 to T2</td><td>0</td><td>1</td>" in shown
    assert '<p class="open">its next run stops</p>' in shown
    assert "stream e reads &lt;i&gt; of first" in shown
    assert "Rules that follow" not in page("first", {}, None)
    assert "No other rule reads these sinks" in page("first", {}, [])


def test_a_cascade_and_a_page_are_of_dry_runs_only(place: Path) -> None:
    flow = Flow(place, "first", WINDOWS)
    flow.write_rule()
    said = call(flow, "correct", "first", "--cascade", code=2)
    assert "expected --dry-run next to --cascade" in said
    assert "expected --dry-run next to --page" in call(flow, "correct", "first", "--page", f"{place}/p.html", code=2)
    lost = call(flow, "correct", "first", "--dry-run", "--page", f"{place}/none/p.html", code=2)
    assert "expected a folder at" in lost


def test_only_a_rule_that_has_run_and_read_all_of_its_input_is_forecast(place: Path) -> None:
    flow, never = Flow(place.resolve()), Flow(place.resolve(), "never")
    ledger = lived(flow)
    assert [idle(flow.rule(), flow.home), behind(flow.rule(), flow.home)] == [None, None]
    assert idle(never.rule(), flow.home) == "it has not run yet: its first run reads the table as it is then"
    flow.arrive([event(3)])
    assert behind(flow.rule(), flow.home) == "it has not read all of stream events yet: run it first"
    ledger.intend(intent(flow, newest_version(flow.source) + 1, None, 0, Counts(read=1, folded=1)))
    assert "something else to do first: finish the open intent" in str(behind(flow.rule(), flow.home))
    ledger.live(Life(what="retired"))
    assert idle(flow.rule(), flow.home) == "it is retired: nothing runs it"


def test_a_step_knows_the_rules_that_write_what_it_reads(place: Path) -> None:
    (step,) = steps(rule(place, "m"), [rule(place, "z", "m", "correct")])
    assert isinstance(step, Step)
    assert (step.writers, step.streams) == ({"m"}, {"events": Flow(place, "m").sink()})
