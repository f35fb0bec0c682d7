"""A retry on another number of cores adds floating point up in the order of the first attempt."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.adding import WRITTEN, summed, written
from support.running import crash, recheck, run

from floodmark.errors import ReplayDiffers
from floodmark.spark.rule import analysis
from floodmark.spark.session import session


def on(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(session, "cores", lambda _: cores)


@pytest.mark.parametrize(("sql", "cores"), [("cast", (4, 1)), ("having", (4, 1)), ("cast", (1, 4))])
def test_a_killed_epoch_is_finished_on_another_number_of_cores(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, sql: str, cores: tuple[int, int]
) -> None:
    """What is open takes its cuts from the intent; what is planned after it, in another run, from the machine."""
    flow = summed(place, sql)
    on(monkeypatch, cores[0])
    assert crash(spark, flow, "sink0.after")
    on(monkeypatch, cores[1])
    assert [epoch.attempt for epoch in run(spark, flow).epochs] == [2]
    assert written(flow) == WRITTEN[sql][cores[0]]
    assert flow.ledger().head.open is None  # type: ignore[union-attr]


def test_without_what_the_intent_says_the_retry_differs_and_names_what_it_ran_on(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Floodmark does not fix is told by name; with that as it was, the epoch is finished."""
    flow = summed(place, "cast")
    on(monkeypatch, 4)
    assert crash(spark, flow, "sink0.after")
    on(monkeypatch, 1)
    with monkeypatch.context() as patch:
        patch.setattr(analysis, "cut", lambda one, _: session.cut(one, {}))
        said = r"computed again, its rows differ.*ran in another environment: cores 4, now 1; .*finishes what is open"
        with pytest.raises(ReplayDiffers, match=said):
            run(spark, flow)
        recheck(flow)
        on(monkeypatch, 4)
        assert [epoch.attempt for epoch in run(spark, flow).epochs] == [3]
