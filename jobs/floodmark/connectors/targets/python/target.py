"""A class of one's own as a target. Each portion is one call, and with `position()` one transaction of the class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.ports.connections import connection
from floodmark.connectors.ports.target import Layout, Operation, Target
from floodmark.connectors.sources.python.author import Author, made
from floodmark.connectors.targets.homeposition import HomePosition
from floodmark.connectors.targets.python.options import WrittenOwn, capabilities
from floodmark.connectors.targets.python.portions import bounds_of, no_rows, portion_of
from floodmark.core.relay.positions import Position
from floodmark.core.rules.kinds import CODE
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Fenced, InputFault, LedgerBroken, ProcessFault, Refused, RunFailed, Undeliverable

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.rules.model import Sink


def target_of(sink: Sink, outbox: Path | None) -> Target:
    """By its class: one with `position()` keeps the position itself."""
    once = capabilities(sink.options).qos == 2
    return OnceTarget(sink) if once else AgainTarget(sink, outbox)


class _Own(Target):
    """What both kinds of class have."""

    one_by_one = True

    def __init__(self, sink: Sink):
        self.address = str(sink.address)
        options = dict(sink.options)
        self._code = str(options.pop(CODE))
        self._said = WrittenOwn.model_validate(options)

    @cached_property
    def _author(self) -> Author:
        said = self._said
        opened = None if said.connection is None else connection(said.connection)
        what = f"sink {said.named}"
        return made(what, self._code, said.file, said.name, said.settings, opened)

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        """Raises Refused for a class without `rows()`."""
        if not self._author.has("rows"):
            problem = (
                "expected a method rows() of the class, found none. Add it, then run the rule: the audit takes the "
            )
            raise Refused(about_sink(self.address, f"{problem}class from the ledger, as of the newest epoch"))
        yield from self._author.rows(layout.columns, method="rows").to_batches()

    def _give(self, one: Operation, layout: Layout, *given: Any) -> None:
        """Call `apply`; rows that cannot be taken are known by their portion."""
        try:
            self._apply(portion_of(one, layout), *given)
        except InputFault as fault:
            fault.token = one.token
            raise

    def _apply(self, batch: pa.Table, *given: Any) -> None:
        try:
            self._author.call("apply", batch, *given)
        except Undeliverable as fault:
            odd = [number for number in fault.rows if number not in range(batch.num_rows)]
            if odd or not fault.rows:
                problem = f"expected Undeliverable with numbers of rows from 0 to {batch.num_rows - 1}, found "
                raise ProcessFault(about_sink(self.address, f"{problem}{odd[0] if odd else 'none'}")) from fault
            raise

    def _take_away(self, one: Operation, layout: Layout, *since: Any) -> None:
        """Have rows leave before those of the operation come."""
        if one.empties:
            self._author.call("empty", one.token, *since)
        elif one.replaces is not None:
            intervals = bounds_of(one.replaces, layout)
            self._author.call("remove_between", one.replaces.column, intervals, one.token, *since)

    def refused(
        self, fault: InputFault, operations: Sequence[Operation], layout: Layout, since: Position
    ) -> list[dict[int, str]]:
        """The class has said it."""
        said = fault if isinstance(fault, Undeliverable) else Undeliverable({})
        return [said.rows if one.token == said.token else {} for one in operations]

    def close(self) -> None:
        """The class opens and closes what it needs in each call."""


class AgainTarget(_Own):
    """`apply(batch, token)`: a portion's rows may come again, with the same tokens. The home keeps the position."""

    keeps_position = False

    def __init__(self, sink: Sink, outbox: Path | None):
        super().__init__(sink)
        self._kept = None if outbox is None else HomePosition(self.address, outbox)

    @property
    def _home(self) -> HomePosition:
        if self._kept is None:
            raise Refused(about_sink(self.address, "expected the rule's home, which has its position, found none"))
        return self._kept

    def claim(self, owner: str, layout: Layout) -> Position:
        _ = self._author
        found = self.position()
        if found is None:
            found = Position(owner)
            self._home.move(None, found)
        return found

    def position(self) -> Position | None:
        return self._home.read()

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        for one in operations:
            self._check(since)
            self._take_away(one, layout)
            if one.count:
                self._give(one, layout, one.call)
        self._check(since)
        sent()
        if upto != since:
            self._home.move(since, upto)

    def _check(self, since: Position) -> None:
        if self.position() != since:
            raise Fenced(about_sink(self.address, f"expected its position at {since.words}, found another: ship again"))


class OnceTarget(_Own):
    """`apply(batch, token, since, upto)`: the class stores rows and position in one transaction."""

    def claim(self, owner: str, layout: Layout) -> Position:
        return self.position() or Position(owner)

    def position(self) -> Position | None:
        return self._parsed(self._author.call("position"))

    def _parsed(self, found: Any) -> Position | None:
        try:
            return None if found is None else Position.parse(found)
        except (ValueError, TypeError) as fault:
            problem = f"expected the text that `apply` stored last from position(): {fault}"
            raise LedgerBroken(about_sink(self.address, problem)) from None

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        for one, end in zip(operations, _ends(operations, since, upto), strict=True):
            self._perform(one, layout, since, end, sent if one is operations[-1] else _nothing)
            since = end
        if since != upto:
            self._call(since, upto, sent, lambda *given: self._move(layout, upto, *given))

    def _perform(
        self, one: Operation, layout: Layout, since: Position, upto: Position, sent: Callable[[], None]
    ) -> None:
        if one.takes_away:
            self._take_away(one, layout, self._checked(since))
        self._call(since, upto, sent, lambda *given: self._give(one, layout, one.call, *given))

    def _call(self, since: Position, upto: Position, sent: Callable[[], None], apply: Callable[..., object]) -> None:
        known = self._checked(since)
        sent()
        try:
            apply(known, upto.text())
        except RunFailed:
            self._checked(since)
            raise
        if self.position() != upto:
            problem = "expected position() to return `upto` after apply(), found another text: store it with the rows"
            raise ProcessFault(about_sink(self.address, problem))

    def _move(self, layout: Layout, upto: Position, *given: Any) -> None:
        self._author.call("apply", no_rows(layout), f"{upto.ledger}/{upto.seq}/position", *given)

    def _checked(self, since: Position) -> str | None:
        """What `position()` returns, which is to be `since`. Raises Fenced if it is not."""
        text: str | None = self._author.call("position")
        found = self._parsed(text)
        if found != since and (found is not None or since.seq):
            said = "none" if found is None else found.words
            problem = f"expected its position at {since.words}, found {said}: another relay has moved it"
            raise Fenced(about_sink(self.address, problem))
        return text


def _ends(operations: Sequence[Operation], since: Position, upto: Position) -> list[Position]:
    """The position after each operation: where the position does not move with them, the one before."""
    return [since] * len(operations) if since == upto else [one.position for one in operations]


def _nothing() -> None:
    """No test stops here."""
