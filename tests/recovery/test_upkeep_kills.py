"""`floodmark maintain`, killed by a real SIGKILL at each of its steps, one after the other on the same tables."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from support.aged import age, entries
from support.flow import Flow, rows_of
from support.lifekilling import killed, said
from support.lives import an_epoch, lived

from floodmark.audit.certificate import audit
from floodmark.core.lifecycle.cleanup import CHECKPOINT_AFTER
from floodmark.core.protocol.crashpoints import UPKEEP_POINTS
from floodmark.ledger.ledger import Ledger

WORDS = ("maintain", "counted", "--yes")


def test_upkeep_that_is_killed_at_every_step_changes_no_row_and_is_taken_again(place: Path) -> None:
    flow = Flow(place)
    ledger = lived(flow)
    for _ in range(CHECKPOINT_AFTER):
        an_epoch(flow, ledger)
    (Path(flow.sink()) / "part-00000-orphan.parquet").write_bytes(b"x")
    age(flow.sink(), 60)
    rows = sorted(rows_of(flow.sink()), key=str)
    for point in UPKEEP_POINTS:
        if point == "maintain.trim.during":
            age(flow.sink(), 60)
        killed(flow, point, *WORDS)
        assert sorted(rows_of(flow.sink()), key=str) == rows, point
        there = entries(flow.sink())
        assert there == list(range(there[0], there[-1] + 1)), "a log that is being cut never has a hole"
        found = audit("counted", flow.home, deep=False)
        assert found is not None and not any("changes rows" in one.what for one in found.findings), point
    said(flow, *WORDS)
    assert len(entries(flow.sink())) == 1 and len(DeltaTable(flow.sink()).file_uris()) == 1
    assert not (Path(flow.sink()) / "part-00000-orphan.parquet").exists()
    head = flow.ledger().head
    assert head is not None and head.maintained is not None
    an_epoch(flow, Ledger.open(flow.place.ledger, "after"))
    assert len(rows_of(flow.sink())) == len(rows) + 1
