"""Tables whose owner only Spark can set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from floodmark.connectors.delta.adopting import adopt
from floodmark.errors import Refused
from floodmark.ledger.delta.tables import owner_of


def table_with(address: Path, readers: list[str] | None, writers: list[str]) -> DeltaTable:
    """A table with these features in its protocol."""
    write_deltalake(address, pa.table({"n": [1]}))
    entry = address / "_delta_log" / f"{0:020}.json"
    protocol: dict[str, Any] = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    protocol |= {"writerFeatures": writers} | ({"readerFeatures": readers} if readers else {})
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    changed = [{"protocol": protocol} if "protocol" in action else action for action in actions]
    entry.write_text("".join(f"{json.dumps(action)}\n" for action in changed))
    return DeltaTable(address)


@pytest.mark.parametrize(
    ("readers", "writers"),
    [
        (["deletionVectors"], ["deletionVectors"]),
        (["v2Checkpoint"], ["v2Checkpoint"]),
        (["timestampNtz"], ["timestampNtz"]),
        (None, ["inCommitTimestamp"]),
        (None, ["domainMetadata", "rowTracking"]),
    ],
)
def test_a_table_that_delta_rs_cannot_adopt_is_left_to_spark(
    tmp_path: Path, readers: list[str] | None, writers: list[str]
) -> None:
    table = table_with(tmp_path / "t", readers, writers)
    said = r"ALTER TABLE delta\.`.*/t` SET TBLPROPERTIES \('floodmark.owner' = 'me', 'floodmark.adopted' = '0'\)"
    with pytest.raises(Refused, match=said):
        adopt(table, "r", "me")
    assert DeltaTable(tmp_path / "t").version() == 0


def test_a_plain_table_is_adopted(tmp_path: Path) -> None:
    assert adopt(table_with(tmp_path / "t", None, ["appendOnly"]), "r", "me") == 0
    assert owner_of(DeltaTable(tmp_path / "t")) == "me"
