"""Files of test cases: what they say, how every mistake in them is named with its place, and how rows are compared."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from floodmark.cli.commands.cases import _cases
from floodmark.cli.shared.selection import load_folder
from floodmark.core.cases.casefile import case_schema_text
from floodmark.core.cases.casevalues import text_of_value, value_of
from floodmark.core.cases.differences import compared
from floodmark.core.cases.typedrows import texts
from floodmark.core.text.ddl import columns_of
from floodmark.core.text.yamltree import read_yaml
from floodmark.errors import FloodmarkError, Refused, RuleInvalid, RunFailed, TableBroken
from floodmark.proving.scratch import Scratch
from floodmark.testing import Case, cases, casetables
from floodmark.testing.deltatypes import declared, schema_of
from floodmark.testing.inputs import Inputs
from floodmark.testing.playing import copy_for_case

RULE = """\
rule: heat
streams: {readings: {delta: LAKE/readings, event_time: at, lateness: 1 minute}}
lookups: {rooms: {delta: LAKE/rooms}}
sql: |
  SELECT window.start AS minute, r.device, m.room, count(*) AS n
  FROM readings r LEFT JOIN rooms m ON r.device = m.device
  GROUP BY window(r.at, '1 minute'), r.device, m.room
sinks: [{delta: LAKE/heat}, {console: true, qos: 1}]
timezone: Europe/Berlin
"""
CASES = """\
schema:
  readings: at TIMESTAMP, device STRING, value DOUBLE
  rooms: device STRING, room INT
cases:
  - case: a minute is written once it is final
    epochs:
      - now: 2001-01-01T12:00
        lookups: {rooms: [{device: a, room: 7}]}
        input:
          readings:
            - {at: "2001-01-01T00:00:10", device: a}
            - {at: "2001-01-01T00:00:20+01:00", device: a, value: 3}
        expect: {sink: []}
      - input: {readings: [{at: "2001-01-01T00:02:00", device: b, value: NaN}]}
        close_until: 2001-01-01T00:03
        expect:
          sinks: [[{minute: "2001-01-01T00:00", device: a, room: 7, n: 2}], null]
          late: []
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules" / "tests").mkdir(parents=True)
    (tmp_path / "rules" / "heat.yaml").write_text(RULE.replace("LAKE", str(tmp_path / "lake")))
    return tmp_path / "rules"


@pytest.fixture
def inputs(rules: Path) -> Callable[..., Inputs]:
    def written(text: str) -> Inputs:
        (rules / "tests" / "heat.yaml").write_text(text)
        [case, *_] = cases(rules)
        return Inputs(case.rule, case.file)

    return written


@pytest.fixture
def refused(rules: Path, inputs: Callable[..., Inputs]) -> Callable[..., list[str]]:
    def problems(text: str) -> list[str]:
        with pytest.raises(RuleInvalid) as caught:
            inputs(text)
        return [line.removeprefix(f"{rules / 'tests'}/") for line in str(caught.value).splitlines()]

    return problems


def test_rows_get_the_types_of_their_columns_and_null_for_what_they_leave_out(
    inputs: Callable[..., Inputs],
) -> None:
    [[one, other]] = inputs(CASES).cases
    first, second = one.streams["readings"]
    midnight = datetime(2001, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))
    assert first == {"at": midnight.replace(second=10), "device": "a", "value": None}
    assert second == {"at": midnight.replace(second=20), "device": "a", "value": 3.0}
    assert other.streams["readings"][0]["device"] == "b"
    assert (one.lookups, other.lookups) == ({"rooms": [{"device": "a", "room": 7}]}, {})


OF_RULES = {
    "kafka": ({"kafka": {"connection": "c", "topic": "t", "schema": "id BIGINT, v STRING", "metadata": ["offset"]}},
              "id bigint, v string, offset bigint"),
    "text": ({"kafka": {"connection": "c", "topic": "t", "format": "text"}}, "value string"),
    "avro": ({"kafka": {"connection": "c", "topic": "t", "format": "avro", "avro_schema": "a.avsc"}}, "id bigint"),
    "files": ({"files": {"path": "/in", "format": "csv", "schema": "id BIGINT", "partitions": "day DATE"}},
              "id bigint, day date"),
    "python": ({"python": {"class": "rows:Rows", "schema": "id BIGINT"}}, "id bigint"),
}  # fmt: skip


