"""Reading a rule's sinks: all of one committed epoch, whatever else stands in their logs; on real tables, no Spark."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from support.byhand import commit, intent
from support.flow import START, STATELESS, Flow, event
from support.lives import RESULT, an_epoch, by_hand, lived, wrote
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.shared.output import print_json
from floodmark.core.lifecycle.pinning import is_query, short_names
from floodmark.core.protocol.records.rows import Counts, Seal
from floodmark.core.protocol.recovery import ATTEMPTS, SEAL, backfill_version
from floodmark.errors import HistoryGone, Refused
from floodmark.ledger.delta.tables import ADOPTED, ADOPTED_EMPTY, OWNER, table_id
from floodmark.ledger.ledger import Ledger
from floodmark.reading import read

UNTIMED = {"event_time": None, "lateness": None}


@pytest.fixture
def flow(place: Path) -> Flow:
    return Flow(place)


def held(flow: Flow, epoch: int | None = None) -> list[list[int]]:
    """What each sink holds, by the number that `wrote` gives each row: its epoch's."""
    found = read(flow.name, flow.home, epoch)
    return [sorted(sink.arrow()["c"].to_pylist()) for sink in found]


def write_as(sink: str, app_id: str, version: int, value: int) -> None:
    said = CommitProperties(app_transactions=[Transaction(app_id, version)])
    rows = pa.Table.from_pylist([{"k": "x", "c": value}], schema=RESULT)
    write_deltalake(sink, rows, mode="append", commit_properties=said)


def test_an_epoch_that_has_reached_one_sink_and_not_the_other_is_seen_in_neither(flow: Flow) -> None:
    ledger = lived(flow)
    wrote(flow.sink(0), ledger, 2)
    assert held(flow) == [[1], [1]]
    an_epoch(flow, ledger)
    assert [sink[-1] for sink in held(flow)] == [2, 2]


def test_a_reading_stays_as_it_is_while_the_rule_goes_on(flow: Flow) -> None:
    ledger = lived(flow)
    before = read(flow.name, flow.home)
    assert [sink.version for sink in before] == [1, 1]
    an_epoch(flow, ledger)
    assert (before.epoch, before.sql("SELECT max(c) AS c FROM counted_out1").to_pylist()) == (1, [{"c": 1}])
    late = read(flow.name, flow.home)
    an_epoch(flow, ledger)  # the ledger was loaded before the tables are looked at
    assert [sorted(sink.arrow()["c"].to_pylist()) for sink in late] == [[1, 2], [1, 2]]


def test_every_epoch_of_the_generation_can_be_read_in_all_sinks(flow: Flow) -> None:
    ledger = lived(flow)
    for _ in range(3):
        an_epoch(flow, ledger)
    assert [held(flow, epoch) for epoch in range(5)] == [[list(range(1, epoch + 1))] * 2 for epoch in range(5)]
    with pytest.raises(Refused, match="expected an epoch from 0 to 4, the newest of generation 1, found 5"):
        held(flow, 5)


def test_what_others_did_to_a_sink_is_seen_up_to_the_next_epochs_write(flow: Flow) -> None:
    ledger = lived(flow)
    by_hand(flow.sink(0))
    an_epoch(flow, ledger)
    by_hand(flow.sink(0))
    DeltaTable(flow.sink(0)).optimize.compact()
    assert held(flow, 1) == [[0, 1], [1]]
    assert held(flow) == [[0, 0, 1, 2], [1, 2]]
    wrote(flow.sink(0), ledger, 3)
    by_hand(flow.sink(0))
    assert held(flow) == [[0, 0, 1, 2], [1, 2]]


def test_rows_of_an_epoch_that_was_lost_at_qos_0_stay_and_those_of_an_open_backfill_are_not_seen(flow: Flow) -> None:
    ledger = lived(flow)
    assert ledger.head is not None
    own = f"floodmark/{ledger.id}/g1-{ledger.head.token}/sink"
    write_as(flow.sink(1), own, backfill_version(1, 1), 99)
    assert held(flow) == [[1], [1]]
    write_as(flow.sink(0), own, 1 * ATTEMPTS + 7, 1)  # an attempt at the epoch that nobody names, as of a lost one
    assert held(flow) == [[1, 1], [1]]


