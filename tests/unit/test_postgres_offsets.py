"""Offsets in tables of PostgreSQL, and how a table is divided. No server."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from floodmark.connectors.sources.postgres.offsets import (
    FULL_ROWS,
    KEYS,
    MOST_AHEAD,
    WRAP,
    Form,
    Place,
    RowsOffset,
    SlotOffset,
    is_due,
    safe_until,
)
from floodmark.connectors.sources.postgres.options import WrittenPostgres
from floodmark.connectors.sources.postgres.queries import Reading, beyond, page_ranges, snapshot_parts
from floodmark.connectors.sources.postgres.server.catalog import MADE, Published, Table
from floodmark.connectors.sources.postgres.server.checking import (
    check_old_rows,
    check_published,
    check_slot,
)
from floodmark.connectors.sources.postgres.server.database import settings_of
from floodmark.connectors.sources.postgres.server.slots import State
from floodmark.core.application.connections import connection_of
from floodmark.core.text.ddl import columns_of
from floodmark.errors import HistoryGone, Refused

PLACE = Place("7", "shop", 16_385)
TABLE = Table(
    "7", "shop", 16_385, "public", 'o"dd', "r", "d", 10.0, 100 << 20, columns_of("id INT"), frozenset(), frozenset()
)


def test_offsets_are_lines_of_json_as_spark_writes_them() -> None:
    form = Form(9, {"id": "1 700", "n": "2 700"}, {"5": "5 701"})
    for offset in (
        SlotOffset(PLACE, 0x16B3748),
        SlotOffset(PLACE, 1, form, ("insert",), "(n > 1)"),
        RowsOffset(PLACE, 9, 2),
    ):
        assert type(offset).parse(offset.line()) == offset
        assert json.dumps(json.loads(offset.line())) == offset.line()
    assert "identity" not in json.loads(SlotOffset(PLACE, 1, form).line())["form"], "as older versions read it"
    known = SlotOffset(PLACE, 1, replace(form, identity=KEYS))
    assert SlotOffset.parse(known.line()) == known
    assert "key" not in json.loads(known.line())["form"]
    for key in ([], ["id", "n"]):
        keyed = replace(known, form=replace(known.form, key=key))
        assert SlotOffset.parse(keyed.line()) == keyed
    assert "following" not in json.loads(known.line()) and known.at(2).following == 0
    assert SlotOffset.parse(replace(known, following=41).line()) == replace(known, following=41)
    whole = RowsOffset(PLACE, 9, 2, "5", "p 2", form, "17.5", 3, 40)
    assert RowsOffset.parse(whole.line()) == whole
    assert whole.at(5).rows is None and "rows" not in json.loads(whole.at(5).line())
    older = '{"system": "7", "database": "shop", "table": 16385, "before": 9, "updated": 2}'
    assert RowsOffset.parse(older) == RowsOffset(PLACE, 9, 2) and RowsOffset(PLACE, 9, 2).line() == older


@pytest.mark.parametrize("before", ["", KEYS, FULL_ROWS])
def test_steps_know_the_replica_identity_as_it_was_when_their_changes_began(before: str) -> None:
    """Deletes in the second step may be as old as those in the first."""
    read = SlotOffset(PLACE, 1, Form(9, identity=before, key=["id"]))
    end = SlotOffset(PLACE, 30, Form(12, {"id": "1 700"}, identity=FULL_ROWS), ("insert",))
    first = end.step(read, 10)
    second = end.step(SlotOffset.parse(first.line()), 20)
    for one, lsn in ((first, 10), (second, 20)):
        assert one == replace(end, lsn=lsn, form=replace(end.form, identity=before, key=["id"]))
        assert one.form.has_whole_rows == (before == FULL_ROWS)
    assert end.step(second, 30) == end and end.form.has_whole_rows


def test_an_unknown_replica_identity_promises_nothing_of_deletes() -> None:
    known = SlotOffset(PLACE, 1, Form(9, identity=FULL_ROWS))
    assert not known.of_unknown_identity().form.has_whole_rows and known.of_unknown_identity().form.before == 9


def test_rows_that_are_gone_were_updated_unless_deletes_explain_them() -> None:
    read = RowsOffset(PLACE, 9, 2, "5", deleted=3, rows=40)
    assert read.lacks(read, 40) == read.lacks(replace(read, deleted=5), 38) == 0
    assert (read.lacks(read, 38), read.lacks(replace(read, deleted=4), 38)) == (2, 1)
    assert read.lacks(replace(read, storage="6"), 0) == 0, "TRUNCATE"
    assert replace(read, rows=None).lacks(read, 38) == 0


def test_a_step_has_the_rows_of_its_end_but_those_behind_it() -> None:
    end = RowsOffset(PLACE, 30, 2, "5", rows=40)
    assert end.step(20, 15) == replace(end, before=20, rows=25)
    assert replace(end, rows=None).step(20, 15).rows is None
    assert beyond(TABLE, 0, 30, 9).startswith("SELECT min(n), count(*) FROM (")


def test_counted_rows_are_stale_once_an_update_may_have_taken_some() -> None:
    upto = RowsOffset(PLACE, 9, 2, "5", era="17.5", deleted=3, rows=40)
    updated, deleted = replace(upto, updated=3), replace(upto, deleted=4)
    assert not upto.is_stale(upto, 40) and not upto.is_stale(updated, 40) and not upto.is_stale(deleted, 39)
    assert upto.is_stale(updated, 39) and upto.is_stale(upto, 39) and upto.is_stale(replace(upto, era="18"), 39)


def test_updates_matter_once_rows_were_read() -> None:
    read = RowsOffset(PLACE, 9, 2)
    assert not read.may_be_updated(read) and read.may_be_updated(replace(read, updated=3))
    assert not read.at(0).may_be_updated(replace(read, updated=3)), "nothing is read yet"


def test_a_server_that_counts_anew_is_known_by_its_counts_and_when_it_began() -> None:
    read = RowsOffset(PLACE, 9, 2, era="17.5")
    assert not read.is_counted_anew(replace(read, updated=3))
    assert read.is_counted_anew(replace(read, updated=1)) and read.is_counted_anew(replace(read, era="18"))
    assert not replace(read, era="").is_counted_anew(read), "an offset of an older version"
    assert not read.at(0).is_counted_anew(replace(read, era="18")), "nothing is read yet"


def test_what_has_become_of_partitions_is_told_by_their_files_and_attachments() -> None:
    was = Form(9, {}, {"5": "50 701", "6": "60 701,702", "7": " 703"})
    assert was.gone(was) == was.come(was) == was.attached_again(was) == was.written_anew(was) == []
    now = replace(was, files={"5": "51 701", "6": "60 701,799", "8": "80 798"})
    assert (was.written_anew(now), was.attached_again(now), was.come(now)) == (["5"], ["6"], ["8"])
    assert was.gone(now) == [], "one that had no row may go"
    assert was.gone(replace(was, files={})) == ["5", "6"]
    filled = replace(was, files={**was.files, "7": "70 703"})
    assert was.written_anew(filled) == was.attached_again(filled) == []


def test_a_column_is_altered_if_its_row_of_the_catalog_was_written_again() -> None:
    was = Form(9, {"id": "1 700", "n": "2 700", "gone": "3 700"})
    assert was.altered(was) == []
    assert was.altered(Form(20, {"id": "1 700", "n": "2 710", "more": "4 710"})) == ["n"]


def test_a_column_with_another_number_is_another_column() -> None:
    was = Form(9, {"id": "1 700", "price": "2 700", "gone": "3 700"})
    assert was.replaced(Form(9, {"id": "1 800", "price": "2 700", "more": "4 800"})) == []
    assert was.replaced(Form(9, {"id": "1 700", "price": "4 800"})) == ["price"]
    assert was.replaced(Form(9, {"id": "2 700", "price": "1 700"})) == ["id", "price"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"system": "8"}, "expected the database cluster with identifier 7, found 8"),
        ({"database": "x"}, "expected database shop, found x"),
        ({"table": 5}, "the table was made anew: expected the one with oid 16385, found 5"),
        ({}, None),
    ],
)
def test_another_table_is_named(other: dict[str, object], said: str | None) -> None:
    assert PLACE.difference(replace(PLACE, **other)) == said  # type: ignore[arg-type]


def test_rows_can_be_told_apart_until_a_number_comes_again() -> None:
    now = 3 * WRAP + 5
    assert safe_until(now, None) == safe_until(now, WRAP - 1) == now + MOST_AHEAD
    assert safe_until(now, 100) == now + 100
    assert is_due(safe_until(now, 100), now) and not is_due(safe_until(now, None), now + 1)


def test_a_large_table_is_read_in_ranges_that_join_on() -> None:
    ranges = page_ranges(TABLE, 2)
    assert ranges == [
        "ctid < '(3200,0)'",
        "ctid >= '(3200,0)' AND ctid < '(6400,0)'",
        "ctid >= '(6400,0)' AND ctid < '(9600,0)'",
        "ctid >= '(9600,0)'",
    ]
    assert page_ranges(replace(TABLE, size=0), 2) == page_ranges(replace(TABLE, kind="p"), 2) == [""]


@pytest.mark.parametrize(
    ("had", "found", "said"),
    [
        (
            MADE,
            replace(MADE, kinds=("insert",)),
            r"as before, found insert\. .*SET .publish = 'insert, update.*'.$",
        ),
        (MADE, replace(MADE, kinds=()), "found nothing"),
        (MADE, replace(MADE, where="(n > 1)"), r"truncate WHERE \(\(n > 1\)\)\. .*; .* ADD TABLE public.o\"dd$"),
        (Published(None, "(n > 1)", ("insert",)), Published(None, None, ("insert",)), r"WHERE \(\(n > 1\)\)$"),
        (Published(None, None, ("insert",)), MADE, None),
        (MADE, MADE, None),
        (Published(), replace(MADE, kinds=("insert",)), None),
    ],
)
def test_a_publication_that_sends_less_than_before_is_refused(
    had: Published, found: Published, said: str | None
) -> None:
    """What it sends beside that is welcome; what an older version did not note is not compared."""
    if said is None:
        check_published("stream s", "p", TABLE, had, found)
        return
    with pytest.raises(HistoryGone, match=f"stream s: expected publication p to send .*{said}"):
        check_published("stream s", "p", TABLE, had, found)


def test_deletes_that_lose_their_values_are_refused() -> None:
    full, keys = Form(9, identity=FULL_ROWS), Form(9, identity=KEYS)
    for had, found, kinds in ((full, full, MADE.kinds), (keys, full, MADE.kinds), (keys, keys, MADE.kinds),
                              (Form(9), keys, MADE.kinds), (full, keys, ("insert", "truncate"))):  # fmt: skip
        check_old_rows("stream s", TABLE, had, found, kinds)
    with pytest.raises(HistoryGone, match=r"expected REPLICA IDENTITY FULL of public.o\"dd, as before"):
        check_old_rows("stream s", TABLE, full, keys, MADE.kinds)
    with pytest.raises(HistoryGone, match=r"FULL of .* and of each of its partitions"):
        check_old_rows("stream s", replace(TABLE, kind="p"), full, keys, MADE.kinds)


@pytest.mark.parametrize(("kind", "what"), [("update", "updates of the key"), ("delete", "deletes")])
def test_updates_of_the_key_lose_their_values_as_deletes_do(kind: str, what: str) -> None:
    columns = {"id": "1 700", "k": "2 700"}
    full, keys = Form(9, columns, identity=FULL_ROWS), Form(9, columns, identity=KEYS, key=["k"])
    said = rf"found another: {what} would come with .* run again: {what} that were made meanwhile are malformed"
    with pytest.raises(HistoryGone, match=said):
        check_old_rows("stream s", TABLE, full, keys, ("insert", kind))
    with pytest.raises(HistoryGone, match=rf"with id, as before, found one without: {what} would lack its old value"):
        check_old_rows("stream s", TABLE, replace(keys, key=["id"]), keys, ("insert", kind))


def test_deletes_that_lose_a_column_of_their_key_are_refused() -> None:
    def keyed(*key: str) -> Form:
        return Form(9, {"id": "1 700", "k": "2 700"}, identity=KEYS, key=[*key])

    unknown, full = replace(keyed(), key=None), Form(9, keyed().columns, identity=FULL_ROWS)
    for had, found, kinds in ((keyed("id"), keyed("id", "k"), MADE.kinds), (unknown, keyed("k"), MADE.kinds),
                              (keyed("id"), full, MADE.kinds), (keyed("id"), keyed("k"), ("insert",)),
                              (keyed("gone"), keyed("id"), MADE.kinds)):  # fmt: skip
        check_old_rows("stream s", TABLE, had, found, kinds)
    for found in (keyed("k"), keyed()):
        with pytest.raises(HistoryGone, match=r"identity of public.o\"dd with id, as before, found one without"):
            check_old_rows("stream s", TABLE, keyed("id"), found, MADE.kinds)


@pytest.mark.parametrize(
    ("why", "said"),
    [
        (None, "max_slot_wal_keep_size"),
        ("wal_removed", "max_slot_wal_keep_size"),
        ("idle_timeout", "idle_replication_slot_timeout"),
        ("rows_removed", "because rows_removed"),
    ],
)
def test_a_lost_slot_is_named_with_its_cause(why: str | None, said: str) -> None:
    lost = State("pgoutput", "shop", 5, "lost", None, -1, why)
    with pytest.raises(HistoryGone, match=f"slot p is lost, .*{said}"):
        check_slot("stream s", "p", lost, TABLE, 5)


def test_names_are_quoted() -> None:
    (part,) = snapshot_parts(Reading(TABLE, TABLE.columns, {}, "id > 1"), None, "5", 2)
    assert part.query == 'SELECT "id" FROM "public"."o""dd" WHERE (id > 1)'


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"table": "a.b.c"}, "SCHEMA.TABLE"),
        ({"table": 'a"b'}, "SCHEMA.TABLE"),
        ({"table": "x" * 64}, "at most 63 bytes"),
        ({"slot": "Upper"}, "lowercase letters"),
        ({"publication": ""}, "name of a publication"),
        ({"metadata": ["when"]}, "expected change, lsn, seq, committed, found 'when'"),
        ({"metadata": {"lsn": "a", "seq": "A"}}, "found a twice"),
        ({"by": "snapshots", "slot": "s"}, "no `slot` beside `by: snapshots`"),
        ({"by": "xmin"}, "slot"),
    ],
)
def test_keys_that_do_not_fit_are_refused(said: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        WrittenPostgres.model_validate({"connection": "shop", "table": "t", **said})


def test_columns_beside_the_tables_have_names_of_their_own() -> None:
    said = {"connection": "shop", "table": "t"}
    assert [*WrittenPostgres.model_validate(said).added.values()] == ["_change", "_lsn", "_seq", "_committed"]
    assert WrittenPostgres.model_validate({**said, "metadata": ["lsn"]}).added == {"lsn": "_lsn"}
    assert WrittenPostgres.model_validate({**said, "metadata": {"lsn": "at"}}).added == {"lsn": "at"}
    assert WrittenPostgres.model_validate({**said, "by": "snapshots"}).added == {}
    assert WrittenPostgres.model_validate(said).address() == "postgres://shop/public.t"


def test_a_connection_gives_the_settings_of_libpq() -> None:
    found = settings_of(connection_of("shop", "postgresql://me:secret@db:5433/sales?sslmode=require", "here"))
    known = {"host": "db", "port": "5433", "user": "me", "password": "secret", "dbname": "sales", "sslmode": "require"}
    assert found == known
    with pytest.raises(Refused, match=r"connection shop: expected the settings sslmode, .*, found magic") as fault:
        settings_of(connection_of("shop", "postgresql://me:secret@db/sales?magic=1", "here"))
    assert "secret" not in str(fault.value)
    assert settings_of(connection_of("shop", "postgresql://[::1]:5433/sales", "here"))["host"] == "::1"
    with pytest.raises(Refused, match="expected a host, such as postgresql://LOGIN:PASSWORD@HOST:5432/DATABASE, found"):
        settings_of(connection_of("shop", "postgresql:///sales", "here"))