ROWS = """\
class Rows:
    def earliest(self): return 0
    def latest(self): return 0
    def read(self, since, upto): return []
"""


def of_rule(rules: Path, stream: dict[str, Any], schema: str) -> Inputs:
    """The input of a case whose file declares these columns for the stream of a rule."""
    (rules / "a.avsc").write_text('{"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}')
    (rules / "rows.py").write_text(ROWS)
    rule = {"rule": "heat", "streams": {"o": stream}, "sql": "SELECT * FROM o", "sinks": [{"console": True}], "qos": 1}
    (rules / "heat.yaml").write_text(json.dumps(rule))
    cases_text = {"cases": [{"case": "one", "epochs": [{"expect": {"sink": []}}]}]}
    (rules / "tests" / "heat.yaml").write_text(json.dumps(({"schema": {"o": schema}} if schema else {}) | cases_text))
    [case] = cases(rules)
    return Inputs(case.rule, case.file)


@pytest.mark.parametrize(("stream", "columns"), OF_RULES.values(), ids=OF_RULES)
def test_what_the_rule_declares_are_the_columns_of_its_cases(rules: Path, stream: dict[str, Any], columns: str) -> None:
    assert of_rule(rules, stream, "").columns["o"] == columns_of(columns)
    first = columns.partition(",")[0]
    assert of_rule(rules, stream, first).columns["o"] == columns_of(first), "as for a table, a part of them will do"
    assert of_rule(rules, stream, first.upper()).columns["o"] == columns_of(first.upper())
    for wrong, found in ((f"{first}, more INT", "no such column"), (f"{first.split()[0]} DATE", first)):
        with pytest.raises(RuleInvalid, match=f"expected columns that the rule declares for stream o, .*found {found}"):
            of_rule(rules, stream, wrong)


def test_columns_of_a_table_are_found_in_whatever_case_they_are_written(rules: Path) -> None:
    write_deltalake(rules / "o", pa.table({"deviceId": ["a"], "n": [1]}))
    stream = {"delta": str(rules / "o")}
    assert of_rule(rules, stream, "DEVICEID STRING").columns["o"] == columns_of("DEVICEID STRING")
    for wrong, found in (("DEVICEID DATE", "deviceId string"), ("device STRING", "no such column")):
        with pytest.raises(RuleInvalid, match=f"expected columns of the table at .*, found {found} there"):
            of_rule(rules, stream, wrong)


def test_columns_that_only_a_file_knows_are_declared_by_the_case(rules: Path) -> None:
    stream = {"files": {"path": "/in", "format": "json", "infer": "once"}}
    assert of_rule(rules, stream, "id INT").columns["o"] == columns_of("id INT")
    with pytest.raises(RuleInvalid, match="expected declared columns, because it is not a table"):
        of_rule(rules, stream, "")


