"""What rows of a ledger say that was done."""

from __future__ import annotations

from typing import Any

import pytest

from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Rewritten
from floodmark.core.protocol.records.rows import Commit, Counts, Intent, Kind, Lost, Record, Row, Written
from floodmark.core.protocol.tally import Corrected, changes_sinks, corrected, ended, summed

COUNTS = {"a": Counts(read=9, filtered=1, dead=2, late=1, folded=5), "b": Counts(read=1, folded=1)}
COMMON: dict[str, Any] = {"entry": "v1", "watermark": 7, "maxima": {}, "counts": COUNTS}
INTENT = Intent(**COMMON, watermark_before=None, rule="", rule_hash="", zone="UTC", ansi=True)


def row(kind: Kind, epoch: int, body: Record) -> Row:
    return Row(epoch, kind, 1, "token", epoch, 2, f"run{epoch}", "2001-01-01T00:00:00", body.model_dump_json(), "")


def test_an_epoch_that_was_committed() -> None:
    tables = {"sink/x": Written(version=1, commit=1, rows=4)}
    commit = Commit(**COMMON, tables=tables, output_rows=4, rejected={"a": 3}, seconds={"read": 0.5, "write": 1.25})
    (found,) = ended([row("intent", 1, INTENT), row("commit", 1, commit)])
    assert (found.generation, found.epoch, found.attempt, found.run) == (1, 1, 2, "run1")
    assert found.rows == {"read": 10, "filtered": 1, "dropped": 0, "dead": 2, "late": 1, "folded": 6, "rejected": 3,
                          "output": 4}  # fmt: skip
    assert (found.written, found.watermark, found.seconds) == ({"sink/x": 4}, 7, 1.75)


def test_of_a_lost_epoch_nothing_is_said_that_may_not_have_reached_a_table() -> None:
    lost = Lost(**COMMON, intent="", lost=9, lost_epochs=(1,), due=(None, 7))
    (found,) = ended([row("lost", 1, lost)])
    assert found.rows == {"read": 10, "filtered": 1, "lost": 9}
    assert found.seconds is None


def test_epoch_0_is_the_beginning_of_a_generation_and_no_epoch() -> None:
    assert ended([row("commit", 0, Commit(**COMMON))]) == []


@pytest.mark.parametrize(
    ("kind", "generation", "epoch", "changes"),
    [
        *(("commit", 1, 0, False), ("commit", 1, 1, True), ("commit", 2, 0, True), ("lost", 1, 1, True)),
        *(("backfilled", 1, 0, True), ("abandoned", 1, 1, True)),
        *((kind, 1, 1, False) for kind in ("intent", "backfill", "abandoning", "seal", "deferred", "life")),
    ],
)
def test_readers_of_the_sinks_have_news_once_something_has_ended(
    kind: Kind, generation: int, epoch: int, changes: bool
) -> None:
    found = Row(1, kind, generation, "token", epoch, 1, "run", "2001-01-01T00:00:00", "{}", "")
    assert changes_sinks(found) is changes


def test_corrections_by_the_rows_that_left_and_came() -> None:
    moved = {"left": Digest(rows=3), "came": Digest(rows=2)}
    rewrites = {name: Rewritten(since="1", upto="2", commits=("DELETE",), **moved) for name in "ab"}
    counts: dict[str, Any] = {"counts": COUNTS, "restated": {}, "digests": {}, "results": Digest()}
    common: dict[str, Any] = {
        "begin": 0,
        "end": 1,
        "high": 1,
        "upto": 1,
        "entry": "v1",
        "column": "",
        "shift": 0,
        **counts,
    }
    done = [
        row("backfill", number, Backfill(number=number, rule="", rule_hash="", rewrites=found, **common))
        for number, found in ((1, rewrites), (2, {}), (3, rewrites))
    ]
    ends = [row("backfilled", n, Backfilled(number=n, intent="", tables={}, removed={})) for n in (1, 2)]
    assert corrected([done[0], ends[0], done[1], ends[1], done[2]]) == [Corrected("run1", 10)]
    assert corrected(ends) == []


def test_rows_of_several_epochs() -> None:
    found = ended([row("commit", n, Commit(**COMMON, output_rows=n)) for n in (1, 2)])
    assert summed(found)["read"] == 20
    assert summed(found)["output"] == 3
    assert summed([])["lost"] == 0
