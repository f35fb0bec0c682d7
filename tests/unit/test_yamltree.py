"""YAML as rule files use it: strict, with places."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.core.text.yamltree import MAX_BYTES, Place, YamlRefused, read_yaml


def test_only_true_and_false_are_booleans_and_dates_stay_text() -> None:
    text = "on: yes\noff: no\na: true\nb: 2001-01-31\nc: 1:30\nd: ~\ne: 1.5\nf: 010\ng: 0x1A\n"
    assert read_yaml(text).value == {
        "on": "yes", "off": "no", "a": True, "b": "2001-01-31", "c": "1:30", "d": None, "e": 1.5, "f": 10, "g": "0x1A",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key 'a': it is already in line 1"),
        ("a: &x 1\n", 1, "anchors"),
        ("a: 1\nb: *x\n", 2, "anchors"),
        ("a: !!python/name:os.system x\n", 1, "tag"),
        ("a: !mine {}\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("? [a]\n: 1\n", 1, "expected a name as a key"),
        ("a: [1\n", 2, "expected"),
        ("a: " + "[" * 100, 1, "nested deeper"),
        ("a: \x00\n", 1, "is not allowed; leave it out"),
        ("a: 1\r\nb:\n- x\x07\n", 3, r"the character '\\x07' is not allowed; leave it out"),
        ("a: '" + "x" * MAX_BYTES + "'", 1, "at most 1000000 bytes"),
    ],
)
def test_refused_with_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(YamlRefused, match=words) as caught:
        read_yaml(text)
    assert caught.value.line == line


def test_a_character_that_yaml_lacks_is_refused_with_its_column() -> None:
    with pytest.raises(YamlRefused) as caught:
        read_yaml("a: 1\nb: x\x00\n")
    assert (caught.value.line, caught.value.column) == (2, 5)


def test_an_unknown_tag_on_a_list_is_refused() -> None:
    with pytest.raises(YamlRefused, match="tag"):
        read_yaml("a: !mine [1]\n")


def test_places_are_those_of_keys_and_the_nearest_parent_stands_in() -> None:
    tree = read_yaml("a:\n  b: 1\n  c: [x, y]\n")
    assert tree.place(("a", "b")) == Place(2, 3)
    assert tree.place(("a", "c", 1)) == Place(3, 10)
    assert tree.place(("a", "missing", "deep")) == Place(1, 1)


@pytest.mark.parametrize("indent", ["", "2"])
def test_a_literal_block_maps_its_lines_onto_the_file(indent: str) -> None:
    tree = read_yaml(f"x: 1\nsql: |{indent}\n  SELECT\n    b\n")
    block = tree.blocks[("sql",)]
    assert block.place(1, 1) == Place(3, 3)
    assert block.place(2, 3) == Place(4, 5)


@example("a: [ ")
@example("{\xa0")
@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlRefused):
        read_yaml(text)
