"""Which dead rows a replay reads, and what it may be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.flow import Flow

from floodmark.core.entry import Entry
from floodmark.core.records import Commit, Head, Replay
from floodmark.core.replays import replay_of, replayed_in, wanted
from floodmark.errors import Refused

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
        "CASE WHEN (CASE WHEN _epoch <= 2 AND _epoch NOT IN (4) THEN coalesce((n > 0 -- all of them\n), false) "
        "ELSE false END) THEN false WHEN (CASE WHEN _epoch <= 5 AND _epoch NOT IN (4) AND _stream = 'events' "
        "THEN true ELSE false END) THEN true ELSE false END"
    )
    assert wanted(Replay(upto=1), [], ()).startswith("CASE WHEN (CASE WHEN _epoch <= 1 THEN true ELSE false END)")


def test_which_epoch_has_read_a_row_again_is_told_as_far_as_it_is_known() -> None:
    replays = {4: Replay(upto=3, where="n\n> 0"), 6: Replay(upto=5, stream="events")}
    row = {"_epoch": 2, "_stream": "events"}
    assert replayed_in(row, replays) == "4 if n > 0, else 6"
    assert replayed_in({**row, "_epoch": 5}, replays) == "6"
    assert replayed_in({**row, "_stream": "other"}, replays) == "4 if n > 0"
    assert replayed_in({**row, "_epoch": 6}, replays) is None
