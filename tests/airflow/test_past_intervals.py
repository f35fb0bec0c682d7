"""What a run of a rule's DAG computes again: by the form, or by Airflow's own backfill; spark-submit is a script."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.timetables.trigger import CronTriggerTimetable
from deltalake import DeltaTable, write_deltalake
from pendulum import instance
from test_dags import write
from test_operator import arrive, fold_all, spark_submit, task_of

from floodmark.connectors.delta.lookups import pinned_now
from floodmark.core.protocol.digests import Digest
from floodmark.core.protocol.records.backfills import Backfill, Backfilled, Deferred, LookedUp, Rewrite, Rewritten
from floodmark.core.protocol.records.rows import Commit, Intent, Life
from floodmark.core.rules.rule import Lookup, Rule, load_rule
from floodmark.errors import Refused
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.pages.epochrows import epoch_page
from floodmark_airflow.pages.strip import strip
from floodmark_airflow.tries import Tries
from floodmark_airflow.triggers import backfills
from floodmark_airflow.triggers.backfills import Backfill as Asked
from floodmark_airflow.triggers.backfills import of_airflow, run_before
from floodmark_airflow.triggers.corrections import Correct
from floodmark_airflow.triggers.forms import operation_of

SQL = "SELECT window.start AS start, count(*) AS c FROM events GROUP BY window(at, '1 hour')"
DAY = datetime(2001, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
START = round(DAY.timestamp()) * 1_000_000


@pytest.fixture
def rule(rules: Path, place: Path) -> Rule:
    """Hourly windows, final up to the end of the day."""
    return folded(rules, place, "id")


def folded(rules: Path, place: Path, sink_id: str) -> Rule:
    stream = {"delta": "${LAKE}/events", "event_time": "at", "lateness": "1 hour"}
    path = write(rules, "hours", sql=SQL, streams={"events": stream}, schedule="@hourly")
    arrive(place)
    found = load_rule(path, os.environ)
    ids = {f"sink/{Path(str(sink.address)).resolve()}": sink_id for sink in found.sinks}
    fold_all(found, place / "home", watermark=START + 24 * HOUR, table_ids=ids)
    return found


def task_instance(before: Any = None) -> Any:
    """Of a task that was created in this moment. before: the run before this one."""
    made = UUID(int=round(CREATED.timestamp() * 1000) << 80)
    return SimpleNamespace(id=made, try_number=1, max_tries=3, get_previous_dagrun=lambda: before)


def context(hour: float = 0, kind: str = "backfill", **params: Any) -> Any:
    run = SimpleNamespace(run_type=kind, logical_date=DAY + timedelta(hours=hour), clear_number=0)
    return {
        "run_id": "b1",
        "ti": task_instance(),
        "dag_run": run,
        "params": {"operation": "run", **params},
        "outlet_events": OutletEventAccessors(),
    }


def execute(rule: Rule, given: Any) -> None:
    task = task_of(rule)
    task.render_template_fields(given)
    task.execute(given)


def done_by(
    rule: Rule,
    home: Path,
    begin: int,
    end: int,
    run: str,
    text: str | None = None,
    then: tuple[LookedUp, ...] = (),
    begun_by: str | None = None,
    **fields: Any,
) -> None:
    """What a real backfill would leave in the ledger; `text`: hash of the rule by which it was computed.

    begun_by: the run that began it, if `run` has only finished it. fields: of its intent.
    """
    ledger = Ledger.open(Home(home, rule.rule).ledger, begun_by or run)
    intent = Backfill(number=1, begin=begin, end=end, high=end, upto=0, entry="", column="start", shift=0, counts={},
                      restated={}, digests={}, results=Digest(), rule=rule.to_json(),
                      rule_hash=text or rule.hash, then=then, **fields)  # fmt: skip
    ledger.start_backfill(intent)
    ledger = Ledger.open(Home(home, rule.rule).ledger, run)
    ledger.end_backfill(Backfilled(number=1, intent=intent.digest, tables={}, removed={}))


def test_a_run_of_a_backfill_covers_the_time_to_the_next_tick(rule: Rule) -> None:
    assert operation_of(rule, context(7)) == Asked(
        begin=DAY + timedelta(hours=7), end=DAY + timedelta(hours=8), everything=False, lookups=None
    )
    assert [operation_of(rule, context(7, kind)) for kind in ("scheduled", "manual", "asset_triggered")] == [None] * 3


@pytest.mark.parametrize("night", [datetime(2001, 3, 24, tzinfo=UTC), datetime(2001, 10, 27, tzinfo=UTC)])
@pytest.mark.parametrize("schedule", ["0 * * * *", "30 2 * * *", "@daily", "*/20 * * * *", "0 2,3 * * *"])
def test_no_time_lies_between_two_runs_also_where_clocks_change(rule: Rule, schedule: str, night: datetime) -> None:
    berlin = rule.model_copy(update={"schedule": schedule, "timezone": "Europe/Berlin"})
    at = CronTriggerTimetable(schedule, timezone="Europe/Berlin")._get_next(instance(night))
    for _ in range(110):
        run = SimpleNamespace(run_type="backfill", logical_date=at)
        found = operation_of(berlin, {"dag_run": run, "ti": task_instance(), "params": {}})
        assert isinstance(found, Asked)
        assert found.begin == at < found.end
        at = found.end


@pytest.mark.parametrize("edited", ["30 * * * *", "5 7 * * *"])
def test_a_run_of_a_backfill_from_before_the_schedule_was_edited_fails(rule: Rule, edited: str) -> None:
    now = rule.model_copy(update={"schedule": edited})
    with pytest.raises(AirflowFailException, match="the schedule was edited after this backfill began"):
        operation_of(now, context(7))


def run_at(hour: float, kind: str = "backfill", started: float | None = 5, ended: float | None = 9) -> Any:
    """A run; started, ended: seconds after the task was created that comes after it."""
    start, end = (None if at is None else CREATED + timedelta(seconds=at) for at in (started, ended))
    return SimpleNamespace(
        run_type=kind, logical_date=DAY + timedelta(hours=hour), start_date=start, end_date=end, clear_number=0
    )


def test_a_refined_schedule_stops_a_run_if_windows_start_after_the_run_before_it_has_ended(rule: Rule) -> None:
    """Each run then ends at the next tick of the finer schedule, and what is between would never be recomputed."""
    given = context(12)
    given["ti"] = task_instance(run_at(6))
    same = rule.model_copy(update={"schedule": "0 */6 * * *"})
    operation = operation_of(same, given)
    assert operation is not None
    assert operation.preview(same).startswith("recomputing")
    for schedule in ("@hourly", "0 */3 * * *"):
        now = rule.model_copy(update={"schedule": schedule})
        operation = operation_of(now, given)
        assert operation is not None
        with pytest.raises(AirflowFailException, match=r"expected the run before to end at .* the schedule was edited"):
            operation.preview(now)
    given = context(7)
    given["ti"] = task_instance(run_at(6))
    often = rule.model_copy(update={"schedule": "*/15 * * * *"})
    operation = operation_of(often, given)
    assert operation is not None
    assert operation.preview(often).startswith("recomputing"), "the window that starts with each run is the only one"


@pytest.mark.parametrize(
    ("before", "same"),
    [
        (run_at(6), True),
        (run_at(6, ended=None), True),
        (run_at(6, started=-5, ended=None), True),
        (run_at(6, started=-5, ended=-1), False),
        (run_at(6, "scheduled"), False),
        (None, False),
    ],
    ids=["since", "running", "waiting", "of-another", "scheduled", "none"],
)
def test_the_run_before_is_of_the_same_backfill_if_it_was_not_done_when_this_one_was_created(
    before: Any, same: bool
) -> None:
    """Airflow works on one backfill of a DAG at a time."""
    assert run_before(task_instance(before)) == (DAY + timedelta(hours=6) if same else None)


def test_a_backfill_is_submitted_and_believed_by_the_ledger_alone(rule: Rule, place: Path, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowException, match="backfill ended, but the rule's ledger has none"):
        execute(rule, context(7))
    words = (fake_path / "arguments").read_text().splitlines()
    job = next(at for at, word in enumerate(words) if word.endswith("/applications/operate_rule.py"))
    assert words[job + 1 : job + 9] == ["backfill", "hours", "--align", "--yes", "--from", "2001-01-01T07:00:00+00:00",
                                        "--to", "2001-01-01T08:00:00+00:00"]  # fmt: skip
    assert words[-2:] == ["--run-id", "b1.try1"]
    done_by(rule, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1")
    execute(rule, context(7))
    with pytest.raises(AirflowException, match="ledger has none by this run"):
        execute(rule, context(8))


def test_a_run_of_a_backfill_that_is_reprocessed_computes_its_interval_once_more(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    """Airflow clears the run that there is; a retry of it is another matter."""
    spark_submit(fake_path, "exit 0")
    done_by(rule, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1")
    again = context(7)
    again["ti"].try_number = 2
    execute(rule, again)
    assert not (fake_path / "arguments").exists()
    again["ti"].max_tries, again["dag_run"].clear_number = 4, 1
    with pytest.raises(AirflowException, match="backfill ended, but the rule's ledger has none by this run"):
        execute(rule, again)
    assert (fake_path / "arguments").exists()


def test_a_run_of_a_backfill_that_was_deleted_and_created_again_computes_its_interval_once_more(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    """Airflow gives it the name that the old one had."""
    spark_submit(fake_path, "exit 0")
    done_by(rule, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1")
    again, now = context(7), datetime.now(UTC)
    again["ti"].try_number, again["dag_run"].start_date = 2, now
    execute(rule, again)
    assert not (fake_path / "arguments").exists(), "a retry of the run that has done it"
    again["dag_run"].start_date = now + timedelta(minutes=2)
    with pytest.raises(AirflowException, match="backfill ended, but the rule's ledger has none by this run"):
        execute(rule, again)
    assert (fake_path / "arguments").exists()


def test_what_an_earlier_text_of_the_rule_has_computed_is_not_what_was_asked_for(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    """A try finishes what was left open by the text that this holds, and may end before its own work."""
    spark_submit(fake_path, "exit 0")
    done_by(rule, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1", text="of before")
    again = context(7)
    again["ti"].try_number = 2
    with pytest.raises(AirflowException, match="backfill ended, but the rule's ledger has none by this run"):
        execute(rule, again)
    assert (fake_path / "arguments").exists()


def test_one_that_joined_other_versions_of_lookup_tables_is_not_what_was_asked_for(
    rule: Rule, place: Path, fake_path: Path
) -> None:
    spark_submit(fake_path, "exit 0")
    then = (LookedUp(first=1, upto=1, lookups={}),)
    done_by(rule, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1", then=then)
    with pytest.raises(AirflowException, match="backfill ended, but the rule's ledger has none by this run"):
        execute(rule, context(7))


def test_one_by_another_value_of_a_variable_is_not_what_was_asked_for(rule: Rule, place: Path) -> None:
    """The value is in the rule's text, and not in its hash."""
    dearer = rule.model_copy(update={"sql": rule.sql.replace("count(*)", "1.1 * count(*)")})
    assert dearer.sql != rule.sql
    done_by(rule, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1")
    asked = of_airflow(rule, DAY + timedelta(hours=7))
    assert asked.done(rule, Tries("b1")) == "backfill 1 is committed"
    assert asked.done(dearer, Tries("b1")) is None


def test_what_others_began_is_what_was_asked_for_if_lookup_tables_are_still_as_it_has_read_them(
    rule: Rule, place: Path
) -> None:
    """A try finishes what was left open, and may end before it computes anew what a corrected table has changed."""
    cities = place / "lake" / "cities"
    write_deltalake(str(cities), pa.table({"k": ["a"]}))
    joined = rule.model_copy(update={"lookups": {"cities": Lookup(kind="delta", address=str(cities))}})
    read = pinned_now(joined)
    done_by(joined, place / "home", START + 7 * HOUR, START + 8 * HOUR, "b1.try1", begun_by="monday.try1", lookups=read)
    asked, tries = of_airflow(joined, DAY + timedelta(hours=7)), Tries("b1")
    assert asked.done(joined, tries) == "backfill 1 is committed"
    write_deltalake(str(cities), pa.table({"k": ["b"]}), mode="overwrite")
    assert asked.done(joined, tries) is None
    assert asked.done(joined, Tries("tuesday")) is None
    assert asked.done(joined, Tries("monday")) == "backfill 1 is committed", "another run has finished what it began"


def deferred(rule: Rule, place: Path, run: str) -> tuple[Ledger, Rewrite]:
    """The rule's ledger, with a rewrite of its stream that this run has left for a correction."""
    ledger = Ledger.open(Home(place / "home", rule.rule).ledger, run)
    line = ledger.begun.lines["events"]
    one = Rewrite(since=line, upto=line, commits=("version 1 (DELETE)",))
    ledger.defer(Deferred(entry=ledger.begun.entry.text(), rewrites={"events": one}))
    return ledger, one


def test_a_correction_that_others_began_is_no_answer_while_another_rewrite_is_left(rule: Rule, place: Path) -> None:
    _, one = deferred(rule, place, "monday")
    rewrites = {"events": Rewritten(**one.model_dump(), left=Digest(), came=Digest())}
    done_by(rule, place / "home", START, START + HOUR, "b1.try1", begun_by="monday.try1", rewrites=rewrites)
    asked = Correct(skip=False, streams=())
    assert asked.done(rule, Tries("b1")) == "correction 1 is committed"
    left = Ledger.open(Home(place / "home", rule.rule).ledger, "monday")
    left.defer(Deferred(entry=left.begun.entry.text(), rewrites={"events": one}))
    assert asked.done(rule, Tries("b1")) is None
    assert asked.done(rule, Tries("monday")) == "correction 1 is committed", "another run has finished what it began"


@pytest.mark.parametrize("streams", [(), ("events",)])
def test_a_skip_is_done_once_nothing_is_left_to_pass_over(rule: Rule, place: Path, streams: tuple[str, ...]) -> None:
    """A try may be killed after it has given up what waits for a stream, and before it passes over what is unread."""
    ledger, _ = deferred(rule, place, "b1.try1")
    ledger.live(Life(what="skipped", streams=("events",)))
    asked = Correct(skip=True, streams=streams)
    assert asked.done(rule, Tries("b1")) == "the rewrites of events will not be corrected"
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": [2]}), mode="overwrite")
    assert asked.done(rule, Tries("b1")) is None
    assert asked.preview(rule).startswith("stream events: commits that remove or change rows will be passed over")


def passing(ledger: Ledger, rule: Rule, skipped: dict[str, tuple[str, ...]]) -> None:
    """Commit an epoch that has passed these commits over."""
    entry = ledger.begun.entry.text()
    intent = Intent(
        entry=entry, watermark_before=ledger.begun.watermark, watermark=ledger.begun.watermark, maxima={}, counts={},
        rule=rule.to_json(), rule_hash="h", zone="UTC", ansi=True, skipped=skipped,
    )  # fmt: skip
    ledger.intend(intent)
    ledger.commit(Commit(intent=intent.digest, entry=entry, watermark=intent.watermark, maxima={}))


def test_a_commit_that_nobody_was_shown_is_none_that_a_skip_has_left(rule: Rule, place: Path) -> None:
    """It lands after the command's look: were it left, a retry would pass it over, too."""
    ledger, _ = deferred(rule, place, "b1.try1")
    ledger.live(Life(what="skipped", streams=("events",), over=()))
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": [2]}), mode="overwrite")
    asked = Correct(skip=True, streams=())
    assert asked.done(rule, Tries("b1")) == "the rewrites of events will not be corrected"


def test_a_stream_is_done_with_once_a_committed_epoch_has_passed_its_commits_over(rule: Rule, place: Path) -> None:
    ledger, _ = deferred(rule, place, "b1.try1")
    ledger.live(Life(what="skipped", streams=("events",), over=("events",)))
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": [2]}), mode="overwrite")
    asked, tries = Correct(skip=True, streams=()), Tries("b1")
    assert asked.done(rule, tries) is None, "it was killed before the epoch"
    passing(ledger, rule, {"events": ("version 2 (WRITE)",)})
    assert asked.done(rule, tries) == "the rewrites of events will not be corrected"


def test_a_commit_that_lands_after_the_epoch_that_passes_others_over_is_left_to_the_next_run(
    rule: Rule, place: Path
) -> None:
    ledger = Ledger.open(Home(place / "home", rule.rule).ledger, "b1.try1")
    passing(ledger, rule, {"events": ("version 1 (DELETE)",)})
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": [2]}), mode="overwrite")
    for streams in ((), ("events",)):
        asked = Correct(skip=True, streams=streams)
        assert asked.done(rule, Tries("b1")) == "epoch 1 has passed them over"
    assert Correct(skip=True, streams=("events", "others")).done(rule, Tries("b2")) is None


def test_later_commits_of_a_corrected_stream_are_none_that_a_skip_has_left(rule: Rule, place: Path) -> None:
    _, one = deferred(rule, place, "monday")
    rewrites = {"events": Rewritten(**one.model_dump(), left=Digest(), came=Digest())}
    done_by(rule, place / "home", START, START + HOUR, "monday", rewrites=rewrites)
    ledger, _ = deferred(rule, place, "b1.try1")
    ledger.live(Life(what="skipped", streams=("events",)))
    write_deltalake(str(place / "lake" / "events"), pa.table({"n": [2]}), mode="overwrite")
    stream = rule.streams["events"].model_copy(update={"on_rewrite": "correct"})
    following = rule.model_copy(update={"streams": {"events": stream}})
    asked = Correct(skip=True, streams=("events",))
    assert asked.done(following, Tries("b1")) == "the rewrites of events will not be corrected"
    assert asked.done(rule, Tries("b1")) is None, "the stream has stopped the rule"


def test_a_skip_is_previewed_by_stream_as_the_command_does_it(rule: Rule, place: Path) -> None:
    deferred(rule, place, "monday")
    for streams in ((), ("events",)):
        asked = Correct(skip=True, streams=streams)
        assert asked.preview(rule) == "stream events: the correction of version 1 (DELETE) will be given up"
        assert asked.arguments() == ["--yes", "--skip", *(f"--stream={name}" for name in streams)]
    with pytest.raises(AirflowSkipException, match=r"a dry run: stream events: the correction of .* will be given up"):
        Correct(skip=True, streams=(), dry_run=True).preview(rule)
    with pytest.raises(Refused, match="--stream others: expected a stream with commits that remove or change rows"):
        Correct(skip=True, streams=("others",)).preview(rule)
    with pytest.raises(Refused, match="streams: expected none without `skip`"):
        Correct(skip=False, streams=("events",)).preview(rule)


def test_where_no_window_starts_it_is_skipped_and_what_is_not_final_is_refused(rule: Rule, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    often = rule.model_copy(update={"schedule": "*/15 * * * *"})
    with pytest.raises(AirflowSkipException, match="no window starts"):
        execute(often, context(7.25))
    with pytest.raises(AirflowFailException, match="not final: expected the watermark"):
        execute(rule, context(24))
    for schedule in (None, "upstream", "@once", "@continuous"):
        with pytest.raises(AirflowFailException, match=f"expected a cron schedule .*found {schedule or 'none'}"):
            execute(rule.model_copy(update={"schedule": schedule}), context(7))
    assert not (fake_path / "arguments").exists()


def test_a_sink_that_was_moved_since_the_last_run_is_computed_again(rules: Path, place: Path) -> None:
    moved = place / "elsewhere"
    write_deltalake(str(moved), pa.table({"c": [1]}))
    rule = folded(rules, place, str(DeltaTable(str(moved)).metadata().id))
    sinks = tuple(sink.model_copy(update={"address": str(moved)}) for sink in rule.sinks)
    assert "computing" in of_airflow(rule, DAY).preview(rule.model_copy(update={"sinks": sinks}))


def test_an_interval_that_ends_where_it_begins_is_a_mistake(rule: Rule) -> None:
    nothing = Asked(begin=DAY, end=DAY, everything=False, lookups=None)
    with pytest.raises(AirflowFailException, match=r"expected from before to, found 2001-01-01 .* for both"):
        nothing.preview(rule)


def test_where_clocks_are_set_back_the_half_hour_that_goes_backwards_is_skipped(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Berlin, 28 October 2001, event times without a zone: 02:30 is followed by 02:00."""
    day = datetime(2001, 10, 28, tzinfo=UTC)
    half = rule.model_copy(update={"schedule": "*/30 * * * *", "timezone": "Europe/Berlin"})
    monkeypatch.setattr(backfills, "zoned", lambda *_: False)
    monkeypatch.setattr(backfills, "starting_in", lambda _, *bounds: bounds)
    asked: list[int] = []
    monkeypatch.setattr(backfills, "requested_interval", lambda _rule, _head, begin, end, *_: asked.append(end - begin))
    of_airflow(half, day).preview(half)
    with pytest.raises(AirflowSkipException, match="no window starts"):
        of_airflow(half, day + timedelta(minutes=30)).preview(half)
    of_airflow(half, day + timedelta(hours=1)).preview(half)
    assert asked == [HOUR // 2] * 2


def test_the_form_asks_for_an_interval_and_a_dry_run_needs_no_row(rule: Rule, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    asked = {"operation": "backfill", "from": "2001-01-01T03:30:00Z", "to": "2001-01-01T05:30:00Z", "dry_run": True}
    with pytest.raises(AirflowSkipException, match="dry run"):  # so nobody who waits for a sink is woken
        execute(rule, context(0, "manual", **asked))
    words = (fake_path / "arguments").read_text().splitlines()
    assert "--dry-run" in words
    assert words[words.index("--from") + 1] == "2001-01-01T03:30:00+00:00"
    with pytest.raises(AirflowFailException, match=r"expected from and to, or all alone, found from$"):
        execute(rule, context(0, "manual", **asked | {"to": None}))
    with pytest.raises(AirflowFailException, match=r"expected from and to, or all alone, found from, to, all"):
        execute(rule, context(0, "manual", **asked | {"all": True}))
    with pytest.raises(AirflowSkipException, match="dry run"):
        execute(rule, context(0, "manual", operation="backfill", all=True, dry_run=True))
    words = (fake_path / "arguments").read_text().splitlines()
    assert {"--yes", "--all", "--dry-run"} < {*words}
    assert not {"--from", "--to", "--align"} & {*words}
    with pytest.raises(AirflowFailException, match="lookups: expected now or then, found '--all'"):
        execute(rule, context(0, "manual", **asked | {"lookups": "--all"}))
    with pytest.raises(AirflowFailException, match="with its lookup tables as each epoch read them: it has none"):
        execute(rule, context(0, "manual", **asked | {"lookups": "then"}))
    with pytest.raises(AirflowFailException, match=r"from: expected a time.*found '; rm'"):
        execute(rule, context(0, "manual", **asked | {"from": "; rm"}))
    for name, beyond in (("from", "0001-01-01T00:00:00+14:00"), ("to", "9999-12-31T23:59:59-12:00")):
        with pytest.raises(AirflowFailException, match=rf"{name}: expected a time.*found '{re.escape(beyond)}'"):
            execute(rule, context(0, "manual", **asked | {name: beyond}))


def test_a_dry_run_of_airflows_own_backfill_changes_nothing(rule: Rule, fake_path: Path) -> None:
    spark_submit(fake_path, "exit 0")
    with pytest.raises(AirflowSkipException, match="dry run"):
        execute(rule, context(7, dry_run=True))
    assert "--dry-run" in (fake_path / "arguments").read_text().splitlines()


def test_a_page_of_epochs_shows_it_beside_the_epoch_after_which_it_stands(rule: Rule, place: Path) -> None:
    done_by(rule, place / "home", START, START + HOUR, "b1.try1")
    ledger = Home(place / "home", rule.rule).ledger
    head = Ledger.open(ledger, "one").head
    assert head is not None
    page = epoch_page(rule, head, DeltaTable(ledger), 1, None)
    assert page is not None
    found = [(one["epoch"], one["result"], one["replay"]) for one in page.epochs]
    assert found == [(0, "backfilled", None), (0, "begun", False)]
    assert page.epochs[0]["backfill"]["to"] == "2001-01-01T01:00:00Z"
    assert [one["offsets"] for one in page.epochs] == [[], [("events", "before version 1")]]


def test_the_time_line_shows_backfills_and_corrections_apart_from_epochs() -> None:
    def entry(result: str, backfill: dict[str, Any] | None) -> dict[str, Any]:
        return {"epoch": 3, "result": result, "attempts": 1, "read": 1, "backfill": backfill}

    rewrites = {"<e>": {"commits": ["version 4"], "left": 2, "came": 1}}
    corrected = entry("corrected", {"from": "T1", "to": "T2", "all": False, "keys": None, "rewrites": rewrites})
    by_key = entry("backfilled", {"from": None, "to": None, "all": False, "keys": 7, "rewrites": {}})
    whole = entry("backfilled", {"from": None, "to": None, "all": True, "keys": None, "rewrites": {}})
    drawn = strip([entry("committed", None), corrected, by_key, whole])
    assert "epoch 3: backfilled, everything</title>" in drawn
    assert "<title>epoch 3: committed</title>" in drawn
    said = "epoch 3: corrected, T1 to T2, stream &lt;e&gt;: 2 rows left and 1 came"
    assert f'<g class="corrected"><title>{said}</title><path d="M9 8l' in drawn
    assert '<g class="backfilled"><title>epoch 3: backfilled, 7 keys</title><path d="M17 8l' in drawn
