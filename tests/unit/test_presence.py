"""Where the rows of a commit are, after others have rearranged, deleted or restored files."""

from __future__ import annotations

from typing import Any

import pytest

from floodmark.core.protocol.presence import Moves, Presence, moves_of, presence

ADDED = ("add", "a.parquet")
OURS = [ADDED, ("add", "b.parquet"), ("remove", "old.parquet")]
Action = tuple[str, str] | tuple[str, str, str]


def moves(version: int, actions: list[Action], operation: str = "WRITE", data: bool = True) -> Moves:
    """A log entry of such actions: `add` or `remove`, path, and the deletion vector's place."""
    files: list[dict[str, Any]] = []
    for kind, path, *vector in actions:
        marked = {"deletionVector": {"storageType": "u", "pathOrInlineDv": vector[0]}} if vector else {}
        files.append({kind: {"path": path, "dataChange": data, **marked}})
    return moves_of(version, [{"commitInfo": {"operation": operation}}, *files])


def optimized(version: int, gone: list[str], new: str) -> Moves:
    return moves(version, [*(("remove", path) for path in gone), ("add", new)], "OPTIMIZE", data=False)


def now(*later: Moves) -> Presence:
    return presence(moves(3, OURS), later)


def test_untouched_files_hold_the_rows() -> None:
    found = now(moves(4, [("add", "other.parquet")]), moves(5, [("remove", "third.parquet")], "DELETE"))
    assert (found.joined, found.removed_by) == (False, None)
    assert found.files == {("a.parquet", ""), ("b.parquet", "")}


def test_files_that_were_joined_hold_the_rows_in_another_file() -> None:
    found = now(optimized(4, ["a.parquet", "x.parquet"], "j.parquet"), optimized(5, ["j.parquet", "b.parquet"], "k"))
    assert (found.joined, found.removed_by, found.files) == (True, None, {("k", "")})


TAKEN = {
    "deleted": [moves(4, [("remove", "a.parquet")], "DELETE")],
    "updated": [moves(4, [("remove", "b.parquet"), ("add", "c.parquet")], "UPDATE")],
    "marked": [moves(4, [("remove", "a.parquet"), ("add", "a.parquet", "v1")], "DELETE")],
    "joined, then deleted": [
        optimized(3, ["a.parquet"], "j.parquet"),
        moves(4, [("remove", "j.parquet")], "DELETE"),
    ],
    "restored to before": [moves(4, [("remove", "a.parquet"), ("remove", "b.parquet"), ("add", "old.parquet")])],
    "what went is back": [moves(4, [("add", "old.parquet")])],
}


@pytest.mark.parametrize("how", TAKEN)
def test_rows_that_others_took_are_not_there_and_the_entry_is_named(how: str) -> None:
    found = now(*TAKEN[how], moves(5, [("add", "more.parquet")]))
    assert found.files is None
    assert found.removed_by is not None and found.removed_by[0] == 4


@pytest.mark.parametrize("how", [name for name in TAKEN if name != "restored to before"])
def test_a_restore_to_the_version_before_brings_them_back(how: str) -> None:
    held = [("add", "j.parquet")] if how.startswith("joined") else [("add", "a.parquet"), ("add", "b.parquet")]
    gone: list[Action] = [("remove", "old.parquet"), ("remove", "c.parquet"), ("remove", "a.parquet", "v1")]
    restored = moves(6, [*gone, *held], "RESTORE")
    assert now(*TAKEN[how], restored).removed_by is None


def test_a_commit_that_only_takes_rows_away_is_undone_by_who_brings_them_back() -> None:
    ours = moves(3, [("remove", "old.parquet")])
    assert presence(ours, []).removed_by is None
    assert presence(ours, [moves(4, [("add", "old.parquet")], "RESTORE")]).removed_by == (4, "RESTORE")


def test_half_of_a_join_that_changes_data_is_no_join() -> None:
    same, changed = ({"path": path, "dataChange": data} for path, data in (("a.parquet", False), ("b.parquet", True)))
    entry = moves_of(4, [{"remove": same}, {"remove": changed}, {"add": {"path": "j.parquet", "dataChange": False}}])
    assert now(entry).removed_by == (4, "a commit without a name")
