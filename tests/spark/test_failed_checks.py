"""A check that failed: nothing wrong is committed, and no later run passes it by before somebody has decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.flow import STATELESS, TUMBLING, Flow, event, rows_of
from support.running import abandon, crash, recheck, run

from floodmark.audit.certificate import audit
from floodmark.errors import VerifyFailed
from floodmark.ledger.delta import datafiles, tables
from floodmark.spark.write.appending import Appending
from floodmark.spark.write.merging import keyed

ROWS = [event(0, "a", 1.0, 1), event(10, "b", 2.0, 2), event(400, "c", 3.0, 3)]
MORE = [event(410, "a", 4.0, 4), event(900, "d", 5.0, 5)]


def keyed_flow(place: Path) -> Flow:
    flow = Flow(place, sql="SELECT k, n, v FROM events", stream={"lateness": None})
    flow.settings["sinks"] = [{"delta": flow.sink(0), "key": ["k"], "newest": "n"}]
    return flow


@contextmanager
def doubling(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What stays of a file that loses a row is written twice, as if file names had been mixed up."""
    without = keyed.without

    def twice(*given: Any) -> DataFrame:
        stays = without(*given)
        return stays.unionAll(stays)

    with monkeypatch.context() as patched:
        patched.setattr(keyed, "without", twice)
        yield


def verdict(flow: Flow, deep: bool = True) -> None:
    """The rule is proven."""
    found = audit(flow.name, flow.home, deep)
    assert found.verdict == "proven", found.findings


def version(flow: Flow) -> int:
    return tables.newest_version(flow.sink(0))


@pytest.mark.parametrize("decision", ["recheck", pytest.param("abandon", marks=pytest.mark.prove)])
def test_doubled_rows_are_found_before_the_commit_and_the_check_stays_failed(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, decision: str
) -> None:
    flow = keyed_flow(place)
    flow.arrive(ROWS)
    run(spark, flow)
    flow.arrive(MORE)
    before = version(flow)

    with doubling(monkeypatch), pytest.raises(VerifyFailed, match="files to be committed add") as first:
        run(spark, flow)
    assert version(flow) == before
    with pytest.raises(VerifyFailed) as again:
        run(spark, flow)
    assert str(again.value) == str(first.value)
    assert "floodmark recheck counted" in str(again.value)

    recheck(flow) if decision == "recheck" else abandon(spark, flow)
    run(spark, flow)
    assert sorted(row["k"] for row in rows_of(flow.sink(0))) == ["a", "b", "c", "d"]
    verdict(flow)


def test_a_log_entry_that_moved_other_rows_stops_every_retry(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive(ROWS)
    assert crash(spark, flow, "sink0.after")
    _claim(flow.sink(0), 1, rows=7)

    for _ in range(2):
        with pytest.raises(VerifyFailed, match="according to its log, commit 1 added 7 rows and removed 0"):
            run(spark, flow)
        recheck(flow)
    _claim(flow.sink(0), 1, rows=2)
    run(spark, flow)
    verdict(flow)


def _claim(address: str, commit: int, rows: int) -> None:
    """Let the log entry say that its file has so many rows."""
    entry = Path(address) / "_delta_log" / f"{commit:020}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = json.dumps({**json.loads(action["add"]["stats"]), "numRecords": rows})
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)
    entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


@pytest.mark.parametrize("role", ["state", pytest.param("late", marks=pytest.mark.prove)])
def test_the_rules_own_tables_are_checked_before_their_commit(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive(ROWS)
    run(spark, flow)
    flow.arrive([event(5, "a", 1.0, 1), event(900, "d", 5.0, 5)])
    moves = Appending.moves

    def wrong(self: Appending) -> tuple[int, int]:
        added, removed = moves(self)
        return added + (self._app.endswith(role) or f"/{role}/" in self._app), removed

    with monkeypatch.context() as patched:
        patched.setattr(Appending, "moves", wrong)
        with pytest.raises(VerifyFailed, match="Nothing was committed to this table"):
            run(spark, flow)
    with pytest.raises(VerifyFailed):
        run(spark, flow)
    recheck(flow)
    run(spark, flow)
    verdict(flow)


OTHERS = {
    "append": (STATELESS, {}),
    "upsert": ("SELECT k, n, v FROM events", {"key": ["k"], "newest": "n"}),
    "windows": (TUMBLING, {}),
}


def open_after_the_sink(spark: SparkSession, place: Path, how: str) -> Flow:
    """A rule whose second epoch was killed after its sink's commit."""
    sql, sink = OTHERS[how]
    flow = Flow(place, sql=sql)
    flow.settings["sinks"] = [{"delta": flow.sink(0), **sink}]
    flow.arrive(ROWS)
    run(spark, flow)
    flow.arrive(MORE)
    assert crash(spark, flow, "sink0.after")
    return flow


@pytest.mark.parametrize(
    "how", ["upsert", *(pytest.param(how, marks=pytest.mark.prove) for how in ("append", "windows"))]
)
def test_files_that_others_joined_and_removed_are_proven_by_the_log(
    spark: SparkSession, place: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    flow = open_after_the_sink(spark, place, how)
    before = sorted(map(str, rows_of(flow.sink(0))))
    spark.sql(f"OPTIMIZE delta.`{flow.sink(0)}`")
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.sql(f"VACUUM delta.`{flow.sink(0)}` RETAIN 0 HOURS")

    run(spark, flow)
    assert sorted(map(str, rows_of(flow.sink(0)))) == before
    assert ("proven by the log alone" in caplog.text) == datafiles.lacks_files(flow.sink(0), _commit_of(flow, 2))
    verdict(flow, deep=False)


def _commit_of(flow: Flow, epoch: int) -> int:
    bodies = (json.loads(row.body) for row in flow.ledger().rows if (row.kind, row.epoch) == ("commit", epoch))
    return next(int(body["tables"][f"sink/{Path(flow.sink(0)).resolve()}"]["commit"]) for body in bodies)


TAKES = ("DELETE", "RESTORE", "joined DELETE")
TELLING = {("append", "DELETE")}


@pytest.mark.parametrize(
    ("how", "what"),
    [pytest.param(*one, marks=[] if one in TELLING else pytest.mark.prove) for one in product(OTHERS, TAKES)],
)
def test_rows_that_others_took_away_stop_the_retry_until_they_are_back(
    spark: SparkSession, place: Path, how: str, what: str
) -> None:
    flow = open_after_the_sink(spark, place, how)
    ours, table = version(flow), f"delta.`{flow.sink(0)}`"
    held = sorted(map(str, rows_of(flow.sink(0))))
    if what.startswith("joined"):
        spark.sql(f"OPTIMIZE {table}")
    safe = version(flow)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {ours - 1}" if what == "RESTORE" else f"DELETE FROM {table}")

    for _ in range(2):
        with pytest.raises(
            VerifyFailed, match=rf"commit \d+ \({what.split()[-1]}\), which is not Floodmark's, removed"
        ):
            run(spark, flow)
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {safe}")
    recheck(flow)
    run(spark, flow)
    assert sorted(map(str, rows_of(flow.sink(0)))) == held
