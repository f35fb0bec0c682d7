"""Which edits of a rule go on in the same generation: each field by itself, and what the message names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.flow import HOPPING, SLICED, STATELESS, TUMBLING, Flow

from floodmark.core.lifecycle.changes import check_edit, check_state_columns, check_state_tables, misfits
from floodmark.core.rules.rule import Rule
from floodmark.core.text.ddl import columns_of
from floodmark.errors import RuleChanged, SqlRefused, WrongColumn

MORE_ROWS = STATELESS.replace("WHERE n IS NOT NULL", "")
LOOKUPS = {"names": {"delta": "/lake/names"}}


def rule(root: Path, sql: str = TUMBLING, stream: dict[str, Any] | None = None, **settings: Any) -> Rule:
    return Flow(root.resolve(), sql=sql, stream=stream or {}, settings=settings).rule()


def sinks(root: Path, *hows: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"delta": str(root.resolve() / "lake" / f"out{i}"), **how} for i, how in enumerate(hows)]


REFUSED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("streams", {}, {"stream": {"lateness": "31 seconds"}}),
    ("streams", {}, {"stream": {"where": "n > 0"}}),
    ("sql", {}, {"sql": HOPPING}),
    ("sql", {"sql": STATELESS}, {"sql": TUMBLING}),
    ("sql", {"sql": TUMBLING}, {"sql": STATELESS}),
    ("qos", {}, {"qos": 1}),
    ("timezone", {}, {"timezone": "Europe/Berlin"}),
    ("spark.conf spark.sql.ansi.enabled", {}, {"spark": {"conf": {"spark.sql.ansi.enabled": "false"}}}),
    ("windows or max_rows_per_window", {"windows": "rows"}, {"windows": "slices"}),
]


KAFKA: dict[str, Any] = {"connection": "shop", "topic": "t"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kafka": KAFKA}, {"kafka": {**KAFKA, "format": "avro"}}),
        ({"files": {"path": "/lake/out"}}, {"files": {"path": "/lake/out", "format": "json"}}),
    ],
)
def test_a_target_has_one_format_until_a_reset(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    one, other = ({"sql": STATELESS, "sinks": [how]} for how in (old, new))
    with pytest.raises(RuleChanged, match=r"changed format of a sink; .*start a new generation"):
        check_edit(rule(tmp_path, **one), rule(tmp_path, **other))
    check_edit(rule(tmp_path, **one), rule(tmp_path, **one))


@pytest.mark.parametrize(("field", "old", "new"), REFUSED, ids=[f"{i}-{one[0]}" for i, one in enumerate(REFUSED)])
def test_what_state_or_sinks_would_not_fit_is_refused_by_its_name(
    tmp_path: Path, field: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    with pytest.raises(RuleChanged) as told:
        check_edit(rule(tmp_path, **old), rule(tmp_path, **new))
    assert str(told.value) == (
        f"rule counted: changed {field}; the state and sinks of this generation cannot follow. Undo the change, or "
        "start a new generation from the start of the input with `floodmark reset counted`"
    )


GOES_ON: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"description": "other", "schedule": "@hourly", "epoch": {"max_files": 3}}),
    ({}, {"spark": {"shuffle_partitions": 3, "conf": {"spark.sql.ansi.enabled": "true"}}}),
    ({}, {"stream": {"start": "latest"}}),
    ({}, {"stream": {"max_ahead": "9 days"}}),
    ({"sql": STATELESS}, {"sql": MORE_ROWS}),
    ({"windows": "slices"}, {"windows": "slices"}),
]


@pytest.mark.parametrize(("old", "new"), GOES_ON)
def test_what_no_row_hangs_on_goes_on(tmp_path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    check_edit(rule(tmp_path, **old), rule(tmp_path, **new))


def test_slices_that_only_an_earlier_version_took_need_a_reset(tmp_path: Path) -> None:
    now = rule(tmp_path, sql=SLICED.replace("count(*) AS c", "count_if(at < window.end) AS c"))
    assert now.slices is None
    before = Rule.from_json(json.dumps({**json.loads(now.to_json()), "windows": "slices"}))
    with pytest.raises(RuleChanged, match=r"changed windows or max_rows_per_window; .*floodmark reset counted"):
        check_edit(before, now)


def test_sinks_may_be_added_and_not_removed(tmp_path: Path) -> None:
    one, two = sinks(tmp_path, {}), sinks(tmp_path, {}, {})
    check_edit(rule(tmp_path, sinks=one), rule(tmp_path, sinks=two))
    check_edit(rule(tmp_path, sinks=two), rule(tmp_path, sinks=two[::-1]))
    with pytest.raises(RuleChanged, match=r"changed sinks \(one was removed\);"):
        check_edit(rule(tmp_path, sinks=two), rule(tmp_path, sinks=one))


def test_a_sinks_qos_stays_and_that_of_one_that_is_added_is_of_no_matter(tmp_path: Path) -> None:
    one, lower = sinks(tmp_path, {}), sinks(tmp_path, {"qos": 1})
    check_edit(rule(tmp_path, sinks=one), rule(tmp_path, sinks=sinks(tmp_path, {}, {"qos": 1})))
    with pytest.raises(RuleChanged, match="changed qos;"):
        check_edit(rule(tmp_path, sinks=one), rule(tmp_path, sinks=lower))


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ({"key": ["start", "k"]}, {"key": ["K", "START"]}, False),
        ({"key": ["k"], "newest": "c"}, {"key": ["k"], "newest": "C"}, False),
        ({"key": ["k"], "newest": "c"}, {"key": ["k"], "newest": "top"}, True),
        ({"key": ["start", "k"]}, {"key": ["start", "k"], "delete": "c = 0"}, True),
        ({"key": ["start"]}, {"key": ["start", "k"]}, True),
    ],
)
def test_how_a_sink_is_merged_into_stays(tmp_path: Path, old: Any, new: Any, refused: bool) -> None:
    rules = [rule(tmp_path, sinks=sinks(tmp_path, how)) for how in (old, new)]
    if not refused:
        return check_edit(*rules)
    with pytest.raises(RuleChanged, match="changed key, newest or delete of a sink;"):
        check_edit(*rules)
    return None


def test_several_changes_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(RuleChanged, match="changed qos, timezone;"):
        check_edit(rule(tmp_path), rule(tmp_path, qos=1, timezone="Asia/Tokyo"))


def test_columns_of_a_state_that_do_not_fit_are_told_with_both_types() -> None:
    old, new = columns_of("a INT, b BIGINT, c STRING"), columns_of("a BIGINT, b INT, d STRING")
    assert list(misfits(old, new)) == ["b from BIGINT to INT"] or list(misfits(old, new)) == ["b from bigint to int"]
    assert list(misfits(old, old)) == []


def test_a_column_of_a_state_that_is_spelt_otherwise_is_told() -> None:
    """A table cannot have both names: the old column's values stay until an epoch is committed."""
    (told,) = misfits(columns_of("value INT, b INT"), columns_of("Value INT, c INT"))
    assert told == "value to Value, which only differs in upper and lower case"