def test_declared_columns_need_no_table_that_can_be_read(rules: Path, inputs: Callable[..., Inputs]) -> None:
    """The table is damaged. Where cases run, nobody may be able to mend it."""
    log = rules.parent / "lake" / "readings" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{")
    assert [column.name for column in inputs(CASES).columns["readings"]] == ["at", "device", "value"]
    with pytest.raises(TableBroken, match=r"stream readings: .* cannot be read.*; or declare the columns: `schema: "):
        inputs(CASES.replace("  readings: at TIMESTAMP, device STRING, value DOUBLE\n", ""))


def test_declared_columns_need_no_store_that_can_be_reached(
    rules: Path, inputs: Callable[..., Inputs], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (rules / "heat.yaml").write_text(RULE.replace("LAKE", "s3a://lake"))
    assert [column.name for column in inputs(CASES).columns["rooms"]] == ["device", "room"]
    (rules / "tests" / "heat.yaml").write_text(CASES.replace("  rooms: device STRING, room INT\n", ""))
    found, _, faults = _cases(load_folder(rules), None)
    assert found == [] and str(faults["heat"]).startswith("lookup rooms: table rooms: the table cannot be read now: ")
    assert isinstance(faults["heat"], RunFailed)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("cases:", "casses:", 4, "unknown key 'casses': did you mean 'cases'?"),
        ("expect: {sink: []}", "expect: {sinc: []}", 13, "expect.sinc: unknown key 'sinc': did you mean 'sink'?"),
        ("input:\n", "inputs:\n", 9, "unknown key 'inputs': did you mean 'input'?"),
        ("          readings:\n", "          reading:\n", 10, "unknown stream 'reading': did you mean 'readings'?"),
        ("{rooms: [", "{room: [", 8, "unknown lookup 'room': did you mean 'rooms'?"),
        ("  rooms: device", "  romos: device", 3, "unknown stream or lookup 'romos'"),
        ("room INT", "room INTT", 3, "schema.rooms: expected a type out of BOOLEAN, TINYINT"),
        ("device: b, value: NaN", "device: b, valeu: 1", 14, "unknown column 'valeu': did you mean 'value'?"),
        ("device: b, value: NaN", "device: b, value: warm", 14, "expected a number, NaN, Infinity or -Infinity, found "
         "'warm' (the column is DOUBLE)"),
        ("device: a}", "device: 7}", 11, "input.readings[0].device: expected text, found 7 (the column is STRING)"),
        ("room: 7}]}", "room: 7.5}]}", 8, "expected a whole number that fits INT, found 7.5"),
        ('"2001-01-01T00:02:00"', "10 o'clock", 14, "expected a timestamp as text such as 2001-01-31T12:00"),
        ("[{device: a, room: 7}]", "{device: a, room: 7}", 8, "expected a list of rows"),
        ("[{device: a, room: 7}]", "[a]", 8, "expected a mapping (key: value), found 'a'"),
        ("case: a minute is written once it is final", "case: ''", 5, "expected text that is not empty"),
        ("now: 2001-01-01T12:00", "now: noon", 7, "now: expected an ISO 8601 timestamp"),
        ("        close", "        now: 2001-01-01T11:59\n        close", 15, "a clock that does not go back"),
        ("      - now: 2001-01-01T12:00\n        lookups", "      - lookups", None, None),
        ("], null]", "]]", 17, "expected 2 lists, one for each sink of the rule, in its order, found 1"),
        ("          late: []", "          sink: []", 17, "expected either `sink`"),
    ],
)  # fmt: skip
def test_every_mistake_is_named_with_its_line(
    inputs: Callable[..., Inputs],
    refused: Callable[..., list[str]],
    old: str,
    new: str,
    line: int | None,
    words: str | None,
) -> None:
    assert CASES.count(old) == 1
    text = CASES.replace(old, new)
    if line is None:
        assert inputs(text)
        return
    found = refused(text)
    assert any(one.startswith(f"heat.yaml:{line}: ") and str(words) in one for one in found), found


def test_a_clock_that_begins_in_the_middle_and_names_that_come_twice_are_refused(
    refused: Callable[..., list[str]],
) -> None:
    later = CASES.replace("      - now: 2001-01-01T12:00\n        lookups", "      - lookups")
    later = later.replace("        close_until", "        now: 2001-01-01T13:00\n        close_until")
    assert "expected `now` in the first epoch, too" in refused(later)[0]
    again = CASES + CASES.partition("cases:\n")[2]
    assert refused(again) == [
        "heat.yaml:19: cases[1].case: expected each name once, found 'a minute is written once it is final' a second "
        "time"
    ]


def test_what_the_rule_cannot_do_is_refused(rules: Path, refused: Callable[..., list[str]]) -> None:
    path = rules / "heat.yaml"
    path.write_text(path.read_text().replace("lookups: {rooms: {", "late: drop\nlookups: {rooms: {history: true, "))
    [history, late] = refused(CASES.replace("late: []", "late: [{device: a}]"))
    assert "expected a lookup without `history`" in history
    assert "the rule has `late: drop`" in late


def test_columns_come_from_the_table_where_the_file_declares_none(
    rules: Path, inputs: Callable[..., Inputs], refused: Callable[..., list[str]]
) -> None:
    bare = CASES.replace("  readings: at TIMESTAMP, device STRING, value DOUBLE\n", "")
    assert "found none; declare the columns: `schema: {readings: 'column TYPE, ...'}`" in refused(bare)[0]
    place = rules.parent / "lake" / "readings"
    casetables.make(str(place), columns_of("at TIMESTAMP, device STRING, value DOUBLE, more ARRAY<INT>"))
    found = inputs(bare)
    assert [str(column) for column in found.columns["readings"]][2:] == ["value double", "more array<int>"]
    assert inputs(CASES).columns["readings"] == found.columns["readings"][:3], "columns that no case needs"
    wrong = CASES.replace("value DOUBLE", "value INT")
    assert refused(wrong) == [
        f"heat.yaml:2: schema.readings: expected columns of the table at {place}, declared value int, found value "
        "double there"
    ]


