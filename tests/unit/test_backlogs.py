"""How far a target is behind, by the ledger and what the home remembers."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from support.aged import age, entries
from support.behind import NAME, ROWS, Behind
from support.flow import START
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.relay.backlogs import check_shipped, target_lag
from floodmark.connectors.relay.memory import Memory, file_of, forget_faults, recall, remember
from floodmark.core.lifecycle.cleanup import CHECKPOINT_AFTER
from floodmark.errors import Refused
from floodmark.ledger.ledger import Ledger
from floodmark.views.status.rulestatus import rule_status

MICROS = round(START.timestamp() * 1e6)


@pytest.fixture
def behind(place: Path) -> Behind:
    """A rule with one epoch, which the target has."""
    found = Behind(place, max_bytes=3_000)
    found.run(MICROS)
    found.ship()
    return found


def test_a_target_that_has_all_lacks_nothing(behind: Behind) -> None:
    found = behind.lacks
    assert (found.target, found.portions, found.rows, found.bytes, found.oldest) == (NAME, 0, 0, 0, None)
    assert (found.full, found.age(datetime.now(UTC)), found.memory.speed, found.memory.shipped) == (False, 0, 8, ROWS)


def test_what_is_committed_since_is_counted_until_it_is_shipped(behind: Behind) -> None:
    behind.run(MICROS + 60_000_000)
    first = behind.row.at
    behind.run(MICROS + 120_000_000)
    found = behind.lacks
    assert (found.portions, found.rows, found.oldest) == (2, 2 * ROWS, first)
    assert 1_000 < found.bytes < 20_000
    assert found.age(datetime.fromisoformat(first) + timedelta(minutes=2)) == 120
    behind.ship(seconds=2)
    assert (behind.lacks.portions, behind.lacks.memory.speed, behind.lacks.memory.shipped) == (0, 2, 2 * ROWS)


def test_what_waits_is_looked_at_once(behind: Behind) -> None:
    """A target that is down for days has thousands of portions, and each epoch, page and metric asks for their size."""
    behind.run(MICROS)
    found = behind.lacks.bytes
    for entry in (Path(str(behind.outbox)) / "_delta_log").glob("*.json"):
        entry.unlink()
    assert behind.lacks.bytes == found > 0


def test_the_rule_waits_from_the_limit_on(behind: Behind) -> None:
    while (found := behind.lacks).bytes < 3_000:
        assert not found.full and "the rule waits" not in found.text()
        behind.run(MICROS)
    assert found.full and found.facts()["full"] and found.limit == 3_000
    assert "the rule waits, at `max_bytes` 3,000" in found.text()


@pytest.mark.parametrize(("role", "older"), [("outbox", ""), ("undelivered", ""), ("undelivered", "-until-1")])
def test_rows_that_were_not_shipped_cannot_be_forgotten(behind: Behind, role: str, older: str) -> None:
    rule, home = behind.flow.rule(), behind.flow.place
    assert behind.outbox is not None
    folder = f"{role}/{behind.outbox.name}{older}"
    check_shipped(rule, home, behind.flow.ledger(), [folder])
    behind.run(MICROS)
    check_shipped(rule, home, behind.flow.ledger(), ["landing/events"])
    ship = f"`floodmark relay {rule.rule} --target {NAME}`"
    problem = f"target {NAME} has not got all of it. Ship the rest with {ship}, then forget.*write `on_error: dead`"
    with pytest.raises(Refused, match=problem):
        check_shipped(rule, home, behind.flow.ledger(), ["landing/events", folder])


def told(behind: Behind, *command: str) -> str:
    """What a command says of the rule."""
    places = ["--rules", str(behind.flow.root / "rules"), "--home", str(behind.flow.home)]
    return CliRunner().invoke(app, [*command, behind.flow.name, *places]).output.replace("\n", " ")


@pytest.mark.parametrize("sinks", [1, 2])
def test_a_target_that_the_file_no_longer_has_is_shown_until_it_has_all(behind: Behind, sinks: int) -> None:
    behind.run(MICROS)
    assert rule_status(behind.flow.rule(), behind.flow.home).removed == []
    assert rule_status(behind.flow.rule(), behind.flow.home).refused is None
    renamed = {"postgres": {"connection": "store", "table": NAME}}
    behind.flow.settings = {"sinks": [{"delta": behind.flow.sink()}, renamed][:sinks]}
    behind.flow.write_rule()
    found = rule_status(behind.flow.rule(), behind.flow.home)
    [left] = found.removed
    assert (left.target, left.rows, found.facts()["removed_targets"]) == (NAME, ROWS, [left.facts()])
    assert "sinks (one was removed)" in str(found.refused) and "sinks (one was removed)" in found.text()
    for command in ("status", "relay"):
        said = told(behind, command)
        assert f"({ROWS} rows" in said and "put the sink back as it was" in said, said
    behind.ship()
    found = rule_status(behind.flow.rule(), behind.flow.home)
    assert (found.removed, "put the sink back" in found.text()) == ([], False)


def maintained(behind: Behind) -> list[int]:
    """The versions whose entries the outbox's log still has, after upkeep long after its newest commit."""
    age(str(behind.outbox), 60)
    places = ["--rules", str(behind.flow.root / "rules"), "--home", str(behind.flow.home)]
    found = CliRunner().invoke(app, ["maintain", behind.flow.name, "--yes", *places])
    assert found.exit_code == 0, found.output
    behind.ledger = Ledger.open(behind.flow.place.ledger, "by hand")
    return entries(str(behind.outbox))


