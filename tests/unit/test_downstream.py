"""What becomes of rules that read another one's sinks: said before it is done, and found out where it was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake
from support.byhand import folded
from support.flow import SCHEMA, STATELESS, Flow, event
from support.lives import RESULT, lived
from test_lives import call, facts

from floodmark.connectors.backlog.news import look
from floodmark.connectors.planning.rewrites import answered, rewrites
from floodmark.connectors.ports.registry import sources
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.rows import Commit
from floodmark.core.rules.rule import load_rules
from floodmark.errors import HistoryGone, NotThereYet
from floodmark.ledger.ledger import Ledger
from floodmark.views.rules.cascade import after_reset
from floodmark.views.rules.graph import graph
from floodmark.views.status.rulestatus import rule_status

NO_TIME = {"delta": None, "event_time": None, "lateness": None}


@pytest.fixture
def chain(place: Path) -> Flow:
    """A rule that has run; one reads its first sink by its name, one that one's; a third looks rows up in the first."""
    place = place.resolve()
    flow = Flow(place)
    lived(flow)
    Flow(place, "second", "SELECT k, c FROM events", stream={**NO_TIME, "rule": "counted", "sink": "counted_out0"},
         sinks=1).write_rule()  # fmt: skip
    Flow(place, "third", "SELECT k, c FROM events", stream={**NO_TIME, "delta": f"{place}/lake/second_out0"},
         sinks=1).write_rule()  # fmt: skip
    Flow(place, "names", "SELECT events.k FROM events JOIN n ON events.k = n.k", sinks=1,
         settings={"lookups": {"n": {"delta": flow.sink(0)}}}).write_rule()  # fmt: skip
    return flow


RESET = """\
  rule names reads counted_out0 (lookup n): it finds no rows until this rule has processed its input again
  rule second reads counted_out0 (stream events): rows that it has read are removed, so its next run stops: reset it \
after this rule
  rule third reads second_out0 of second (stream events): its own `on_rewrite` says what it does, once that rule was \
reset or has corrected its results
"""


def test_a_reset_says_what_becomes_of_each_rule_behind_it(chain: Flow) -> None:
    assert RESET in call(chain, "reset", "counted", "--dry-run")
    found = facts(chain, "reset", "counted", "--dry-run")["downstream"]
    assert [(one["rule"], one["kind"], one["named"], one["after"]) for one in found] == [
        ("names", "lookup", False, None),
        ("second", "stream", True, None),
        ("third", "stream", False, "second"),
    ]


def test_each_reader_of_a_rule_that_is_reset_does_what_its_file_says(place: Path) -> None:
    timed, wide = {"on_rewrite": "correct"}, {"on_rewrite": "correct", "lateness": None}
    skips = Flow(place, stream={"on_rewrite": "skip"}).rule()
    assert "its next run stops: reset it after this rule" in after_reset(Flow(place).rule(), "events")
    assert "stops: reset it after the next run of" in after_reset(Flow(place, stream=timed).rule(), "events")
    follows = Flow(place, sql=STATELESS, stream=wide).rule()
    assert "its next runs correct its results" in after_reset(follows, "events")
    assert "all new results come on top" in after_reset(skips, "events")
    rebuilt = Flow(place, sinks=1, settings={"rebuild": True, "epoch": "none"}).rule()
    assert "its next run computes all of it again" in after_reset(rebuilt, "events")


def test_so_do_a_retirement_and_a_drop(chain: Flow) -> None:
    said = call(chain, "retire", "counted", "--dry-run")
    assert "rule second reads" in said and "rule third reads" in said and "it gets no new rows" in said
    call(chain, "retire", "counted", "--yes")
    assert "its next run finds no table there" in call(chain, "drop", "counted", "--sinks", "--dry-run")


def test_a_backfill_asks_where_others_have_folded_its_results(chain: Flow) -> None:
    times = ("--from", "2001-01-01T00:00Z", "--to", "2001-01-01T00:01Z")
    ledger = Ledger.open(chain.place.ledger, "by hand")
    folded(chain, ledger, 2, 0, 2_000_000_000_000_000)
    said = call(chain, "backfill", "counted", *times, code=2)
    assert "backfill asks for confirmation before it replaces rows that other rules have processed, and there" in said
    assert "rule second reads" in said and "reset it after this backfill" in said


def test_a_rename_names_the_files_that_name_the_rule(chain: Flow) -> None:
    found = facts(chain, "rename", "counted", "other", "--dry-run")["next"]
    assert found[0].startswith("rename ")
    assert found[1:] == [
        "write `rule: other` for stream events in the file of rule second, which reads counted by name"
    ]


