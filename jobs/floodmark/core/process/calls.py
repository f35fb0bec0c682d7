"""Calls a process class for one key: rows and timers in the order of event time.

`process` is called once for each event time, with the rows of that time, on a new object. Rows of one time are never
split over epochs. So nothing that a class does can depend on epoch boundaries, unless it keeps state outside of `ctx`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

from floodmark.core.process.context import CLOCK_TIMERS, TIMERS, Context, Declaration, Schema, Times
from floodmark.core.process.slots import Change, Place, Slot, Slots
from floodmark.core.process.values import Record, short
from floodmark.core.text.ddl import columns_of
from floodmark.errors import ProcessFault

FAILS, LACKS = "fails for key", "expected a value that Python has"
REJECTIONS = (f"process {FAILS} ", f"{LACKS} ")  # begin the reasons of rows that a class has rejected
Key = tuple[Any, ...]
Row = dict[str, Any]
Output = tuple[Any, ...]


class Rejected(NamedTuple):
    """The rows of a call of `process` that raised, as they arrived, and the error as one line."""

    reason: str
    rows: tuple[Row, ...]


class Caller:
    """Calls the methods of `make()` and checks their output.

    output: DDL. file: the module's name in tracebacks. rejects: if `process` raises, its changes are undone and its
    rows returned as rejected; otherwise the error is a ProcessFault.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        output: str,
        declared: Declaration,
        times: Times,
        file: str = "",
        rejects: bool = False,
    ):
        self.make, self.times, self.file, self.rejects = make, times, file, rejects
        self.schema = Schema(declared)
        self._output = Record(columns_of(output))

    def turn(
        self, key: Key, stored: Mapping[Place, Slot], rows: Iterable[tuple[int, Row]]
    ) -> Iterator[Output | Rejected | Change]:
        """Run an epoch for a key: yields output and rejected rows as they come, then the state changes.

        rows: each with its event time in microseconds, ordered by that time; all of them before the watermark.
        """
        slots = Slots(stored)
        turn = _Turn(self, key, slots)
        yield from turn.outputs(rows)
        turn.close()
        yield from slots.changes()

    def checked(self, row: Any) -> Output:
        try:
            return self._output.values(row)
        except ValueError as fault:
            raise ValueError(f"output: {fault}") from None


class _Turn:
    def __init__(self, caller: Caller, key: Key, slots: Slots):
        self._caller, self._key, self._slots = caller, key, slots
        self._ctx = Context(caller.schema, slots, caller.times)
        self._unread: BaseException | None = None  # why the rows could not be read on

    def outputs(self, rows: Iterable[tuple[int, Row]]) -> Iterator[Output | Rejected]:
        yield from self._clock_timers()
        for at, same in groupby(self._watched(rows), key=itemgetter(0)):
            yield from self._timers(at)
            self._ctx.position, self._ctx.in_timer = at, False
            given = (row for _, row in same)
            yield from self._tried(list(given)) if self._caller.rejects else self._called("process", given, self._ctx)
        yield from self._timers(self._caller.times.after)

    def close(self) -> None:
        """Let nobody use the context any more: what it would store now would be lost."""
        self._ctx.close()

    def _watched(self, rows: Iterable[tuple[int, Row]]) -> Iterator[tuple[int, Row]]:
        """The rows. An error of reading them is remembered, because the class that reads them may catch it."""
        try:
            yield from rows
        except GeneratorExit:
            raise
        except BaseException as fault:
            self._unread = fault
            raise

    def _tried(self, rows: list[Row]) -> Iterator[Output | Rejected]:
        """Make one call completely or not at all.

        The class gets copies, so it cannot change the rows that may be rejected.
        """
        self._slots.mark()
        try:
            yield from list(self._called("process", map(deepcopy, rows), self._ctx))
        except ProcessFault as fault:
            self._slots.undo()
            yield Rejected(str(fault), tuple(rows))

    def _timers(self, until: int | None) -> Iterator[Output]:
        """Fire the timers before `until`; a timer may set the next one."""
        while (timer := self._next_timer()) is not None and until is not None and timer[0] < until:
            at, name = timer
            self._ctx.position, self._ctx.in_timer = at, True
            self._slots.drop((TIMERS, name))
            yield from self._called("on_timer", self._caller.times.event_time(at), name, self._ctx)

    def _next_timer(self) -> tuple[int, str] | None:
        return min(((slot.value, name) for name, slot in self._slots.table(TIMERS).items()), default=None)

    def _clock_timers(self) -> Iterator[Output]:
        """Fire the clock timers of earlier epochs that are due; those set now wait for a later epoch."""
        due = sorted((slot.value, name) for name, slot in self._slots.table(CLOCK_TIMERS).items())
        for at, name in due:
            slot = self._slots.get((CLOCK_TIMERS, name))
            if at <= self._caller.times.clock and slot is not None and slot.value == at:  # else moved or deleted
                self._slots.drop((CLOCK_TIMERS, name))
                yield from self._called("on_clock", Times(None, None, 0).event_time(at), name, self._ctx)

    def _called(self, method: str, *arguments: Any) -> Iterator[Output]:
        """Yield what the method yields or returns; whatever it raises becomes a ProcessFault.

        If the rows could not be read on, that is raised instead, whatever the method makes of it.
        """
        try:
            for row in getattr(self._caller.make(), method)(self._key, *arguments) or ():
                yield self._caller.checked(row)
        except (GeneratorExit, KeyboardInterrupt):
            raise
        except BaseException as fault:  # sys.exit, too, would end the worker without a word
            if self._unread is not None:
                raise self._unread from None
            raise ProcessFault(self._failure_message(method, fault)) from fault
        if self._unread is not None:
            raise self._unread

    def _failure_message(self, method: str, fault: BaseException) -> str:
        """One line: the method that failed, the key and time, and why."""
        file = self._caller.file
        frames = [frame for frame in traceback.extract_tb(fault.__traceback__) if file and frame.filename == file]
        line = f" ({file}, line {frames[-1].lineno})" if frames else ""
        when = self._caller.times.event_time(self._ctx.position)
        why = " ".join(f"{type(fault).__name__}: {_said(fault)}".split())
        return f"{method} {FAILS} {short(self._key)}, event time {when}{line}: {why}"


def _said(fault: BaseException) -> str:
    """Its own text, if it has one that can be shown."""
    try:
        return str(fault).encode("utf-8", "replace").decode()
    except Exception as problem:
        return f"its text cannot be made ({type(problem).__name__})"
