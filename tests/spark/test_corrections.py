"""After rows of a source were removed or changed, a rule that corrects has what plain batch gives of what is there."""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction
from pyspark.sql import SparkSession
from support.corrected import (
    CORRECT,
    FORMS,
    SIZE,
    SPANNED,
    at,
    aware,
    flow_of,
    newest_backfill,
    proven,
    same_as_batch,
    sink,
    watermark,
)
from support.crash import put_reach
from support.flow import SLICED, TUMBLING, Flow, event, rows_of
from support.oracle import ordered
from support.rewrites import (
    FIRST,
    LATER,
    MORE,
    REWRITES,
    corrects_once_though_killed,
    delete,
    folded,
    frame,
    is_followed,
    merge,
    move,
    update,
)
from support.running import backfill, crash, run
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.commands import correct as cli_correct
from floodmark.connectors.backlog.news import look
from floodmark.connectors.delta.rewrites import file_changes, is_fed
from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.crashpoints import CORRECTION_POINTS
from floodmark.errors import HistoryGone, InputFault, Refused, RuleInvalid

# Each form is rewritten in `test_correction_lives.py`, too. `move` is below, with a kill, and `merge` in the tests of a
# table with a change feed and of one that is only merged into; `move`, `restore` and `overwrite` are in
# `test_corrections_by_key.py`, where the rows of a commit are found in the same way.
IN_CI = {("update", "rows")}
EACH = [(how, form) for how in REWRITES for form in (*FORMS, *SPANNED)]


@pytest.mark.parametrize(
    ("how", "form"), [one if one in IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in EACH]
)
def test_the_sinks_are_what_batch_gives_of_the_source_as_it_is_now(
    spark: SparkSession, place: Path, how: str, form: str
) -> None:
    flow = flow_of(place, form, sinks=1)
    folded(spark, flow)
    is_followed(spark, flow, how, LATER[:2])


@pytest.mark.parametrize(
    "how", [one if one == "merge" else pytest.param(one, marks=pytest.mark.prove) for one in REWRITES]
)
def test_the_rows_are_those_of_the_change_feed_where_the_table_has_one(
    spark: SparkSession, place: Path, how: str
) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive(FIRST)
    spark.sql(f"ALTER TABLE delta.`{flow.source}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    flow.arrive(MORE)
    run(spark, flow)
    REWRITES[how](spark, flow.source)
    table = DeltaTable(flow.source)
    keeps_feed = how != "restore"  # which restores the setting, too
    assert [is_fed(table, flow.source, version) for version in (table.version(), 1)] == [keeps_feed, False]
    (done,) = run(spark, flow).corrections
    left, came = file_rows(spark, flow, table.version())
    assert (done.left, done.came) == (sum((left - came).values()), sum((came - left).values()))
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
@pytest.mark.parametrize("how", ["delete", "update", "restore"])
def test_files_with_deletion_vectors_are_read_where_rows_are_tracked(
    spark: SparkSession, place: Path, how: str
) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive(FIRST)
    tracked = "'delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{flow.source}` SET TBLPROPERTIES ({tracked})")
    frame(spark, MORE).write.format("delta").mode("append").save(flow.source)  # delta-rs does not track rows
    run(spark, flow)
    REWRITES[how](spark, flow.source)
    came = file_changes(flow.source, 1, DeltaTable(flow.source).version()).came
    assert how == "restore" or any(file.get("deletionVector") for file in came.values())
    assert run(spark, flow).corrections
    same_as_batch(spark, flow)
    proven(flow)


def test_rows_leave_with_a_file_whose_size_no_log_entry_repeats(spark: SparkSession, place: Path) -> None:
    """Writers other than Spark may name no size where they remove a file; Spark reads no row of a file without one."""
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive(FIRST)
    flow.arrive(MORE)
    run(spark, flow)
    table = DeltaTable(flow.source)
    name = Path(table.file_uris()[0]).name
    rows = DeltaTable(flow.source).to_pyarrow_dataset().count_rows()
    table.create_write_transaction([RemoveAction(name, True, 0)], "append", table.schema())
    assert '"size"' not in Path(flow.source, "_delta_log", f"{table.version() + 1:020}.json").read_text()
    (done,) = run(spark, flow).corrections
    assert (done.left, done.came) == (rows - DeltaTable(flow.source).to_pyarrow_dataset().count_rows(), 0)
    assert done.left > 0
    same_as_batch(spark, flow)
    proven(flow)


