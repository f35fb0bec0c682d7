"""Iceberg tables as targets, in a real catalogue: each operation does what it does to a list of rows, once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, TimestamptzType
from support.icehouse import NAMESPACE, Icehouse, compact

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.iceberg.options import WrittenIceberg
from floodmark.connectors.sources.python.rows import schema_of
from floodmark.connectors.targets.iceberg.staged import rank
from floodmark.connectors.targets.iceberg.table import NUMBER
from floodmark.connectors.targets.iceberg.target import IcebergTarget
from floodmark.core.relay.portions import Replaced
from floodmark.core.relay.positions import Position
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Fenced, FloodmarkError, LedgerBroken, NotOwned, Refused, RunFailed, WrongColumn

START = datetime(2001, 1, 1, tzinfo=UTC)
PLAIN = Layout(columns_of("at TIMESTAMP, k STRING, n BIGINT"))
KEYED = replace(PLAIN, key=("k",))
NEWEST = replace(KEYED, newest="at")
PAIRS = replace(PLAIN, key=("k", "n"))
Row = dict[str, Any]


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def position(seq: int, ledger: str = "ledger") -> Position:
    return Position(ledger, 1, "token", seq, seq, f"h{seq}") if seq else Position(ledger)


def operation(
    layout: Layout, seq: int, rows: Sequence[Row] = (), *, empties: bool = False, replaces: Replaced | None = None,
    whole: bool = False,
) -> Operation:  # fmt: skip
    """Rows in two batches; `gone` in a row of a key takes it away."""
    schema = schema_of(layout.columns)
    schema = schema.append(pa.field(DELETE_COLUMN, pa.bool_())) if layout.key else schema

    def batches() -> Iterator[pa.RecordBatch]:
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            marked = [{**row, DELETE_COLUMN: row.get("gone", False)} for row in part]
            yield pa.RecordBatch.from_pylist(marked, schema=schema)

    return Operation(f"ledger/{seq}", position(seq), empties, replaces, whole, len(rows), batches)


class Shop:
    """One target, `shop.t`, and how far it is."""

    def __init__(self, house: Icehouse, layout: Layout):
        self.house, self.layout, self.at = house, layout, position(0)

    def target(self) -> IcebergTarget:
        options = WrittenIceberg.model_validate({"connection": "lake", "table": f"{NAMESPACE}.t"})
        return IcebergTarget("iceberg://lake/shop.t", options)

    def claimed(self) -> Shop:
        assert self.target().claim("ledger", self.layout) == position(0)
        return self

    def apply(self, *operations: Operation, upto: int | None = None, sent: Callable[[], object] = lambda: None) -> None:
        to = operations[-1].position if upto is None else position(upto)
        self.target().apply(operations, self.layout, self.at, to, lambda: (sent(), None)[1])
        assert self.target().position() == to
        self.at = to

    def rows(self) -> list[Row]:
        found = [row for batch in self.target().read_back(self.layout) for row in batch.to_pylist()]
        return in_order(found)


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: str(sorted(row.items())))


@pytest.fixture
def house(place: Path, monkeypatch: pytest.MonkeyPatch) -> Icehouse:
    found = Icehouse(place / "ice").made()
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", found.connection)
    return found


def row(second: int, k: str | None, n: int | None = 1, **more: Any) -> Row:
    return {"at": at(second), "k": k, "n": n, **more}


# --- What operations do


def expected(layout: Layout, before: Sequence[Row], operations: Sequence[Operation]) -> list[Row]:
    """The same to a list of rows, one operation after the other."""
    names = [one.name for one in layout.columns]
    found = [dict(one) for one in before]
    for one in operations:
        rows = [given for batch in one.rows() for given in batch.to_pylist()]
        if one.empties:
            found = []
        if one.replaces is not None:
            low, high = (START + timedelta(microseconds=end) for end in one.replaces.parts[0])
            found = [old for old in found if old["at"] is None or not low <= old["at"] < high]
        for new in rows:
            if layout.key:
                twin = next((old for old in found if all(old[name] == new[name] for name in layout.key)), None)
                if twin is not None and not new[DELETE_COLUMN] and not one.whole and _is_older(layout, new, twin):
                    continue
                found = [old for old in found if old is not twin]
            if not new.get(DELETE_COLUMN):
                found.append({name: new[name] for name in names})
    return in_order(found)


def _is_older(layout: Layout, new: Row, old: Row) -> bool:
    order = [layout.newest, *sorted(old)] if layout.newest else []
    return [rank(new[str(name)]) for name in order] < [rank(old[str(name)]) for name in order]


def drawn(draw: random.Random, layout: Layout, seq: int) -> Operation:
    rows: list[Row] = [
        row(draw.randrange(40), draw.choice(["a", "b", "c", "é", None]), draw.choice([1, 2, 3, None]))
        for _ in range(draw.randrange(6))
    ]
    if layout.key:
        rows = list({tuple(one[name] for name in layout.key): one for one in rows}.values())
        rows = [{**one, "gone": layout.newest is None and draw.random() < 0.3} for one in rows]
    how = draw.random()
    low = int(draw.randrange(30) * 1e6)
    replaces = Replaced("at", ((micros(low), micros(low + 10_000_000)),)) if how < 0.2 else None
    return operation(layout, seq, rows, empties=how > 0.95, replaces=replaces, whole=replaces is not None or how < 0.3)


def micros(after_start: int) -> int:
    return int(START.timestamp() * 1_000_000) + after_start


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(1, 20))])
@pytest.mark.parametrize("layout", [PLAIN, KEYED, NEWEST, PAIRS], ids=["plain", "keyed", "newest", "pairs"])
def test_operations_do_what_they_do_to_a_list(house: Icehouse, layout: Layout, seed: int) -> None:
    draw, numbers = random.Random(seed), count(1)
    shop, there = Shop(house, layout).claimed(), list[Row]()
    for _ in range(8):
        operations = [drawn(draw, layout, next(numbers)) for _ in range(draw.randrange(1, 4))]
        shop.apply(*operations)
        absolute = [_relative(one) for one in operations]
        there = expected(layout, there, absolute)
        assert shop.rows() == there


def _relative(one: Operation) -> Operation:
    if one.replaces is None:
        return one
    parts = tuple((low - micros(0), high - micros(0)) for low, high in one.replaces.parts)
    return replace(one, replaces=replace(one.replaces, parts=parts))


# --- One writer counts


def write(shop: Shop, *rows: Row) -> None:
    """As another program does."""
    shop.house.append("t", pa.Table.from_pylist(list(rows), schema=schema_of(PLAIN.columns)))


@pytest.mark.parametrize("rows", [[], [row(1, "a")]], ids=["empty", "rows"])
@pytest.mark.parametrize("layout", [PLAIN, KEYED], ids=["plain", "keyed"])
@pytest.mark.parametrize("others", [[], [row(2, "b")]], ids=["other-empty", "other-rows"])
def test_a_relay_that_another_has_overtaken_has_no_effect(
    house: Icehouse, layout: Layout, rows: list[Row], others: list[Row]
) -> None:
    """Also if one of them, or both, have no rows to send."""
    slow, fast = Shop(house, layout).claimed(), Shop(house, layout)

    def overtake() -> None:
        fast.apply(operation(layout, 1, others), operation(layout, 2))

    with pytest.raises(Fenced, match="expected its position at nothing yet, found generation 1, epoch 2: another"):
        slow.apply(operation(layout, 1, rows), sent=overtake)
    assert (slow.target().position(), slow.rows()) == (position(2), others)
    with pytest.raises(Fenced):
        slow.apply(operation(layout, 1, rows))


@pytest.mark.parametrize("retries", ["4", None])
def test_another_writer_in_between_makes_the_commit_fail_and_the_next_relay_finishes(
    house: Icehouse, retries: str | None
) -> None:
    shop = Shop(house, KEYED).claimed()
    shop.apply(operation(KEYED, 1, [row(1, "a"), row(2, "b")]))
    if retries is not None:
        house.table("t").transaction().set_properties({"commit.retry.num-retries": retries}).commit_transaction()
    changed = operation(KEYED, 2, [row(3, "a"), row(3, "b", gone=True)])
    with pytest.raises(RunFailed, match="another program has changed it meanwhile, so nothing of this counts"):
        shop.apply(changed, sent=lambda: write(shop, row(9, "x")))
    assert shop.rows() == in_order([row(1, "a"), row(2, "b"), row(9, "x")])
    shop.apply(changed)
    assert shop.rows() == in_order([row(3, "a"), row(9, "x")])


def test_a_commit_whose_answer_says_that_it_failed_counts_if_the_position_moved(
    house: Icehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import Transaction

    shop = Shop(house, PLAIN).claimed()
    commit = Transaction.commit_transaction

    def answered_late(self: Transaction) -> None:
        commit(self)
        raise CommitFailedException("branch main has changed")

    monkeypatch.setattr(Transaction, "commit_transaction", answered_late)
    shop.apply(operation(PLAIN, 1, [row(1, "a")]))
    assert shop.rows() == [row(1, "a")]


def test_expiry_between_two_attempts_changes_nothing(house: Icehouse) -> None:
    shop = Shop(house, KEYED).claimed()
    for seq in (1, 2, 3):
        shop.apply(operation(KEYED, seq, [row(seq, "a"), row(seq, str(seq))]))
    house.expire("t")
    with pytest.raises(RunFailed):
        shop.apply(operation(KEYED, 4, [row(4, "a")]), sent=lambda: write(shop, row(9, "x")))
    house.expire("t")
    shop.apply(operation(KEYED, 4, [row(4, "a")]))
    house.expire("t")
    assert Shop(house, KEYED).target().claim("ledger", KEYED) == position(4)
    assert shop.rows() == in_order([row(4, "a"), row(1, "1"), row(2, "2"), row(3, "3"), row(9, "x")])


def test_each_move_is_one_snapshot_and_one_commit(house: Icehouse) -> None:
    """Also of a portion without rows: a catalogue compares nothing but snapshots."""
    shop = Shop(house, KEYED).claimed()
    moves = ([], [row(1, "a")], [row(2, "a"), row(2, "b")], [row(3, "a", gone=True)], [])
    for i, rows in enumerate(moves, 1):
        shop.apply(operation(KEYED, i, rows))
        assert len(house.table("t").snapshots()) == i
        assert len(house.table("t").metadata.metadata_log) == i


def test_a_portion_of_rows_before_the_position_moves(house: Icehouse) -> None:
    """As qos 1 does it: `since` is `upto`, so a refused commit never counts."""
    shop = Shop(house, PLAIN).claimed()
    with pytest.raises(RunFailed, match="another program has changed it"):
        shop.apply(operation(PLAIN, 1, [row(1, "a")]), upto=0, sent=lambda: write(shop, row(9, "x")))
    shop.apply(operation(PLAIN, 1, [row(1, "a")]), upto=0)
    assert shop.rows() == in_order([row(1, "a"), row(9, "x")])


# --- Types


def test_every_type_comes_back_as_it_went(house: Icehouse) -> None:
    layout = Layout(
        columns_of(
            "k STRING, a BOOLEAN, b TINYINT, c SMALLINT, d INT, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(38,9), "
            "i BINARY, j DATE, l TIMESTAMP, m TIMESTAMP_NTZ, o ARRAY<STRING>, p MAP<STRING, INT>, "
            "q STRUCT<x: INT, y: ARRAY<DATE>>"
        ),
        key=("k",),
    )
    full = {
        "k": "é", "a": True, "b": -128, "c": 32767, "d": -5, "e": 2**62, "f": 0.5, "g": float("-inf"),
        "h": Decimal("12345678901234567890123456789.123456789"), "i": b"\x00\xff", "j": date(1582, 1, 1),
        "l": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), "m": datetime(2001, 1, 1, 0, 0, 0, 1),
        "o": ["", None], "p": [("a", 1), ("b", None)], "q": {"x": None, "y": [date(2000, 2, 29)]},
    }  # fmt: skip
    empty = {**dict.fromkeys(full), "k": "none"}
    shop = Shop(house, layout).claimed()
    shop.apply(operation(layout, 1, [full, empty]))
    shop.apply(operation(layout, 2, [{**empty, "k": "other"}]))
    assert shop.rows() == in_order([full, empty, {**empty, "k": "other"}])


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_an_interval_of_any_type_of_time(house: Icehouse, kind: str) -> None:
    layout = Layout(columns_of(f"at {kind}, n BIGINT"))
    days = [datetime(2001, 1, day, tzinfo=UTC if kind == "TIMESTAMP" else None) for day in (1, 2, 3, 4)]
    rows: list[Row] = [{"at": one.date() if kind == "DATE" else one, "n": 1} for one in days] + [{"at": None, "n": 1}]
    shop = Shop(house, layout).claimed()
    shop.apply(operation(layout, 1, rows))
    day = 86_400_000_000
    taken = Replaced("at", ((micros(day), micros(2 * day)), (micros(3 * day), micros(3 * day + 1))))
    shop.apply(operation(layout, 2, [{"at": None, "n": 2}], replaces=taken))
    assert shop.rows() == in_order([rows[0], rows[2], rows[4], {"at": None, "n": 2}])


@pytest.mark.parametrize(
    "kind", ["DOUBLE", "ARRAY<INT>", "STRUCT<x: INT>", "DECIMAL(9,2)", "DATE", "BINARY", "BOOLEAN"]
)
def test_a_key_of_any_type(house: Icehouse, kind: str) -> None:
    some = {
        "DOUBLE": [float("nan"), -0.5, None], "ARRAY<INT>": [[1], [1, None], None], "BOOLEAN": [True, False, None],
        "STRUCT<x: INT>": [{"x": 1}, {"x": None}, None], "DECIMAL(9,2)": [Decimal("1.50"), Decimal("-1.50"), None],
        "DATE": [date(1, 1, 1), date(2001, 1, 1), None], "BINARY": [b"", b"\xff", None],
    }[kind]  # fmt: skip
    layout = Layout(columns_of(f"k {kind}, n BIGINT"), key=("k",))
    shop = Shop(house, layout).claimed()
    for n in (1, 2):
        shop.apply(operation(layout, n, [{"k": k, "n": n} for k in some]))
    assert str(shop.rows()) == str(in_order([{"k": k, "n": 2} for k in some]))


def test_keys_are_found_in_whichever_file_they_are(house: Icehouse) -> None:
    """Also NULL, which no range of a file's values includes."""
    shop = Shop(house, PAIRS).claimed()
    pairs: list[tuple[str | None, int | None]] = [("a", 1), (None, 1), ("a", None), (None, None), ("z", 9)]
    for seq, (k, n) in enumerate(pairs, 1):
        shop.apply(operation(PAIRS, seq, [row(1, k, n)]))
    assert len(list(house.table("t").scan().plan_files())) == len(pairs)
    shop.apply(operation(PAIRS, 9, [row(2, k, n) for k, n in pairs[:4]]))
    assert shop.rows() == in_order([*(row(2, k, n) for k, n in pairs[:4]), row(1, "z", 9)])


