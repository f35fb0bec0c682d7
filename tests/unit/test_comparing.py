"""VERIFY: what a commit says of itself, held against what an attempt computed; one difference at a time."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.presence import Presence
from floodmark.core.rules.sinks.upserts import Effect
from floodmark.errors import ReplayDiffers, VerifyFailed
from floodmark.ledger.comparing import (
    Committed,
    check_before_commit,
    check_rows_present,
    check_same_content,
    check_same_effect,
    check_same_files,
    check_same_rows,
)
from floodmark.ledger.delta import tablelog
from floodmark.ledger.delta.tablelog import committed_of

HELD, OTHER = Digest(rows=2, high="10", low="20"), Digest(rows=2, high="10", low="21")


def commit(added: int = 0, removed: int = 0, **said: Any) -> Committed:
    metadata = {"app": "a", "version": 1, "epoch": 7, "intent": "mine", "rows": 2, **said}
    return committed_of({"version": 3, "userMetadata": json.dumps(metadata)}, added, removed)


def test_a_commit_is_of_this_intent_and_has_just_as_many_rows() -> None:
    check_same_effect("t", commit(), "mine", 2)
    with pytest.raises(ReplayDiffers, match=r"commit 3 was written for another intent \(theirs\) than the ledger's"):
        check_same_effect("t", commit(intent="theirs"), "mine", 2)
    for rows in (1, 3):
        with pytest.raises(ReplayDiffers, match=f"epoch 7 wrote 2 rows; computed again, it has {rows}"):
            check_same_effect("t", commit(), "mine", rows)
    with pytest.raises(ReplayDiffers, match="backfill 4 wrote 2 rows"):
        check_same_effect("t", commit(backfill=4), "mine", 1)


@pytest.mark.parametrize(("added", "removed", "same"), [(3, 1, True), (4, 1, False), (3, 2, False), (2, 0, False)])
def test_the_files_that_came_and_went_have_the_effect_that_was_computed(added: int, removed: int, same: bool) -> None:
    effect, found = Effect(rows=2, inserted=2, updated=1), commit(added, removed)
    if same:
        return check_same_files("t", found, effect)
    with pytest.raises(ReplayDiffers, match=f"added {added} rows and removed {removed}"):
        check_same_files("t", found, effect)
    return None


@pytest.mark.parametrize(("added", "removed", "same"), [(2, 0, True), (3, 0, False), (1, 0, False), (2, 1, False)])
def test_an_append_adds_its_rows_and_removes_none(added: int, removed: int, same: bool) -> None:
    if same:
        return check_same_files("t", commit(added, removed), None)
    with pytest.raises(VerifyFailed):
        check_same_files("t", commit(added, removed), None)
    return None


def test_files_are_compared_before_they_are_committed() -> None:
    check_before_commit("t", (3, 1), Effect(rows=2, inserted=2, updated=1))
    for moves in ((4, 1), (3, 2), (2, 1), (3, 0)):
        with pytest.raises(VerifyFailed, match=f"add {moves[0]} rows and remove {moves[1]}, which does not match"):
            check_before_commit("t", moves, Effect(rows=2, inserted=2, updated=1))


def test_an_effect_is_read_back_from_what_its_commit_says() -> None:
    effect = Effect(rows=2, inserted=2, updated=1, deleted=3, copied=4)
    assert Effect.from_metadata(commit(**asdict(effect)).metadata) == effect
    assert Effect.from_metadata(commit().metadata) is None  # a plain append


def said(digest: Digest) -> dict[str, Any]:
    return digest.model_dump()


def test_of_an_append_the_files_hold_what_was_written_and_that_is_computed_again() -> None:
    found, older = commit(digest=said(HELD)), commit()  # an older Floodmark's says no digest
    check_same_rows("t", found, HELD, None)
    check_same_rows("t", older, OTHER, None)
    with pytest.raises(VerifyFailed, match="computed again, its rows differ"):
        check_same_rows("t", found, OTHER, None)
    for one in (found, older):
        check_same_content("t", one, HELD, HELD, None)
    with pytest.raises(VerifyFailed, match="its files contain other rows than it wrote"):
        check_same_content("t", found, OTHER, OTHER, None)
    with pytest.raises(VerifyFailed, match="computed again, its rows differ"):
        check_same_content("t", older, HELD, OTHER, None)


def test_of_an_upsert_the_files_hold_what_was_written_and_the_results_are_computed_again() -> None:
    found = commit(digest=said(OTHER), results=said(HELD))
    check_same_rows("t", found, Digest(), HELD)
    check_same_content("t", found, OTHER, Digest(), HELD)
    check_same_content("t", commit(results=said(HELD)), OTHER, Digest(), HELD)
    with pytest.raises(VerifyFailed, match="its files contain other rows than it wrote"):
        check_same_content("t", found, HELD, Digest(), HELD)
    with pytest.raises(VerifyFailed, match="computed again, its rows differ"):
        check_same_rows("t", found, Digest(), OTHER)


def test_rows_that_others_took_are_told_with_the_commit_and_the_way_back() -> None:
    check_rows_present("t", commit(), Presence(frozenset()))
    with pytest.raises(VerifyFailed, match=r"epoch 7 wrote .* commit 3; commit 5 \(DELETE\).* AS OF 4$"):
        check_rows_present("t", commit(), Presence(None, removed_by=(5, "DELETE")))


def test_a_commit_is_known_by_app_and_version_and_its_marked_rows_do_not_count(place: Path) -> None:
    address = place / "t"
    write_deltalake(str(address), pa.table({"n": [1, 2, 3]}))
    entry = address / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["deletionVector"] = {
                "storageType": "i",
                "pathOrInlineDv": "",
                "sizeInBytes": 1,
                "cardinality": 2,
            }
        if "commitInfo" in line:
            line["commitInfo"]["userMetadata"] = json.dumps({"app": "mine", "version": 5})
    lines.append({"txn": {"appId": "mine", "version": 5}})
    lines.append({"remove": {"path": "x", "dataChange": True, "stats": json.dumps({"numRecords": 4})}})
    entry.write_text("\n".join(map(json.dumps, lines)))
    found = tablelog.commit_at(str(address), 0, "mine", 5)
    assert found is not None and (found.commit, found.added, found.removed) == (0, 1, 4)
    assert tablelog.commit_at(str(address), 0, "mine", 4) is None
    assert tablelog.commit_at(str(address), 0, "theirs", 5) is None
