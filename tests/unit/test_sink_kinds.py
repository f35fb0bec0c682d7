"""A kind of sink says what it can do; what more is asked is refused by name, and nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from floodmark.connectors.ports.registry import sinks
from floodmark.core.rules import kinds
from floodmark.core.rules.kinds import SinkCan, SinkKind
from floodmark.core.rules.rule import Rule, json_schema, load_rule
from floodmark.core.rules.sinks.delivery import delivery
from floodmark.errors import Refused, RuleInvalid


class Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    shelves: int = 3


SHELF = SinkKind(Said, "shelves, for tests", SinkCan(qos=1), lambda said: f"shelf://{said.name}")
RULE = """\
rule: counted
streams: {events: {delta: /lake/in}}
sql: SELECT k, n FROM events
qos: 1
sinks: [{delta: /lake/out}, {shelf: {name: books}}]
"""


@pytest.fixture
def load(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Rule]:
    monkeypatch.setitem(kinds.SINKS, "shelf", f"{__name__}:SHELF")

    def loaded(text: str) -> Rule:
        (place / "counted.yaml").write_text(text)
        return load_rule(place / "counted.yaml", {})

    return loaded


def test_a_rule_names_a_kind_that_was_registered(load: Callable[[str], Rule]) -> None:
    rule = load(RULE)
    assert (rule.sinks[1].kind, rule.sinks[1].address) == ("shelf", "shelf://books")
    assert rule.sinks[1].options == {"name": "books", "shelves": 3}
    assert Rule.from_json(rule.to_json()) == rule
    assert delivery(rule)[1].sink_capability == "at least once"
    assert "shelf" in json_schema()["$defs"]["WrittenSink"]["properties"]


def test_a_kind_that_nothing_writes_is_an_error_and_not_left_out(load: Callable[[str], Rule]) -> None:
    with pytest.raises(Refused, match=r"sink books: .* found shelf, .* it would receive no rows"):
        sinks(load(RULE), None)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("qos: 1", "qos: 2", "give the shelf sink `qos: 1`"),
        ("books}", "books}, key: [k]", "5: sinks[1].key: expected a kind of sink that supports upserts (delta, "),
        ("books}", "books}, partition_by: [k]", "5: sinks[1].partition_by: expected a delta sink"),
        ("books}", "books}, epoch_columns: true", "5: sinks[1].epoch_columns: expected a delta sink"),
        ("qos: 1", "qos: 1\nepoch: none\nrebuild: true", "7: sinks[1].shelf: expected a sink whose rows can be re"),
        ("{name: books}", "{nam: books}", "5: sinks[1].shelf.nam: unknown key 'nam': did you mean 'name'?"),
        ("{name: books}", "{name: books, shelves: many}", "5: sinks[1].shelf.shelves: "),
        ("shelf: {name: books}", "shelv: 1", "5: sinks[1].shelv: unknown key 'shelv': did you mean 'shelf'?"),
        ("shelf: {name: books}", "key: [k]", "5: sinks[1]: expected exactly one kind of sink: delta, conso"),
        ("{shelf: {name: books}}", "{shelf: {name: a}, console: true}", "5: sinks[1]: expected exactly one kind of"),
    ],
)  # fmt: skip
def test_what_a_kind_cannot_do_is_refused_by_name(
    load: Callable[[str], Rule], old: str, new: str, problem: str
) -> None:
    assert old in RULE
    with pytest.raises(RuleInvalid) as fault:
        load(RULE.replace(old, new))
    assert problem in str(fault.value)
