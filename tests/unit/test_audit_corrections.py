"""What the auditor asks of a correction: it follows what was read, moves rewritten streams only, names its tables."""

from __future__ import annotations

import json
from typing import Any

import pytest

from floodmark.audit.effects.carried import complete_backfill
from floodmark.audit.ledger.balance import looked_up, refilled
from floodmark.audit.ledger.generations import Backfill, Epoch, Generation

RULE = json.dumps({"streams": {"a": {}, "b": {}}, "sinks": []})
COUNTS = {name: dict.fromkeys(("read", "filtered", "dead", "late", "folded"), 0) for name in "ab"}


def line(version: int, table: str = "t", index: int = -1) -> str:
    return json.dumps({"reservoirId": table, "reservoirVersion": version, "index": index, "isStartingVersion": False})


def entry(*lines: str) -> str:
    return "\n".join(["v1", "{}", *lines])


def rewrite(since: str, upto: str) -> dict[str, Any]:
    return {"since": since, "upto": upto, "commits": ["version 3 (DELETE)"], "left": {"rows": 1}, "came": {"rows": 0}}


def generation(*corrections: dict[str, Any]) -> Generation:
    """One epoch that ended before version 3 of a, and before version 7 of b; then corrections."""
    ended = {"entry": entry(line(3), line(7)), "maxima": {"a": 5, "b": None}, "watermark": 1, "lost_epochs": []}
    intent = {**ended, "counts": COUNTS, "rule": RULE}
    epoch = Epoch(1, 1, intent, "hash", 1, {}, "committed", ended, before={})
    found = Generation(1, "token", {"entry": entry(line(0), line(0)), "maxima": {}}, [epoch])
    for number, changed in enumerate(corrections, 1):
        body = {
            "upto": 1, "rule": RULE, "counts": COUNTS, "restated": {}, "begin": 0, "end": 60,
            "entry": entry(line(4), line(7)), "maxima": {"a": 5, "b": None},
            "rewrites": {"a": rewrite(line(3), line(4))},
            "state": {"state/slices": {"column": "t", "begin": 0, "end": 60}},
            "results": {"rows": 0}, "taken": {"state/slices": {"rows": 2}}, **changed,
        }  # fmt: skip
        found.backfills.append(Backfill(1, number, body, f"hash {number}", 1, {}, "committed", {}, epoch=1))
    return found


def whats(*corrections: dict[str, Any]) -> list[str]:
    return [finding.what for finding in refilled(generation(*corrections))]


SECOND = {"entry": entry(line(6), line(7)), "rewrites": {"a": rewrite(line(5), line(6))}}


def test_corrections_in_a_row_follow_each_other() -> None:
    assert whats({}) == whats({}, SECOND) == []


def test_a_backfill_may_have_read_before_or_after_a_correction() -> None:
    for version in (3, 4):
        assert whats({}, {"rewrites": {}, "entry": entry(line(version), line(7))}) == []
    (found,) = whats({}, {"rewrites": {}, "entry": entry(line(5), line(7))})
    assert found == "backfill 2: its sources are not where epoch 1 ended"


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"entry": entry(line(5), line(7))}, "stream a: its offset is not where the rewrites have left it"),
        ({"entry": entry(line(4), line(8))}, "stream b: its offset is not where the rewrites have left it"),
        ({"rewrites": {"a": rewrite(line(2), line(4))}}, "stream a: the rewrite from version 2"),
        ({"rewrites": {"a": rewrite(line(4), line(4))}}, "stream a: the rewrite from version 4"),
        ({"rewrites": {"a": rewrite(line(3, "u"), line(4))}}, "stream a: the rewrite from version 3"),
        ({"maxima": {"a": 4, "b": None}}, "stream a: its newest event time goes back"),
        ({"maxima": {"b": None}}, "stream a: its newest event time goes back"),
    ],
)
def test_offsets_that_do_not_follow_are_found(changed: dict[str, Any], what: str) -> None:
    assert any(found.startswith(f"backfill 1: {what}") for found in whats(changed)), whats(changed)


def test_the_next_epoch_starts_behind_the_correction() -> None:
    found = generation({"maxima": {"a": 9, "b": None}}, SECOND)
    assert (found.last["entry"], found.last["maxima"]) == (SECOND["entry"], {"a": 5, "b": None})
    assert found.ended_at(1, before=2)["maxima"] == {"a": 9, "b": None}
    assert found.last["watermark"] == 1


@pytest.mark.parametrize(("keys", "what"), [(2, []), (3, ["backfill 1 has 2 rows for 3 keys"])])
def test_each_touched_key_of_a_sink_has_a_result_or_is_removed(keys: int, what: list[str]) -> None:
    (found,) = generation({"state": {}, "keys": {"sink/s": keys, "state/slices": 2}}).backfills
    found.intent["taken"]["sink/s"] = {"rows": 2}  # type: ignore[index]
    found.end = {"tables": {"sink/s": {"rows": 2}, "state/slices": {"rows": 2}}}
    sinks = {"sink/s": {"kind": "delta"}}
    assert [one.what for one in complete_backfill(found, sinks, {"sink/s"})] == what  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ({"state/slices": 2, "sink/x": 0}, []),
        ({"sink/x": 0}, ["backfill 1 names none of it"]),
        ({"state/slices": 1, "sink/x": 0}, ["backfill 1 has 2 rows for it, the commit 1"]),
        ({"state/slices": 2}, ["backfill 1 names none of it"]),
        ({"state/slices": 2, "sink/x": 0, "sink/new": 0}, ["backfill 1 names a commit of it"]),
    ],
)
def test_state_is_named_and_a_sink_that_is_new_is_not(tables: dict[str, int], what: list[str]) -> None:
    done = generation({}).backfills[0]
    done.end = {"tables": {table: {"rows": rows} for table, rows in tables.items()}}
    sinks = {"sink/x": {}, "sink/new": {}}
    found = complete_backfill(done, sinks, {"sink/x", "state/slices"})
    assert [one.what for one in found] == what


def pins(version: int) -> dict[str, Any]:
    return {"cities": {"table": "t", "version": version}}


@pytest.mark.parametrize(
    ("first", "upto", "version", "known"),
    [
        (1, 1, 5, True),
        (2, 3, 6, True),
        (2, 4, 6, True),  # epoch 4 was taken back
        (5, 5, 7, True),
        (1, 1, 6, False),
        (1, 2, 6, False),
        (3, 5, 6, False),
        (4, 4, 6, False),
        (6, 6, 7, False),
        (0, 0, 5, False),
    ],
)
def test_versions_of_lookup_tables_are_those_that_epochs_have_read(
    first: int, upto: int, version: int, known: bool
) -> None:
    read = {1: (5, "committed"), 2: (6, "committed"), 3: (6, "committed"), 4: (7, "abandoned"), 5: (7, "committed")}
    epochs = [
        Epoch(1, number, {"lookups": pins(its)}, "hash", 1, {}, result, {}, before={})
        for number, (its, result) in read.items()
    ]
    named = {"first": first, "upto": upto, "lookups": pins(version)}
    backfill = Backfill(1, 1, {"upto": 5, "then": [named]}, "hash", 1, {}, "committed", {}, epoch=5)
    fault = f"it reads lookup tables in versions that epochs {first} to {upto} have not read"
    assert list(looked_up(backfill, epochs)) == ([] if known else [fault])
