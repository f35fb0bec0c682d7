"""What a retry takes from the attempt before, and what it says of what it cannot take."""

from __future__ import annotations

import pytest

from floodmark.core.protocol.engine import BY_CORES, CUTTING, cutting, differing, named
from floodmark.errors import InputFault, ReplayDiffers, VerifyFailed

SIZE = "spark.sql.files.maxPartitionBytes"


def test_a_first_attempt_cuts_by_what_is_set_else_by_the_cores_else_as_spark_does() -> None:
    found = cutting({}, {SIZE: "1m", BY_CORES[1]: "7"}, 4)
    assert set(found) == set(CUTTING)
    known = {name: value for name, value in found.items() if value is not None}
    assert known == {BY_CORES[0]: "4", BY_CORES[1]: "7", SIZE: "1m"}


def test_a_retry_cuts_as_the_intent_says_and_unsets_what_was_not_set_then() -> None:
    recorded = {"cores": "4", "spark": "4.2.0", **dict.fromkeys(BY_CORES, "4")}
    found = cutting(recorded, {SIZE: "1m", BY_CORES[0]: "1"}, 1)
    assert found == dict.fromkeys(CUTTING) | dict.fromkeys(BY_CORES, "4")


def test_an_intent_of_an_older_floodmark_fixes_nothing() -> None:
    assert cutting({}, {}, 2)[BY_CORES[0]] == "2"


def test_what_differs_is_named_and_nothing_else() -> None:
    recorded, now = {"cores": "4", "spark": "4.2.0", "a": "1"}, {"cores": "1", "spark": "4.2.0", "b": "2"}
    assert differing(recorded, now) == ["cores 4, now 1", "a 1, now not set", "b not set, now 2"]
    said = r"^others\. The first .*: cores 4, now 1; .*finishes what is open$"
    for kind in (ReplayDiffers, VerifyFailed):
        with pytest.raises(kind, match=said), named(recorded, now):
            raise kind("others")


@pytest.mark.parametrize(
    ("recorded", "fault"), [({"a": "1"}, ReplayDiffers), ({}, ReplayDiffers), ({"a": "2"}, InputFault)]
)
def test_where_nothing_is_known_to_differ_or_it_is_another_fault_nothing_is_added(
    recorded: dict[str, str], fault: type[Exception]
) -> None:
    with pytest.raises(fault, match=r"^others$"), named(recorded, {"a": "1"}):
        raise fault("others")
