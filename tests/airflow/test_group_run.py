"""A group's task with a real spark-submit: a rule that fails for good, and rules that do not."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowSkipException
from deltalake import write_deltalake
from support.flow import rows_of
from test_dags import write
from test_group_tasks import Round

from floodmark.core.rules.rule import Rule, load_rules
from floodmark_airflow.tasks import reporting

PATH = f"{Path(__file__).parents[2] / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"


def numbers(place: Path, *values: int) -> None:
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": list(values)}), mode="append")


def group(rules: Path, **of_b: str) -> list[Rule]:
    write(rules, "a", group="small", spark={"driver_memory": "1g", "shuffle_partitions": 1})
    write(rules, "b", group="small", sql="SELECT 12 DIV n AS n FROM events", **of_b)
    write(rules, "c", group="small", streams={"events": {"delta": "${LAKE}/other"}})
    return list(load_rules(rules, os.environ)[0].values())


def sink(place: Path, name: str) -> list[int]:
    return sorted(row["n"] for row in rows_of(str(place / "lake" / f"{name}_out")))


@pytest.mark.prove
def test_a_rule_that_fails_for_good_leaves_the_others_alone_and_goes_on_once_it_is_mended(
    rules: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", PATH)
    monkeypatch.setattr(
        reporting, "newest_event", lambda address: datetime.now(UTC)
    )  # as an Airflow around it would say
    numbers(place, 3, 0, 4)
    write_deltalake(str(place / "lake" / "other"), pa.table({"n": [7]}))
    first = Round(group(rules))
    failed = first.work()
    assert list(failed) == ["b"]
    assert "12 DIV n" in failed["b"] or "DIVIDE_BY_ZERO" in failed["b"]
    assert first.updated == ["a_out", "c_out"]
    assert (sink(place, "a"), sink(place, "c")) == ([0, 3, 4], [7])

    mended = Round(group(rules, on_error="dead"), run="manual__2")
    assert mended.work() == {}
    assert mended.updated == ["b_out"]
    assert sink(place, "b") == [3, 4]
    with pytest.raises(AirflowSkipException):
        Round(group(rules, on_error="dead"), run="manual__3").work()
