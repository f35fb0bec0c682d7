"""What `plan` and `validate --connect` know of a run that would be refused, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import Flow, event

from floodmark.connectors.ports.registry import sources
from floodmark.connectors.preflight import check_result_names
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit
from floodmark.errors import WrongColumn
from floodmark.ledger.delta.tables import OWNER, create
from floodmark.ledger.ledger import Ledger
from floodmark.views.ruleplan import plan_of

ALL = "SELECT at, k, v, n FROM events"


def flow_of(place: Path, sql: str = ALL, **sink: Any) -> Flow:
    flow = Flow(place, sql=sql, sinks=1, stream={"lateness": None})
    flow.settings = {"sinks": [{"delta": flow.sink(), **sink}]}
    flow.write_rule()
    return flow


def has(flow: Flow, *columns: str) -> None:
    write_deltalake(flow.sink(), pa.table({name: pa.array([], pa.int64()) for name in columns}))


@pytest.mark.parametrize(
    ("sql", "sink", "table", "wrong"),
    [
        (ALL, {}, ("at", "K", "v", "n"), None),
        ("SELECT * FROM events", {}, ("at", "k"), None),
        (ALL, {}, ("at", "k", "v"), "n: table none, rule given"),
        (ALL, {"schema": "add_columns"}, ("at", "k", "v"), None),
        (ALL, {}, ("at", "k", "v", "n", "r"), "r: table long, rule none"),
        (ALL, {"schema": "add_columns"}, ("at", "k", "v", "n", "r"), "r: table long, rule none"),
        (ALL, {"columns": ["k", "n"]}, ("k", "n"), None),
        (ALL, {"columns": ["k", "n"]}, ("k", "v"), "v: table long, rule none; n: table none, rule given"),
        (ALL, {"epoch_columns": True}, ("at", "k", "v", "n", "_generation", "_epoch"), None),
        (ALL, {"epoch_columns": True}, ("at", "k", "v", "n", "_epoch"), "_generation: table none, rule given"),
        (ALL, {}, (), None),
    ],
)
def test_names_of_results_are_those_of_the_table(
    place: Path, sql: str, sink: dict[str, Any], table: tuple[str, ...], wrong: str | None
) -> None:
    flow = flow_of(place, sql, **sink)
    if table:
        has(flow, *table)
    if wrong is None:
        check_result_names(flow.rule())
    else:
        with pytest.raises(WrongColumn, match=f"columns differ from the rule's \\({wrong}\\)"):
            check_result_names(flow.rule())


def next_run(flow: Flow) -> str:
    return plan_of(flow.rule(), flow.root / "rules", flow.home, checks=True).next_run


def test_a_plan_says_that_the_next_run_would_stop(place: Path) -> None:
    flow = flow_of(place, "SELECT at, nope FROM events")
    flow.arrive([event(1)])
    said = next_run(flow)
    assert said.startswith("would stop: ") and "nope" in said
    assert next_run(flow_of(place)).startswith("continues from epoch 0")
    write_deltalake(flow.sink(), pa.table({"at": [1]}))
    said = next_run(flow)
    assert said.startswith("would stop: ") and "rows that no ledger accounts for" in said, said


def test_a_plan_says_that_rewrites_cannot_be_corrected(place: Path) -> None:
    flow = Flow(place, sinks=1, stream={"on_rewrite": "correct"})
    flow.arrive([event(1, "a"), event(2, "b")])
    flow.write_rule()
    rule, table = flow.rule(), DeltaTable(flow.source)
    entry = Entry(0, (sources(rule, flow.place)["events"].end(),)).text()
    begin = Commit(entry=entry, watermark=None, maxima={"events": None}, rule=rule.to_json(), kept_output=True)
    Ledger.open(flow.place.ledger, "by hand").begin(1, "token", begin)
    assert next_run(flow).startswith("has nothing to do")
    table.delete("k = 'a'")
    said = next_run(flow)
    assert said.startswith("would stop: ") and "rows from before a reset" in said, said


def column(name: str) -> dict[str, Any]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


def test_a_plan_passes_over_an_added_table_that_the_next_run_makes_anew(place: Path) -> None:
    flow = flow_of(place)
    flow.arrive([event(1)])
    rule = flow.rule()
    ledger = Ledger.open(flow.place.ledger, "by hand")
    entry = Entry(0, (sources(rule, flow.place)["events"].end(),)).text()
    ledger.begin(
        1, "token", Commit(entry=entry, watermark=None, maxima={"events": None}, heard={}, rule=rule.to_json())
    )
    older = pa.table({"old": [1], "n": [1]})
    made = json.dumps({"type": "struct", "fields": [column(name) for name in older.column_names]})
    create(flow.sink(), made, {OWNER: ledger.id}, ["old"])
    assert next_run(flow).startswith("has nothing to do")
    write_deltalake(flow.sink(), older, mode="append")
    assert "columns differ from the rule's" in next_run(flow)