def test_of_kept_rows_only_the_columns_that_are_kept_must_have_their_type() -> None:
    recorded: Any = {"e": [("a", "int"), ("b", "int")], "f": [("a", "int")]}
    found: Any = {"e": [("a", "bigint"), ("b", "bigint"), ("c", "int")], "f": [("a", "bigint")]}
    check_state_columns("r", recorded, recorded, {"e": ["a", "b"]})
    check_state_columns("r", recorded, found, {"e": ["c"]})
    check_state_columns("r", recorded, found, {"slices": ["a"]})
    check_state_columns("r", {}, found, {"e": ["a"]})
    with pytest.raises(WrongColumn) as told:
        check_state_columns("r", recorded, found, {"f": ["a"], "e": ["b"]})
    assert "(e.b: kept as int, found bigint; f.a: kept as int, found bigint)" in str(told.value)


def test_state_of_another_version_is_refused_before_an_epoch_reads_it() -> None:
    check_state_tables("r", ["events", "others"], ["events"])
    check_state_tables("r", ["events"], ())
    with pytest.raises(RuleChanged, match=r"expected state events, .* found slices: .*`floodmark reset r`"):
        check_state_tables("r", ["slices"], ["events"])
    with pytest.raises(RuleChanged, match=r"expected state events, .* found none"):
        check_state_tables("r", [], ["events"])


def test_an_edit_of_sql_that_this_version_no_longer_takes_is_an_edit_of_the_sql(tmp_path: Path) -> None:
    new = rule(tmp_path)
    sql = "SELECT k, count_if(at > current_timestamp()) AS n FROM events GROUP BY k"
    old = Rule.from_json(json.dumps(json.loads(new.to_json()) | {"sql": sql}))
    with pytest.raises(SqlRefused):
        _ = old.query
    with pytest.raises(RuleChanged, match=r"changed .*sql.*`floodmark reset"):
        check_edit(old, new)