def test_while_a_reset_empties_the_sinks_they_are_read_as_they_were(flow: Flow) -> None:
    ledger = lived(flow)
    assert ledger.head is not None
    write_as(flow.sink(0), f"floodmark/{ledger.id}/g1-{ledger.head.token}/sink", SEAL, 1)
    ledger.seal(Seal(why="reset", successor=2, token="next", keep_output=False, discarded=None))
    write_deltalake(
        flow.sink(0),
        pa.Table.from_pylist([], schema=RESULT),
        mode="overwrite",
        commit_properties=CommitProperties(app_transactions=[Transaction(f"floodmark/{ledger.id}/g2-next/sink", 0)]),
    )
    assert held(flow) == [[1, 1], [1]]


def test_a_rule_without_a_committed_epoch_has_empty_sinks(flow: Flow) -> None:
    lived(flow)
    found = read(flow.name, flow.home, 0)
    assert [(sink.name, sink.arrow().num_rows) for sink in found] == [("counted_out0", 0), ("counted_out1", 0)]


def test_queries_see_all_sinks_by_the_last_part_of_their_address(flow: Flow) -> None:
    ledger = lived(flow)
    an_epoch(flow, ledger)
    query = "SELECT a.c, count(*) AS n FROM counted_out0 a JOIN counted_out1 b ON a.c = b.c GROUP BY a.c ORDER BY a.c"
    assert read(flow.name, flow.home).sql(query).to_pylist() == [{"c": 1, "n": 1}, {"c": 2, "n": 1}]


def test_sinks_whose_addresses_end_alike_have_their_places_for_names() -> None:
    assert short_names(["/a/out", "/b/out", "s3://x/other/", "/c/my sums", "/c/sink0", "/7"], {}) == {
        "sink0": "/a/out",
        "sink1": "/b/out",
        "other": "s3://x/other/",
        "sink3": "/c/my sums",
        "sink4": "/c/sink0",
        "sink5": "/7",
    }


def test_a_sink_has_the_name_that_its_rule_gives_it_and_no_other_sink_has_it() -> None:
    assert short_names(["/a/out", "/b/other", "/c/last"], {"/b/other": "out"}) == {
        "sink0": "/a/out",
        "out": "/b/other",
        "last": "/c/last",
    }


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("SELECT 1", True),
        ("-- of today\n /* all */ (with a AS (SELECT 1) SELECT * FROM a)", True),
        ("VALUES (1)", True),
        ("INSERT INTO t SELECT 1", False),
        ("COPY t TO '/tmp/x.csv'", False),
        ("CREATE EXTERNAL TABLE e STORED AS CSV LOCATION '/etc/passwd'", False),
        ("-- SELECT\nDROP TABLE t", False),
        ("", False),
    ],
)
def test_only_queries_are_run(text: str, reads: bool) -> None:
    assert is_query(text) is reads


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("COPY counted_out0 TO '{root}/x.csv'", "expected a query"),
        ("SELECT 1; SELECT 2", "the query failed: This feature is not implemented"),
        ("SELECT C FROM counted_out0", "No field named .*Tables: counted_out0 [(]k, c[)], counted_out1"),
        ("SELECT * FROM sink0", "not found. Tables: counted_out0"),
        ("SELECT c / 0 FROM counted_out0", "Divide by zero"),
        ("SELEKT 1", "expected a query"),
        ("WITH a AS (SELECT 1) INSERT INTO counted_out0 SELECT 1", "the query failed"),
    ],
)
def test_what_is_no_query_or_cannot_be_answered_is_refused_with_the_tables(flow: Flow, query: str, said: str) -> None:
    lived(flow)
    with pytest.raises(Refused, match=said):
        read(flow.name, flow.home).sql(query.format(root=flow.root))
    assert not (flow.root / "x.csv").exists()
    assert held(flow) == [[1], [1]]


def test_a_sink_that_is_unknown_and_a_rule_without_a_table_are_refused(flow: Flow) -> None:
    with pytest.raises(Refused, match="rule counted has not run yet"):
        read(flow.name, flow.home)
    flow.sinks = 1
    lived(flow)
    with pytest.raises(Refused, match=r"expected a sink out of counted_out0 \(k, c\), found 'other'"):
        read(flow.name, flow.home)["other"]
    assert read(flow.name, flow.home)[flow.sink(0)].name == "counted_out0"


