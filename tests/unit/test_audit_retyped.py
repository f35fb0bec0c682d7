"""What a certificate says of a target that kept its rows in a reset which dropped a column or changed its type."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.audit.content.rowhash import digest
from floodmark.audit.delivered.asides import ASIDE
from floodmark.audit.evidence import Row
from floodmark.audit.logreader import read_table
from floodmark.audit.targets import POSITION, Books, TargetCheck

ADDRESS = "files:///lake/kept"
TABLE = f"sink/{ADDRESS}"
SMALL, LARGE = pa.int32(), pa.int64()


@dataclass
class Holding:
    position: dict[str, Any]
    held: list[pa.Table]

    def rows(self) -> Any:
        return (batch for table in self.held for batch in table.to_batches())

    def damage(self) -> Any:
        return iter(())

    def expired(self) -> int:
        return 0


def row(seq: int, generation: int, epoch: int, **body: Any) -> Row:
    text = json.dumps({"tables": {}, **body})
    return Row(seq, "commit", generation, f"t{generation}", epoch, 1, "run", "at", text, "", f"h{seq}")


class Reset:
    """Two generations of one epoch each, whose rows all stay. They may have other columns."""

    def __init__(self, place: Path, before: pa.Table, after: pa.Table, **sink: Any):
        self.place, self.sink = place / "outbox", {"kind": "files", "address": ADDRESS, "on_reset": "keep", **sink}
        rule, written = json.dumps({"sinks": [self.sink]}), []
        for commit, rows in enumerate((before, after)):
            marked = rows.append_column("_floodmark_gone", pa.nulls(len(rows), pa.bool_())) if "key" in sink else rows
            write_deltalake(str(self.place), marked, mode="overwrite", schema_mode="overwrite")
            found = digest(rows, computed=False)
            said = {"rows": found.rows, "high": str(found.high), "low": str(found.low), "floats": {}}
            written.append({TABLE: {"commit": commit, "rows": len(rows), "digest": said}})
        self.rows = [
            row(1, 1, 0, rule=rule),
            row(2, 1, 1, tables=written[0]),
            row(3, 2, 0, rule=rule),
            row(4, 2, 1, tables=written[1]),
        ]

    def found(self, *held: pa.Table) -> list[tuple[str, str]]:
        last = self.rows[-1]
        at = dict(zip(POSITION, ("l", 2, "t2", 1, last.seq, last.hash), strict=True))
        aside = [read_table(str(one)) for one in sorted(self.place.parent.glob("undelivered*"))]
        books = Books(self.rows, read_table(str(self.place)), aside)
        told = TargetCheck(TABLE, self.sink, "l", lambda _: Holding(at, list(held)), lambda: books).findings({}, {})
        return [(one.verdict, one.what) for one in told]


def verdicts(found: list[tuple[str, str]]) -> list[str]:
    return [verdict for verdict, _ in found]


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"k": pa.array([str(i) for i, _ in enumerate(values)]), "n": pa.array(values, kind)})


SOME, POINT = Decimal("1.50"), pa.struct([("x", SMALL), ("y", pa.string())])
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (column([1, None, -3], SMALL), column([1, None, -3], LARGE)),
        (column([1, None], LARGE), column([1, None], SMALL)),
        (column([1, None], SMALL), column([Decimal(1), None], pa.decimal128(12, 2))),
        (column([1, 2**53], LARGE), column([1.0, 2.0**53], pa.float64())),
        (column([SOME], pa.decimal128(5, 2)), column([SOME], pa.decimal128(30, 4))),
        (column([SOME], pa.decimal128(5, 2)), column([SOME], pa.decimal128(3, 1))),
        (column([None], pa.float32()), column([None], pa.string())),
        (
            column([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}], POINT),
            column([{"x": 1, "z": None}, None, {"x": None, "z": None}], pa.struct([("x", LARGE), ("z", LARGE)])),
        ),
        (column([[1, None], None, []], pa.list_(SMALL)), column([[1, None], None, []], pa.list_(LARGE))),
        (column([[1], [2, 3]], pa.list_(SMALL)), column([[1], [2, 3]], pa.list_(pa.decimal128(12, 2)))),
        (column([NOON], pa.timestamp("us", "UTC")), column([NOON], pa.timestamp("us", "UTC"))),
        (column([1, 2], LARGE), column([1, 2], LARGE).drop_columns(["n"])),
        (column([1, 2], LARGE).drop_columns(["n"]), column([None, None], LARGE)),
    ],
)
def test_rows_are_compared_in_the_columns_of_now(tmp_path: Path, before: pa.Table, after: pa.Table) -> None:
    """The rows of both generations are read back alike, as `after` has them. Parquet files give the older ones as
    `before`."""
    rule = Reset(tmp_path, before, after)
    assert rule.found(after, after) == []
    assert rule.found(before, after) == []
    lacking = rule.found(after, after.slice(1))
    assert verdicts(lacking) == ["broken"]
    assert "1 missing, 0 too many" in lacking[0][1]
    changed = after.set_column(0, "k", pa.array(["other", *after["k"].to_pylist()[1:]]))
    assert "1 missing, 1 too many" in rule.found(changed, after)[0][1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (column([2**40], LARGE), column([1], SMALL)),
        (column([0.1], pa.float32()), column([0.1], pa.float64())),
        (column([Decimal("1.55")], pa.decimal128(5, 2)), column([SOME], pa.decimal128(3, 1))),
        (column([2**53 + 1], LARGE), column([1.0], pa.float64())),
        (column([1], LARGE), column(["1"], pa.string())),
        (column([date(2026, 1, 1)], pa.date32()), column([NOON], pa.timestamp("us", "UTC"))),
        (column([NOON], pa.timestamp("us", "UTC")), column([NOON.replace(tzinfo=None)], pa.timestamp("us"))),
        (column([[("a", 1)]], pa.map_(pa.string(), SMALL)), column([[("a", 1)]], pa.map_(pa.string(), LARGE))),
    ],
)
def test_values_that_another_type_may_not_have_are_unknown(tmp_path: Path, before: pa.Table, after: pa.Table) -> None:
    [(verdict, what)] = Reset(tmp_path, before, after).found(after, after)
    assert (verdict, "column n was " in what) == ("unknown", True)


def test_a_key_is_the_same_in_another_type(tmp_path: Path) -> None:
    before = pa.table({"k": pa.array([1, 2], SMALL), "v": pa.array(["old", "stays"])})
    after = pa.table({"k": pa.array([1], LARGE), "v": pa.array(["new"])})
    rule = Reset(tmp_path, before, after, key=["k"])
    assert rule.found(pa.table({"k": pa.array([1, 2], LARGE), "v": pa.array(["new", "stays"])})) == []
    assert verdicts(rule.found(after)) == ["broken"]


def test_rows_that_were_refused_in_an_older_type_are_left_out(tmp_path: Path) -> None:
    """The undelivered table has another name since its columns changed."""
    before, after = column([1, 2], SMALL), column([3], LARGE)
    rule = Reset(tmp_path, before, after)
    said = pa.table({"_reason": ["r"], "_generation": [1], "_epoch": [1], "_seq": [2], "_number": [1], "_at": [0]})
    assert tuple(said.column_names) == ASIDE
    refused = before.slice(1)
    for name in ASIDE:
        refused = refused.append_column(name, said[name])
    write_deltalake(str(tmp_path / "undelivered-until-2"), refused)
    assert rule.found(column([1], LARGE), after) == []
    assert verdicts(rule.found(column([1, 2], LARGE), after)) == ["broken"]


def test_sums_of_two_types_are_not_compared(tmp_path: Path) -> None:
    before, after = column([1], SMALL), column([2], LARGE)
    rule = Reset(tmp_path, before, after)
    for file in rule.place.glob("*.parquet"):
        file.unlink()
    assert verdicts(rule.found(column([1], LARGE), after)) == ["unknown"]
    assert verdicts(rule.found(after)) == ["broken"]
