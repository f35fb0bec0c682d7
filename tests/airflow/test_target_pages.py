"""What the pages tell of targets: what each has, what it lacks, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.behind import NAME, Behind
from support.flow import START
from test_pages import ask, known, settled, text_of, web

from floodmark.views.formats import duration
from floodmark.views.status.glance import Glance
from floodmark_airflow.pages.access import DagFacts
from floodmark_airflow.pages.cache import Answer
from floodmark_airflow.pages.condition import condition

__all__ = ["ask", "known", "web"]  # fixtures
MICROS = round(START.timestamp() * 1e6)


@pytest.fixture
def behind(place: Path, rules: Path, known: Callable[..., None]) -> Behind:
    """A rule with two epochs, of which the target has one."""
    known("counted")
    return one_behind(place, max_bytes=100_000)


def one_behind(place: Path, max_bytes: int) -> Behind:
    found = Behind(place, max_bytes=max_bytes)
    found.run(MICROS)
    found.ship()
    found.run(MICROS + 60_000_000)
    return found


def row_of(page: str) -> str:
    """The line of the target."""
    [table] = re.findall(r'<h2 id="targets">.*?</section>', page, re.DOTALL)
    return text_of(re.findall(r"<tr>.*?</tr>", table, re.DOTALL)[1])


def test_a_rule_s_page_tells_what_its_target_has_and_lacks(ask: Callable[..., Any], behind: Behind) -> None:
    page = settled(ask, "dags/rule.counted")
    said = row_of(page)
    assert said.startswith(f"{NAME} behind epoch 1 {datetime.now(UTC):%Y-%m-%d}")
    for part in (" old 1 epoch 4 rows ", "of 100.0 kB", "8 rows/s 4 rows, last relay"):
        assert part in said
    assert f"Target {NAME} has not got the newest epoch." in text_of(page)
    behind.ship()
    page = settled(ask, "dags/rule.counted")
    assert row_of(page).startswith(f"{NAME} has all epoch 2")
    assert "has not got" not in text_of(page)


def test_a_rule_s_page_counts_the_rows_that_its_target_refused(ask: Callable[..., Any], behind: Behind) -> None:
    assert "undelivered" not in row_of(settled(ask, "dags/rule.counted"))
    behind.refuse(0, 2)
    behind.ship()
    assert " 2 rows undelivered " in row_of(settled(ask, "dags/rule.counted"))


def test_a_fault_of_a_target_is_on_both_pages_and_no_more_than_text(ask: Callable[..., Any], behind: Behind) -> None:
    behind.fail("<script>alert(1)</script> refuses")
    for path in ("", "dags/rule.counted"):
        page = settled(ask, path)
        assert "<script>alert" not in page
        assert "target at fault" in text_of(page) and "alert(1)</script> refuses" in text_of(page)
    assert "last relay failed" in row_of(page)


def test_the_list_counts_the_epochs_that_a_target_lacks(ask: Callable[..., Any], behind: Behind) -> None:
    assert f"{NAME}: 1 " in text_of(settled(ask))
    assert "target behind" in text_of(settled(ask))
    behind.ship()
    assert "up to date" in text_of(settled(ask)) and f"{NAME}:" not in text_of(settled(ask))


def test_a_rule_without_a_target_has_no_such_part(
    ask: Callable[..., Any], place: Path, rules: Path, known: Callable[..., None]
) -> None:
    behind = Behind(place)
    behind.flow.settings = {}
    behind.flow.write_rule()
    known("counted")
    assert 'id="targets"' not in settled(ask, "dags/rule.counted")


def test_what_is_said_first_of_a_rule_with_a_target(place: Path, rules: Path) -> None:
    behind = one_behind(place, max_bytes=10_000)  # of which each epoch takes some 1,500

    def told(holder: str | None = None, **more: Any) -> str:
        head = behind.flow.ledger().head
        assert head is not None
        seen = Glance(head=replace(head, **more), targets=[behind.lacks])
        return condition(Answer(seen), seen, DagFacts(), holder).word

    assert (told(), told("somebody")) == ("target behind", "working")
    behind.fail("no route to host")
    assert (told(), told("somebody")) == ("target at fault", "target at fault")
    while not behind.lacks.full:
        behind.run(MICROS)
    assert told("somebody") == "waits for a target"
    assert told(failed="other rows") == "failed a check"


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (timedelta(0), "0 seconds"),
        (timedelta(seconds=61.9), "1 minute 1 second"),
        (timedelta(days=8, hours=1), "1 week 1 day"),
        (timedelta(hours=5, seconds=3), "5 hours 3 seconds"),
    ],
)
def test_a_duration_in_words(of: timedelta, said: str) -> None:
    assert duration(of.total_seconds()) == said


def test_the_page_of_an_audit_says_that_no_target_was_asked(ask: Callable[..., Any], behind: Behind) -> None:
    page = text_of(settled(ask, "dags/rule.counted/audit"))
    assert "here, only their outboxes were checked" in page
