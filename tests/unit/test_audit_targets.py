"""What the auditor holds a target to: the rows of its outbox, by the qos of the sink, also after a reset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.audit.evidence import Row
from floodmark.audit.logreader import read_table
from floodmark.audit.targets import check_target

ADDRESS, LEDGER = "kafka://bus/sold", "1234"
TABLE = f"sink/{ADDRESS}"
FIRST, SECOND = [("a", 1), ("b", 2)], [("c", 3)]


@dataclass
class Holding:
    position: Mapping[str, Any] | None
    held: list[tuple[str, int]]

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield from batch(self.held).to_batches()


def batch(rows: list[tuple[str, int]]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.string()), "n": pa.array([n for _, n in rows], pa.int64())})


def row(seq: int, generation: int, epoch: int, **body: Any) -> Row:
    return Row(
        seq, "commit", generation, "t", epoch, 1, "run", "now", json.dumps({"tables": {}, **body}), "", f"h{seq}"
    )


def found(place: Path, held: list[tuple[str, int]], qos: int = 2, on_reset: str = "empty") -> list[str]:
    """The findings on a rule that wrote FIRST, was reset, and wrote SECOND."""
    for rows in (FIRST, SECOND):
        write_deltalake(str(place), batch(rows), mode="append")
    begun = {"rule": json.dumps({"sinks": [{"kind": "kafka", "address": ADDRESS, "on_reset": on_reset}]})}
    rows = [
        row(1, 1, 0, **begun),
        row(2, 1, 1, tables={TABLE: {"commit": 0, "rows": 2, "digest": None}}),
        row(3, 2, 0, **begun),
        row(4, 2, 1, tables={TABLE: {"commit": 1, "rows": 1, "digest": None}}),
    ]
    last = rows[-1]
    position = {"ledger": LEDGER, "generation": 2, "token": "t", "epoch": 1, "seq": last.seq, "hash": last.hash}
    sink = {"address": ADDRESS, "qos": qos}
    log, none = read_table(str(place)), read_table(str(place / "undelivered"))
    told = check_target(TABLE, sink, log, rows, LEDGER, lambda _: Holding(position, held), none, {})
    return [one.what for one in told]


@pytest.mark.parametrize(
    ("qos", "held", "good"),
    [
        (2, SECOND, True),
        (2, SECOND * 2, False),
        (2, [], False),
        (1, SECOND * 2, True),
        (1, [], False),
        (1, [*SECOND, ("d", 4)], False),
        (0, [], True),
        (0, SECOND * 2, False),
    ],
)
def test_each_qos_is_held_to_its_promise(place: Path, qos: int, held: list[tuple[str, int]], good: bool) -> None:
    assert (found(place, held, qos) == []) is good


def test_a_reset_leaves_rows_where_the_sink_says_so(place: Path) -> None:
    assert found(place, [*FIRST, *SECOND], on_reset="keep") == []
    (said,) = found(place / "other", [*FIRST, *SECOND])
    assert "2 too many" in said
    (said,) = found(place / "third", SECOND, on_reset="keep")
    assert "2 missing" in said


@pytest.mark.parametrize(
    ("newest", "held", "said"),
    [("n", [("a", 5)], []), (None, [("a", 5)], ["cannot be compared: a reset left them"])],
)
def test_rows_that_a_reset_has_left_are_judged_by_the_text_of_then(
    place: Path, newest: str | None, held: list[tuple[str, int]], said: list[str]
) -> None:
    """The second text lacks `newest`: it holds only for what was written by it."""
    texts = [
        json.dumps({"sinks": [{"kind": "kafka", "address": ADDRESS, "on_reset": "keep", "key": ["k"], "newest": one}]})
        for one in ("n", newest)
    ]
    for k, n in (("a", 5), ("a", 3), ("a", 4)):
        write_deltalake(str(place), batch([(k, n)]), mode="append")
    rows = [
        row(1, 1, 0, rule=texts[0]),
        *(row(2 + i, 1, 1 + i, tables={TABLE: {"commit": i, "rows": 1, "digest": None}}) for i in range(2)),
        row(4, 2, 0, rule=texts[1]),
        row(5, 2, 1, tables={TABLE: {"commit": 2, "rows": 1, "digest": None}}),
    ]
    sink = {"address": ADDRESS, "key": ["k"], "newest": newest}
    for upto, expected in ((3, []), (5, said)):
        last = rows[upto - 1]
        at = {"ledger": LEDGER, "generation": last.generation, "token": "t", "epoch": last.epoch, "seq": upto}
        where, none = {**at, "hash": last.hash}, read_table(str(place / "undelivered"))
        holding = Holding(where, held)
        told = check_target(TABLE, sink, read_table(str(place)), rows, LEDGER, lambda _, h=holding: h, none, {})
        found = [one.what for one in told]
        assert len(found) == len(expected)
        assert all(words in what for words, what in zip(expected, found, strict=True))