def test_in_an_environment_the_home_is_not_guessed(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    lived(flow)
    monkeypatch.setenv("FLOODMARK_ENV", "dev")
    monkeypatch.setenv("FLOODMARK_HOME", str(flow.home))
    with pytest.raises(Refused, match=r'expected home=.*names the environment dev.*pass home="home/env-dev"'):
        read(flow.name)
    assert read(flow.name, flow.home).epoch
    monkeypatch.delenv("FLOODMARK_ENV")
    assert read(flow.name).epoch


def test_a_rule_whose_only_sink_is_a_console_has_nothing_to_read(flow: Flow) -> None:
    flow.sinks = 0
    flow.settings = {"sinks": [{"console": True, "qos": 1}], "qos": 1}
    lived(flow)
    with pytest.raises(Refused, match="found none: only Delta tables can be read as of an epoch"):
        list(read(flow.name, flow.home))


def test_an_epoch_whose_files_were_removed_is_gone_and_the_newest_is_not(flow: Flow) -> None:
    ledger = lived(flow)
    table = DeltaTable(flow.sink(1))
    an_epoch(flow, ledger)
    table = DeltaTable(flow.sink(1))
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert held(flow)[1] == [1, 2]
    with pytest.raises(HistoryGone, match=r"counted_out1: version 1, the table's version after epoch 1, is gone"):
        held(flow, 1)


def test_a_log_that_was_cleaned_up_is_told_and_the_newest_can_be_read_as_long_as_nothing_is_under_way(
    flow: Flow,
) -> None:
    ledger = lived(flow)
    by_hand(flow.sink(0))
    by_hand(flow.sink(0))
    DeltaTable(flow.sink(0)).create_checkpoint()
    for version in range(3):
        Path(flow.sink(0), "_delta_log", f"{version:020}.json").unlink()
    assert held(flow)[0] == [0, 0, 1]
    wrote(flow.sink(0), ledger, 2)
    with pytest.raises(HistoryGone, match=r"counted_out0: its log entry 2 is gone.* after epoch 1"):
        held(flow)


def with_another_sink(flow: Flow, adopted: str | None) -> Ledger:
    """A running rule with a third sink, which an epoch has added and not written; its log was cleaned up before."""
    ledger = lived(flow)
    place, head = flow.sink(2), ledger.begun
    by_hand(place, 2)
    by_hand(place)
    if adopted is None:
        DeltaTable(place).delete()
    properties = {OWNER: ledger.id, ADOPTED: adopted or ADOPTED_EMPTY}
    DeltaTable(place).alter.set_table_properties(properties, raise_if_not_exists=False)
    DeltaTable(place).create_checkpoint()
    for version in range(2):
        Path(place, "_delta_log", f"{version:020}.json").unlink()
    flow.sinks = 3
    flow.arrive([event(2)])
    found = intent(flow, 2, None, 0, Counts(read=1, folded=1))
    ledger.intend(found)
    written = {f"sink/{flow.sink(i)}": wrote(flow.sink(i), ledger, head.epoch + 1) for i in range(2)}
    ids = {f"sink/{place}": table_id(DeltaTable(place))}
    ledger.commit(commit(found, output=1).model_copy(update={"tables": written, "table_ids": ids}))
    return ledger


def test_a_sink_that_was_adopted_later_is_read_as_it_was_adopted_until_its_first_row(flow: Flow) -> None:
    ledger = with_another_sink(flow, "1")
    assert held(flow) == [[1, 2], [1, 2], [0, 0, 0]]
    wrote(flow.sink(2), ledger, 3)
    assert held(flow) == [[1, 2], [1, 2], [0, 0, 0]], "of an epoch that is not committed"


def test_a_sink_that_was_taken_over_empty_is_read_as_empty_until_its_first_row(flow: Flow) -> None:
    with_another_sink(flow, None)
    assert held(flow) == [[1, 2], [1, 2], []]


def test_between_two_rebuilds_the_sinks_are_read_though_their_logs_were_cleaned_up(place: Path) -> None:
    """The new generation has begun, and has not replaced their rows yet."""
    flow = Flow(place, sql=STATELESS, settings={"rebuild": True, "epoch": "none"}, stream=UNTIMED)
    ledger = lived(flow)
    an_epoch(flow, ledger)
    for sink in (flow.sink(0), flow.sink(1)):
        DeltaTable(sink).create_checkpoint()
        for version in range(2):
            Path(sink, "_delta_log", f"{version:020}.json").unlink()
    assert ledger.head is not None
    begun_with = ledger.head.begun_with
    ledger.seal(Seal(why="rebuild", successor=2, token="new", keep_output=False, discarded=None))
    assert held(flow) == [[1, 2], [1, 2]]
    ledger.begin(2, "new", begun_with)
    assert held(flow) == [[1, 2], [1, 2]]


def test_a_table_that_was_removed_or_made_anew_is_not_the_sink_that_the_ledger_knows(flow: Flow) -> None:
    lived(flow)
    shutil.rmtree(flow.sink(1))
    with pytest.raises(HistoryGone, match="no longer exists"):
        held(flow)
    by_hand(flow.sink(1))
    with pytest.raises(HistoryGone, match="recreated or cloned"):
        held(flow)


def call(flow: Flow, *words: str, code: int = 0) -> str:
    places = {"FLOODMARK_RULES": str(flow.root / "rules"), "FLOODMARK_HOME": str(flow.home), "COLUMNS": "200"}
    found = CliRunner().invoke(app, ["sql", *words], env=places)
    assert found.exit_code == code, found.output
    return found.output


def test_the_command_prints_a_table_json_or_csv(flow: Flow) -> None:
    ledger: Ledger = lived(flow)
    an_epoch(flow, ledger)
    query = "SELECT c, k, TIMESTAMP '2001-01-01 00:00:00' AS at FROM counted_out0 ORDER BY c"
    assert call(flow, "counted", query).splitlines()[0] == "counted at epoch 2: 2 rows"
    document: dict[str, Any] = json.loads(call(flow, "counted", query, "--json", "--epoch", "1"))
    assert (document["epoch"], document["rows"]) == (1, [[1, "a", "2001-01-01T00:00:00"]])
    assert [column["name"] for column in document["columns"]] == ["c", "k", "at"]
    assert [table["version"] for table in document["tables"]] == [1, 1]
    rows = list(csv.reader(io.StringIO(call(flow, "counted", query, "--csv"))))
    assert rows == [["c", "k", "at"], ["1", "a", "2001-01-01T00:00:00"], ["2", "a", "2001-01-01T00:00:00"]]


def test_the_command_lists_the_sinks_and_reads_a_rule_whose_file_is_gone(flow: Flow) -> None:
    lived(flow)
    shutil.rmtree(flow.root / "rules")
    listed = json.loads(call(flow, "counted", "--json"))
    assert [(table["name"], table["columns"]) for table in listed["tables"]] == [
        ("counted_out0", {"k": "string", "c": "long"}),
        ("counted_out1", {"k": "string", "c": "long"}),
    ]
    assert "counted_out1" in call(flow, "counted")


def test_many_rows_are_cut_for_people_and_not_for_programs(flow: Flow) -> None:
    lived(flow)
    query = "SELECT * FROM generate_series(1, 150)"
    assert "… and 50 more" in call(flow, "counted", query)
    assert len(call(flow, "counted", query, "--csv").splitlines()) == 151


def test_the_commands_mistakes_are_refused(flow: Flow) -> None:
    flow.write_rule()
    assert "no rule 'count' in" in call(flow, "count", code=2)
    assert "rule counted has not run yet" in call(flow, "counted", code=2)
    lived(flow)
    assert "expected --csv or --json, found both" in call(flow, "counted", "--csv", "--json", code=2)
    assert "expected an epoch from 0 to 1" in call(flow, "counted", "--epoch", "9", code=2)


def test_a_document_is_json_whatever_numbers_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[1.5, math.nan], [math.inf, -math.inf], [None, "NaN"]]
    print_json({"rows": rows, "at": START})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["rows"] == [[1.5, "NaN"], ["Infinity", "-Infinity"], [None, "NaN"]]
    assert (found["format"], found["at"]) == (1, str(START))
