"""Manifests of a folder of files, what is tidied up, what files hold, and what such a sink is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.flow import event
from support.outboxed import Outboxed

from floodmark.audit.certificate import audit
from floodmark.connectors.sources.python.rows import schema_of, table_of
from floodmark.connectors.targets.files import formats
from floodmark.connectors.targets.files.folder import Folder
from floodmark.connectors.targets.files.formats import Counted, read, write
from floodmark.core.relay.manifests import (
    Listed,
    Manifest,
    Move,
    data_name,
    manifest_name,
    moves,
    numbers_in,
    staged_name,
    strays,
    unlisted,
)
from floodmark.core.relay.positions import Position
from floodmark.core.rules.rule import load_rule
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Fenced, LedgerBroken, Refused, RuleInvalid, TableBroken
from floodmark.ledger.landings import OUTBOX, Cut, LandedTable, app_of, cut
from floodmark.reading import files_of

AT = "2001-01-01T00:00:00.000+00:00"


def manifest(number: int, first: int = 0, *files: Listed) -> Manifest:
    return Manifest(number, first, Position("x", 1, "t", number, number, "h"), files, "k STRING", AT)


def listed(number: int, attempt: str = "0a1b2c3d") -> Listed:
    return Listed(data_name(number, "csv"), staged_name(number, attempt, "csv"), 1, 2, "0f")


def test_a_manifest_comes_back_as_it_was() -> None:
    found = manifest(3, 1, listed(3))
    assert Manifest.parse(found.text()) == found
    assert found.name == "000000000003.json"
    assert numbers_in([manifest_name(11), manifest_name(2), ".000000000004.json-7", "x.json"]) == [2, 11]


@pytest.mark.parametrize("text", ["", "[]", "{}", "5", '{"files": 3}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expect|Expecting"):
        Manifest.parse(text)


def test_what_counts_gets_its_name_and_what_does_not_is_removed() -> None:
    lost, live, unknown = staged_name(5, "4e5f6789", "csv"), staged_name(7, "0a1b2c3d", "csv"), "mine.csv"
    names = [
        listed(6).staged,
        listed(5).name,
        lost,
        live,
        unknown,
        data_name(2, "csv"),
        staged_name(1, "0a1b2c3d", "csv"),
    ]
    assert list(moves(names, manifest(6, 3), [listed(6), listed(5)])) == [
        Move(staged_name(1, "0a1b2c3d", "csv"), None),
        Move(lost, None),
        Move(listed(6).staged, listed(6).name),
        Move(data_name(2, "csv"), None),
    ]


FOREIGN = (
    ".000000000001.csv.crc", ".000000000001.csv.Xy12Qz", ".000000000001-0a1b2c3d.csv.crc", ".000000000001-xy.csv",
    ".1.swp", ".1", "000000000001.csv.gz", "000000000001.tmp", "1.csv",
)  # fmt: skip


def test_files_of_other_programs_stay_as_they_are(tmp_path: Path) -> None:
    """Of Hadoop, rsync, an editor: they are no reason to stop, nor ours to remove."""
    folder, data = Folder("files:///x", str(tmp_path)), tmp_path / "data"
    folder.make()
    for name in FOREIGN:
        (data / name).touch()
    (data / data_name(1, "csv")).mkdir()
    folder.tidy(manifest(2, 2))
    assert {one.name for one in data.iterdir()} == {*FOREIGN, data_name(1, "csv")}


def test_files_of_manifests_that_are_gone_are_strays() -> None:
    """One with a dot may be of a relay that now writes, and one of another program is not ours."""
    names = [listed(7).name, listed(6).name, listed(5).name, listed(8).staged, "000000000007 (copy).csv"]
    assert strays(names, 5) == [listed(6).name, listed(7).name]


def test_files_that_no_manifest_lists() -> None:
    """Neither what a relay now writes or soon removes, nor what programs that read folders leave out."""
    mine = ["000000000005 (copy).csv", data_name(5, "json"), listed(9).name, "more.csv"]
    names = [*mine, listed(5).name, listed(2).name, listed(6).staged, "_SUCCESS", ".swp"]
    assert unlisted(names, 3, [listed(5), listed(6)]) == sorted(mine)


def test_portions_that_upkeep_takes_out_of_an_outbox_are_accounted_for(place: Path) -> None:
    """Only what the auditor said of rows that are gone is no longer said: made by hand, they lack what an epoch has."""
    rule = Outboxed(place, {"files": {"path": str(place / "kept")}})
    for n in (1, 2):
        rule.epoch([event(1, n=n)])
    before = audit(rule.flow.name, rule.flow.home, deep=True)
    name = Path(rule.outbox).name
    table = LandedTable(name, rule.outbox, app_of(rule.ledger.id, name, OUTBOX), 0, 3, OUTBOX)
    cut("r", Cut(table, 2, 1))
    after = audit(rule.flow.name, rule.flow.home, deep=True)
    assert before is not None and after is not None and set(after.findings) < set(before.findings)


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_the_audit_names_what_somebody_did_to_data_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = place / "kept"
    rule = Outboxed(place, {"files": {"path": str(path), "format": kind}})
    for n in (1, 2):
        rule.epoch([event(1, n=n)])
        assert rule.relays.ship().code == 0
    file, (staged,) = path / "data" / data_name(2, kind), Folder("files:///x", str(path)).manifest(2).files
    raw = file.read_bytes()
    file.rename(file.with_name(staged.staged))
    (path / "data" / staged_name(3, "0a1b2c3d", kind)).write_text("of a relay that now writes")
    assert rule.certified() == ([], {})
    file.with_name(staged.staged).rename(file)
    for changed in (raw[:-5], raw + raw, b"", raw[:-1] + bytes([raw[-1] ^ 1])):
        file.write_bytes(changed)
        ((said,), _) = rule.certified()
        assert f"it holds a changed file data/{file.name}: expected {len(raw)} bytes with the SHA-256" in said
    file.unlink()
    assert "it lacks a file: sink kept: expected the file 000000000002" in rule.certified()[0][0]
    for copy in (f"000000000002 (copy).{kind}", data_name(9, kind)):
        file.write_bytes(raw)
        shutil.copy(file, file.with_name(copy))
        assert rule.certified()[0] == [
            f"it holds a file in data that no manifest lists, such as {copy}, whose rows readers of data see"
        ]
        file.with_name(copy).unlink()
    assert rule.certified() == ([], {})


def test_rows_that_are_sent_again_stand_once_after_manifests_went_back(place: Path) -> None:
    """Two epochs become one file, and those that they had are gone. Readers of the data folder see each row once."""
    path = place / "kept"
    rule = Outboxed(place, {"files": {"path": str(path), "format": "json"}})
    for n in range(4):
        rule.epoch([event(1, n=n)])
        assert rule.relays.ship().code == 0
    for number in (3, 4):
        (path / "manifests" / manifest_name(number)).unlink()
    assert rule.relays.ship().code == 3
    assert len(list((path / "data").iterdir())) == 4, "the manifests may still be restored"
    rule.relays.killed_at("relay.sent", "--target", rule.sink.label, "--resend")
    assert rule.relays.ship("--target", rule.sink.label, "--resend").code == 0
    lines = [line for file in sorted((path / "data").glob("[!.]*")) for line in file.read_text().splitlines()]
    assert [json.loads(line)["n"] for line in lines] == [0, 1, 2, 3]


def test_a_manifest_is_put_once(tmp_path: Path) -> None:
    folder = Folder("files:///x", str(tmp_path))
    assert folder.newest() is None
    with pytest.raises(Refused, match="found no manifest"):
        files_of(tmp_path)
    folder.make()
    folder.put(manifest(0), lambda: None)
    with pytest.raises(Fenced, match="another relay was faster"):
        folder.put(manifest(0, 0, listed(0)), lambda: None)
    assert folder.newest() == manifest(0)
    folder.put(manifest(1, 0, listed(1)), lambda: None)
    with pytest.raises(TableBroken, match=r"expected the file 000000000001\.csv of 000000000001\.json, found none"):
        files_of(tmp_path)
    (tmp_path / "data" / listed(1).staged).write_text("k\n")
    assert [Path(one.path).name for one in files_of(tmp_path)] == [listed(1).staged]
    folder.tidy(manifest(1))
    assert [(Path(one.path).name, one.rows, one.epoch, one.schema) for one in files_of(tmp_path)] == [
        (listed(1).name, 1, 1, "k STRING")
    ]
    folder.put(manifest(2, 2), lambda: None)
    assert files_of(tmp_path) == []
    folder.tidy(manifest(2, 2))
    assert list((tmp_path / "data").iterdir()) == []
    (tmp_path / "manifests" / manifest_name(2)).write_text("{")
    with pytest.raises(LedgerBroken, match=r"000000000002\.json cannot be read"):
        folder.newest()


def test_a_folder_that_is_gone_is_not_made_anew(place: Path) -> None:
    """Else a relay would write to the mount point of a volume that is not there."""
    path, away = place / "kept", place / "away"
    rule = Outboxed(place, {"files": {"path": str(path), "format": "json"}})
    rule.epoch([event(1, n=1)])
    assert rule.relays.ship().code == 0
    path.rename(away)
    path.mkdir()
    rule.epoch([event(1, n=2)])
    done = rule.relays.ship()
    assert (done.code, list(path.iterdir())) == (3, []), done.said
    assert "Mount or restore it, and ship again; if it is gone for good, `floodmark relay refused --target" in done.said
    path.rmdir()
    away.rename(path)
    assert rule.relays.ship().code == 0
    assert [json.loads(Path(one.path).read_text())["n"] for one in files_of(path)] == [1, 2]
    shutil.rmtree(path)
    assert rule.relays.ship("--target", rule.sink.label, "--resend").code == 0
    assert [one.rows for one in files_of(path)] == [2]


# --- Formats

ALL = columns_of(
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, m DECIMAL(20,3), s STRING, y BINARY, t DATE, at TIMESTAMP, "
    "ntz TIMESTAMP_NTZ, a ARRAY<DECIMAL(4,1)>, o STRUCT<x: INT, y: ARRAY<DATE>>, p MAP<INT, DOUBLE>"
)
ROW: dict[str, Any] = {
    "b": True, "i": -1, "l": 1 << 60, "f": 0.5, "d": 0.1, "m": Decimal("12345678901234567.500"), "s": 'a,"\r\n\\\u00e9',
    "y": b"\x00\xff", "t": date(2001, 2, 3), "at": datetime(2001, 2, 3, 4, 5, 6, 7, UTC),
    "ntz": datetime(1969, 12, 31, 23), "a": [Decimal("1.5"), None], "o": {"x": 1, "y": [date(1970, 1, 1)]},
    "p": {1: 0.5, 2: float("inf")},
}  # fmt: skip


def test_keys_of_maps_are_json_where_they_are_nested() -> None:
    columns = columns_of("s MAP<STRUCT<a: INT, d: DATE>, INT>, l MAP<ARRAY<STRING>, INT>, t MAP<DATE, INT>")
    day, file = date(2001, 1, 1), BytesIO()
    row = {"s": [({"a": 1, "d": day}, 2)], "l": [(["x", None, '"'], 3), ([], 4)], "t": [(day, 5)]}
    write(file, "json", columns, [pa.RecordBatch.from_pylist([row], schema_of(columns))])
    keys = {name: list(of) for name, of in json.loads(file.getvalue()).items()}
    assert keys == {"s": ['{"a":1,"d":"2001-01-01"}'], "l": ['["x",null,"\\""]', "[]"], "t": ["2001-01-01"]}


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_rows_come_back_from_a_file_as_they_were(kind: str, tmp_path: Path) -> None:
    others = {**ROW, "s": "", "d": float("-inf"), "a": [], "p": {}, "b": False}, {**ROW, "s": "long" * 750_000}
    table = table_of(ALL, [[ROW, dict.fromkeys(ROW), *others]])
    file = BytesIO()
    out = Counted(file)
    assert write(out, kind, ALL, table.to_batches()) == 4
    assert (out.bytes, out.sha256) == (len(file.getvalue()), sha256(file.getvalue()).hexdigest())
    assert table_of(ALL, list(read(BytesIO(file.getvalue()), kind, ALL))) == table


# --- The rule file

RULE = """\
rule: kept
streams: {events: {delta: /lake/in}}
sql: SELECT k, n FROM events
sinks: [{files: {path: /lake/out}}, {delta: /lake/other}]
"""


@pytest.fixture
def load(place: Path) -> Callable[[str], Any]:
    def loaded(text: str) -> Any:
        (place / "kept.yaml").write_text(text)
        return load_rule(place / "kept.yaml", {})

    return loaded


def test_a_folder_is_a_sink(load: Callable[[str], Any]) -> None:
    sink = load(RULE).sinks[0]
    assert (sink.address, sink.label, sink.options["format"]) == ("files:///lake/out", "out", "parquet")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("out}}", "out}, key: [k]}", "sinks[0].key: expected a kind of sink that supports upserts (delta, "),
        ("/lake/out", "gs://lake/out", "sinks[0].files.path: expected a folder of this machine's file system"),
        ("out}", "out, format: avro}", "sinks[0].files.format: expected parquet, json"),
        ("/lake/out", "/lake/other", "sinks[1].delta: expected another address than that of sink 1, found /lake/other"),
        ("/lake/out", "/lake/other/in", "sinks[1].delta: expected an address outside that of sink 1"),
        ("/lake/out", "/lake/in", "sinks[0].files: expected another address than that of stream events"),
        ("path: /lake/out", "format: csv", "sinks[0].files.path: expected `path: ...`, found nothing"),
        ("{delta: /lake/other}", "{files: {path: /b/out}}", "sinks[1]: expected a `name`, found none: 2 targets"),
    ],
)
def test_what_a_folder_cannot_do_is_named(load: Callable[[str], Any], old: str, new: str, problem: str) -> None:
    with pytest.raises(RuleInvalid) as fault:
        load(RULE.replace(old, new))
    assert problem in str(fault.value)


def test_batches_are_gathered_to_row_groups_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = columns_of("n BIGINT")
    batches = [pa.record_batch({"n": pa.array(range(at, at + 100), pa.int64())}) for at in range(0, 1000, 100)]
    for size, groups in ((64_000_000, 1), (1_600, 5), (1, 10)):
        monkeypatch.setattr(formats, "_GROUP", size)
        file = BytesIO()
        assert write(file, "parquet", columns, batches) == 1000
        assert pq.ParquetFile(file).num_row_groups == groups
        assert [n for batch in read(file, "parquet", columns) for n in batch["n"].to_pylist()] == list(range(1000))


def test_columns_whose_values_repeat_have_dictionaries() -> None:
    columns = columns_of("n INT, half INT, more INT, k STRING, l ARRAY<INT>, none INT")
    rows = [
        {"n": i, "half": i // 2, "more": min(i, 1000), "k": f"k{i % 9}", "l": [i], "none": None} for i in range(2000)
    ]
    file = BytesIO()
    write(file, "parquet", columns, table_of(columns, [rows]).to_batches())
    group = pq.ParquetFile(file).metadata.row_group(0)
    parts = [group.column(i) for i in range(6)]
    assert {one.path_in_schema for one in parts if one.has_dictionary_page} == {"half", "k", "l.list.element", "none"}
    assert [row for batch in read(file, "parquet", columns) for row in batch.to_pylist()] == rows
