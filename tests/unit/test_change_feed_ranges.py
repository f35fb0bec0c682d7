"""`changes: true` without Spark: the rule's keys, and what is asked of a change feed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.flow import SCHEMA, event

from floodmark.connectors.delta.changes import ChangesSource
from floodmark.connectors.delta.offsets import DeltaOffset
from floodmark.connectors.ports.registry import source
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.rules.kinds import stream_can
from floodmark.core.rules.rule import EpochLimits, Rule, Stream, load_rule
from floodmark.errors import HistoryGone, Refused, RuleChanged, RuleInvalid, WrongColumn
from floodmark.ledger.delta import tables

RULE = """\
rule: counted
streams: {events: {delta: /lake/in, changes: true}}
sql: SELECT k, n, _change FROM events
sinks: [{delta: /lake/out}]
"""


@pytest.fixture
def load(place: Path) -> Callable[[str], Rule]:
    def loaded(text: str) -> Rule:
        (place / "counted.yaml").write_text(text)
        return load_rule(place / "counted.yaml", {})

    return loaded


def test_a_feed_is_planned_in_whole_versions_and_its_rewrites_are_rows(load: Callable[[str], Rule]) -> None:
    can = stream_can(load(RULE).streams["events"])
    assert can.rereads and can.table and not can.planned and not can.rewrites
    landed = stream_can(load(RULE.replace("true", "true, landing: true")).streams["events"])
    assert landed.planned and not landed.rewrites


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("true", "true, on_rewrite: correct", "2: streams.events.on_rewrite: expected none beside `changes: true`"),
        ("true", "1", "2: streams.events.changes: expected true or false"),
        ("delta: /lake/in", "files: {path: /lake/in, format: text}", "2: streams.events.changes: expected it beside"),
    ],
)
def test_what_does_not_fit_a_feed_is_refused(load: Callable[[str], Rule], old: str, new: str, problem: str) -> None:
    with pytest.raises(RuleInvalid) as fault:
        load(RULE.replace(old, new, 1))
    assert problem in str(fault.value)


def test_to_read_a_feed_is_an_edit_that_needs_a_reset(load: Callable[[str], Rule]) -> None:
    fed, plain = load(RULE), load(RULE.replace(", changes: true", "").replace(", _change", ""))
    assert "changes" not in plain.to_json(), "as in old ledgers"
    for old, new in ((fed, plain), (plain, fed)):
        with pytest.raises(RuleChanged, match="changed streams"):
            check_edit(old, new)


class Feed:
    """A table with a feed since its first version."""

    def __init__(self, place: Path, **more: Any):
        self.address = str(place / "events")
        self.stream = Stream(kind="delta", address=self.address, changes=True, **more)

    def add(self, *numbers: int, feed: str | None = "true") -> None:
        rows = pa.Table.from_pylist([event(n, n=n) for n in numbers], schema=SCHEMA)
        settings = {"delta.enableChangeDataFeed": feed} if feed and not Path(self.address).exists() else None
        write_deltalake(self.address, rows, mode="append", configuration=settings)

    def remove(self, n: int) -> None:
        DeltaTable(self.address).delete(f"n = {n}")

    @property
    def source(self) -> ChangesSource:
        found = source("events", self.stream, None)
        assert isinstance(found, ChangesSource)
        return found

    def at(self, version: int, snapshot: bool = False) -> str:
        line = DeltaOffset(tables.table_id(DeltaTable(self.address)), version, -1, snapshot).line()
        return json.dumps(json.loads(line))  # as Spark writes it again


@pytest.fixture
def feed(place: Path) -> Feed:
    found = Feed(place)
    found.add(1, 2)
    return found


def test_it_has_the_tables_columns_and_what_was_done(feed: Feed) -> None:
    assert [*feed.source.columns()] == ["at", "k", "v", "n", "_change", "_version", "_committed"]


def test_a_table_without_a_feed_or_with_columns_of_these_names_is_refused(place: Path) -> None:
    plain = Feed(place)
    plain.add(1, feed=None)
    with pytest.raises(Refused, match=r"expected a table with a change feed.*ALTER TABLE delta\.`.*` SET "):
        plain.source.columns()
    taken = pa.table({"_VERSION": [1], "n": [1]})
    write_deltalake(place / "taken", taken, configuration={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(WrongColumn, match=r"expected no column _VERSION in a table with `changes: true`"):
        source("events", Stream(kind="delta", address=str(place / "taken"), changes=True), None).columns()


def test_removed_rows_are_news_and_stop_nothing(feed: Feed) -> None:
    known = feed.source.end()
    assert feed.source.start() == feed.at(0, snapshot=True) and known == feed.at(1)
    feed.remove(1)
    feed.source.check_appended(known)
    assert feed.source.news(known) and feed.source.backlog(known).amount == 1
    assert feed.source.rewrite(known) is None


@pytest.mark.parametrize(
    ("limits", "ends"),
    [
        (EpochLimits(), [1, 4]),
        (EpochLimits(max_files=1), [1, 2, 3, 4]),
        (EpochLimits(max_files=2), [1, 3, 4]),
        (EpochLimits(max_bytes=1), [1, 2, 3, 4]),
    ],
)
def test_epochs_end_behind_whole_versions(feed: Feed, limits: EpochLimits, ends: list[int]) -> None:
    line, found = feed.source.start(), list[str]()
    for n in (3, 4, 5):
        feed.add(n)
    end = feed.source.end()
    while line != end:
        line = feed.source.after(line, end, limits)
        found.append(line)
    assert found == [feed.at(version) for version in ends]


def test_changes_whose_files_are_gone_are_named(feed: Feed) -> None:
    feed.remove(1)
    for file in Path(feed.address, "_change_data").rglob("*.parquet"):
        file.unlink()
    with pytest.raises(HistoryGone, match=r"expected the changes of version 1, found no file _change_data.*VACUUM"):
        feed.source.check_appended(feed.at(1))
    feed.source.check_appended(feed.at(2))


def test_changes_of_a_version_without_a_feed_are_named(feed: Feed) -> None:
    """The feed is off for one version, and on again: Delta has no feed of any range with that version."""
    for value, n in (("false", 3), ("true", 4)):
        DeltaTable(feed.address).alter.set_table_properties({"delta.enableChangeDataFeed": value})
        feed.add(n)
    with pytest.raises(HistoryGone, match=r"expected the changes of version 2, found none: the table had no .* feed"):
        feed.source.check_appended(feed.at(1))
    feed.source.check_appended(feed.at(3))


def test_the_files_of_a_delete_without_feed_files_are_needed(feed: Feed) -> None:
    """A commit that removes whole files has its changes in these files alone."""
    (file,) = DeltaTable(feed.address).file_uris()
    DeltaTable(feed.address).delete()
    Path(file.removeprefix("file://")).unlink()
    for one in (
        Path(feed.address, "_change_data").rglob("*.parquet") if Path(feed.address, "_change_data").exists() else ()
    ):
        one.unlink()
    with pytest.raises(HistoryGone, match=r"expected the changes of version 1, found no file"):
        feed.source.check_appended(feed.at(1))
