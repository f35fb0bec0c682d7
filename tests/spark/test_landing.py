"""Landings: rows are copied into a table of the rule's home, exactly once, and everything reads them from there."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from support.aged import age
from support.crash import crash_at, put_reach
from support.flow import SCHEMA, STATELESS, Flow, event, rows_of
from support.running import backfill, crash, reset, run
from support.sourcekinds import OWN, add_own, own, write_json
from typer.testing import CliRunner

from floodmark.audit.certificate import audit
from floodmark.cli.app import app
from floodmark.connectors.backlog.landings import check_sources_go_on
from floodmark.connectors.delta.landed import KIND
from floodmark.connectors.ports import fakes
from floodmark.connectors.preflight import check_next
from floodmark.core.protocol.crashpoints import LANDING_POINTS
from floodmark.core.rules import kinds
from floodmark.core.rules.rule import EpochLimits
from floodmark.core.text.ddl import columns_of
from floodmark.errors import HistoryGone, InputFault, RuleChanged, WrongColumn
from floodmark.spark.look.ahead import look_ahead
from floodmark.spark.rule import landing
from floodmark.spark.rule.forgetting import rehearse
from floodmark.spark.session.jvm import jvm_class

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


@pytest.mark.parametrize("kind", [pytest.param(of_files, marks=pytest.mark.prove), of_class])
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
        """What was forgotten once stays forgotten, although each run says again what is landed."""
        FORGOTTEN[self.address] = max(FORGOTTEN.get(self.address, 0), json.loads(offset)["rows"])


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


LATER = ("intent.after", "sink0.after", "commit.after")  # `make prove` tries these


def give(flow: Flow, given: Sequence[Mapping[str, Any]]) -> None:
    naive = ({**row, "at": row["at"].replace(tzinfo=None)} for row in given)
    fakes.append(str(flow.root), naive)


@pytest.mark.parametrize("point", [*LANDING_POINTS, *(pytest.param(one, marks=pytest.mark.prove) for one in LATER)])
def test_what_is_read_once_is_folded_once(spark: SparkSession, once: Flow, point: str) -> None:
    give(once, rows(0, 4))
    assert crash(spark, once, point)
    give(once, rows(4, 8))
    run(spark, once)
    assert FORGOTTEN[f"once://{once.root}"] == 8
    assert numbers(once) == [*range(8)]
    proven(once)


# --- A source that somebody alters between two copies


class Altered(fakes.FakeSource):
    """Has other columns once its first row is landed."""

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        found = super().frame(spark, begin, end)
        now = columns_of(NOW.get(self.address, COLUMNS))
        return found.selectExpr(*(f"CAST({one.name} AS {one.type}) AS {one.name}" for one in now))

    def landed(self, offset: str) -> None:
        if json.loads(offset)["rows"] == 1:
            NOW[self.address] = THEN[self.address]


NOW: dict[str, str] = {}
THEN: dict[str, str] = {}
ALTERED = dataclasses.replace(
    ONCE,
    can=kinds.SourceCan(limits=frozenset({"max_rows"})),
    open=Altered,
    summary="rows whose columns somebody alters",
)


@pytest.fixture
def altered(place: Path, monkeypatch: pytest.MonkeyPatch) -> Flow:
    monkeypatch.setitem(kinds.SOURCES, "altered", f"{__name__}:ALTERED")
    monkeypatch.setattr(landing, "MOST", EpochLimits(max_rows=1))
    flow = Flow(place, sinks=1, sql=STATELESS)
    flow.stream = {"delta": None, "altered": {"name": str(place), "columns": f"{COLUMNS}, w INT"}, "landing": True}
    give(flow, [{**one, "w": 7} for one in rows(0, 3)])
    return flow


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        ("at TIMESTAMP, k STRING, v DOUBLE", "n: landed, found none"),
        ("at TIMESTAMP, k STRING, v DOUBLE, n STRING", "`n`: landed as bigint, found string"),
    ],
)
def test_a_column_that_is_altered_between_two_copies_stops_the_next_one(
    spark: SparkSession, altered: Flow, columns: str, wrong: str
) -> None:
    THEN[f"once://{altered.root}"] = columns
    with pytest.raises(WrongColumn, match=wrong):
        run(spark, altered)
    assert landed(altered) == [0]


def test_a_column_that_is_added_between_two_copies_is_landed(spark: SparkSession, altered: Flow) -> None:
    THEN[f"once://{altered.root}"] = f"{COLUMNS}, w INT"
    run(spark, altered)
    there = rows_of(altered.place.landing("events"))
    assert sorted((row["n"], row["w"]) for row in there) == [(0, None), (1, 7), (2, 7)]
    proven(altered)


# --- After the source forgot


def windows(place: Path, **more: Any) -> Flow:
    flow = of_files(place, event_time="at", lateness="30 seconds", **more)
    flow.sql = "SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k"
    return flow


def counted(flow: Flow) -> list[tuple[Any, ...]]:
    return sorted((row["start"], row["k"], row["c"]) for row in rows_of(flow.sink()))


def test_a_reset_and_a_backfill_read_landed_rows_whatever_the_source_forgot(spark: SparkSession, place: Path) -> None:
    flow = windows(place)
    for begin in (0, 20, 40):
        add(flow, begin, begin + 20)
        run(spark, flow)
    before = counted(flow)
    for file in (place / "in").iterdir():
        file.unlink()
    _ = backfill(spark, flow, 978_307_260_000_000, 978_307_380_000_000)
    assert counted(flow) == before and len(before) > 10
    reset(spark, flow)
    report = run(spark, flow)
    assert counted(flow) == before and report.landed == []
    assert sum(epoch.late for epoch in report.epochs) == 0, "rows are read in the order in which they came"
    proven(flow)
    add(flow, 60, 63)
    run(spark, flow)
    assert landed(flow) == [*range(63)]
    proven(flow)


@pytest.mark.prove
def test_columns_that_come_are_landed_and_others_are_refused(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS, stream={"landing": True})
    flow.arrive(rows(0, 3))
    run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` ADD COLUMNS (w INT)")
    spark.sql(f"INSERT INTO delta.`{flow.source}` SELECT at, k, v, 3, 7 FROM delta.`{flow.source}` LIMIT 1")
    flow.sql = "SELECT at, k, v, n, w FROM events WHERE n IS NOT NULL"
    flow.settings = {"sinks": [{"delta": flow.sink(), "schema": "add_columns"}]}
    run(spark, flow)
    assert [(row["n"], row["w"]) for row in sorted(rows_of(flow.sink()), key=lambda row: row["n"])] == [
        (0, None), (1, None), (2, None), (3, 7)]  # fmt: skip
    proven(flow)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE delta.`{flow.source}` DROP COLUMN w")
    spark.sql(f"INSERT INTO delta.`{flow.source}` SELECT at, k, v, 4 FROM delta.`{flow.source}` LIMIT 1")
    with pytest.raises(WrongColumn, match=r"stream events: expected the columns .* \(w: landed, found none\)"):
        run(spark, flow)
    assert len(landed(flow)) == 4


def test_a_column_that_comes_is_null_in_rows_that_wait(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS, stream={"landing": True})
    flow.arrive(rows(0, 2))
    run(spark, flow)
    flow.arrive(rows(2, 3))
    assert crash(spark, flow, "landing.after")
    spark.sql(f"ALTER TABLE delta.`{flow.source}` ADD COLUMNS (w INT)")
    flow.sql = "SELECT at, k, v, n, w FROM events"
    flow.settings = {"sinks": [{"delta": flow.sink(), "schema": "add_columns"}]}
    check_next(flow.rule(), flow.home)
    report = run(spark, flow)
    assert report.landed == [] and len(report.epochs) == 1
    assert [(row["n"], row["w"]) for row in rows_of(flow.sink()) if row["n"] == 2] == [(2, None)]
    proven(flow)


def columns_landed(flow: Flow) -> set[str]:
    return {field.name for field in DeltaTable(flow.place.landing("events")).schema().fields}


def test_a_column_that_no_row_has_brought_may_go_again(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 2)
    run(spark, flow)
    flow.stream["files"]["schema"] = f"{COLUMNS}, w INT"
    reset(spark, flow)
    assert "w" not in columns_landed(flow), "nothing reads it"
    flow.sql = "SELECT n, w FROM events"
    reset(spark, flow)
    assert "w" in columns_landed(flow)
    flow.stream["files"]["schema"], flow.sql = COLUMNS, "SELECT n FROM events"
    reset(spark, flow)
    add(flow, 2, 3)
    run(spark, flow)
    assert landed(flow) == numbers(flow) == [0, 1, 2]
    proven(flow)


def test_an_edit_that_is_refused_adds_no_column_to_a_landing(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 2)
    assert crash(spark, flow, "intent.after")
    flow.stream["files"]["schema"] = f"{COLUMNS}, wrng INT"
    add(flow, 2, 3)
    with pytest.raises(RuleChanged):
        run(spark, flow)
    assert "wrng" not in columns_landed(flow) and landed(flow) == [0, 1]


def test_a_reset_reads_columns_that_the_rule_has_declared_since(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 2)
    run(spark, flow)
    write_json(place / "in" / "2.json", [{**event(20, n=2), "w": 7}])
    flow.stream["files"]["schema"] = f"{COLUMNS}, w INT"
    flow.stream["expect"] = {"small": {"check": "coalesce(w, 0) < 9", "on_fail": "dead"}}
    flow.sql = "SELECT n, w FROM events"
    reset(spark, flow)
    run(spark, flow)
    assert sorted((row["n"], row["w"]) for row in rows_of(flow.sink())) == [(0, None), (1, None), (2, 7)]
    proven(flow)
    flow.stream["files"]["schema"] = "at TIMESTAMP, n BIGINT"
    del flow.stream["expect"]
    flow.sql = "SELECT n FROM events"
    with pytest.raises(WrongColumn, match=r"k: landed, found none.*move the folder of the landing"):
        reset(spark, flow)
    assert flow.ledger().begun.seal is None and len(numbers(flow)) == 3, "nothing is emptied"


@pytest.mark.prove
def test_a_landing_from_an_older_copy_is_left_as_it_is(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS, stream={"landing": True, "start": {"version": 0}})
    there, kept = Path(flow.place.landing("events")), place / "copy"
    for n in range(2):
        flow.arrive(rows(2 * n, 2 * n + 2))
        run(spark, flow)
        if n == 0:
            shutil.copytree(there, kept)
    shutil.rmtree(there)
    shutil.copytree(kept, there)
    jvm_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    flow.arrive(rows(4, 6))
    for _ in range(2):
        with pytest.raises(HistoryGone, match="it lost commits"):
            run(spark, flow)
    assert landed(flow) == [0, 1]
    reset(spark, flow)
    run(spark, flow)
    assert numbers(flow) == [*range(6)]


@pytest.mark.prove
def test_a_huge_backlog_of_a_table_is_copied_in_several_commits(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = Flow(place, sinks=1, sql=STATELESS, stream={"landing": True, "start": {"version": 0}})
    flow.settings = {"epoch": {"max_bytes": 1}}
    for n in range(3):
        flow.arrive(rows(2 * n, 2 * n + 2))
    report = run(spark, flow)
    assert [one.rows for one in report.landed] == [2, 2, 2] and len(report.epochs) == 3
    assert numbers(flow) == [*range(6)]
    proven(flow)


def test_malformed_records_are_dead_when_they_are_folded(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    flow.settings = {"on_error": "dead"}
    (place / "in" / "0.json").write_text('{"at": "2001-01-01T00:00:00Z", "k": "a", "v": 1, "n": 1}\nbroken\n')
    report = run(spark, flow)
    assert numbers(flow) == [1] and [one.rows for one in report.landed] == [2]
    assert [epoch.dead for epoch in report.epochs] == [1]
    dead = rows_of(flow.place.dead)
    assert len(dead) == 1 and dead[0]["_reason"].startswith("malformed record: ") and "broken" in dead[0]["_reason"]
    proven(flow)


def test_a_record_on_which_the_rule_stops_is_not_landed(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    flow.stream["files"]["schema"] = COLUMNS.replace("n BIGINT", "n INT")
    (place / "in" / "0.json").write_text('{"at": "2001-01-01T00:00:00Z", "k": "a", "v": 1, "n": 5000000000}\n')
    stops = r"stream events: malformed record: file 0.json.*Nothing of this copy was landed. Correct the `schema`"
    for _ in range(2):
        with pytest.raises(InputFault, match=stops):
            run(spark, flow)
        assert landed(flow) == []
        assert list((flow.place.path / "landing").rglob("*part-*")) == [], "each run would leave files"
    flow.settings = {"on_error": "dead"}
    assert [epoch.dead for epoch in run(spark, flow).epochs] == [1]
    flow.settings = {}
    reset(spark, flow)
    with pytest.raises(InputFault, match=r"They were landed as malformed, which they stay\..*move the folder"):
        run(spark, flow)


def test_a_landing_of_lines_goes_on_with_parquet(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 2)
    run(spark, flow)
    (place / "in" / "0.json").unlink()
    pq.write_table(pa.Table.from_pylist(rows(2, 3), schema=SCHEMA), place / "in" / "1.parquet")
    flow.stream["files"]["format"] = "parquet"
    reset(spark, flow)
    run(spark, flow)
    assert numbers(flow) == [0, 1, 2]
    proven(flow)


def test_a_reset_is_refused_while_the_stream_names_another_kind_of_source(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 2)
    run(spark, flow)
    spark.sql(f"ALTER TABLE delta.`{flow.place.landing('events')}` UNSET TBLPROPERTIES ('{KIND}')")
    add(flow, 2, 3)
    run(spark, flow)
    assert numbers(flow) == [0, 1, 2], "a landing of an earlier version, which has its kind from now on"
    proven(flow)
    flow.stream = {"delta": None, "python": own(place / "own"), "landing": True}
    (place / "rules" / "rows.py").write_text(OWN)
    with pytest.raises(HistoryGone, match=r"its landing was copied \(files\), found python"):
        check_sources_go_on(flow.rule(), flow.place)


@pytest.mark.prove
def test_a_rule_that_each_run_rebuilds_reads_all_landed_rows(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    flow.settings = {"rebuild": True, "epoch": "none"}
    add(flow, 0, 3)
    run(spark, flow)
    (place / "in" / "0.json").unlink()
    add(flow, 3, 5)
    run(spark, flow)
    assert numbers(flow) == [*range(5)] and not run(spark, flow).epochs
    proven(flow)


@pytest.mark.prove
def test_a_landing_that_is_gone_stops_the_run(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 3)
    run(spark, flow)
    Path(flow.place.landing("events")).rename(place / "away")
    add(flow, 3, 5)
    with pytest.raises(HistoryGone, match="expected its landing, to which its rows were copied, found no table"):
        run(spark, flow)
    (place / "away").rename(flow.place.landing("events"))
    run(spark, flow)
    assert numbers(flow) == [*range(5)]


def command(flow: Flow, *words: str) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), "COLUMNS": "200"}
    found = CliRunner().invoke(app, [*words], env=places)
    assert found.exit_code == 0, found.output
    return found.output


@pytest.mark.prove
def test_rows_that_were_kept_long_enough_go_once_they_are_folded(spark: SparkSession, place: Path) -> None:
    flow = of_files(place, landing={"keep": "1 day"})
    for begin in (0, 3):
        add(flow, begin, begin + 3)
        run(spark, flow)
    add(flow, 6, 9)
    assert crash(spark, flow, "intent.after"), "these are landed and not folded"
    age(flow.place.landing("events"), 2)
    assert "2 landed chunks to remove" in command(flow, "maintain", flow.name, "--dry-run")
    assert landed(flow) == [*range(9)]
    for point, left in (("maintain.landing.before", [*range(9)]), ("maintain.landing.after", [6, 7, 8])):
        with crash_at(point) as planned:
            CliRunner().invoke(app, ["maintain", flow.name, "--yes", "--home", str(flow.home)])
        assert planned.fired and landed(flow) == left
    command(flow, "maintain", flow.name, "--yes")
    add(flow, 9, 12)
    run(spark, flow)
    assert numbers(flow) == [*range(12)] and landed(flow) == [*range(6, 12)]
    proven(flow)
    with pytest.raises(HistoryGone, match="upkeep removed older ones, because the stream has `landing` with `keep`"):
        backfill(spark, flow, 978_307_200_000_000, 978_307_260_000_000)
    reset(spark, flow)
    run(spark, flow)
    assert numbers(flow) == [*range(6, 12)]
    proven(flow)


def test_a_backfill_whose_rows_upkeep_removed_meanwhile_is_refused_before_its_intent(
    spark: SparkSession, place: Path
) -> None:
    flow = of_files(place, landing={"keep": "1 day"})
    for begin in (0, 3):
        add(flow, begin, begin + 3)
        run(spark, flow)

    def reach(rule: str, point: str, epoch: int | None = None) -> None:
        if point == "backfill.computed":
            age(flow.place.landing("events"), 2)
            command(flow, "maintain", flow.name, "--yes")

    with pytest.MonkeyPatch.context() as patch:
        put_reach(patch, reach)
        with pytest.raises(HistoryGone, match="upkeep removed older ones"):
            backfill(spark, flow, 978_307_200_000_000, 978_307_260_000_000)
    assert flow.ledger().begun.backfill is None
    add(flow, 6, 9)
    run(spark, flow)
    assert numbers(flow) == [*range(9)]
    proven(flow)


def test_looks_show_what_is_landed_and_what_is_not(spark: SparkSession, place: Path) -> None:
    flow = of_files(place)
    add(flow, 0, 3)
    assert look_ahead(spark, flow.rule(), flow.home, 9).counts.read == 3, "before the first run"
    run(spark, flow)
    add(flow, 3, 5)
    assert crash(spark, flow, "landing.after"), "landed and not folded"
    add(flow, 5, 9)
    found = look_ahead(spark, flow.rule(), flow.home, 9)
    assert found.counts.read == 6 and sorted(row[3] for row in found.rows) == [*range(3, 9)]
    assert landed(flow) == [*range(5)], "a look lands nothing"
    told = json.loads(command(flow, "status", flow.name, "--json"))["rules"][flow.name]
    lag = told["lag"]["events"]
    assert (lag["landed"], lag["not_landed"]["files"], lag["not_folded"]["commits"]) == ("2 files", 1, 1)
    text = command(flow, "status", flow.name)
    assert "not landed: 1 file, " in text and "landed and not folded: 1 commit with new data" in text
    plan = command(flow, "plan", flow.name)
    assert "keep all rows" in plan and "exactly once from the landing on" in plan
    seen = rehearse(spark, flow.place, "n = 4")
    assert seen.copies["landing/events"].rows == 1
