"""Tables in messages: the name first, the address once, and last."""

from __future__ import annotations

import pytest

from floodmark.core.rules.model import Sink
from floodmark.core.text.tablenames import (
    about_ledger,
    about_named,
    about_sink,
    about_table,
    last_part,
    problem_in,
    table_label,
)


@pytest.mark.parametrize(
    ("name", "label"),
    [("sink//lake/out", "sink out"), ("sink/s3://b/c/out/", "sink out"), ("sink/out", "sink out"),
     ("state/groups", "state groups"), ("late", "late"), ("dead", "dead")],
)  # fmt: skip
def test_the_ledgers_name_of_a_table_for_people(name: str, label: str) -> None:
    assert table_label(name) == label


def test_a_message_begins_with_the_name_and_ends_with_the_address() -> None:
    assert about_sink("/lake/a/out", "it is full") == "sink out: it is full. Table: /lake/a/out"
    assert about_table("file:///lake/out", "gone") == "table out: gone. Table: /lake/out"
    assert about_table("/home/r/state/g2/groups", "gone") == "state groups: gone. Table: /home/r/state/g2/groups"
    assert about_ledger("/home/r/ledger", "torn") == "the ledger of rule r: torn. Table: /home/r/ledger"
    assert about_named("sink//lake/out", "gone") == about_sink("/lake/out", "gone")
    assert about_named("sink//lake/out, epoch 7", "two") == "sink out, epoch 7: two. Table: /lake/out"
    assert about_named("state/groups", "gone") == "state groups: gone"


@pytest.mark.parametrize(
    "problem", ["`floodmark adopt RULE /lake/out`", "/lake/out/_delta_log/1.json is gone", "at /lake/out."]
)
def test_an_address_that_the_problem_has_is_not_repeated(problem: str) -> None:
    assert about_sink("/lake/out", problem) == f"sink out: {problem}"


@pytest.mark.parametrize("problem", ["/lake/out2 is another", "/lake/out-b is another", "/lake/out.old is another"])
def test_an_address_that_only_begins_alike_is_another(problem: str) -> None:
    assert about_sink("/lake/out", problem).endswith(". Table: /lake/out")


def test_the_problem_can_be_framed_anew() -> None:
    assert problem_in(about_table("/home/r/ledger", "it is torn"), "/home/r/ledger") == "it is torn"


def test_a_sink_has_the_name_of_the_rule_else_its_address_last_part_else_its_kind() -> None:
    sinks = [Sink(kind="delta", address="/l/x", name="n"), Sink(kind="delta", address="/l/x/"), Sink(kind="console")]
    assert [one.label for one in sinks] == ["n", "x", "console"]
    assert last_part("out") == "out"
