"""The delivery calculus: the weakest of source, rule and sink."""

from __future__ import annotations

import pytest

from floodmark.core.rules.rule import Rule, Sink, Stream
from floodmark.core.rules.sinks.delivery import delivery


def rule(kind: str, asked: int, own: int | None = None) -> Rule:
    sink = Sink(kind=kind, address="/lake/out" if kind == "delta" else None, qos=asked if own is None else own)
    stream = Stream(kind="delta", address="/lake/in")
    return Rule(rule="r", streams={"s": stream}, sql="SELECT a FROM s", qos=asked, sinks=(sink,), hash="0")


@pytest.mark.parametrize(
    ("kind", "asked", "own", "given", "weakest", "refused", "fix"),
    [
        ("delta", 2, None, "exactly once", "rule", False, None),
        ("delta", 1, None, "at least once", "rule", False, "raise `qos` to 2"),
        ("delta", 0, None, "at most once", "rule", False, "raise `qos` to 2"),
        ("delta", 2, 1, "at least once", "rule", False, "raise `qos` to 2"),
        ("console", 2, None, "at least once", "sink", True, "give the console sink `qos: 1`"),
        ("console", 2, 1, "at least once", "rule", False, None),
        ("console", 1, None, "at least once", "rule", False, None),
        ("console", 0, None, "at most once", "rule", False, "raise `qos` to 1"),
    ],
)
def test_delivery(
    kind: str, asked: int, own: int | None, given: str, weakest: str, refused: bool, fix: str | None
) -> None:
    [found] = delivery(rule(kind, asked, own))
    assert (found.delivery, found.weakest, found.refused, found.fix) == (given, weakest, refused, fix)


def test_kept_output_makes_a_delta_sink_at_least_once_without_refusing_it() -> None:
    [found] = delivery(rule("delta", 2), kept_output=True)
    assert (found.delivery, found.weakest, found.refused) == ("at least once", "sink", False)
    assert found.sink_capability == "at least once"
    assert "without --keep-output" in str(found.fix)


def test_kept_output_does_not_strengthen_at_most_once() -> None:
    [found] = delivery(rule("delta", 0), kept_output=True)
    assert found.delivery == "at most once"


def test_a_target_that_keeps_its_rows_in_a_reset_is_at_least_once_from_then_on() -> None:
    target = {"kind": "postgres", "address": "postgres://shop/public.rows", "options": {"connection": "shop"}}
    kept, emptied = Sink(**target, on_reset="keep"), Sink(**target)
    both = rule("delta", 2).model_copy(update={"sinks": (kept, emptied)})
    assert [one.delivery for one in delivery(both)] == ["exactly once"] * 2
    [first, second] = delivery(both, generation=2)
    assert (first.delivery, first.weakest, first.refused) == ("at least once", "sink", False)
    assert "come again (`on_reset: keep`)" in str(first.fix)
    assert (second.delivery, second.fix) == ("exactly once", None)
