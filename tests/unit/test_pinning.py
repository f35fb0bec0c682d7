"""Which commits of a sink a reader sees, and by which names; at each bound and one beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.flow import Flow

from floodmark.core.lifecycle.pinning import is_query, is_visible, newest_named, short_names
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.backfills import Restated
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.protocol.recovery import ATTEMPTS, SEAL, app_id, backfill_version

SPAN = Restated(begin=0, end=1, high=1, upto=1)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Head:
    """Generation 2, epoch 3, backfill 1 has ended."""
    rule = Flow(Path(tmp_path_factory.mktemp("flow"))).rule()
    begun = Commit(entry="v1\n{}", watermark=None, maxima={}, heard={}, rule=rule.to_json())
    return Head(1, "", 2, "token", 3, Entry(0, ()), None, {}, rule, begun, backfills={1: SPAN})


def seen(head: Head, version: int, generation: int = 2, token: str | None = None, ledger: str = "mine") -> bool:
    return is_visible([(app_id(ledger, generation, token or head.token, "sink"), version)], "mine", head)


@pytest.mark.parametrize(
    ("version", "stands"),
    [
        (0, True),
        (3 * ATTEMPTS, True),
        (3 * ATTEMPTS + 7, True),
        (4 * ATTEMPTS - 1, False),
        (4 * ATTEMPTS, False),
        (4 * ATTEMPTS + 1, False),
        (backfill_version(3, 0), True),
        (backfill_version(3, 1), True),
        (backfill_version(3, 2), False),
        (backfill_version(2, 1), True),
        (backfill_version(2, 2), False),
        (SEAL, True),
    ],
)
def test_what_the_head_has_committed_is_seen_and_nothing_beyond(head: Head, version: int, stands: bool) -> None:
    assert seen(head, version) is stands


def test_rows_of_generations_before_are_seen_and_of_none_that_is_not_this_one(head: Head) -> None:
    later = 9 * ATTEMPTS
    assert seen(head, later, generation=1, token="older")
    assert not seen(head, 0, generation=2, token="other")
    assert not seen(head, 0, generation=3)
    assert seen(replace(head, generation=3), later)


def test_what_others_write_is_seen_and_one_of_ours_hides_a_commit(head: Head) -> None:
    later = (app_id("mine", 2, "token", "sink"), 4 * ATTEMPTS)
    now = (app_id("mine", 2, "token", "sink"), 3 * ATTEMPTS)
    assert seen(head, 9 * ATTEMPTS, ledger="theirs")
    assert is_visible([], "mine", head) and is_visible([("spark-app", 99)], "mine", head)
    assert is_visible([("spark-app", 99), now], "mine", head)
    assert not is_visible([now, later], "mine", head) and not is_visible([later, now], "mine", head)


def test_a_sink_is_named_by_its_rule_else_by_where_it_lies_else_by_its_place() -> None:
    found = short_names(["/lake/a", "/other/b/", "/lake/c d", "/x/e", "/y/e", "/z/sink9"], {"/y/e": "named"})
    assert found == {
        "a": "/lake/a",
        "b": "/other/b/",
        "sink2": "/lake/c d",
        "e": "/x/e",
        "named": "/y/e",
        "sink5": "/z/sink9",
    }
    assert short_names(["/x/e", "/y/e"], {}) == {"sink0": "/x/e", "sink1": "/y/e"}


READS = ["SELECT 1", "with a as (select 1) select 1", "((VALUES (1)))", "-- x\nSELECT 1", "/* \n */ select 1"]
DOES = ["", "DELETE FROM t", "-- SELECT 1\nDROP TABLE t", "/* SELECT */ DROP TABLE t", "EXPLAIN SELECT 1"]


@pytest.mark.parametrize("sql", READS)
def test_what_only_reads_is_a_query(sql: str) -> None:
    assert is_query(sql)


@pytest.mark.parametrize("sql", DOES)
def test_what_does_more_is_none(sql: str) -> None:
    assert not is_query(sql)


def test_the_newest_write_is_that_of_the_largest_version() -> None:
    bodies = [
        {"a": {"commit": 3}, "b": {"commit": 99}},
        {"a": {"commit": "7"}},
        {"b": {"commit": 1}},
        {"a": {"commit": 5}},
    ]
    assert (newest_named(bodies, "a"), newest_named(bodies, "b"), newest_named(bodies, "c")) == (7, 99, None)
