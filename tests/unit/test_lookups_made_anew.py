"""A lookup table with `history` that is another one than the epochs before have read."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.byhand import begun, commit, intent
from support.flow import Flow

from floodmark.connectors.delta.lookups import (
    check_open_lookups,
    check_same_lookups,
    log_sums,
    lookup_tables,
    pinned_after,
    pinned_now,
)
from floodmark.connectors.preflight import check_sources, has_lost_input
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Counts, Lost, Pinned
from floodmark.errors import HistoryGone

JOINED = "SELECT e.at, e.k, c.city FROM events e LEFT JOIN cities c ON e.k = c.k"
TIMED = f"{JOINED} AND e.at >= c._valid_from AND e.at < c._valid_to"
WINDOWS = TIMED.replace("e.at, e.k, c.city", "window.start AS start, c.city, count(*) AS n") + (
    " GROUP BY window(e.at, '1 minute'), c.city"
)


def write(place: str | Path) -> Pinned:
    write_deltalake(place, pa.table({"k": ["a"], "city": ["Aachen"]}), mode="append")
    table = DeltaTable(place)
    return Pinned(table=str(table.metadata().id), version=table.version())


def flow_of(place: Path, sql: str = TIMED, history: bool = True) -> Flow:
    flow = Flow(place, sql=sql, settings={"lookups": {"cities": {"delta": str(place / "cities"), "history": history}}})
    write(place / "cities")
    return flow


def read_by(flow: Flow) -> Head:
    """The head after an epoch that read the cities as they are."""
    ledger = begun(flow)
    assert ledger.begun.looked_up == {}
    found = intent(flow, 0, None, 0, Counts(read=1, folded=1)).model_copy(
        update={"lookups": pinned_after(flow.rule(), ledger.begun)}
    )
    ledger.intend(found)
    return ledger.commit(commit(found))


@pytest.mark.parametrize("sql", [TIMED, WINDOWS])
def test_a_table_made_anew_or_an_older_copy_stops_the_rule_and_a_newer_version_does_not(place: Path, sql: str) -> None:
    flow, cities = flow_of(place, sql), place / "cities"
    copytree(cities, place / "copy")
    known = write(cities)
    head = read_by(flow)
    assert head.looked_up == {"cities": known}
    write(cities)
    assert pinned_after(flow.rule(), head)["cities"].version == 2
    rmtree(cities)
    copytree(place / "copy", cities)
    with pytest.raises(HistoryGone, match=r"expected version 1 of the table with id .*, found 0 of"):
        pinned_after(flow.rule(), head)
    rmtree(cities)
    for _ in range(3):
        write(cities)
    for check in (pinned_after, check_same_lookups, lambda rule, head: check_sources(rule, flow.place, head)):
        with pytest.raises(HistoryGone, match=r"it was recreated or restored.*`floodmark reset`"):
            check(flow.rule(), head)


@pytest.mark.parametrize("history", [True, False])
def test_an_older_copy_that_has_grown_past_the_version_that_was_read_is_noticed(place: Path, history: bool) -> None:
    flow, cities = flow_of(place, TIMED if history else JOINED, history=history), place / "cities"
    ledger, rule = begun(flow), flow.rule()
    copytree(cities, place / "copy")
    known = write(cities)
    assert known.version == 1
    sums = {name: one for name, one in log_sums(rule, {"cities": known}).items() if one is not None}
    read = intent(flow, 0, None, 0, Counts(read=1, folded=1))
    read = read.model_copy(update={"lookups": {"cities": known}, "log_sums": {**read.log_sums, **sums}})
    ledger.intend(read)
    copytree(cities, place / "kept")
    for kept in (False, True):
        rmtree(cities)
        copytree(place / ("kept" if kept else "copy"), cities)
        for _ in range(2):
            write(cities)
        with nullcontext() if kept else pytest.raises(HistoryGone, match="an older copy of the table was restored"):
            check_open_lookups(rule, read)
    DeltaTable(cities).create_checkpoint()
    (cities / "_delta_log" / f"{1:020}.json").unlink()
    check_open_lookups(rule, read)
    rmtree(cities)
    copytree(place / "copy", cities)
    for _ in range(2):
        write(cities)
    head = ledger.commit(commit(read))
    with pytest.raises(HistoryGone, match="an older copy of the table") if history else nullcontext():
        check_same_lookups(rule, head)


def test_an_epoch_that_was_lost_has_read_no_table(place: Path) -> None:
    """Its rule is not that of the head: an edit may have named another table for it alone."""
    flow = flow_of(place)
    ledger = begun(flow)
    again = intent(flow, 0, None, 0, Counts(read=1, folded=1)).model_copy(update={"lookups": pinned_now(flow.rule())})
    ledger.intend(again)
    lost = Lost(intent=again.digest, entry=again.entry, watermark=None, maxima=again.maxima, heard={},
                counts=again.counts, lost=1, lost_epochs=(1,), due=(None, None))  # fmt: skip
    assert ledger.lose(lost).looked_up == {}


def test_the_log_sum_of_an_epoch_that_was_lost_is_not_that_of_the_version_read_before(place: Path) -> None:
    flow = flow_of(place)
    head = read_by(flow)
    newer = write(place / "cities")
    left = dict.fromkeys(log_sums(flow.rule(), {"cities": newer}), "another commit's")
    check_same_lookups(flow.rule(), replace(head, log_sums=left))


@pytest.mark.parametrize("kept", [True, False])
def test_a_table_that_was_replaced_keeps_its_history(place: Path, kept: bool) -> None:
    """As by CREATE OR REPLACE TABLE: the next version has a new id, and the log still has those before."""
    flow, log = flow_of(place), place / "cities/_delta_log"
    head = read_by(flow)
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    layout = next(action["metaData"] for action in first if "metaData" in action)
    (log / f"{1:020}.json").write_text(json.dumps({"metaData": {**layout, "id": str(uuid4())}}) + "\n")
    assert write(place / "cities").table != head.looked_up["cities"].table
    table = lookup_tables(flow.rule())["cities"]
    if kept:
        check_same_lookups(flow.rule(), head)
        table.check(head.looked_up["cities"])
        return
    DeltaTable(place / "cities").create_checkpoint()
    (log / f"{0:020}.json").unlink()
    with pytest.raises(HistoryGone, match="it was recreated or restored"):
        check_same_lookups(flow.rule(), head)
    with pytest.raises(HistoryGone, match="it was recreated or restored"):
        table.check(head.looked_up["cities"])


@pytest.mark.parametrize("history", [True, False])
def test_an_open_epoch_whose_table_was_made_anew_has_lost_its_input(place: Path, history: bool) -> None:
    """A rebuild begins again. Without `history`, another epoch can be rolled back."""
    flow = flow_of(place, TIMED if history else JOINED, history=history)
    ledger, rule = begun(flow), flow.rule()
    again = intent(flow, 0, None, 0, Counts(read=1, folded=1)).model_copy(update={"lookups": pinned_now(rule)})
    ledger.intend(again)
    write(place / "cities")
    assert not has_lost_input(rule, flow.place, ledger.begun)
    check_open_lookups(rule, again)
    rmtree(place / "cities")
    write(place / "cities")
    assert has_lost_input(rule, flow.place, ledger.begun)
    way = "reset" if history else "abandon"
    with pytest.raises(HistoryGone, match=f"it was recreated or restored.*`floodmark {way}`"):
        check_open_lookups(rule, again)


def test_without_history_the_next_epoch_reads_the_table_of_the_night(place: Path) -> None:
    flow = flow_of(place, JOINED, history=False)
    head = read_by(flow)
    rmtree(place / "cities")
    made = write(place / "cities")
    assert pinned_after(flow.rule(), head) == {"cities": made}


def test_sql_without_state_may_name_another_table_and_a_moved_one_is_known_by_its_id(place: Path) -> None:
    for sql in (TIMED, WINDOWS):
        flow = flow_of(place, sql)
        head = read_by(flow)
        (place / "cities").rename(place / "moved")
        flow.settings["lookups"]["cities"]["delta"] = str(place / "moved")
        check_same_lookups(flow.rule(), head)
        rmtree(place / "moved")
        write(place / "moved")
        if sql is TIMED:
            check_same_lookups(flow.rule(), head)
        else:
            with pytest.raises(HistoryGone):
                check_same_lookups(flow.rule(), head)
        for left in ("moved", "home", "lake"):
            rmtree(place / left, ignore_errors=True)


def test_a_generation_that_begins_anew_has_read_no_table(place: Path) -> None:
    flow = flow_of(place)
    head = read_by(flow)
    rmtree(place / "cities")
    write(place / "cities")
    check_same_lookups(flow.rule(), replace(head, looked_up={}))
    with pytest.raises(HistoryGone):
        check_same_lookups(flow.rule(), head)