@pytest.mark.parametrize("kept", [{}, {"delta.logRetentionDuration": "interval 36500 days"}], ids=["new", "older home"])
def test_the_log_of_an_outbox_is_cut_up_to_what_may_be_shipped_again(behind: Behind, kept: dict[str, str]) -> None:
    behind.flow.write_rule()
    table = DeltaTable(str(behind.outbox))
    if kept:
        table.alter.set_table_properties(kept)
    for _ in range(CHECKPOINT_AFTER):
        behind.run(MICROS)
    assert maintained(behind)[0] == 0, "the target has one portion alone, and its rows are removed only now"
    behind.ship()
    assert maintained(behind)[0] == 0, "the checkpoint is newer than the first rows that may be shipped again"
    table.update_incremental()
    newest = table.version()
    for _ in range(CHECKPOINT_AFTER):
        behind.run(MICROS)
    first = maintained(behind)[0]
    assert 0 < first <= newest
    assert behind.lacks.portions == CHECKPOINT_AFTER
    behind.ship()


def test_upkeep_removes_what_is_shipped_and_whose_epoch_is_old_however_late_the_shipment_was(behind: Behind) -> None:
    behind.flow.write_rule()
    behind.run(MICROS)
    age(str(behind.outbox), 60)
    behind.ship()
    behind.run(MICROS)
    places = ["--rules", str(behind.flow.root / "rules"), "--home", str(behind.flow.home)]
    said = CliRunner().invoke(app, ["maintain", behind.flow.name, "--dry-run", *places]).output
    assert ": 2 portions to remove, which were shipped" in said, said


def test_a_fault_stays_until_something_arrives(behind: Behind) -> None:
    behind.fail("no route to host")
    memory = behind.lacks.memory
    assert (memory.fault, memory.rows, memory.shipped, memory.speed) == ("no route to host", ROWS, ROWS, 8)
    assert memory.position is not None and behind.outbox is not None
    remember(behind.outbox, memory.position)
    assert behind.lacks.memory == Memory(memory.position, memory.at, rows=ROWS, seconds=0.5, shipped=ROWS)


def test_the_newest_row_of_a_target_is_of_the_last_epoch_that_it_has(behind: Behind) -> None:
    rule, now = behind.flow.rule(), START + timedelta(hours=1)
    assert target_lag(rule, behind.flow.ledger().head, behind.lacks, now) == 3600
    behind.run(MICROS + 600_000_000)
    assert target_lag(rule, behind.flow.ledger().head, behind.lacks, now) == 3600
    behind.ship()
    assert target_lag(rule, behind.flow.ledger().head, behind.lacks, now) == 3000


def test_a_rule_without_event_time_has_no_such_age(behind: Behind) -> None:
    behind.flow.stream = {"event_time": None, "lateness": None}
    behind.flow.sql = "SELECT k, v FROM events"
    assert target_lag(behind.flow.rule(), behind.flow.ledger().head, behind.lacks, START) is None


def test_the_status_says_how_old_the_newest_row_of_a_target_is(behind: Behind) -> None:
    found = rule_status(behind.flow.rule(), behind.flow.home)
    assert f"target      {NAME}: has generation 1, epoch 1; its newest row is 1" in found.text()
    [facts] = found.facts()["targets"]
    years = (datetime.now(UTC) - START).total_seconds()
    assert 0 <= years - facts["lag_seconds"] < 60
    assert (facts["shipped_rows"], facts["rows_per_second"], facts["max_bytes"]) == (ROWS, 8.0, 3_000)


def test_a_target_that_has_nothing_yet_has_no_newest_row(place: Path) -> None:
    behind = Behind(place)
    behind.run(MICROS)
    assert target_lag(behind.flow.rule(), behind.flow.ledger().head, behind.lacks, START) is None


def test_a_memory_of_another_version_is_understood(behind: Behind) -> None:
    assert behind.outbox is not None
    file, known = file_of(behind.outbox), recall(behind.outbox)
    file.write_text(file.read_text().replace('"shipped"', '"another"'))
    assert recall(behind.outbox) == Memory(known.position, known.at, rows=ROWS, seconds=0.5)


def test_what_targets_said_of_their_faults_can_be_forgotten(behind: Behind) -> None:
    """Their positions stay. Of a relay that was killed while it wrote, the part goes; of one at work, it stays."""
    assert behind.outbox is not None
    before = recall(behind.outbox)
    behind.fail("Key (k)=(alice@example.org) already exists")
    old, new = (behind.outbox.with_name(f"{behind.outbox.name}.json.{pid}") for pid in (1, 2))
    other = behind.outbox.with_name("orders.json.position")  # of the sink orders.json
    for file in (old, new, other):
        file.write_text("alice@example.org")
    for file in (old, other):
        os.utime(file, (0, 0))
    forget_faults(behind.outbox.parent)
    assert (recall(behind.outbox), old.exists(), new.exists(), other.exists()) == (before, False, True, True)
