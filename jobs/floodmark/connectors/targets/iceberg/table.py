"""The table of an Iceberg target: made, taken over, or checked; its position is one of its properties."""

from __future__ import annotations

from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import ancestors_of

from floodmark.connectors.ports.target import Layout
from floodmark.connectors.sources.iceberg.catalogs import Tables
from floodmark.connectors.sources.iceberg.columns import fields_named, holds, schema_with, type_of, words
from floodmark.core.relay.portions import ANEW
from floodmark.core.relay.positions import Position
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import LedgerBroken, NotOwned, Refused, RunFailed, WrongColumn

POSITION = "floodmark.position"  # the table's properties
SNAPSHOT = "floodmark.snapshot"  # the one that moved the position
NUMBER = "floodmark.sequence_number"  # of that snapshot


class IcebergTable:
    """`place`: namespace and name."""

    def __init__(self, address: str, place: tuple[str, ...], tables: Tables):
        self._address, self._place, self._tables = address, place, tables

    def load(self) -> Table | None:
        """The table as it is now; None if there is none.

        Its copy of the properties turns pyiceberg's own retries off, whatever the table says: a commit that failed is
        applied again by these, with its rows a second time, whoever was faster.
        """
        found = self._tables.load(self._place)
        if found is None:
            return None
        said = {**found.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        metadata = found.metadata.model_copy(update={"properties": said})
        return Table(found.name(), metadata, found.metadata_location, found.io, found.catalog, found.config)

    def there(self) -> Table:
        """The table, which must exist."""
        found = self.load()
        if found is None:
            raise Refused(about_sink(self._address, "expected the table, found none: somebody removed it. Restore it"))
        return found

    def position(self, table: Table) -> Position | None:
        text = table.properties.get(POSITION)
        if text is None:
            return None
        try:
            found = Position.parse(text)
        except ValueError as fault:
            problem = f"its property {POSITION} cannot be read: {fault}. Restore it"
            raise LedgerBroken(about_sink(self._address, problem)) from None
        if _was_rolled_back(table):
            problem = f"it was rolled back to before the snapshot of its position ({found.words}), so it lacks rows"
            raise LedgerBroken(about_sink(self._address, f"{problem}. Make that snapshot current again, or {ANEW}"))
        return found

    def make(self, first: Position, layout: Layout) -> None:
        try:
            properties = {POSITION: first.text()}
            self._tables.catalog.create_table(self._place, schema_with(layout.columns), properties=properties)
        except TableAlreadyExistsError:
            raise RunFailed(about_sink(self._address, "somebody has just made it; ship again")) from None

    def take_over(self, table: Table, first: Position, layout: Layout) -> None:
        if table.scan().count():
            problem = "it has rows, and no position of a rule: expected a table that does not exist, or an empty one"
            raise NotOwned(about_sink(self._address, f"{problem}. Name another table, or empty it"))
        self.fit(table, layout)
        transaction = table.transaction()
        move(transaction, table, first)
        try:
            transaction.commit_transaction()
        except CommitFailedException:
            raise RunFailed(about_sink(self._address, "somebody has just changed it; ship again")) from None

    def fit(self, table: Table, layout: Layout) -> None:
        """Raise WrongColumn unless the table takes such rows."""
        schema, names = table.schema(), [one.name for one in layout.columns]
        for one, field in zip(layout.columns, fields_named(schema, names), strict=True):
            wanted = type_of(one.type)
            if field is None:
                raise self._wrong(f"a column {one.name} {wanted}", f"none of {words(schema)}", "add it")
            if not holds(field.field_type, wanted):
                raise self._wrong(f"column {one.name} of type {wanted}", str(field.field_type), "change it")
        for field in (field for field in schema.fields if field.required):
            raise self._wrong(
                "only columns that may lack a value", f"{field.name}, which is required", "make it optional"
            )

    def _wrong(self, expected: str, found: str, mend: str) -> WrongColumn:
        return WrongColumn(about_sink(self._address, f"expected {expected}, found {found}: {mend}, or cast in the SQL"))


def move(transaction: Transaction, table: Table, position: Position) -> str:
    """Have the transaction set the position, and fail if another commit comes between. The id of its last snapshot.

    A catalogue compares only snapshots. So a transaction without one of its own adds an empty one.
    """
    if transaction.table_metadata.current_snapshot_id == table.metadata.current_snapshot_id:
        transaction.append(schema_to_pyarrow(table.schema()).empty_table())
    found = transaction.table_metadata.current_snapshot()
    assert found is not None
    number = {NUMBER: str(found.sequence_number)} if found.sequence_number else {}  # format 1 has none
    transaction.set_properties({POSITION: position.text(), SNAPSHOT: str(found.snapshot_id), **number})
    return str(found.snapshot_id)


def _was_rolled_back(table: Table) -> bool:
    """Whether the table surely is as of before the snapshot that moved its position: it has one from before as an
    ancestor, and not this one. Nobody knows if all ancestors that are left are newer."""
    moved = _moved(table)
    if moved is None:
        return False
    snapshot, number = moved
    before = list(ancestors_of(table.current_snapshot(), table.metadata))
    numbers = [one.sequence_number or 0 for one in before]
    return all(one.snapshot_id != snapshot for one in before) and min(numbers, default=0) <= number


def _moved(table: Table) -> tuple[int, int] | None:
    """Id and sequence number of the snapshot that moved the position; None: no relay noted them before it expired."""
    snapshot, number = (table.properties.get(name, "") for name in (SNAPSHOT, NUMBER))
    if not snapshot.isdecimal():
        return None
    there = table.snapshot_by_id(int(snapshot))
    if there is not None:
        return int(snapshot), there.sequence_number or 0
    return (int(snapshot), int(number)) if number.isdecimal() else None
