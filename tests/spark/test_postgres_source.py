"""PostgreSQL as a source, beside a real server: its promises, all of a rule's life, and all that happens to tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any, Literal
from uuid import UUID

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from support.flow import Flow, event, rows_of
from support.postgres import Server, Writers, started
from support.running import crash, run
from support.sourcekinds import Growing, KindUnderTest, promised, rows_promised
from support.sourcelives import sink, some, verdict, windows
from typer.testing import CliRunner

import floodmark
from floodmark.cli.app import app
from floodmark.connectors.ports import connections
from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.source import MALFORMED
from floodmark.connectors.sources.postgres.kind import SOURCE
from floodmark.connectors.sources.postgres.server import waiting
from floodmark.connectors.sources.postgres.server.database import Database, settings_of
from floodmark.connectors.sources.postgres.slot import SlotSource
from floodmark.core.rules.rule import Stream
from floodmark.errors import FloodmarkError, HistoryGone, InputFault, NotThereYet, Refused, RunFailed

COLUMNS = "at timestamptz, k text, v float8, n bigint"


# As a rule of a class has it, once it ran in the same application: executors need no copy of the package.
cloudpickle.register_pickle_by_value(floodmark)


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with started(root / "postgres", max_slot_wal_keep_size="64MB") as found:
        yield found


@pytest.fixture(autouse=True)
def _connected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)


@pytest.fixture
def table(server: Server, place: Path) -> Iterator[str]:
    name = f"t{place.name[:8]}"
    server.run(f"CREATE TABLE {name} ({COLUMNS})", f"ALTER TABLE {name} REPLICA IDENTITY FULL")
    yield name
    server.drop_slots()
    for (one,) in server.ask("SELECT pubname FROM pg_publication"):
        server.run(f"DROP PUBLICATION {one}")
    server.run(f"DROP TABLE IF EXISTS {name} CASCADE")


def insert(server: Server, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """As one transaction."""
    with server.connect() as connection, connection.transaction():
        connection.cursor().executemany(
            f"INSERT INTO {table} (at, k, v, n) VALUES (%(at)s, %(k)s, %(v)s, %(n)s)", [dict(row) for row in rows]
        )


def flow_of(place: Path, table: str, postgres: Mapping[str, Any] = {}, **more: Any) -> Flow:
    flow = Flow(place, "counted", **more)
    flow.stream = {"delta": None, "postgres": {"connection": "shop", "table": table, **postgres}, **flow.stream}
    return flow


@pytest.mark.timeout(60)  # without the mend it waits for ever
def test_a_server_that_hangs_is_not_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel stops all of its processes: its host still takes connections, and nobody answers."""
    monkeypatch.setattr(waiting, "LOOK_EVERY", 0.2)
    monkeypatch.setattr(waiting, "HANGS_AFTER", 0.1)
    monkeypatch.setattr(waiting, "WAIT", 1)
    database = Database("shop", settings_of(connection("shop")))
    with (
        pytest.raises(RunFailed, match=r"does not answer: the server has not answered for 0\.1 seconds, nor does it"),
        database.connected() as asked,
        server.stopped(),
    ):
        asked.execute("SELECT 1")


@pytest.mark.parametrize("by", ["slot", "snapshots"])
def test_it_keeps_what_every_kind_promises(
    server: Server, spark: SparkSession, place: Path, table: str, by: str
) -> None:
    options: dict[str, Any] = {"connection": "shop", "table": table, "by": by}
    options |= {"metadata": {}} if by == "slot" else {}

    def stream(place: Path) -> Stream:
        return Stream(kind="postgres", address=f"postgres://shop/{table}", options=options)

    growing = Growing(KindUnderTest(stream, lambda _, rows: insert(server, table, rows)), place / "rows")
    promised(growing)
    rows_promised(growing, spark)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(one, marks=() if one == "landing.after" else pytest.mark.prove)
        for one in ("landing.before", "landing.after", "sink0.after")
    ],
)
def test_rows_and_changes_join_on_whatever_is_killed(
    server: Server, spark: SparkSession, place: Path, table: str, point: str
) -> None:
    flow, events = flow_of(place, table), some()
    insert(server, table, events[:8])
    assert crash(spark, flow, point)
    insert(server, table, events[8:14])
    assert crash(spark, flow, point, 1 if point.startswith("landing") else 2)
    insert(server, table, events[14:])
    run(spark, flow)
    assert not run(spark, flow).epochs
    assert sink(flow) == sink(flow, 1) == windows(flow, events)
    assert verdict(flow) == "proven"


