"""Rows that are where they should be, and that readers do not see as they are; files that nothing accounts for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.audited import Made, rows_of_epoch, said

from floodmark.audit import logreader
from floodmark.audit.certificate import audit
from floodmark.audit.content.keys import doubled
from floodmark.audit.content.statistics import fits, misread, unbounded
from floodmark.audit.evidence import File, TableLog
from floodmark.audit.logreader import LOOKS
from floodmark.ledger.forgetting import _in_checkpoint

STRUCT = {"type": "struct", "fields": [{"name": "b", "type": "integer"}]}
TYPES = {"id": "long", "s": STRUCT, "new": "string"}


@pytest.mark.parametrize(
    ("kind", "told", "fit"),
    [
        (pa.int64(), "long", True),
        (pa.int32(), "long", True),
        (pa.int64(), "integer", False),
        (pa.timestamp("us"), "long", False),
        (pa.int64(), "timestamp", False),
        (pa.timestamp("ns"), "timestamp", True),
        (pa.date32(), "timestamp_ntz", True),
        (pa.date32(), "integer", False),
        (pa.decimal128(9, 2), "decimal(9,2)", True),
        (pa.decimal128(9, 2), "decimal(11,3)", True),
        (pa.decimal128(9, 3), "decimal(9,2)", False),
        (pa.decimal128(9, 2), "decimal(9,3)", False),
        (pa.float32(), "double", True),
        (pa.float64(), "float", False),
        (pa.string(), "string", True),
        (pa.dictionary(pa.int32(), pa.string()), "string", True),
        (pa.struct([("b", pa.int32())]), STRUCT, True),
        (pa.struct([("b", pa.string())]), STRUCT, False),
        (pa.int32(), STRUCT, False),
        (pa.list_(pa.int32()), {"type": "array", "elementType": "long"}, True),
        (pa.list_(pa.string()), {"type": "array", "elementType": "long"}, False),
        (pa.map_(pa.string(), pa.int64()), {"type": "map", "keyType": "string", "valueType": "long"}, True),
        (pa.struct([("metadata", pa.binary())]), "variant", True),
    ],
)
def test_a_type_fits_as_it_is_or_widened(kind: pa.DataType, told: Any, fit: bool) -> None:
    assert fits(kind, told) is fit


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"id": [1]}, None),
        ({"id": [1], "gone": pa.array([None], pa.string())}, None),
        ({"ID": [1]}, "has values in a column ID, which the table does not have under that name"),
        ({"id": ["1"]}, "has a column id of type string, the table has it as long"),
        ({"id": [1], "k": ["a"]}, None),
    ],
)
def test_readers_must_find_a_files_columns_in_the_table(columns: dict[str, Any], what: str | None) -> None:
    file, log = File("1.parquet", 9, 1, partition={"k": "a"}), TableLog("t", "id", types=TYPES, partitions=("k",))
    assert list(misread(pa.table(columns), file, log)) == ([] if what is None else [f"the file 1.parquet {what}"])


MAP = {"type": "map", "keyType": STRUCT, "valueType": {"type": "array", "elementType": STRUCT}}


@pytest.mark.parametrize(
    ("kind", "declared", "value", "field"),
    [
        (pa.struct([("b", pa.int32()), ("c", pa.int32())]), STRUCT, {"b": 1, "c": 2}, "c"),
        (pa.struct([("b", pa.int32()), ("c", pa.int32())]), STRUCT, {"b": 1, "c": None}, None),
        (pa.struct([("b", pa.int32()), ("c", pa.int32())]), STRUCT, None, None),
        (pa.struct([("B", pa.int32())]), STRUCT, {"B": 1}, None),
        (pa.list_(pa.struct([("c", pa.int32())])), {"type": "array", "elementType": STRUCT}, [{"c": 1}], "element.c"),
        (pa.list_(pa.struct([("c", pa.int32())])), {"type": "array", "elementType": STRUCT}, [], None),
        (
            pa.map_(pa.struct([("b", pa.int32())]), pa.list_(pa.struct([("c", pa.int32())]))),
            MAP,
            [({"b": 1}, [{"c": 1}])],
            "value.element.c",
        ),
        (
            pa.map_(pa.struct([("c", pa.int32())]), pa.list_(pa.struct([("b", pa.int32())]))),
            MAP,
            [({"c": 1}, [{"b": 1}])],
            "key.c",
        ),
    ],
)
def test_readers_must_find_the_fields_of_a_column_too(
    kind: pa.DataType, declared: Any, value: Any, field: str | None
) -> None:
    file, log = File("1.parquet", 9, 2), TableLog("t", "id", types={"s": declared})
    found = list(misread(pa.table({"s": pa.array([value, None], kind)}), file, log))
    said = f"the file 1.parquet has values in a field s.{field}, which the table does not have under that name"
    assert found == ([] if field is None else [said])


def test_a_file_has_values_of_the_tables_partitions() -> None:
    log = TableLog("t", "id", types=TYPES, partitions=("id",))
    (what,) = misread(pa.table({"new": ["x"]}), File("1.parquet", 9, 1), log)
    assert what == "the log has values of the file 1.parquet for partitions by [], the table has partitions by ['id']"


NOON = datetime(2020, 1, 1, 12, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("values", "low", "high", "nulls", "inside"),
    [
        ([1, 5], 1, 5, 0, True),
        ([1, 5], 0, 9, 0, True),
        ([1, 5], 2, 5, 0, False),
        ([1, 5], 1, 4, 0, False),
        ([1, None], 1, 1, 1, True),
        ([1, None], 1, 1, 0, False),
        ([1, None], 1, 1, 2, False),
        ([1.5, float("nan")], 1.5, 1.5, 0, False),
        ([1.5, float("nan")], 1.5, "NaN", 0, True),
        ([1.5, float("nan")], 1.5, None, 0, True),
        ([1.5, 2.5], Decimal("1.5"), Decimal("2.4"), 0, False),
        ([Decimal("1.50")], Decimal("1.5"), Decimal("1.5"), 0, True),
        ([Decimal("1.50")], Decimal("1.6"), Decimal("1.7"), 0, False),
        ([Decimal("123456789012345678.91")], 0, Decimal("123456789012345678.91"), 0, True),
        ([Decimal("123456789012345678.91")], 0, Decimal("123456789012345680"), 0, True),
        ([Decimal("123456789012345678.91")], 0, Decimal("123456789012345660"), 0, False),
        ([Decimal("99999999999999999999")], 0, 9223372036854775807, 0, False),
        (["a", "b"], "a", "b", 0, True),
        (["a", "b"], "a", "a", 0, False),
        (["x" * 40], "x" * 32, "x" * 32 + "\x7f", 0, True),
        (["x" * 40], "x" * 32, "x" * 31 + "y", 0, True),
        (["x" * 40], "x" * 32, "x" * 32, 0, False),
        (["x" * 40], "x" * 32, "x" * 31 + "w", 0, False),
        (["é🌊"], "é", "é\U0010ffff", 0, True),
        ([NOON], "2020-01-01T12:00:00.123Z", "2020-01-01T12:00:00.123Z", 0, True),
        ([NOON], "2020-01-01T13:00:00.123+01:00", "2020-01-01T13:00:00.124+01:00", 0, True),
        ([NOON], "2020-01-01T12:00:00.200Z", "2020-01-01T12:00:00.300Z", 0, False),
        ([NOON], "2020-01-01T12:00:00.100", "2020-01-01T12:00:00.100", 0, True),
        ([NOON.replace(tzinfo=None)], "2020-01-01T05:00:00.123-07:00", "2020-01-01T05:00:00.123-07:00", 0, True),
        ([NOON.replace(tzinfo=None)], "2020-01-01T12:00:00.200", "2020-01-01T12:00:00.300", 0, False),
        ([date(2020, 1, 1)], "2020-01-01", "2020-01-01", 0, True),
        ([date(2020, 1, 1)], "2020-01-02", "2020-01-03", 0, False),
        ([{"b": 1}], {"b": 1}, {"b": 1}, {"b": 0}, True),
        ([{"b": 1}], {"b": 2}, {"b": 2}, {"b": 0}, False),
        ([True], None, None, 0, True),
        ([b"x"], "y", "y", 0, True),
    ],
)
def test_bounds_hold_all_values_as_far_as_rounding_lets_tell(
    values: list[Any], low: Any, high: Any, nulls: Any, inside: bool
) -> None:
    bounds = {"minValues": {"c": low}, "maxValues": {"c": high}, "nullCount": {"c": nulls}}
    found = list(unbounded(pa.table({"c": values}), File("1.parquet", 9, len(values), bounds=bounds)))
    assert found == (
        [] if inside else ["the log's bounds of column c in the file 1.parquet are not those of its values"]
    )


def test_bounds_of_a_file_with_rows_left_out_are_those_of_all_its_rows() -> None:
    """Of five rows four are null; one that is, and the other, can be seen."""
    bounds = {"minValues": {"c": 1}, "maxValues": {"c": 9}, "nullCount": {"c": 4}}
    rows = pa.table({"c": [None, 5]})
    assert list(unbounded(rows, File("1.parquet", 9, 5, bounds=bounds))) == []
    assert list(unbounded(rows, File("1.parquet", 9, 4, bounds=bounds))) != []


def test_bounds_of_small_floats_are_texts_of_them() -> None:
    rows = pa.table({"c": pa.array([0.1, 0.7], pa.float32())})
    bounds = {"minValues": {"c": Decimal("0.1")}, "maxValues": {"c": Decimal("0.7")}}
    assert list(unbounded(rows, File("1.parquet", 9, 2, bounds=bounds))) == []


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, 3)


def actions(made: Made, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in made.log(f"sink/{made.sink}", version).read_text().splitlines()]


def commit(made: Made, version: int, found: list[dict[str, Any]]) -> None:
    made.log(f"sink/{made.sink}", version).write_text("\n".join(map(json.dumps, found)))


def added(path: Path, rows: pa.Table, **more: Any) -> dict[str, Any]:
    pq.write_table(rows, path)
    said = {"path": path.name, "size": path.stat().st_size, "partitionValues": {}, "modificationTime": 0}
    return {"add": {**said, "dataChange": False, "stats": json.dumps({"numRecords": rows.num_rows}), **more}}


def removed(path: str, change: bool = True) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": change}}


def renamed_column(made: Made) -> None:
    (meta,) = (one for one in actions(made, 0) if "metaData" in one)
    meta["metaData"]["schemaString"] = meta["metaData"]["schemaString"].replace('"id"', '"no"')
    commit(made, 4, [meta])


def lying_bounds(made: Made) -> None:
    found = actions(made, 2)
    found[-1]["add"]["stats"] = '{"numRecords": 2, "minValues": {"id": 900}, "maxValues": {"id": 901}}'
    commit(made, 2, found)


def no_commits_file(made: Made) -> None:
    commit(made, 4, [added(made.sink / "more.parquet", rows_of_epoch(9), stats='{"numRecords": 0}')])


DEEP: list[tuple[Callable[[Made], None], str]] = [
    (renamed_column, "values in a column id, which the table does not have under that name"),
    (lying_bounds, "the log's bounds of column id in the file 2.parquet are not those of its values"),
    (no_commits_file, "readers see the file more.parquet, whose rows no known commit has added"),
]


@pytest.mark.parametrize(("plant", "what"), DEEP, ids=[plant.__name__ for plant, _ in DEEP])
def test_rows_that_readers_do_not_see_as_they_are_are_broken(
    made: Made, plant: Callable[[Made], None], what: str
) -> None:
    assert made.verdicts(deep=True) == []
    plant(made)
    assert any(verdict == "broken" and what in told for verdict, told in made.verdicts(deep=True))


def test_a_file_that_the_log_spells_in_two_ways_is_seen_twice(made: Made) -> None:
    commit(made, 4, [{"add": {**actions(made, 1)[-1]["add"], "path": "%31.parquet", "dataChange": False}}])
    assert made.verdicts() == [
        ("broken", "readers see the rows of 1.parquet twice: the log has its path in two spellings")
    ]


def test_a_file_that_is_removed_under_another_spelling_stays_for_readers(made: Made) -> None:
    """As delta-rs has removed files in folders such as `k=München`."""
    new = added(made.sink / "both.parquet", pa.concat_tables([rows_of_epoch(1), rows_of_epoch(2)]))
    commit(made, 4, [removed("%31.parquet", change=False), removed("2.parquet", change=False), new])
    assert made.verdicts() == [
        ("broken", "by its entries the log does not have the file 1.parquet, but readers see it")
    ]


def test_a_checkpoint_may_have_bounds_of_times_that_python_does_not_have(made: Made) -> None:
    """As Spark repeats bounds: as columns, here of a time in the year 18029."""
    DeltaTable(made.sink).create_checkpoint()
    (file,) = (made.sink / "_delta_log").glob("*.checkpoint.parquet")
    known = pq.ParquetFile(file).read()
    add = known["add"].combine_chunks()
    far = pa.array([506804601600000000] * len(add), pa.int64()).view(pa.timestamp("us", "UTC"))
    parsed = pa.StructArray.from_arrays([pa.StructArray.from_arrays([far], ["t"])], ["minValues"])
    names = [field.name for field in add.type]
    more = pa.StructArray.from_arrays([*add.flatten(), parsed], [*names, "stats_parsed"], mask=add.is_null())
    pq.write_table(known.set_column(known.column_names.index("add"), "add", more), file)
    assert made.verdicts(deep=True) == []
    assert {path for path, _ in _in_checkpoint(file)} == {"1.parquet", "2.parquet", "3.parquet"}


def compacted(made: Made, first: int, last: int, found: list[dict[str, Any]]) -> None:
    """What some readers read in place of these entries."""
    file = made.sink / "_delta_log" / f"{first:020}.{last:020}.compacted.json"
    file.write_text("\n".join(map(json.dumps, found)))


def all_of(made: Made, first: int, last: int) -> list[dict[str, Any]]:
    found = [one for version in range(first, last + 1) for one in actions(made, version) if "commitInfo" not in one]
    apps = [one for one in found if "txn" in one]
    return [one for one in found if "txn" not in one] + apps[-1:]


def a_file_less(found: list[dict[str, Any]]) -> None:
    found.remove(next(one for one in found if "add" in one))


def a_file_gone(found: list[dict[str, Any]]) -> None:
    found.append(removed("3.parquet"))


def other_bounds(found: list[dict[str, Any]]) -> None:
    next(one for one in found if "add" in one)["add"]["stats"] = '{"numRecords": 2, "maxValues": {"id": 1}}'


def another_version(found: list[dict[str, Any]]) -> None:
    found[-1]["txn"]["version"] += 1


def another_column(found: list[dict[str, Any]]) -> None:
    found.append({"metaData": {"schemaString": "{}"}})


@pytest.mark.parametrize("change", [None, a_file_less, a_file_gone, other_bounds, another_version, another_column])
def test_a_file_that_stands_for_entries_says_what_they_say(made: Made, change: Callable[[Any], None] | None) -> None:
    commit(made, 4, [removed("1.parquet", change=False), added(made.sink / "joined.parquet", rows_of_epoch(1))])
    compacted(made, 0, 4, [one for one in all_of(made, 0, 4) if one.get("add", {}).get("path") != "1.parquet"])
    found = all_of(made, 2, 4)
    compacted(made, 2, 4, found)
    assert made.verdicts() == []
    if change is not None:
        change(found)
        compacted(made, 2, 4, found)
        told = "the log's file that stands for versions 2 to 4 says something else than their entries"
        assert made.verdicts() == [("broken", told)]


def test_a_file_that_stands_for_entries_names_the_older_files_that_they_remove(made: Made) -> None:
    commit(made, 4, [removed("1.parquet", change=False), added(made.sink / "joined.parquet", rows_of_epoch(1))])
    compacted(made, 2, 4, [one for one in all_of(made, 2, 4) if "remove" not in one])
    assert [verdict for verdict, _ in made.verdicts()] == ["broken"]
    compacted(made, 1, 4, [one for one in all_of(made, 1, 4) if one.get("add", {}).get("path") != "1.parquet"])
    (made.sink / "_delta_log" / f"{2:020}.{4:020}.compacted.json").unlink()
    assert made.verdicts() == []


@pytest.mark.parametrize("times", [1, LOOKS])
def test_an_entry_that_is_cleaned_up_while_the_log_is_read_breaks_nothing(
    made: Made, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    looks, entries = list[str](), logreader._entries

    def cleaned_up(store: Any) -> Any:
        looks.append("look")
        if len(looks) <= times:
            raise FileNotFoundError("Object at location 00000000000000000001.json not found")
        return entries(store)

    monkeypatch.setattr(logreader, "_entries", cleaned_up)
    if times < LOOKS:
        assert logreader.read_table(str(made.sink)).last == 3
    else:
        with pytest.raises(logreader.Unreadable, match="gone when they were to be read") as told:
            logreader.read_table(str(made.sink))
        assert told.value.verdict == "unknown"
    assert len(looks) == min(times + 1, LOOKS)


def test_files_that_went_without_others_in_their_place_are_told_of_once(made: Made) -> None:
    commit(made, 4, [removed(f"{number}.parquet", change=False) for number in (1, 2, 3)])
    ((verdict, what),) = made.verdicts(deep=True)
    assert verdict == "broken" and "to change no rows adds files with 0 rows and removes 6" in what


def test_a_file_of_an_epoch_that_is_open_is_accounted_for_also_joined_with_others(made: Made) -> None:
    intent = {**json.loads(made.rows[-2].body), "entry": made._entry(4), "watermark": 4, "watermark_before": 3}
    made.put("intent", 4, intent)
    made.save()
    hashed = hashlib.sha256(json.dumps(intent).encode()).hexdigest()
    rows = rows_of_epoch(4)
    made._write(f"sink/{made.sink}", 4, hashed, pa.BufferOutputStream().getvalue().to_pybytes(), {"rows": 2})
    found = actions(made, 4)
    commit(made, 4, [*found[:2], added(made.sink / "4.parquet", rows, dataChange=True)])
    assert made.verdicts(deep=True) == []
    both = pa.concat_tables([rows_of_epoch(3), rows])
    gone = [removed("3.parquet", change=False), removed("4.parquet", change=False)]
    commit(made, 5, [*gone, added(made.sink / "both.parquet", both)])
    assert made.verdicts(deep=True) == []


class Keyed(Made):
    """Its sink has a key; the last epoch updates one row of the one before, and inserts one."""

    after = pa.table({"id": pa.array([31, 99, 30], pa.int64())})
    effect = {"inserted": 1, "updated": 1, "deleted": 0, "copied": 1}  # noqa: RUF012 - nobody changes it
    goes = "3.parquet"

    def _fold(self, number: int) -> None:
        rule = json.loads(self.rule)
        rule["sinks"][0]["key"] = ["ID"]
        self.rule = json.dumps(rule)
        super()._fold(number)

    def _write(self, name: str, number: int, intent: str, data: bytes, found: dict[str, Any]) -> dict[str, Any]:
        if not name.startswith("sink/"):
            return super()._write(name, number, intent, data, found)
        last = number == 4
        rows = self.after if last else rows_of_epoch(number)
        digest, results = said(rows), said(rows.slice(0, 2))
        written = super()._write(name, number, intent, data, digest) | {"results": results}
        info, txn, _ = actions(self, number)
        told = {**json.loads(info["commitInfo"]["userMetadata"]), "results": results, "rows": 2}
        told |= self.effect if last else {"inserted": 2, "updated": 0, "deleted": 0, "copied": 0}
        info["commitInfo"]["userMetadata"] = json.dumps(told)
        gone = [removed(self.goes)] if last else []
        commit(self, number, [info, txn, *gone, added(self.sink / f"{number}.parquet", rows, dataChange=True)])
        return written


class OtherFile(Keyed):
    """The file that goes is not that with the row that was updated."""

    goes = "2.parquet"


def test_a_sink_with_a_key_has_one_row_for_each(tmp_path: Path) -> None:
    assert Keyed(tmp_path / "one", 4).verdicts(deep=True) == []
    made = OtherFile(tmp_path / "other", 4)
    assert made.verdicts() == []
    assert made.verdicts(deep=True) == [("broken", "4 of its rows share their key (id) with another row")]


@pytest.mark.parametrize(("since", "verdict"), [(None, "unknown"), (3, "unknown"), (4, "proven")])
def test_what_was_joined_and_is_not_known_is_undecided_up_to_the_newest_epoch_of_it(
    tmp_path: Path, since: int | None, verdict: str
) -> None:
    """Also where rows of an older epoch are lost: the joined file may hold other rows of the newer one."""

    class Later(Keyed):
        after = rows_of_epoch(4)
        effect = {"inserted": 2, "updated": 0, "deleted": 0, "copied": 0}  # noqa: RUF012 - nobody changes it
        goes = "none.parquet"

    made = Later(tmp_path, 4)
    assert made.verdicts(deep=True) == []
    gone = [removed(f"{number}.parquet", change=False) for number in (1, 2, 3)]
    rows = pa.table({"id": pa.array(range(100, 106), pa.int64())})
    commit(made, 5, [*gone, added(made.sink / "joined.parquet", rows)])
    (made.sink / "1.parquet").unlink()
    found = audit("r", made.home.parent, True, since=since)
    assert found is not None
    told = [(one.epoch, one.what[:36]) for one in found.findings]
    assert told == [(1, "the rows of the commit of epoch 1 ca"), (3, "the rows of 1 files that others were")]
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("parts", "key", "found"),
    [
        ([[(1, "a"), (2, "a")], [(3, "a")]], ["n"], 0),
        ([[(1, "a"), (2, "a")], [(2, "b")]], ["n"], 2),
        ([[(1, "a"), (1, "b")], [(1, "a")]], ["n", "S"], 2),
        ([[(None, "a")], [(None, "b")]], ["n"], 2),
        ([[], [(1, "a")]], ["n"], 0),
        ([[(1, "a"), (1, "a")]], ["other"], 0),
    ],
)
def test_keys_that_come_twice_are_counted(parts: list[list[tuple[Any, ...]]], key: list[str], found: int) -> None:
    kind = pa.schema([("n", pa.int64()), ("s", pa.string())])
    tables = [pa.Table.from_pylist([dict(zip("ns", row, strict=True)) for row in part], kind) for part in parts]
    named = ", ".join(key)
    expected = [f"{found} of its rows share their key ({named}) with another row"] if found else []
    assert list(doubled(tables, key)) == expected


def test_rows_with_one_key_are_no_fault_where_older_rows_were_kept_from_without_it(tmp_path: Path) -> None:
    """Or where the ledger cannot tell that they were not."""

    class Later(OtherFile):
        def _fold(self, number: int) -> None:
            super(Keyed, self)._fold(number) if number == 1 else super()._fold(number)

    assert Later(tmp_path, 4).verdicts(deep=True) == []
