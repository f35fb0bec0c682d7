"""What a certificate says of a target, by a real outbox and rows of a ledger."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.audit.content.rowhash import digest
from floodmark.audit.delivered.replay import _comparable
from floodmark.audit.evidence import Finding, Row
from floodmark.audit.ledger.forgets import Forget
from floodmark.audit.logreader import read_table
from floodmark.audit.targets import POSITION, Books, TargetCheck

ADDRESS = "postgres://shop/public.rows"
TABLE = f"sink/{ADDRESS}"
COLUMNS = pa.schema([("k", pa.string()), ("n", pa.int64())])
Rows = Sequence[tuple[str, int]]


def table_of(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "n": n} for k, n in rows], COLUMNS)


@dataclass
class Delivered:
    """A ledger and an outbox in `folder`. `sink`: more of its text."""

    folder: Path
    sink: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    generation: int = 0
    undelivered: dict[str, int] = field(default_factory=dict)
    behind: dict[str, int | None] = field(default_factory=dict)
    forgot: Forget | None = None

    @property
    def text(self) -> dict[str, Any]:
        return {"kind": "postgres", "address": ADDRESS, "outbox": "outbox/rows", **self.sink}

    def begin(self) -> None:
        self.generation += 1
        self._row(0, {"tables": {}, "rule": json.dumps({"sinks": [self.text]})})

    def epoch(self, number: int, rows: Rows) -> None:
        marks = {"_floodmark_gone": pa.array([False] * len(rows))} if "key" in self.sink else {}
        found = table_of(rows)
        for name, column in marks.items():
            found = found.append_column(name, column)
        write_deltalake(str(self.folder), found, mode="append")
        added = digest(table_of(rows), computed=True)
        said = {"rows": added.rows, "high": str(added.high), "low": str(added.low), "floats": {}}
        written = {"commit": read_table(str(self.folder)).version, "rows": len(rows), "digest": said}
        self._row(number, {"tables": {TABLE: written}})

    def _row(self, epoch: int, body: dict[str, Any]) -> None:
        seq, generation = len(self.rows) + 1, self.generation
        self.rows.append(
            Row(seq, "commit", generation, f"t{generation}", epoch, 1, "run", "at", json.dumps(body), "", f"h{seq}")
        )

    def again(self, *rows: tuple[int, int], **how: Any) -> None:
        """Refused rows are to come after all."""
        seq = len(self.rows) + 1
        body = json.dumps({"what": "redelivered", "redelivery": {"target": TABLE, "rows": rows, **how}})
        self.rows.append(Row(seq, "life", self.generation, f"t{self.generation}", 1, 1, "r", "at", body, "", f"h{seq}"))

    def forget(self) -> None:
        """Rows leave the outbox."""
        seq = len(self.rows) + 1
        self.rows.append(Row(seq, "life", self.generation, f"t{self.generation}", 1, 1, "r", "at", "{}", "", f"h{seq}"))
        self.forgot = Forget(1, self.rows[-1], "c", {}, copies={"outbox/rows": 1}, is_open=False)

    def replace_all(self, rows: Rows) -> None:
        """A backfill of everything."""
        seq = len(self.rows) + 1
        facts = ("r", "at", json.dumps({"whole": True, "begin": 0, "end": 0, "column": None, "shift": 0}), "", "h")
        self.rows.append(Row(seq, "backfill", self.generation, f"t{self.generation}", 1, 1, *facts))
        self.epoch(1, rows)
        self.rows[-1] = replace(self.rows[-1], kind="backfilled")

    def findings(self, held: Rows, seq: int | None = None) -> list[Finding]:
        """What is found if the target holds these rows, and is at row `seq` (None: the newest)."""
        row = self.rows[-1 if seq is None else seq - 1]
        values = ("l", row.generation, row.token, row.epoch, row.seq, row.hash)
        has = Has(dict(zip(POSITION, values, strict=True)), held)
        self.undelivered.clear()
        log, aside = read_table(str(self.folder)), read_table(str(self.folder.with_name("undelivered")))
        books = Books(self.rows, log, [aside], self.forgot)
        return list(
            TargetCheck(TABLE, self.text, "l", lambda _: has, lambda: books).findings(self.undelivered, self.behind)
        )


@dataclass
class Has:
    """What a target has."""

    position: dict[str, Any]
    held: Rows

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from table_of(self.held).to_batches()

    def damage(self) -> Iterator[str]:
        yield from ()

    def expired(self) -> int:
        return 0


OLD, NEW = [("a", 1), ("b", 2)], [("a", 1), ("c", 3)]


@pytest.mark.parametrize(
    ("sink", "held"),
    [
        ({}, NEW),
        ({"on_reset": "keep"}, [*OLD, *NEW]),
        ({"key": ["k"]}, NEW),
        ({"key": ["k"], "on_reset": "keep"}, [("a", 1), ("b", 2), ("c", 3)]),
    ],
)
def test_a_target_has_the_rows_since_a_reset_and_with_keep_those_before(
    tmp_path: Path, sink: dict[str, Any], held: Rows
) -> None:
    found = Delivered(tmp_path / "outbox", sink)
    found.begin()
    found.epoch(1, OLD)
    found.begin()
    found.epoch(1, NEW)
    assert found.findings(held) == []
    assert [one.verdict for one in found.findings(held[1:])] == ["broken"]
    assert [one.verdict for one in found.findings([*held, ("x", 9)])] == ["broken"]


def test_of_two_generations_that_stay_the_newest_row_of_a_key_counts(tmp_path: Path) -> None:
    found = Delivered(tmp_path / "outbox", {"key": ["k"], "newest": "n", "on_reset": "keep"})
    found.begin()
    found.epoch(1, [("a", 5), ("b", 2)])
    found.begin()
    found.epoch(1, [("a", 4), ("b", 3)])
    assert found.findings([("a", 5), ("b", 3)]) == []
    assert [one.verdict for one in found.findings([("a", 4), ("b", 3)])] == ["broken"]


# --- Rows that were forgotten


@pytest.mark.parametrize(
    ("sink", "anew", "verdicts"),
    [
        ({}, "reset", []),
        ({"on_reset": "keep"}, "reset", ["unknown"]),
        ({"key": ["k"]}, "backfill", []),
        ({}, "epoch", ["unknown"]),
    ],
)
def test_what_a_target_holds_is_unknown_after_a_forget_until_it_gets_all_rows_anew(
    tmp_path: Path, sink: dict[str, Any], anew: str, verdicts: list[str]
) -> None:
    found = Delivered(tmp_path / "outbox", sink)
    found.begin()
    found.epoch(1, OLD)
    found.forget()
    before = len(found.rows)
    assert [one.verdict for one in found.findings(OLD)] == ["unknown"]
    if anew == "reset":
        found.begin()
    if anew == "backfill":
        found.replace_all(NEW)
    else:
        found.epoch(1, NEW)
    assert [one.verdict for one in found.findings(NEW)] == verdicts
    assert [one.verdict for one in found.findings(OLD, before)] == ["unknown"], "it was not shipped yet"
    if not verdicts:
        assert [one.verdict for one in found.findings(OLD)] == ["broken"]
        found.forget()
        assert [one.verdict for one in found.findings(NEW)] == ["unknown"]


# --- Rows that the target refused


def refuse(found: Delivered, *rows: tuple[int, int, str, int]) -> None:
    """Each by its portion, its number there, and its values."""
    seqs, numbers, ks, ns = zip(*rows, strict=True)
    plain = table_of(list(zip(ks, ns, strict=True)))
    if "key" in found.sink:
        plain = plain.append_column("_floodmark_gone", pa.array([False] * len(rows)))
    said: dict[str, list[Any]] = {"_reason": ["r"] * len(rows), "_generation": [1] * len(rows)}
    said |= {"_epoch": [1] * len(rows), "_seq": list(seqs), "_number": list(numbers), "_at": [0] * len(rows)}
    for name, values in said.items():
        plain = plain.append_column(name, pa.array(values))
    write_deltalake(str(found.folder.with_name("undelivered")), plain, mode="append")


@pytest.mark.parametrize("key", [{}, {"key": ["k"]}])
def test_a_target_lacks_what_it_refused_and_nothing_else(tmp_path: Path, key: dict[str, Any]) -> None:
    found = Delivered(tmp_path / "outbox", key)
    found.begin()
    found.epoch(1, [("a", 1), ("b", 2), ("c", 3)])
    found.epoch(2, [("d", 4)])
    refuse(found, (2, 1, "b", 2), (3, 0, "d", 4))
    assert found.findings([("a", 1), ("c", 3)]) == []
    assert found.undelivered == {TABLE: 2}
    for held in ([("a", 1)], [("a", 1), ("b", 2), ("c", 3)]):
        assert [one.verdict for one in found.findings(held)] == ["broken"]
    found.again((2, 1))
    assert found.findings([("a", 1), ("c", 3)], seq=3) == []
    assert found.findings([("a", 1), ("b", 2), ("c", 3)]) == []
    assert found.undelivered == {TABLE: 1}
    refuse(found, (4, 0, "b", 2))
    assert found.findings([("a", 1), ("c", 3)]) == []


@pytest.mark.parametrize(("how", "held"), [({}, ("a", 9)), ({"whole": True}, ("a", 5))])
def test_a_replay_says_whether_its_rows_take_their_keys_places(
    tmp_path: Path, how: dict[str, Any], held: tuple[str, int]
) -> None:
    found = Delivered(tmp_path / "outbox", {"key": ["k"], "newest": "n"})
    found.begin()
    found.epoch(1, [("a", 9)])
    found.epoch(2, [("a", 5)])
    refuse(found, (3, 0, "a", 5))
    found.again((3, 0), **how)
    assert found.findings([held]) == []


def test_nan_is_newer_than_infinity() -> None:
    ranks = [_comparable(one) for one in (-math.inf, 1.5, math.inf, math.nan)]
    assert sorted(ranks, reverse=True) == ranks[::-1]
    assert ranks[2] < ranks[3] == _comparable(float("nan"))


def test_a_refused_row_that_its_outbox_has_not_is_told(tmp_path: Path) -> None:
    found = Delivered(tmp_path / "outbox")
    found.begin()
    found.epoch(1, [("a", 1), ("b", 2)])
    refuse(found, (2, 1, "b", 9))
    [one] = found.findings([("a", 1)])
    assert (one.verdict, "none of its outbox" in one.what) == ("broken", True)
    found.again((2, 0))
    [one] = found.findings([("a", 1)])
    assert (one.verdict, "had not refused" in one.what) == ("broken", True)


def test_without_the_outbox_sums_count_refused_rows(tmp_path: Path) -> None:
    found = Delivered(tmp_path / "outbox")
    found.begin()
    found.epoch(1, [("a", 1), ("b", 2)])
    refuse(found, (2, 1, "b", 2))
    for file in found.folder.glob("*.parquet"):
        file.unlink()
    assert found.findings([("a", 1)]) == []
    assert [one.verdict for one in found.findings([("a", 1), ("b", 2)])] == ["broken"]
