"""Avro's schemas as columns and back; fastavro, which shares no code with it, judges them."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from floodmark.connectors.avro.containers import columns_of_file
from floodmark.connectors.avro.resolving import check_resolves
from floodmark.connectors.avro.schemas import check_read, columns_in, record_in, schema_of
from floodmark.connectors.avro.wellformed import check_well_formed
from floodmark.connectors.avro.widening import widened
from floodmark.connectors.sources.kafka.options import Kafka
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.core.text.ddl import columns_of, text_of
from floodmark.errors import RuleInvalid

EVERY = (
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(38,38), s STRING, y BINARY, t DATE, at TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, a ARRAY<ARRAY<DECIMAL(1,0)>>, o STRUCT<x: INT, o: STRUCT<x: ARRAY<STRUCT<x: DATE>>>>, "
    "int STRUCT<o: STRUCT<x: INT>>, p MAP<STRING, STRUCT<value: TIMESTAMP>>"
)


def record(*fields: Any, **more: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": list(fields), **more})


def field(kind: Any, name: str = "n", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def test_columns_come_back_from_their_schema_which_others_can_parse() -> None:
    columns = columns_of(EVERY)
    schema = schema_of(columns)
    assert columns_in(json.dumps(schema)) == columns
    empty = BytesIO()
    fastavro.schemaless_writer(empty, fastavro.parse_schema(schema), dict.fromkeys(one.name for one in columns))
    assert empty.getvalue() == bytes(len(columns)), "each value may be null, which is the first of its types"


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", "int"),
        (["null", "long"], "bigint"),
        (["string", "null"], "string"),
        (["float"], "float"),
        ({"type": "bytes"}, "binary"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        ({"type": "fixed", "name": "F", "size": 3}, "binary"),
        ({"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 5}, "decimal(5,0)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 38}, "decimal(38,38)"),
        ({"type": "string", "logicalType": "uuid"}, "string"),
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "date"}, "bigint"),  # Avro: what does not fit is as if it were not there
        ({"type": "long", "logicalType": "unheard-of"}, "bigint"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>"),
        ({"type": "map", "values": {"type": "array", "items": "long"}}, "map<string, array<bigint>>"),
        ({"type": "record", "name": "Q", "fields": [field("int", "x")]}, "struct<x: int>"),
    ],
)
def test_a_type_is_a_column(kind: Any, column: str) -> None:
    text = record(field(kind))
    fastavro.parse_schema(json.loads(text))
    assert text_of(columns_in(text)) == f"n {column}"


def test_a_named_type_is_used_again_in_its_namespace() -> None:
    inner = {"type": "record", "name": "Q", "fields": [field("int", "x")]}
    text = record(field(inner, "a"), field("Q", "b"), field(["null", "shop.Q"], "c"), namespace="shop")
    assert text_of(columns_in(text)) == "a struct<x: int>, b struct<x: int>, c struct<x: int>"


def test_fields_beside_the_wanted_ones_may_be_of_any_type() -> None:
    node = {"type": "record", "name": "Node", "fields": [field(["null", "Node"], "next")]}
    color = {"type": "record", "name": "C", "fields": [field({"type": "enum", "name": "E", "symbols": ["a"]})]}
    money = {"type": "bytes", "logicalType": "decimal"}
    types: dict[str, Any] = {"u": ["int", "string"], "node": node, "c": color, "C": "int", "m": money, "N": "E"}
    text = json.dumps(widened(json.loads(record(*(field(kind, name) for name, kind in types.items())))))
    assert text_of(columns_in(text, {"n"})) == "N string", "by a name that a field beside it defines"
    assert columns_in(text, {"other"}) == ()
    with pytest.raises(ValueError, match="expected one type beside null for field u"):
        columns_in(text, {"n", "u"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "expected a schema of Avro in JSON"),
        ('"int"', "expected a record, whose fields are columns, found int"),
        ("7", "expected a type of Avro for the schema, found 7"),
        (record(), "expected fields, each with a name and a type"),
        (record({"name": "n"}), "expected fields, each with a name and a type"),
        (record(field("null")), "expected a type of Avro for field n, found 'null'"),
        (record(field("Unknown")), "expected a type of Avro for field n, found 'Unknown'"),
        (record(field(["null"])), r'expected one type beside null for field n, .*found \["null"\]'),
        (record(field(["null", "int", "string"])), "expected one type beside null for field n"),
        (record(field(["null", "R"])), "expected types that end, found field n: R contains itself"),
        (record(field({"type": "int", "logicalType": "time-millis"})), "column can have for field n, found time-mil"),
        (record(field({"type": "long", "logicalType": "timestamp-nanos"})), "found timestamp-nanos"),
        (record(field({"type": "bytes", "logicalType": "decimal", "precision": 39})), "precision from 1 to 38"),
        (record(field("int"), field("int", "N")), "expected each column once, found N twice"),
        (record(field({"type": 5})), "expected a type of Avro for field n, found 5"),
        (record(field({"type": None})), "expected a type of Avro for field n, found null"),
        (record(field("int", aliases=None)), "expected a list of names as aliases of field n, found null"),
        (record(field("int", aliases=5)), "expected a list of names as aliases of field n, found 5"),
        (
            record(field({"type": "bytes", "logicalType": "decimal"})),
            "a precision of the decimal for field n, found non",
        ),
        (record(field({"type": "bytes", "logicalType": "decimal", "precision": "4"})), 'for field n, found "4"'),
        (record(field("double", default=float("nan"))), "found NaN, which JSON has not"),
        (record(field(json.loads('{"type": "array", "items":' * 120 + '"int"' + "}" * 120))), "up to 100 levels"),
        ("[" * 100_000, "up to 100 levels"),
    ],
)
def test_a_schema_without_columns_is_told_with_its_field(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        columns_in(text)


ENUM, FIXED = {"type": "enum", "name": "E", "symbols": ["A"]}, {"type": "fixed", "name": "F", "size": 2}
INTS = {"type": "array", "items": "int"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (record(field({"type": ["null", "int"]})), 'the name of a type as "type" for field n, found ."null", "int".'),
        (record(field(["null", "null", "int"])), "expected each type once in the union for field n"),
        (record(field(["null", ["int"]])), "expected each type once in the union for field n"),
        (record(field(ENUM), field({**ENUM, "symbols": ["B"]}, "b")), "defined once, found E defined anew for field b"),
        (record(field({**ENUM, "name": "R"})), "found R defined anew for field n"),
        (record(field("int", default="x")), 'expected a default of the type of field n, found "x"'),
        (record(field(INTS, default=[1, "x"])), "expected a default of the type of field n"),
        (record(field({**FIXED, "type": "record", "fields": [field("int")]}, "o", default={})), "the type of field o"),
        (record(field({"type": "enum", "name": "E"})), "expected symbols .* for the enum E, found none"),
        (record(field({**ENUM, "symbols": ["a-b"]})), "expected symbols of letters, digits and _ for the enum E"),
        (record(field({**ENUM, "symbols": ["A", "A"]})), "expected each symbol of the enum E once"),
        (record(field({**ENUM, "default": "B"})), 'expected a symbol as default of the enum E, found "B"'),
        (record(field({**ENUM, "aliases": None})), "expected a list of names as aliases of E, found none"),
        (record(field({"type": "fixed", "name": "F"})), "expected a number of bytes as size of F, found none"),
        (record(field({**FIXED, "size": -1})), "expected a number of bytes as size of F, found -1"),
        (record(field("int", order="up")), "expected ascending or descending or ignore as order of field n"),
        (record(field("int"), name="a-b"), "expected a name of letters, digits and _.* found 'a-b'"),
        (record(field("int"), name="string"), "found 'string'"),
        (record(field("int"), name=5), "expected a name of the type for the schema, found 5"),
        (record(field("int"), namespace="a.1"), "found 'a.1.R'"),
    ],
)  # fmt: skip
def test_a_schema_that_avro_itself_refuses_is_told_with_its_place(text: str, problem: str) -> None:
    columns_in(text)
    with pytest.raises(ValueError, match=problem):
        check_well_formed(json.loads(text))


def test_a_rule_with_such_a_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.avsc").write_text(record(field("int", default="x")))
    with pytest.raises(RuleInvalid, match=r"one.avsc: expected a default of the type of field n, found \"x\""):
        rule_of(tmp_path, "one.avsc")


def test_defaults_and_repeated_definitions_that_avro_takes() -> None:
    inner = {
        "type": "record",
        "name": "Q",
        "namespace": "a",
        "fields": [field("int", "x", default=3), field(ENUM, "e")],
    }
    check_well_formed(json.loads(record(
        field(ENUM), field({**ENUM, "doc": "again"}, "b"), field(["string", "null"], "s", default=None),
        field("double", "d", default="NaN"), field(inner, "o", default={"e": "A"}),
        field("a.Q", "p", default={"e": "A"}),
        field({"type": "map", "values": ["null", INTS]}, "m", default={"x": [1], "y": None}),
        field({"type": "int", "logicalType": "date"}, "t", default=3),
        field(FIXED, "f", default="ab", order="ignore"),
        namespace="",
    )))  # fmt: skip
    check_well_formed(schema_of(columns_of(EVERY)))


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("n TINYINT", "expected INT for n, Avro's smallest type, found TINYINT"),
        ("n STRUCT<x: ARRAY<SMALLINT>>", "expected INT for n"),
        ("n MAP<INT, INT>", "expected STRING for the keys of n"),
    ],
)
def test_columns_that_no_value_is_read_as(ddl: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_read(columns_of(ddl))


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
QTY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}


@pytest.mark.parametrize(
    ("writer", "reader", "problem"),
    [
        (field("int"), field(["null", "long"]), None),
        (field("long"), field("int"), "expected int for n, found long"),
        (field("float"), field("double"), None),
        (field("string"), field("int"), "expected int for n, found string"),
        (field(MILLIS), field(["null", MILLIS]), None),
        (field(MILLIS), field(MICROS), r"expected long with timestamp-micros \(timestamp\) for n, found long"),
        (field("long"), field(MICROS), "found long"),
        (field(QTY), field({**QTY, "scale": 3}), "decimal"),
        (field("int", "gone"), field("int", default=1), None),
        (field("int", "gone"), field("int"), "expected the field n, or a default of it, found neither"),
        (field("int", "old"), field("int", aliases=["old"]), None),
        (field({"type": "array", "items": "int"}), field({"type": "array", "items": MICROS}), "for n, found int"),
        (field({"type": "record", "name": "Q", "fields": [field("int", "x")]}),
         field({"type": "record", "name": "Q", "fields": [field("string", "x")]}), "expected string for n.x, found in"),
        (field({"type": "map", "values": "int"}), field({"type": "map", "values": "long"}), None),
        # As Avro's library decodes them
        (field(ENUM), field({**ENUM, "symbols": ["B", "A"]}), None),
        (field({**ENUM, "symbols": ["B", "A"]}), field(ENUM), "expected the symbol B of n, or a default of the enum"),
        (field({**ENUM, "symbols": ["B", "A"]}), field({**ENUM, "default": "A"}), None),
        (field(ENUM), field({**ENUM, "name": "G"}), "expected the enum G, or an alias of it, for n, found E"),
        (field(ENUM), field({**ENUM, "name": "G", "aliases": ["E"]}), None),
        (field(ENUM), field({**ENUM, "name": "G", "namespace": "x", "aliases": ["E"]}), "expected the enum G"),
        (field(ENUM), field({**ENUM, "namespace": "x"}), None),
        (field(ENUM), field(["null", {**ENUM, "namespace": "x"}]), "expected the enum x.E, or an alias of it"),
        (field(["null", ENUM]), field(["null", {**ENUM, "namespace": "x"}]), None),
        (field(FIXED), field({**FIXED, "name": "G"}), "expected the fixed G, or an alias of it, for n, found F"),
        (field(FIXED), field({**FIXED, "size": 3}), "expected 3 bytes for n, found 2"),
        (field(FIXED), field({**FIXED, "name": "G", "aliases": ["F"]}), None),
        (field({**QTY, **FIXED}), field({**QTY, **FIXED, "name": "G"}), "expected the fixed G"),
        (field({"type": "record", "name": "Q", "fields": [field("int", "x")]}),
         field({"type": "record", "name": "P", "fields": [field("long", "x")]}), None),
        (field({"type": "record", "name": "Q", "fields": [field("int", "x")]}),
         field({"type": "record", "name": "P", "fields": [field("int", "y", aliases=["x"])]}),
         "expected the field n.y, .* aliases of fields hold only if Q is an alias of their record"),
    ],
)  # fmt: skip
def test_schemas_resolve_only_if_the_values_stay_the_same(writer: Any, reader: Any, problem: str | None) -> None:
    pair = record_in(record(writer)), record_in(record(reader))
    if problem is None:
        check_resolves(*pair)
    else:
        with pytest.raises(ValueError, match=problem):
            check_resolves(*pair)


@pytest.mark.parametrize(
    ("kind", "size", "precision", "wide"),
    [("bytes", None, 1, 38), ("bytes", None, 18, 38), ("bytes", None, 19, 19), ("fixed", 8, 9, 9), ("fixed", 9, 9, 21),
     ("fixed", 16, 18, 38), ("fixed", 40, 2, 38)],
)  # fmt: skip
def test_decimals_that_a_long_may_cut_get_room_for_all_of_their_bytes(
    kind: str, size: int | None, precision: int, wide: int
) -> None:
    def schema(digits: int) -> Any:
        named = {"name": "F", "size": size} if size else {}
        money = {"type": kind, **named, "logicalType": "decimal", "precision": digits, "scale": 1}
        inner = {"type": "record", "name": "O", "fields": [field({"type": "map", "values": ["null", money]}, "x")]}
        return json.loads(record(field("int"), field([{"type": "array", "items": inner}, "null"], "a", default=[])))

    assert widened(schema(precision)) == schema(wide)


def test_a_field_is_read_from_one_field() -> None:
    both = record_in(record(field("int", "a"), field("int", "b")))
    with pytest.raises(ValueError, match="expected one field that b is read from, by name or alias, found a and b"):
        check_resolves(both, record_in(record(field("int", "b", aliases=["a"]))))
    check_resolves(both, record_in(record(field("int", "b", aliases=["a"]), name="Other")))


# --- Schemas of a rule


def rule_of(folder: Path, avro_schema: Any, **more: Any) -> Rule:
    said = {"connection": "lake", "topic": "t", "format": "avro", "avro_schema": avro_schema, **more}
    rule = {"rule": "r", "streams": {"s": {"kafka": said}}, "sql": "SELECT * FROM s", "sinks": [{"delta": str(folder)}]}
    (folder / "r.yaml").write_text(json.dumps(rule))
    return load_rule(folder / "r.yaml", {})


def test_a_file_with_a_schema_is_part_of_the_rule(tmp_path: Path) -> None:
    file = tmp_path / "one.avsc"
    file.write_text(record(field("int")))
    first = rule_of(tmp_path, "one.avsc")
    assert first == rule_of(tmp_path, "one.avsc")
    file.write_text(record(field("long")))
    second = rule_of(tmp_path, "one.avsc")
    assert first.hash != second.hash


def test_schemas_by_id_are_read_as_the_one_with_the_largest(tmp_path: Path) -> None:
    (tmp_path / "one.avsc").write_text(record(field("int"), field("string", "gone")))
    (tmp_path / "two.avsc").write_text(record(field("long"), field("int", "m", default=5)))
    rule = rule_of(tmp_path, {"10": "two.avsc", "9": "one.avsc"}, metadata=["offset"])
    from floodmark.connectors.sources.kafka.source import KafkaSource

    assert KafkaSource("s", rule.streams["s"]).columns() == {"n": "long", "m": "integer", "offset": "long"}
    (tmp_path / "two.avsc").write_text(record(field("long"), field("int", "m")))
    with pytest.raises(RuleInvalid, match=r"kafka.avro_schema: one.avsc: expected the field m, or a default of it"):
        rule_of(tmp_path, {"10": "two.avsc", "9": "one.avsc"})


def test_a_column_of_a_schema_and_one_of_the_record_need_two_names(tmp_path: Path) -> None:
    (tmp_path / "one.avsc").write_text(record(field("int", "offset")))
    with pytest.raises(RuleInvalid, match=r"kafka.avro_schema: expected each column once, found offset twice"):
        rule_of(tmp_path, "one.avsc", metadata=["offset"])


def test_a_schema_stays_within_the_folder_of_rules(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (tmp_path / "one.avsc").write_text(record(field("int")))
    with pytest.raises(RuleInvalid, match="found a link that leads outside"):
        rule_of(rules, "../one.avsc")


@pytest.mark.parametrize("ids", [{"-1": "a"}, {"": "a"}, {"1.5": "a"}, {str(1 << 31): "a"}, {}, [], "", {"1": ""}])
def test_ids_are_numbers_of_four_bytes(ids: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        Kafka.model_validate({"connection": "c", "topic": "t", "format": "avro", "avro_schema": ids})


def test_the_head_of_a_file_has_its_columns(tmp_path: Path) -> None:
    schema = schema_of(columns_of(EVERY))
    file = tmp_path / "a"
    with file.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(schema), [], codec="deflate")
    whole = file.read_bytes()
    assert columns_of_file(BytesIO(whole)) == columns_of(EVERY)
    for cut in (0, 3, 4, 40, len(whole) - 17):
        with pytest.raises(ValueError, match="cannot read header"):
            columns_of_file(BytesIO(whole[:cut]))
