"""Rows of a PostgreSQL target are merged by key, by one statement or by joins: a table is then as a model has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import psycopg
import pyarrow as pa
import pytest
from support.flow import event
from support.outboxed import Outboxed
from support.postgres import Server, started

from floodmark.connectors.ports import connections
from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.targets.postgres import sessions, target
from floodmark.connectors.targets.postgres.merging import MANY, Merging
from floodmark.connectors.targets.postgres.options import WrittenPostgres
from floodmark.connectors.targets.postgres.reading import read
from floodmark.connectors.targets.postgres.statements import positions_table
from floodmark.connectors.targets.postgres.table import PostgresTable
from floodmark.connectors.targets.postgres.target import PostgresTarget
from floodmark.connectors.targets.postgres.types import arrow_type
from floodmark.core.protocol.records.rows import Life, Redelivery
from floodmark.core.relay.positions import Position
from floodmark.core.rules.sinks.sinkcolumns import DELETE_COLUMN
from floodmark.core.text.ddl import Column, columns_of
from floodmark.errors import InputFault, Refused, RunFailed, WrongColumn

COLUMNS = columns_of("k STRING, n INT, v INT")
KEYS = ("a", "b", "B", "ä", "", None)
# Tables that somebody made; whether only the relay has a say in their rows.
TABLES = {
    "": True,  # made by the relay
    "k text, n int, v int": True,
    "k text, n int, v int, EXCLUDE (k WITH =)": True,
    "k text, n int, v int, made int GENERATED ALWAYS AS IDENTITY": False,
    "k text, n int, v int, UNIQUE NULLS NOT DISTINCT (k) DEFERRABLE": False,
    "k text, n int, v int REFERENCES numbers": False,
}
Row: TypeAlias = tuple[str | None, int | None, int | None]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found:
        found.run("CREATE TABLE numbers (n int PRIMARY KEY)", "INSERT INTO numbers VALUES (1), (2), (3)")
        yield found


@pytest.fixture(autouse=True)
def _connected(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_KEEPERS", {})
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)


class Merged:
    """One table, and portions that come to it."""

    def __init__(
        self,
        server: Server,
        name: str,
        made: str,
        newest: str | None,
        columns: tuple[Column, ...] = COLUMNS,
        also: str = "SELECT 1",
        key: tuple[str, ...] = ("k",),
    ):
        """`made`: the columns that somebody made it with; empty: the relay makes it."""
        self._server, self.table, self._at = server, f"t{name}", Position("owner")
        self.layout = Layout(columns, key, newest)
        if made:
            server.run(f"CREATE TABLE {self.table} ({made})")
        server.run(also.format(self.table))
        self._target = PostgresTarget("shop", WrittenPostgres(connection="shop", table=self.table))
        self.claim()

    def claim(self) -> None:
        self._target.claim("owner", self.layout)

    def send(self, rows: Sequence[tuple[tuple[Any, ...], bool]], whole: bool = False, empties: bool = False) -> None:
        """Rows with one for each key; true: its key's row goes. Without a key, there is no mark."""
        names = [one.name for one in self.layout.columns]
        kinds = (arrow_type(one.type) for one in self.layout.columns)
        columns = [pa.array([row[i] for row, _ in rows], kind) for i, kind in enumerate(kinds)]
        gone = pa.array((one for _, one in rows), pa.bool_())
        marks = [(gone, DELETE_COLUMN)] if self.layout.key else []
        batch = pa.RecordBatch.from_arrays(
            [*columns, *(one for one, _ in marks)], [*names, *(name for _, name in marks)]
        )
        upto = replace(self._at, epoch=self._at.epoch + 1, seq=self._at.seq + 1)
        batches = (batch.slice(0, 1), batch.slice(1, 0), batch.slice(1))
        one = Operation(str(upto.seq), upto, empties, None, whole, len(rows), lambda: iter(batches))
        self._target.apply([one], self.layout, self._at, upto, lambda: None)
        self._at = upto

    def read_back(self) -> list[pa.RecordBatch]:
        return list(self._target.read_back(self.layout))

    def keyed_by(self, *key: str) -> None:
        """As after a reset that has changed the key."""
        self.layout = replace(self.layout, key=key)

    def uniques(self) -> list[str]:
        """The columns of each unique index."""
        indexes = f"SELECT indexdef FROM pg_indexes WHERE tablename = '{self.table}' AND indexdef LIKE '%UNIQUE%'"
        return sorted(text.partition("(")[2].partition(")")[0] for (text,) in self._server.ask(indexes))

    def rows(self) -> set[Row]:
        """Raises ValueError for a row that is there twice."""
        found = self._server.ask(f"SELECT k, n, v FROM {self.table}")
        if len(found) != len(set(found)):
            raise ValueError(f"doubled: {found}")
        return set(found)


