"""What a source of PostgreSQL asks and refuses beside a real server, before any row is read: no JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import psycopg
import pytest
from psycopg import OperationalError
from support.postgres import Server, started

from floodmark.connectors.ports import connections
from floodmark.connectors.ports.source import MALFORMED
from floodmark.connectors.sources.postgres import copying, rows
from floodmark.connectors.sources.postgres.decoding.changes import Changes
from floodmark.connectors.sources.postgres.kind import SOURCE
from floodmark.connectors.sources.postgres.offsets import SlotOffset
from floodmark.connectors.sources.postgres.queries import Part
from floodmark.connectors.sources.postgres.rows import Job, _Reader, _Share
from floodmark.connectors.sources.postgres.server import slots, waiting
from floodmark.connectors.sources.postgres.server.database import Database, settings_of
from floodmark.core.rules.rule import EpochLimits, Stream
from floodmark.core.text.ddl import columns_of
from floodmark.errors import HistoryGone, Refused, RunFailed


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with started(root / "postgres") as found:
        yield found


@pytest.fixture(autouse=True)
def _connected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)


@pytest.fixture
def table(server: Server, place: Path) -> Iterator[str]:
    name = f"t{place.name[:8]}"
    server.run(f"CREATE TABLE {name} (n bigint PRIMARY KEY, k text)")
    yield name
    server.drop_slots()
    for (one,) in server.ask("SELECT pubname FROM pg_publication"):
        server.run(f"DROP PUBLICATION {one}")
    server.run(f"DROP TABLE IF EXISTS {name} CASCADE")


@pytest.mark.timeout(60)  # without the mend it waits for ever
def test_a_server_that_hangs_while_it_sends_rows_is_not_waited_for(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"LOOK_EVERY": 0.2, "HANGS_AFTER": 0.1, "WAIT": 1}.items():
        monkeypatch.setattr(waiting, name, seconds)
    database = Database("shop", settings_of(connections.connection("shop")))
    rows = "COPY (SELECT repeat('x', 9999) FROM generate_series(1, 9999)) TO STDOUT"
    with database.connected() as asked:
        sent = copying._sent(asked, rows)
        assert len(next(sent)) == 10_000
        with server.stopped(), pytest.raises(OperationalError, match="the server has not answered for"):
            list(sent)


def test_all_rows_of_a_copy_come_whatever_the_waits_between_them(server: Server) -> None:
    database = Database("shop", settings_of(connections.connection("shop")))
    with database.connected() as asked:
        slowly = "COPY (SELECT n, pg_sleep(0.01) FROM generate_series(1, 50) n) TO STDOUT"
        assert [int(bytes(row).split()[0]) for row in copying._sent(asked, slowly)] == [*range(1, 51)]
        assert asked.execute("SELECT 1").fetchone() == (1,), "the session can be used on"
    with pytest.raises(RunFailed, match="division by zero"), database.connected() as asked:
        list(copying._sent(asked, "COPY (SELECT 1 / (5 - n) FROM generate_series(1, 9) n) TO STDOUT"))


def source_of(place: Path, table: str, start: Literal["earliest", "latest"] = "earliest", **more: Any) -> Any:
    """Opened anew each time, as every process does."""
    options = {"connection": "shop", "table": table, **more}
    stream = Stream(kind="postgres", address=f"postgres://shop/{table}", options=options, start=start)
    return SOURCE.open("events", stream, place / "home" / "rule" / "sources" / "events")


def test_a_refused_slot_is_not_kept_so_that_the_advice_works(server: Server, place: Path, table: str) -> None:
    server.run(f"CREATE PUBLICATION mine FOR TABLE {table}",
               "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")  # fmt: skip
    named = {"slot": "mine", "publication": "mine"}
    with pytest.raises(Refused, match=r"expected `start: latest` beside `slot: mine`.*write `start: latest`, drop"):
        source_of(place, table, **named).take_start()
    kept = place / "home" / "rule" / "sources" / "events" / "slot.json"
    assert not kept.exists()
    assert json.loads(source_of(place, table, "latest", **named).take_start())["lsn"] != "0/0"
    assert not json.loads(kept.read_text())["made_slot"]


def test_a_home_that_kept_a_refused_slot_takes_the_advice(server: Server, place: Path, table: str) -> None:
    """As earlier versions left it, with a landing that is there."""
    server.run(f"CREATE PUBLICATION mine FOR TABLE {table}",
               "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')")  # fmt: skip
    named = {"slot": "mine", "publication": "mine"}
    begin = source_of(place, table).take_start()
    kept = place / "home" / "rule" / "sources" / "events" / "slot.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"slot": "mine", "publication": "mine", "made_slot": false, "made_publication": false}')
    with pytest.raises(Refused, match="drop the slot, or name another one, since"):
        source_of(place, table, **named).take_end(begin)
    assert source_of(place, table, slot="other", publication="mine").take_end(begin) != begin
    kept.write_text('{"slot": "mine", "publication": "mine", "made_slot": false, "made_publication": false}')
    server.run("SELECT pg_drop_replication_slot('mine')")
    assert source_of(place, table, **named).take_end(begin) != begin
    assert json.loads(kept.read_text())["made_slot"]


@pytest.fixture
def parted(server: Server, place: Path, table: str) -> tuple[str, str]:
    """A partitioned table, and an offset of what was read of it. Beside it is a filled table for a partition."""
    server.run(f"DROP TABLE {table}",
               f"CREATE TABLE {table} (n bigint PRIMARY KEY, k text DEFAULT 'k') PARTITION BY RANGE (n)",
               f"CREATE TABLE {table}a PARTITION OF {table} FOR VALUES FROM (0) TO (10)",
               f"CREATE TABLE {table}b (LIKE {table} INCLUDING ALL)", f"INSERT INTO {table}b VALUES (21)")  # fmt: skip
    source = source_of(place, table)
    end = source.take_end(source.take_start())
    source.landed(end)
    return table, end


def check(server: Server, place: Path, parted: tuple[str, str], *statements: str) -> None:
    """Look at the table after statements, in which `t` is its name, and `AT c` attaches a partition."""
    for one in statements:
        said = one.replace("AT c", "ALTER TABLE t ATTACH PARTITION tc FOR VALUES FROM (20) TO (30)")
        server.run(re.sub(r"\bt(?=[bcd]?\b)", parted[0], said))
    source_of(place, parted[0]).check_appended(parted[1])


CREATED = "CREATE TABLE tc PARTITION OF t FOR VALUES FROM (20) TO (30)"
MADE, COPIED = "CREATE TABLE tc (LIKE t INCLUDING ALL)", "INSERT INTO tc VALUES (21), (22)"
TOUCHED = "BEGIN; DELETE FROM t; UPDATE t SET k = 'x'; ROLLBACK"


@pytest.mark.parametrize(
    "statements",
    [
        [f"BEGIN; {CREATED}; INSERT INTO t VALUES (21); COMMIT", TOUCHED],
        [f"BEGIN; SAVEPOINT s; {CREATED}; RELEASE s; INSERT INTO t VALUES (21); SAVEPOINT s; "
         "INSERT INTO t VALUES (22); COMMIT", "UPDATE t SET k = 'x'"],
        [f"BEGIN; {MADE}; AT c; INSERT INTO t VALUES (21); SAVEPOINT s; INSERT INTO tc VALUES (22); COMMIT", TOUCHED],
        [MADE, "AT c", "BEGIN; SAVEPOINT s; INSERT INTO t VALUES (21); COMMIT", TOUCHED, "UPDATE t SET k = 'x'"],
        [MADE, "AT c", "INSERT INTO t VALUES (1)", "UPDATE t SET n = 21"],
    ],
)  # fmt: skip
def test_a_partition_whose_rows_were_sent_goes_on(
    server: Server, place: Path, parted: tuple[str, str], statements: list[str]
) -> None:
    """PostgreSQL sends what is inserted after a partition was attached, whatever becomes of the rows then."""
    check(server, place, parted, *statements)


@pytest.mark.parametrize(
    "statements",
    [
        [f"BEGIN; {MADE}; INSERT INTO tc VALUES (21); AT c; INSERT INTO t VALUES (22); COMMIT"],
        [f"BEGIN; {MADE}; {COPIED}; AT c; UPDATE tc SET k = 'x'; COMMIT"],
        [f"BEGIN; {MADE}; SAVEPOINT s; {COPIED}; RELEASE s; AT c; COMMIT"],
        [MADE, COPIED, "AT c", "UPDATE t SET k = 'x'"],
        [f"BEGIN; CREATE TABLE td (LIKE t) PARTITION BY RANGE (n); CREATE TABLE tc PARTITION OF td DEFAULT; {COPIED}; "
         "ALTER TABLE t ATTACH PARTITION td FOR VALUES FROM (20) TO (30); UPDATE t SET k = 'x'; COMMIT"],
    ],
)  # fmt: skip
def test_a_partition_with_rows_that_were_not_sent_is_refused(
    server: Server, place: Path, parted: tuple[str, str], statements: list[str]
) -> None:
    with pytest.raises(HistoryGone, match=f"partition {parted[0]}c was attached with rows.*would be sent twice"):
        check(server, place, parted, *statements)


def test_an_offset_of_an_older_version_tells_rows_of_a_partition_by_their_commands(
    server: Server, place: Path, parted: tuple[str, str]
) -> None:
    """It does not say from when on the slot has each insert."""
    older = json.loads(parted[1])
    assert older.pop("following")
    parted = parted[0], json.dumps(older)
    check(server, place, parted, f"BEGIN; {MADE}; AT c; INSERT INTO t VALUES (21); COMMIT")
    server.run(f"DELETE FROM {parted[0]}b", f"INSERT INTO {parted[0]}b VALUES (33)")
    with pytest.raises(HistoryGone, match=f"partition {parted[0]}b was attached with rows"):
        check(server, place, parted, "ALTER TABLE t ATTACH PARTITION tb DEFAULT")


def test_rows_that_another_session_inserts_before_a_partition_is_attached_are_noticed(
    server: Server, place: Path, parted: tuple[str, str]
) -> None:
    table, end = parted
    with server.connect() as connection, connection.transaction():
        connection.execute("SELECT pg_current_xact_id()")
        server.run(f"INSERT INTO {table}b VALUES (22)", f"DELETE FROM {table}b WHERE n = 21")
        connection.execute(f"ALTER TABLE {table} ATTACH PARTITION {table}b FOR VALUES FROM (20) TO (30)")
    with pytest.raises(HistoryGone, match=f"partition {table}b was attached with rows"):
        source_of(place, table).check_appended(end)


def test_a_slot_that_another_reader_advances_before_it_is_read_is_noticed(
    server: Server, place: Path, table: str
) -> None:
    source = source_of(place, table)
    end = source.take_end(source.take_start())
    source.landed(end)
    names = source._holder.names
    with source._database.connected() as asked:
        lsn, query = SlotOffset.parse(end).lsn, slots.messages(asked, names, slots.MOST)
        part = Part(query, kept=slots.kept_since(asked, names, lsn))
        oid = server.ask(f"SELECT '{table}'::regclass::oid::int")[0][0]
        changes = {"oid": oid, "columns": ["n"], "key": ["n"], "since": lsn, "upto": slots.MOST}
        job = Job.parse(Job("shop", (("n", "BIGINT"),), {}, (part,), {}, changes).text())
        server.run(f"INSERT INTO {table} VALUES (7)")
        reader = _Reader(job, source._database.settings)
        assert [row["n"] for batch in reader.read(_Share(job.parts[0])) for row in batch.to_pylist()] == [7]
        server.run(f"INSERT INTO {table} VALUES (1)",
                   f"SELECT pg_replication_slot_advance('{names.slot}', pg_current_wal_lsn())")  # fmt: skip
        with pytest.raises(RunFailed, match="another reader has advanced it meanwhile"):
            list(reader.read(_Share(job.parts[0])))


def test_a_replica_identity_that_is_no_longer_full_is_refused(server: Server, place: Path, table: str) -> None:
    server.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    source = source_of(place, table)
    end = source.take_end(source.take_start())
    source.landed(end)
    assert json.loads(end)["form"]["identity"] == "full"
    server.run(f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT")
    with pytest.raises(HistoryGone, match=f"expected REPLICA IDENTITY FULL of public.{table}, as before"):
        source_of(place, table).take_end(end)
    server.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    source_of(place, table).check_appended(end)


def test_sound_deletes_from_before_a_replica_identity_are_sound_in_each_step(
    server: Server, place: Path, table: str
) -> None:
    source = source_of(place, table)
    server.run(f"INSERT INTO {table} VALUES (1), (2), (3)")
    end = source.take_end(source.take_start())
    source.landed(end)
    server.run(*(f"DELETE FROM {table} WHERE n = {n}" for n in (1, 2, 3)), f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    upto, limits = source.take_end(end), EpochLimits(max_rows=1)
    first = source_of(place, table).after(end, upto, limits)
    second = source_of(place, table).after(first, upto, limits)
    parsed = [SlotOffset.parse(one) for one in (end, first, second, upto)]
    assert sorted({one.lsn for one in parsed}) == [one.lsn for one in parsed]
    assert [one.form.has_whole_rows for one in parsed] == [False, False, False, True]
    assert source_of(place, table).after(second, upto, limits) == upto


def test_an_adopted_slot_may_be_older_than_the_replica_identity(server: Server, place: Path, table: str) -> None:
    server.run(f"CREATE PUBLICATION mine FOR TABLE {table}",
               "SELECT pg_create_logical_replication_slot('mine', 'pgoutput')",
               f"ALTER TABLE {table} REPLICA IDENTITY FULL")  # fmt: skip
    start = source_of(place, table, "latest", slot="mine", publication="mine").take_start()
    assert "identity" not in json.loads(start)["form"]


def test_a_partition_without_the_replica_identity_of_the_others_is_refused(
    server: Server, place: Path, table: str
) -> None:
    server.run(f"DROP TABLE {table}", f"CREATE TABLE {table} (n bigint PRIMARY KEY) PARTITION BY RANGE (n)",
               f"CREATE TABLE {table}a PARTITION OF {table} FOR VALUES FROM (0) TO (10)",
               f"ALTER TABLE {table} REPLICA IDENTITY FULL", f"ALTER TABLE {table}a REPLICA IDENTITY FULL")  # fmt: skip
    source = source_of(place, table)
    end = source.take_end(source.take_start())
    source.landed(end)
    server.run(f"CREATE TABLE {table}b PARTITION OF {table} FOR VALUES FROM (10) TO (20)")
    with pytest.raises(HistoryGone, match=r"FULL of .* and of each of its partitions"):
        source_of(place, table).check_appended(end)


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE {} REPLICA IDENTITY USING INDEX other"],
        ["ALTER TABLE {} DROP CONSTRAINT t_key", "ALTER TABLE {} ADD PRIMARY KEY (m)"],
        ["ALTER TABLE {} REPLICA IDENTITY NOTHING"],
    ],
)
def test_a_key_that_deletes_no_longer_come_with_is_refused(
    server: Server, place: Path, table: str, statements: list[str]
) -> None:
    server.run(f"DROP TABLE {table}",
               f"CREATE TABLE {table} (n int CONSTRAINT t_key PRIMARY KEY, m int NOT NULL, x int)",
               f"CREATE UNIQUE INDEX other ON {table} (m) INCLUDE (n)")  # fmt: skip
    source = source_of(place, table)
    end = source.take_end(source.take_start())
    source.landed(end)
    assert json.loads(end)["form"]["key"] == ["n"]
    server.run(*(one.format(table) for one in statements))
    with pytest.raises(HistoryGone, match=f"replica identity of public.{table} with n, as before, found one without"):
        source_of(place, table).take_end(end)
    server.run(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    source_of(place, table).check_appended(end)


def test_one_partition_whose_deletes_come_with_another_key_is_refused(server: Server, place: Path, table: str) -> None:
    server.run(f"DROP TABLE {table}",
               f"CREATE TABLE {table} (n int PRIMARY KEY, m int NOT NULL, x int) PARTITION BY RANGE (n)",
               f"CREATE TABLE {table}a PARTITION OF {table} FOR VALUES FROM (0) TO (10)",
               f"CREATE TABLE {table}b PARTITION OF {table} FOR VALUES FROM (10) TO (20)",
               f"ALTER TABLE {table}b REPLICA IDENTITY FULL",
               f"CREATE UNIQUE INDEX other ON {table}a (m)")  # fmt: skip
    source = source_of(place, table)
    end = source.take_end(source.take_start())
    source.landed(end)
    assert json.loads(end)["form"]["key"] == ["n"]
    server.run(f"ALTER TABLE {table}b REPLICA IDENTITY DEFAULT")
    source_of(place, table).check_appended(end)
    server.run(f"ALTER TABLE {table}a REPLICA IDENTITY USING INDEX other")
    with pytest.raises(HistoryGone, match="of each of its partitions with n, as before"):
        source_of(place, table).check_appended(end)


def test_updates_that_took_no_row_away_are_no_reason_to_stop(server: Server, place: Path, table: str) -> None:
    """The server counts updates that were rolled back, and those of rows that the same transaction has inserted."""
    source = source_of(place, table, by="snapshots")
    server.run(f"INSERT INTO {table} VALUES (1), (2)")
    begin = source.take_start()
    server.run(f"UPDATE {table} SET k = 'before it was read'")
    end = source.take_end(begin)
    server.run(f"BEGIN; UPDATE {table} SET k = 'x'; ROLLBACK",
               f"BEGIN; INSERT INTO {table} VALUES (3); UPDATE {table} SET k = 'y' WHERE n = 3; COMMIT")  # fmt: skip
    assert source.news(end)
    end = source.take_end(end)
    server.run(f"UPDATE {table} SET k = 'z' WHERE n = 1")
    with pytest.raises(HistoryGone, match="rows are only added, found 1 rows that were updated"):
        source.check_appended(end)


def test_an_update_of_a_row_that_is_not_read_yet_is_retried(
    server: Server, place: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "rows_of", lambda spark, database, reading, parts, same: parts)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    source = source_of(place, table, by="snapshots")
    server.run(f"INSERT INTO {table} VALUES (1), (2)")
    end = source.take_end(source.take_start())
    server.run(f"INSERT INTO {table} VALUES (3)", f"INSERT INTO {table} VALUES (4)")
    upto = source.take_end(end)
    step = source.after(end, upto, EpochLimits(max_rows=1))
    server.run(f"UPDATE {table} SET k = 'x' WHERE n = 4")
    assert [n for part in source.frame(spark, end, step) for n, _ in server.ask(part.query)] == [3]
    with pytest.raises(
        RunFailed, match=r"the 4 rows that were counted .*, found 3: rows were updated meanwhile.*retry"
    ):
        source.frame(spark, step, upto)
    again = source.take_end(step)
    assert [n for part in source.frame(spark, step, again) for n, _ in server.ask(part.query)] == [4]
    source.check_appended(again)
    server.run(f"UPDATE {table} SET k = 'y' WHERE n = 1")
    with pytest.raises(HistoryGone, match="rows are only added, found 2 rows"):
        source.frame(spark, step, again)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_update_while_a_copy_is_read_is_retried_but_a_delete_is_not(
    server: Server, place: Path, table: str, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "rows_of", lambda spark, database, reading, parts, same: parts)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1))
    source = source_of(place, table, by="snapshots")
    server.run(f"INSERT INTO {table} VALUES (1), (2)")
    begin = source.take_start()
    end = source.take_end(begin)
    parts = source.frame(spark, begin, end)
    server.run(f"DELETE FROM {table} WHERE n = 2" if is_deleted else f"UPDATE {table} SET k = 'x' WHERE n = 2")
    assert [n for part in parts for n, _ in server.ask(part.query)] == [1], "the tasks read later"
    if is_deleted:
        source.check_copied(end)
        source.check_appended(end)
        return
    with pytest.raises(RunFailed, match=r"the 2 rows that were counted .*, found 1: rows were updated meanwhile"):
        source.check_copied(end)
    again = source.take_end(begin)
    assert [n for part in source.frame(spark, begin, again) for n, _ in server.ask(part.query)] == [1, 2]
    source.check_copied(again)
    source.check_appended(again)


def test_a_step_knows_how_many_rows_were_read(server: Server, place: Path, table: str) -> None:
    source = source_of(place, table, by="snapshots")
    begin = source.take_start()
    server.run(*(f"INSERT INTO {table} VALUES ({n}), ({n + 1})" for n in (1, 3, 5)))
    end = source.take_end(begin)
    step = source.after(begin, end, EpochLimits(max_rows=2))
    assert step != end and json.loads(step)["rows"] == 2
    server.run(f"BEGIN; UPDATE {table} SET k = 'x'; ROLLBACK")
    source.check_appended(step)


def test_rows_that_are_gone_from_a_server_without_counts_stop_the_rule(server: Server, place: Path, table: str) -> None:
    server.run(f"INSERT INTO {table} VALUES (1), (2)", "ALTER DATABASE postgres SET track_counts = off")
    try:
        source = source_of(place, table, by="snapshots")
        end = source.take_end(source.take_start())
        server.run(f"DELETE FROM {table} WHERE n = 1", f"INSERT INTO {table} VALUES (3)")
        more = source.take_end(end)
        with pytest.raises(HistoryGone, match=r"2 rows that were read before, found that 1 are gone, and .* a standby"):
            source.frame(None, end, more)
    finally:
        server.run("ALTER DATABASE postgres RESET track_counts")
    with pytest.raises(RunFailed, match="found that 1 are gone, and that the server has not counted yet"):
        source_of(place, table, by="snapshots").frame(None, end, more)


def test_a_database_that_checks_no_encoding_gives_its_other_rows(server: Server) -> None:
    server.run("DROP DATABASE IF EXISTS bytes", "CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0")
    wanted = copying.Wanted(columns_of("n BIGINT, k STRING"), {})
    with psycopg.connect(server.uri.replace("/postgres", "/bytes"), autocommit=True, client_encoding="UTF8") as asked:
        asked.execute("CREATE TABLE t (n bigint PRIMARY KEY, k text)")
        asked.execute("CREATE PUBLICATION p FOR TABLE t")
        asked.execute("SELECT pg_create_logical_replication_slot('of_bytes', 'pgoutput')")
        asked.execute(r"INSERT INTO t VALUES (1, 'plain'), (2, convert_from('\xe9', 'SQL_ASCII'))")
        (oid,) = asked.execute("SELECT 't'::regclass::oid::bigint").fetchone() or ()
        peek = "pg_logical_slot_peek_binary_changes('of_bytes', NULL, NULL, 'proto_version', '1'"
        messages = f"SELECT data FROM {peek}, 'publication_names', 'p')"
        newest = slots.newest(asked, slots.Names("of_bytes", "p"), 0)
        assert newest is not None
        assert slots.ends(asked, slots.Names("of_bytes", "p"), 0, newest.end, 1) == [newest.end]
        assert asked.execute("SELECT 'é'").fetchone() == ("é",)
        changes = Changes(oid, ["n", "k"], {"n"}, 0, 1 << 60)
        both = [
            *copying.copied(asked, "SELECT * FROM t", wanted, {}),
            *copying.changed(asked, messages, wanted, changes),
        ]
        asked.execute("SELECT pg_drop_replication_slot('of_bytes')")
    server.run("DROP DATABASE bytes")
    assert [[(row["n"], row["k"]) for row in batch.to_pylist()] for batch in both] == [[(1, "plain"), (2, None)]] * 2
    for batch in both:
        good, bad = (row[MALFORMED] for row in batch.to_pylist())
        assert good is None and "column k: expected text in UTF-8, found b'\\xe9'" in bad
