"""Rules over files of a folder: every format, kills, changed files, resets and backfills."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import Row, SparkSession
from support import avro
from support.crash import Crash, crash_at
from support.flow import START, STATELESS, Flow, event, rows_of
from support.oracle import tumbling
from support.running import backfill_killed, crash, reset, run
from support.sourcekinds import write_json
from support.sourcelives import sink, some, verdict, windows

from floodmark.connectors.avro.schemas import schema_of
from floodmark.connectors.ports.source import MALFORMED
from floodmark.connectors.sources.files.options import WrittenFiles
from floodmark.connectors.sources.files.source import FilesSource
from floodmark.core.protocol.crashpoints import EPOCH_POINTS, RESET_POINTS
from floodmark.core.rules.rule import Stream
from floodmark.core.text.ddl import columns_of
from floodmark.errors import HistoryGone, InputFault, RunFailed, WrongColumn

COLUMNS = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"

# --- Frames


def read(spark: SparkSession, root: Path, **said: Any) -> list[Row]:
    """All rows of the folder's files, as an epoch reads them."""
    written = WrittenFiles.model_validate({"path": str(root), "settle": "0 seconds", **said})
    stream = Stream(kind="files", address=str(root), options=written.model_dump(mode="json"))
    source = FilesSource("events", stream, root.with_name("keep"))
    start = source.take_start()
    frame = source.frame(spark, start, source.take_end(start))
    assert frame.schema == source.typed(spark).schema
    malformed = {MALFORMED} & set(frame.columns)
    assert [column for column in frame.columns if column not in malformed] == list(source.columns())
    return sorted(frame.collect(), key=str)


@pytest.fixture
def folder(place: Path) -> Path:
    found = place / "in"
    found.mkdir()
    return found


def test_names_are_read_literally(spark: SparkSession, folder: Path) -> None:
    names = ["a b.json", "x*.json", "[1].json", "ü€.json", "{a,b}.json", "p%41.json", "q?.json", "back\\slash.json",
             "+plus#.json", "quo'te\".json"]  # fmt: skip
    for i, name in enumerate(names):
        write_json(folder / name, [{"n": i}])
    (folder / "zipped.json.gz").write_bytes(gzip.compress(b'{"n": 98}\n{"n": 99}\n'))
    (folder / "empty.json").touch()
    found = read(spark, folder, format="json", schema="n INT")
    assert sorted(row.n for row in found) == [*range(len(names)), 98, 99]


def test_malformed_records_have_their_file_and_text_for_every_query(spark: SparkSession, folder: Path) -> None:
    (folder / "below").mkdir()
    (folder / "below" / "a+b c.json").write_text('{"n": 1, "k": "fine"}\n{"n": "x"}\n\n{"n": 2,\n' + f'"{"y" * 300}\n')
    said = {"format": "json", "schema": "k STRING, n INT", "recursive": True}
    found = read(spark, folder, **said)
    texts = sorted(row[MALFORMED] for row in found if row[MALFORMED])
    assert texts[1:] == ['file below/a+b c.json: {"n": "x"}', 'file below/a+b c.json: {"n": 2,']
    assert texts[0].startswith('file below/a+b c.json: "yyy') and len(texts[0]) == 200
    assert [(row.k, row.n) for row in found if row[MALFORMED] is None] == [("fine", 1)]


def test_a_record_is_malformed_also_for_a_query_that_reads_no_column(spark: SparkSession, folder: Path) -> None:
    write_json(folder / "a.json", [{"k": "a", "n": "wrong"}, {"k": "b", "n": 1}])
    written = WrittenFiles(path=str(folder), format="json", declared="k STRING, n INT", settle="0 seconds")
    stream = Stream(kind="files", address=str(folder), options=written.model_dump(mode="json"))
    whole = FilesSource("events", stream, None).whole(spark)
    assert whole.where(f"{MALFORMED} IS NULL").count() == 1
    assert [row.k for row in whole.where(f"{MALFORMED} IS NULL").select("k").collect()] == ["b"]


