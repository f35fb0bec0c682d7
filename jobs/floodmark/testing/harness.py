"""Test a process class without Spark: the same code calls it as in a run, with its state in a dict.

harness = Harness(Alarm, key=["device"], event_time="at")
harness.feed({"device": "a", "at": datetime(2001, 1, 1, tzinfo=UTC), "value": 20.0})
rows = harness.advance(datetime(2001, 1, 2, tzinfo=UTC))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from floodmark.core.process.calls import Caller, Row
from floodmark.core.process.context import CLOCK_TIMERS, COUNTERS, TIMERS, Times
from floodmark.core.process.loading import declared_by
from floodmark.core.process.slots import Change, Place, Slot
from floodmark.core.process.values import Record
from floodmark.core.text.ddl import Type, columns_of

Key = tuple[Any, ...]

__all__ = ["Harness"]


class Harness:
    """One rule's class with its state. `feed` rows, `advance` the watermark: that runs an epoch and returns its output.

    `zoned`: whether event times have a zone (TIMESTAMP) or none (TIMESTAMP_NTZ). `stream`: the `_stream` of rows that
    name none. `columns`: the types of columns that hold structs, such as "place STRUCT<y: INT, x: INT>", by which equal
    event times are sorted. A dict of another column is sorted as a map.
    """

    def __init__(
        self,
        process_class: type,
        key: Sequence[str],
        event_time: str = "at",
        zoned: bool = True,
        stream: str = "",
        columns: str = "",
    ):
        self._class, self._key, self._time, self._stream = process_class, tuple(key), event_time, stream
        self._output_ddl, self._kept = declared_by(process_class)
        self._output = Record(columns_of(self._output_ddl))
        declared: Any = process_class
        self._file = declared.process.__code__.co_filename
        self._waiting: list[Row] = []
        self._slots: dict[Key, dict[Place, Slot]] = {}
        self._zoned = zoned
        self._types = {one.name: one.type for one in columns_of(columns)} if columns else {}
        self._watermark: int | None = None
        self.output: list[dict[str, Any]] = []

    def feed(self, *rows: Mapping[str, Any]) -> None:
        """Add rows. Raises ValueError for a row without event time, or below the watermark: a run quarantines it."""
        for row in rows:
            at = self._times(0).micros(row[self._time])
            if self._watermark is not None and at < self._watermark:
                raise ValueError(f"expected a row at or after the watermark, found {row}: a run treats it as late")
            self._waiting.append({"_stream": self._stream, **row})

    def advance(self, watermark: datetime, now: datetime | None = None) -> list[dict[str, Any]]:
        """Run an epoch up to `watermark`, with the clock at `now` (None: at the watermark). Returns its output rows.

        Raises ProcessFault where the class raises; then no row is taken and no state changed, as in a run.
        """
        clock = now or watermark
        micros = Times(None, None, 0).micros(clock if clock.tzinfo else clock.replace(tzinfo=UTC))
        after = self._times(0).micros(watermark)
        if self._watermark is not None and after < self._watermark:
            raise ValueError(f"expected a watermark that does not go back, found {watermark}")
        times = Times(self._watermark, after, micros, self._zoned)
        turns, waiting = self._turns(times)
        found, slots = [], {}
        for key, rows in turns:
            slots[key], output = self._turn(key, rows, times)
            found += output
        self._waiting, self._watermark = waiting, after
        self._slots |= slots
        self.output += found
        return found

    def state(self, name: str, *key: Any) -> dict[str, Any] | None:
        """The value stored for a key, regardless of its `ttl`."""
        slot = self._slots.get(key, {}).get((name, ""))
        return None if slot is None else Record(columns_of(self._kept.state[name])).row(slot.value)

    def counter(self, name: str, *key: Any) -> int:
        """A counter of a key."""
        slot = self._slots.get(key, {}).get((COUNTERS, name))
        return 0 if slot is None else slot.value

    def timers(self, *key: Any) -> dict[str, datetime]:
        """The event-time timers of a key: name → time."""
        return {name: self._times(0).event_time(at) for name, at in self._set(TIMERS, key)}

    def clock_timers(self, *key: Any) -> dict[str, datetime]:
        """The clock timers of a key: name → time."""
        return {name: Times(None, None, 0).event_time(at) for name, at in self._set(CLOCK_TIMERS, key)}

    def _set(self, table: str, key: Key) -> Iterable[tuple[str, int]]:
        return ((name, slot.value) for (found, name), slot in self._slots.get(key, {}).items() if found == table)

    def _times(self, clock: int) -> Times:
        return Times(None, None, clock, self._zoned)

    def _turns(self, times: Times) -> tuple[list[tuple[Key, list[tuple[int, Row]]]], list[Row]]:
        """For each key with state or rows, its due rows, in order; and the rows that wait on."""
        timed = sorted(((times.micros(row[self._time]), row) for row in self._waiting), key=self._order)
        waiting = [row for at, row in timed if at >= (times.after or 0)]
        keyed = sorted(((self._key_of(row), at, row) for at, row in timed if at < (times.after or 0)), key=_key_order)
        due = {key: [(at, row) for _, at, row in rows] for key, rows in groupby(keyed, key=lambda one: one[0])}
        return [(key, due.get(key, [])) for key in {**dict.fromkeys(self._slots), **due}], waiting

    def _key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self._key)

    def _turn(
        self, key: Key, rows: list[tuple[int, Row]], times: Times
    ) -> tuple[dict[Place, Slot], list[dict[str, Any]]]:
        """What a key has stored after the epoch, and its output."""
        caller = Caller(self._class, self._output_ddl, self._kept, times, self._file)
        before = self._slots.get(key, {})
        stored, found = dict(before), []
        for one in caller.turn(key, before, deepcopy(rows)):  # the class may change its rows
            if not isinstance(one, Change):
                found.append(self._output.row(one))
            elif one.slot is None:
                del stored[one.place]
            else:
                stored[one.place] = one.slot
        return stored, found

    def _order(self, timed: tuple[int, Row]) -> Any:
        """By event time and stream, then by all columns in the order of their names; null first, as a run sorts."""
        at, row = timed
        return at, row["_stream"], [_comparable(row[name], self._types.get(name, _A_MAP)) for name in sorted(row)]


_A_MAP = Type("map")


def _key_order(keyed: tuple[Key, int, Row]) -> Any:
    return [_comparable(value) for value in keyed[0]]


def _comparable(value: Any, kind: Type | None = None) -> Any:
    """The value as a run compares it. kind: its type, if that is declared; a dict is a struct unless it is a map."""
    parts = kind.parts if kind is not None else ()
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, Mapping) and kind is not None and kind.name == "map":
        key, of = (part.type for part in parts) if parts else (None, None)
        return (1, sorted([_comparable(name, key), _comparable(one, of)] for name, one in value.items()))
    if isinstance(value, Mapping):
        fields = {part.name: part.type for part in parts} or dict.fromkeys(value)
        return (1, [_comparable(value.get(name), of) for name, of in fields.items()])
    element = parts[0].type if parts else None
    return (1, [_comparable(one, element) for one in value]) if isinstance(value, (list, tuple)) else (1, value)
