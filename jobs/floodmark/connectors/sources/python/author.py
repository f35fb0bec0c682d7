"""Calls the class of a source or target of one's own: every error names the class and the method."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from floodmark.connectors.sources.python.offsets import checked
from floodmark.connectors.sources.python.rows import table_of
from floodmark.core.application.connections import Connection
from floodmark.core.process.loading import load_class
from floodmark.core.text.ddl import Column
from floodmark.core.text.secrets import secrets_in
from floodmark.errors import FloodmarkError, Refused, RunFailed, SourceBroken

if TYPE_CHECKING:
    import pyarrow as pa


class Author:
    """One object of the class. `what`: stream or sink, and class, for messages; `file`: its module's.

    secrets: what no message may repeat.
    """

    def __init__(self, what: str, file: str, make: Callable[[], Any], secrets: Iterable[str] = ()):
        self._what, self._file = what, file
        self._secrets = sorted({one for one in secrets if one}, key=len, reverse=True)
        with self._named("__init__"):
            self._object = make()

    def offset(self, method: str, *given: Any) -> Any:
        """The offset that a method returns. Raises SourceBroken if it is none."""
        found = self.call(method, *given)
        try:
            return checked(found)
        except ValueError as fault:
            raise self.broken(method, str(fault)) from None

    def rows(self, columns: Sequence[Column], *given: Any, method: str = "read") -> pa.Table:
        """The rows that a method returns. Raises SourceBroken if they are not of the declared columns."""
        try:
            return table_of(columns, self._read(method, given))
        except ValueError as fault:
            raise self.broken(method, str(fault)) from None

    def _read(self, method: str, given: Sequence[Any]) -> Iterator[Any]:
        with self._named(method):
            yield from self._parts(method, given)

    def _parts(self, method: str, given: Sequence[Any]) -> Iterator[Any]:
        found = getattr(self._object, method)(*given)
        if found is None or isinstance(found, str | bytes):
            raise self.broken(method, f"expected batches, or lists of dicts, found {found!r:.60}")
        return iter([found] if hasattr(found, "schema") else found)

    def call(self, method: str, *given: Any) -> Any:
        """What a method returns. Raises RunFailed, with class and method, if it raises anything."""
        with self._named(method):
            return getattr(self._object, method)(*given)

    def has(self, method: str) -> bool:
        return callable(getattr(self._object, method, None))

    def broken(self, method: str, problem: str) -> SourceBroken:
        return SourceBroken(f"{self._what}.{method}: {problem}")

    @contextmanager
    def _named(self, method: str) -> Iterator[None]:
        try:
            yield
        except FloodmarkError:
            raise
        except (Exception, SystemExit) as fault:  # sys.exit would end the whole run, with the code 0 even
            lines = [one.lineno for one in traceback.extract_tb(fault.__traceback__) if one.filename == self._file]
            place = f" ({self._file}:{lines[-1]})" if lines else ""
            said = f"{type(fault).__name__}: {fault}"
            for secret in self._secrets:
                said = said.replace(secret, "***")
            raise RunFailed(f"{self._what}.{method} raised {said}{place}") from None


def made(
    what: str, code: str, file: str, name: str, settings: Mapping[str, Any], connection: Connection | None
) -> Author:
    """An object of class `name` of the module with this text. Raises Refused if it does not take the settings."""
    found = load_class(code, file, name)
    given = {**settings, **({} if connection is None else {"connection": connection})}
    try:
        inspect.signature(found).bind(**given)
    except TypeError as fault:
        keys = ", ".join(given) or "no settings"
        raise Refused(f"{what}: expected `settings` that {name}.__init__ takes, found {keys}: {fault}") from None
    return Author(what, file, lambda: found(**given), () if connection is None else _secrets(connection))


def _secrets(connection: Connection) -> Iterator[str]:
    """Its password, as it is and as an address has it, and the secrets of its extra."""
    yield from (connection.password, quote(connection.password), quote(connection.password, safe=""))
    yield from (str(value) for _, value in secrets_in(connection.extra, "extra"))
