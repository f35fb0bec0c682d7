"""`floodmark prove` on rules with targets: real kills of relays, real servers, and nothing left behind there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support import kafka
from support.flow import Flow, event
from support.postgres import Server, started
from typer.testing import CliRunner, Result

from floodmark.cli.app import app
from floodmark.proving import scratch

SELECTED = "SELECT at, k, v, n FROM events"
ROWS = [event(at, "abc"[at % 3], at / 4, at) for at in range(24)]
KEYED: dict[str, Any] = {"key": ["k"], "newest": "n"}
RELAYED = ["--only", "relay.before", "--only", "relay.sent", "--only", "relay.after"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with started(tmp_path_factory.mktemp("postgres")) as found:
        yield found


@pytest.fixture
def shop(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("FLOODMARK_CONN_SHOP", server.uri)
    return server


def flow_of(place: Path, *sinks: dict[str, Any], sql: str = SELECTED, **settings: Any) -> Flow:
    """A rule with these targets and a Delta table, and its rows."""
    flow = Flow(place, "delivered", sql=sql, stream={"lateness": None, "start": {"version": 0}})
    flow.settings = {"spark": {"shuffle_partitions": 2}, "sinks": [*sinks, {"delta": flow.sink(0)}], **settings}
    for at in range(0, len(ROWS), 8):
        flow.arrive(ROWS[at : at + 8])
    flow.write_rule()
    return flow


def prove(flow: Flow, *more: str) -> Result:
    places = ["--rules", str(flow.root / "rules"), "--home", str(flow.home)]
    return CliRunner().invoke(
        app, ["prove", flow.name, *places, "--master", "local[2]", "--json", "--rows", str(len(ROWS)), *more]
    )


def facts_of(told: Result) -> dict[str, Any]:
    assert told.stdout, told.output
    found: dict[str, Any] = json.loads(told.stdout)
    unproven = [
        f"{one['name']}: {check['what']}: {check['found']}"
        for one in found["copies"]
        for check in one["checks"]
        if check["verdict"] != "proven"
    ]
    assert (found["verdict"], told.exit_code) == ("proven", 0), "\n".join(unproven)
    assert found["faults"]["planned"] == found["faults"]["fired"]
    return found


def schemas(server: Server) -> list[str]:
    return [name for (name,) in server.ask("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'floodmark%'")]


@pytest.mark.prove
def test_a_relay_that_is_killed_with_its_rows_sent_delivers_them_once(shop: Server, place: Path) -> None:
    """PostgreSQL and files: places of their own, which go; the rule's own targets are left alone."""
    table, folder = {"postgres": {"connection": "shop", "table": "sold"}}, place / "out"
    flow = flow_of(place, table, {"files": {"path": str(folder)}})
    found = facts_of(prove(flow, "--only", "relay.sent", "--fault", "killed"))
    (killed,) = (one for one in found["copies"] if one["fault"] == "killed")
    checks = {check["what"]: check["found"] for check in killed["checks"]}
    assert checks["sink 0"] == checks["sink 1"] == checks["sink 2"] == f"{len(ROWS)} rows, equal to the undisturbed run"
    assert schemas(shop) == []
    assert shop.ask("SELECT to_regclass('public.sold')") == [(None,)]
    assert not folder.exists()


@pytest.mark.prove
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("more", [{}, KEYED], ids=["appended", "by key"])
@pytest.mark.parametrize("qos", [2, 1, 0])
def test_every_fault_at_every_point_of_a_relay(shop: Server, place: Path, more: dict[str, Any], qos: int) -> None:
    flow = flow_of(place, {"postgres": {"connection": "shop", "table": "sold"}, "qos": qos, **deepcopy(more)})
    flow.settings["sinks"][1] |= deepcopy(more)
    flow.write_rule()
    points = RELAYED if qos == 2 else [*RELAYED, "--only", "relay.between"]
    found = facts_of(prove(flow, *points))
    assert {one["fault"] for one in found["copies"]} == {"undisturbed", "replayed", "killed", "twice", "stopped"}
    assert schemas(shop) == []


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_the_whole_matrix_with_targets(shop: Server, place: Path) -> None:
    """Windows, so that state is kept; a kill anywhere, and every point of a reset."""
    sql = "SELECT window.start AS at, k, sum(v) AS v, count(*) AS n FROM events GROUP BY window(at, '3 seconds'), k"
    sinks = [{"postgres": {"connection": "shop", "table": "sold"}}, {"files": {"path": str(place / "out")}}]
    flow = flow_of(place, *sinks, sql=sql)
    flow.stream["lateness"] = "1 second"
    flow.write_rule()
    found = facts_of(prove(flow))
    assert found["faults"]["fired"] >= 60
    assert schemas(shop) == []


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_copies_of_a_topic_go_and_hold_nobody_up(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafka.served(place / "kafka") as broker:
        monkeypatch.setenv("FLOODMARK_CONN_BUS", f"kafka://{broker.servers}")
        told = prove(flow_of(place, {"kafka": {"connection": "bus", "topic": "sold"}}), *RELAYED)
        facts_of(told)
        topics = broker.admin.list_topics(timeout=10).topics
        assert [name for name in topics if not name.startswith("__")] == []


def test_places_go_whatever_ends_a_proof(shop: Server, place: Path) -> None:
    flow = flow_of(place, {"postgres": {"connection": "shop", "table": "sold"}})
    said = list[str]()
    work = scratch.Scratch(place / "work")

    def interrupted() -> None:
        with scratch.target_places(flow.rule(), work, False, said.append):
            copied = scratch.copy_of(flow.rule(), "Killed_relay_sent", work, 2)
            schema = f"floodmark_prove_{work.word}"
            assert schemas(shop) == [schema]
            assert copied.sinks[0].address == f"postgres://shop/{schema}.Killed_relay_sent_0"
            shop.run(f'CREATE TABLE "{schema}"."Killed_relay_sent_0" (at timestamptz)')
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert schemas(shop) == []
    assert said == [f"copies of a target are in the schema floodmark_prove_{work.word} of connection shop"]


def test_places_that_cannot_go_are_named(shop: Server, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = flow_of(place, {"postgres": {"connection": "shop", "table": "sold"}})
    said = list[str]()
    with scratch.target_places(flow.rule(), scratch.Scratch(place / "work"), False, said.append):
        (schema,) = schemas(shop)
        monkeypatch.setenv("FLOODMARK_CONN_SHOP", "postgres://airflow:secret@127.0.0.1:1/postgres")
    assert said[1].startswith(f"the schema {schema} of connection shop could not be removed. Remove it by hand. ")
    assert "secret" not in said[1]
    shop.run(f'DROP SCHEMA "{schema}"')
