"""Iceberg tables as targets in other catalogues, beside real servers, and many relays of one table at once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from support.icehouse import NAMESPACE, Icehouse
from support.icerest import serving
from support.postgres import Server, started

from floodmark.connectors.ports.target import Layout, Operation
from floodmark.connectors.sources.iceberg.options import WrittenIceberg
from floodmark.connectors.targets.iceberg.target import IcebergTarget
from floodmark.core.relay.positions import Position
from floodmark.core.text.ddl import columns_of
from floodmark.errors import Fenced, Refused, RunFailed

LAYOUT = Layout(columns_of("n BIGINT"))


def position(seq: int) -> Position:
    return Position("ledger", 1, "token", seq, seq, f"h{seq}") if seq else Position("ledger")


def operation(seq: int) -> Operation:
    """One row, unless the number is divisible by 4."""
    numbers = [] if seq % 4 == 0 else [seq]
    batch = pa.RecordBatch.from_pydict({"n": numbers}, schema=pa.schema([("n", pa.int64())]))
    return Operation(str(seq), position(seq), False, None, False, len(numbers), lambda: iter([batch]))


def target() -> IcebergTarget:
    said = WrittenIceberg.model_validate({"connection": "lake", "table": f"{NAMESPACE}.t"})
    return IcebergTarget("iceberg://lake/shop.t", said)


def apply(since: int, upto: int) -> None:
    one = target()
    try:
        one.apply(
            [operation(seq) for seq in range(since + 1, upto + 1)], LAYOUT, position(since), position(upto), _none
        )
    finally:
        one.close()


def _none() -> None:
    """No test stops here."""


def numbers() -> list[int]:
    return sorted(n for batch in target().read_back(LAYOUT) for n in batch["n"].to_pylist())


@dataclass(frozen=True)
class InPostgres(Icehouse):
    """The same warehouse, with its catalogue in PostgreSQL."""

    uri: str = ""

    @property
    def properties(self) -> dict[str, str]:
        return {**super().properties, "uri": self.uri.replace("postgresql:", "postgresql+psycopg:")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found:
        yield found


@pytest.fixture
def database(server: Server, place: Path) -> str:
    server.run(f"CREATE DATABASE i{place.name[:12]}")
    return server.uri.replace("/postgres", f"/i{place.name[:12]}")


def test_a_catalogue_in_postgresql(server: Server, database: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = InPostgres(place / "ice", database).made()
    plain = {**house.properties, "uri": database.replace(f"airflow:{server.password}@", "")}
    said = {"conn_type": "iceberg", "login": "airflow", "password": server.password, "extra": plain}
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps({**said, "password": "wrong"}))
    with pytest.raises(Refused, match="password authentication failed"):
        target().position()
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps(said))
    assert target().claim("ledger", LAYOUT) == position(0)
    apply(0, 2)
    server.kill()
    try:
        with pytest.raises(RunFailed, match="it cannot be reached, or failed: OperationalError") as fault:
            apply(2, 3)
    finally:
        server.start()
    assert server.password not in str(fault.value)
    apply(2, 3)
    assert numbers() == [1, 2, 3]


def test_a_rest_catalogue_that_loses_an_answer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Icehouse(place / "ice").made()) as rest:
        said = {"conn_type": "iceberg", "host": rest.uri, "extra": {"type": "rest"}}
        monkeypatch.setenv("FLOODMARK_CONN_LAKE", json.dumps(said))
        assert target().position() is None
        assert target().claim("ledger", LAYOUT) == position(0)
        apply(0, 1)
        rest.loses = True
        with pytest.raises(RunFailed, match="it cannot be reached, or failed: "):
            apply(1, 2)
        assert target().claim("ledger", LAYOUT) == position(2)
        with pytest.raises(Fenced):
            apply(1, 2)
        assert numbers() == [1, 2]
        rest.house.catalog().drop_table((NAMESPACE, "t"))
        rest.house.catalog().drop_namespace(NAMESPACE)
        with pytest.raises(Refused, match="expected the namespace shop in the catalogue lake, found none"):
            target().position()


def race(portions: int, relays: int) -> None:
    def ship(seed: int) -> None:
        draw = Random(seed)
        while True:
            try:
                at = target().claim("ledger", LAYOUT).seq
                if at == portions:
                    return
                apply(at, min(portions, at + draw.randrange(1, 4)))
            except (Fenced, RunFailed):
                continue

    threads = [threading.Thread(target=ship, args=(seed,)) for seed in range(relays)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(numbers()) == Counter(n for n in range(1, portions + 1) if n % 4)


def test_many_relays_at_once_ship_each_row_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", Icehouse(place / "ice").made().connection)
    race(12, 3)


@pytest.mark.prove
def test_many_relays_at_once_by_postgresql(database: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOODMARK_CONN_LAKE", InPostgres(place / "ice", database).made().connection)
    race(60, 5)