def model(held: dict[str | None, Row], rows: list[tuple[Row, bool]], newest: bool, whole: bool) -> None:
    for row, gone in rows:
        there = held.get(row[0])
        if gone:
            held.pop(row[0], None)
        elif there is None or not newest or whole or _order(row) > _order(there):
            held[row[0]] = row


def _order(row: Row) -> list[tuple[bool, int]]:
    """By `n`, then by `v`; NULL is the smallest."""
    return [(value is not None, value or 0) for value in row[1:]]


def some(random: Random) -> list[tuple[Row, bool]]:
    def value() -> int | None:
        return random.choice((None, 1, 2, 3))

    keys = random.sample(KEYS, random.randint(1, len(KEYS)))
    return [((key, value(), value()), random.random() < 0.2) for key in keys]


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each portion that is large enough to look whether all of its keys are new, whether they were."""
    found, add_new = list[bool](), Merging.add_new

    def noted(self: Merging, rows: Callable[[], Iterable[pa.RecordBatch]]) -> bool:
        found.append(add_new(self, rows))
        return found[-1]

    monkeypatch.setattr(Merging, "add_new", noted)
    return found


@pytest.mark.parametrize("many", [MANY, 0])
@pytest.mark.parametrize("newest", [None, "n"])
@pytest.mark.parametrize("made", TABLES)
def test_a_table_is_as_the_model_has_it(
    server: Server, place: Path, made: str, newest: str | None, many: int, added: list[bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`many`: rows from which new keys are looked for."""
    monkeypatch.setattr(target, "MANY", many)
    merged = Merged(server, place.name, made, newest)
    random, held = Random(f"{made}{newest}"), dict[str | None, Row]()
    for _ in range(12):
        rows, whole = some(random), random.random() < 0.3
        merged.send(rows, whole)
        model(held, rows, newest is not None, whole)
        assert merged.rows() == set(held.values())
    with psycopg.connect(server.uri) as session:
        assert PostgresTable("", ("public", merged.table)).is_ours_alone(session, merged.layout) == TABLES[made]
    assert bool(added) == (many == 0)
    assert TABLES[made] or True not in added


def _keys(*numbers: int) -> list[tuple[tuple[Any, ...], bool]]:
    return [((number, 1), False) for number in numbers]


def test_new_keys_are_added_and_a_known_one_is_found_wherever_it_is(
    server: Server, place: Path, added: list[bool]
) -> None:
    """A look at a few rows finds most; the table's index finds the others, and what was added then is taken back."""
    merged = Merged(server, place.name, "", None, columns_of("k INT, v INT"))
    merged.send(_keys(*range(MANY)))  # into an empty table
    merged.send(_keys(*range(MANY, 2 * MANY - 1)))  # too few for a look
    assert added == []
    merged.send(_keys(*range(2 * MANY, 3 * MANY)))
    assert added == [True]
    for known in (0, 1, MANY - 1):
        rows = _keys(*range(3 * MANY, 4 * MANY))
        rows[known] = (2 * MANY, 2), False
        merged.send(rows)
    assert added == [True, False, False, False]
    merged.send([*_keys(*range(4 * MANY, 5 * MANY - 1)), ((2 * MANY, 0), True)])
    merged.send([*_keys(*range(5 * MANY, 6 * MANY - 1)), ((None, 0), False)])
    assert added[4:] == [False, False]
    there = {key: 1 for key in range(6 * MANY - 1) if key not in (2 * MANY - 1, 2 * MANY, 5 * MANY - 1)}
    assert dict(server.ask(f"SELECT k, v FROM {merged.table}")) == there | {None: 0}


