"""What happens to a table of PostgreSQL and is not among its changes, beside a real server. Few tests need a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.postgres import Server, started

from floodmark.connectors.ports import connections
from floodmark.connectors.sources.postgres.kind import SOURCE
from floodmark.core.rules.rule import Stream
from floodmark.errors import HistoryGone, RunFailed
from floodmark.proving.play.processes import wait_until

PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
    "CREATE TABLE t_a PARTITION OF t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE t_b PARTITION OF t FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id)",
    "CREATE TABLE t_b1 PARTITION OF t_b FOR VALUES FROM (100) TO (150)",
    "CREATE TABLE t_empty PARTITION OF t FOR VALUES FROM (900) TO (999)",
    "INSERT INTO t VALUES (1, 1), (2, 2), (101, 1)",
)

PLAIN = ("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 1, 10), (2, 2, 20)")


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with started(root / "postgres") as found:
        yield found


@pytest.fixture(autouse=True)
def _alone(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)
    yield
    for (slot,) in server.ask("SELECT slot_name FROM pg_replication_slots"):
        server.run(f"SELECT pg_drop_replication_slot('{slot}')")
    for (one,) in server.ask("SELECT pubname FROM pg_publication"):
        server.run(f"DROP PUBLICATION {one}")
    server.run("DROP TABLE IF EXISTS t, t_b, t_c CASCADE")


class Reader:
    """Takes offsets as a landing does."""

    def __init__(self, place: Path, **more: Any):
        options = {"connection": "shop", "table": "t", **more}
        self._stream = Stream(kind="postgres", address="postgres://shop/public.t", options=options)
        self._keep = place / "home" / "rule" / "sources" / "events"
        self.at = self.source.take_start()
        self.go_on()

    @property
    def source(self) -> Any:
        return SOURCE.open("events", self._stream, self._keep)

    def go_on(self) -> None:
        self.at = self.source.take_end(self.at)
        self.source.landed(self.at)

    def refused(self, said: str) -> None:
        for look in (self.source.news, self.source.check_appended, self.source.take_end, self.source.backlog):
            with pytest.raises(HistoryGone, match=said) as found:
                look(self.at)
            assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["TRUNCATE t_a"], "partition t_a was emptied by TRUNCATE.*publication"),
        (["TRUNCATE t_b1", "INSERT INTO t VALUES (102, 1)"], "partition t_b1 was emptied"),
        (["ALTER TABLE t DETACH PARTITION t_b"], "partition t_b1 was detached or dropped"),
        (["DROP TABLE t_a"], r"partition with oid \d+ was detached or dropped"),
        (
            ["ALTER TABLE t DETACH PARTITION t_a", "UPDATE t_a SET n = 9",
             "ALTER TABLE t ATTACH PARTITION t_a FOR VALUES FROM (0) TO (100)"],
            "partition t_a was detached, and attached again",
        ),
        (
            ["CREATE TABLE t_c (id int PRIMARY KEY, n int)", "INSERT INTO t_c VALUES (201, 9)",
             "ALTER TABLE t ATTACH PARTITION t_c FOR VALUES FROM (200) TO (300)", "INSERT INTO t VALUES (203, 1)"],
            "partition t_c was attached with rows.*DETACH PARTITION t_c",
        ),
        (
            ["CREATE TABLE t_c (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
             "CREATE TABLE t_c1 PARTITION OF t_c FOR VALUES FROM (200) TO (250)", "INSERT INTO t_c VALUES (201, 9)",
             "ALTER TABLE t ATTACH PARTITION t_c FOR VALUES FROM (200) TO (300)"],
            "partition t_c1 was attached with rows",
        ),
        (["ALTER TABLE t ALTER n TYPE int USING n * 100"], "partition t_a was emptied by TRUNCATE, or written anew"),
    ],
)  # fmt: skip
def test_rows_that_come_and_go_with_a_partition_stop_the_run(
    server: Server, place: Path, statements: list[str], said: str
) -> None:
    server.run(*PARTED)
    reader = Reader(place)
    server.run(*statements)
    reader.refused(f"table public.t: {said}.* reset")


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE t_c PARTITION OF t FOR VALUES FROM (200) TO (300)"],
        ["CREATE TABLE t_c (id int PRIMARY KEY, n int)",
         "ALTER TABLE t ATTACH PARTITION t_c FOR VALUES FROM (200) TO (300)", "INSERT INTO t VALUES (203, 1)"],
        ["VACUUM FULL", "ANALYZE", "CLUSTER t_a USING t_a_pkey", "UPDATE t SET n = 5 WHERE id = 1"],
        ["DROP TABLE t_empty", "INSERT INTO t VALUES (102, 1)"],
        ["ALTER TABLE t_a RENAME TO t_old", "ALTER TABLE t ADD COLUMN more int DEFAULT 3", "DELETE FROM t"],
    ],
)  # fmt: skip
def test_upkeep_of_partitions_goes_on(server: Server, place: Path, statements: list[str]) -> None:
    server.run(*PARTED)
    reader = Reader(place)
    server.run(*statements)
    reader.source.news(reader.at)
    reader.source.check_appended(reader.at)
    reader.go_on()
    server.run("INSERT INTO t VALUES (3, 3)")
    assert reader.source.news(reader.at)
    reader.go_on()


def test_a_publication_without_truncate_lets_partitions_go(server: Server, place: Path) -> None:
    server.run(*PARTED, "CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert', publish_via_partition_root = true)")
    reader = Reader(place, publication="p")
    server.run("DROP TABLE t_a", "TRUNCATE t_b1", "INSERT INTO t VALUES (102, 1)")
    assert reader.source.news(reader.at)
    reader.go_on()
    server.run("ALTER TABLE t ALTER n TYPE int USING n * 100")
    reader.refused("ALTER TABLE ... TYPE ... USING has written all of them anew, and altered n")


def test_offsets_of_older_versions_go_on(server: Server, place: Path) -> None:
    server.run(*PARTED)
    reader = Reader(place)
    said = json.loads(reader.at)
    assert said.pop("form")["before"] > 0
    reader.at = json.dumps(said)
    server.run("DROP TABLE t_a", "INSERT INTO t VALUES (102, 1)")
    reader.go_on()
    assert json.loads(reader.at)["form"]["files"]


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t ALTER a TYPE int USING a * 100"],
        ["ALTER TABLE t ALTER a TYPE int USING a * 100", "INSERT INTO t VALUES (3, 3, 30)", "VACUUM FULL t"],
        ["VACUUM FULL t", "ALTER TABLE t ALTER a TYPE int USING a * 100",
         "ALTER TABLE t ALTER a SET DEFAULT 5"],
    ],
)  # fmt: skip
def test_values_that_a_statement_writes_anew_stop_the_run(server: Server, place: Path, statements: list[str]) -> None:
    server.run(*PLAIN)
    reader = Reader(place)
    server.run(*statements)
    reader.refused(r"table public.t: .* TYPE ... USING has written all of them anew, and altered a: .*reset")


@pytest.mark.parametrize(
    ("statements", "names"),
    [
        (["ALTER TABLE t ADD COLUMN c int DEFAULT 5", "ALTER TABLE t DROP COLUMN a",
          "ALTER TABLE t RENAME c TO a"], "a"),
        (["ALTER TABLE t RENAME a TO c", "ALTER TABLE t RENAME b TO a", "ALTER TABLE t RENAME c TO b"], "a, b"),
        (["ALTER TABLE t DROP COLUMN b, ADD COLUMN b int", "INSERT INTO t VALUES (3, 3, 30)"], "b"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("by", ["slot", "snapshots"])
def test_a_column_in_the_place_of_another_stops_the_run(
    server: Server, place: Path, by: str, statements: list[str], names: str
) -> None:
    server.run(*PLAIN)
    reader = Reader(place, by=by)
    server.run(*statements)
    reader.refused(rf"table public.t: expected column {names} as it was read, found another one of that name.*reset")


@pytest.mark.parametrize(
    "statements",
    [
        ["VACUUM FULL t", "ALTER TABLE t ALTER a SET NOT NULL, ALTER b SET DEFAULT 5"],
        [
            "CLUSTER t USING t_pkey",
            "ALTER TABLE t ADD COLUMN more int, ALTER a SET STATISTICS 100",
            "DELETE FROM t WHERE id = 1",
        ],
        ["ALTER TABLE t ADD COLUMN key uuid DEFAULT gen_random_uuid()", "INSERT INTO t VALUES (3, 3, 30)"],
        ["ALTER TABLE t DROP COLUMN b", "VACUUM FULL t"],
        ["TRUNCATE t", "INSERT INTO t VALUES (3, 3, 30)"],
    ],
)
def test_statements_that_keep_values_go_on(server: Server, place: Path, statements: list[str]) -> None:
    """TRUNCATE is a change that the slot sends."""
    server.run(*PLAIN)
    reader = Reader(place)
    server.run(*statements)
    reader.source.check_appended(reader.at)
    reader.go_on()
    server.run("INSERT INTO t VALUES (4, 4)")
    assert reader.source.news(reader.at)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("narrower", "as_before"),
    [
        ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
        ("SET TABLE t WHERE (id > 10)", "SET TABLE t"),
    ],
)
def test_a_publication_that_sends_less_stops_the_run(
    server: Server, place: Path, own: bool, narrower: str, as_before: str
) -> None:
    server.run(*PLAIN, "CREATE PUBLICATION p FOR TABLE t")
    reader = Reader(place) if own else Reader(place, publication="p")
    [(named,)] = server.ask(f"SELECT pubname FROM pg_publication WHERE {own} = (pubname <> 'p')")
    server.run(f"ALTER PUBLICATION {named} {narrower}", "UPDATE t SET a = 5 WHERE id = 1")
    reader.refused(
        f"expected publication {named} to send insert, update, delete, truncate of public.t, as before, found"
    )
    server.run(f"ALTER PUBLICATION {named} {as_before}", "CREATE TABLE t_c (id int)",
               f"ALTER PUBLICATION {named} ADD TABLE t_c")  # fmt: skip
    reader.go_on()


def test_a_publication_of_part_of_a_table_is_read_as_it_began(server: Server, place: Path) -> None:
    server.run(*PLAIN, "CREATE PUBLICATION p FOR TABLE t WHERE (id > 1) WITH (publish = 'insert')")
    reader = Reader(place, publication="p")
    assert reader.source.news(reader.at) is False
    server.run("ALTER PUBLICATION p SET (publish = 'insert, truncate')", "INSERT INTO t VALUES (3, 3)")
    reader.go_on()
    server.run("ALTER PUBLICATION p SET TABLE t")
    reader.refused(r"found insert, truncate. .*ADD TABLE public.t WHERE \(\(id > 1\)\)")


# --- Updates of a table without a slot


def update(server: Server) -> None:
    """Its session ends, and so the server counts it."""
    server.run("UPDATE t SET a = 20 WHERE id = 2")
    wait_until(lambda: server.ask("SELECT pg_stat_get_tuples_updated('t'::regclass)")[0][0] > 0, server.process, 20)


def forget_counts(server: Server) -> None:
    server.run("SELECT pg_stat_reset()")


def crash(server: Server) -> None:
    server.kill()
    server.start()


@pytest.mark.parametrize("forget", [forget_counts, crash])
def test_updates_are_noticed_although_the_server_has_forgotten_its_counts(
    server: Server, place: Path, forget: Callable[[Server], None]
) -> None:
    server.run(*PLAIN)
    reader = Reader(place, by="snapshots")
    update(server)
    forget(server)
    reader.refused("expected 2 rows as they were read, found 1, and the server's count of updates since, .*began anew")
    said = json.loads(reader.at)
    reader.at = json.dumps({**said, "rows": None})
    reader.refused("expected the server's count of updates since, found that it began anew")


@pytest.mark.parametrize("forget", [forget_counts, crash])
def test_a_server_that_forgets_its_counts_stops_no_table_whose_rows_are_all_there(
    server: Server, place: Path, forget: Callable[[Server], None]
) -> None:
    server.run(*PLAIN)
    reader = Reader(place, by="snapshots")
    forget(server)
    server.run("INSERT INTO t VALUES (3, 3, 30)")
    assert reader.source.news(reader.at)
    reader.go_on()
    update(server)
    reader.refused("found 1 rows that were updated")


@pytest.mark.parametrize(
    ("statement", "said"),
    [("UPDATE t SET a = 20 WHERE id = 2", "found 1 rows that were updated"), ("DELETE FROM t WHERE id = 2", None)],
)
def test_an_update_that_the_server_has_not_counted_yet_is_waited_for(
    server: Server, place: Path, spark: SparkSession, statement: str, said: str | None
) -> None:
    server.run(*PLAIN)
    reader = Reader(place, by="snapshots")
    with server.connect() as writer:
        writer.execute("SELECT pg_stat_force_next_flush()")  # for a second now, it reports nothing
        writer.execute(statement)
        end = reader.source.take_end(reader.at)
        with pytest.raises(RunFailed, match=r"expected the 2 rows .* before, found that 1 are gone.*Retry"):
            reader.source.frame(spark, reader.at, end)
    counted = "SELECT pg_stat_get_tuples_updated('t'::regclass) + pg_stat_get_tuples_deleted('t'::regclass)"
    wait_until(lambda: server.ask(counted)[0][0] > 0, server.process, 20)
    if said:
        reader.refused(said)
    else:
        server.run("INSERT INTO t VALUES (3, 3, 30)")
        assert reader.source.frame(spark, reader.at, reader.source.take_end(reader.at)).count() == 1