def file_rows(spark: SparkSession, flow: Flow, version: int) -> list[Counter[str]]:
    """The rows of the table before and after its newest version."""
    as_of = spark.read.format("delta").option
    found = (as_of("versionAsOf", one).load(flow.source).collect() for one in (version - 1, version))
    return [Counter(map(str, rows)) for rows in found]


KILLS = [(form, point) for form in ("slices", "rows") for point in CORRECTION_POINTS]
KILLED_IN_CI = {("slices", "backfill.state.after")}


@pytest.mark.parametrize(
    ("form", "point"), [one if one in KILLED_IN_CI else pytest.param(*one, marks=pytest.mark.prove) for one in KILLS]
)
def test_killed_anywhere_it_is_done_once(spark: SparkSession, place: Path, form: str, point: str) -> None:
    corrects_once_though_killed(spark, flow_of(place, form), point)


@pytest.mark.parametrize(
    "form",
    [
        one if one == "slices" else pytest.param(one, marks=pytest.mark.prove)
        for one in (*FORMS, *SPANNED)
        if one != "sessions"  # which never end here: `test_sessions_by_interval.py`
    ],
)
@pytest.mark.parametrize("point", [None, pytest.param("backfill.sink.after", marks=pytest.mark.prove)])
def test_what_lies_between_distant_rows_is_left_as_it_is(
    spark: SparkSession, place: Path, form: str, point: str | None
) -> None:
    """One customer's rows, over hours, one of them in a window that is open."""
    flow = flow_of(place, form, sinks=1)
    flow.arrive([event(second, "ab"[second % 2], float(second % 7), second % 9) for second in range(0, 9000, 11)])
    flow.arrive([event(second, "rare", 1.0, 1) for second in (10, 20, 3000, 6010, 9030)])
    run(spark, flow)
    whole = len(sink(flow))
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'rare'")
    if point is not None:
        assert crash(spark, flow, point)
    done = run(spark, flow)
    (row,) = (json.loads(one.body) for one in flow.ledger().rows if one.kind == "backfilled")
    intent = next(json.loads(one.body) for one in flow.ledger().rows if one.kind == "backfill")
    assert len(intent["gaps"]) >= 2, "at least between the first three groups of rows"
    if point is None:
        (correction,) = done.corrections
        ((came, left),) = correction.replaced.values()
        assert came < left < whole / 10
    assert row["number"] == 1
    same_as_batch(spark, flow)
    proven(flow)
    flow.arrive([event(9500, "a"), event(9900, "b")])
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_a_source_is_followed_through_many_commits_of_each_kind(spark: SparkSession, place: Path) -> None:
    """Rewrites in a row are deferred at once; what was added between is an epoch. One correction follows them all."""
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive(FIRST)
    run(spark, flow)
    for rows in (MORE, [event(450, n=3), event(460, "c"), event(700)]):
        flow.arrive(rows)
        delete(spark, flow.source)
        move(spark, flow.source)
        spark.sql(f"OPTIMIZE delta.`{flow.source}`")
    done = run(spark, flow)
    assert ([len(one.commits) for one in done.corrections], len(done.epochs)) == ([4], 2)
    same_as_batch(spark, flow)
    proven(flow)


def test_a_correction_before_the_first_epoch_of_a_new_sink_is_proven(spark: SparkSession, place: Path) -> None:
    """The ledger has no table of the sink yet."""
    flow = flow_of(place, "single rows", sinks=1)
    flow.arrive([event(0, "a"), event(1, "b")])
    run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE k = 'a'")
    flow.settings |= {"sinks": [{"delta": flow.sink(number)} for number in range(2)]}
    assert run(spark, flow).epochs == []
    assert [row["k"] for row in rows_of(flow.sink(0))] == ["b"]
    proven(flow)


