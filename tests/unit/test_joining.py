"""Which files delta-rs may join: those whose paths it spells as the log does."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import rows_of

from floodmark.errors import TableBroken
from floodmark.ledger.delta import joining

JAVA = "_-!.~'()*,;:$&+=@/[]"  # beside letters and digits, of any script: what Spark leaves as it is in a log


def as_spark(address: Path, folder: str) -> Path:
    """A table of two files in a partition's folder, with paths as Spark's log has them."""
    for n in range(2):
        write_deltalake(address, pa.table({"k": ["z"], "n": [n]}), mode="append", partition_by=["k"])
    (address / "k=z").rename(address / folder)
    said = "".join(c if c.isalnum() or not c.isascii() or c in JAVA else quote(c) for c in folder)
    for entry in (address / "_delta_log").glob("*.json"):
        spelt = json.dumps(said, ensure_ascii=False)[1:-1]
        entry.write_text(entry.read_text().replace("k=z/", f"{spelt}/"), encoding="utf-8")
    return address


@pytest.mark.parametrize(
    "folder", ["k=a b", "k=a%3Ab", "k=a%2Fb", "k=a%25b", "k=a+b,c;d", "k=a@b$c&d!", 'k=a"|^`{}<>#b']
)
def test_paths_that_delta_rs_spells_as_spark_does_are_joined(tmp_path: Path, folder: str) -> None:
    address = as_spark(tmp_path / "t", folder)
    assert joining.odd_paths(DeltaTable(address)) == ""
    joining.compact(str(address))
    assert len(DeltaTable(address).file_uris()) == 1
    assert sorted(row["n"] for row in rows_of(str(address))) == [0, 1]


@pytest.mark.parametrize("folder", ["k=München", "k=San José", "k=🌊", "k=a~b", "k=a*b", "k=a[b", "k=a]b"])
def test_paths_that_delta_rs_would_spell_otherwise_are_left_to_spark(tmp_path: Path, folder: str) -> None:
    table = DeltaTable(as_spark(tmp_path / "t", folder))
    assert joining.odd_paths(table).startswith("paths that delta-rs spells otherwise, such as k=")


@pytest.mark.parametrize(
    ("path", "odd"), [("k=a/p.parquet", False), ("%61.parquet", True), ("k=a%7Eb", True), ("k=a%C3%BC", True)]
)
def test_a_letter_that_is_escaped_otherwise_than_by_spark_counts_as_spelled_otherwise(path: str, odd: bool) -> None:
    assert joining.is_odd(path) == odd


def test_a_file_removed_under_another_path_than_the_log_has_it_is_told(tmp_path: Path) -> None:
    address = as_spark(tmp_path / "t", "k=München")
    with pytest.raises(TableBroken, match=r"readers see rows twice; .*TO VERSION AS OF 1"):
        joining.compact(str(address))
