"""A schema of its own beside a PostgreSQL target, for copies of its rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from floodmark.connectors.ports.target import ScratchPlaces
from floodmark.connectors.targets.postgres.sessions import connected, refused_or_failed
from floodmark.connectors.targets.postgres.statements import quoted

if TYPE_CHECKING:
    from floodmark.connectors.targets.postgres.options import WrittenPostgres

PATIENCE = "60s"  # for the sessions of processes that were killed


class ScratchSchema(ScratchPlaces):
    """A table for each copy, and the positions of all. `mark`: a word that no other proof has."""

    def __init__(self, address: str, written: WrittenPostgres, mark: str):
        self._address, self._written = address, written
        self._schema = f"floodmark_prove_{mark}"
        self.place = f"the schema {self._schema} of connection {written.connection}"

    def options(self, copy: str) -> dict[str, Any]:
        return self._written.model_dump() | {"table": f"{self._schema}.{copy}"}

    def make(self) -> None:
        self._perform(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")

    def remove(self) -> None:
        self._perform(f"SET LOCAL lock_timeout = '{PATIENCE}'", f"DROP SCHEMA IF EXISTS {quoted(self._schema)} CASCADE")

    def _perform(self, *statements: str) -> None:
        try:
            with connected(self._written.connection, self._schema) as session, session.transaction():
                for one in statements:
                    session.execute(one)
        except psycopg.Error as fault:
            raise refused_or_failed(self._address, fault) from fault
