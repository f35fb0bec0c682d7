"""The port of targets: what a relay can ask a target, and how it applies portions.

A kind of target is a class that is a `Target`, and its `SinkKind` (`core.rules.kinds`) with `target`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from floodmark.core.relay.portions import Replaced
    from floodmark.core.relay.positions import Position
    from floodmark.core.text.ddl import Column
    from floodmark.errors import InputFault


@dataclass(frozen=True)
class Layout:
    """What a target holds: its columns, in order. `key`: of a target with one row for each key, else empty.

    newest: of two rows with one key, the one with the larger value stays. adds_columns: columns that it lacks are added
    to the target.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    newest: str | None = None
    adds_columns: bool = False


@dataclass(frozen=True)
class Operation:
    """What one portion does to the target, in this order: it empties it, or takes the rows of an interval away
    (`replaces`); then its rows come.

    rows: in batches, with the layout's columns; with a key also `DELETE_COLUMN`, true in a row that takes its key's row
    away. count: of results; they come in the same order again. whole: each row takes its key's place, whatever `newest`
    says. token: the same again whenever the portion is sent again, and no other's. position: the target's once it has
    the portion. left_out: numbers of rows that the target refused before; `rows` does not have them.
    """

    token: str
    position: Position
    empties: bool
    replaces: Replaced | None
    whole: bool
    count: int
    rows: Callable[[], Iterator[pa.RecordBatch]]
    left_out: frozenset[int] = frozenset()

    def numbers(self) -> Iterator[int]:
        """The numbers of `rows`, in their order. A row has the same one whatever is left out; endless."""
        return (number for number in itertools.count() if number not in self.left_out)

    @property
    def takes_away(self) -> bool:
        """Whether rows leave the target before its rows come. Such an operation is the first of its `apply`."""
        return self.empties or self.replaces is not None

    @property
    def call(self) -> str:
        """A token of the portion without what is left out."""
        return f"{self.token}-{len(self.left_out)}" if self.left_out else self.token

    @property
    def epoch(self) -> int:
        """For messages."""
        return self.position.epoch


class Target(Protocol):
    """A place outside of the lake. Its methods raise RunFailed if it cannot be reached now, and Refused if it is not
    what the rule says.

    address: one text for the place, without a secret. holds_all: whether it holds each value of Spark's tables; rows
    with text that is not UTF-8 never come to one that does not, nor those with nested times that Python lacks.
    python_times: whether it holds no time that Python lacks.
    one_by_one: whether it takes each portion by itself, so that several in one `apply` can end in the middle.
    keeps_position: whether it has the position itself; else the rule's home has it, and it moves after the rows.
    """

    address: str
    holds_all: bool = False
    python_times: bool = False
    one_by_one: bool = False
    keeps_position: bool = True

    def accept(self) -> None:
        """Called before `claim`, if somebody says that the target was restored or made anew, and may be behind."""
        return

    def is_gone(self) -> bool:
        """Whether nothing is there, and `claim` would make it. False if only `claim` can tell."""
        return False

    def claim(self, owner: str, layout: Layout) -> Position:
        """Its position. A target without one is made, or taken over if it is empty, and gets the first: `owner`'s
        (a ledger's id), with nothing yet.

        Raises NotOwned for one that holds rows without a position, WrongColumn for one that cannot hold such rows.
        """
        ...

    def position(self) -> Position | None:
        """None if nobody has claimed it, or it is not there."""
        ...

    def apply(
        self,
        operations: Sequence[Operation],
        layout: Layout,
        since: Position,
        upto: Position,
        sent: Callable[[], None],
    ) -> None:
        """Apply the operations, in order, and move the position from `since` to `upto`, all or nothing.

        `sent`: to be called once everything is sent, before it counts: tests stop a relay there. Raises Fenced if the
        position is not `since`, InputFault for a row that the target cannot take.
        """
        ...

    def refused(
        self, fault: InputFault, operations: Sequence[Operation], layout: Layout, since: Position
    ) -> list[dict[int, str]]:
        """After `apply` has raised `fault`: of each operation, the rows that the target cannot take, each with the
        reason, by their place in `rows`. It leaves no effect. None at all: it cannot say.

        A row is judged after those before it: of two rows that exclude each other, the first is taken.
        """
        return []

    def read_back(self, layout: Layout) -> Iterator[pa.RecordBatch]:
        """All rows that it holds, in the layout's columns."""
        ...

    def damage(self) -> Iterator[str]:
        """For the audit: what others surely did to it, whatever rows it holds."""
        return iter(())

    def expired(self, layout: Layout) -> int:
        """For the audit: how many rows, at most, it has dropped by itself because they are old."""
        return 0

    def close(self) -> None:
        """Leave no connection open."""
        ...


class ScratchPlaces(Protocol):
    """Places beside a target for copies of its rule, such as those of a proof. The target itself is left alone.

    place: where they are, for people.
    """

    place: str

    def options(self, copy: str) -> dict[str, Any]:
        """The sink's options with the place of this copy, which is a word of letters, digits and underscores."""
        ...

    def make(self) -> None:
        """Make what the places are in. Raises as a target does."""
        ...

    def remove(self) -> None:
        """Remove all places and what they hold, whatever became of their relays; also if there are none."""
        ...