# --- A table of somebody


def made(house: Icehouse, *fields: NestedField, partitioned: bool = False, **properties: str) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k")) if partitioned else PartitionSpec()
    house.catalog().create_table((NAMESPACE, "t"), Schema(*fields), partition_spec=spec, properties=properties)


AT = NestedField(1, "at", TimestamptzType(), required=False)
K = NestedField(2, "k", StringType(), required=False)
N = NestedField(3, "n", LongType(), required=False)
MORE = NestedField(4, "more", StringType(), required=False)


@pytest.mark.parametrize("partitioned", [False, True])
def test_an_empty_table_that_fits_is_taken_over(house: Icehouse, partitioned: bool) -> None:
    """Its other columns stay, and so do its partitions."""
    made(house, MORE, N, K, AT, partitioned=partitioned)
    shop = Shop(house, KEYED).claimed()
    shop.apply(operation(KEYED, 1, [row(1, "a"), row(1, "b")]))
    shop.apply(operation(KEYED, 2, [row(2, "a")]), operation(KEYED, 3, [row(3, "c"), row(3, None)]))
    assert shop.rows() == in_order([row(2, "a"), row(1, "b"), row(3, "c"), row(3, None)])
    assert len(house.table("t").inspect.partitions()) == (4 if partitioned else 1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ([AT, K], "expected a column n long, found none of at, k: add it, or cast in the SQL"),
        ([AT, K, NestedField(3, "n", IntegerType(), required=False)], "expected column n of type long, found int"),
        ([AT, K, NestedField(3, "n", LongType(), required=True)], "found n, which is required: make it optional"),
        ([AT, K, N, NestedField(4, "w", LongType(), required=True)], "found w, which is required: make it optional"),
    ],
)
def test_a_table_that_does_not_fit_is_named(house: Icehouse, fields: list[NestedField], said: str) -> None:
    made(house, *fields)
    with pytest.raises(WrongColumn, match=said):
        Shop(house, PLAIN).claimed()


