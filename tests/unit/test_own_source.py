"""A source of one's own: its offsets, rows, class and errors, and the kit that checks its promises."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from support.shopserver import CLASS, COLUMNS, Shop, orders, shop

from floodmark.connectors.delta.landed import _is_spelt_by
from floodmark.connectors.ports.registry import source
from floodmark.connectors.sources.python.offsets import beyond, checked, line, parsed, reaches
from floodmark.connectors.sources.python.options import check_class
from floodmark.connectors.sources.python.rows import schema_of, table_of
from floodmark.connectors.sources.python.source import PythonSource
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.process import loading
from floodmark.core.rules.kinds import connections_of
from floodmark.core.rules.rule import EpochLimits, Rule, Stream, load_rule
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Refused, RuleChanged, RuleInvalid, RunFailed, SourceBroken
from floodmark.testing import check_source

AT = datetime(2001, 1, 1, tzinfo=UTC)


# --- Offsets


@pytest.mark.parametrize("value", [0, -3, "2001", [1, "a"], {"b": 2, "a": [1]}, {}, []])
def test_an_offset_is_the_same_after_it_was_stored(value: Any) -> None:
    assert parsed(line("me", checked(value))) == ("me", value)
    assert reaches(value, value) and not beyond(value, value)


@pytest.mark.parametrize("value", [None, True, 1.5, float("nan"), AT, {1: 2}, [None], {"a": b""}, {1, 2}, "\ud800"])
def test_what_has_no_order_or_is_no_json_is_no_offset(value: Any) -> None:
    with pytest.raises(ValueError, match=r"expected a whole number, text, a list|surrogates not allowed"):
        checked(value)


@pytest.mark.parametrize(
    ("low", "high"),
    [(1, 2), ("a", "b"), ([1, 9], [2, 0]), ([1], [1, 0]), ({"a": 1}, {"a": 2}), ({"a": 1}, {"a": 1, "b": 0})],
)
def test_which_of_two_offsets_is_beyond_the_other(low: Any, high: Any) -> None:
    assert beyond(low, high) and not beyond(high, low) and not reaches(high, low)


def test_offsets_that_went_on_in_one_part_and_back_in_another_went_back() -> None:
    assert not reaches({"a": 1, "b": 5}, {"a": 2, "b": 4})


@pytest.mark.parametrize(("low", "high"), [(1, "2"), ("a", ["a"]), ([1], ["a"]), ({"a": 1}, 2)])
def test_offsets_of_two_forms_cannot_be_compared(low: Any, high: Any) -> None:
    with pytest.raises(ValueError, match="expected offsets of one form"):
        reaches(low, high)


# --- Rows

DDL = columns_of("n BIGINT, at TIMESTAMP, d DECIMAL(4,1), l ARRAY<STRING>, s STRUCT<a: INT, b: MAP<STRING, DOUBLE>>")
ROW = {"n": 1, "at": AT, "d": Decimal("1.5"), "l": ["x", None], "s": {"a": 1, "b": {"k": 1.0}}}
NULLS = dict.fromkeys(ROW)


def test_rows_come_as_dicts_lists_batches_and_tables() -> None:
    rows = [ROW, NULLS]
    table = table_of(DDL, [rows])
    assert table.schema == schema_of(DDL) and table.num_rows == 2
    assert table.to_pylist()[0]["s"] == {"a": 1, "b": [("k", 1.0)]}
    for given in ([ROW, NULLS], [[ROW], [NULLS], []], [table], table.to_batches(), [{**ROW, "more": 1}, NULLS]):
        assert table_of(DDL, given) == table
    assert table_of(DDL, []).num_rows == 0


def test_a_batch_may_have_narrower_types_and_another_order() -> None:
    batch = pa.record_batch({"at": pa.array([0], pa.timestamp("ms", "CET")), "n": pa.array([1], pa.int16())})
    assert table_of(columns_of("n BIGINT, at TIMESTAMP"), [batch]).to_pylist() == [
        {"n": 1, "at": datetime(1970, 1, 1, tzinfo=UTC)}
    ]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"m": 1}, r"expected a column n in every row, found m$"),
        ({"n": "1"}, r"n: expected a whole number that fits INT, found '1'"),
        ({"n": 1 << 31}, r"n: expected a whole number that fits INT, found 2147483648"),
        ([1], r"expected a row as a dict, found 1"),
        ("x", r"expected a pyarrow.RecordBatch, a list of dicts or a dict, found 'x'"),
        (pa.record_batch({"m": [1]}), r"expected a column n in every row, found m$"),
        (pa.record_batch({"n": ["1"]}), r"n: expected INT \(int32\), found string"),
        (pa.record_batch({"n": [1.0]}), r"n: expected INT \(int32\), found double"),
        (pa.record_batch({"n": [1 << 31]}), r"n: expected values that fit INT: .*2147483648"),
    ],
)
def test_rows_of_other_columns_are_named(given: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        table_of(columns_of("n INT"), [given])


def test_a_number_that_is_too_large_for_a_float_is_refused() -> None:
    fitting = [3.0e38, float("inf"), float("nan"), None, 0.1]
    found = table_of(columns_of("n FLOAT"), [pa.record_batch({"n": fitting})])["n"].to_pylist()
    assert found[1] == float("inf") and str(found[2]) == "nan" and found[3] is None and abs(found[4] - 0.1) < 1e-8
    with pytest.raises(ValueError, match="n: expected values that fit FLOAT, found one that is too large"):
        table_of(columns_of("n FLOAT"), [pa.record_batch({"n": [*fitting, 3.5e38]})])


# --- The class

GOOD = """\
class Rows:
    def __init__(self, count=5, connection=None):
        self.count, self.connection = count, connection

    def earliest(self):
        return 0

    def latest(self):
        return self.count

    def read(self, begin, end):
        return [{"n": i} for i in range(begin, end)]

    def split(self, begin, end, most):
        return min(begin + most, end)
