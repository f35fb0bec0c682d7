"""Opens the catalogue of Iceberg tables by a connection's name, and says in one line what is wrong with it. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from pyiceberg import exceptions as ice
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from sqlalchemy import exc as sql
from sqlalchemy.engine import make_url

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.sources.iceberg.opening import opened
from floodmark.connectors.sources.iceberg.properties import Catalogue, catalogue_of
from floodmark.errors import FloodmarkError, Refused, RunFailed

_LONGEST = 400  # characters of what a client says
# What a retry cannot mend.
_WRONG = (
    ice.UnauthorizedError,
    ice.ForbiddenError,
    ice.OAuthError,
    ice.BadRequestError,
    ice.NoSuchPropertyException,
    ice.NotInstalledError,
    sql.ArgumentError,
    sql.NoSuchModuleError,
    sql.ProgrammingError,
    PermissionError,
    ValueError,
    TypeError,
    NotImplementedError,
    ModuleNotFoundError,
)
_OTHERS = (
    ice.RESTError,
    ice.NoSuchTableError,
    ice.NoSuchNamespaceError,
    ice.TableAlreadyExistsError,
    ice.CommitFailedException,
    ice.ValidationException,
    ice.SignError,
    sql.SQLAlchemyError,
    OSError,
)
_NO_TABLES = ("no such table: iceberg_", "file is not a database", 'relation "iceberg_')
_REFUSES = ("password authentication failed", "no password supplied", "unable to open database file", "does not exist")


class Tables:
    """Tables of one catalogue. `name`: the connection's; `about`: a message about the table, from what is wrong."""

    def __init__(self, name: str, about: Callable[[str], str]):
        self._name, self._about = name, about

    @cached_property
    def _said(self) -> Catalogue:
        return catalogue_of(connection(self._name))

    @cached_property
    def catalog(self) -> Catalog:
        self._check_file()
        return opened(self._said)

    def _check_file(self) -> None:
        """SQLite would make a file that is not there."""
        uri = self._said.properties["uri"]
        if not uri.startswith("sqlite"):
            return
        path = make_url(uri).database
        if not path or not Path(path).exists():
            raise Refused(self._about(f"expected the catalogue's file {path}, found none: make the catalogue first"))

    def load(self, table: tuple[str, ...]) -> Table | None:
        """None if there is no such table. Raises Refused if there is no such namespace."""
        try:
            return self.catalog.load_table(table)
        except ice.NoSuchTableError:
            if not self.catalog.namespace_exists(table[:-1]):
                place = f"the namespace {'.'.join(table[:-1])} in the catalogue {self._said.name}"
                raise Refused(
                    self._about(
                        f"expected {place}, found none: make it, or correct `table`; `catalog_name` in the "
                        "connection's extra names the catalogue"
                    )
                ) from None
            return None

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors within are ours, in one line."""
        try:
            yield
        except FloodmarkError:
            raise
        except (*_WRONG, *_OTHERS) as fault:
            raise self._error(fault) from fault

    def _error(self, fault: Exception) -> FloodmarkError:
        said = self._said.without_secrets(" ".join(str(fault).partition("\n[SQL: ")[0].split()))[:_LONGEST].rstrip(".?")
        said = f"{type(fault).__name__}: {said}"
        if any(one in said for one in _NO_TABLES):
            return Refused(
                self._about(
                    "expected a catalogue, found a database without its tables: make the catalogue first, or correct "
                    "`uri` in the connection's extra"
                )
            )
        if "equality deletes" in said:
            return Refused(
                self._about(
                    "expected a table without equality deletes, as upserts of Flink leave them, found some, which "
                    "pyiceberg cannot read. Compact the table, and let no writer upsert from then on"
                )
            )
        if isinstance(fault, _WRONG) or any(one in said for one in _REFUSES):
            return Refused(self._about(f"it is refused: {said}. Mend the connection, the right or the table"))
        return RunFailed(self._about(f"it cannot be reached, or failed: {said}. A retry tries again"))

    def close(self) -> None:
        if "catalog" in self.__dict__:
            self.catalog.close()
            del self.catalog
