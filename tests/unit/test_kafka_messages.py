"""Records of a Kafka target: keys, values, tombstones, headers; and values in JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from fastavro.schema import fingerprint as rabin
from fastavro.schema import to_parsing_canonical_form
from support import avro
from support.outboxed import Outboxed

from floodmark.connectors.avro.schemas import schema_of
from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.kafka.offsets import Ends, Topic
from floodmark.connectors.sources.python.rows import table_of
from floodmark.connectors.targets.kafka.forms import FORMS, SCHEMA
from floodmark.connectors.targets.kafka.leaving import keys_held
from floodmark.connectors.targets.kafka.markers import difference
from floodmark.connectors.targets.kafka.messages import LEDGER, is_of, keys_of, records_of, row_in, tombstones_of
from floodmark.connectors.targets.values.jsonvalues import json_lines, row_of
from floodmark.connectors.targets.values.rowbatches import batches_of
from floodmark.core.relay.portions import Replaced
from floodmark.core.relay.positions import Position
from floodmark.core.rules.checks.recomputing import reasons_for_all, reasons_in_rule
from floodmark.core.rules.kinds import can_of
from floodmark.core.rules.rule import load_rule
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column, Type, columns_of
from floodmark.errors import RuleInvalid
from floodmark.views.ruleplan import plan_of

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
    (batch,) = table_of(ALL, [rows]).to_batches()
    texts = [line.decode() for line in json_lines(batch, ALL)]
    assert list(batches_of((FORMS["json"].row_in(text.encode(), {}, ALL) for text in texts), ALL)) == [batch]
    assert texts[0].startswith('{"b":true,"i":-1,"l":1152921504606846976,"f":0.5,"d":1e300,"m":"12345678901234567.500"')
    assert '"at":"2001-02-03T04:05:06.000007+00:00","ntz":"1969-12-31T23:00:00.000000","a":["1.5",null]' in texts[0]
    assert '"p":{"1":0.5,"2":"inf"}' in texts[0]


def test_times_are_the_same_text_wherever_they_are() -> None:
    columns = columns_of("at TIMESTAMP, l ARRAY<TIMESTAMP>, ntz TIMESTAMP_NTZ, m ARRAY<TIMESTAMP_NTZ>")
    for at in (datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 1)):
        row = {"at": at.replace(tzinfo=UTC), "l": [at.replace(tzinfo=UTC)], "ntz": at, "m": [at]}
        found = json.loads(*json_lines(table_of(columns, [row]).to_batches()[0], columns))
        assert ([found["at"]], [found["ntz"]]) == (found["l"], found["m"])
        assert row_of(found, columns) == row


def test_times_of_years_that_python_lacks_and_keys_that_are_nested_come_back() -> None:
    columns = columns_of(
        "at TIMESTAMP, ntz TIMESTAMP_NTZ, d DATE, m MAP<ARRAY<INT>, STRING>, s MAP<STRUCT<x: DATE>, INT>"
    )
    table = pa.record_batch(
        {
            "at": pa.array(
                [253_402_300_799_999_999, 253_402_300_800_000_000, 971_890_963_199_999_999, -1_096_193_779_200_000_000],
                pa.timestamp("us", "UTC"),
            ),
            "ntz": pa.array([-62_135_596_800_000_000, -62_135_596_800_000_001, 0, None], pa.timestamp("us")),
            "d": pa.array([2_932_896, 2_932_897, -719_162, -719_163], pa.date32()),
            "m": pa.array(
                [[([1, 2], "a"), ([], "b")], [], None, [([3], None)]], pa.map_(pa.list_(pa.int32()), pa.string())
            ),
            "s": pa.array(
                [[({"x": 0}, 1)], None, [], [({"x": None}, None)]], pa.map_(pa.struct([("x", pa.date32())]), pa.int32())
            ),
        }
    )
    found = (row_of(json.loads(line), columns) for line in json_lines(table, columns))
    assert [one.equals(table) for one in batches_of(found, columns)] == [True]
    with pytest.raises(ValueError, match="expected a date or a time in ISO 8601, found 'soon'"):
        row_of({"at": "soon"}, columns)


def test_names_that_json_escapes_are_those_of_others() -> None:
    names = ("n", 'a"b', "c\\d", "\u00e9", "")
    (line,) = json_lines(
        pa.record_batch({name: [at] for at, name in enumerate(names)}), [Column(name, Type("int")) for name in names]
    )
    assert json.loads(line) == {name: at for at, name in enumerate(names)}
    (plain,) = json_lines(
        pa.record_batch({"n": [0], "\u00e9": [1]}), [Column(name, Type("int")) for name in ("n", "\u00e9")]
    )
    assert plain.decode() == '{"n":0,"\u00e9":1}'


def test_what_is_not_a_number_is_text() -> None:
    row = json.loads(*json_lines(pa.record_batch({"d": [float("nan")]}), columns_of("d DOUBLE")))
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
    columns = columns_of("k STRING, n INT")
    (batch,) = table_of(columns, [[row, {"k": "b", "n": 2}]]).to_batches()
    assert next(iter(keys_of(batch, key, columns))) == found
    assert len(list(keys_of(batch, key, columns))) == 2


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


class Message:
    """As a consumer gives it."""

    def __init__(self, key: str | None, value: bytes | None):
        self._key, self._value = None if key is None else key.encode(), value

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


def _key(at: datetime | None, k: str = "a") -> str:
    return json.dumps({"k": k, "at": at and at.isoformat()})


def test_the_keys_of_an_interval_are_those_with_a_row_in_it() -> None:
    first = datetime(2001, 1, 1, tzinfo=UTC)
    keys = {n: _key(first + timedelta(microseconds=n)) for n in (9, 10, 11, 12, 19, 20, 25, 30, 31)}
    topic = [*(Message(key, b"{}") for key in keys.values()), Message(keys[11], None), Message(keys[12], None)]
    topic += [Message(keys[12], b"old or new"), *(Message(key, b"{}") for key in (_key(None), "no object", "[]", "1"))]
    low = 978_307_200_000_000
    interval = Replaced("at", ((low + 10, low + 20), (low + 30, low + 31)))
    assert [key.decode() for key in keys_held(topic, interval) if key] == [keys[n] for n in (10, 19, 30, 12)]
    assert {one.key() for one in topic} - set(keys_held(topic, None)) == {keys[11].encode()}
    assert not keys_held([Message(keys[10], b"{}")], replace(interval, column="k"))


def test_a_record_without_a_key_is_another_writers_and_gets_no_tombstone() -> None:
    assert list(keys_held([Message(None, b"other"), Message("k", b"{}")], None)) == [b"k"]


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize(
    "value", [b"no json", b"\xff", b"[1]", b"5", b"", None, b'{"k":5}', b'{"n":"a"}', b'{"at":1}', b'{"at":"soon"}']
)
def test_other_writers_records_that_are_no_rows_count_as_rows_of_nulls(form: str, value: bytes | None) -> None:
    columns = columns_of("k STRING, n INT, at TIMESTAMP")
    theirs = SimpleNamespace(headers=lambda: [("trace", b"1")], value=lambda: value)
    assert row_in(theirs, FORMS[form], columns) == {"k": None, "n": None, "at": None}
    ours = SimpleNamespace(headers=lambda: [(LEDGER, b"l")], value=lambda: b"no json")
    with pytest.raises(ValueError, match=r"Expecting value|expected"):
        row_in(ours, FORMS[form], columns)


def test_other_writers_records_that_are_rows_are_read() -> None:
    theirs = SimpleNamespace(headers=lambda: None, value=lambda: b'{"k":"a","n":1}')
    assert row_in(theirs, FORMS["json"], columns_of("k STRING, n INT")) == {"k": "a", "n": 1}


def test_the_rows_of_keys_leave_by_records_that_no_row_has() -> None:
    layout = Layout(columns_of("k STRING"), key=("k",))
    one = Operation("x/3", Position("x", 1, "t", 2, 3), False, None, True, 4, lambda: iter(()))
    found = list(tombstones_of(one, layout, [b"a", None], FORMS["json"]))
    assert [(record.key, record.value, record.row) for record in found] == [
        (b"a", None, "x/3/4"),
        (None, None, "x/3/5"),
    ]


def in_avro(rows: list[dict[str, Any]], columns: tuple[Column, ...]) -> list[tuple[bytes, dict[str, bytes]]]:
    """The values and headers of rows."""
    batches = table_of(columns, [rows]).to_batches()
    one = Operation("x/3", Position("x", 2, "t", 5, 3, "h"), False, None, False, 4, lambda: iter(batches))
    found = records_of(one, Layout(columns), (), FORMS["avro"])
    return [(record.value or b"", {name: bytes(text) for name, text in record.headers}) for record in found]  # type: ignore[arg-type]


def test_values_in_avro_are_as_others_write_them_and_come_back() -> None:
    columns = columns_of(avro.EVERY)
    found = in_avro(avro.AT_BOUNDS, columns)
    assert [value for value, _ in found] == [avro.value(schema_of(columns), row) for row in avro.AT_BOUNDS]
    assert [FORMS["avro"].row_in(*one, columns) for one in found] == avro.AT_BOUNDS
    small = columns_of("t TINYINT, s SMALLINT")
    (record,) = in_avro([{"t": -128, "s": 32767}], small)
    assert FORMS["avro"].row_in(*record, small) == {"t": -128, "s": 32767}


def test_a_record_in_avro_is_read_by_the_columns_that_there_were() -> None:
    before, now = columns_of("k STRING, n INT"), columns_of("k STRING, n INT, m STRUCT<x: DATE>")
    ((value, headers),) = in_avro([{"k": "a", "n": 1}], before)
    assert headers[SCHEMA].decode() == rabin(to_parsing_canonical_form(schema_of(before)), "CRC-64-AVRO")
    assert FORMS["avro"].row_in(value, headers, now) == {"k": "a", "n": 1, "m": None}
    for columns in (columns_of("k STRING"), columns_of("k STRING, n BIGINT")):
        with pytest.raises(ValueError, match=r"expected a record of the schema .*, found one of "):
            FORMS["avro"].row_in(value, headers, columns)
    with pytest.raises(ValueError, match="found one of none"):
        FORMS["avro"].row_in(value, {}, before)
    for bad in (b"", value[:-1], value + b"\0", b"\4" + value[1:]):
        with pytest.raises(ValueError, match="expected Avro of 2 columns"):
            FORMS["avro"].row_in(bad, headers, before)


def test_a_tombstone_and_a_key_are_the_same_beside_avro() -> None:
    layout = Layout(columns_of("k STRING, n INT"), key=("n",))
    batch = pa.record_batch({"k": ["a", "b"], "n": pa.array([1, 2], pa.int32()), DELETE_COLUMN: [False, True]})
    one = Operation("x/3", Position("x", 2, "t", 5, 3, "h"), False, None, False, 2, lambda: iter([batch]))
    found = list(records_of(one, layout, layout.key, FORMS["avro"]))
    assert [(record.key, record.value) for record in found] == [(b'{"n":1}', b"\2\2a\2\2"), (b'{"n":2}', None)]


def test_columns_that_avro_has_not_are_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="expected STRING for the keys of p, as Avro's maps have"):
        FORMS["avro"].check(ALL)


def test_times_beyond_four_digits_of_a_year_are_whole() -> None:
    """Spark has such times, and Python has not."""
    days, times = pa.array([2_932_897, -719_163], pa.date32()), [253_402_300_800_000_000, -70_000_000_000_000_000]
    batch = pa.record_batch({"d": days, "t": pa.array(times, pa.timestamp("us", "UTC"))})
    assert [json.loads(line) for line in json_lines(batch, columns_of("d DATE, t TIMESTAMP"))] == [
        {"d": "10000-01-01", "t": "10000-01-01T00:00:00.000000+00:00"},
        {"d": "0000-12-31", "t": "-0249-10-15T19:33:20.000000+00:00"},
    ]


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
        ("topic: rows", "topic: rows, format: xml", "sinks[0].kafka.format: expected json or avro, found 'xml'"),
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


WINDOWS = """\
rule: sent
streams: {events: {delta: /lake/in, event_time: at, lateness: 0 seconds, on_rewrite: correct}}
sql: SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k
sinks: [{kafka: {connection: shop, topic: rows}, key: [start, k]}]
"""


def test_rows_of_a_topic_can_be_replaced_by_their_key(load: Callable[[str], Any]) -> None:
    keyed = load(WINDOWS)
    assert (list(reasons_in_rule(keyed)), list(reasons_for_all(keyed))) == ([], [])
    assert (can_of(keyed.sinks[0]).replaces, can_of(keyed.sinks[0]).empties) == (True, True)
    with pytest.raises(RuleInvalid, match=r"of kind kafka, in which no rows can be replaced: expected a `key` at the"):
        load(WINDOWS.replace(", key: [start, k]", ""))
    kept = load(WINDOWS.replace(", key: [start, k]", "").replace(", on_rewrite: correct", ""))
    assert (can_of(kept.sinks[0]).replaces, can_of(kept.sinks[0]).empties) == (False, False)


@pytest.mark.parametrize(
    ("noted", "found", "said"),
    [
        ("a", Topic("a", {}), None),
        ("a", Topic("a", {0: Ends(0, 0), 1: Ends(0, 0)}), None),
        (None, Topic("b", {}), None),
        ("a", Topic("A" * 22, {}), None),
        ("a", Topic("b", {}), "it was deleted and made anew: expected the topic with id a, found b"),
        ("a", None, "expected the topic with id a, found none: somebody deleted it"),
        (None, None, "expected the topic, found none: somebody deleted it"),
    ],
)
def test_a_topic_is_another_by_its_id_alone(noted: str | None, found: Topic | None, said: str | None) -> None:
    """A broker before Kafka 2.8 gives all topics the same id; an older position has none."""
    assert difference(noted, found) == said


@pytest.mark.parametrize("how", ["avro", "json"])
def test_a_plan_tells_the_schema_of_avro_once_there_is_an_outbox(place: Path, how: str) -> None:
    rule = Outboxed(place, {"kafka": {"connection": "shop", "topic": "rows", "format": how}})
    sink = plan_of(rule.flow.rule(), place / "rules", rule.flow.home).facts()["sinks"][0]
    code, said = rule.command("plan", rule.flow.name)
    assert (code, "schema of its values" in said) == (0, how == "avro"), said
    if how == "avro":
        assert sink["value_schema"] == schema_of(columns_of("at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"))
        assert json.dumps(sink["value_schema"]) in said
    else:
        assert "value_schema" not in sink


def test_a_record_is_known_as_the_rules_by_its_header() -> None:
    ours, other = (SimpleNamespace(headers=lambda found=found: found) for found in ([(LEDGER, b"l")], None))
    assert (is_of("l", ours), is_of("m", ours), is_of("l", other)) == (True, False, False)
