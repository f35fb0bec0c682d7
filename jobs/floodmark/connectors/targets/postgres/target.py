"""PostgreSQL as a target: rows and position move in one transaction.

A transaction takes the position's row first, so relays of one target come one after the other. If the one before has
sent nothing for a while (its process was stopped), its session is ended: its transaction then has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors as pg
from psycopg.pq import TransactionStatus

from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.sources.postgres.server.waiting import Session
from floodmark.connectors.targets.postgres import statements as sql
from floodmark.connectors.targets.postgres.merging import MANY, Merging
from floodmark.connectors.targets.postgres.reading import read
from floodmark.connectors.targets.postgres.sessions import (
    LOCK_TIME,
    connected,
    end_stopped,
    is_of_rows,
    of_row,
    process_of,
    refused_or_failed,
)
from floodmark.connectors.targets.postgres.sifting import Sieve
from floodmark.connectors.targets.postgres.table import PostgresTable
from floodmark.connectors.targets.postgres.types import time_text
from floodmark.connectors.targets.postgres.writing import coming, copy_rows
from floodmark.core.relay.positions import KEYS, Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, FloodmarkError, InputFault, NotOwned, Refused, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.connectors.targets.postgres.options import WrittenPostgres
    from floodmark.core.relay.portions import Replaced

LOCK_WAIT = "5s"  # for the position's row, before the session that holds it is looked at
PATIENCE = 120.0  # seconds to wait for a relay that works


_TOGETHER = (
    "It takes each of these rows by itself, and not all of them in one statement, so none was set aside. Have the "
    "constraint checked at the end of the transaction (DEFERRABLE INITIALLY DEFERRED), or drop it; then ship again"
)


class PostgresTarget(Target):
    """One table. `options`: its place, and the name of the connection."""

    def __init__(self, address: str, options: WrittenPostgres):
        self.address, self._place, self._name = address, options.place, options.connection
        self._table = PostgresTable(address, options.place)
        self._open: Session | None = None

    @property
    def _schema(self) -> str:
        return self._place[0]

    @property
    def _key(self) -> str:
        """The target, in the table of positions."""
        return ".".join(self._place)

    # --- Claiming

    def claim(self, owner: str, layout: Layout) -> Position:
        found = self.position()
        if found is not None:
            self._look_at_table(found, owner)
            return found
        with self._transaction() as session:
            session.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"floodmark {self._key}"])
            self._make_positions(session)
            found = self._position(session)
            if found is None:
                self._make(session, owner, layout)
                found = Position(owner)
                session.execute(sql.first_position(self._schema), [self._key, *_values(found)])
        return found

    def _look_at_table(self, found: Position, owner: str) -> None:
        """Raise Refused unless the table is as it has to be, also if there is nothing to ship."""
        if found.ledger == owner:
            with self._transaction() as session:
                self._table.check_there(session)

    def _make_positions(self, session: psycopg.Connection[Any]) -> None:
        """Create their table only where none is: PostgreSQL asks for the right to create tables before it looks."""
        if session.execute(sql.THERE, [sql.quoted(self._schema, sql.POSITIONS)]).fetchone() is None:
            session.execute(sql.positions_table(self._schema))

    def _make(self, session: psycopg.Connection[Any], owner: str, layout: Layout) -> None:
        if self._table.columns(session):
            self._take_over(session, owner, layout)
        else:
            self._table.check_names(layout)
            session.execute(sql.new_table(self._place, layout))
        self._table.make_key(session, layout.key)

    def _take_over(self, session: psycopg.Connection[Any], owner: str, layout: Layout) -> None:
        self._table.check_lasts(session)
        if session.execute(sql.first_row(self._place)).fetchone():
            raise NotOwned(
                about_sink(
                    self.address,
                    "it has rows, and no position of a rule: expected a table that does not exist, or an empty one. "
                    "Name another table, or empty it",
                )
            )
        self._table.fit(session, layout)

    def position(self) -> Position | None:
        with self._transaction() as session:
            try:
                with session.transaction():  # a savepoint
                    return self._position(session)
            except (pg.UndefinedTable, pg.InvalidSchemaName):
                return None

    def _position(self, session: psycopg.Connection[Any], lock: bool = False) -> Position | None:
        found = session.execute(sql.position_of(self._schema) + (" FOR UPDATE" if lock else ""), [self._key]).fetchone()
        return None if found is None else Position(**dict(zip(KEYS, found, strict=True)))

    # --- Applying

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        with self._transaction() as session:
            self._take_turn(session, since)
            if operations:
                self._table.fit(session, layout)
                self._table.fit_key(session, layout.key, any(one.empties for one in operations))
            if layout.key and operations:
                session.execute(sql.staging(layout.columns))
            merging = Merging(session, self._place, self._table, layout)
            for one in operations:
                self._perform(session, one, layout, merging)
            with self._rows_of(upto):
                session.execute(sql.NOW)
            session.execute(sql.moved_position(self._schema), [*_values(upto), self._key])
            sent()
        if self.position() != upto:
            raise Fenced(about_sink(self.address, f"expected its position at {upto.words}, found another: ship again"))

    def refused(
        self, fault: InputFault, operations: Sequence[Operation], layout: Layout, since: Position
    ) -> list[dict[int, str]]:
        found = list[dict[int, str]]()
        with self._transaction() as session, session.transaction(force_rollback=True):
            self._take_turn(session, since)
            self._table.fit(session, layout)
            self._table.fit_key(session, layout.key, any(one.empties for one in operations))
            session.execute(sql.NOW)
            if layout.key:
                session.execute(sql.staging(layout.columns))
            merging = Merging(session, self._place, self._table, layout)
            sieve = Sieve(session, lambda one: self._perform(session, one, layout, merging))
            found += [sieve.refused(one) for one in operations]
        if not any(found):
            raise InputFault(f"{fault}. {_TOGETHER}") from fault
        return found

    def _take_turn(self, session: psycopg.Connection[Any], since: Position) -> None:
        """Lock the position's row; it must be the one that this relay has read."""
        session.execute(f"SET LOCAL lock_timeout = '{LOCK_WAIT}'")
        found = self._locked_position(session)
        session.execute(f"SET LOCAL lock_timeout = '{LOCK_TIME}'")
        if found is None:
            raise Refused(
                about_sink(self.address, f"expected its position ({since.words}), found none: somebody removed it")
            )
        if found != since:
            raise Fenced(
                about_sink(
                    self.address,
                    f"expected its position at {since.words}, found {found.words}: another relay has moved it; this "
                    "one's work had no effect",
                )
            )

    def _locked_position(self, session: psycopg.Connection[Any]) -> Position | None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with session.transaction():
                    return self._position(session, lock=True)
            except pg.LockNotAvailable:
                ended = end_stopped(self._name, self._key, process_of(session))
                if not ended and time.monotonic() > until:
                    raise RunFailed(
                        about_sink(
                            self.address,
                            "another relay ships to it, or another transaction holds the row of its position in "
                            f"{sql.POSITIONS}, and has for long; a retry checks again",
                        )
                    ) from None

    def _perform(self, session: psycopg.Connection[Any], one: Operation, layout: Layout, merging: Merging) -> None:
        if one.empties:
            session.execute(sql.no_rows(self._place))
            self._check_gone(session, sql.first_row(self._place))
            self._table.make_key(session, layout.key)
        if one.replaces is not None:
            self._make_room(session, one.replaces, layout)
        if not one.count:
            return
        if layout.key and session.execute(sql.first_row(self._place)).fetchone():
            return self._upsert(one, merging)
        rows = map(coming, one.rows()) if layout.key else one.rows()
        with self._rows_of(one.position):
            copy_rows(session, sql.quoted(*self._place), layout.columns, rows)

    def _upsert(self, one: Operation, merging: Merging) -> None:
        """Into a table with rows. Of an empty one, the server may plan to read it once for each row that comes."""
        if one.count >= MANY and merging.add_new(one.rows):
            return
        with self._rows_of(one.position):
            merging.stage(one.rows())
            merging.merge(one.whole)

    def _make_room(self, session: psycopg.Connection[Any], replaced: Replaced, layout: Layout) -> None:
        column = next(one for one in layout.columns if one.name == replaced.column)
        ends = [time_text(at) for part in replaced.parts for at in part]
        session.execute(sql.no_rows_within(self._place, column, len(replaced.parts)), ends)
        self._check_gone(session, sql.first_row_within(self._place, column, len(replaced.parts)), ends)

    def _check_gone(self, session: psycopg.Connection[Any], left: str, values: Sequence[Any] = ()) -> None:
        """Raise Refused if rows stay that were deleted. `left`: the query of one."""
        if self._table.may_swallow(session) and session.execute(left, values).fetchone():
            problem = (
                "expected rows to leave that a reset or a backfill replaces, found that a trigger or a rule of the "
            )
            raise Refused(about_sink(self.address, f"{problem}table keeps them: let it pass DELETE, and ship again"))

    @contextmanager
    def _rows_of(self, position: Position) -> Iterator[None]:
        """Have an error about a row name its epoch."""
        try:
            yield
        except psycopg.Error as fault:
            if not is_of_rows(fault):
                raise
            problem = f"epoch {position.epoch}: expected rows that the table takes, found one: {of_row(fault)}"
            raise InputFault(about_sink(self.address, problem)) from fault

    # --- Reading back

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        with self._transaction() as session:
            self._table.check_shown(session)
            session.execute("SET LOCAL TimeZone = 'UTC'")
            with session.cursor().copy(sql.copy_out(self._place, layout.columns)) as copy:
                yield from read(copy, layout.columns)

    # --- Sessions

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that has an effect only if it really was committed.

        A server answers COMMIT of a failed transaction with a roll-back, which is no error to a client.
        """
        with self._faults():
            session = self._session()
            with session.transaction():
                yield session
                if session.info.transaction_status != TransactionStatus.INTRANS:
                    raise RunFailed(about_sink(self.address, "its transaction failed, and has no effect; ship again"))

    def _session(self) -> Session:
        if self._open is None or self._open.closed:
            self._open = connected(self._name, self._key)
        return self._open

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except FloodmarkError:
            raise
        except psycopg.Error as fault:
            blocked_by = self._open.blocked_by if self._open else ""
            self.close()
            raise refused_or_failed(self.address, fault, blocked_by) from fault

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _values(position: Position) -> list[Any]:
    return [getattr(position, key) for key in KEYS]