# --- The source itself, without a rule


class Reader:
    """Reads a source as a landing does, and keeps its rows."""

    def __init__(
        self,
        spark: SparkSession,
        place: Path,
        table: str,
        start: Literal["earliest", "latest"] = "earliest",
        **more: Any,
    ):
        self._spark, self.keep = spark, place / "home" / "rule" / "sources" / "events"
        options = {"connection": "shop", "table": table, **more}
        self.stream = Stream(kind="postgres", address=f"postgres://shop/{table}", options=options, start=start)
        self.at = self.source.take_start()

    @property
    def source(self) -> Any:
        """Opened anew each time, as every process does."""
        return SOURCE.open("events", self.stream, self.keep)

    def read(self, land: bool = True) -> list[Row]:
        """What has come since, in its order."""
        source = self.source
        end = source.take_end(self.at)
        rows = source.frame(self._spark, self.at, end).collect()
        self.at = end
        if land:
            source.landed(end)
        return sorted(rows, key=lambda row: (row["_lsn"], row["_seq"])) if rows and "_lsn" in rows[0] else rows


def changes(rows: Iterable[Row], *names: str) -> list[tuple[Any, ...]]:
    return [(row["_change"], *(row[name] for name in names)) for row in rows]


def problems(rows: Iterable[Row]) -> list[str]:
    """Those of malformed rows, without their places."""
    found = [row[MALFORMED] for row in rows if row[MALFORMED] is not None]
    assert all(re.match(r"LSN [0-9A-F]+/[0-9A-F]+, change \d+ \(\w+\): |in the table: ", one) for one in found), found
    return [one.partition(": ")[2] for one in found]


LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 900) i)"  # 28,800 characters


