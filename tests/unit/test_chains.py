"""Streams that are other rules' sinks, by the rules' names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.rules.chains import in_order, upstream
from floodmark.core.rules.rule import Rule, load_rule, load_rules
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.errors import RuleInvalid

ENV = {"LAKE": "/lake"}


def write(folder: Path, name: str, streams: str, sinks: str = "", more: str = "") -> Path:
    """A stateless rule of this name, its sink at /lake/NAME where no other are given."""
    path = folder / f"{name}.yaml"
    sinks = sinks or f"[{{delta: '${{LAKE}}/{name}'}}]"
    path.write_text(f"rule: {name}\nstreams: {streams}\nsql: SELECT a FROM s\nsinks: {sinks}\n{more}")
    return path


def source(folder: Path, name: str = "first", sinks: str = "", more: str = "") -> Path:
    return write(folder, name, "{s: {delta: /lake/input}}", sinks, more)


def fault(path: Path) -> str:
    with pytest.raises(RuleInvalid) as caught:
        load_rule(path, ENV)
    return str(caught.value)


def test_a_stream_is_the_only_table_of_a_rule(tmp_path: Path) -> None:
    source(tmp_path, sinks="[{console: true, qos: 1}, {delta: '${LAKE}/out'}]")
    stream = load_rule(write(tmp_path, "second", "{s: {rule: first}}"), ENV).streams["s"]
    assert (stream.kind, stream.address, stream.rule) == ("delta", "/lake/out", "first")


@pytest.mark.parametrize(("name", "address"), [("out", "/lake/out"), ("named", "/lake/more")])
def test_a_sink_has_its_own_name_or_that_of_its_folder(tmp_path: Path, name: str, address: str) -> None:
    source(tmp_path, sinks="[{delta: /lake/out}, {delta: /lake/more, name: named}]")
    assert load_rule(write(tmp_path, "second", f"{{s: {{rule: first, sink: {name}}}}}"), ENV).streams["s"].address == (
        address
    )


def test_values_are_those_of_the_environment(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "dev.env").write_text("LAKE=/dev\n")
    source(rules)
    rule = load_rule(write(rules, "second", "{s: {rule: first}}"), {**ENV, "FLOODMARK_ENV": "dev"})
    assert rule.streams["s"].address == "/dev/first"


@pytest.mark.parametrize(
    ("stream", "sinks", "said"),
    [
        ("{rule: frist}", "", "streams.s.rule: unknown rule 'frist': did you mean 'first'?"),
        ("{rule: other}", "", "unknown rule 'other': expected one of first, second"),
        ("{rule: second}", "", "expected another rule than this one, found second"),
        ("{rule: first, sink: outt}", "[{delta: /lake/out}, {delta: /lake/b}]", "did you mean 'out'?"),
        ("{rule: first}", "[{delta: /lake/a}, {delta: /lake/b}]", "expected `sink: NAME` next to it"),
        ("{rule: first, sink: a}", "[{delta: /one/a}, {delta: /two/a}]", "expected one sink of rule first"),
        ("{rule: first}", "[{console: true, qos: 1}]", "expected a rule with a sink that is a table"),
        ("{rule: first}", "[{delta: /lake/a, key: [a]}]", "`lookups: {NAME: {delta: /lake/a}}`"),
        ("{rule: first}", "[{dleta: /lake/a}]", "first.yaml:4: sinks[0]"),
        ("{rule: first}", "[{delta: '${NOWHERE}/a'}]", "the variable NOWHERE is not set"),
        ("{rule: First}", "", "expected a name of at most 63 lowercase letters"),
        ("{rule: first, delta: /lake/x}", "", "expected exactly one kind of stream (delta, "),
        ("{delta: /lake/x, sink: a}", "", "expected `sink` only with `rule`"),
    ],
)
def test_what_cannot_be_read_is_refused(tmp_path: Path, stream: str, sinks: str, said: str) -> None:
    source(tmp_path, sinks=sinks)
    found = fault(write(tmp_path, "second", f"{{s: {stream}}}"))
    assert "second.yaml:2: streams.s" in found
    assert said in found


NONE = "epoch: none\nrebuild: true\n"


def test_rows_that_each_run_replaces_can_be_read_by_who_is_rebuilt_too(tmp_path: Path) -> None:
    source(tmp_path, more=NONE)
    found = fault(write(tmp_path, "second", "{s: {rule: first}}"))
    assert "second.yaml:2: streams.s" in found and "found first (`rebuild: true`): read its table as" in found
    assert load_rule(write(tmp_path, "second", "{s: {rule: first}}", more=NONE), ENV).streams["s"].rule == "first"
    source(tmp_path, "merged", sinks="[{delta: /lake/merged, key: [a]}]")
    assert load_rule(write(tmp_path, "third", "{s: {rule: merged}}", more=NONE), ENV).rebuild


def test_what_the_installation_says_of_the_other_rule_counts(tmp_path: Path) -> None:
    source(tmp_path)
    path, env = (
        write(tmp_path, "second", "{s: {rule: first}}", more="rebuild: false\n"),
        ENV | {"FLOODMARK_REBUILD": "1"},
    )
    with pytest.raises(RuleInvalid, match="found first"):
        load_rule(path, env)
    source(tmp_path, more="epoch: {max_files: 9}\n")
    assert not load_rule(path, env).rebuild


def test_a_mistake_elsewhere_in_a_file_keeps_nobody_from_its_table(tmp_path: Path) -> None:
    source(tmp_path, more="qoss: 1\n")
    write(tmp_path, "second", "{s: {rule: first}}")
    good, bad = load_rules(tmp_path, ENV)
    assert (list(good), list(bad)) == (["second"], ["first.yaml"])


def test_a_variable_that_only_the_other_rule_wants_is_its_own_matter(tmp_path: Path) -> None:
    write(tmp_path, "first", "{s: {delta: '${NOWHERE}/in'}}")
    write(tmp_path, "second", "{s: {rule: first}}")
    good, bad = load_rules(tmp_path, ENV)
    assert (list(good), list(bad)) == (["second"], ["first.yaml"])


def test_many_ways_to_one_rule_are_looked_at_once(tmp_path: Path) -> None:
    """Forty rules, each of which reads the one before by two streams: a million millions of ways."""
    source(tmp_path, "r0", more="qos: 1\n")
    for i in range(1, 41):
        path = write(tmp_path, f"r{i}", f"{{s: {{rule: r{i - 1}}}, t: {{rule: r{i - 1}}}}}")
        path.write_text(path.read_text().replace("FROM s", "FROM s UNION ALL SELECT a FROM t"))
    assert load_rule(path, ENV).streams["s"].qos == 1


def test_each_rule_of_a_cycle_is_refused_and_who_reads_it_stays(tmp_path: Path) -> None:
    write(tmp_path, "a", "{s: {rule: c}}")
    write(tmp_path, "b", "{s: {rule: a}}")
    write(tmp_path, "c", "{s: {rule: b}}")
    write(tmp_path, "reader", "{s: {rule: a}}")
    good, bad = load_rules(tmp_path, ENV)
    assert list(good) == ["reader"]
    assert sorted(bad) == ["a.yaml", "b.yaml", "c.yaml"]
    assert "expected no cycle, found a reads c reads b reads a" in str(bad["a.yaml"])


def test_a_schedule_after_others_needs_others(tmp_path: Path) -> None:
    source(tmp_path)
    assert (
        load_rule(write(tmp_path, "b", "{s: {rule: first}}", more="schedule: upstream\n"), ENV).schedule == "upstream"
    )
    assert "expected a stream that names the rule it reads" in fault(source(tmp_path, "c", more="schedule: upstream\n"))


def test_rules_come_after_those_that_they_read(tmp_path: Path) -> None:
    source(tmp_path)
    write(tmp_path, "b", "{s: {delta: /lake/c}}")
    write(tmp_path, "c", "{s: {rule: first}}")
    rules, _ = load_rules(tmp_path, ENV)
    assert upstream(rules.values()) == {"first": set(), "b": {"c"}, "c": {"first"}}
    assert [rule.rule for rule in in_order(list(rules.values()))] == ["first", "c", "b"]


def test_tables_that_feed_each_other_are_in_some_order(tmp_path: Path) -> None:
    write(tmp_path, "a", "{s: {delta: /lake/b}}")
    write(tmp_path, "b", "{s: {delta: /lake/a}}")
    rules, _ = load_rules(tmp_path, ENV)
    assert {rule.rule for rule in in_order(list(rules.values()))} == {"a", "b"}


def test_a_rule_goes_on_whether_it_names_a_table_or_the_rule_that_writes_it(tmp_path: Path) -> None:
    source(tmp_path)
    by_address = load_rule(write(tmp_path, "b", "{s: {delta: /lake/first}}"), ENV)
    by_name = load_rule(write(tmp_path, "b", "{s: {rule: first}}"), ENV)
    check_edit(by_address, by_name)
    check_edit(by_name, by_address)


def test_delivery_is_the_weakest_of_the_chain(tmp_path: Path) -> None:
    source(tmp_path, more="qos: 1\n")
    write(tmp_path, "second", "{s: {rule: first}}")
    rule = load_rule(write(tmp_path, "third", "{s: {rule: second}}"), ENV)
    [found] = delivery(rule)
    assert (found.delivery, found.weakest, found.refused) == ("at least once", "source", False)


def test_what_a_ledger_holds_reads_back(tmp_path: Path) -> None:
    source(tmp_path)
    rule = load_rule(write(tmp_path, "second", "{s: {rule: first}}"), ENV)
    assert Rule.from_json(rule.to_json()) == rule


def test_the_example_of_the_documentation(tmp_path: Path) -> None:
    checkout = Path(__file__).parents[2]
    shutil.copy(checkout / "rules" / "departure_delays.yaml", tmp_path)
    text = (checkout / "docs" / "reference" / "chains.md").read_text()
    (tmp_path / "delays_by_day.yaml").write_text(text.split("```yaml\n")[1].split("```")[0])
    rules, errors = load_rules(tmp_path, ENV)
    assert errors == {}
    assert rules["delays_by_day"].streams["delays"].address == rules["departure_delays"].sinks[0].address
