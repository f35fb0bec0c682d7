"""Every rule, query and test case that a page shows is run by the engine, over rows that fit it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from support.shown import write_rule
from support.snippets import Snippet, snippets

from floodmark.core.rules.rule import Rule, load_rule
from floodmark.spark.rule.run import RuleRun
from floodmark.testing import cases, check

pytestmark = pytest.mark.prove
AT, PAID = datetime(2001, 1, 1, tzinfo=UTC), datetime(2001, 1, 1, 0, 5, tzinfo=UTC)
# A row of each table that a page's rules read, by the last part of its address.
ROWS: dict[str, dict[str, Any]] = {
    "flights": {
        "date": AT, "origin": "SFO", "delay": 10.0, "distance": 300.0, "batch": "load-0413",
        "order_id": "a", "status": "paid", "amount": 1.0, "updated_at": AT,
        "carrier": "AA", "flight": "AA1", "gate": "B4",
    },
    "accounts": {"id": "a", "balance": 1.0},
    "order_changes": {"order_id": "a", "status": "paid", "amount": 1.0, "updated_at": AT},
    "flights_raw": {
        "ts_ms": 978307200000, "origin": "SFO", "delay": 10.0, "order_id": "a", "status": "paid", "updated_at": AT,
    },
    "events": {"at": AT, "kind": "a"},
    "events_raw": {"at": AT, "topic": "t", "partition": 1, "offset": 7},
    "clicks": {"id": "a", "at": AT, "page": "cart"},
    "orders": {
        "id": "a", "at": AT, "placed": AT, "country": "DE", "amount": 1.0, "order_id": "a", "status": "paid",
        "updated_at": AT,
    },
    "payments": {"id": "a", "paid": PAID},
    "airports": {"iata": "SFO", "city": "San Francisco"},
    "readings": {"device": "a", "at": AT, "value": 1.0, "state": "on"},
    "views": {"at": AT, "page": "cart", "ms": 120},
    "departure_delays": {"hour": AT, "origin": "SFO", "flights": 1, "mean_delay": 10.0},
    "slow_pages": {"since": AT, "page": "cart", "views": 2, "slowest": 480},
}  # fmt: skip
# Streams of other kinds than tables are read in tests of their own, beside their servers.
OTHERS = re.compile(r"^    (kafka|files|python|postgres|iceberg):", re.MULTILINE)
FED = {"delta.enableChangeDataFeed": "true"}  # for pages whose rules read changes
RULES = [one for one in snippets("yaml", "sql") if "\ncases:" not in one.text and not OTHERS.search(one.text)]
HEAT = {
    "rule": "heat",
    "streams": {"readings": {"delta": "lake/readings", "event_time": "at", "lateness": "1 minute"}},
    "sql": "SELECT window.start AS minute, device, count(*) AS n FROM readings GROUP BY window(at, '1 minute'), device",
    "sinks": [{"delta": "lake/heat"}],
}


@pytest.mark.parametrize("one", RULES, ids=str)
def test_a_rule_that_is_shown_processes_a_row(one: Snippet, spark: SparkSession, place: Path) -> None:
    (place / "rules").mkdir()
    path = write_rule(one, place / "rules")
    rule = load_rule(path, {"LAKE": str(place / "lake")})
    arrive(rule)
    head = RuleRun(spark, rule, place / "home", "test", lambda _: None).run().head
    assert head is not None and (head.epoch, head.open) == (1, None)


def arrive(rule: Rule) -> None:
    for address in {one.address for one in [*rule.streams.values(), *rule.lookups.values()]}:
        Path(address).parent.mkdir(exist_ok=True)
        write_deltalake(address, pa.Table.from_pylist([ROWS[Path(address).name]]), configuration=FED)


def test_the_cases_that_are_shown_pass(place: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    """Those of the page of test cases, for a rule that counts readings. The tutorial's are run with the tutorial."""
    (shown,) = (one for one in snippets("yaml") if "\ncases:" in one.text and one.page.name == "test.md")
    (place / "rules" / "tests").mkdir(parents=True)
    (place / "rules" / "heat.yaml").write_text(yaml.safe_dump(HEAT))
    (place / "rules" / "tests" / "heat.yaml").write_text(shown.text)
    monkeypatch.chdir(place)
    (case,) = cases("rules")
    check(case, spark)