def test_changes_are_rows_with_their_kind(server: Server, spark: SparkSession, place: Path, table: str) -> None:
    server.run(f"DROP TABLE {table}",
               f"CREATE TABLE {table} (id int PRIMARY KEY, t text, long text)",
               f"INSERT INTO {table} VALUES (1, 'a', {LONG}), (2, 'b', NULL)")  # fmt: skip
    reader = Reader(spark, place, table)
    first = reader.read()
    assert sorted(changes(first, "id", "t")) == [("insert", 1, "a"), ("insert", 2, "b")]
    assert len({(row["_lsn"], row["_seq"]) for row in first}) == 1
    server.run(
        f"UPDATE {table} SET t = 'c' WHERE id = 2",
        f"UPDATE {table} SET t = 'd' WHERE id = 1",  # its long value is not sent
        f"DELETE FROM {table} WHERE id = 2",
        f"BEGIN; INSERT INTO {table} VALUES (5); UPDATE {table} SET id = 6 WHERE id = 5; COMMIT",
        f"BEGIN; INSERT INTO {table} VALUES (7); ROLLBACK",
        f"TRUNCATE {table}",
    )
    rows = reader.read()
    assert changes(rows, "id", "t") == [
        ("update", 2, "c"), ("update", 1, "d"), ("delete", 2, None), ("insert", 5, None), ("delete", 5, None),
        ("insert", 6, None), ("truncate", None, None),
    ]  # fmt: skip
    missing, emptied = problems(rows)
    assert "column long: expected its value, found none" in missing and "REPLICA IDENTITY FULL" in missing
    assert "emptied by TRUNCATE" in emptied
    assert rows[3]["_lsn"] == rows[5]["_lsn"] and [row["_seq"] for row in rows[3:6]] == [0, 1, 2]
    assert abs(rows[0]["_committed"].replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds() < 300


def test_an_altered_table_is_read_on(server: Server, spark: SparkSession, place: Path, table: str) -> None:
    reader = Reader(spark, place, table, metadata=["change", "lsn", "seq"])
    assert reader.read() == []
    server.run(f"INSERT INTO {table} (n) VALUES (1)", f"ALTER TABLE {table} ADD COLUMN more int DEFAULT 3",
               f"INSERT INTO {table} (n) VALUES (2)")  # fmt: skip
    assert changes(reader.read(), "n", "more") == [("insert", 1, None), ("insert", 2, 3)]
    server.run(f"INSERT INTO {table} (n) VALUES (3)", f"ALTER TABLE {table} DROP COLUMN v",
               f"INSERT INTO {table} (n) VALUES (4)")  # fmt: skip
    rows = reader.read()
    assert changes(rows, "n") == [("insert", 3), ("insert", 4)]
    assert "v" not in rows[0].asDict() and not problems(rows)
    server.run(f"INSERT INTO {table} (k) VALUES ('x')", f"ALTER TABLE {table} RENAME k TO name",
               f"INSERT INTO {table} (n) VALUES (5)")  # fmt: skip
    rows = reader.read()
    assert changes(rows, "name", "n") == [("insert", None, None), ("insert", None, 5)]
    assert "found k in place of name" in problems(rows)[0]


TYPES = {
    "b": ("boolean", "true"), "i2": ("int2", "-5"), "i4": ("int4", "7"), "i8": ("int8", "9007199254740993"),
    "f4": ("float4", "1.5"), "f8": ("float8", "'NaN'"), "d": ("numeric(10,2)", "1.5"), "free": ("numeric", "1e-30"),
    "t": ("text", "E'a,\"b\"\\n\\\\.'"), "empty": ("text", "''"), "c": ("char(3)", "'a'"),
    "day": ("date", "'2024-02-29'"),
    "at": ("timestamptz", "'2024-02-29 12:00:00.000001+02'"), "plain": ("timestamp", "'2024-02-29 12:00'"),
    "time_of_day": ("time", "'12:00'"), "gap": ("interval", "'1 day 2 hours'"), "id": ("uuid", f"'{UUID(int=5)}'"),
    "j": ("json", "'{\"a\": 1}'"), "jb": ("jsonb", "'{\"a\": 1}'"), "raw": ("bytea", "'\\x00ff'"),
    "ints": ("int[]", "'{1,NULL}'"), "texts": ("text[]", "ARRAY['a b', NULL, 'NULL', '\"', '']"),
    "days": ("date[]", "'{2024-02-29}'"), "mood": ("mood", "'ok'"), "price": ("price", "2.5"), "net": ("inet", "'::1'"),
    "pair": ("point", "'(1,2)'"), "span": ("int4range", "'[1,3)'"), "none": ("int4", "NULL"),
}  # fmt: skip
BAD = {"at": "'infinity'", "day": "'-infinity'", "d": "'NaN'", "ints": "'{{1},{2}}'", "plain": "'0044-03-15 BC'"}


def test_values_are_the_same_in_the_table_and_as_changes(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    declared = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    server.run("CREATE TYPE mood AS ENUM ('ok')", "CREATE DOMAIN price AS numeric(6,1)", f"DROP TABLE {table}",
               f"CREATE TABLE {table} (pk int PRIMARY KEY, {declared})")  # fmt: skip
    good = f"INSERT INTO {table} VALUES (%s, {', '.join(value for _, value in TYPES.values())})"
    bad = [f"INSERT INTO {table} (pk, {name}) VALUES (%s, {value})" for name, value in BAD.items()]
    for pk, statement in enumerate([good, *bad]):
        server.run(statement.replace("%s", str(pk)))
    reader = Reader(spark, place, table, metadata=["change", "lsn", "seq"])
    first = sorted(reader.read(), key=lambda row: row["pk"])
    for pk, statement in enumerate([good, *bad], 10):
        server.run(statement.replace("%s", str(pk)))
    second = reader.read()
    ours = [{name: row[name] for name in TYPES} for row in (*first, *second)]
    assert repr(ours[:6]) == repr(ours[6:])
    found = ours[0]
    assert (found["i8"], found["t"], found["empty"], found["c"]) == (9007199254740993, 'a,"b"\n\\.', "", "a  ")
    assert (str(found["d"]), str(found["price"]), found["free"]) == ("1.50", "2.5", "0.000000000000000000000000000001")
    assert (found["raw"], found["ints"], found["days"]) == (b"\x00\xff", [1, None], [date(2024, 2, 29)])
    assert found["texts"] == ["a b", None, "NULL", '"', ""]
    assert (found["at"], found["plain"]) == (datetime(2024, 2, 29, 10, 0, 0, 1), datetime(2024, 2, 29, 12))
    assert [row[MALFORMED] is None for row in first] == [True, *[False] * len(BAD)]
    for name, one in zip(BAD, problems(second), strict=True):
        assert re.match(f"column {name}: expected [A-Z_<>0-9,()]+, found '", one)


def test_an_advance_that_the_server_forgets_doubles_nothing(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    reader = Reader(spark, place, table)
    reader.read()
    insert(server, table, [event(i, n=i) for i in range(5)])
    server.run("CHECKPOINT")
    assert [row["n"] for row in reader.read()] == [*range(5)]
    (slot,) = [name for (name,) in server.ask("SELECT slot_name FROM pg_replication_slots WHERE plugin = 'pgoutput'")]
    where = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
    before = server.ask(where)
    server.kill()
    server.start()
    assert server.ask(where) != before, "the server has forgotten the advance"
    assert not reader.source.news(reader.at) and reader.read() == []
    insert(server, table, [event(9, n=9)])
    assert reader.source.backlog(reader.at).amount
    assert [row["n"] for row in reader.read()] == [9]


@pytest.mark.parametrize("by", ["slot", "snapshots"])
def test_each_committed_row_comes_once_whatever_its_order(
    server: Server, spark: SparkSession, place: Path, table: str, by: str
) -> None:
    """A slot begins once the transactions have ended that run when it is made, so there is none at first."""
    reader = Reader(spark, place, table, by=by)
    read = [row["n"] for row in reader.read()]
    with Writers(server, table, Random(5)) as writers:
        for _ in range(3):
            writers.act(60)
            read += [row["n"] for row in reader.read()]
    read += [row["n"] for row in reader.read()]
    assert sorted(read) == sorted(n for (n,) in server.ask(f"SELECT n FROM {table}")) and len(read) > 40


# --- Servers, tables and slots in any state


def look(table: str, **more: Any) -> SlotSource:
    stream = Stream(kind="postgres", address="x", options={"connection": "shop", "table": table, **more})
    return SlotSource("events", stream, None)


@pytest.fixture
def reader_role(server: Server, table: str) -> Iterator[str]:
    """A login without any right; its URI."""
    server.run("CREATE ROLE reader LOGIN PASSWORD 'let-me-in'")
    yield server.uri.replace(f"airflow:{server.password}", "reader:let-me-in")
    server.run("DROP OWNED BY reader", "DROP ROLE reader")


def refused(source: SlotSource, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as found:
        source.columns()
    assert "\n" not in str(found.value) and "let-me-in" not in str(found.value)


@pytest.mark.parametrize(
    ("old", "new", "kind", "said"),
    [
        ("{port}", "1", RunFailed, "PostgreSQL at 127.0.0.1:1 does not answer: .*refused.*then retry"),
        ("127.0.0.1", "no.such.host.invalid", RunFailed, "does not answer: .*no.such.host.invalid"),
        ("{password}", "wrong", Refused, "refuses: password authentication failed for user .*Check login"),
        ("/postgres", "/nowhere", Refused, 'refuses: database "nowhere" does not exist. Check login and database'),
        ("/postgres", "/postgres?sslmode=require", Refused, "refuses: .*SSL"),
    ],
)
def test_a_server_in_any_state_is_told_in_one_line(
    server: Server, monkeypatch: pytest.MonkeyPatch, old: str, new: str, kind: type[Exception], said: str
) -> None:
    known = {"{port}": str(server.port), "{password}": server.password}
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri.replace(known.get(old, old), new))
    refused(look("t"), kind, said)


def test_a_right_that_is_missing_is_named_with_what_to_do(
    server: Server, table: str, reader_role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", reader_role)
    refused(look("nothing"), NotThereYet, "database postgres: expected table public.nothing, found none: create it")
    refused(look(table), Refused, f"expected the right to read public.{table}, found none: GRANT SELECT ON")
    server.run(f"GRANT SELECT ON {table} TO reader")
    refused(look(table), Refused, "expected the right to make a slot, found none: ALTER ROLE reader REPLICATION")
    server.run("ALTER ROLE reader REPLICATION")
    refused(look(table), Refused, f"expected the right to publish public.{table}, .*CREATE PUBLICATION")
    refused(look(table, publication="p"), Refused, f"expected a publication p with table public.{table}, found none")
    server.run(f"CREATE PUBLICATION p FOR TABLE {table} (at, n)")
    assert [*look(table, publication="p", metadata={}).columns()] == ["at", "n"]
    refused(look(table, publication="p", metadata={"lsn": "N"}), Refused, "expected names in `metadata` that no column")


def test_a_table_that_cannot_be_read_is_named(server: Server, table: str) -> None:
    server.run(f"CREATE VIEW v{table} AS SELECT 1 AS n", f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
    refused(look(f"v{table}"), Refused, "expected a table, found public.v.*, a view")
    refused(look(table), Refused, f"expected a primary key or replica identity of public.{table}, found none: .*FULL")
    server.run(f"DROP VIEW v{table}", "ALTER SYSTEM SET wal_level = 'replica'")
    server.kill()
    server.settings["wal_level"] = "replica"
    server.start()
    try:
        refused(look(table), Refused, "expected wal_level = logical, found replica: ALTER SYSTEM SET wal_level")
    finally:
        server.kill()
        del server.settings["wal_level"]
        server.start()


def test_a_slot_that_was_lost_and_a_table_made_anew_are_named(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    reader = Reader(spark, place, table)
    end = reader.source.take_end(reader.at)
    reader.source.landed(end)
    server.run(f"INSERT INTO {table} (n) VALUES (1)")
    name = json.loads((reader.keep / "slot.json").read_text())["slot"]
    assert [one.in_bytes and not one.lost for one in reader.source.forgets(end, 0)] == [True]
    later = end.replace(json.loads(end)["lsn"], "7F/0")
    with pytest.raises(HistoryGone, match=r"read up to LSN 7F/0, and the server's log ends at .*: it is an older copy"):
        reader.source.check_identity(later, None)
    server.run(f"SELECT pg_replication_slot_advance('{name}', pg_current_wal_lsn())")
    with pytest.raises(HistoryGone, match="another reader has advanced it, or it was made anew"):
        reader.source.news(end)
    for _ in range(8):
        server.run("SELECT pg_logical_emit_message(false, '', repeat('x', 16000000))", "SELECT pg_switch_wal()")
    server.run("CHECKPOINT")
    with pytest.raises(HistoryGone, match=r"slot .* is lost, because .*max_slot_wal_keep_size"):
        reader.source.check_appended(end)
    assert [one.lost for one in reader.source.forgets(end, 0)] == [True]
    server.run(f"SELECT pg_drop_replication_slot('{name}')")
    with pytest.raises(HistoryGone, match=f"expected replication slot {name} .*, found none: it was dropped"):
        reader.source.take_end(end)
    server.run(f"DROP TABLE {table} CASCADE", f"CREATE TABLE {table} ({COLUMNS})")
    with pytest.raises(HistoryGone, match=f"public.{table}: the table was made anew: expected the one with oid"):
        reader.source.check_identity(end, None)


def test_a_table_that_the_database_does_not_change_keeps_little_log(
    server: Server, spark: SparkSession, place: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(spark, place, table)
    reader.read()
    monkeypatch.setattr("floodmark.connectors.sources.postgres.slot.MOST_BEHIND", 1_000_000)
    assert not reader.source.news(reader.at)
    server.run("SELECT pg_logical_emit_message(true, '', repeat('x', 2000000))")
    assert reader.source.news(reader.at) and not reader.source.backlog(reader.at).amount
    before = reader.at
    assert reader.read() == [] and reader.at != before and not reader.source.news(reader.at)


def test_an_existing_slot_is_read_from_where_it_is(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    server.run(f"CREATE PUBLICATION mine FOR TABLE {table}", f"INSERT INTO {table} (n) VALUES (1)",
               "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')",
               f"INSERT INTO {table} (n) VALUES (2)")  # fmt: skip
    with pytest.raises(Refused, match="expected `start: latest` beside `slot: mine`"):
        Reader(spark, place / "early", table, slot="mine", publication="mine")
    late = Reader(spark, place / "late", table, start="latest", slot="mine", publication="mine")
    assert [row["n"] for row in late.read()] == [2]
    late.source.release()
    assert server.ask("SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'mine'"), "it is the user's"


def test_updates_of_a_table_without_a_slot_are_refused(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    reader = Reader(spark, place, table, by="snapshots")
    server.run(f"INSERT INTO {table} (n) VALUES (1)")
    assert len(reader.read()) == 1
    server.run(f"UPDATE {table} SET n = 2")
    with pytest.raises(HistoryGone, match="rows are only added, found 1 rows that were updated"):
        reader.source.news(reader.at)
    (reader.keep / "numbers.json").write_text('{"safe": 5}')
    with pytest.raises(HistoryGone, match="numbers of rows have come around"):
        reader.source.news(reader.at)


REWRITES = {
    "ALTER TYPE": "ALTER TABLE {} ALTER COLUMN n TYPE bigint USING n + 0",
    "a default of each row": "ALTER TABLE {} ADD COLUMN id uuid DEFAULT gen_random_uuid()",
    "UNLOGGED": "ALTER TABLE {} SET UNLOGGED",
    "VACUUM FULL": "VACUUM FULL {}",
    "TRUNCATE": "TRUNCATE {}",
}


@pytest.mark.parametrize("by", ["slot", "snapshots"])
@pytest.mark.parametrize("what", ["ALTER TYPE", "VACUUM FULL", "TRUNCATE"])
def test_a_table_that_is_written_anew_while_it_is_read_is_read_again(
    server: Server, spark: SparkSession, place: Path, table: str, by: str, what: str
) -> None:
    reader = Reader(spark, place, table, by=by)
    insert(server, table, [event(i, n=i) for i in range(9)])
    frame = reader.source.frame(spark, reader.at, reader.source.take_end(reader.at))
    server.run(REWRITES[what].format(table))
    with pytest.raises(PySparkException, match=r"written it anew meanwhile, such as ALTER TABLE.*retry"):
        frame.collect()
    assert [row["n"] for row in reader.read()] == ([] if what == "TRUNCATE" else [*range(9)])


@pytest.mark.parametrize("what", REWRITES)
def test_rows_that_get_new_numbers_are_not_read_as_new_rows(
    server: Server, spark: SparkSession, place: Path, table: str, what: str
) -> None:
    reader = Reader(spark, place, table, by="snapshots")
    insert(server, table, [event(i, n=i) for i in range(9)])
    assert len(reader.read()) == 9
    server.run(REWRITES[what].format(table), f"INSERT INTO {table} (n) VALUES (9)")
    if what in ("VACUUM FULL", "TRUNCATE"):
        assert [row["n"] for row in reader.read()] == [9]
        return
    for look_again in (reader.source.news, reader.source.take_end, reader.source.check_appended):
        with pytest.raises(
            HistoryGone, match=r"found none of them, and that the table was altered: .* writes all rows"
        ):
            look_again(reader.at)


def test_rows_that_would_be_left_out_are_refused(
    server: Server, table: str, reader_role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run(f"CREATE TABLE c{table} () INHERITS ({table})")
    refused(look(table), Refused, f"found public.{table}, from which others inherit")
    server.run(
        f"DROP TABLE c{table}",
        "ALTER ROLE reader REPLICATION",
        f"GRANT SELECT ON {table} TO reader",
        f"CREATE PUBLICATION p FOR TABLE {table}",
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY only_one ON {table} USING (n = 1)",
    )
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", reader_role)
    said = "row-level security, which hides some from reader: ALTER ROLE reader BYPASSRLS"
    refused(look(table, publication="p"), Refused, said)
    server.run("ALTER ROLE reader BYPASSRLS")
    assert "n" in look(table, publication="p").columns()


def test_a_publication_that_could_not_be_made_is_made_by_the_next_run(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    server.run(f"ALTER TABLE {table} SET UNLOGGED", f"INSERT INTO {table} (n) VALUES (1)")
    reader = Reader(spark, place, table)
    with pytest.raises(FloodmarkError, match="cannot add relation"):
        reader.read()
    server.run(f"ALTER TABLE {table} SET LOGGED")
    assert [row["n"] for row in reader.read()] == [1]


def test_changes_come_by_the_publication_with_which_the_stream_began(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    server.run("SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")
    with pytest.raises(Refused, match="expected `publication` beside `slot: mine`"):
        Reader(spark, place / "alone", table, start="latest", slot="mine")
    reader = Reader(spark, place / "own", table)
    assert reader.read() == []
    [(own,)] = server.ask("SELECT pubname FROM pg_publication")
    server.run(f"CREATE PUBLICATION other FOR TABLE {table}", f"INSERT INTO {table} (n) VALUES (1)")
    with pytest.raises(Refused, match=f"expected `publication: {own}`, with which the stream began, found other"):
        Reader(spark, place / "own", table, publication="other")
    server.run(f"DROP PUBLICATION {own}")
    with pytest.raises(Refused, match=f"expected a publication {own} with table public.{table}, found none"):
        reader.source.news(reader.at)


# --- A rule


def command(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_malformed_changes_are_dead_or_stop_the_run_and_a_dropped_rule_leaves_nothing(
    server: Server, spark: SparkSession, place: Path, table: str
) -> None:
    """And the password is in no file of the home, nor in a plan."""
    flow = flow_of(place, table, sql="SELECT at, n, _change AS change FROM events", sinks=1)
    flow.settings = {"on_error": "fail"}
    server.run(f"INSERT INTO {table} VALUES (now(), 'a', 1, 1), ('infinity', 'a', 1, 2)")
    with pytest.raises(InputFault, match="malformed record: in the table: column at: expected TIMESTAMP, found 'inf"):
        run(spark, flow)
    flow.settings = {"on_error": "dead"}
    run(spark, flow)
    server.run(f"INSERT INTO {table} VALUES ('-infinity', 'a', 1, 3)", f"UPDATE {table} SET v = 2 WHERE n = 1")
    run(spark, flow)
    assert sorted((row["n"], row["change"]) for row in rows_of(flow.sink())) == [(1, "insert"), (1, "update")]
    dead = [row["_reason"] for row in rows_of(str(flow.home / flow.name / "dead"))]
    assert len(dead) == 2 and any(re.search(r"LSN .*, change 0 \(insert\): column at: expected", one) for one in dead)
    assert verdict(flow) == "proven"
    secret = server.password.encode()
    files = [file for file in flow.home.rglob("*") if file.is_file()]
    assert len(files) > 9 and not [file for file in files if secret in file.read_bytes()]
    (slot,) = (name for (name,) in server.ask("SELECT slot_name FROM pg_replication_slots"))
    said = command("retire", flow.name, "--yes", "--home", str(flow.home))
    assert f"replication slot {slot} at connection shop" in said
    command("drop", flow.name, "--all", "--yes", "--home", str(flow.home))
    assert not server.ask("SELECT FROM pg_replication_slots") and not server.ask("SELECT FROM pg_publication")
    assert not flow.place.path.exists()


def test_a_password_is_in_no_plan(server: Server, spark: SparkSession, place: Path, table: str) -> None:
    reader = Reader(spark, place, table)
    frame = reader.source.frame(spark, reader.at, reader.source.take_end(reader.at))
    plan = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().logical().toString()
    assert "floodmark_postgres" in plan and server.password not in plan
