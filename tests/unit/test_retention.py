"""How long sources keep what a rule has not read yet, and who is told of it in time."""

from __future__ import annotations

import json
from pathlib import Path

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
from floodmark.connectors.backlog.retention import limits
from floodmark.core.lifecycle.retention import FILES, LOG, Limit, retention_us
from floodmark.core.protocol.records.rows import Counts
from floodmark.core.text.durations import DAY, HOUR
from floodmark.errors import Refused
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


def test_the_end_of_a_run_says_that_its_input_had_waited_for_long() -> None:
    late = Limit("events", LOG, 20 * DAY, 30 * DAY)
    assert "had waited for 20 days when it was read" in Outcome("r", limits={"events": late}).text()
    failed = Outcome("r", limits={"events": late}, fault=RuntimeError("x"))
    assert "run the rule within 10 days, or raise delta.logRetentionDuration" in failed.text()
    assert "warning" not in Outcome("r", limits={"events": Limit("events", LOG, HOUR, DAY)}).text()
