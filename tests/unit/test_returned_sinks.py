"""A sink that was taken out of a rule for a reset, and is put back: its old results would come a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from floodmark.connectors.delta.sink import DeltaSink
from floodmark.connectors.relay.outbox import OutboxSink
from floodmark.core.protocol.records.rows import Row
from floodmark.core.protocol.recovery import SEAL, app_id, earlier_apps
from floodmark.core.rules.model import Sink
from floodmark.errors import Refused
from floodmark.ledger.delta.tables import ADOPTED, ADOPTED_EMPTY, OWNER
from floodmark.ledger.landings import OUTBOX, app_of, cut_app

OLD, NOW = app_id("me", 1, "a", "sink"), app_id("me", 2, "b", "sink")


def table_at(place: Path, adopted: str | None = None, **recorded: int) -> str:
    """A table of ours with a row, that has recorded these versions of the apps `old` and `now`."""
    write_deltalake(place, pa.table({"n": [1]}))
    properties = {OWNER: "me"} | ({} if adopted is None else {ADOPTED: adopted})
    DeltaTable(place).alter.set_table_properties(properties, raise_if_not_exists=False)
    for name, version in recorded.items():
        record(place, {"old": OLD, "now": NOW}[name], version)
    return str(place)


def record(place: Path, app: str, version: int) -> None:
    said = CommitProperties(app_transactions=[Transaction(app, version)])
    write_deltalake(place, pa.table({"n": [2]}), mode="append", commit_properties=said)


def check(address: str) -> None:
    DeltaSink(address).check_no_old_rows(NOW, "counted", {OLD})


def test_an_adopted_table_that_was_the_rules_sink_before_the_reset_is_refused(tmp_path: Path) -> None:
    said = "was its sink before the last reset.*Name another sink.*`floodmark reset counted --keep-output`"
    for version in (1 << 20, SEAL):
        with pytest.raises(Refused, match=said):
            check(table_at(tmp_path / str(version), adopted="0", old=version))


def test_an_adopted_table_that_no_generation_has_written_or_this_one_has_is_taken(tmp_path: Path) -> None:
    check(table_at(tmp_path / "fresh", adopted="0"))
    check(table_at(tmp_path / "killed", adopted="0", now=1 << 20))
    check(table_at(tmp_path / "kept", adopted="0", old=SEAL, now=0))


def test_a_table_that_was_empty_when_it_was_taken_over_is_refused_for_its_rows(tmp_path: Path) -> None:
    for adopted in (None, ADOPTED_EMPTY):
        with pytest.raises(Refused, match="found rows from before the last reset"):
            check(table_at(tmp_path / f"{adopted}", adopted=adopted, old=SEAL))


def test_the_apps_of_earlier_generations_are_told_from_the_ledgers_rows() -> None:
    rows = [Row(seq, "commit", number, token, 0, 0, "r", "", "", "") for seq, (number, token) in enumerate(BEGUN)]
    head: Any = type("Head", (), {"generation": 2})
    assert earlier_apps("me", rows, head) == {OLD}


BEGUN = [(1, "a"), (1, "a"), (2, "b")]


def test_a_target_whose_outbox_was_emptied_by_upkeep_has_its_rows_all_the_same(tmp_path: Path) -> None:
    sink = Sink(address="files:///somewhere", kind="files")
    box = OutboxSink(sink, tmp_path / "box")
    box.check_no_old_rows(NOW, "counted")
    table_at(tmp_path / "box", old=SEAL)
    for _ in range(2):
        with pytest.raises(Refused, match=r"expected a target without results.*`floodmark reset counted`"):
            box.check_no_old_rows(NOW, "counted")
        record(tmp_path / "box", cut_app(app_of("me", "box", OUTBOX)), 3)
        DeltaTable(tmp_path / "box").delete()
    record(tmp_path / "box", NOW, 0)
    box.check_no_old_rows(NOW, "counted")
