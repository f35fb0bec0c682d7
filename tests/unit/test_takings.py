"""What a sink takes of the results: decided by the rule's text and the names of the result's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.flow import STATELESS, Flow

from floodmark.core.lifecycle.changes import check_edit, check_state_columns
from floodmark.core.protocol.records.rows import Columns
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.rules.sinks.sinkcolumns import (
    DELETE_COLUMN,
    STAMPS,
    describe_sink,
    grows,
    sink_columns_of,
    upsert_into,
)
from floodmark.errors import RuleChanged, RuleInvalid, WrongColumn
from floodmark.views.ruleplan import plan_of

RESULT = ["At", "k", "v", "n"]
STAR = "SELECT * FROM events"
LOOKING_BACK = """SELECT *, count(*) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL '40' SECONDS PRECEDING
                  AND CURRENT ROW) AS c FROM events"""


def sink(**how: Any) -> Sink:
    return Sink(kind="delta", address="/lake/out", **how)


def rule(place: Path, *sinks: dict[str, Any], sql: str = STATELESS, **settings: Any) -> Rule:
    flow = Flow(place, sql=sql)
    listed = [{"delta": flow.sink(i), **how} if "console" not in how else how for i, how in enumerate(sinks)]
    flow.settings = {"sinks": listed, **settings}
    return flow.rule()


def test_a_sink_that_says_nothing_takes_the_results_as_they_are() -> None:
    found = sink_columns_of(sink(), RESULT)
    assert found.columns == tuple(RESULT)
    assert found.is_all_of(RESULT) and not found.is_all_of([*RESULT, "more"])
    assert list(describe_sink(sink())) == []


def test_columns_are_named_in_any_case_and_stand_in_the_order_of_the_sink() -> None:
    found = sink_columns_of(sink(columns=("N", "at"), partition_by=("AT",), epoch_columns=True), RESULT)
    assert (found.columns, found.stamps, found.partitions) == (("n", "At"), STAMPS, ("At",))
    assert sink_columns_of(sink(epoch_columns=True, partition_by=("_Epoch",)), RESULT).partitions == ("_epoch",)


def test_empty_text_in_a_key_is_not_null() -> None:
    """A result that deletes the key with empty text would delete the row of the key with NULL."""
    found = sink_columns_of(sink(key=("K", "n"), partition_by=("k", "v"), delete="n = 9"), RESULT)
    assert (found.partitions, found.nulled) == (("k", "v"), ("v",))
    assert sink_columns_of(sink(partition_by=("k",)), RESULT).nulled == ("k",)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            {"columns": ("kk",)},
            "columns: expected one of the result columns At, k, v, n, found kk; did you mean k?",
        ),
        ({"columns": ("_epoch",), "epoch_columns": True}, "columns: expected one of the result columns"),
        (
            {"partition_by": ("_epoch",)},
            "partition_by: expected one of the result columns At, k, v, n, found _epoch",
        ),
        ({"cluster_by": ("x",)}, "cluster_by: expected one of the result columns"),
    ],
)
def test_a_column_that_is_not_there_is_refused_with_those_that_are(how: dict[str, Any], said: str) -> None:
    with pytest.raises(WrongColumn, match=said.replace("?", "[?]")):
        sink_columns_of(sink(**how), RESULT)


def test_a_result_that_has_the_epochs_column_already_is_refused() -> None:
    with pytest.raises(
        WrongColumn, match=r"expected a result without _EPOCH, because the sink adds _generation and _epoch"
    ):
        sink_columns_of(sink(epoch_columns=True), ["k", "_EPOCH"])


def test_with_a_key_a_row_that_where_leaves_out_goes_like_one_that_is_deleted() -> None:
    both = sink(key=("K",), where="v > 0 -- more", delete="n = 9")
    taking = sink_columns_of(both, RESULT)
    assert taking.where is None
    assert taking.delete == "coalesce((n = 9\n), false) OR NOT coalesce((v > 0 -- more\n), false)"
    upsert = upsert_into(both, taking, RESULT)
    assert upsert is not None
    assert (upsert.key, upsert.delete, upsert.columns) == (("k",), DELETE_COLUMN, tuple(RESULT))
    appended = sink_columns_of(sink(where="v > 0"), RESULT)
    assert (appended.where, appended.delete) == ("v > 0", None)


def test_the_plan_says_what_each_sink_takes(tmp_path: Path) -> None:
    made = rule(
        tmp_path,
        {"columns": ["k", "v"], "where": "v > 0", "partition_by": ["k"], "epoch_columns": True},
        {"key": ["k"], "where": "v > 0", "cluster_by": ["k"]},
        {"console": True, "qos": 1, "where": "n = 1"},
    )
    one, other, console = plan_of(made, tmp_path / "rules", tmp_path / "home").facts()["sinks"]
    assert one["takes"] == [
        "columns k, v",
        "only where v > 0",
        "with the numbers of its generation and epoch as _generation and _epoch",
        "partitioned by k (Delta keeps empty text there as NULL)",
    ]
    assert (one["columns"], one["partition_by"], one["schema"]) == (["k", "v"], ["k"], "fail")
    assert other["takes"] == ["only where v > 0; any other result deletes the row with its key", "clustered by k"]
    assert console["takes"] == ["only where n = 1"]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ({}, {"where": "v > 0"}, "where of a sink"),
        ({"where": "v > 0"}, {"where": "v > 1"}, "where of a sink"),
        ({}, {"columns": ["k"]}, "columns of a sink"),
        ({"columns": ["k", "v"]}, {"columns": ["v", "k"]}, "columns of a sink"),
        ({"columns": ["k"]}, {"columns": ["k", "v"]}, "columns of a sink"),
        (
            {"columns": ["k", "n"], "schema": "add_columns"},
            {"columns": ["k"], "schema": "add_columns"},
            "columns of a sink",
        ),
        ({}, {"partition_by": ["k"]}, "partition_by of a sink"),
        ({"epoch_columns": True}, {}, "epoch_columns of a sink"),
    ],
)
def test_an_edit_that_rows_in_the_sink_would_not_fit_names_reset(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any], changed: str
) -> None:
    with pytest.raises(RuleChanged, match=f"changed {changed}; .* `floodmark reset counted`"):
        check_edit(rule(tmp_path, old), rule(tmp_path, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"cluster_by": ["k"]}),
        ({"cluster_by": ["k"]}, {}),
        ({}, {"properties": {"a": 1}}),
        ({}, {"schema": "add_columns"}),
        ({"schema": "add_columns"}, {}),
        ({"columns": ["k"]}, {"columns": ["K", "v"], "schema": "add_columns"}),
        ({"columns": ["k"], "partition_by": ["k"], "epoch_columns": True},
         {"columns": ["K"], "partition_by": ["K"], "epoch_columns": True}),
    ],
)  # fmt: skip
def test_an_edit_that_leaves_the_rows_as_they_are_goes_on(
    tmp_path: Path, old: dict[str, Any], new: dict[str, Any]
) -> None:
    check_edit(rule(tmp_path, old), rule(tmp_path, new))
    check_edit(rule(tmp_path, old), rule(tmp_path, new, {"where": "v > 0", "columns": ["k"]}))


def test_only_a_rule_with_select_star_takes_in_what_its_streams_gain(tmp_path: Path) -> None:
    assert grows(rule(tmp_path, {"schema": "add_columns"}, sql=STAR))
    assert not grows(rule(tmp_path, {}, sql=STAR))
    assert not grows(rule(tmp_path, {"schema": "add_columns"}))


@pytest.mark.parametrize(
    ("sinks", "how", "said"),
    [
        ([{"schema": "add_columns"}, {}], {}, "sinks[1]: expected `schema: add_columns` as sink 1 has it"),
        ([{"schema": "add_columns"}], {"sql": LOOKING_BACK}, "schema: expected `fail`, or SQL without state"),
    ],
)  # fmt: skip
def test_columns_that_results_gain_need_a_place_in_every_sink(
    tmp_path: Path, sinks: list[dict[str, Any]], how: dict[str, Any], said: str
) -> None:
    with pytest.raises(RuleInvalid) as caught:
        rule(tmp_path, *sinks, **{"sql": STAR, **how})
    assert said in str(caught.value)
    rule(tmp_path, {"schema": "add_columns"}, {"columns": ["k"]}, {"console": True, "qos": 1}, sql=STAR)


def test_a_distinct_stream_keeps_rows_and_cannot_gain_columns(tmp_path: Path) -> None:
    flow = Flow(tmp_path, sql=STAR, settings={"sinks": [{"delta": str(tmp_path / "out"), "schema": "add_columns"}]})
    flow.stream = {"distinct": {"key": ["k"], "within": "1 hour"}}
    with pytest.raises(RuleInvalid, match="schema: expected `fail`, or SQL without state"):
        flow.rule()


NO_WAY_BACK = r"no epoch is open\. Delta cannot narrow a type again.*`floodmark reset r --keep-output`"
WAS = {"events": [("at", "timestamp"), ("s", "struct<a:int>")]}
IS = {"events": [("at", "timestamp"), ("s", "struct<a:int,b:int>"), ("new", "int")]}


def test_a_column_of_kept_rows_has_the_type_that_they_have() -> None:
    """A struct that gained a field would not fit the state's table, once the epoch was open."""
    with pytest.raises(
        WrongColumn, match=r"events.s: kept as struct<a:int>, found struct<a:int,b:int>.*floodmark reset r"
    ):
        check_state_columns("r", WAS, IS, {"events": ["at", "s", "_epoch"]})


@pytest.mark.parametrize(
    "wider", [("int", "bigint"), ("struct<a:int>", "struct<a:int,b:int>"), ("date", "timestamp_ntz")]
)
def test_what_leads_on_from_another_type_is_what_delta_can_do(wider: tuple[str, str]) -> None:
    """No table gives a narrower type, or a struct without its new field, back."""
    was, now = ({"events": [("n", kind)]} for kind in wider)
    with pytest.raises(WrongColumn, match=rf"n: kept as {wider[0]}, found {wider[1]}.*{NO_WAY_BACK}") as told:
        check_state_columns("r", was, now, {"events": ["n"]})
    assert "back" not in str(told.value)  # Delta gives no type back


@pytest.mark.parametrize(
    ("recorded", "kept"),
    [(WAS, {}), (WAS, {"events": ["at", "_epoch"]}), (WAS, {"totals": ["s"]}), ({}, {"events": ["s"]})],
)
def test_a_column_of_which_no_row_is_kept_may_gain_fields(recorded: Columns, kept: dict[str, list[str]]) -> None:
    check_state_columns("r", recorded, IS, kept)
