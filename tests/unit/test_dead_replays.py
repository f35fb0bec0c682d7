"""Which dead rows a replay reads, and what it may be asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from support.byhand import begun, commit, intent, set_apart
from support.flow import Flow
from typer.testing import CliRunner

from floodmark.cli.app import app
from floodmark.cli.commands import replay as cli_replay
from floodmark.core.lifecycle.replays import check_not_spent, late_way, replay_of, replayed_in, wanted
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Counts, Lost, Replay
from floodmark.errors import InputFault, Refused
from floodmark.spark.read.batch import FAILED, UNREAD, Batch
from floodmark.views.contents.quarantine import left_to_replay

COLUMNS = ("at", "k", "v", "n", "_epoch", "_stream", "_reason", "_source")


@pytest.fixture
def head(tmp_path: Path) -> Head:
    begun = Commit(entry=Entry(0, ("-",)).text(), watermark=None, maxima={}, rule="{}")
    return Head(1, "", 1, "t", 3, Entry(0, ("-",)), None, {}, Flow(tmp_path).rule(), begun)


def test_a_replay_reads_what_was_set_apart_so_far(head: Head) -> None:
    found = replay_of(head, "events", "n > 1", ["N=n + 1", "k = upper(k)"], COLUMNS)
    assert found == Replay(upto=3, stream="events", where="n > 1", corrected={"n": "n + 1", "k": "upper(k)"})
    assert replay_of(head, None, None, [], COLUMNS) == Replay(upto=3)
    assert replay_of(head, None, None, ["_id=1"], [*COLUMNS, "_id"]).corrected == {"_id": "1"}, "it is the stream's"


@pytest.mark.parametrize(
    ("stream", "where", "sets", "said"),
    [
        ("event", None, [], "--stream: expected one of events, found 'event'"),
        (None, "rand() > 0", [], r"--where: column 1 of the expression: function rand"),
        (None, "n IN (SELECT 1)", [], "--where: .*SELECT"),
        (None, "n > 0; SELECT 1", [], "--where: "),
        (None, None, ["n"], "--set: expected COLUMN=SQL"),
        (None, None, ["=1"], "--set: dead rows have no column ''"),
        (None, None, ["kk=1"], "--set: dead rows have no column 'kk' to correct; did you mean k?"),
        (None, None, ["_epoch=1"], "--set: dead rows have no column '_epoch'"),
        (None, None, ["n=1", "N=2"], "--set: expected one value for column n, found '1' and '2': keep one"),
        (None, None, ["n=current_timestamp()"], "--set n: .*current_timestamp"),
    ],
)
def test_what_cannot_be_asked_for(head: Head, stream: Any, where: Any, sets: list[str], said: str) -> None:
    with pytest.raises(Refused, match=said):
        replay_of(head, stream, where, sets, COLUMNS)


def test_what_an_earlier_replay_was_about_is_left_out_by_its_own_condition() -> None:
    first = Replay(upto=2, where="n > 0 -- all of them")
    sql = wanted(Replay(upto=5, stream="events"), [first], (4,))
    assert sql == (
        "CASE WHEN startswith(_reason, 'malformed record: ') THEN false "
        "WHEN (CASE WHEN _epoch <= 2 AND _epoch NOT IN (4) THEN coalesce((n > 0 -- all of them\n), false) "
        "ELSE false END) THEN false WHEN (CASE WHEN _epoch <= 5 AND _epoch NOT IN (4) AND _stream = 'events' "
        "THEN true ELSE false END) THEN true ELSE false END"
    )
    every = wanted(Replay(upto=1), [], ())
    assert every.endswith("WHEN (CASE WHEN _epoch <= 1 THEN true ELSE false END) THEN true ELSE false END")


def test_which_epoch_has_read_a_row_again_is_told_as_far_as_it_is_known() -> None:
    replays = {4: Replay(upto=3, where="n\n> 0"), 6: Replay(upto=5, stream="events")}
    row = {"_epoch": 2, "_stream": "events"}
    assert replayed_in(row, replays) == "4 if n > 0, else 6"
    assert replayed_in({**row, "_epoch": 5}, replays) == "6"
    assert replayed_in({**row, "_stream": "other"}, replays) == "4 if n > 0"
    assert replayed_in({**row, "_epoch": 6}, replays) is None
    assert replayed_in({**row, "_reason": "malformed record: no JSON"}, replays) is None


def test_malformed_records_alone_leave_nothing_to_replay(tmp_path: Path) -> None:
    """No replay reads them, so no Spark is started for them."""
    flow = Flow(tmp_path)
    head = begun(flow).begun
    assert not left_to_replay(head, flow.place)
    set_apart(flow.place.dead, 0, reason="malformed record: no JSON")
    assert not left_to_replay(head, flow.place)
    set_apart(flow.place.dead, 0, reason="where: CAST_INVALID_INPUT")
    assert left_to_replay(head, flow.place)
    assert not left_to_replay(replace(head, replays={1: Replay(upto=0)}), flow.place)


@pytest.mark.parametrize("later", [False, True])
def test_a_replay_that_was_killed_at_qos_0_is_told_as_lost(
    place: Path, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    """`later`: another run has gone on before the command reads the ledger."""
    flow = Flow(place, "counted", settings={"qos": 0})
    ledger = begun(flow)
    first = intent(flow, 0, None, 1, Counts(read=1, dead=1))
    ledger.intend(first)
    ledger.commit(commit(first))
    set_apart(flow.place.dead, 1)
    ledger.intend(intent(flow, 0, None, 1, Counts(read=1, folded=1)).model_copy(update={"replay": Replay(upto=1)}))

    def work(*_: Any) -> Any:
        """What the gate does with the open epoch; then there is nothing left to read again."""
        open_ = ledger.head and ledger.head.open
        assert open_
        lost = {"intent": open_.digest, "lost": 1, "lost_epochs": (2,), "due": (None, None), "heard": {}}
        of_intent = {name: getattr(open_, name) for name in ("entry", "watermark", "maxima", "counts")}
        ledger.lose(Lost(**lost, **of_intent))
        head = ledger.head
        if later:
            ledger.intend(intent(flow, 0, None, 1, Counts(read=1, folded=1)))
        return head

    monkeypatch.setattr(cli_replay, "with_run", work)
    places = ["--rules", str(flow.root / "rules"), "--home", str(flow.home), "--run-id", "by hand"]
    found = CliRunner().invoke(app, ["dead", "replay", "counted", *places, *(["--json"] if later else [])])
    assert found.exit_code == 0, found.output
    if later:
        told = json.loads(found.output)
        assert [told[name] for name in ("epoch", "done", "lost", "read")] == [2, False, 1, 1]
    else:
        assert found.output == "counted: epoch 2 was lost (qos 0): its dead row is counted as lost\n"


@pytest.mark.parametrize(
    ("process", "late", "reason"),
    [
        ("clocks:Stamped", 1, "its class reads what differed in each epoch"),
        ("totals:Totals", 1, None),
        ("clocks:Stamped", 0, None),
        (None, 1, None),
    ],
)
def test_late_rows_that_a_class_would_never_get_are_not_replayed(
    tmp_path: Path, head: Head, process: str | None, late: int, reason: str | None
) -> None:
    rule = Flow(tmp_path, process=process, settings={"qos": 0} if process is None else {}).rule()
    known = replace(head, table_ids={f"sink/{sink.address}": "id" for sink in rule.sinks}, rule=rule)
    counts = {"events": Counts(read=3, late=late, folded=3 - late)}
    if reason is None:
        check_not_spent(rule, known, counts)
    else:
        said = f"found 1 of 3 below. .*{reason}.*`--where`, or give them a later event time with `--set`"
        with pytest.raises(Refused, match=said):
            check_not_spent(rule, known, counts)
    assert bool(late_way(rule, late)) == ("need `--set`" in late_way(rule, late)) == (process is not None and late > 0)


@pytest.mark.parametrize("kind", [UNREAD, FAILED])
@pytest.mark.parametrize("again", [True, False])
def test_what_stops_a_backfill_advises_nothing_that_it_ignores(tmp_path: Path, kind: int, again: bool) -> None:
    batch, frame = object.__new__(Batch), mock.MagicMock()
    found = mock.MagicMock(asDict=lambda: {"_reason": "wrong", "n": 1}, __getitem__=lambda *_: "wrong")
    frame.where.return_value.withColumn.return_value.selectExpr.return_value.head.return_value = found
    own: Any = {"_reason": lambda _: None, "_own": lambda _: []}
    vars(batch).update(rule=Flow(tmp_path).rule(), _again=again, _failed={"events": {kind: 2}}, _frame=frame, **own)
    ways = (
        "cannot quarantine them.*reset" if kind == UNREAD else "quarantines no row.*`floodmark correct counted --skip`"
    )
    said = f"Nothing was replaced.*{ways}" if again else "Nothing of the epoch was written.*`on_error: dead`$"
    with pytest.raises(InputFault, match=f"(?i)rule counted, stream events: wrong.*{said}"):
        batch._refuse_failed()