@pytest.mark.parametrize(
    ("said", "content", "rows", "malformed"),
    [
        ({}, '{"n":1}{"n":2}\n{"n":3} more\n{"n":4},\n \t\r\n{"n":5}\r\n[{"n":6}]\nnull', [5],
         ['[{"n":6}]', "null", '{"n":1}{"n":2}', '{"n":3} more', '{"n":4},']),
        ({}, '{"n":1},"k":"b"\n{"n":2},"_floodmark_read":[{"n":3}]\n{"n":4}]\n{"n":5}],"x":[6\n{"n":7}]}'
             '\n{"n":8}],"_floodmark_read":[{"n":9}',
         [], ['{"n":1},"k":"b"', '{"n":2},"_floodmark_read":[{"n":3}]', '{"n":4}]', '{"n":5}],"x":[6', '{"n":7}]}',
              '{"n":8}],"_floodmark_read":[{"n":9}']),
        ({}, '\ufeff{"n":1}\n', [1], []),
        ({"multiline": True}, '[{"n":1}],"k":[{"n":2}]', [], ['[{"n":1}],"k":[{"n":2}]']),
        ({"multiline": True}, '{"n":1}],[{"n":2}', [], ['{"n":1}],[{"n":2}']),
        ({}, '{"k":"ä","n":1}\n'.encode() + b'{"k":"\xe4","n":2}', [1], ['{"k":"\ufffd","n":2}']),
        ({"multiline": True}, '{"n":\n1}\n', [1], []),
        ({"multiline": True}, '\ufeff [{"n":1},\n{"n":2}]', [1, 2], []),
        ({"multiline": True}, " []\n", [], []),
        ({"multiline": True}, "\n", [], []),
        ({"multiline": True}, '{"n":1}\n{"n":2}', [], ['{"n":1}\n{"n":2}']),
        ({"multiline": True}, '[{"n":1}, {"n":"x"}]', [], ['[{"n":1}, {"n":"x"}]']),
        ({"multiline": True}, '[{"n":1}, null]', [], ['[{"n":1}, null]']),
        ({"multiline": True}, b'[{"k":"\xe4"}]', [], ['[{"k":"\ufffd"}]']),
        ({"format": "text", "schema": None}, "ä\n".encode() + b"\xe4\n", ["ä"], ["\ufffd"]),
    ],
)  # fmt: skip
def test_nothing_of_a_text_is_passed_over(
    spark: SparkSession, folder: Path, said: dict[str, Any], content: str | bytes, rows: list[Any], malformed: list[str]
) -> None:
    (folder / "a").write_bytes(content.encode() if isinstance(content, str) else content)
    found = read(spark, folder, **{"format": "json", "schema": "k STRING, n INT", **said})
    assert sorted(row[MALFORMED] for row in found if row[MALFORMED]) == [f"file a: {one}" for one in malformed]
    column = "value" if said.get("format") == "text" else "n"
    assert [row[column] for row in found if row[MALFORMED] is None] == rows


def test_csv_by_its_header_and_dialect(spark: SparkSession, folder: Path) -> None:
    (folder / "a.csv").write_text("k;n;at\n'x;y';1;01.02.2001\n-;;\n# no\nz;wrong;01.02.2001\nz;1;01.02.2001;more\n")
    found = read(
        spark, folder, format="csv", schema="k STRING, n INT, at DATE", header=True, delimiter=";", quote="'",
        comment="#", null_value="-", date_format="dd.MM.yyyy",
    )  # fmt: skip
    fine = [(row.k, row.n, row["at"] and row["at"].isoformat()) for row in found if row[MALFORMED] is None]
    assert sorted(fine, key=str) == [("x;y", 1, "2001-02-01"), (None, None, None)]
    assert [row[MALFORMED] for row in found if row[MALFORMED]] == [
        "file a.csv: z;1;01.02.2001;more",
        "file a.csv: z;wrong;01.02.2001",
    ]


def test_a_quote_in_a_csv_value_is_doubled_unless_the_rule_says_otherwise(spark: SparkSession, folder: Path) -> None:
    """As RFC 4180 has it, and so does whatever writes CSV but Spark."""
    (folder / "a.csv").write_text('"a ""b"" c",1\n"""",2\n"d\\e",3\n"f,""g""\n",4\n')
    found = read(spark, folder, format="csv", schema="k STRING, n INT", multiline=True)
    assert sorted((row.n, row.k) for row in found) == [(1, 'a "b" c'), (2, '"'), (3, "d\\e"), (4, 'f,"g"\n')]
    (folder / "a.csv").write_text('"a \\"b\\"",1\n')
    assert [row.k for row in read(spark, folder, format="csv", schema="k STRING, n INT", escape="\\")] == ['a "b"']