PARTS = [(None, "x"), ("y", None), (None, None), ("y", "x"), (None, "z")]


@pytest.mark.parametrize("unique", ["", "UNIQUE NULLS NOT DISTINCT (k, part) DEFERRABLE", "UNIQUE (k, part)"])
def test_null_is_a_value_in_any_part_of_a_key(server: Server, place: Path, unique: str) -> None:
    """In a table of the relay's own, in one that is merged by joins, and in one to whose index NULLs differ."""
    columns = columns_of("k STRING, part STRING, n INT, v INT")
    made = f"k text, part text, n int, v int, {unique}" if unique else ""
    merged = Merged(server, place.name[:8], made, None, columns, key=("k", "part"))
    merged.send([((*key, 1, 1), False) for key in PARTS])
    merged.send([((*key, 2, 2), i == 1) for i, key in enumerate(PARTS[:3])])
    found = server.ask(f"SELECT k, part, n FROM {merged.table}")
    assert sorted(found, key=repr) == sorted([(None, "x", 2), (None, None, 2), ("y", "x", 1), (None, "z", 1)], key=repr)


def test_what_a_trigger_refuses_is_a_row_whatever_its_sqlstate(server: Server, place: Path) -> None:
    refuse = (
        "CREATE FUNCTION refuse_{0}() RETURNS trigger AS $$ BEGIN IF NEW.n = 3 THEN "
        "RAISE EXCEPTION 'no threes' USING ERRCODE = 'U0001'; END IF; RETURN NEW; END $$ LANGUAGE plpgsql; "
        "CREATE TRIGGER refuse BEFORE INSERT ON {0} FOR EACH ROW EXECUTE FUNCTION refuse_{0}()"
    )
    merged = Merged(server, place.name[:8], "k text, n int, v int, UNIQUE (k)", None, also=refuse)
    merged.send([(("a", 1, 1), False)])
    with pytest.raises(InputFault, match="no threes"):
        merged.send([(("b", 3, 1), False)])


def test_what_no_retry_mends_is_refused(server: Server, place: Path) -> None:
    made = "k text, n int GENERATED ALWAYS AS (1) STORED, v int, UNIQUE (k)"
    with pytest.raises(Refused, match=r"the server refuses: .*generated column"):
        Merged(server, place.name[:8], made, None).send([(("a", 1, 1), False)])
    long = columns_of(f"k STRING, {'n' * 64} INT")
    with pytest.raises(WrongColumn, match="names of columns of at most 63 bytes"):
        Merged(server, place.name[8:16], "", None, long)


def test_values_are_read_back_as_they_are() -> None:
    """A NULL alone is an empty line, a DECIMAL no float, a key of a MAP text."""
    cases: dict[str, tuple[bytes, list[Any]]] = {
        "STRING": (b'a\n\n""\n', ["a", None, ""]),
        "ARRAY<DECIMAL(38,10)>": (
            b'"[1234567890123456789.1234567891,null]"\n',
            [[Decimal("1234567890123456789.1234567891"), None]],
        ),
        "MAP<BOOLEAN, INT>": (b'"{""True"": 1}"\n', [[(True, 1)]]),
    }
    for kind, (text, values) in cases.items():
        (batch,) = read([line + b"\n" for line in text.splitlines()], columns_of(f"c {kind}"))
        assert batch.column("c").to_pylist() == values


def test_keys_alone_are_merged(server: Server, place: Path) -> None:
    merged = Merged(server, place.name, "", None, columns_of("k STRING"))
    for rows in ([("a",), ("b",)], [("b",), ("c",), (None,)], [(None,), ("a",)]):
        merged.send([(row, False) for row in rows])
    assert sorted(server.ask(f"SELECT k FROM {merged.table}"), key=str) == [("a",), ("b",), ("c",), (None,)]


def test_a_row_that_is_there_is_no_new_row_to_others(server: Server, place: Path) -> None:
    """Neither to a sequence nor to a trigger of the table."""
    merged = Merged(server, place.name, "k text, n int, v int, made int GENERATED ALWAYS AS IDENTITY", None)
    for number in range(3):
        merged.send([(("a", number, 0), False), (("b", number, 0), False), ((f"c{number}", number, 0), False)])
    assert server.ask(f"SELECT max(made) FROM {merged.table}") == [(5,)]


