"""VERIFY: what a commit says of itself, held against what an attempt computed; one difference at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.core.digests import Digest
from floodmark.core.upserts import Effect
from floodmark.errors import ReplayDiffers
from floodmark.ledger import tables
from floodmark.ledger.comparing import same_effect, same_files, same_rows
from floodmark.ledger.tables import OurCommit

HELD, OTHER = Digest(rows=2, high="10", low="20"), Digest(rows=2, high="10", low="21")


def commit(added: int = 0, removed: int = 0, **said: Any) -> OurCommit:
    metadata = {"app": "a", "version": 1, "epoch": 7, "intent": "mine", "rows": 2, **said}
    return OurCommit({"version": 3, "userMetadata": json.dumps(metadata)}, added, removed)


def test_a_commit_is_of_this_intent_and_has_just_as_many_rows() -> None:
    same_effect("t", commit(), "mine", 2)
    with pytest.raises(ReplayDiffers, match=r"commit 3 was written for another intent \(theirs\) than the ledger's"):
        same_effect("t", commit(intent="theirs"), "mine", 2)
    for rows in (1, 3):
        with pytest.raises(ReplayDiffers, match=f"epoch 7 wrote 2 rows, computed again it has {rows}"):
            same_effect("t", commit(), "mine", rows)
    with pytest.raises(ReplayDiffers, match="backfill 4 wrote 2 rows"):
        same_effect("t", commit(backfill=4), "mine", 1)


@pytest.mark.parametrize(("added", "removed", "same"), [(3, 1, True), (4, 1, False), (3, 2, False), (2, 0, False)])
def test_the_files_that_came_and_went_have_the_effect_that_was_computed(added: int, removed: int, same: bool) -> None:
    effect, found = Effect(rows=2, inserted=2, updated=1), commit(added, removed)
    same_files("t", found, None)
    if same:
        return same_files("t", found, effect)
    with pytest.raises(ReplayDiffers, match=f"added {added} rows and removed {removed}"):
        same_files("t", found, effect)
    return None


def said(digest: Digest) -> dict[str, Any]:
    return digest.model_dump()


def test_of_an_append_the_files_hold_what_was_written_and_that_is_computed_again() -> None:
    same_rows("t", commit(digest=said(HELD)), HELD, HELD, None)
    same_rows("t", commit(), HELD, HELD, None)  # an older Floodmark's says no digest
    with pytest.raises(ReplayDiffers, match="its files hold other rows than it wrote"):
        same_rows("t", commit(digest=said(HELD)), OTHER, OTHER, None)
    with pytest.raises(ReplayDiffers, match="computed again, its rows are others"):
        same_rows("t", commit(digest=said(HELD)), HELD, OTHER, None)


def test_of_an_upsert_the_files_hold_what_was_written_and_the_results_are_computed_again() -> None:
    found = commit(digest=said(OTHER), results=said(HELD))
    same_rows("t", found, OTHER, Digest(), HELD)
    with pytest.raises(ReplayDiffers, match="its files hold other rows than it wrote"):
        same_rows("t", found, HELD, Digest(), HELD)
    with pytest.raises(ReplayDiffers, match="computed again, its rows are others"):
        same_rows("t", found, OTHER, Digest(), OTHER)


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
    found = tables.commit_at(str(address), 0, "mine", 5)
    assert found is not None and (found.commit, found.added, found.removed) == (0, 1, 4)
    assert tables.commit_at(str(address), 0, "mine", 4) is None
    assert tables.commit_at(str(address), 0, "theirs", 5) is None