def test_rules_without_cases_and_cases_without_a_rule_are_refused(rules: Path) -> None:
    with pytest.raises(Refused, match=r"rule heat: expected test cases in .*heat.yaml, found no such file"):
        cases(rules, ["heat"])
    assert cases(rules) == []
    (rules / "tests" / "cold.yaml").write_text(CASES)
    with pytest.raises(Refused, match="found no rule 'cold'"):
        cases(rules)
    (rules / "tests" / "cold.yaml").rename(rules / "tests" / "heat.yml")
    [case] = cases(rules)
    assert isinstance(case, Case)
    assert str(case) == "heat: a minute is written once it is final"
    assert case.place.endswith("heat.yml:5")
    (rules / "tests" / "heat.yaml").write_text(CASES)
    with pytest.raises(RuleInvalid, match="expected one file of cases for a rule"):
        cases(rules)
    (rules / "tests" / "heat.yml").unlink()
    (rules / "heat.yaml").write_text("rule: heat\n")
    with pytest.raises(FloodmarkError, match="streams"):
        cases(rules, ["heat"])


def test_the_schema_for_editors_accepts_what_is_accepted() -> None:
    schema = json.loads(case_schema_text())
    jsonschema.validate(read_yaml(CASES).value, schema)
    with pytest.raises(jsonschema.ValidationError, match="'sinc'"):
        jsonschema.validate(read_yaml(CASES.replace("{sink:", "{sinc:")).value, schema)


TYPES = """\
yes BOOLEAN, tiny TINYINT, big BIGINT, d DECIMAL(10,2), f FLOAT, x DOUBLE, s STRING, b BINARY, day DATE, t TIMESTAMP,
n TIMESTAMP_NTZ, many ARRAY<TIMESTAMP>, by MAP<INT, STRING>, one STRUCT<a: INT, t: TIMESTAMP>
"""
WRITTEN: dict[str, Any] = {
    "yes": True, "tiny": -1, "big": 2**60, "d": 1.5, "f": 0.1, "x": "-Infinity", "s": "", "b": "00ff",
    "day": "2001-01-31", "t": "2001-07-01T12:00", "n": "2001-07-01T12:00", "many": ["2001-07-01T10:00Z", None],
    "by": {"2": "two", "1": None}, "one": {"t": "2001-07-01T12:00:00.5"},
}  # fmt: skip
SHOWN = (
    "true", "-1", str(2**60), "1.50", "0.10000000149011612", "-inf", "", "00ff", "2001-01-31",
    "2001-07-01T12:00:00+02:00", "2001-07-01T12:00:00", '["2001-07-01T12:00:00+02:00", null]',
    '{"1": null, "2": "two"}', '{"a": null, "t": "2001-07-01T12:00:00.500000+02:00"}',
)  # fmt: skip


def test_a_value_of_every_type_comes_out_of_a_table_as_it_was_written(tmp_path: Path) -> None:
    zone, columns, address = ZoneInfo("Europe/Berlin"), columns_of(TYPES), str(tmp_path / "t")
    rows = [
        {column.name: value_of(column.type, WRITTEN[column.name], zone) for column in columns},
        dict.fromkeys(WRITTEN),
    ]
    casetables.make(address, columns)
    casetables.append(address, rows)
    casetables.append(address, [])
    schema, found = casetables.rows_of(address)
    assert declared(schema) == columns
    assert texts(found, columns, zone) == texts(rows, columns, zone) == [SHOWN, (None,) * len(columns)]
    casetables.replace(address, rows[:1])
    assert len(casetables.rows_of(address)[1]) == 1


def test_schemas_of_tables_that_others_made_are_read(tmp_path: Path) -> None:
    import pyarrow as pa

    day, at = date(2001, 1, 31), datetime(2001, 1, 31, tzinfo=UTC)
    table = pa.table({"d": [Decimal("1.5")], "day": [day], "at": [at], "s": [{"a": [1]}]})
    write_deltalake(str(tmp_path / "t"), table)
    columns = declared(casetables.rows_of(str(tmp_path / "t"))[0])
    assert [str(one) for one in columns] == ["d decimal(2,1)", "day date", "at timestamp", "s struct<a: array<bigint>>"]
    assert declared(schema_of(columns)) == columns
    with pytest.raises(ValueError, match="column v: expected a type out of BOOLEAN"):
        declared('{"type": "struct", "fields": [{"name": "v", "type": "variant"}]}')


