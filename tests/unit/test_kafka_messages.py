"""Records of a Kafka target: keys, values, tombstones, headers; and values in JSON and back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.python.rows import table_of
from floodmark.connectors.targets.kafka.messages import key_of, records_of, row_in
from floodmark.connectors.targets.values.jsonvalues import json_bytes, json_rows, row_of
from floodmark.core.relay.positions import Position
from floodmark.core.rules.rule import load_rule
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import columns_of
from floodmark.errors import RuleInvalid

ALL = columns_of(
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20,3), s STRING, y BINARY, t DATE, at TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, a ARRAY<DECIMAL(4,1)>, o STRUCT<x: INT, y: ARRAY<DATE>>, p MAP<INT, DOUBLE>"
)
ROW: dict[str, Any] = {
    "b": True, "i": -1, "l": 1 << 60, "f": 0.5, "d": 1e300, "m": Decimal("12345678901234567.500"), "s": 'a"\n\u00e9',
    "y": b"\x00\xff", "t": date(2001, 2, 3), "at": datetime(2001, 2, 3, 4, 5, 6, 7, UTC),
    "ntz": datetime(1969, 12, 31, 23), "a": [Decimal("1.5"), None], "o": {"x": 1, "y": [date(1970, 1, 1)]},
    "p": {1: 0.5, 2: float("inf")},
}  # fmt: skip


def test_values_come_back_from_json_as_they_were() -> None:
    rows = [ROW, dict.fromkeys(ROW), {**ROW, "d": float("-inf"), "a": [], "p": {}}]
    table = table_of(ALL, [rows])
    (batch,) = table.to_batches()
    texts = [json_bytes(row).decode() for row in json_rows(batch, ALL)]
    assert table_of(ALL, [[row_in(text.encode(), ALL) for text in texts]]) == table
    assert texts[0].startswith('{"b":true,"i":-1,"l":1152921504606846976,"f":0.5,"d":1e300,"m":"12345678901234567.500"')
    assert '"at":"2001-02-03T04:05:06.000007+00:00","ntz":"1969-12-31T23:00:00.000000","a":["1.5",null]' in texts[0]
    assert '"p":{"1":0.5,"2":"inf"}' in texts[0]


def test_times_are_the_same_text_wherever_they_are() -> None:
    columns = columns_of("at TIMESTAMP, l ARRAY<TIMESTAMP>, ntz TIMESTAMP_NTZ, m ARRAY<TIMESTAMP_NTZ>")
    for at in (datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 1)):
        row = {"at": at.replace(tzinfo=UTC), "l": [at.replace(tzinfo=UTC)], "ntz": at, "m": [at]}
        (found,) = json_rows(table_of(columns, [row]).to_batches()[0], columns)
        assert ([found["at"]], [found["ntz"]]) == (found["l"], found["m"])
        assert row_of(found, columns) == row


def test_what_is_not_a_number_is_text() -> None:
    (row,) = json_rows(pa.record_batch({"d": [float("nan")]}), columns_of("d DOUBLE"))
    assert row == {"d": "nan"}
    assert str(row_of(row, columns_of("d DOUBLE"))["d"]) == "nan"


@pytest.mark.parametrize(
    ("key", "row", "found"),
    [
        ((), {"k": "a", "n": 1}, None),
        (("k",), {"k": "a", "n": 1}, b"a"),
        (("k",), {"k": "", "n": 1}, b""),
        (("k",), {"k": None, "n": 1}, b'{"k":null}'),
        (("n",), {"k": "a", "n": 1}, b'{"n":1}'),
        (("n", "k"), {"k": "a", "n": 1}, b'{"n":1,"k":"a"}'),
    ],
)
def test_the_key_is_text_or_an_object(key: tuple[str, ...], row: dict[str, Any], found: bytes | None) -> None:
    assert key_of(row, key, columns_of("k STRING, n INT")) == found


def test_a_deletion_is_a_tombstone_and_headers_say_what_a_record_is() -> None:
    layout = Layout(columns_of("k STRING, n INT"), key=("k",))
    batch = pa.record_batch({"k": ["a", "b"], "n": pa.array([1, None], pa.int32()), DELETE_COLUMN: [False, True]})
    one = Operation("x/3", Position("x", 2, "t", 5, 3, "h"), False, None, False, 4, lambda: iter([batch, batch]))
    found = list(records_of(one, layout, layout.key))
    assert [(record.key, record.value) for record in found] == [(b"a", b'{"k":"a","n":1}'), (b"b", None)] * 2
    assert [record.row for record in found] == ["x/3/0", "x/3/1", "x/3/2", "x/3/3"]
    assert dict(found[3].headers) == {
        "floodmark.ledger": b"x", "floodmark.generation": b"2", "floodmark.epoch": b"5", "floodmark.row": b"x/3/3",
    }  # fmt: skip


RULE = """\
rule: sent
streams: {events: {delta: /lake/in}}
sql: SELECT k, n FROM events
sinks: [{kafka: {connection: shop, topic: rows}}]
"""


@pytest.fixture
def load(place: Path) -> Callable[[str], Any]:
    def loaded(text: str) -> Any:
        (place / "sent.yaml").write_text(text)
        return load_rule(place / "sent.yaml", {})

    return loaded


def test_a_topic_is_a_sink(load: Callable[[str], Any]) -> None:
    (sink,) = load(RULE.replace("rows}", "rows}, key: [k], delete: n < 0, on_reset: keep")).sinks
    assert (sink.address, sink.label, sink.on_reset) == ("kafka://shop/rows", "rows", "keep")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "rows}",
            "rows}, key: [k], newest: n",
            "sinks[0].newest: expected a kind that compares rows (delta, postgres, iceberg)",
        ),
        ("rows}", "rows, key: [k]}, key: [n]", "sinks[0].kafka.key: expected no `key` of the topic beside `key` of"),
        ("topic: rows", "topic: floodmark.positions", "expected another topic than floodmark.positions, which has"),
        ("topic: rows", "topic: a/b", "sinks[0].kafka.topic: expected the name of a topic"),
        ("topic: rows", "topic: rows, format: avro", "expected json: no other format can be written yet"),
        ("connection: shop, ", "", "sinks[0].kafka.connection: expected `connection: ...`, found nothing"),
        ("topic: rows", "topic: rows, acks: 1", "unknown key 'acks'"),
    ],
)
def test_what_a_topic_cannot_do_is_refused_by_name(
    load: Callable[[str], Any], old: str, new: str, problem: str
) -> None:
    with pytest.raises(RuleInvalid) as fault:
        load(RULE.replace(old, new))
    assert problem in str(fault.value)
