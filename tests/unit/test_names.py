"""Names that Floodmark, Delta and Spark give to columns of their own are refused with the line, wherever they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.flow import STATELESS, Flow

from floodmark.core.sql.tree.names import DELTAS, has_feed, why_reserved
from floodmark.errors import RuleInvalid

FED = {"properties": {"DELTA.enableChangeDataFeed": "TRUE"}}


def refused(place: Path, **how: Any) -> str:
    """What is said of the rule, and of which line: its text."""
    flow = Flow(place, **how)
    with pytest.raises(RuleInvalid) as fault:
        flow.rule()
    line = re.search(r"counted.yaml:(\d+):", str(fault.value))
    assert line is not None, str(fault.value)
    return f"{fault.value} | {flow.write_rule().read_text().splitlines()[int(line[1]) - 1]}"


FORMS = (
    "SELECT at, {} FROM events",
    "WITH {0} AS (SELECT at FROM events) SELECT * FROM {0}",
    "SELECT s.{} AS x, at FROM events",
    "SELECT {0}.at FROM events {0}",
)
NAMES = ("_floodmark_row", "_FloodMark_gone", "`_floodmark_x y`", "__IS_CDC", *sorted(DELTAS))


@pytest.mark.parametrize(
    ("sql", "name"),
    [*((sql, NAMES[1]) for sql in FORMS), *(("SELECT at, k AS {} FROM events", name) for name in NAMES)],
)
def test_a_reserved_name_anywhere_in_the_sql_is_refused_at_its_place(tmp_path: Path, sql: str, name: str) -> None:
    said = refused(tmp_path, sql=sql.format(name))
    assert f"expected another name than {name}: " in said and "| sql:" in said


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ({"stream": {"where": "_floodmark_time > 0"}}, "where: _floodmark_time > 0"),
        ({"stream": {"event_time": {"name": "_Floodmark_time", "expr": "at"}}}, "event_time:"),
        ({"stream": {"expect": {"ok": {"check": "__is_cdc IS NULL"}}}}, "ok:"),
        ({"settings": {"expect": {"ok": {"check": "_floodmark_failed = 0"}}}}, "ok:"),
        ({"settings": {"sinks": [{"delta": "/a/b", "where": "_floodmark_gone"}]}}, "where: _floodmark_gone"),
        ({"settings": {"lookups": {"_floodmark_totals": {"delta": "/a/c"}}}}, "_floodmark_totals:"),
    ],
)
def test_so_is_one_elsewhere_in_the_file(tmp_path: Path, how: dict[str, Any], line: str) -> None:
    said = refused(tmp_path, sql=STATELESS, **how)
    assert line in said.rpartition("|")[2], said


def test_so_is_one_that_a_class_gives(tmp_path: Path) -> None:
    flow = Flow(tmp_path, process="picky:Picky")
    flow.write_rule()
    flow.write_class(
        (tmp_path / "rules" / flow.module).read_text().replace('output = "', 'output = "_Floodmark_x INT, ')
    )
    with pytest.raises(RuleInvalid, match=r"output: expected another name than _Floodmark_x: .*; rename it in picky"):
        flow.rule()


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version", "_commit_timestamp"])
def test_names_of_the_change_feed_are_refused_where_the_table_has_one(tmp_path: Path, name: str) -> None:
    sinks = [{"delta": "/lake/a", **FED}]
    said = refused(tmp_path, sql=f"SELECT at, k AS {name} FROM events", settings={"sinks": sinks})
    assert f"expected no column {name.lower()} with delta.enableChangeDataFeed" in said and "properties" in said
    for fits in ({"delta": "/lake/a"}, {**sinks[0], "columns": ["at"]}):
        Flow(tmp_path, sql=f"SELECT at, k AS {name} FROM events", settings={"sinks": [fits]}).rule()


def test_the_epochs_own_columns_are_refused_with_the_line(tmp_path: Path) -> None:
    sinks = [{"delta": "/lake/a", "epoch_columns": True}]
    said = refused(tmp_path, sql="SELECT at, k AS _Epoch FROM events", settings={"sinks": sinks})
    assert "expected a result without _epoch, because the sink adds" in said and "epoch_columns: true" in said


@pytest.mark.parametrize(
    "name", ["_metadata", "row", "floodmark_row", "_change_type", "_floodmark", "is_cdc", "_row_id"]
)
def test_other_names_are_free(tmp_path: Path, name: str) -> None:
    assert why_reserved(name) is None
    Flow(tmp_path, sql=f"SELECT at, k AS {name} FROM events").rule()


def test_a_feed_is_one_in_any_case_of_letters() -> None:
    assert has_feed(FED["properties"]) and not has_feed({"delta.enableChangeDataFeed": "false"}) and not has_feed({})
    assert has_feed({"delta.enablechangedatacapture": "True"})
    assert not has_feed({"delta.enableChangeDataCapture": "true", "delta.enableChangeDataFeed": "false"})
