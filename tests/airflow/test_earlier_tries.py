"""What a retry finds of the run's earlier tries, in a ledger that may be long."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from test_dags import write
from test_operator import arrive, fold_all
from test_telling import fold_epoch

from floodmark.core.protocol.records.rows import Life
from floodmark.core.rules.rule import Rule, load_rule
from floodmark.errors import LedgerBroken
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import Ledger
from floodmark_airflow.tasks.steps import NEWEST, Steps
from floodmark_airflow.tries import CLOCKS, not_before

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def rule(rules: Path, place: Path) -> Rule:
    """Its input is folded."""
    arrive(place)
    found = load_rule(write(rules, "one"), os.environ)
    fold_all(found, place / "home")
    return found


def retry(rule: Rule, run_after: datetime) -> Steps:
    run = SimpleNamespace(run_after=run_after, start_date=None, clear_number=0)
    given: Any = {"run_id": "m1", "ti": SimpleNamespace(try_number=2), "dag_run": run}
    return Steps(rule, given, structlog.get_logger())


def lengthen(rule: Rule, place: Path, rows: int) -> Path:
    """Add rows of other runs, and keep the head at hand, as the next one does. The file of the ledger's first row."""
    address = Home(place / "home", rule.rule).ledger
    (first,) = Path(address).glob("*.parquet")
    ledger = Ledger.open(address, "others")
    for number in range(rows):
        ledger.live(Life(what="returned" if number % 2 else "retired"))
    Ledger.open(address, "others")
    assert Path(f"{address}.head").exists() and first.exists()
    return first


def test_a_retry_reads_no_rows_from_before_its_run(rule: Rule, place: Path) -> None:
    """A ledger of years has millions."""
    first = lengthen(rule, place, 99)
    first.unlink()
    now = datetime.now(UTC)
    assert retry(rule, now + HOUR).before is None
    with pytest.raises(LedgerBroken):
        retry(rule, now - HOUR).before  # noqa: B018 - all rows are newer


def test_a_retry_finds_the_first_row_of_its_run_behind_many_others(rule: Rule, place: Path) -> None:
    fold_epoch(rule, place / "home", "m1.try1", None)
    ledger = Ledger.open(Home(place / "home", rule.rule).ledger, "others")
    for number in range(NEWEST):
        ledger.live(Life(what="returned" if number % 2 else "retired"))
    assert retry(rule, datetime.now(UTC) - HOUR).before == 2, "behind the intent"


@pytest.mark.parametrize(
    ("run", "found"),
    [
        (None, None),
        (SimpleNamespace(clear_number=0), None),
        (SimpleNamespace(clear_number=0, run_after=NOON, start_date=None), NOON),
        (SimpleNamespace(clear_number=0, run_after=NOON, start_date=NOON + HOUR), NOON + HOUR),
        (SimpleNamespace(clear_number=1, run_after=NOON, start_date=NOON + HOUR), NOON),
    ],
    ids=["unknown", "by-an-older-airflow", "waiting", "late", "cleared"],
)
def test_a_run_writes_nothing_before_it_may_start(run: Any, found: datetime | None) -> None:
    given: Any = {"dag_run": run}
    assert not_before(given) == (found and found - CLOCKS)
