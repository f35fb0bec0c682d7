"""Landings: rows are copied into a table of the rule's home, exactly once, and everything reads them from there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.flow import STATELESS, Flow, event, rows_of
from support.running import crash, run
from support.sourcekinds import OWN, add_own, own, write_json

from floodmark.audit.certificate import audit
from floodmark.connectors.ports import fakes
from floodmark.core.rules import kinds

COLUMNS = "at TIMESTAMP, k STRING, v DOUBLE, n BIGINT"


def numbers(flow: Flow) -> list[int]:
    return sorted(row["n"] for row in rows_of(flow.sink()))


def landed(flow: Flow) -> list[int]:
    return sorted(row["n"] for row in rows_of(flow.place.landing("events")))


def proven(flow: Flow) -> None:
    found = audit(flow.name, flow.home, deep=True)
    assert found is not None and (found.verdict, found.findings) == ("proven", [])


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    return [event(10 * n, "ab"[n % 2], float(n), n) for n in range(begin, end)]


# --- A folder of files, and a class of one's own


def of_files(place: Path, **more: Any) -> Flow:
    folder = place / "in"
    folder.mkdir(exist_ok=True)
    flow = Flow(place, sinks=1, sql=STATELESS)
    said = {"path": str(folder), "format": "json", "settle": "0 seconds", "schema": COLUMNS}
    flow.stream = {"delta": None, "files": said, "landing": True, **more}
    return flow


def of_class(place: Path) -> Flow:
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.stream = {"delta": None, "python": own(place / "own"), "landing": True}
    (place / "rules").mkdir(exist_ok=True)
    (place / "rules" / "rows.py").write_text(OWN)
    return flow


def add(flow: Flow, begin: int, end: int) -> None:
    if "files" in flow.stream:
        write_json(flow.root / "in" / f"{begin}.json", rows(begin, end))
    else:
        add_own(flow.root / "own", rows(begin, end))


@pytest.mark.parametrize("kind", [of_files, of_class])
def test_rows_land_and_are_folded_once_whatever_is_killed(spark: SparkSession, place: Path, kind: Any) -> None:
    flow = kind(place)
    add(flow, 0, 5)
    assert crash(spark, flow, "landing.before")
    assert landed(flow) == []
    assert crash(spark, flow, "landing.after")
    assert landed(flow) == [*range(5)]
    add(flow, 5, 9)
    assert crash(spark, flow, "sink0.after")
    add(flow, 9, 12)
    report = run(spark, flow)
    assert numbers(flow) == landed(flow) == [*range(12)]
    assert [one.rows for one in report.landed] == [3] and not run(spark, flow).epochs
    proven(flow)


# --- A source whose rows can be read until they are landed


class Once(fakes.FakeSource):
    """Forgets what it has been told is landed, and gives it to nobody again."""

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        assert json.loads(begin)["rows"] >= FORGOTTEN.get(self.address, 0), "these rows are forgotten"
        return super().frame(spark, begin, end)

    def typed(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], COLUMNS)

    def landed(self, offset: str) -> None:
        FORGOTTEN[self.address] = json.loads(offset)["rows"]


FORGOTTEN: dict[str, int] = {}
ONCE = kinds.SourceKind(
    written=fakes.FakeConfig,
    summary="rows that can be read until they are landed",
    can=kinds.SourceCan(starts=frozenset({"earliest"}), limits=frozenset({"max_rows"}), lands=True),
    address=lambda said: f"once://{said.name}",
    open=Once,
)


@pytest.fixture
def once(place: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    """Landing is on, although the rule does not say so."""
    monkeypatch.setitem(kinds.SOURCES, "once", f"{__name__}:ONCE")
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.stream = {"delta": None, "once": {"name": str(place), "columns": COLUMNS}}
    return flow


def give(flow: Flow, given: Sequence[Mapping[str, Any]]) -> None:
    naive = ({**row, "at": row["at"].replace(tzinfo=None)} for row in given)
    fakes.append(str(flow.root), naive)


@pytest.mark.parametrize("point", ["landing.before", "landing.after", "intent.after", "sink0.after", "commit.after"])
def test_what_is_read_once_is_folded_once(spark: SparkSession, once: Flow, point: str) -> None:
    give(once, rows(0, 4))
    assert crash(spark, once, point)
    give(once, rows(4, 8))
    run(spark, once)
    assert FORGOTTEN[f"once://{once.root}"] == 8
    assert numbers(once) == [*range(8)]
    proven(once)