def test_the_graph_is_a_tree_for_people_and_edges_for_programs(chain: Flow) -> None:
    assert call(chain, "list", "--graph").splitlines() == [
        "counted, reads counted_events [manually]",
        "├── names, as lookup n, reads names_events [manually]",
        "└── second, as stream events [manually]",
        "    └── third, as stream events [manually]",
    ]
    found = facts(chain, "list", "--graph")
    assert [(one["from"], one["to"], one["kind"], one["named"]) for one in found["edges"]] == [
        ("counted", "names", "lookup", False),
        ("counted", "second", "stream", True),
        ("second", "third", "stream", False),
    ]


def test_a_table_that_the_other_rule_has_yet_to_make_is_told_with_that_rule(place: Path) -> None:
    Flow(place, "first", STATELESS, sinks=1).write_rule()
    second = Flow(place, "second", STATELESS, stream={**NO_TIME, "rule": "first"}, sinks=1)
    with pytest.raises(NotThereYet, match="Rule first creates it: run that rule first"):
        look(second.rule(), second.home)


def test_rules_that_feed_each_other_in_turn_end(place: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        Flow(place, name, STATELESS, stream={"delta": f"{place}/lake/{other}_out0"}, sinks=1).write_rule()
    Flow(place, "c", STATELESS, stream={"delta": f"{place}/lake/a_out0"}, sinks=1).write_rule()
    rules, _ = load_rules(place / "rules", {})
    assert list(graph(rules.values()).lines()) == [
        "a [manually]",
        "├── b, as stream events [manually]",
        "│   └── a, as stream events (see above)",
        "└── c, as stream events [manually]",
    ]


SAID: list[tuple[dict[str, Any], str]] = [
    ({"app": "floodmark/x/g2-t/sink", "intent": "empty"}, "rule counted was reset"),
    ({"app": "floodmark/x/g1-t/sink", "backfill": 3}, "replaced the results of an interval, in its backfill 3"),
    (
        {"app": "floodmark/x/g1-t/sink"},
        "rule counted upserts rows by key, or replaces all of them in each run. If this rule needs only the newest",
    ),
    ({}, "something other than a rule did"),
]


@pytest.mark.parametrize(("said", "words"), SAID, ids=["reset", "backfill", "merged", "others"])
def test_rows_that_were_taken_away_stop_who_has_read_them_before_spark_starts(
    chain: Flow, said: dict[str, Any], words: str
) -> None:
    reader = Flow(
        chain.root, "reader", "SELECT k, c FROM events", stream={**NO_TIME, "rule": "counted", "sink": "counted_out0"}
    )
    _folded_all(reader)
    assert look(reader.rule(), reader.home).why is None
    rows = pa.Table.from_pylist([], schema=RESULT)
    write_deltalake(
        chain.sink(0), rows, mode="overwrite", commit_properties=CommitProperties({"userMetadata": json.dumps(said)})
    )
    with pytest.raises(HistoryGone, match="start over from the table's current content") as fault:
        look(reader.rule(), reader.home)
    assert words in str(fault.value)
    assert words in str(rule_status(reader.rule(), reader.home).lag["events"])


@pytest.mark.parametrize(
    ("lateness", "said", "stops"),
    [("1 minute", SAID[0][0], True), (None, SAID[0][0], False), ("1 minute", SAID[1][0], False)],
    ids=["reset", "reset-never-late", "backfill"],
)
def test_a_reset_is_not_corrected_where_its_new_results_would_be_late(
    place: Path, lateness: str | None, said: dict[str, Any], stops: bool
) -> None:
    """They lie below the watermark of the rule that has read the old ones."""
    reader = Flow(place, sql=STATELESS, stream={"on_rewrite": "correct", "lateness": lateness})
    reader.arrive([event(1, "a")])
    _folded_all(reader)
    write_deltalake(
        reader.source,
        pa.Table.from_pylist([], schema=SCHEMA),
        mode="overwrite",
        commit_properties=CommitProperties({"userMetadata": json.dumps(said)}),
    )
    rule, head = reader.rule(), reader.ledger().begun
    if not stops:
        assert look(rule, reader.home).why is not None
        assert [*rewrites(rule, reader.place, head)] == ["events"]
        return
    late = r"version 1 .*was reset.*`lateness` makes them late.*First run that rule, then start this"
    for ask in (lambda: look(rule, reader.home), lambda: rewrites(rule, reader.place, head)):
        with pytest.raises(HistoryGone, match=late):
            ask()
    stopped = Flow(place, sql=STATELESS, stream={"on_rewrite": "stop", "lateness": lateness}).rule()
    with pytest.raises(HistoryGone, match=late):
        answered(stopped, reader.place, head, "correct")
    assert answered(stopped, reader.place, head, "skip").streams["events"].on_rewrite == "skip"


def _folded_all(reader: Flow) -> None:
    """A ledger that has read all that the table holds."""
    rule = reader.rule()
    entry = Entry(0, tuple(source.end() for source in sources(rule, reader.place).values())).text()
    begin = Commit(entry=entry, watermark=None, maxima={"events": None}, rule=rule.to_json())
    Ledger.open(reader.place.ledger, "by hand").begin(1, "token", begin)
