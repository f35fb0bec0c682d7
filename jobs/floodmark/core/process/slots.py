"""The state of one key: values by table and name, as stored and as changed by an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Place = tuple[str, str]  # table and name; the name is empty in the table of a declared state


class Slot(NamedTuple):
    """One value: a tuple of a state's columns, a counter's number, or a timer's time; `at`: event time of the put.

    Times are microseconds since 1970.
    """

    value: Any
    at: int


class Change(NamedTuple):
    """A change to write; `slot` None: the value was deleted."""

    place: Place
    slot: Slot | None


class Slots:
    """The values of one key."""

    def __init__(self, stored: Mapping[Place, Slot]):
        self._stored = stored
        self._tables: dict[str, dict[str, Slot]] = {}
        self._touched: dict[Place, None] = {}  # in the order of the first change
        self._before: list[tuple[Place, Slot | None, bool]] | None = None  # old values since the mark, if touched
        for (table, name), slot in stored.items():
            self._tables.setdefault(table, {})[name] = slot

    def table(self, table: str) -> Mapping[str, Slot]:
        """Everything in a table, by name."""
        return self._tables.get(table, {})

    def get(self, place: Place) -> Slot | None:
        return self.table(place[0]).get(place[1])

    def put(self, place: Place, value: Any, at: int) -> None:
        self._remember(place)
        self._tables.setdefault(place[0], {})[place[1]] = Slot(value, at)
        self._touched[place] = None

    def drop(self, place: Place) -> None:
        if self.get(place) is not None:
            self._remember(place)
            del self._tables[place[0]][place[1]]
            self._touched[place] = None

    def mark(self) -> None:
        """Start recording changes, so that `undo` can revert them."""
        self._before = []

    def undo(self) -> None:
        """Restore everything as it was at the mark."""
        for (table, name), slot, touched in reversed(self._before or []):
            if slot is None:
                self._tables[table].pop(name, None)
            else:
                self._tables[table][name] = slot
            if not touched:
                del self._touched[table, name]
        self._before = None

    def _remember(self, place: Place) -> None:
        if self._before is not None:
            self._before.append((place, self.get(place), place in self._touched))

    def changes(self) -> Iterator[Change]:
        """The differences from the stored values; a value that was both added and deleted leaves none."""
        for place in self._touched:
            slot = self.get(place)
            if slot is not None or place in self._stored:
                yield Change(place, slot)
