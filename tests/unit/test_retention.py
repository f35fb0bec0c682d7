"""How long sources keep what a rule has not read yet, and who is told of it in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from deltalake import DeltaTable
from support.aged import age
from support.byhand import begun, commit, intent
from support.flow import Flow, event
from test_ledger import backfill
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.runs.outcome import Outcome
from floodmark.cli.shared.doctorchecks import all_checks
from floodmark.connectors.backlog.news import look
from floodmark.connectors.backlog.retention import limits
from floodmark.connectors.delta.changes import ChangesSource
from floodmark.connectors.delta.landed import Landed
from floodmark.connectors.planning.epochends import steps
from floodmark.connectors.ports.registry import sources
from floodmark.core.lifecycle.retention import FILES, LOG, Limit, retention_us
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit, Counts
from floodmark.core.rules.rule import EpochLimits
from floodmark.core.sql.tree.names import CHANGE_FEED
from floodmark.core.text.durations import DAY, HOUR
from floodmark.errors import Refused
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.ledger import Ledger


@pytest.fixture
def flow(place: Path) -> Flow:
    """A rule that has read nothing yet of two commits."""
    found = Flow(place)
    begun(found)
    found.arrive([event(2)])
    return found


def waits(flow: Flow) -> dict[str, tuple[str, int, bool]]:
    """By stream: the setting, whole days that are left, and whether it warns."""
    head = flow.ledger().head
    assert head is not None
    return {
        name: (limit.setting, round(limit.left_us / DAY), limit.warns)
        for name, limit in limits(flow.rule(), flow.place, head).items()
    }


@pytest.mark.parametrize(("days", "left", "warns"), [(0, 30, False), (14, 16, False), (16, 14, True), (40, 0, True)])
def test_log_entries_go_by_their_age(flow: Flow, days: int, left: int, warns: bool) -> None:
    age(flow.source, days)
    assert waits(flow) == {"events": (LOG, left, warns)}


def test_a_source_says_itself_how_long_it_keeps_them(flow: Flow) -> None:
    DeltaTable(flow.source).alter.set_table_properties({LOG: "interval 100 days"})
    age(flow.source, 40)
    assert waits(flow) == {"events": (LOG, 60, False)}


@pytest.mark.parametrize("said", ["interval '7' day", "7 days", "INTERVAL 1 week", "interval 6 days '24' hours"])
def test_what_a_table_says_is_read_as_sql_has_it(said: str) -> None:
    assert retention_us("/lake/t", LOG, said) == 7 * DAY


def test_what_a_table_says_and_is_no_length_of_time_is_named() -> None:
    with pytest.raises(Refused, match=r"table t: delta.logRetentionDuration .* found 'interval 1 month'"):
        retention_us("/lake/t", LOG, "interval 1 month")


def test_files_that_were_replaced_before_they_were_read_go_sooner(flow: Flow) -> None:
    DeltaTable(flow.source).optimize.compact()
    age(flow.source, 5)
    assert waits(flow) == {"events": (FILES, 2, True)}
    DeltaTable(flow.source).alter.set_table_properties({FILES: "168 hours"})
    assert waits(flow) == {"events": (FILES, 2, True)}


def test_nothing_can_be_lost_where_all_is_read_and_an_open_epoch_has_not_read_yet(flow: Flow) -> None:
    ledger = Ledger.open(flow.place.ledger, "x")
    found = intent(flow, 2, None, 0, Counts(read=2, folded=2))
    ledger.intend(found)
    age(flow.source, 20)
    assert waits(flow) == {"events": (LOG, 10, True)}
    ledger.commit(commit(found))
    assert waits(flow) == {}
    ledger.start_backfill(backfill())
    assert waits(flow) == {"events": (LOG, 10, True)}, "it reads again what the epochs have read"


@pytest.fixture
def read(place: Path) -> Flow:
    """A rule that has read all of two commits."""
    found = Flow(place)
    for second in (1, 2):
        found.arrive([event(second)])
    rule = found.rule()
    entry = Entry(0, tuple(source.end() for source in sources(rule, found.place).values())).text()
    begin = Commit(entry=entry, watermark=None, maxima={}, rule=rule.to_json())
    Ledger.open(found.place.ledger, "x").begin(1, "token", begin)
    return found


def why(flow: Flow) -> str | None:
    return look(flow.rule(), flow.home).why


COMMITS: dict[str, Callable[[DeltaTable], object]] = {
    "optimized": lambda table: table.optimize.compact(),
    "cleaned": lambda table: table.delete("n = 0"),
}


@pytest.mark.parametrize(
    ("what", "stream"),
    [
        ("optimized", {}),
        ("optimized", {"on_rewrite": "correct"}),
        ("optimized", {"on_rewrite": "skip"}),
        ("cleaned", {"on_rewrite": "skip"}),
    ],
)
def test_a_run_passes_commits_without_new_rows_before_their_log_entries_go(
    read: Flow, what: str, stream: dict[str, Any]
) -> None:
    read.stream = stream
    age(read.source, 100)
    assert (why(read), waits(read)) == (None, {})
    COMMITS[what](DeltaTable(read.source))
    (source,) = sources(read.rule(), read.place).values()
    head = read.ledger().head
    assert head is not None
    line = head.lines["events"]
    for days, due, warns in ((9, False, False), (11, True, False), (16, True, True)):
        age(read.source, days)
        with mock.patch.object(tablelog, "entry_actions", side_effect=AssertionError):
            assert source.is_to_follow(line, time.time_ns() // 1000) is due
        assert why(read) == ("old commits without new rows in events: the offset has to pass them" if due else None)
        assert waits(read) == {"events": (LOG, 30 - days, warns)}
    assert not source.is_to_follow(source.end(), time.time_ns() // 1000)


def test_the_warning_says_that_commits_have_no_new_rows(read: Flow) -> None:
    DeltaTable(read.source).optimize.compact()
    age(read.source, 20)
    head = read.ledger().head
    assert head is not None
    (found,) = limits(read.rule(), read.place, head).values()
    assert found.text().startswith("stream events: commits without new rows have waited for 20 days; the source keeps")
    assert found.late().startswith("stream events: a commit without new rows had waited for 20 days when it was read")


@pytest.mark.parametrize("stream", [{"changes": True, "lateness": None}, {"landing": True}])
def test_sources_that_spark_does_not_plan_end_behind_old_commits_without_rows(
    flow: Flow, stream: dict[str, Any]
) -> None:
    flow.stream, flow.sql = stream, "SELECT at, k FROM events"
    (source,) = (one.inner if isinstance(one, Landed) else one for one in sources(flow.rule(), flow.place).values())
    DeltaTable(flow.source).alter.set_table_properties({CHANGE_FEED: "true"})
    since = source.end()
    DeltaTable(flow.source).optimize.compact()
    assert steps(source, since, EpochLimits()) == [since]
    age(flow.source, 11)
    assert steps(source, since, EpochLimits(max_files=1)) == [since, source.end()]
    assert steps(source, source.end(), EpochLimits()) == [source.end()]
    DeltaTable(flow.source).delete()
    since = source.start()
    assert steps(source, since, EpochLimits()) == [since]
    age(flow.source, 11)
    assert steps(source, since, EpochLimits()) == [since, source.end()]


@pytest.fixture
def empty(place: Path) -> Flow:
    """A rule that has begun with a table without rows."""
    found = Flow(place)
    found.arrive([event(1)])
    DeltaTable(found.source).delete()
    rule = found.rule()
    entry = Entry(0, tuple(source.start() for source in sources(rule, found.place).values())).text()
    begin = Commit(entry=entry, watermark=None, maxima={}, rule=rule.to_json())
    Ledger.open(found.place.ledger, "x").begin(1, "token", begin)
    return found


def test_a_run_passes_a_first_snapshot_without_rows_before_the_log_forgets_it(empty: Flow) -> None:
    """Whatever has followed: the version itself is needed to know that it has no rows."""
    (source,) = sources(empty.rule(), empty.place).values()
    since = source.start()
    for days, due, warns in ((9, False, False), (11, True, False), (16, True, True)):
        age(empty.source, days)
        DeltaTable(empty.source).alter.set_table_properties({LOG: "interval 30 days"})
        assert source.is_to_follow(since, time.time_ns() // 1000) is due
        assert why(empty) == ("old commits without new rows in events: the offset has to pass them" if due else None)
        assert waits(empty) == {"events": (LOG, 30 - days, warns)}
    assert not source.is_to_follow(source.end(), time.time_ns() // 1000)


def test_a_first_snapshot_of_which_only_a_checkpoint_is_left_is_passed(empty: Flow) -> None:
    (source,) = sources(empty.rule(), empty.place).values()
    DeltaTable(empty.source).create_checkpoint()
    (Path(empty.source) / "_delta_log" / f"{1:020}.json").unlink()
    assert source.is_to_follow(source.start(), time.time_ns() // 1000)
    assert not source.is_to_follow(source.end(), time.time_ns() // 1000)
    changes: Any = ChangesSource("events", empty.rule().streams["events"])
    with mock.patch.object(ChangesSource, "typed", return_value="no changes"):
        assert changes.frame(None, changes.start(), changes.end()) == "no changes"


def test_rows_behind_a_first_snapshot_wait_as_long_as_it_does(empty: Flow) -> None:
    age(empty.source, 20)
    empty.arrive([event(2)])
    assert waits(empty) == {"events": (LOG, 10, True)}


def test_a_retention_that_cannot_be_read_makes_no_run_due(read: Flow) -> None:
    DeltaTable(read.source).optimize.compact()
    DeltaTable(read.source).alter.set_table_properties({LOG: "interval 1 month"})
    age(read.source, 100)
    assert why(read) is None


def test_the_age_of_an_entry_in_a_store_is_asked_without_reading_it(flow: Flow) -> None:
    age(flow.source, 3)
    assert tables.stored_entry_us(flow.source, 1) == tablelog.written_us(flow.source, 1)
    assert tables.stored_entry_us(flow.source, 2) is None


def test_entries_that_are_gone_are_said_to_be_gone(flow: Flow) -> None:
    DeltaTable(flow.source).create_checkpoint()
    (Path(flow.source) / "_delta_log" / f"{0:020}.json").unlink()
    head = flow.ledger().head
    assert head is not None
    (found,) = limits(flow.rule(), flow.place, head).values()
    assert found.lost and "the next run stops" in found.text()


def test_status_and_doctor_warn_before_it_is_too_late(flow: Flow) -> None:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    assert "warning" not in CliRunner().invoke(app, ["status", "counted"], env=places).output
    age(flow.source, 20)
    said = CliRunner().invoke(app, ["status", "counted"], env=places).output
    assert "has waited for 20 days; the source keeps log entries for 30 days: run the rule within 9 days," in said
    facts = json.loads(CliRunner().invoke(app, ["status", "counted", "--json"], env=places).stdout)
    unread = facts["rules"]["counted"]["unread"]["events"]
    assert unread["left_seconds"] // 3600 == 239 and unread["warning"] in said
    (check,) = [one for one in all_checks(flow.root / "rules", flow.home) if one.name == "input of counted"]
    assert (check.verdict, check.found) == ("warning", unread["warning"])


@pytest.mark.parametrize(
    ("waited", "kept", "used"), [(0, 10, 0.0), (5, 10, 0.5), (10, 10, 1.0), (11, 10, 1.1), (0, 0, 1.0)]
)
def test_the_share_of_the_retention_for_which_input_has_waited(waited: int, kept: int, used: float) -> None:
    assert Limit("events", LOG, waited, kept).used == used
    assert Limit("events", LOG, waited, kept, lost=True).used == 1


def test_the_end_of_a_run_says_that_its_input_had_waited_for_long() -> None:
    late = Limit("events", LOG, 20 * DAY, 30 * DAY)
    assert "had waited for 20 days when it was read" in Outcome("r", limits={"events": late}).text()
    failed = Outcome("r", limits={"events": late}, fault=RuntimeError("x"))
    assert "run the rule within 10 days, or raise delta.logRetentionDuration" in failed.text()
    assert "warning" not in Outcome("r", limits={"events": Limit("events", LOG, HOUR, DAY)}).text()
