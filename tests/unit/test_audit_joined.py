"""What the auditor makes of commits whose files were joined and removed: their digests add up, or do not."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_audit_replaced import of_table, rows, said

from floodmark.audit.content.joined import total
from floodmark.audit.content.recomputing import recompute
from floodmark.audit.effects.effects import Effects
from floodmark.audit.evidence import File, LogEntry, TableLog
from floodmark.audit.ledger.generations import Epoch, Generation
from floodmark.audit.ledger.named import Named
from floodmark.audit.ledger.story import Story

FIRST, SECOND, THIRD = [(1, 1, 0.1), (2, 2, None)], [(3, 3, 0.3)], [(4, 4, 2.5)]


def entry(version: int, added: str, removed: tuple[str, ...] = (), changes: bool = True) -> LogEntry:
    return LogEntry(version, added=(File(f"{added}.parquet", 1, None),), changes=changes,
                    removed=tuple(File(f"{one}.parquet", 1, None) for one in removed))  # fmt: skip


JOINED = (entry(1, "a"), entry(2, "b"), entry(3, "ab", ("a", "b"), changes=False))


def findings(
    place: Path,
    entries: tuple[LogEntry, ...],
    files: dict[str, list[tuple[object, ...]]],
    named: dict[int, object],
    merged: int = 0,
    live: str = "",
) -> tuple[list[tuple[str, str]], int]:
    """Of a sink with these log entries and files, and commits that the ledger names with these rows.

    `merged`: the one that is a merge by key; `live`: the file that readers see.
    """
    for name, content in files.items():
        pq.write_table(rows(content), place / f"{name}.parquet")
    there = {file.name: file.stat().st_size for file in place.iterdir()}
    seen = {f"{live}.parquet": there[f"{live}.parquet"]} if live else {}
    log = TableLog(str(place), "id", entries, seen, there)
    effects = Effects(Story([]), "ledger", "/rule", {str(place): log})
    table = f"sink/{place}"
    ones = [
        Named(
            table,
            1,
            commit,
            "app",
            "hash",
            {
                "version": 1,
                "commit": commit,
                "rows": 0,
                "digest": said(content),
                **({"results": said(content)} if commit == merged else {}),
            },
        )  # type: ignore[arg-type]
        for commit, content in named.items()
    ]
    found = [(one.verdict, one.what) for one in recompute(effects, ones)]
    return found, effects.notes.tally(table).recomputed


def test_what_was_joined_is_proven_by_the_sum(tmp_path: Path) -> None:
    found = findings(tmp_path, JOINED, {"ab": SECOND + FIRST}, {1: FIRST, 2: SECOND})
    assert found == ([], 2)


def test_what_was_joined_again_with_a_later_one_is_proven_too(tmp_path: Path) -> None:
    entries = (*JOINED, entry(4, "c"), entry(5, "abc", ("ab", "c"), changes=False))
    files = {"abc": FIRST + SECOND + THIRD}
    assert findings(tmp_path, entries, files, {1: FIRST, 2: SECOND, 4: THIRD}) == ([], 3)


@pytest.mark.parametrize("held", [FIRST, [*FIRST, (3, 4, 0.3)], [*FIRST, *SECOND, SECOND[0]], [*FIRST, (3, 3, 0.3001)]])
def test_a_row_that_was_lost_doubled_or_changed_by_the_joining_is_found(tmp_path: Path, held: list[object]) -> None:
    found, _ = findings(tmp_path, JOINED, {"ab": held}, {1: FIRST, 2: SECOND})  # type: ignore[dict-item]
    assert [verdict for verdict, _ in found] == ["broken"]
    assert "2 commits were joined into hold other rows" in found[0][1]


@pytest.mark.parametrize(
    ("entries", "files"),
    [
        ((*JOINED, entry(4, "new", ("ab",))), {"new": THIRD}),  # an upsert or a backfill took it
        ((entry(0, "x"), *JOINED[:2], entry(3, "abx", ("a", "b", "x"), changes=False)), {"abx": FIRST + SECOND}),
        ((*JOINED[:2], entry(3, "ab", ("a", "b", "older"), changes=False)), {"ab": FIRST + SECOND}),
        (JOINED, {}),
    ],
)
def test_what_others_have_a_part_in_is_unknown_and_said_once(
    tmp_path: Path, entries: tuple[LogEntry, ...], files: dict[str, list[tuple[object, ...]]]
) -> None:
    found, recomputed = findings(tmp_path, entries, files, {1: FIRST, 2: SECOND})
    assert [verdict for verdict, _ in found] == ["unknown"] and recomputed == 0
    assert "2 commits up to epoch 2 cannot be recomputed" in found[0][1]


MERGED = (entry(1, "a"), entry(2, "b", ("a",)), entry(3, "c"), entry(4, "bc", ("b", "c"), changes=False))


@pytest.mark.parametrize(
    ("held", "without", "verdicts"),
    [
        (SECOND + THIRD, "", []),
        (SECOND, "", ["broken"]),
        ([(3, 3, 0.3 + 1e-15), *THIRD], "", ["broken"]),
        (SECOND + THIRD, "b", ["unknown", "unknown"]),
    ],
)
def test_what_was_joined_after_a_merge_is_held_against_the_files_before_as_long_as_they_are_there(
    tmp_path: Path, held: list[tuple[object, ...]], without: str, verdicts: list[str]
) -> None:
    files = {"a": FIRST, "b": SECOND, "c": THIRD, "bc": held}
    files.pop(without, None)
    found, _ = findings(tmp_path, MERGED, files, {1: FIRST, 2: SECOND, 3: THIRD}, merged=2, live="bc")  # type: ignore[arg-type]
    assert [verdict for verdict, _ in found] == verdicts, found


def test_a_column_that_came_between_is_null_in_what_came_before() -> None:
    more = {"rows": 1, "high": "1", "low": "1", "floats": {"v": {"nulls": 0, "nans": 0, "sum": "0.5", "size": "0.5"}}}
    less = {"rows": 2, "high": "2", "low": "3", "floats": {}}
    assert total([less, more]) == {"rows": 3, "high": 3, "low": 4,
                                   "floats": {"v": {"nulls": 2, "nans": 0, "sum": 0.5, "size": 0.5}}}  # fmt: skip


DEAD = pa.schema([("_epoch", pa.int64()), ("_stream", pa.string()), ("_reason", pa.string())])
EXPECTED = {"streams": {"s": {"expect": {"odd": {"on_fail": "dead"}}}}}


def dead(*epochs: int) -> pa.Table:
    """Rows that the expectation has made dead, by their epochs."""
    return pa.Table.from_pylist(
        [{"_epoch": one, "_stream": "s", "_reason": "expect odd fails: n"} for one in epochs], DEAD
    )


def epoch(number: int, taken: int) -> Epoch:
    counts = {"s": {"expected": {"odd": {"failed": taken, "taken": taken}}}}
    return Epoch(1, number, {"rule": json.dumps(EXPECTED), "counts": counts}, "hash", 1, {}, "committed", before={})


@pytest.mark.parametrize(("taken", "faults"), [((2, 1), 0), ((1, 2), 2)])
def test_dead_rows_that_were_joined_are_held_against_what_expectations_took(
    tmp_path: Path, taken: tuple[int, int], faults: int
) -> None:
    pq.write_table(dead(1, 1, 2), tmp_path / "ab.parquet")
    there = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    story = Story([])
    story.generations.append(Generation(1, "t", {}, [epoch(1, taken[0]), epoch(2, taken[1])]))
    log = TableLog(str(tmp_path), "id", JOINED, {}, there)
    effects = Effects(story, "ledger", "/rule", {"/rule/dead": log})
    held = {1: dead(1, 1), 2: dead(2)}
    ones = [
        Named("dead", 1, number, "app", "hash", {"version": 1, "commit": number, "digest": of_table(content)})
        for number, content in held.items()
    ]
    found = [one.what for one in recompute(effects, ones)]
    assert len(found) == faults and all("expect odd has made" in what for what in found), found