def test_a_rewrite_that_comes_while_a_run_plans_is_no_part_of_an_epoch(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive(FIRST)
    run(spark, flow)
    flow.arrive(MORE)
    seen: list[str] = []

    def reach(rule: str, point: str, epoch: int | None = None) -> None:
        if point == "offsets.before" and not seen:
            seen.append(point)
            delete(spark, flow.source)
            flow.arrive([event(480, "b"), event(700, "c")])

    with pytest.MonkeyPatch.context() as patch:
        put_reach(patch, reach)
        done = run(spark, flow)
    assert (len(done.corrections), len(done.epochs)) == (1, 2), "an epoch before it, and one after it"
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove
def test_windows_end_by_rows_that_only_a_merge_has_brought(spark: SparkSession, place: Path) -> None:
    """A table that is only merged into never has an epoch with rows; the watermark advances all the same."""
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    merge(spark, flow.source)  # it brings a row of 440 s
    run(spark, flow)
    assert watermark(flow) == at(440) - timedelta(seconds=30)
    assert look(flow.rule(), flow.home).why is None
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove  # `unit/test_touched.py` decides it by the log
def test_nothing_is_corrected_after_commits_that_change_no_rows(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "rows", sinks=1)
    for rows in (FIRST, MORE):
        flow.arrive(rows)
    run(spark, flow)
    source = f"delta.`{flow.source}`"
    for sql in (
        f"OPTIMIZE {source} ZORDER BY (k)",
        f"ALTER TABLE {source} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        f"ALTER TABLE {source} ADD CONSTRAINT positive CHECK (v > -1000)",
        f"REORG TABLE {source} APPLY (PURGE)",
        f"VACUUM {source}",
    ):
        spark.sql(sql)
    assert look(flow.rule(), flow.home).why is None
    flow.arrive([event(700)])
    done = run(spark, flow)
    assert (len(done.epochs), done.corrections) == (1, [])
    same_as_batch(spark, flow)


def test_rows_that_the_rule_does_not_tell_apart_change_nothing(spark: SparkSession, place: Path) -> None:
    """A rewrite that only changes a column which the rule does not read is recorded, and touches no result."""
    counts = "SELECT window.start AS start, k, count(*) AS c FROM events GROUP BY window(at, '1 minute'), k"
    flow = Flow(place, sql=counts, stream=CORRECT, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    files = sorted(file["file"] for file in spark.read.format("delta").load(flow.sink()).selectExpr(
        "_metadata.file_path AS file").distinct().collect())  # fmt: skip
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = 0")
    (found,) = run(spark, flow).corrections
    assert (found.left, found.came, set(found.replaced.values())) == (0, 0, {(0, 0)})
    assert files == sorted(file["file"] for file in spark.read.format("delta").load(flow.sink()).selectExpr(
        "_metadata.file_path AS file").distinct().collect())  # fmt: skip
    proven(flow)


def test_skipped_commits_are_passed_over_counted_and_named(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, stream={"on_rewrite": "skip"}, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    before = sink(flow)
    delete(spark, flow.source)
    assert look(flow.rule(), flow.home).why is None
    flow.arrive([event(440, "d")])
    (epoch,) = run(spark, flow).epochs
    assert epoch.skipped == {"events": ("version 1 (DELETE)",)}
    head = flow.ledger().head
    assert head is not None and head.skipped == {"events": 1}
    assert sink(flow) == before
    proven(flow)


@pytest.mark.prove  # the edit: `unit/test_touched.py`
def test_a_rule_that_stopped_goes_on_once_its_file_says_how(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    delete(spark, flow.source)
    with pytest.raises(HistoryGone, match=r"on_rewrite: correct.*on_rewrite: skip"):
        check_streams_of(flow)
    with pytest.raises(HistoryGone):
        run(spark, flow)
    flow.stream = CORRECT
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


def check_streams_of(flow: Flow) -> None:
    head = flow.ledger().head
    assert head is not None
    for name, source in sources(flow.rule(), flow.place).items():
        source.check_appended(head.lines[name])


@pytest.mark.prove
def test_a_row_that_would_be_dead_stops_the_correction_and_nothing_is_lost(spark: SparkSession, place: Path) -> None:
    flow = flow_of(place, "slices", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    before = sink(flow)
    spark.sql(f"UPDATE delta.`{flow.source}` SET at = '2999-01-01' WHERE n = 3")
    with pytest.raises(InputFault, match="further ahead of the clock"):
        run(spark, flow)
    assert sink(flow) == before
    spark.sql(f"UPDATE delta.`{flow.source}` SET at = '2001-01-01T00:00:20Z' WHERE at > '2900-01-01'")
    run(spark, flow)
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove  # `test_cascades.py` compares such a chain with batch in each commit
def test_rules_that_read_the_sink_follow_a_correction_and_a_backfill(spark: SparkSession, place: Path) -> None:
    first = flow_of(place, "slices", sinks=1)
    first.sql = "SELECT window.start AS start, window.end AS at, k, count(*) AS n, sum(v) AS v FROM events GROUP BY window(at, '1 minute'), k"  # noqa: E501
    second = Flow(place, name="second", sinks=1, stream={**CORRECT, "delta": first.sink()}, sql=TUMBLING)
    first.arrive([*FIRST, *MORE, event(900)])
    for one in (first, second):
        run(spark, one)
    delete(spark, first.source)
    move(spark, first.source)
    for one in (first, second):
        run(spark, one)
    head = second.ledger().head
    assert head is not None
    spark.read.format("delta").load(first.sink()).createOrReplaceTempView("events")
    rows = [row.asDict() for row in spark.sql(TUMBLING).collect()]
    assert sink(second) == ordered(
        tuple(row.values()) for row in rows if aware(row["start"]) + SIZE <= watermark(second)
    )
    proven(first)
    proven(second)


def said(flow: Flow, *words: str, code: int = 0) -> str:
    flow.write_rule()
    words = (*words, "--rules", str(flow.root / "rules"), "--home", str(flow.home))
    done = CliRunner().invoke(app, ["correct", flow.name, *words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.prove
def test_the_command_shows_first_and_answers_once(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_correct, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = Flow(place, sql=SLICED, sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    assert "there is nothing to correct" in said(flow, "--dry-run")
    delete(spark, flow.source)
    rows, version = len(flow.ledger().rows), DeltaTable(flow.sink()).version()
    found = json.loads(said(flow, "--dry-run", "--json"))
    assert found["rewrites"] == {"events": {"commits": ["version 1 (DELETE)"], "left": 2, "came": 0}}
    (change,) = found["sinks"].values()
    before = sink(flow)
    assert len(change["lost"]) == change["loses"] > len(change["gained"]) == change["gains"]
    shown = said(flow, "--dry-run")
    assert [shown.count(f"\n    {sign} {{") for sign in "-+"] == [change["loses"], change["gains"]]
    assert (len(flow.ledger().rows), DeltaTable(flow.sink()).version()) == (rows, version)
    assert "2 rows left and 0 came by version 1 (DELETE)" in said(flow)
    same_as_batch(spark, flow)
    assert len(before) - len(sink(flow)) == change["before"] - change["after"] > 0
    proven(flow)
    flow.arrive([event(500, "later")])
    run(spark, flow)  # the file still says nothing, and nothing new was rewritten
    update(spark, flow.source)
    with pytest.raises(HistoryGone):
        run(spark, flow)
    assert "cannot forget them" in said(flow, "--skip", code=2)
    said(flow, "--yes")
    same_as_batch(spark, flow)


def test_the_command_passes_over_what_is_not_to_count(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule whose results cannot be corrected is told so, with the ways that work."""
    monkeypatch.setattr(cli_correct, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = Flow(place, sql="SELECT at, k, current_timestamp() AS done FROM events", sinks=1)
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    before = sink(flow)
    delete(spark, flow.source)
    refused = said(flow, code=2)
    assert "it reads the clock" in refused and "floodmark reset counted" in refused and "--skip" in refused
    assert "passed over version 1 (DELETE)" in said(flow, "--skip")
    assert sink(flow) == before
    proven(flow)


@pytest.mark.prove  # which streams count: `unit/test_touched.py`
def test_a_backfill_reads_a_source_as_it_is_whose_dead_row_left_by_a_commit_that_was_passed_over(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_correct, "with_spark", lambda rule, master, work, others=(): work(spark))
    flow = Flow(place, sinks=1, stream={"expect": {"good": {"check": "n <> 3", "on_fail": "dead"}}})
    flow.arrive([*FIRST, *MORE])
    run(spark, flow)
    before = sink(flow)
    delete(spark, flow.source)
    said(flow, "--skip")
    begin = int(at(0).timestamp()) * 1_000_000
    found = backfill(spark, flow, begin, begin + 60_000_000)
    assert [counts.dead for counts in found.intent.counts.values()] == [0]
    assert sink(flow) == before
    proven(flow)


@pytest.mark.prove  # the counts: `unit/test_touched.py`
def test_late_rows_that_left_the_source_are_not_restated(spark: SparkSession, place: Path) -> None:
    flow = Flow(place, sinks=1, stream=CORRECT)
    for rows in ([*FIRST, *MORE], [event(20, "z"), event(25, "z")]):
        flow.arrive(rows)
        run(spark, flow)
    spark.sql(f"DELETE FROM delta.`{flow.source}` WHERE at < '2001-01-01T00:01:00Z'")
    assert len(run(spark, flow).corrections) == 1
    assert newest_backfill(flow).restated == {"events": 0}
    same_as_batch(spark, flow)
    proven(flow)


@pytest.mark.prove  # `test_cascades.py` has such a chain in each commit
def test_a_rule_may_read_a_sink_that_has_a_key(spark: SparkSession, place: Path) -> None:
    """Each upsert changes rows of the sink, and the rule behind it follows."""
    newest = Flow(place, name="newest", sql="SELECT k, at, v, n FROM events", stream={"lateness": None})
    newest.settings = {"sinks": [{"delta": newest.sink(), "key": ["k"], "newest": "at"}]}
    windows = Flow(place, name="windows", sinks=1, stream={"delta": None, "rule": "newest"})
    newest.write_rule()
    with pytest.raises(RuleInvalid, match="follow the changes with `on_rewrite: correct`"):
        windows.rule()
    windows.stream = {**windows.stream, **CORRECT}
    for rows in ([*FIRST, *MORE], [event(450, "a"), event(460, "b"), event(900, "c")]):
        newest.arrive(rows)
        for one in (newest, windows):
            run(spark, one)
    spark.read.format("delta").load(newest.sink()).createOrReplaceTempView("events")
    found = [tuple(row) for row in spark.sql(TUMBLING).collect()]
    expected = ordered(row for row in found if aware(row[0]) + SIZE <= watermark(windows))
    assert sink(windows) == expected != []
    proven(newest)
    proven(windows)


def test_a_backfill_lets_a_late_row_decide_which_duplicates_count(spark: SparkSession, place: Path) -> None:
    """It makes the row behind it a duplicate, which stood alone so far; nothing beyond the interval changes."""
    flow = flow_of(place, "distinct rows", sinks=1)
    flow.arrive([event(100, "a", 1.0, 1), event(190, "a", 2.0, 1), event(400, "b")])
    run(spark, flow)
    before = sink(flow)
    flow.arrive([event(150, "a", 3.0, 1), event(500, "b")])
    run(spark, flow)
    assert flow.counts()["late"] == 1
    assert before == [row for row in sink(flow) if row[1] == "a"]
    assert len(before) == 2
    backfill(spark, flow, round(at(140).timestamp() * 1e6), round(at(200).timestamp() * 1e6))
    same_as_batch(spark, flow)
    assert [row[2] for row in sink(flow) if row[1] == "a"] == [1.0]
    proven(flow)


def _with_late_duplicate(spark: SparkSession, place: Path) -> Flow:
    """The row of second 150 was late, and makes that of second 190 a duplicate."""
    flow = flow_of(place, "distinct rows", sinks=1)
    flow.arrive([event(190, "a", 2.0, 1), event(400, "b")])
    run(spark, flow)
    flow.arrive([event(150, "a", 3.0, 1), event(500, "b")])
    run(spark, flow)
    assert flow.counts()["late"] == 1
    return flow


@pytest.mark.parametrize(("first", "last"), [(140, 160), (180, 200)])
def test_a_backfill_does_not_part_a_late_row_from_its_duplicate(
    spark: SparkSession, place: Path, first: int, last: int
) -> None:
    """With the first alone, the key would be there twice; with the second alone, not at all."""
    flow = _with_late_duplicate(spark, place)
    before = sink(flow)
    begin, end = (round(at(second).timestamp() * 1e6) for second in (first, last))
    with pytest.raises(Refused, match=r"Name an interval with both, --from \d+ --to \d+, or") as refused:
        backfill(spark, flow, begin, end)
    assert sink(flow) == before
    found = str(refused.value).split()
    backfill(spark, flow, *(int(found[found.index(name) + 1].strip(",")) for name in ("--from", "--to")))
    same_as_batch(spark, flow)
    proven(flow)


def test_a_correction_puts_no_late_row_into_the_state_alone(spark: SparkSession, place: Path) -> None:
    """It would make the next row of its key a duplicate, and the key would have no result."""
    flow = flow_of(place, "distinct rows", sinks=1)
    flow.arrive([event(100, "b"), event(395, "z", n=7), event(400, "y")])
    run(spark, flow)
    flow.arrive([event(350, "a", 1.0, 1)])
    run(spark, flow)
    assert flow.counts()["late"] == 1
    spark.sql(f"UPDATE delta.`{flow.source}` SET v = v + 1 WHERE n = 7")
    run(spark, flow)
    flow.arrive([event(405, "a", 2.0, 1), event(700, "b")])
    run(spark, flow)
    assert len([row for row in sink(flow) if row[1] == "a"]) == 1
    same_as_batch(spark, flow)
    proven(flow)


def test_a_correction_recomputes_all_where_it_would_part_them(spark: SparkSession, place: Path) -> None:
    flow = _with_late_duplicate(spark, place)
    flow.arrive([event(1000, "b")])
    run(spark, flow)
    flow.arrive([event(600, "z", n=7)])
    run(spark, flow)
    spark.sql(f"UPDATE delta.`{flow.source}` SET at = at - INTERVAL 500 SECONDS WHERE n = 7")  # 100: up to 160
    run(spark, flow)
    assert newest_backfill(flow).whole
    same_as_batch(spark, flow)
    proven(flow)
