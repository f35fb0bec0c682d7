"""Rules that each run rebuilds: when a run is due, what is refused, and what is told of them. Without Spark."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake
from support.aged import age
from support.byhand import begun, commit, intent
from support.flow import RUNNING, Flow, event
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.connectors.backlog import news
from floodmark.connectors.backlog.news import check_reached, look
from floodmark.connectors.backlog.retention import limits
from floodmark.connectors.delta.lookups import log_sums, pinned_now
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.preflight import check_without_jvm, has_lost_input
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.protocol.records.rows import Counts
from floodmark.core.rules.rule import load_rule
from floodmark.errors import NotOwned, RuleChanged, RuleInvalid, RunFailed
from floodmark.ledger.delta import datafiles
from floodmark.ledger.ledger import Ledger
from floodmark.views.contents.statetables import state_tables
from floodmark.views.statewords import describe_state
from floodmark.views.status.rulestatus import lag_by_stream

REBUILT = {"epoch": "none", "rebuild": True}


@pytest.fixture
def flow(place: Path) -> Flow:
    """A rule that was rebuilt once, from all that its source held then."""
    found = Flow(place, settings=dict(REBUILT))
    ledger = begun(found)
    assert look(found.rule(), found.home).why == "the sinks have yet to be filled"
    epoch = intent(found, 1, None, 0, Counts(read=1, folded=1))
    ledger.intend(epoch)
    ledger.commit(commit(epoch))
    return found


def why(flow: Flow) -> str | None:
    return look(flow.rule(), flow.home).why


def test_a_run_is_due_where_the_sinks_would_hold_something_else(flow: Flow) -> None:
    assert why(flow) is None
    flow.settings |= {"description": "x", "cleanup": {"every": "2 hours"}, "schedule": "@daily"}
    assert why(flow) is None, "nothing of that has a part in results"
    flow.sql = flow.sql.replace("count(*)", "count(*) + 1")
    assert why(flow) == "the rule was changed"


@pytest.mark.parametrize(
    ("settings", "due"),
    [
        ({"spark": {"conf": {"spark.sql.ansi.enabled": False}}}, True),
        ({"timezone": "Europe/Warsaw"}, True),
        ({"spark": {"conf": {"spark.sql.ansi.enabled": True, "spark.executor.memory": "1g"}}}, False),
        ({"spark": {"shuffle_partitions": 8, "driver_memory": "1g"}}, False),
    ],
)
def test_of_sparks_settings_those_count_that_change_what_sql_says(
    flow: Flow, settings: dict[str, object], due: bool
) -> None:
    flow.settings |= settings
    assert why(flow) == ("the rule was changed" if due else None)


@pytest.mark.parametrize("checks", [0, 1, 2])
def test_a_run_that_has_begun_since_is_no_fault_of_the_one_that_ended(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, checks: int
) -> None:
    """`checks`: at how many looks at the lock somebody holds it."""
    seen = {"events": sources(flow.rule(), flow.place)["events"].end()}
    flow.arrive([event(2)])
    flow.ledger()
    Ledger.open(flow.place.ledger, "another").intend(intent(flow, 2, None, 0, Counts(read=1, folded=1)))
    answers = iter([None, None] if not checks else [7] if checks == 1 else [None, 7])
    monkeypatch.setattr(news, "holder_pid", lambda lock: next(answers))
    if checks:
        assert check_reached(flow.rule(), flow.home, seen) == 1
    else:
        with pytest.raises(RunFailed, match="epoch 2 is open"):
            check_reached(flow.rule(), flow.home, seen)


def test_an_open_rebuild_has_lost_its_input_once_the_source_was_made_anew(flow: Flow) -> None:
    flow.arrive([event(2)])
    ledger = Ledger.open(flow.place.ledger, "another")
    ledger.intend(intent(flow, 2, None, 0, Counts(read=1, folded=1)))
    flow.arrive([event(3)])
    assert not has_lost_input(flow.rule(), flow.place, ledger.begun)
    shutil.rmtree(flow.source)
    flow.arrive([event(4)])
    assert has_lost_input(flow.rule(), flow.place, ledger.begun)


def test_a_run_is_due_for_any_source_that_is_another_now(flow: Flow) -> None:
    flow.arrive([event(2)])
    assert why(flow) == "new data in events"
    with pytest.raises(RunFailed, match="has not reached the end of events"):
        check_reached(flow.rule(), flow.home, {"events": sources(flow.rule(), flow.place)["events"].end()})
    shutil.rmtree(flow.source)
    flow.arrive([event(3)])
    assert why(flow) == "new data in events", "a table that was made anew is read anew"


def test_a_run_is_due_for_a_source_that_was_put_back_and_written_to_since(flow: Flow) -> None:
    entry = Path(flow.source, "_delta_log", f"{0:020}.json")
    assert why(flow) is None
    entry.write_text(entry.read_text() + "\n")
    assert why(flow) == "new data in events"


def test_a_run_is_due_where_streams_came_went_or_have_other_places(flow: Flow) -> None:
    """The file names them; the offsets are of those that the last run read."""
    other = Flow(flow.root, "more")
    other.arrive([event(1), event(2)])
    text, both = flow.text(), flow.root / "rules" / "counted.yaml"
    more = {**text["streams"]["events"], "delta": other.source}
    text["sql"] = "SELECT at, k FROM events UNION ALL SELECT at, k FROM more"
    for streams in ({**text["streams"], "more": more}, {"more": more, **text["streams"]}):
        both.write_text(yaml.safe_dump({**text, "streams": streams}, sort_keys=False))
        found = look(load_rule(both, os.environ), flow.home)
        assert (found.why, found.backlog) == ("the rule was changed", datafiles.size_of(DeltaTable(other.source)))
    text["streams"], text["sql"] = {"more": more}, "SELECT at, k FROM more"
    both.write_text(yaml.safe_dump(text, sort_keys=False))
    assert look(load_rule(both, os.environ), flow.home).backlog == datafiles.size_of(DeltaTable(other.source))


def test_an_open_epoch_is_finished_before_a_file_with_more_streams_is_looked_at(place: Path) -> None:
    flow = Flow(place)
    begun(flow).intend(intent(flow, 1, None, 0, Counts(read=1, folded=1)))
    text = flow.text()
    text["streams"] |= {"more": dict(text["streams"]["events"])}
    text["sql"] = "SELECT at, k FROM events UNION ALL SELECT at, k FROM more"
    path = flow.write_rule()
    path.write_text(yaml.safe_dump(text, sort_keys=False))
    assert look(load_rule(path, os.environ), flow.home).why == "epoch 1 is open"


def looking(flow: Flow, sums: bool = True) -> Flow:
    """A rule that was rebuilt once, with a lookup table. sums: the ledger has its log sum, as older ones do not."""
    other = Flow(flow.root, "looking", sql="SELECT e.at, e.k FROM events e JOIN t ON e.k = t.k")
    other.settings = {**REBUILT, "lookups": {"t": {"delta": flow.source}}}
    ledger, pinned = begun(other), pinned_now(other.rule())
    epoch = intent(other, 1, None, 0, Counts(read=1, folded=1))
    more = {name: one for name, one in log_sums(other.rule(), pinned).items() if one and sums}
    epoch = epoch.model_copy(update={"lookups": pinned, "log_sums": {**epoch.log_sums, **more}})
    ledger.intend(epoch)
    ledger.commit(commit(epoch))
    return other


@pytest.mark.parametrize("sums", [True, False])
def test_a_run_is_due_where_an_older_copy_of_a_lookup_table_has_grown_back(flow: Flow, sums: bool) -> None:
    """It has the same id, and no version that is newer than the one that was read."""
    shutil.copytree(flow.source, flow.root / "copy")
    flow.arrive([event(7)])
    other = looking(flow, sums)
    assert why(other) is None
    shutil.rmtree(flow.source)
    shutil.copytree(flow.root / "copy", flow.source)
    flow.arrive([event(8)])
    assert why(other) == ("lookup table t was changed" if sums else None)


def test_a_run_is_due_where_a_lookup_table_holds_other_rows(flow: Flow) -> None:
    """It has a part in every answer; a commit that leaves its rows as they were is no news."""
    other = looking(flow)
    assert why(other) is None
    DeltaTable(flow.source).alter.set_table_properties({"delta.logRetentionDuration": "interval 40 days"})
    assert why(other) is None
    flow.arrive([event(7)])
    assert why(other) == "lookup table t was changed"


def test_its_input_may_have_lost_rows_and_its_freshness_is_no_reason_to_run(flow: Flow) -> None:
    flow.settings |= {"freshness": {"max_lag": "1 hour"}}
    assert why(flow) is None
    flow.arrive([event(2)])
    DeltaTable(flow.source).delete()
    assert why(flow) == "new data in events"
    lag = lag_by_stream(flow.rule(), flow.place, flow.ledger().head)["events"]
    assert not isinstance(lag, str) and (lag.amount, lag.unit) == (2, "commits")


def test_results_that_are_dropped_are_in_no_table_from_then_on(place: Path) -> None:
    """Where results take the place of earlier ones a drop is refused; but not where all go in each run."""
    flow = Flow(
        place, sql=RUNNING, settings={"unbounded": True, "expect": {"some": {"check": "c > 0", "on_fail": "drop"}}}
    )
    with pytest.raises(RuleInvalid, match="replaces the previous one"):
        flow.rule()
    flow.settings |= REBUILT
    assert flow.rule().rebuild


def test_a_source_may_forget_what_a_rebuild_reads_anew(flow: Flow) -> None:
    flow.arrive([event(2)])
    age(flow.source, 40)
    head = flow.ledger().head
    assert head is not None
    assert limits(flow.rule(), flow.place, head) == {}


def test_what_hangs_on_earlier_epochs_is_refused(flow: Flow) -> None:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    for words, said in (
        (["dead", "replay", "counted"], "its dead rows needs no action"),
        (
            ["backfill", "counted", "--from", "2001-01-01T00:00Z", "--to", "2001-01-02T00:00Z"],
            "recomputes all of it",
        ),
        (["prove", "counted"], "rebuilds the rule in one epoch"),
    ):
        found = CliRunner().invoke(app, words, env={**os.environ, **places})
        assert found.exit_code == 2 and said in found.output.replace("\n", " "), found.output


def test_an_adopted_sink_is_refused_before_its_first_run_and_not_adopted_at_all(place: Path) -> None:
    """The first run, and one after a killed reset, find a generation that has begun: they replace all rows, too."""
    theirs = Flow(place, sinks=1)
    theirs.arrive([event(1)])
    write_deltalake(theirs.sink(), pa.table({"c": [1]}))
    places = {"FLOODMARK_RULES": str(theirs.write_rule().parent), "FLOODMARK_HOME": str(theirs.home)}
    words = ["adopt", "counted", theirs.sink(), "--yes"]
    theirs.settings = dict(REBUILT)
    theirs.write_rule()
    refused = CliRunner().invoke(app, words, env={**os.environ, **places})
    assert refused.exit_code == 2 and "replaces all of its rows" in refused.output.replace("\n", " "), refused.output
    theirs.settings = {}
    theirs.write_rule()
    assert CliRunner().invoke(app, words, env={**os.environ, **places}).exit_code == 0
    check_without_jvm(theirs.rule(), theirs.home)
    theirs.settings = dict(REBUILT)
    with pytest.raises(NotOwned, match="adopted with rows that are not the rule's"):
        check_without_jvm(theirs.rule(), theirs.home)


def test_it_keeps_nothing_and_says_so(flow: Flow) -> None:
    rule = flow.rule()
    assert state_tables(rule) == ()
    assert next(iter(describe_state(rule))).startswith("nothing is stored: each run reads the whole input again")
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home)}
    for words in (["status", "counted"], ["plan", "counted"], ["state", "counted"]):
        found = CliRunner().invoke(app, words, env={**os.environ, **places})
        assert found.exit_code == 0, found.output


def test_a_sink_that_only_grows_cannot_be_replaced_by_each_run(flow: Flow) -> None:
    flow.settings["sinks"] = [{"delta": flow.sink(), "properties": {"delta.appendOnly": True}}]
    with pytest.raises(RuleInvalid, match=r"expected no delta\.appendOnly in a rule that each run rebuilds"):
        flow.rule()


def test_the_way_back_to_epochs_is_a_reset(flow: Flow) -> None:
    rebuilt, flow.settings = flow.rule(), {}
    with pytest.raises(RuleChanged, match="changed rebuild"):
        check_edit(rebuilt, flow.rule())
