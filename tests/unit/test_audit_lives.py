"""The certificate of rules that were retired, renamed and dropped, and faults planted in what tells of it."""

from __future__ import annotations

import pytest
from test_audit import SINK, TABLES, World, changed

from floodmark.audit.evidence import worst


def turned(*turns: str, more: bool = False) -> World:
    """After three epochs these turns; `more`: then another epoch."""
    world = World()
    for what in turns:
        said = {"tables": {f"sink/{SINK}": "id of the sink"}} if what == "dropping" else {}
        name = {"name": "other"} if what == "renamed" else {}
        world.bodies.append(("life", 3, 0, {"format": 5, "what": what, **said, **name}))
    if more:
        world.fold(4)
    return world


@pytest.mark.parametrize(
    ("turns", "more"),
    [
        (["retired"], False),
        (["retired", "returned"], True),
        (["renamed"], True),
        (["redelivered"], True),
        (["retired", "redelivered", "returned"], True),
        (["renamed", "retired", "renamed", "returned"], True),
    ],
)
def test_turns_that_follow_are_proven(turns: list[str], more: bool) -> None:
    assert turned(*turns, more=more).findings() == []


@pytest.mark.parametrize(
    ("turns", "more", "what"),
    [
        (["retired"], True, "of a rule that was retired"),
        (["returned"], False, "is returned at a moment when it cannot be"),
        (["retired", "retired"], False, "is retired at a moment"),
        (["dropping"], False, "is dropping at a moment"),
        (["retired", "dropped"], False, "is dropped at a moment"),
        (["retired", "dropping", "returned"], False, "is returned at a moment"),
        (["retired", "dropping", "renamed"], False, "is renamed at a moment"),
        (["retired", "dropping", "redelivered"], False, "is redelivered at a moment"),
        (["vanished"], False, "cannot be read"),
    ],
)
def test_a_turn_that_does_not_follow_is_broken(turns: list[str], more: bool, what: str) -> None:
    found = turned(*turns, more=more).findings()
    assert worst(found) == "broken" and any(what in one.what for one in found)


def checked(*turns: str, again: bool) -> World:
    """After three epochs a fourth is announced, and its check fails; `again`: then it is announced once more."""
    world = World()
    intent = world.intend(4)
    for what in turns:
        world.bodies.append(("life", 3, 1, {"format": 8, "what": what, "said": "rows are doubled"}))
    if again:
        world.bodies.append(("intent", 4, 2, intent))
    return world


@pytest.mark.parametrize(("turns", "again"), [(["failed"], False), (["failed", "recheck"], True)])
def test_a_failed_check_on_which_somebody_decided_is_no_fault(turns: list[str], again: bool) -> None:
    assert worst(checked(*turns, again=again).findings()) != "broken"


@pytest.mark.parametrize(
    ("turns", "what"),
    [
        (["failed"], "after a failed check, without a decision about it"),
        (["recheck"], "is recheck at a moment"),
        (["failed", "recheck", "recheck"], "is recheck at a moment"),
    ],
)
def test_a_failed_check_that_was_passed_by_is_broken(turns: list[str], what: str) -> None:
    found = checked(*turns, again=True).findings()
    assert worst(found) == "broken" and any(what in one.what for one in found)


def dropped() -> World:
    world = turned("retired", "dropping", "dropped")
    changed(world, 0, table_ids={**dict.fromkeys(TABLES, "id"), f"sink/{SINK}": "id of the sink"})
    return world


def test_what_was_dropped_is_unknown_with_the_row_that_says_so_and_no_more() -> None:
    world = dropped()
    world.gone.add(SINK)
    (found,) = world.findings()
    assert (found.verdict, found.table, found.row) == ("unknown", f"sink/{SINK}", 9)
    assert "was dropped at by run" in found.what


def test_another_table_where_one_was_dropped_is_nobodys_fault() -> None:
    world = dropped()
    assert [one.verdict for one in world.findings()] == ["unknown"]


def test_a_table_that_is_gone_without_such_a_row_is_broken() -> None:
    world = turned("retired")
    world.gone.add(SINK)
    assert worst(world.findings()) == "broken"