def test_an_index_on_an_expression_is_none_on_the_key(server: Server, place: Path) -> None:
    merged = Merged(server, place.name, "k text, n int, v int", None, also="CREATE UNIQUE INDEX ON {0} (k, abs(n))")
    merged.send([(("a", 1, 1), False)])
    merged.send([(("a", 2, 2), False)])
    assert merged.rows() == {("a", 2, 2)}


def test_two_rows_that_are_one_key_to_the_table_are_named(server: Server, place: Path) -> None:
    """As any row that a table refuses."""
    merged = Merged(server, place.name, "", None, columns_of("k DOUBLE, v INT"))
    merged.send([((1.0, 1), False)])
    with pytest.raises(InputFault, match="epoch 2: expected rows that the table takes, found one"):
        merged.send([((0.0, 2), False), ((-0.0, 3), False)])
    assert server.ask(f"SELECT k FROM {merged.table}") == [(1.0,)]


@pytest.mark.parametrize("key", [("n",), ("k", "n"), ()])
def test_a_reset_with_another_key_leaves_no_index_of_the_one_before(
    server: Server, place: Path, key: tuple[str, ...]
) -> None:
    """It would refuse rows that are right now."""
    merged = Merged(server, place.name, "", None)
    merged.send([(("a", 1, 1), False)])
    merged.keyed_by(*key)
    merged.send([(("a", 1, 1), False), (("a", 2, 2), False)], empties=True)
    merged.send([(("a", 3, 3), False)])
    assert merged.rows() == {("a", 1, 1), ("a", 2, 2), ("a", 3, 3)}
    assert merged.uniques() == ([", ".join(key)] if key else [])


@pytest.mark.parametrize("fresh", ["n", "v"])
def test_rows_that_a_reset_keeps_are_merged_by_the_key_of_now(server: Server, place: Path, fresh: str) -> None:
    """Rows that stay may have one key several times: there is no index then."""
    merged = Merged(server, place.name, "", None)
    merged.send([(("a", 1, 7), False), (("b", 2, 7), False)])
    merged.keyed_by(fresh)
    row = ("a", 1, 9) if fresh == "n" else ("a", 5, 9)
    merged.send([(row, False)])
    merged.send([(("a", 6, 8), False)])
    known = {("b", 2, 7)} if fresh == "n" else {("a", 1, 7), ("b", 2, 7)}
    assert (merged.rows(), merged.uniques()) == ({row, ("a", 6, 8), *known}, [fresh] * (fresh == "n"))


def test_a_trigger_that_waits_for_commit_does_not_keep_the_new_index_away(server: Server, place: Path) -> None:
    also = (
        "CREATE FUNCTION {0}_f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE CONSTRAINT "
        "TRIGGER g AFTER DELETE OR INSERT ON {0} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {0}_f()"
    )
    merged = Merged(server, place.name, "k text, n int, v int", None, also=also)
    merged.send([(("a", 1, 1), False)])
    merged.keyed_by("n")
    merged.send([(("a", 1, 1), False), (("a", 2, 2), False)], empties=True)
    assert (merged.rows(), merged.uniques()) == ({("a", 1, 1), ("a", 2, 2)}, ["n"])


def test_an_index_of_somebody_stays_whatever_the_key(server: Server, place: Path) -> None:
    also = "CREATE UNIQUE INDEX ON {0} (k)"
    merged = Merged(server, place.name, "k text, n int, v int", None, also=also)
    merged.send([(("a", 1, 1), False)])
    merged.keyed_by("n")
    with pytest.raises(InputFault, match="duplicate key"):
        merged.send([(("a", 1, 1), False), (("a", 2, 2), False)], empties=True)
    assert merged.uniques() == ["k"]