QUOTED = 'x,"a\n"b",1\n"c"",2\n"d,""e""",3\n"f"g,4\nh"i,5\n"j",6,"\n,"7\n"",8\n  \n\x01,9\n'


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize("header", [False, True])
def test_a_csv_line_whose_quote_is_not_closed_is_malformed(
    spark: SparkSession, folder: Path, name: str, header: bool
) -> None:
    content = (("k,n\n" if header else "") + QUOTED).encode()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = read(spark, folder, format="csv", schema="k STRING, n INT", header=header)
    assert {row.n: row.k for row in found if row[MALFORMED] is None} == {
        1: "b", 3: 'd,"e"', 4: '"f"g', 5: 'h"i', 8: None, 9: "\x01",
    }  # fmt: skip
    malformed = sorted(row[MALFORMED] for row in found if row[MALFORMED])
    assert malformed == [f"file {name}: {one}" for one in ('"c"",2', '"j",6,"', ',"7', 'x,"a')]


def test_a_csv_file_is_read_by_line_as_it_is_read_without_quotes(spark: SparkSession, folder: Path) -> None:
    """Spark's own reader reads files without quotes."""
    lines = [
        "a;1;2001-02-03;1.5",
        " b ; 2;;x",
        ";3;01:02;-",
        "c;4",
        "d;5;;;6",
        "#no;1;1;1",
        "-;7;2001-02-03 04:05;NaN",
        "\\;8;;",
    ]
    (folder / "a.csv").write_text("\n".join(["k;n;at;v", *lines, ""]))
    said = {"format": "csv", "schema": "k STRING, n INT, at TIMESTAMP, v DOUBLE", "delimiter": ";", "header": True,
            "comment": "#", "null_value": "-"}  # fmt: skip
    plain = [str(row) for row in read(spark, folder, **said)]
    (folder / "a.csv").write_text("\n".join(["k;n;at;v", *lines, '"";0;;', ""]))
    found = [str(row) for row in read(spark, folder, **said) if row.n != 0]
    assert found == plain and len(plain) == 7


def test_text_by_line(spark: SparkSession, folder: Path) -> None:
    (folder / "a.txt").write_text("one\n\ntwo")
    assert [row.value for row in read(spark, folder, format="text")] == ["", "one", "two"]


def test_parquet_with_columns_missing_and_wider(spark: SparkSession, folder: Path) -> None:
    at = pa.array([START], pa.timestamp("us", tz="UTC"))
    parquet.write_table(pa.table({"at": at, "n": pa.array([1], pa.int64())}), folder / "a.parquet")
    parquet.write_table(pa.table({"n": pa.array([2], pa.int32())}), folder / "b.parquet")
    spark.range(3, 4).selectExpr("timestamp_micros(0) AS at", "id AS n").write.parquet(str(folder / "c"))
    os.utime(folder / "a.parquet", (1, 1))
    found = read(spark, folder, format="parquet", recursive=True)
    assert [(row.n, row["at"] is not None) for row in sorted(found, key=lambda row: row.n)] == [
        (1, True), (2, False), (3, True)
    ]  # fmt: skip


def test_parquet_columns_of_nothing_but_null_have_no_type(spark: SparkSession, folder: Path) -> None:
    """As pandas writes a column of None. Spark takes it for numbers."""
    for name, values in (("a", pa.array(["x"])), ("b", pa.nulls(1))):
        table = pa.table({"n": pa.array([1.5]) if name == "a" else pa.nulls(1), "K": values, "more": pa.nulls(1)})
        parquet.write_table(table, folder / f"{name}.parquet")
    parquet.write_table(pa.table({"k": ["y"], "n": pa.nulls(1)}), folder / "c.parquet")
    found = read(spark, folder, format="parquet", schema="k STRING, n DOUBLE")
    assert sorted((row.k or "", row.n) for row in found) == [("", None), ("x", 1.5), ("y", None)]
    for path in folder.iterdir():
        path.unlink()
    parquet.write_table(pa.table({"k": pa.array([[], None], pa.list_(pa.null()))}), folder / "d.parquet")
    with pytest.raises(WrongColumn, match=r"expected PARQUET in .*d\.parquet.*k has no type where all of its values"):
        read(spark, folder, format="parquet", schema="k ARRAY<STRING>")


