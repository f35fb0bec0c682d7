"""What is expected of rows: what a rule file may say, how it is counted, and what an auditor makes of the counts."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.flow import HOPPING, RUNNING, STATELESS, TUMBLING, Flow

from floodmark.audit.ledger.expected import misled, misled_results
from floodmark.connectors.columns import check_columns, needed, with_checked_columns
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.protocol.expectations import (
    counted,
    expectation_results,
    failing,
    ordered,
    reason,
    uncommitted_results,
)
from floodmark.core.protocol.records.rows import Commit, Counts, Failed, Intent, total
from floodmark.core.rules.rule import Expectation, Rule, load_rule
from floodmark.core.sql import columns_in
from floodmark.errors import RuleInvalid, WrongColumn

ONE = {"check": "v > 0", "on_fail": "drop"}
KEYED = {"sinks": [{"delta": "/lake/out", "key": ["k"]}], "unbounded": True}
TOP = "SELECT k, v, place FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM events) WHERE place <= 2"  # noqa: E501
AMENDED = {"late": {"amend": "1 minute"}, "sinks": [{"delta": "/lake/out", "key": ["start", "k"]}]}


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path, "r")


def of_stream(flow: Flow, expect: Any) -> Rule:
    flow.stream = {"expect": json.loads(json.dumps(expect))}  # YAML would write what occurs twice as an anchor
    return flow.rule()


def of_results(flow: Flow, expect: Any, sql: str = TUMBLING, **settings: Any) -> Rule:
    flow.sql, flow.settings = sql, {"expect": expect, **settings}
    return flow.rule()


def test_a_row_fails_by_default_so_that_nothing_wrong_is_passed_on(flow: Flow) -> None:
    rule = of_stream(flow, {"positive": {"check": "v > 0"}})
    assert rule.streams["events"].expect == {"positive": Expectation(check="v > 0", on_fail="fail")}
    assert Rule.from_json(rule.to_json()) == rule
    assert rule.expect == {}


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ("v > 0", "expect: expected expectations by name, {NAME: {check: CONDITION, on_fail: drop | dead | fail"),
        ([ONE], "expect: expected expectations by name"),
        ({}, "expect: expected expectations by name"),
        ({"a": "v > 0"}, "expect: expected a: {check: CONDITION, on_fail: drop | dead | fail | warn}"),
        ({"a": None}, "expect: expected a: {check: CONDITION"),
        ({"a b": ONE}, "expected expectation names of letters, digits and _ (and not window), found 'a b'"),
        ({"a": ONE, "A": ONE}, "expected expectation names that differ in more than upper and lower case, found a, A"),
        ({"a" * 64: ONE}, "expected expectation names of at most 63 characters"),
        ({f"e{i}": ONE for i in range(61)}, "expected at most 60 expectations, found 61"),
        ({"a": {"on_fail": "drop"}}, "expect.a.check: expected `check: ...`, found nothing"),
        ({"a": {"check": "v > 0", "onfail": "drop"}}, "expect.a.onfail: unknown key 'onfail': did you mean 'on_fail'?"),
        (
            {"a": {"check": "v > 0", "on_fail": "skip"}},
            "expect.a.on_fail: expected fail (the run stops), dead (the",
        ),
        ({"a": {"check": True}}, "expect.a.check: expected text, found true"),
        ({"a": {"check": " "}}, "expect.a.check: expected text that is not empty"),
        ({"a": {"check": "1 = 1"}}, "expect.a.check: expected a condition that reads a column of the stream"),
        ({"a": {"check": "v >"}}, "expect.a.check: sql line 1, column 3: cannot be parsed at >"),
        ({"a": {"check": "v > 0, n > 0"}}, "expect.a.check: sql line 1, column 1: expected one expression"),
        ({"a": {"check": "v > 0; DROP"}}, "expect.a.check: "),
        ({"a": {"check": "count(*) > 0"}}, "aggregate count without GROUP BY window(...): that is not supported"),
        ({"a": {"check": "count(*) > 0"}}, "; a check is a condition on one row by itself"),
        ({"a": {"check": "sum(v) OVER () > 0"}}, "OVER in an expression over one row"),
        ({"a": {"check": "k IN (SELECT k FROM t)"}}, "IN (SELECT ...)"),
        ({"a": {"check": "v > (SELECT 1)"}}, "a subquery in an expression"),
        ({"a": {"check": "rand() < v"}}, "function rand: a replay would give a different answer"),
        ({"a": {"check": "at < now()"}}, "elsewhere, each epoch could decide differently about the same rows"),
        ({"a": {"check": "at < current_date()"}}, "it reads the clock, so a replay would give a different answer"),
        ({"a": {"check": "reflect('java.lang.Math', 'abs', v) = 1"}}, "function reflect"),
        ({"a": {"check": "explode(xs) > 0"}}, "function explode"),
    ],
)
def test_mistakes_in_an_expectation_are_told_before_spark(flow: Flow, expect: Any, said: str) -> None:
    with pytest.raises(RuleInvalid) as found:
        of_stream(flow, expect)
    assert said in str(found.value)
    assert "streams.events.expect" in str(found.value)


@pytest.mark.parametrize(
    ("expect", "said"),
    [
        (
            {"a": {"check": "m > 0"}},
            "expect.a.check: expected columns of the result, found m; columns: start, k, c",
        ),
        ({"a": {"check": "totl > 0"}}, "expected columns of the result, found totl; did you mean total?"),
        (
            {"a": {"check": "c > 0", "on_fail": "dead"}},
            "expect.a.on_fail: expected fail, drop or warn: a result is",
        ),
        ({"a": {"check": "C > 0 AND Start IS NOT NULL", "on_fail": "drop"}}, None),
        ({"a": {"check": "window.start > 0"}}, "expected columns of the result, found window"),
    ],
)
def test_of_results_their_columns_are_known_from_the_sql(flow: Flow, expect: Any, said: str | None) -> None:
    if said is None:
        assert of_results(flow, expect).expect["a"].on_fail == "drop"
        return
    with pytest.raises(RuleInvalid) as found:
        of_results(flow, expect)
    assert said in str(found.value)


def test_of_a_class_they_are_those_that_it_declares(flow: Flow) -> None:
    flow.process = "totals:Totals"
    with pytest.raises(RuleInvalid, match="expected columns of the result, found nothing_like_it; columns: "):
        of_results(flow, {"a": {"check": "nothing_like_it > 0"}})


@pytest.mark.parametrize(
    ("sql", "settings"),
    [(RUNNING, KEYED), (TOP, {**KEYED, "sinks": [{"delta": "/lake/out", "key": ["k", "place"]}]}), (TUMBLING, AMENDED)],
)
def test_a_result_that_takes_an_earlier_one_s_place_cannot_be_dropped(
    flow: Flow, sql: str, settings: dict[str, Any]
) -> None:
    check = "k  IS NOT NULL"
    with pytest.raises(RuleInvalid, match=r"which would stay .* `delete: not coalesce\(k IS NOT NULL, false\)`"):
        of_results(flow, {"a": {"check": check, "on_fail": "drop"}}, sql, **settings)
    for on_fail in ("warn", "fail"):
        of_results(flow, {"a": {"check": check, "on_fail": on_fail}}, sql, **settings)


@pytest.mark.parametrize("sql", [STATELESS, TUMBLING, HOPPING])
def test_what_is_expected_may_change_and_what_is_folded_stays(flow: Flow, sql: str) -> None:
    flow.sql = sql
    before = flow.rule()
    flow.stream = {"expect": {"a": ONE}}
    flow.settings = {"expect": {"b": {"check": "k IS NOT NULL", "on_fail": "drop"}}}
    after = flow.rule()
    assert before.hash != after.hash
    check_edit(before, after)
    check_edit(after, before)


def test_a_check_s_columns_are_read_and_set_apart_and_not_folded(flow: Flow) -> None:
    flow.sql = "SELECT window.start AS start, count(*) AS c FROM events GROUP BY window(at, '1 minute')"
    rule = of_stream(flow, {"a": {"check": "n > 0 AND `odd name` = 1"}})
    found = {"k": "string", "at": "timestamp", "n": "long", "odd name": "long"}
    assert needed(rule, "events", found) == ["at"]
    assert with_checked_columns(rule, "events", ["at"], found) == ["at", "n", "odd name"]
    check_columns(rule, "events", found)
    with pytest.raises(WrongColumn, match=r"events: expect a: expected columns of the stream, found n; columns: k"):
        check_columns(rule, "events", {"k": "string", "at": "timestamp"})


@pytest.mark.parametrize(
    ("check", "columns"),
    [
        ("A > 0 AND b.c.d = a", ["a", "b"]),
        ("exists(xs, x -> x > y)", ["xs", "y"]),
        ("k RLIKE '^[0-9]+$' -- digits", ["k"]),
        ("CASE WHEN `odd name` > 0 THEN true ELSE array_contains(xs, 1) END", ["odd name", "xs"]),
    ],
)
def test_the_columns_of_a_condition(check: str, columns: list[str]) -> None:
    assert sorted(columns_in(check)) == sorted(columns)


def test_the_strictest_decides_then_the_first_by_name() -> None:
    def one(on_fail: Any) -> Expectation:
        return Expectation(check="v > 0", on_fail=on_fail)

    expect = {"d": one("warn"), "c": one("drop"), "b": one("dead"), "a": one("drop"), "z": one("fail")}
    assert [name for name, _ in ordered(expect)] == ["z", "b", "a", "c", "d"]


def test_a_reason_is_one_line() -> None:
    assert reason("a", "v\n  > 0") == "expect a fails: v > 0"
    assert len(reason("a", "v > 0 OR " * 99)) <= len("expect a fails: ") + 200


def test_ledgers_without_expectations_read_and_hash_as_they_did() -> None:
    text = '{"read":3,"filtered":0,"dead":1,"late":0,"folded":2}'
    assert Counts.model_validate_json(text).model_dump_json() == text
    body: dict[str, Any] = {"entry": "v1", "watermark": None, "maxima": {}, "heard": {}, "format": 5}
    commit = Commit(**body, counts={"s": Counts(read=3, folded=3)})
    assert "expected" not in commit.model_dump_json() and "dropped" not in commit.model_dump_json()
    intent = Intent(**body, counts=commit.counts, watermark_before=None, rule="", rule_hash="", zone="UTC", ansi=True)
    assert Intent.model_validate_json(intent.model_dump_json()).digest == intent.digest


COUNTS = {"events": Counts(read=10, filtered=1, dropped=2, dead=2, late=1, folded=4,
                           expected={"a": Failed(failed=3, taken=2), "b": Failed(failed=1, taken=1)})}  # fmt: skip


def test_what_is_told_of_each(flow: Flow) -> None:
    flow.stream = {"expect": {"a": ONE, "b": {"check": "n > 0", "on_fail": "dead"}}}
    rule = of_results(flow, {"b": {"check": "c > 0", "on_fail": "warn"}})
    commit = Commit(entry="v1", watermark=None, maxima={}, counts=COUNTS, expected={"b": Failed(failed=7)})
    assert total(COUNTS).parts == {"read": 10, "filtered": 1, "dropped": 2, "dead": 2, "late": 1, "folded": 4}
    assert failing(commit) == {"events.a": 3, "events.b": 1, "results.b": 7}
    found = counted(yaml.safe_load(commit.model_dump_json()))
    assert [one.text() for one in expectation_results(rule, found)] == [
        "stream events: b (n > 0), dead: 1 row failed, 1 of them dead by it",
        "stream events: a (v > 0), drop: 3 rows failed, 2 of them dropped by it",
        "results: b (c > 0), warn: 7 rows failed",
    ]
    assert expectation_results(rule, found) == uncommitted_results(rule, COUNTS, {"b": Failed(failed=7)})
    gone = of_stream(flow, {"b": {"check": "n > 0", "on_fail": "dead"}})
    assert "stream events: a (no longer in the rule): 3 rows failed, 2 of them dropped or dead by it" in [
        one.text() for one in expectation_results(gone, found)
    ]
    assert expectation_results(rule, {})[0].text() == "stream events: b (n > 0), dead: no rows failed"


RULE = {"streams": {"s": {"expect": {"d": {"on_fail": "drop"}, "k": {"on_fail": "dead"}, "f": {"on_fail": "fail"},
                                     "w": {"on_fail": "warn"}}}, "t": {}},
        "expect": {"r": {"on_fail": "drop"}, "v": {"on_fail": "warn"}}}  # fmt: skip
GOOD = {"s": {"read": 20, "filtered": 2, "dropped": 3, "dead": 4, "late": 1, "folded": 10,
              "expected": {"d": {"failed": 4, "taken": 3}, "k": {"failed": 3, "taken": 3},
                           "f": {"failed": 0, "taken": 0}, "w": {"failed": 16, "taken": 0}}},
        "t": {"read": 1, "filtered": 0, "dead": 0, "late": 0, "folded": 1}}  # fmt: skip
RESULTS = {"r": {"failed": 2, "taken": 2}, "v": {"failed": 5, "taken": 0}}


def test_an_auditor_finds_nothing_where_every_row_is_accounted_for() -> None:
    assert list(misled(RULE, GOOD)) == list(misled_results(RULE, RESULTS)) == []
    old = {"streams": {"s": {}}}  # of a ledger from before there were any
    assert list(misled(old, {"s": GOOD["t"]})) == list(misled_results(old, {})) == []


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        (("s", "dropped"), 4, "stream s: 4 rows were dropped, but by its expectations 3"),
        (("s", "dead"), 2, "stream s: 2 rows were dead, but by its expectations 3"),
        (("s", "expected", "d", "taken"), 5, "expect d: 4 rows failed and 5 were taken"),
        (("s", "expected", "d", "taken"), 2, "3 rows were dropped, but by its expectations 2"),
        (("s", "expected", "d", "failed"), 7, "expect d: 7 rows failed, yet only 6 were dropped or made dead"),
        (("s", "expected", "f", "failed"), 1, "expect f: 1 rows failed, and the epoch continued (on_fail: fail)"),
        (("s", "expected", "w", "failed"), 17, "expect w: 17 rows failed and 0 were taken, of 16"),
        (("s", "expected", "w", "taken"), 1, "taken by an expectation that takes none (on_fail: warn)"),
        (("s", "expected"), {"d": {"failed": 0, "taken": 0}}, "expectations d are counted, the rule has d, f, k, w"),
        (
            ("t", "expected"),
            {"x": {"failed": 0, "taken": 0}},
            "stream t: expectations x are counted, the rule has none",
        ),
        (("t", "dropped"), 1, "stream t: 1 rows were dropped, but by its expectations 0"),
    ],
)
def test_an_auditor_finds_each_count_that_was_changed(where: tuple[str, ...], value: Any, said: str) -> None:
    counts: dict[str, Any] = copy.deepcopy(GOOD)
    at = counts
    for key in where[:-1]:
        at = at[key]
    at[where[-1]] = value
    assert any(said in what for what in misled(RULE, counts)), list(misled(RULE, counts))


def test_of_results_too() -> None:
    assert list(misled_results(RULE, {})) == ["results: expectations none are counted, the rule has r, v"]
    more = {**RESULTS, "r": {"failed": 2, "taken": 3}}
    assert list(misled_results(RULE, more)) == ["results: expect r: 2 rows failed and 3 were taken, of some"]
    passed = {**RESULTS, "r": {"failed": 2, "taken": 1}}
    assert "failed, yet only 1 were dropped" in next(misled_results(RULE, passed))


def test_a_backfill_makes_no_row_dead() -> None:
    assert any("expect k: 3 rows failed, and the epoch continued" in what for what in misled(RULE, GOOD, dead=False))


def test_defaults_of_the_folder_may_hold_expectations(flow: Flow) -> None:
    path = flow.write_rule()
    path.with_name("_defaults.yaml").write_text("expect: {few: {check: 'c < 100', on_fail: warn}}\n")
    assert load_rule(path, {}).expect["few"].on_fail == "warn"
