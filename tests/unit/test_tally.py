"""What rows of a ledger say that was done."""

from __future__ import annotations

from typing import Any

from floodmark.core.protocol.records.rows import Commit, Counts, Intent, Kind, Lost, Row, Written
from floodmark.core.protocol.tally import ended, summed

COUNTS = {"a": Counts(read=9, filtered=1, dead=2, late=1, folded=5), "b": Counts(read=1, folded=1)}
COMMON: dict[str, Any] = {"entry": "v1", "watermark": 7, "maxima": {}, "counts": COUNTS}
INTENT = Intent(**COMMON, watermark_before=None, rule="", rule_hash="", zone="UTC", ansi=True)


def row(kind: Kind, epoch: int, body: Intent | Commit | Lost) -> Row:
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


def test_rows_of_several_epochs() -> None:
    found = ended([row("commit", n, Commit(**COMMON, output_rows=n)) for n in (1, 2)])
    assert summed(found)["read"] == 20
    assert summed(found)["output"] == 3
    assert summed([])["lost"] == 0