"""


def opened(code: str = GOOD, **more: Any) -> PythonSource:
    options = {"named": "rows:Rows", "declared": "n BIGINT", "settings": {}, "code": code, **more}
    found = source("s", Stream(kind="python", address="python://rows:Rows", options=options), None)
    assert isinstance(found, PythonSource)
    return found


def test_whether_an_offset_is_its_own_is_told_without_the_class() -> None:
    found = opened(GOOD + "    def describe(self, at):\n        return 1 / 0\n")
    own = found.end()
    with pytest.raises(RunFailed, match=r"rows:Rows\.describe raised ZeroDivisionError"):
        found.describe(own)
    assert found.identity(own) == found.address
    assert _is_spelt_by(found, own) and not _is_spelt_by(found, '{"n": 5}')


@pytest.mark.parametrize(
    ("old", "new", "fault", "problem"),
    [
        (
            "return self.count",
            "return 1 / 0",
            RunFailed,
            r"stream s: rows:Rows\.latest raised ZeroDivisionError: .*zero \(rows.py:9\)$",
        ),
        ("return self.count", "return None", SourceBroken, r"rows:Rows\.latest: expected a whole number.* found None"),
        ("return self.count", "return 1", SourceBroken, r"latest: expected an offset at or beyond 3, .* found 1"),
        ("return self.count", "return '5'", SourceBroken, r"latest: expected offsets of one form, found 3 and '5'"),
        ("min(begin + most, end)", "begin", SourceBroken, r"split: expected an offset beyond 3 and at most 5, found 3"),
        ("min(begin + most, end)", "6", SourceBroken, r"split: expected an offset beyond 3 and at most 5, found 6"),
        ("def split", "def cut", Refused, r"expected a method split\(begin, end, most\) of rows:Rows, because `epoch`"),
    ],
)
def test_a_class_that_breaks_a_promise_is_named(old: str, new: str, fault: type[Exception], problem: str) -> None:
    assert old in GOOD
    one = opened(GOOD.replace(old, new))
    with pytest.raises(fault, match=problem):
        one.after(line(one.address, 3), one.take_end(line(one.address, 3)), EpochLimits(max_rows=1))


@pytest.mark.parametrize(
    ("body", "fault", "problem"),
    [
        ("return [{'m': 1}]", SourceBroken, r"rows:Rows\.read: expected a column n in every row, found m"),
        ("return None", SourceBroken, r"rows:Rows\.read: expected batches, or lists of dicts, found None"),
        ("yield [{'n': 1}]; raise OSError('gone')", RunFailed, r"rows:Rows\.read raised OSError: gone \(rows.py:12\)$"),
        ("import sys; sys.exit()", RunFailed, r"rows:Rows\.read raised SystemExit: .*\(rows.py:12\)$"),
        (
            "raise OSError('no p4/ss, p4%2Fss or t0k here')",
            RunFailed,
            r"raised OSError: no \*\*\*, \*\*\* or \*\*\* here",
        ),
        ("raise OSError('no p4/ss here')", RunFailed, r"rows:Rows\.read raised OSError: no \*\*\* here"),
    ],
)
def test_what_read_gives_or_raises_is_named(
    body: str, fault: type[Exception], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", "http://me:p4%2Fss@host?access_token=t0k")
    code = GOOD.replace('return [{"n": i} for i in range(begin, end)]', body)
    one = opened(code, connection="shop")
    with pytest.raises(fault, match=problem):
        one._author.rows(one._columns, 0, 1)


def test_settings_that_the_class_does_not_take_are_refused() -> None:
    with pytest.raises(Refused, match=r"expected `settings` that Rows.__init__ takes, found cuont: .*cuont"):
        opened(settings={"cuont": 1}).end()
    assert json.loads(opened(settings={"count": 7}).end())["at"] == 7


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("class Rows", "class Row", r"rows.py: expected a class Rows, found Row"),
        ("def latest", "def last", r"rows.py:1: expected a method latest in class Rows, found none"),
        ("read(self, begin, end)", "read(self, begin)", r"rows.py:11: expected a plain method read\(self, begin, end"),
        ("def earliest", "async def earliest", r"rows.py:5: expected a plain method earliest\(self\)"),
        ("return 0", "return (", r"rows.py:\d+: expected Python, found"),
    ],
)
def test_a_class_that_cannot_be_a_source_is_refused_unread(old: str, new: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_class(GOOD.replace(old, new), "rows.py", "Rows")


def test_methods_of_a_base_class_count() -> None:
    check_class(f"{GOOD}\n\nclass Own(Rows):\n    pass\n", "rows.py", "Own")
    check_class("from a import B\n\n\nclass Own(B):\n    pass\n", "rows.py", "Own")


# --- In a rule


def loaded(place: Path, code: str = GOOD, env: dict[str, str] | None = None, **more: Any) -> Rule:
    (place / "rows.py").write_text(code)
    said = {"class": "rows:Rows", "schema": "n BIGINT", **more}
    rule = {"rule": "r", "streams": {"s": {"python": said}}, "sql": "SELECT n FROM s", "sinks": [{"delta": "/lake/o"}]}
    (place / "r.yaml").write_text(yaml.safe_dump(rule))
    return load_rule(place / "r.yaml", env or {})


def test_the_text_of_the_class_is_part_of_the_rule(place: Path) -> None:
    rule, mended = loaded(place), loaded(place, f"{GOOD}# mended\n")
    assert rule.streams["s"].options["code"] == GOOD and rule.hash != mended.hash
    assert Rule.from_json(mended.to_json()) == mended
    check_edit(rule, mended)
    with pytest.raises(RuleChanged, match="streams"):
        check_edit(rule, loaded(place, schema="n INT"))


def test_a_connection_is_named_and_none_is_none(place: Path) -> None:
    assert connections_of(loaded(place)) == set()
    assert connections_of(loaded(place, connection="shop")) == {"shop"}


def test_only_modules_of_the_operators_list_are_read(place: Path) -> None:
    assert loaded(place, env={"FLOODMARK_CLASSES": "rows"}).streams
    with pytest.raises(RuleInvalid, match=r"streams\.s\.python\.class: expected a module out of FLOODMARK_CLASSES"):
        loaded(place, env={"FLOODMARK_CLASSES": "company"})


# --- The kit


@pytest.fixture
def server() -> Iterator[Shop]:
    with shop() as found:
        yield found


def module(place: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> Any:
    (place / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(place)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_the_page_shows_a_class_of_forty_lines_that_keeps_its_promise(
    place: Path, server: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server fails, delays, cuts its answers short, and repeats rows."""
    assert len(CLASS.splitlines()) <= 40
    found = module(place, monkeypatch, "shops", CLASS).Shop
    server.orders += orders(1, 40)
    done = check_source(found, COLUMNS, {"url": server.url, "timeout": 0.5, "pause": 0})
    assert (done.rows, done.splits) == (26, 4)
    assert all(server.faults[kind] for kind in ("fails", "repeats", "cuts"))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("range(begin, end)", "range(begin, end + next(COUNT))", r"the same 5 rows from the same object, found 6"),
        ('{"n": i}', '{"n": hash(str(i))}', r"expected the same 5 rows from another process, found 5, with 10 diff"),
        (
            "range(begin, end)",
            "range(begin, end + (begin > 0))",
            r"the parts between .* found 9, .*has also \{'n'",
        ),
        ("range(begin, end)", "range(begin + (begin > 0), end)", r"the parts between \[0, 1, 2, .*lacks \{'n': 1\}"),
        ("begin + most", "begin", r"expected split\(0, 5, 1\) beyond the first and at most the second, found 0"),
        ("return self.count", "self.count -= 1; return self.count", r"latest\(\) at or beyond|parts|same"),
        ("return self.count", "return 0", r"expected a source with rows"),
        ('{"n": i}', '{"m": i}', r"Rows\.read: expected a column n in every row, found m"),
    ],
)
def test_the_kit_says_which_promise_a_class_breaks(
    place: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, problem: str
) -> None:
    assert old in GOOD
    code = f"import itertools\n\nCOUNT = itertools.count()\n\n\n{GOOD.replace(old, new)}"
    with pytest.raises(AssertionError, match=problem):
        check_source(module(place, monkeypatch, "rows_of_mine", code).Rows, "n BIGINT")


def test_offsets_for_a_class_without_split(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = module(place, monkeypatch, "rows_of_mine", GOOD.replace("def split", "def cut")).Rows
    assert check_source(found, "n BIGINT", {"count": 9}).splits == 0
    assert check_source(found, "n BIGINT", {"count": 9}, offsets=[2, 5]).splits == 1


def test_a_process_that_serves_pages_runs_no_code_of_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_forbidden", [])
    assert loading.load_class("class A: pass", "a.py", "A")
    loading.forbid("the pages run none")
    with pytest.raises(Refused, match=r"a\.py: A is not run here: the pages run none"):
        loading.load_class("class A: pass", "a.py", "A")
