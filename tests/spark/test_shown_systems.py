"""The rules and commands of pages about other systems, run beside a real broker, database and HTTP server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.flow import START, rows_of
from support.inbox import inbox
from support.kafka import served
from support.postgres import started
from support.shopserver import shop
from support.shown import SYSTEMS, call, without_comment, write_rule
from support.snippets import CHECKOUT, of_page

pytestmark = pytest.mark.prove
ORDERS = "id BIGINT PRIMARY KEY, at TIMESTAMPTZ, country TEXT, amount DOUBLE PRECISION"
# A row becomes final once a later one has come.
LATER = timedelta(hours=3)


@dataclass
class Page:
    """A page's rules in a folder, with the environment of its commands. `found`: what its systems got, to look at."""

    name: str
    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    found: Callable[[], Any] = lambda: None

    def write(self) -> None:
        """The page's rules and classes; of rules with one name the first, which is the one that the page runs."""
        (self.folder / "rules").mkdir()
        written: set[str] = set()
        for one in of_page(CHECKOUT / "docs" / "reference" / self.name):
            name = re.match(r"rule: (\w+)\n", one.text) if one.kind == "yaml" else None
            if name and name[1] not in written:
                written.add(name[1])
                _ = write_rule(one, self.folder / "rules")

    def reach(self, url: str) -> None:
        """Have the page's rules call the HTTP server there."""
        for path in (self.folder / "rules").glob("*.yaml"):
            path.write_text(path.read_text().replace("http://127.0.0.1:8000", url))

    def run(self) -> None:
        """Each command of the page, in order. Those that set a connection have none of these servers in it."""
        for one in of_page(CHECKOUT / "docs" / "reference" / self.name):
            for line in one.text.splitlines() if one.kind == "bash" else ():
                if line.startswith("floodmark "):
                    self.call(without_comment(line))

    def call(self, command: str) -> None:
        code, said = call(self.folder, command, **self.env)
        assert code == 0, f"{self.name}: {said}"

    def rows(self, sink: str) -> list[dict[str, Any]]:
        return list(rows_of(str(self.folder / "lake" / sink)))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_every_page_is_tried() -> None:
    assert set(TRIED) == set(SYSTEMS)


def kafka(page: Page, opened: ExitStack) -> None:
    broker = opened.enter_context(served(page.folder / "kafka"))
    broker.create("orders")
    at = [START, START + LATER]
    broker.send("orders", [{"id": i, "at": one.isoformat(), "amount": 1.5} for i, one in enumerate(at)])
    page.env["FLOODMARK_CONN_SHOP"] = f"kafka://{broker.servers}"
    page.found = lambda: [row["orders"] for row in page.rows("orders_by_minute")]


def own_source(page: Page, opened: ExitStack) -> None:
    server = opened.enter_context(shop())
    server.orders += [
        {"id": 1 + i, "at": (START + i * LATER).isoformat(), "country": "DE", "amount": 2.0} for i in range(2)
    ]
    page.reach(server.url)
    page.found = lambda: [row["orders"] for row in page.rows("orders_by_minute")]


def own_target(page: Page, opened: ExitStack) -> None:
    server = opened.enter_context(inbox())
    rows = pa.table({"id": [1], "at": [START], "country": ["DE"], "amount": [2.0]})
    write_deltalake(str(page.folder / "lake" / "orders"), rows)
    page.reach(server.url)
    page.found = lambda: [row["id"] for row in server.rows]


def postgres_source(page: Page, opened: ExitStack) -> None:
    server = opened.enter_context(started(page.folder / "postgres", wal_level="logical"))
    page.env["FLOODMARK_CONN_SHOP"] = server.uri
    server.run(f"CREATE TABLE orders ({ORDERS})")
    for i in range(2):
        server.run(f"INSERT INTO orders VALUES ({i}, '{START + i * LATER}', 'DE', 2.0)")
    page.found = lambda: [row["orders"] for row in page.rows("orders_by_hour")]


REFUSED = """\
rule: orders
streams:
  orders: {delta: "${LAKE}/orders"}
sql: SELECT id FROM orders
sinks:
  - postgres: {connection: shop, table: public.orders}
    on_error: dead
"""


def targets(page: Page, opened: ExitStack) -> None:
    """The rule that the page replays for: its table refuses a row."""
    server = opened.enter_context(started(page.folder / "postgres"))
    page.env["FLOODMARK_CONN_SHOP"] = server.uri
    server.run("CREATE TABLE orders (id BIGINT CHECK (id < 2))")
    write_deltalake(str(page.folder / "lake" / "flights"), pa.table({"origin": ["SFO"], "delay": [2.0]}))
    write_deltalake(str(page.folder / "lake" / "orders"), pa.table({"id": [1, 2]}))
    (page.folder / "rules" / "orders.yaml").write_text(REFUSED)
    page.call("floodmark run orders")
    assert server.ask("SELECT id FROM orders") == [(1,)]
    server.run("ALTER TABLE orders DROP CONSTRAINT orders_id_check")
    page.found = lambda: [
        *server.ask("SELECT flights FROM airport_totals"),
        *server.ask("SELECT id FROM orders ORDER BY id"),
    ]


TRIED = {
    "kafka.md": (kafka, [1]),
    "own-source.md": (own_source, [1]),
    "own-target.md": (own_target, [1]),
    "postgres-source.md": (postgres_source, [1]),
    "targets.md": (targets, [(1,), (1,), (2,)]),
}


@pytest.mark.parametrize("name", TRIED)
def test_the_rules_and_commands_of_a_page_work(name: str, place: Path, opened: ExitStack) -> None:
    page = Page(name, place)
    ready, expected = TRIED[name]
    page.write()
    ready(page, opened)
    page.run()
    assert page.found() == expected
