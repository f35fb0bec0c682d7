"""How a transaction reads the properties of the table that it rewrites."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.connectors.delta.rewrites import is_fed
from floodmark.ledger.delta.tables import open_table
from floodmark.spark.write.rewriting import Rewriting

FEED = "delta.enableChangeDataFeed"


def transaction(value: str | None, name: str = FEED) -> Any:
    """A transaction over a table with this value of the property."""

    def get(asked: str) -> Any:
        return SimpleNamespace(isDefined=lambda: value is not None and asked == name, get=lambda: value)

    properties = SimpleNamespace(configuration=lambda: SimpleNamespace(get=get))
    one = Rewriting.__new__(Rewriting)
    one._txn = SimpleNamespace(metadata=lambda: properties)
    return one


@pytest.mark.parametrize(
    ("value", "set_"),
    [(None, False), ("false", False), ("False", False), ("NONE", False), ("true", True), ("TRUE", True)],
)
def test_a_property_is_read_in_any_case(value: str | None, set_: bool) -> None:
    assert transaction(value)._has_setting(FEED) == set_


def test_a_change_feed_has_an_older_name() -> None:
    older = "delta.enableChangeDataCapture"
    assert transaction("true", older)._has_setting(FEED)
    assert not transaction("true", older)._has_setting("delta.enableDeletionVectors")


@pytest.mark.parametrize(("value", "fed"), [("true", True), ("True", True), ("False", False)])
def test_a_change_feed_is_found_in_any_case(tmp_path: Path, value: str, fed: bool) -> None:
    address = str(tmp_path / "t")
    write_deltalake(address, pa.table({"n": [1]}), configuration={FEED: "true"})
    entry = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text().replace(f'"{FEED}":"true"', f'"{FEED}":"{value}"'))
    table = open_table(address)
    assert table is not None
    assert is_fed(table, address, 1) == fed
