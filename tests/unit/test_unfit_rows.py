"""Rows with a value that Spark's tables hold, and most targets do not: named, or set aside, before a target fails."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flow import event
from support.icehouse import Icehouse
from support.outboxed import Outboxed
from test_refused_rows import lines, own
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.relay.unfit import NESTED_TIME, PYTHON_TIME, TEXT, TIME, fit_rows, unfit_rows
from floodmark.connectors.targets.files.options import WrittenFolder
from floodmark.connectors.targets.files.target import FilesTarget
from floodmark.core.relay.positions import Position
from floodmark.core.text.ddl import columns_of
from floodmark.errors import InputFault

ODD = b"a\xff"
FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds of the years 1 to 9999

FAR = (-1_096_193_779_200_000_000, 971_890_963_199_999_999, 971_890_963_200_000_000)  # years -32767 and 32767, 32768


def texts(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary()).view(pa.string())


def listed(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(range(len(values) + 1), values)


def times(*values: int | None) -> pa.Array:
    return listed(pa.array(values, pa.timestamp("us", "UTC")))


def days(*values: int | None) -> pa.Array:
    return listed(pa.array(values, pa.date32()))


def operation(*arrays: pa.Array, left_out: frozenset[int] = frozenset()) -> Operation:
    batches = [pa.record_batch([one], ["c"]) for one in arrays]
    return Operation("l/1", Position("l"), False, None, False, 1, lambda: iter(batches), left_out)


@pytest.mark.parametrize(
    ("kind", "array", "odd"),
    [
        ("STRING", texts(b"a", None, ODD, "\u00e4".encode(), b"\xfe"), {2: TEXT + r"a\xff", 4: TEXT + r"\xfe"}),
        ("BINARY", pa.array([ODD]), {}),
        ("ARRAY<STRING>", listed(texts(b"a", ODD, None)), {1: TEXT + r"a\xff"}),
        ("STRUCT<s: STRING>", pa.StructArray.from_arrays([texts(b"a", ODD)], ["s"]), {1: TEXT + r"a\xff"}),
        (
            "MAP<STRING, INT>",
            pa.MapArray.from_arrays([0, 1, 2], texts(b"a", ODD), pa.array([1, 2])),
            {1: TEXT + r"a\xff"},
        ),
        (
            "MAP<INT, STRING>",
            pa.MapArray.from_arrays([0, 1, 2], pa.array([1, 2]), texts(ODD, b"a")),
            {0: TEXT + r"a\xff"},
        ),
        ("ARRAY<TIMESTAMP>", times(FIRST - 1, FIRST, None, LAST, LAST + 1), {0: NESTED_TIME, 4: NESTED_TIME}),
        ("ARRAY<DATE>", days(-719_163, -719_162, None, 2_932_896, 2_932_897), {0: NESTED_TIME, 4: NESTED_TIME}),
        ("TIMESTAMP", pa.array([FAR[0] - 1, FAR[0], LAST + 1, *FAR[1:]], pa.timestamp("us")), {0: TIME, 4: TIME}),
        ("DATE", pa.array([-12_687_429, -12_687_428, 0, 11_248_737, 11_248_738], pa.date32()), {0: TIME, 4: TIME}),
        ("TIMESTAMP", pa.array([None], pa.timestamp("us")), {}),
    ],
)
def test_rows_that_no_target_holds_are_found_by_their_place(kind: str, array: pa.Array, odd: dict[int, str]) -> None:
    columns = columns_of(f"c {kind}")
    said = {place: f"column c: {why}" for place, why in odd.items()}
    assert unfit_rows(operation(array), columns) == said
    assert unfit_rows(operation(array.slice(1)), columns) == {p - 1: why for p, why in said.items() if p}
    later = {place + len(array): why for place, why in said.items()}
    assert unfit_rows(operation(array, array), columns) == said | later
    if not odd:
        assert [one.num_rows for one in fit_rows("a", operation(array, array), columns)] == [len(array)] * 2


@pytest.mark.parametrize("kind", ["TIMESTAMP", "DATE"])
def test_a_target_may_hold_no_time_that_python_lacks(kind: str) -> None:
    array = pa.array([FIRST - 1, FIRST, None, LAST, LAST + 1], pa.timestamp("us"))
    array = array if kind == "TIMESTAMP" else days(-719_163, -719_162, None, 2_932_896, 2_932_897).flatten()
    said = dict.fromkeys((0, len(array) - 1), f"column c: {PYTHON_TIME}")
    assert unfit_rows(operation(array), columns_of(f"c {kind}"), near=True) == said
    with pytest.raises(InputFault, match=PYTHON_TIME):
        list(fit_rows("a", operation(array), columns_of(f"c {kind}"), near=True))


def test_a_time_that_iceberg_lacks_keeps_no_other_row_from_it(place: Path) -> None:
    house = Icehouse(place / "ice").made()
    sink = {"iceberg": {"connection": "lake", "table": "shop.t"}, "on_error": "dead"}
    rule = Outboxed(place, sink, {"FLOODMARK_CONN_LAKE": house.connection})
    rule.epoch([event(1, n=2), {**event(1, n=3), "at": LAST + 1}])
    assert rule.relays.ship().code == 0
    assert ([one["n"] for one in house.rows("t")], rule.undelivered()) == ([2], [(3, 1, 3)])


def test_the_first_of_them_is_named_by_its_number() -> None:
    """Numbers are the same whatever is left out."""
    rows = fit_rows(
        "files:///x", operation(texts(b"a"), texts(b"b", ODD), left_out=frozenset({1})), columns_of("c STRING")
    )
    assert next(rows).num_rows == 1
    with pytest.raises(InputFault, match=r"row l/1/3: column c: expected text in UTF-8, found a\\xff"):
        next(rows)


def written(path: Path) -> list[int]:
    return [json.loads(line)["n"] for one in sorted(path.glob("data/[!.]*")) for line in one.read_text().splitlines()]


def folder(place: Path, **how: Any) -> Outboxed:
    return Outboxed(place, {"files": {"path": str(place / "out"), "format": how.pop("format", "json")}, **how})


def test_a_relay_stops_and_names_the_row(place: Path) -> None:
    rule = folder(place)
    rule.epoch([event(1, n=2), event(1, k=ODD, n=3)])
    done = rule.relays.ship()
    said = re.search(rf"row {rule.ledger.id}/3-[0-9a-f]{{8}}/1: column k: {re.escape(TEXT)}", done.said)
    assert (done.code, said is not None) == (3, True), done.said


def test_it_is_set_aside_and_the_others_arrive(place: Path) -> None:
    rule = folder(place, on_error="dead")
    rule.epoch([event(1, n=2), event(1, k=ODD, n=3)])
    rule.epoch([event(1, k=ODD, n=4), event(1, n=5)])
    done = rule.relays.ship()
    assert (done.code, "2 refused" in done.said) == (0, True), done.said
    assert (written(place / "out"), rule.undelivered()) == ([2, 5], [(3, 1, 3), (5, 0, 4)])
    assert rule.certified() == ([], {rule.name: 2})
    aside = Path(rule.outbox.replace("/outbox/", "/undelivered/"))
    older = aside.rename(aside.with_name(f"{aside.name}-until-5"))  # as once a column has another type
    assert rule.certified() == ([], {rule.name: 2})
    older.rename(aside)
    code, said = rule.command("undelivered", "list", "refused")
    assert (code, "nothing is corrupt, and Spark can show it" in said) == (3, True), said


def test_parquet_holds_it(place: Path) -> None:
    rule = folder(place, format="parquet")
    rule.epoch([event(1, k=ODD, n=3)])
    assert rule.relays.ship().code == 0


@pytest.mark.parametrize(("name", "qos"), [("Once", 2), ("Once", 0), ("Again", 1)])
def test_a_class_gets_every_portion_before_it_once(place: Path, name: str, qos: int) -> None:
    rule, path = own(place, name, qos=qos)
    rule.epoch([event(1, n=2)])
    rule.epoch([event(1, k=ODD, n=4), event(1, n=6)])
    assert rule.relays.ship().code == 0
    assert ([n for n, *_ in lines(path)], rule.undelivered()) == ([2, 6], [(5, 0, 4)])


def test_an_audit_says_what_it_does_not_know_of_a_target(place: Path) -> None:
    rule = folder(place)
    rule.epoch([event(1, n=2)])
    assert rule.relays.ship().code == 0
    plain, deep = (["audit", "refused", "--home", str(rule.flow.home), *more] for more in ([], ["--deep"]))
    asks = "its outbox was checked. Whether the target has the rows, --deep asks it"
    assert asks in CliRunner().invoke(app, plain).output
    said = CliRunner().invoke(app, deep).output
    assert asks not in said and "not shipped yet" not in said
    rule.epoch([event(1, n=3)])
    assert "1 portion is not shipped yet, and not judged" in CliRunner().invoke(app, deep).output
    found = [json.loads(CliRunner().invoke(app, [*one, "--json"]).stdout)["behind"] for one in (plain, deep)]
    assert found == [{rule.name: None}, {rule.name: 1}]


def test_a_null_alone_is_no_line_of_csv(tmp_path: Path) -> None:
    """It would be an empty line, which readers skip: the row would be lost to them."""
    path = tmp_path / "out"
    target = FilesTarget("files:out", WrittenFolder.model_validate({"path": str(path), "format": "csv"}))
    layout = Layout(columns_of("k STRING"))
    first = target.claim("l", layout)
    rows = pa.record_batch({"k": ["", None, "a", None]})
    upto = replace(first, seq=1, epoch=1)
    one = Operation("t", upto, False, None, False, 4, lambda: iter([rows]))
    with pytest.raises(InputFault, match=r"row t/1: expected a value, found NULL in the only column") as fault:
        target.apply([one], layout, first, upto, lambda: None)
    assert "another `format` with `on_reset: empty`" in str(fault.value), "a row that waits keeps its format"
    assert list(target.refused(fault.value, [one], layout, first)[0]) == [1, 3]
    rest = replace(one, count=2, rows=lambda: iter([rows.filter(pa.array([True, False, True, False]))]))
    target.apply([rest], layout, first, upto, lambda: None)
    assert [row for batch in target.read_back(layout) for row in batch["k"].to_pylist()] == ["", "a"]


@pytest.mark.parametrize(("form", "columns"), [("json", "k STRING"), ("csv", "k STRING, n INT")])
def test_a_null_beside_another_column_or_in_json_is_a_line(tmp_path: Path, form: str, columns: str) -> None:
    target = FilesTarget("files:out", WrittenFolder.model_validate({"path": str(tmp_path / "out"), "format": form}))
    layout = Layout(columns_of(columns))
    first = target.claim("l", layout)
    upto = replace(first, seq=1, epoch=1)
    rows = pa.record_batch({"k": pa.array([None], pa.string()), "n": pa.array([None], pa.int32())})
    one = Operation("t", upto, False, None, False, 1, lambda: iter([rows]))
    target.apply([one], layout, first, upto, lambda: None)
    assert sum(batch.num_rows for batch in target.read_back(layout)) == 1
