"""Each property of a Delta table that a sink may have, through epochs, a killed run and the audit."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from support.flow import STATELESS, Flow, event, rows_of
from support.running import crash, run

from floodmark.audit.certificate import audit
from floodmark.core.rules.sinks.tableproperties import REFUSED, WORKING
from floodmark.ledger.delta import tables
from floodmark.spark.session import session

VALUES = {
    "delta.appendOnly": "false",
    "delta.autoOptimize": "true",
    "delta.autoOptimize.autoCompact": "true",
    "delta.autoOptimize.optimizeWrite": "true",
    "delta.checkpointInterval": "1",
    "delta.checkpointPolicy": "v2",
    "delta.columnMapping.mode": "name",
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.dataSkippingStatsColumns": "n",
    "delta.dataSkippingStringPrefixLength": "1",
    "delta.checkpoint.writeStatsAsJson": "false",
    "delta.isolationLevel": "Serializable",
    "delta.parquet.format.version": "2.12.0",
    "delta.randomPrefixLength": "3",
    "delta.enableExpiredLogCleanup": "false",
}
TOLD = ("delta.enableInCommitTimestamps",)


def _value(name: str) -> str:
    return VALUES.get(name, "interval 9 days" if name.endswith("Duration") else "true")


def test_all_properties_that_delta_knows_are_decided_upon(spark: SparkSession) -> None:
    configs = spark.sparkContext._jvm.org.apache.spark.sql.delta.DeltaConfigs.getAllConfigs().valuesIterator()  # type: ignore[union-attr]
    known = set()
    while configs.hasNext():
        known.add(configs.next().key())
    assert known == {*WORKING, *REFUSED}


ALL = [one if one in TOLD else pytest.param(one, marks=pytest.mark.prove) for one in WORKING]


@pytest.mark.parametrize("name", ALL)
def test_a_rule_is_proven_with_it(spark: SparkSession, place: Path, name: str) -> None:
    given = {name: _value(name)}
    if name.startswith("delta.checkpoint"):
        given |= {"delta.checkpointInterval": "1"}  # so that there are some
    flow = Flow(place, sql=STATELESS)
    keyed = {"delta": flow.sink(1), "key": ["k"], "newest": "at", "properties": given}
    flow.settings["sinks"] = [{"delta": flow.sink(0), "properties": dict(given)}, keyed]
    for second in (1, 2):
        flow.arrive([event(second, k) for k in ("abcdefghij" * 5, "abcdefghik" * 5, f"k{second}")])
        run(spark, flow)
    flow.arrive([event(3, "abcdefghij" * 5, n=7), event(4, "k1", n=8)])
    assert crash(spark, flow, "sink1.after")
    run(spark, flow)
    versions = [tables.newest_version(flow.sink(i)) for i in range(2)]
    run(spark, flow)
    assert [tables.newest_version(flow.sink(i)) for i in range(2)] == versions, "nothing is set anew"
    assert len(rows_of(flow.sink(0))) == 8
    assert sorted((row["k"][:10], row["n"]) for row in rows_of(flow.sink(1))) == [
        ("abcdefghij", 7), ("abcdefghik", 0), ("k1", 8), ("k2", 0)
    ]  # fmt: skip
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None
    assert [finding.what for finding in found.findings if finding.verdict == "broken"] == []


def test_delta_joins_no_files_in_a_commit_of_its_own(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would sync it, and the ledger knows of ours alone."""
    few = {"spark.databricks.delta.autoCompact.minNumFiles": "2"}
    monkeypatch.setattr(session, "MEANING", {**session.MEANING, **few})
    flow = Flow(place, sql=STATELESS, sinks=1)
    given = {"delta.autoOptimize.autoCompact": "true"}
    flow.settings["sinks"] = [{"delta": flow.sink(0), "properties": given}]
    for second in (1, 2, 3):
        flow.arrive([event(second)])
        run(spark, flow)
    said = DeltaTable(flow.sink(0)).history()
    assert "OPTIMIZE" not in {one["operation"] for one in said}