def test_rows_of_somebody_are_not_taken_over(house: Icehouse) -> None:
    made(house, AT, K, N)
    write(Shop(house, PLAIN), row(1, "a"))
    with pytest.raises(NotOwned, match="it has rows, and no position of a rule"):
        Shop(house, PLAIN).claimed()
    assert "floodmark.position" not in house.table("t").properties


def test_of_two_rules_that_take_a_table_over_one_gets_it(house: Icehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    from floodmark.connectors.targets.iceberg.table import IcebergTable

    made(house, AT, K, N)
    fit, shop = IcebergTable.fit, Shop(house, PLAIN)

    def overtaken(self: IcebergTable, table: Any, layout: Layout) -> None:
        monkeypatch.setattr(IcebergTable, "fit", fit)
        shop.target().claim("other", PLAIN)

    monkeypatch.setattr(IcebergTable, "fit", overtaken)
    with pytest.raises(RunFailed, match="somebody has just changed it; ship again"):
        shop.target().claim("ledger", PLAIN)
    assert shop.target().claim("ledger", PLAIN) == position(0, "other")


# --- What somebody did to it


def changed(house: Icehouse, **properties: str) -> None:
    house.table("t").transaction().set_properties(properties).commit_transaction()


def test_a_position_that_somebody_changed_is_named(house: Icehouse) -> None:
    shop = Shop(house, PLAIN).claimed()
    changed(house, **{"floodmark.position": '{"ledger": "x"}'})
    with pytest.raises(LedgerBroken, match=r"its property floodmark.position cannot be read: expected a position with"):
        shop.target().position()
    house.table("t").transaction().remove_properties("floodmark.position").commit_transaction()
    assert shop.target().position() is None
    with pytest.raises(Refused, match=r"expected its position \(nothing yet\), found none: somebody removed it"):
        shop.apply(operation(PLAIN, 1, [row(1, "a")]))
    house.catalog().drop_table((NAMESPACE, "t"))
    with pytest.raises(Refused, match="expected the table, found none: somebody removed it"):
        shop.apply(operation(PLAIN, 1, [row(1, "a")]))


def test_a_table_that_was_rolled_back_is_noticed(house: Icehouse) -> None:
    """Snapshots go back, and the table's properties do not."""
    shop = Shop(house, PLAIN).claimed()
    for seq in (1, 2):
        shop.apply(operation(PLAIN, seq, [row(seq, "a")]))
    write(shop, row(9, "x"))
    first, second, newest = (one.snapshot_id for one in house.table("t").snapshots())
    assert shop.target().position() == position(2)
    for more in (False, True):
        house.table("t").manage_snapshots().rollback_to_snapshot(first).commit()
        if more:
            write(shop, row(9, "x"))
        with pytest.raises(LedgerBroken, match="it was rolled back to before the snapshot of its position"):
            shop.target().claim("ledger", PLAIN)
        house.table("t").manage_snapshots().set_current_snapshot(newest).commit()
    house.table("t").manage_snapshots().create_tag(second, "kept").commit()
    write(shop, row(9, "x"))
    house.expire("t", 2)
    assert shop.target().position() == position(2)


def test_a_rollback_is_noticed_after_the_newer_snapshots_have_expired(house: Icehouse) -> None:
    shop = Shop(house, PLAIN).claimed()
    for seq in (1, 2, 3):
        shop.apply(operation(PLAIN, seq, [row(seq, "a")]))
    first, *newer = (one.snapshot_id for one in house.table("t").snapshots())
    house.table("t").manage_snapshots().rollback_to_snapshot(first).commit()
    house.table("t").maintenance.expire_snapshots().by_ids(newer).commit()
    for more in (False, True):
        if more:
            write(shop, row(9, "x"))
        with pytest.raises(LedgerBroken, match="it was rolled back to before the snapshot of its position"):
            shop.target().claim("ledger", PLAIN)
    house.table("t").transaction().remove_properties(NUMBER).commit_transaction()
    assert shop.target().position() == position(3), "an older version did not note the number: nobody knows"


def test_what_other_writers_do_in_order_is_no_rollback(house: Icehouse) -> None:
    """They add, compact, and expire all but the newest snapshot."""
    shop = Shop(house, PLAIN).claimed()
    for seq in (1, 2):
        shop.apply(operation(PLAIN, seq, [row(seq, "a")]))
        assert house.table("t").properties[NUMBER] == str(2 * seq - 1)
        write(shop, row(9, "x"))
    compact(house.table("t"))
    house.expire("t")
    assert shop.target().position() == position(2)
    shop.apply(operation(PLAIN, 3, [row(3, "a")]))
    assert len(shop.rows()) == 5


def test_a_row_that_cannot_be_read_ends_the_relay_with_its_own_error(house: Icehouse) -> None:
    shop = Shop(house, PLAIN).claimed()

    def gone() -> Iterator[pa.RecordBatch]:
        yield next(operation(PLAIN, 1, [row(1, "a")]).rows())
        raise LedgerBroken("the outbox has lost a file")

    broken = replace(operation(PLAIN, 1, [row(1, "a")]), rows=gone)
    with pytest.raises(LedgerBroken, match="the outbox has lost a file"):
        shop.apply(broken)
    assert (shop.target().position(), shop.rows()) == (position(0), [])


# --- Connections


def connection(house: Icehouse, **extra: str | None) -> str:
    return json.dumps({"conn_type": "iceberg", "extra": {**house.properties, **extra}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (lambda _: "postgres://me:s3cret@h/db", "connection lake: expected the kind iceberg, such as {.*}, found the"),
        (
            lambda _: "iceberg://?type=sql",
            "expected the catalogue's address as `uri` in its extra, such as {.*}",
        ),
        (lambda one: connection(one, type="hive"), "expected a catalogue of type sql or rest, found hive"),
        (lambda one: connection(one, uri=f"sqlite:///{one.root}/none.db"), "expected the catalogue's file .*none.db"),
        (lambda one: connection(one, uri=f"sqlite:///{one.root}/warehouse.db"), "found a database without its tables"),
        (lambda one: connection(one, catalog_name="other"), "the namespace shop in the catalogue other, found none"),
        (lambda one: connection(one, uri="oracle://me:s3cret@h/db"), r"it is refused: "),
        (
            lambda one: connection(one, uri="postgresql://me:s3cret@127.0.0.1:1/db"),
            r"it cannot be reached, or ",
        ),
        (lambda one: connection(one, type="rest", uri="http://127.0.0.1:1", token="s3cret"), r"it cannot be reached"),
    ],
    ids=range(9),
)
def test_a_wrong_connection_is_answered_in_one_line(
    house: Icehouse, monkeypatch: pytest.MonkeyPatch, text: Callable[[Icehouse], str], said: str
) -> None:
    (house.root / "warehouse.db").touch()
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", text(house))
    with pytest.raises(FloodmarkError, match=said) as fault:
        Shop(house, PLAIN).target().position()
    assert "s3cret" not in str(fault.value)
    assert len(str(fault.value).splitlines()) == 1
    assert not (house.root / "none.db").exists()


def test_a_look_makes_nothing(house: Icehouse) -> None:
    before = sorted(house.root.rglob("*"))
    assert Shop(house, PLAIN).target().position() is None
    assert sorted(house.root.rglob("*")) == before