@pytest.mark.parametrize(
    ("ddl", "written", "words"),
    [
        ("x DECIMAL(4,2)", "1.555", "a Decimal that fits DECIMAL(4,2) exactly"),
        ("x DECIMAL(4,2)", "much", "a decimal number"),
        ("x FLOAT", 1e300, "a number that fits FLOAT"),
        ("x DATE", "2001-02-30", "a date as text such as 2001-01-31"),
        ("x TIMESTAMP_NTZ", "2001-01-01T00:00Z", "a time without a zone"),
        ("x BINARY", "xyz", "bytes as hexadecimal text"),
        ("x BOOLEAN", "yes", "True or False"),
        ("x ARRAY<INT>", {"a": 1}, "a list"),
        ("x ARRAY<INT>", [1, "2"], "a whole number that fits INT, found '2'"),
        ("x MAP<INT, INT>", {"one": 1}, "a whole number that fits INT, found 'one'"),
        ("x STRUCT<a: INT>", {"b": 1}, "fields among a, found 'b'"),
        ("x STRUCT<a: INT>", [1], "a mapping"),
    ],
)
def test_a_value_that_does_not_fit_says_what_was_expected(ddl: str, written: Any, words: str) -> None:
    [column] = columns_of(ddl)
    with pytest.raises(ValueError, match="expected ") as caught:
        value_of(column.type, written, ZoneInfo("UTC"))
    assert words in str(caught.value)


def test_zeros_and_nans_are_one_value_each() -> None:
    [column] = columns_of("x DOUBLE")
    shown = [text_of_value(column.type, value, ZoneInfo("UTC")) for value in (0.0, -0.0, float("nan"), -float("nan"))]
    assert shown == ["0.0", "0.0", "nan", "nan"]


def test_rows_are_compared_as_multisets_and_alike_ones_stand_together() -> None:
    rows = [("a", "1", "x"), ("b", "2", None), ("b", "2", None)]
    assert compared("sink", ["k", "n", "s"], rows, rows[::-1]) is None
    found = compared("sink", ["k", "n", "s"], rows, [("a", "3", "x"), ("b", "2", None), ("c", "4", "")])
    assert found is not None
    assert found.text() == (
        "sink: expected 3 rows, found 3 rows\n"
        "            k  n  s\n"
        "expected    a  1  x\n"
        "  found        3\n"
        "missing     b  2  null\n"
        "unexpected  c  4  ''"
    )


def test_a_table_of_many_differences_is_cut() -> None:
    found = compared("late", ["n"], [(str(n),) for n in range(25)], [])
    assert found is not None
    assert found.text().splitlines()[-1] == "… and 5 more"


def test_a_case_needs_no_client_of_a_target(rules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sinks are tables. The longest name of a rule makes no table of PostgreSQL that is too long."""
    for client in ("psycopg", "confluent_kafka"):
        monkeypatch.setitem(sys.modules, client, None)
    for module in [
        name for name in sys.modules if name.startswith("floodmark.connectors.targets.") and ".kind" not in name
    ]:
        monkeypatch.delitem(sys.modules, module)
    name = "r" * 63
    stream = {"kafka": {"connection": "bus", "topic": "t", "schema": "k STRING"}}
    sinks = [
        {"postgres": {"connection": "shop", "table": "sold"}, "key": ["k"]},
        {"kafka": {"connection": "bus", "topic": "sold", "key": ["k"]}},
    ]
    (rules / f"{name}.yaml").write_text(
        json.dumps({"rule": name, "streams": {"o": stream}, "sql": "SELECT k FROM o", "sinks": sinks})
    )
    rule = load_folder(rules).good[name]
    found = copy_for_case(rule, Scratch(rules.parent / "scratch"))
    assert [(sink.kind, sink.options, sink.outbox) for sink in found.sinks] == [("delta", {}, None)] * 2
    assert [sink.address for sink in found.sinks] == [f"{rules.parent}/scratch/sinks/{name}/{i}" for i in (0, 1)]
    assert [sink.key for sink in found.sinks] == [sink.key for sink in rule.sinks]
