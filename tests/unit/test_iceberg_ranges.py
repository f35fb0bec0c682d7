"""Iceberg tables as sources, in a real catalogue: what their snapshots appended, and what is refused by name."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table
from pyiceberg.table.update import RemoveSchemasUpdate
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestampNanoType, TimeType, UUIDType
from support.flow import SCHEMA, event
from support.icehouse import NAMESPACE, Icehouse, compact
from support.sourcekinds import Growing, KindUnderTest, promised

from floodmark.connectors.planning.epochends import steps
from floodmark.connectors.ports.source import Source
from floodmark.connectors.sources.iceberg.columns import columns_of, schema_with
from floodmark.connectors.sources.iceberg.offsets import At, Gone, Step, first_of, since
from floodmark.connectors.sources.iceberg.source import IcebergSource
from floodmark.core.rules.model import EpochLimits, Stream
from floodmark.core.text.ddl import columns_of as declared
from floodmark.core.text.ddl import text_of
from floodmark.errors import HistoryGone, NotThereYet, Refused

STREAM = Stream(
    kind="iceberg", address="iceberg://lake/shop.t", options={"connection": "lake", "table": f"{NAMESPACE}.t"}
)


@pytest.fixture
def house(place: Path, monkeypatch: pytest.MonkeyPatch) -> Icehouse:
    found = Icehouse(place / "ice").made()
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", found.connection)
    return found


@pytest.fixture
def growing(house: Icehouse, place: Path) -> Growing:
    return Growing(KindUnderTest(lambda _: STREAM, lambda _, rows: house.add("t", list(rows))), place / "rows")


def test_it_keeps_what_is_promised(growing: Growing) -> None:
    promised(growing)


def numbers(source: Source, begin: str, end: str) -> list[int]:
    assert isinstance(source, IcebergSource)
    table = source._table()
    found = source._rows(table, source._files(table, At.parse(begin), At.parse(end)))
    return sorted(found["n"].to_pylist())


def test_ranges_have_their_rows_also_after_a_compaction(growing: Growing, house: Icehouse) -> None:
    steps = [sorted(one["n"] for one in rows) for rows in growing.rows]
    compact(house.table("t"))
    house.add("t", [event(90, n=7)])
    growing.offsets.append(growing.source.take_end(growing.offsets[-1]))
    steps.append([7])
    ends = growing.offsets
    for i, begin in enumerate(ends[:-1]):
        for j, end in enumerate(ends[i + 1 :], i + 1):
            assert numbers(growing.source, begin, end) == sorted(n for step in steps[i:j] for n in step)


def test_rows_of_a_compaction_are_not_counted(house: Icehouse) -> None:
    for n in range(3):
        house.add("t", [event(n, n=n)])
    source = IcebergSource("s", STREAM)
    begin = source.end()
    compact(house.table("t"))
    for n in range(3, 5):
        house.add("t", [event(n, n=n)])
    assert source.backlog(begin).facts == {"snapshots": 3, "rows": 2}
    assert source.after(begin, source.end(), EpochLimits(max_rows=2)) == source.end()


def test_a_first_read_counts_all_rows_of_the_first_snapshot_that_is_left(house: Icehouse) -> None:
    for n in range(3):
        house.add("t", [event(n, n=n)])
    compact(house.table("t"))
    house.expire("t")
    source = IcebergSource("s", STREAM)
    left = source.end()
    assert source.backlog(source.start()).facts == {"snapshots": 1, "rows": 3}
    house.add("t", [event(3, n=3)])
    assert source.after(source.start(), source.end(), EpochLimits(max_rows=3)) == left


def _delete(table: Table) -> None:
    table.delete(EqualTo(term="n", value=2))


def _overwrite(table: Table) -> None:
    table.overwrite(pa.Table.from_pylist([event(1, n=3)], schema=SCHEMA))


@pytest.mark.parametrize(("change", "said"), [(_delete, "overwrite"), (_overwrite, "delete")])
def test_rows_that_leave_are_named(growing: Growing, house: Icehouse, change: Any, said: str) -> None:
    change(house.table("t"))
    house.add("t", [event(90, n=7)])
    known = growing.offsets[-1]
    expected = rf"expected a table to which rows are only appended, found snapshot \d+ \({said}, 20.*floodmark reset"
    for ask in (growing.source.check_appended, growing.source.backlog, growing.source.take_end):
        with pytest.raises(HistoryGone, match=expected):
            ask(known)
    anew = growing.source.start()
    assert 7 in numbers(growing.source, anew, growing.source.take_end(anew))


def test_snapshots_that_have_expired_are_named(growing: Growing, house: Icehouse) -> None:
    before, read, end = growing.offsets[0], growing.offsets[1], growing.offsets[-2]
    house.add("t", [event(90, n=7)])
    now = growing.source.take_end(end)
    assert numbers(growing.source, growing.offsets[-1], now) == [7]
    house.expire("t")
    with pytest.raises(HistoryGone, match=r"found that those before \d+ have expired.*give the stream a landing"):
        growing.source.check_appended(end)
    with pytest.raises(HistoryGone, match=r"found that it has expired, so its rows cannot be read again"):
        numbers(growing.source, before, read)
    assert len(numbers(growing.source, before, now)) == 1 + sum(map(len, growing.rows))


def test_equality_deletes_are_named(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(_: DataScan) -> Any:
        raise ValueError("PyIceberg does not yet support equality deletes: https://github.com/apache/iceberg/issues")

    monkeypatch.setattr(DataScan, "plan_files", plan)
    none: Any = None
    with pytest.raises(Refused, match=r"stream s.*: expected a table without equality deletes.*Compact the table"):
        growing.source.frame(none, growing.offsets[0], growing.offsets[-1])


def test_a_column_that_came_later_with_a_default_has_it_before(house: Icehouse) -> None:
    house.add("t", [event(1, n=1)])
    with house.table("t").update_schema() as change:
        change.add_column("more", LongType(), default_value=7)
    source = IcebergSource("s", STREAM)
    table = source._table()
    found = source._rows(table, source._files(table, At.parse(source.start()), At.parse(source.end())))
    assert found["more"].to_pylist() == [7]


def test_a_table_that_was_rolled_back_is_named(growing: Growing, house: Icehouse) -> None:
    known = growing.offsets[-1]
    house.table("t").manage_snapshots().rollback_to_snapshot(int(At.parse(growing.offsets[1]).snapshot or 0)).commit()
    for _ in range(2):
        with pytest.raises(HistoryGone, match=r"found a table that was rolled back\. Make that snapshot current again"):
            growing.source.check_appended(known)
        house.add("t", [event(90, n=7)])


def test_a_table_that_was_replaced_by_an_empty_one_has_news_and_is_named(growing: Growing, house: Icehouse) -> None:
    source, known = growing.source, growing.offsets[-1]
    seen = source.end()
    house.empty("t")
    emptied = source.end()
    assert source.news(known) and source.news(known, emptied) and not source.is_another(known)
    for ask in (source.check_appended, source.backlog, source.take_end):
        with pytest.raises(HistoryGone, match=r"before the newest one, found no rows: the table was replaced by"):
            ask(known)
    anew = source.start()
    assert steps(source, anew, EpochLimits()) == [anew] and not source.news(anew)
    assert not source.news(anew, emptied) and numbers(source, anew, emptied) == [], "all that there is was read"
    assert source.backlog(known, rebuilt=True).amount == 0 and source.backlog(anew).amount == 0
    house.add("t", [event(90, n=7)])
    with pytest.raises(HistoryGone, match=r"found snapshot \d+ \(append, .*\), which does not follow it"):
        source.check_appended(known)
    now = source.take_end(anew)
    assert numbers(source, anew, now) == [7] and not source.news(now, emptied) and not source.news(now, seen)


def test_a_table_made_anew_is_another(growing: Growing, house: Icehouse) -> None:
    known = growing.offsets[-1]
    house.catalog().drop_table((NAMESPACE, "t"))
    with pytest.raises(NotThereYet, match="expected the table, found none: make it"):
        growing.source.news(known)
    house.add("t", [event(n) for n in range(20)])
    assert growing.source.is_another(known)
    with pytest.raises(HistoryGone, match="floodmark reset"):
        growing.source.check_identity(known, None)


def test_a_data_file_that_is_gone_is_named(growing: Growing, house: Icehouse) -> None:
    for file in house.root.glob("warehouse/**/*.parquet"):
        file.unlink()
    with pytest.raises(HistoryGone, match="expected a data file, found none"):
        numbers(growing.source, growing.offsets[0], growing.offsets[-1])


def test_a_column_that_came_later_is_null_before(growing: Growing, house: Icehouse) -> None:
    with house.table("t").update_schema() as change:
        change.add_column("more", StringType())
        change.rename_column("k", "key")
    source = growing.source
    assert source.columns() == {"at": "timestamp", "key": "string", "v": "double", "n": "long", "more": "string"}
    assert numbers(growing.source, growing.offsets[0], growing.offsets[1]) == [0]


def test_a_limit_ends_epochs_at_snapshots(growing: Growing) -> None:
    """The first epoch has all that was there before the table was last rewritten."""
    source, ends = growing.source, growing.offsets
    assert isinstance(source, IcebergSource)
    assert [source.after(ends[0], ends[3], EpochLimits(max_rows=most)) for most in (1, 3, 5, 6)] == [
        ends[1], ends[2], ends[2], ends[3]
    ]  # fmt: skip


def test_a_stream_that_starts_at_the_newest_row(house: Icehouse) -> None:
    house.add("t", [event(1, n=1)])
    source = IcebergSource("s", STREAM.model_copy(update={"start": "latest"}))
    start = source.start()
    assert not source.news(start)
    house.add("t", [event(2, n=2)])
    assert source.backlog(start).facts == {"snapshots": 1, "rows": 1}


def test_a_table_of_format_1_is_refused(house: Icehouse) -> None:
    house.catalog().create_table((NAMESPACE, "t"), SCHEMA, properties={"format-version": "1"})
    with pytest.raises(Refused, match="expected format version 2 or newer, found 1"):
        IcebergSource("s", STREAM).start()


def test_a_table_that_was_upgraded_from_format_1_has_its_rows(house: Icehouse) -> None:
    """All of its snapshots until then have the same number."""
    house.catalog().create_table((NAMESPACE, "t"), SCHEMA, properties={"format-version": "1"})
    for n in range(3):
        house.add("t", [event(n, n=n)])
    with house.table("t").transaction() as change:
        change.upgrade_table_version(2)
    source = IcebergSource("s", STREAM)
    start, old = source.start(), source.end()
    assert source.news(start) and [At.parse(one).sequence for one in (start, old)] == [0, 0]
    assert len(steps(source, start, EpochLimits())) == 2
    house.add("t", [event(3, n=3)])
    ends = steps(source, start, EpochLimits(max_rows=1))
    assert [numbers(source, *pair) for pair in pairwise(ends)] == [[0], [1], [2], [3]] and old in ends
    for i, begin in enumerate(ends):
        assert [source.news(begin, end) for end in ends] == [i < j for j in range(len(ends))]


# --- Decided without a catalogue


def line(*operations: str, first: int = 1, root: bool = True) -> list[Step]:
    """The newest first; numbers from `first`."""
    steps = [
        Step(first + i, None if i == 0 and root else first + i - 1, first + i, 0, operation, 10)
        for i, operation in enumerate(operations)
    ]
    return steps[::-1]


def ids(steps: list[Step]) -> list[int]:
    return [one.snapshot for one in steps]


def test_which_snapshots_follow() -> None:
    plain = line("append", "append", "replace", "append")
    assert ids(since(plain, At("t", 2, 2))) == [3, 4]
    assert ids(since(plain, At("t", 4, 4))) == []
    assert ids(since(plain, At("t"))) == [1, 2, 3, 4]
    assert ids(since(line("append", "delete", "append"), At("t"))) == [2, 3]
    assert ids(since([], At("t"))) == []
    assert ids(since(line("append", first=5, root=False), At("t", 4, 4))) == [5]
    assert ids(since(line("overwrite", first=5, root=False), At("t"))) == [5]


@pytest.mark.parametrize(
    ("lineage", "said"),
    [
        (line("append", "overwrite", "append"), "only appended"),
        (line("append", "unknown", "append"), "only appended"),
        (line("append", first=5, root=False), "have expired"),
        (line("append", first=8), "have expired"),
        (line("append", first=1)[:0], "replaced by an empty one"),
        ([Step(5, 9, 0, 0, "append", 1)], "rolled back"),
    ],
)
def test_which_histories_are_refused(lineage: list[Step], said: str) -> None:
    with pytest.raises(Gone, match=said):
        since(lineage, At("t", 1, 1))


def test_where_an_epoch_ends() -> None:
    steps = line("append", "append", "append")[::-1]
    assert [first_of(steps, most).snapshot for most in (1, 10, 19, 20, 30, None)] == [1, 1, 1, 2, 3, 3]


def test_types_come_back_as_they_went() -> None:
    text = (
        "a BOOLEAN, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(38,9), i BINARY, j DATE, l TIMESTAMP, "
        "m TIMESTAMP_NTZ, o ARRAY<STRING>, p MAP<STRING, INT>, q STRUCT<x: INT, y: ARRAY<DATE>>"
    )
    assert text_of(columns_of(schema_with(declared(text)))) == text_of(declared(text))


def test_columns_of_other_types_are_left_out() -> None:
    kinds = [UUIDType(), TimeType(), TimestampNanoType(), StructType(NestedField(9, "x", TimeType())), StringType()]
    fields = [NestedField(i, f"c{i}", kind) for i, kind in enumerate(kinds, 1)]
    assert [one.name for one in columns_of(Schema(*fields))] == ["c5"]


def _rename(table: Table, *names: tuple[str, str]) -> None:
    for old, new in names:
        with table.update_schema() as update:
            update.rename_column(old, new)


def _swap(table: Table) -> None:
    _rename(table, ("n", "other"), ("v", "n"), ("other", "v"))


def _replace(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("n")
    with table.update_schema() as update:
        update.add_column("N", LongType())


def _replace_field(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("place.x")
    with table.update_schema() as update:
        update.add_column(("place", "x"), StringType())


PLACE = Schema(
    NestedField(1, "place", StructType(NestedField(2, "x", StringType()), NestedField(3, "y", StringType())))
)


@pytest.mark.parametrize(("change", "column"), [(_swap, "n"), (_replace, "n"), (_replace_field, "place.x")])
def test_a_name_of_another_column_is_refused(house: Icehouse, change: Any, column: str) -> None:
    if column == "place.x":
        house.catalog().create_table((NAMESPACE, "t"), PLACE)
    else:
        house.add("t", [event(1, n=1)])
    source = IcebergSource("events", STREAM)
    start, read = source.start(), source.end()
    change(house.table("t"))
    for offset in (start, read):
        with pytest.raises(HistoryGone, match=f"^.*column {column}, as it was read up to .*floodmark reset"):
            source.check_columns(offset, ["at", column.split(".")[0].upper()])
        source.check_columns(offset, ["at", "k"])
    anew = source.end()
    source.check_columns(anew, ["n", "place"])
    assert At.parse(anew) == At.parse(read), "the rows are the same"


def _forget_schema(house: Icehouse, number: int) -> None:
    house.catalog().commit_table(house.table("t"), (), (RemoveSchemasUpdate(schema_ids=[number]),))


def test_a_schema_that_was_removed_stops_what_cannot_be_compared(house: Icehouse) -> None:
    house.add("t", [event(1, n=1)])
    with house.table("t").update_schema() as update:
        update.add_column("m", LongType())
    source = IcebergSource("events", STREAM)
    start, read = source.start(), source.end()
    _replace(house.table("t"))
    _forget_schema(house, 1)
    with pytest.raises(HistoryGone, match="column n, as it was read"):
        source.check_columns(read, ["n"])  # by the schema of the snapshot
    source.check_columns(read, ["at"])
    source.check_columns(start, ["n"])  # nothing was read
    house.append("t", house.table("t").scan().to_arrow())
    house.expire("t")
    _forget_schema(house, 0)
    with pytest.raises(HistoryGone, match=r"expected schema 1, by which it was read up to snapshot \d+ \(number 1\)"):
        source.check_columns(read, ["at"])


def test_columns_that_come_go_or_get_another_name_change_no_other_ones(house: Icehouse) -> None:
    house.add("t", [event(1, n=1)])
    source = IcebergSource("events", STREAM)
    read = source.end()
    _rename(house.table("t"), ("v", "w"))
    with house.table("t").update_schema(allow_incompatible_changes=True) as update:
        update.add_column("v2", StringType())
        update.delete_column("k")
    source.check_columns(read, ["at", "k", "v", "n"])


def test_each_offset_says_by_which_schema_it_was_planned(house: Icehouse) -> None:
    house.add("t", [event(1, n=1)])
    source = IcebergSource("events", STREAM)
    start, unknown = source.start(), At.parse(source.end())
    _swap(house.table("t"))
    house.append("t", house.table("t").scan().to_arrow())
    upto = source.take_end(start)
    first = source.after(start, upto, EpochLimits(max_rows=1))
    assert [At.parse(one).schema for one in (start, first, upto, source.end())] == [0, 3, 3, 3]
    before = At(unknown.of, unknown.snapshot, unknown.sequence)
    assert "schema" not in before.line() and At.parse(before.line()).schema is None
    source.check_columns(before.line(), ["n"])  # of a run that did not note it