def test_avro_with_columns_missing_and_wider_in_blocks_of_any_codec(spark: SparkSession, folder: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}, {"name": "n", "type": "long"},
        {"name": "m", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
    ]}  # fmt: skip
    at = datetime(2001, 2, 3, 4, 5, 6, 7000)
    avro.write_file(folder / "a.avro", schema, [{"at": at.replace(tzinfo=UTC), "n": 1, "m": Decimal("-1.25")}])
    other = {"type": "record", "name": "Other", "fields": [{"name": "z", "type": "int"}, {"name": "n", "type": "int"}]}
    avro.write_file(folder / "b", other, [{"z": 9, "n": i} for i in range(1000)], "deflate")
    avro.write_file(folder / "none.avro", schema, [])
    (folder / "empty.avro").touch()
    for codec in ("snappy", "zstandard"):
        spark.range(3, 4).selectExpr("timestamp_micros(0) AS at", "id AS n").write.format("avro").option(
            "compression", codec
        ).save(str(folder / codec))
    os.utime(folder / "a.avro", (1, 1))
    found = read(spark, folder, format="avro", recursive=True, infer="once")
    assert [tuple(row) for row in found if row.n == 1 and row["at"]] == [(at, 1, Decimal("-1.25"), None)]
    assert Counter(row.n for row in found) == Counter([1, *range(1000), 3, 3])
    assert all(row["at"] is None and row.m is None for row in found if row.n > 3)


def test_an_avro_file_that_is_cut_off_stops_the_run_as_a_parquet_file_does(spark: SparkSession, folder: Path) -> None:
    schema = schema_of(columns_of(COLUMNS))
    avro.write_file(folder / "a.avro", schema, some(), "deflate")
    whole = (folder / "a.avro").read_bytes()
    (folder / "a.avro").write_bytes(whole[:-20])
    with pytest.raises(Exception, match=r"FAILED_READ_FILE.*a\.avro"):  # Spark's own, which a run translates
        read(spark, folder, format="avro")


def test_avro_decimals_that_are_wider_than_declared_are_malformed(spark: SparkSession, folder: Path) -> None:
    """Spark's reader takes the last 64 bits: 2^64 + 5 as 5. The files' decimals are narrower than the columns."""
    inner = {"type": "record", "name": "I", "fields": [field("x", {"type": "array", "items": money(6, 1)})]}
    schemas = [
        {"type": "record", "name": "R", "fields": [field("n", "int"), field("m", money(9, 2)), field("o", inner)]},
        {"type": "record", "name": "S", "fields": [field("m", ["null", money(5, 0)]), field("n", "long")]},
    ]
    five, wide = (one.to_bytes(9, "big", signed=True) for one in (-5, 2**64 + 5))
    rows = [
        [
            {"n": 1, "m": five, "o": {"x": [five]}},
            {"n": 2, "m": wide, "o": {"x": []}},
            {"n": 3, "m": five, "o": {"x": [wide]}},
        ],
        [{"n": 4, "m": five}, {"n": 5, "m": None}, {"n": 6, "m": wide}],
    ]
    for name, schema, some_rows in zip("ab", schemas, rows, strict=True):
        avro.write_bare(folder / name, schema, some_rows)
    avro.write_file(folder / "c", {"type": "record", "name": "T", "fields": [field("n", "int")]}, [{"n": 7}])
    columns = "n BIGINT, m DECIMAL(12,4), o STRUCT<x: ARRAY<DECIMAL(6,1)>>"
    found = sorted(read(spark, folder, format="avro", schema=columns), key=lambda row: row.n)
    good = [(row.n, row.m, row.o and row.o.x) for row in found if row[MALFORMED] is None]
    assert good == [(1, Decimal("-0.05"), [Decimal("-0.5")]), (4, -5, None), (5, None, None), (7, None, None)]
    assert {row.n: row[MALFORMED] for row in found if row[MALFORMED]} == {
        2: "file a: expected values of decimal(12,4) for m, found a number of more digits",
        3: "file a: expected values of struct<x: array<decimal(6,1)>> for o, found a number of more digits",
        6: "file b: expected values of decimal(12,4) for m, found a number of more digits",
    }