PARTED = "CREATE TABLE {0} (k text, n int, v int) PARTITION BY LIST (k); CREATE TABLE {0}_a PARTITION OF {0} DEFAULT"
FOREIGN = (
    "DROP FOREIGN DATA WRAPPER IF EXISTS others CASCADE; CREATE FOREIGN DATA WRAPPER others; CREATE SERVER other "
    "FOREIGN DATA WRAPPER others; CREATE FOREIGN TABLE {0}{1} SERVER other"
)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("CREATE UNLOGGED TABLE {0} (k text, n int, v int)", "{0}, which a crash of the server empties: ALTER TABLE"),
        (PARTED.replace("E TABLE {0}_a", "E UNLOGGED TABLE {0}_a"), "{0}_a, which a crash of the server empties"),
        ("CREATE VIEW {0} AS SELECT k, n, v FROM (VALUES ('a', 1, 1)) t (k, n, v) WHERE false", "a view, {0}: name"),
        ("CREATE MATERIALIZED VIEW {0} AS SELECT 'a' AS k, 1 AS n, 1 AS v WHERE false", "a materialized view, {0}"),
        (FOREIGN.replace("{1}", " (k text, n int, v int)"), "a foreign table, {0}"),
        (PARTED.partition(";")[0] + ";" + FOREIGN.replace("{1}", "_a PARTITION OF {0} DEFAULT"), "table, {0}_a"),
    ],
)
def test_a_table_that_does_not_last_with_the_position_is_refused(
    server: Server, place: Path, made: str, said: str
) -> None:
    with pytest.raises(
        Refused, match=re.escape("expected a table that lasts, found ") + f".*{said.format(name(place))}"
    ):
        Merged(server, place.name, "", None, also=made, key=())


def name(place: Path) -> str:
    """Of the table of `Merged`."""
    return f"t{place.name}"


def test_partitions_that_last_are_taken_over(server: Server, place: Path) -> None:
    merged = Merged(server, place.name, "", None, also=PARTED, key=())
    merged.send([(("a", 1, 1), False)])
    assert merged.rows() == {("a", 1, 1)}


def test_a_table_that_is_unlogged_later_is_refused_though_nothing_is_sent(server: Server, place: Path) -> None:
    merged = Merged(server, place.name, "", None)
    merged.claim()
    server.run(f"ALTER TABLE {merged.table} SET UNLOGGED")
    with pytest.raises(Refused, match=rf"ALTER TABLE {merged.table} SET LOGGED"):
        merged.claim()


