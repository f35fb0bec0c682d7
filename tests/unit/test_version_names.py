"""The names that columns of an older version of a table have now. No Spark."""

from __future__ import annotations

import pytest

from floodmark.connectors.planning.versionrows import names_now


@pytest.mark.parametrize(
    ("then", "now", "names"),
    [
        ({"k": "k", "city": "city"}, {"k": "k", "city": "city", "more": "more"}, {"k": "k", "city": "city"}),
        ({"k": "c1", "town": "c2"}, {"k": "c1", "city": "c2"}, {"k": "k", "town": "city"}),
        ({"a": "c1", "b": "c2"}, {"b": "c1", "a": "c2"}, {"a": "b", "b": "a"}),
        ({"a": "c1", "gone": "c2"}, {"a": "c1"}, {"a": "a", "gone": "gone"}),
        ({"a": "c1", "b": "c2"}, {"B": "c1"}, {"a": "B"}),
        ({"k": "c1"}, {"k": "c9"}, {"k": "k"}),
    ],
)
def test_columns_of_an_older_version_have_the_names_of_the_newest(
    then: dict[str, str], now: dict[str, str], names: dict[str, str]
) -> None:
    assert names_now(then, now) == names