def field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def money(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize("more", ["", ", m DECIMAL(12,4)"])  # whose heads are read beforehand
def test_avro_columns_beside_those_of_the_stream_may_be_of_any_type(
    spark: SparkSession, folder: Path, more: str
) -> None:
    node = {"type": "record", "name": "Node", "fields": [field("next", ["null", "Node"])]}
    clock = {"type": "int", "logicalType": "time-millis"}
    fields = [field("u", ["int", "string"]), field("node", node), field("t", clock), field("m", money(9, 2))]
    rows = [{"n": 1, "u": "x", "node": {"next": {"next": None}}, "t": time(1), "m": Decimal("-1.25")}]
    avro.write_file(folder / "a", {"type": "record", "name": "R", "fields": [*fields, field("n", "int")]}, rows)
    (found,) = read(spark, folder, format="avro", schema=f"n BIGINT{more}")
    assert (found.n, found.m if more else None) == (1, Decimal("-1.25") if more else None)
    with pytest.raises(WrongColumn, match="expected one type beside null for field u"):
        read(spark, folder, format="avro", schema="n BIGINT, u STRING")


def test_an_avro_file_with_another_type_is_refused(spark: SparkSession, folder: Path) -> None:
    avro.write_file(folder / "a.avro", schema_of(columns_of("n STRING")), [{"n": "x"}])
    with pytest.raises(WrongColumn, match=r"expected n bigint in .*a\.avro, found n string\. Write the file again"):
        read(spark, folder, format="avro", schema="n BIGINT")


def test_folders_are_columns(spark: SparkSession, folder: Path) -> None:
    for path in ("day=2026-01-01/r=a%2Fb/x.json", "day=__HIVE_DEFAULT_PARTITION__/x.json", "x.json", "day=no/x.json"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / path, [{"n": 1}])
    found = read(spark, folder, format="json", schema="n INT", partitions="Day DATE, R STRING")
    shown = Counter((row.Day and row.Day.isoformat(), row.R, row[MALFORMED]) for row in found)
    assert shown == {
        ("2026-01-01", "a/b", None): 1,
        (None, None, None): 2,
        (None, None, "file day=no/x.json: expected DATE for Day, found no"): 1,
    }


# --- Rules


def flow_of(place: Path, name: str = "counted", **more: Any) -> Flow:
    flow = Flow(place, name, **more)
    files = {"path": flow.source, "format": "json", "schema": COLUMNS, "settle": "0 seconds"}
    flow.stream = {"delta": None, "files": files, **flow.stream}
    flow.settings = {"epoch": {"max_files": 2}, **flow.settings}
    Path(flow.source).mkdir(parents=True)
    return flow


def drop(flow: Flow, events: Sequence[dict[str, Any]], each: int = 3) -> list[Path]:
    """Files of a few records, in order of time."""
    found = []
    for i in range(0, len(events), each):
        number = max((int(one.stem) for one in Path(flow.source).iterdir()), default=-1) + 1
        path = Path(flow.source) / f"{number:04}.json"
        write_json(path, events[i : i + each])
        os.utime(path, (number, number))
        found.append(path)
    return found


@pytest.mark.prove
@pytest.mark.parametrize("point", EPOCH_POINTS)
def test_an_epoch_that_was_killed_goes_on(spark: SparkSession, place: Path, point: str) -> None:
    flow, events = flow_of(place), some()
    drop(flow, [*events[:9], event(-600), event(None), *events[9:14]])
    assert crash(spark, flow, point, 1 if point == "offsets.before" else 2)
    drop(flow, events[14:])
    run(spark, flow)
    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert verdict(flow) == "proven"
    counts = flow.counts()
    assert (counts["read"], counts["dead"]) == (len(events) + 2, 1)


@pytest.mark.prove
@pytest.mark.parametrize("point", RESET_POINTS)
def test_a_reset_that_was_killed_reads_all_files_again(spark: SparkSession, place: Path, point: str) -> None:
    flow, events = flow_of(place, sql=STATELESS), some(9)
    drop(flow, events[:6])
    run(spark, flow)
    with crash_at(point), pytest.raises(Crash):
        reset(spark, flow)
    drop(flow, events[6:])
    run(spark, flow)
    assert Counter(row["n"] for row in rows_of(flow.sink())) == Counter(one["n"] for one in events)
    assert verdict(flow) == "proven"


def _retry_of_a_changed_file(spark: SparkSession, flow: Flow, change: Callable[[Path], object]) -> None:
    paths = drop(flow, some(6))
    assert crash(spark, flow, "intent.after")
    change(paths[-1])
    with pytest.raises(HistoryGone, match=rf"file {paths[-1].name}"):
        run(spark, flow)


def test_a_retry_needs_its_files_as_they_were(spark: SparkSession, place: Path) -> None:
    _retry_of_a_changed_file(
        spark, flow_of(place, "changed", sql=STATELESS, sinks=1), lambda path: path.write_text("{}\n")
    )
    _retry_of_a_changed_file(spark, flow_of(place, "removed", sql=STATELESS, sinks=1), lambda path: path.unlink())


@pytest.mark.parametrize("landing", [False, True])
def test_a_file_that_vanishes_before_its_epoch_fails_the_run_alone(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, landing: bool
) -> None:
    flow, events = flow_of(place, sql=STATELESS, sinks=1, stream={"landing": landing}), some(6)
    paths, frame = drop(flow, events), FilesSource.frame

    def vanished(*asked: Any) -> Any:
        paths[0].unlink()
        return frame(*asked)

    with monkeypatch.context() as during:
        during.setattr(FilesSource, "frame", vanished)
        with pytest.raises(RunFailed, match=r"0000\.json.* No epoch has read it: run again"):
            run(spark, flow)
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [one["n"] for one in events[3:]]


def test_files_of_the_whole_life_of_a_rule(spark: SparkSession, place: Path) -> None:
    """Read, go on behind a removed file, be refused by a changed one, reset, read them as they are then."""
    flow, events = flow_of(place, sql=STATELESS, sinks=1), some(12)
    paths = drop(flow, events[:6])
    run(spark, flow)
    paths[0].unlink()
    drop(flow, events[6:9])
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == list(range(9))
    kept = paths[1].stat()
    paths[1].write_text(paths[1].read_text().replace('"k": "a"', '"k": "c"').replace('"k": "b"', '"k": "c"'))
    os.utime(paths[1], ns=(kept.st_atime_ns, kept.st_mtime_ns))
    assert (paths[1].stat().st_size, paths[1].stat().st_mtime_ns) == (kept.st_size, kept.st_mtime_ns)
    drop(flow, events[9:])
    with pytest.raises(HistoryGone, match=r"file 0001\.json was changed after it was read"):
        run(spark, flow)
    reset(spark, flow)
    run(spark, flow)
    found = rows_of(flow.sink())
    assert sorted(row["n"] for row in found) == list(range(3, 12))
    assert {row["k"] for row in found if row["n"] in (3, 4, 5)} == {"c"}
    assert verdict(flow) == "proven"


@pytest.mark.prove  # a reset does, and a retry names them
def test_a_backfill_reads_the_files_again_or_names_those_that_are_gone(spark: SparkSession, place: Path) -> None:
    flow, events = flow_of(place, settings={"epoch": {}}), some()
    late = [event(5, "a", 64.0, 1), event(70, "b", 128.0, 2)]
    drop(flow, [*events, event(1000)])
    run(spark, flow)
    paths = drop(flow, late)
    run(spark, flow)
    low, high = (round(START.timestamp() + seconds) * 1_000_000 for seconds in (0, 180))
    backfill_killed(spark, flow, low, high, None)
    inside = [row for row in tumbling([*events, *late], START.replace(minute=3)) if row[0] >= START]
    assert [row for row in sink(flow) if START <= row[0] < START.replace(minute=3)] == inside
    assert verdict(flow) == "proven"
    paths[0].unlink()
    with pytest.raises(HistoryGone, match=rf"expected file {paths[0].name}"):
        backfill_killed(spark, flow, low, high, None)


def test_a_malformed_record_goes_where_the_rule_says(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql="SELECT k FROM events", sinks=1)
    write_json(Path(flow.source) / "a.json", [event(0, "a"), {**event(1, "b"), "n": "wrong"}, event(2, "c")])
    with pytest.raises(InputFault, match=r"file a\.json: .*wrong"):
        run(spark, flow)
    flow.settings = {**flow.settings, "on_error": "dead"}
    run(spark, flow)
    assert sorted(row["k"] for row in rows_of(flow.sink())) == ["a", "c"]
    assert flow.counts()["dead"] == 1
    assert verdict(flow) == "proven"


def test_a_rule_reads_what_it_inferred(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, sql="SELECT at, k, n FROM events", sinks=1)
    flow.stream["files"] = {**flow.stream["files"], "schema": None, "infer": "once"}
    drop(flow, some(3))
    run(spark, flow)
    write_json(Path(flow.source) / "more.json", [json.loads(json.dumps(event(40, "z", n=7), default=str)) | {"x": 1}])
    run(spark, flow)
    assert sorted(row["n"] for row in rows_of(flow.sink())) == [0, 1, 2, 7]