def log_in(server: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have relays connect as a new role of this name, with no rights of its own."""
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri.replace("//airflow:", f"//{name}:"))
    server.run(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN PASSWORD '{server.password}'")


def test_a_login_without_the_right_to_create_tables_ships_into_tables_that_exist(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(server, "narrow", monkeypatch)
    server.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO narrow"
    merged = Merged(server, place.name, MADE, None, also=f"{positions_table('public')}; {rights}", key=())
    merged.send([(("a", 1, 1), False)])
    assert merged.rows() == {("a", 1, 1)}


def test_a_table_that_hides_rows_from_the_login_is_refused(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy, if it binds the login: here that of another one than the table's owner."""
    log_in(server, "hid", monkeypatch)
    server.run("GRANT ALL ON SCHEMA public TO hid")
    merged = Merged(server, place.name, MADE, None, also="GRANT ALL ON ALL TABLES IN SCHEMA public TO hid", key=())
    merged.send([(("a", 1, 1), False)])
    server.run(f"CREATE POLICY hiding ON {merged.table} USING (k <> 'a') WITH CHECK (true)")
    merged.claim()
    server.run(f"ALTER TABLE {merged.table} ENABLE ROW LEVEL SECURITY")
    for ask in (merged.claim, merged.read_back):
        with pytest.raises(Refused, match=rf"ALTER TABLE {merged.table} DISABLE .*, ALTER ROLE hid BYPASSRLS"):
            ask()
    server.run("ALTER ROLE hid BYPASSRLS")
    merged.send([(("b", 1, 1), False)])
    assert merged.rows() == {("a", 1, 1), ("b", 1, 1)}
    server.run("DROP OWNED BY hid; DROP ROLE hid")


# A server without ICU cannot make such a collation, so one is marked as such.
CI = (
    "CREATE COLLATION IF NOT EXISTS ci (provider = libc, locale = 'C'); "
    "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'ci'; "
)


@pytest.mark.parametrize(
    ("column", "also", "said"),
    [
        ("varchar(1)", "", "found character varying(1), which cuts off blanks: ALTER TABLE {0} ALTER COLUMN"),
        ("text COLLATE ci", "", "nondeterministic collation ci: ALTER TABLE {0} ALTER COLUMN"),
        ("text", "CREATE UNIQUE INDEX {0}_ci ON {0} (v, k COLLATE ci)", "collation ci of index {0}_ci: DROP INDEX"),
    ],
)
def test_a_table_to_which_two_keys_may_be_one_is_refused(
    server: Server, place: Path, column: str, also: str, said: str
) -> None:
    """What the message says mends it."""
    table = f"t{place.name}"
    server.run(CI, f"CREATE TABLE {table} (k {column}, n int, v int)", also.format(table))
    with pytest.raises(WrongColumn) as fault:
        Merged(server, place.name, "", None)
    assert said.format(table) in str(fault.value).replace('"public".', "").replace('"', "")
    server.run(str(fault.value).rpartition(": ")[0].rpartition(": ")[2].removesuffix(". Table"))
    merged = Merged(server, place.name, "", None)
    merged.send([(("a", 1, 1), False)])
    merged.send([(("A", 1, 1), False), (("a ", 1, 1), False)])
    assert {k for k, *_ in merged.rows()} == {"a", "A", "a "}


def test_a_relay_behind_a_pooler_does_not_end_itself(
    server: Server, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pooler gives a session a number that no process on the server has."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 7))
    monkeypatch.setattr(target, "LOCK_WAIT", "100ms")
    monkeypatch.setattr(target, "PATIENCE", 0.5)
    monkeypatch.setattr(sessions, "STOPPED_AFTER", 0.6)
    merged = Merged(server, place.name, "", None)
    with server.connect() as other, other.transaction():
        other.execute(f"SELECT FROM floodmark_position WHERE target = 'public.{merged.table}' FOR UPDATE")
        with pytest.raises(RunFailed, match="another transaction holds the row of its position"):
            merged.send([(("a", 1, 1), False)])
    merged.send([(("a", 1, 1), False)])
    assert merged.rows() == {("a", 1, 1)}


def test_a_dropped_table_is_noticed_though_nothing_is_sent(server: Server, place: Path) -> None:
    """What the message says has the table made anew."""
    merged = Merged(server, place.name, "", None)
    merged.send([(("a", 1, 1), False)])
    server.run(f"DROP TABLE {merged.table}")
    with pytest.raises(Refused, match="expected the table, found none: somebody removed it") as fault:
        merged.claim()
    server.run(str(fault.value).partition("have it made anew: ")[2].partition(";")[0])
    merged.claim()
    assert merged.rows() == set()


SWALLOW = (
    "CREATE FUNCTION swallow_{0}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF coalesce(NEW.n, OLD.n) = 3 THEN "
    "RETURN NULL; END IF; IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$; "
    "CREATE TRIGGER swallow BEFORE INSERT OR UPDATE OR DELETE ON {0} FOR EACH ROW EXECUTE FUNCTION swallow_{0}()"
)
MADE, KEYED = "k text, n int, v int", "k text, n int, v int, UNIQUE (k)"


@pytest.mark.parametrize(
    ("made", "also", "key"),
    [
        (MADE, SWALLOW, ()),
        (KEYED, SWALLOW, ("k",)),
        (KEYED, "CREATE RULE no AS ON INSERT TO {0} WHERE NEW.n = 3 DO INSTEAD NOTHING", ("k",)),
        (KEYED, "CREATE RULE no AS ON INSERT TO {0} DO INSTEAD NOTHING", ("k",)),
        ("", PARTED + "; " + SWALLOW.replace("ON {0} FOR", "ON {0}_a FOR"), ()),
        ("", PARTED.replace("v int)", "v int, UNIQUE (k))") + "; " + SWALLOW.replace("ON {0} F", "ON {0}_a F"), ("k",)),
    ],
)
def test_a_row_that_the_table_leaves_out_is_refused(
    server: Server, place: Path, made: str, also: str, key: tuple[str, ...]
) -> None:
    merged = Merged(server, place.name, made, None, also="SELECT 1" if made else also, key=key)
    merged.send([(("a", 1, 1), False)])
    server.run(also.format(merged.table) if made else "SELECT 1")
    with pytest.raises(InputFault, match=r"a trigger or a rule of the table left out 1 of \d rows"):
        merged.send([(("c", 3, 1), False)])
    assert merged.rows() == {("a", 1, 1)}


@pytest.mark.parametrize(("row", "gone"), [(("c", 4, 1), False), (("c", 3, 1), True)])
def test_a_change_that_the_table_leaves_out_is_refused(
    server: Server, place: Path, row: tuple[Any, ...], gone: bool
) -> None:
    swallow = SWALLOW.replace("coalesce(NEW.n, OLD.n)", "OLD.n")
    merged = Merged(server, place.name, KEYED, None)
    merged.send([(("a", 1, 1), False), (("c", 3, 1), False)])
    server.run(swallow.format(merged.table))
    merged.send([(("a", 2, 1), False)])
    with pytest.raises(InputFault, match="left out 1 of 1 rows"):
        merged.send([(row, gone)])
    merged.send([(("a", 1, 1), True), (("b", 3, 1), False)])
    assert merged.rows() == {("b", 3, 1), ("c", 3, 1)}


def test_an_older_row_is_not_left_out_by_the_table(server: Server, place: Path) -> None:
    merged = Merged(server, place.name, KEYED, "n", also=SWALLOW)
    merged.send([(("a", 2, 1), False)])
    merged.send([(("a", 1, 1), False), (("b", 1, 1), False)])
    assert merged.rows() == {("a", 2, 1), ("b", 1, 1)}


def test_rows_that_a_reset_cannot_take_away_are_named(server: Server, place: Path) -> None:
    merged = Merged(server, place.name, MADE, None, key=())
    merged.send([(("a", 3, 1), False)])
    server.run(SWALLOW.format(merged.table))
    with pytest.raises(Refused, match="a trigger or a rule of the table keeps them"):
        merged.send([(("b", 1, 1), False)], empties=True)
    assert merged.rows() == {("a", 3, 1)}


# --- Rows that the table refused


def test_a_recorded_replay_with_two_rows_of_a_key_is_passed(server: Server, place: Path) -> None:
    sink = {"postgres": {"connection": "shop", "table": "public.twins"}, "key": ["k"], "newest": "n"}
    rule = Outboxed(place, {**sink, "on_error": "dead"}, {"FLOODMARK_CONN_SHOP": server.uri})
    rule.epoch([event(1, "x", n=0)])
    assert rule.relays.ship().code == 0
    server.run("ALTER TABLE twins ADD CONSTRAINT c CHECK (v > 0)")
    rule.epoch([event(2, "a", v=-2.0, n=2)])
    rule.epoch([event(3, "a", v=-1.0, n=1)])
    assert rule.relays.ship().code == 0
    server.run("ALTER TABLE twins DROP CONSTRAINT c")
    refused = tuple((seq, number) for seq, number, _ in rule.undelivered())
    rule.ledger.live(Life(what="redelivered", redelivery=Redelivery(target=rule.name, rows=refused)))
    rule.epoch([event(4, "b", n=5)])
    done = rule.relays.ship()
    assert (done.code, "2 rows of 2 portions shipped" in done.said) == (0, True), done.said
    assert sorted(server.ask("SELECT k, n FROM twins")) == [("a", 2), ("b", 5), ("x", 0)]


def test_rows_that_a_table_takes_one_by_one_and_not_together_stop_with_the_way_on(server: Server, place: Path) -> None:
    server.run("CREATE TABLE moved (at timestamptz, k text, v double precision, n bigint UNIQUE, id serial)")
    sink = {"postgres": {"connection": "shop", "table": "public.moved"}, "key": ["k"], "on_error": "dead"}
    rule = Outboxed(place, sink, {"FLOODMARK_CONN_SHOP": server.uri})
    rule.epoch([event(1, f"k{i:05}", n=i) for i in range(3000)])
    assert rule.relays.ship().code == 0
    server.run("ANALYZE moved")
    rule.epoch([event(2, f"k{i:05}", n=i + 1) for i in range(2999, 2000, -1)])
    done = rule.relays.ship()
    assert (done.code, "DEFERRABLE INITIALLY DEFERRED" in done.said, ".." in done.said) == (3, True, False), done.said
