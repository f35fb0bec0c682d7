"""Files of JSON whose lines are surely objects alone, as far as their bytes tell."""

from __future__ import annotations

import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.connectors.sources.files import jsonlines
from floodmark.connectors.sources.files.folder import Content

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.text(alphabet="{}[],\"'\\\n a\u00e4", max_size=4))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)),
)
LINES = st.lists(
    st.one_of(VALUES.map(json.dumps), st.sampled_from(["", " ", "{}", "}", "{", ",", ',"a":1}', "]"])), max_size=4
)


def behind(line: str) -> str:
    """What follows the first value of a line; nothing where there is none, which Spark's reader calls malformed."""
    try:
        return line[json.JSONDecoder().raw_decode(line)[1] :]
    except ValueError:
        return ""


def are_lone(content: bytes) -> bool:
    return jsonlines.has_lone_objects(Content("a", lambda: BytesIO(content)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"n":1}',
        b'{"n":1}\n{"k":"a","o":{"x":[1]}}\r\n',
        b'{"k":[{"a":1}]}\n',
        b'{"k":{"a":{}},"o":[{"n":"it\'s"},{"\\\\":"\\"\\"\\\\"}]}\n{}\n',
    ],
)
def test_plain_files_are_known(content: bytes) -> None:
    assert are_lone(content)


@given(st.lists(LINES.map("".join), max_size=3), st.sampled_from(["\n", "\r\n"]), st.sampled_from([3, 1 << 20]))
def test_no_line_with_anything_else_is_taken_for_an_object(lines: list[str], end: str, part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonlines, "PART", part)
        if are_lone(end.join(lines).encode()):
            for line in filter(None, (one.strip() for one in end.join(lines).splitlines())):
                assert line.startswith("{") and not behind(line), line


@pytest.mark.parametrize(
    "line",
    ['{"a":{"x":1}},"k":"lost"}', '{"a":{"x":1}},"k":{"y":1}}', '{"a":"{"},"k":"lost"}', "{'a':'{'},\"k\":\"lost\"}",
     '{"a":"\\"{"},"k":"lost"}', '{"a":{}}}', '{"a":[{"x":1}]}]}', '{"a":{}},{"a":{}}'],
)  # fmt: skip
def test_what_follows_an_object_is_seen_whatever_it_begins_with(line: str) -> None:
    assert not are_lone(f'{{"a":{{}}}}\n{line}\n'.encode())


def test_a_file_that_is_gone_is_not_known() -> None:
    def gone() -> BytesIO:
        raise FileNotFoundError

    assert not jsonlines.has_lone_objects(Content("a", gone))
