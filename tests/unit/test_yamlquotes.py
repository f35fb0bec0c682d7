"""Values that need quotes: which text is found where YAML's parser stops, and what to write instead."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.text.yamlquotes import quoted
from floodmark.core.text.yamltree import YamlRefused, read_yaml


def told(text: str) -> str:
    with pytest.raises(YamlRefused) as caught:
        read_yaml(text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("path: {{ ds }}", "{{ ds }}"),
        ("path: {{ ds }}/x", "{{ ds }}/x"),
        ("a: {path: /x/{{ ds }}}", "/x/{{ ds }}"),
        ("a: {path: ${LAKE}/x, b: 1}", "${LAKE}/x"),
        ("a: [x, ${LAKE:-/l}/y]", "${LAKE:-/l}/y"),
        ("a: @hourly  # often", "@hourly"),
        ("a: `x y` > 1", "`x y` > 1"),
        ("- a: %x", "%x"),
        ("a: */5 * * * *", "*/5 * * * *"),
        ("a: & more", "& more"),
        ("a: !important thing", "!important thing"),
        ("a: ! x", "! x"),
        ("a: x: y", "x: y"),
        ("- a: counts by:", "counts by:"),
        ("a: [draft] x", "[draft] x"),
        ("a: {draft} x", "{draft} x"),
        ('a: "x" and y', '"x" and y'),
        ("a: 'x' = k", "'x' = k"),
        ("a: > 5", "> 5"),
        ("a: |x", "|x"),
        ("a: - x", "- x"),
        ("a: ? x", "? x"),
        ("a: [b, @c]", "@c"),
        ("a: {b: c[0] > 1, d: 2}", "c[0] > 1"),
        ("a: {b: {c: v > 0 AND m['a'] = 1}}", "v > 0 AND m['a'] = 1"),
        ("a: {b: 1 hour: x, d: 2}", "1 hour: x"),
    ],
)
def test_the_answer_is_the_value_in_quotes(line: str, wrong: str) -> None:
    """What it says to write is read as the value that was meant."""
    said = told(f"z: 1\n{line}\ny: 2\n" if line[0] != "-" else f"z:\n{line}\n")
    found = re.fullmatch(r"expected quotes around a value .*, found (.*): write (.*)", said)
    assert found is not None, said
    assert (found[1], yaml.safe_load(found[2])) == (wrong, wrong)
    assert read_yaml(line.replace(wrong, found[2])).value


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n  b: 2\n", "a: {b: 1\nc: 2\n", "a: {b: 1,, c: 2}\n", "a: 'x\nb: 2\n", "a:b\nc: 1\n",
        "x: |\n  a\n b: c: d\n",
        "a: {'b': 'c' 'd'}\n", "a:\n\tb: 1\n",
    ],
)  # fmt: skip
def test_other_mistakes_are_not_answered_with_quotes(text: str) -> None:
    assert "around a value" not in told(text)


def test_an_anchor_a_tag_and_an_alias_are_called_so() -> None:
    assert told("a: &big {b: 1}\n").endswith("are not allowed; write the value out")
    assert told("a: *x\n").endswith("write the value out, or, for text, '*x'")
    assert told("a: !mine {}\n") == "tag '!mine' is not allowed; remove it"
    assert "tag" in told("a: !!set x\n")


def test_a_value_that_may_be_a_secret_is_not_repeated() -> None:
    said = told("a: user:pass: x@y\n")
    assert "pass" not in said and said.endswith("put it in quotes")
    assert told(f"a: @{'x' * 90}\n").endswith("found none: put it in quotes")


def test_quotes_that_were_meant_as_such_are_replaced() -> None:
    assert 'write "the rule\'s words"' in told("a: 'the rule's words'\n")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)).filter(lambda text: text[:1] not in ("'", '"')))
def test_a_text_in_quotes_is_the_text(text: str) -> None:
    assert yaml.safe_load(quoted(text)) == text
