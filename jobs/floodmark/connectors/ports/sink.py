"""A sink as an epoch writes it: what it remembers of its writers, and one transaction of a writer.

A sink is opened for one writer (an app id: ledger, generation, table) and one way of writing: rows are added, merged
by a key, or put in the place of others. `spark.write.sites` has the steps by which an epoch, a retry or a twin writes
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from floodmark.core.protocol.digests import Digest
    from floodmark.core.protocol.presence import Presence
    from floodmark.core.rules.sinks.upserts import Effect
    from floodmark.ledger.comparing import Committed


class Transaction(Protocol):
    """One write. It sees the sink as it was when it began; whoever has written as the same writer since makes it fail.

    `digest`: of the rows written; `results`: of those that were merged, where that is not the same.
    """

    digest: Digest
    results: Digest | None

    def check_types(self, name: str, frame: Any) -> None:
        """Raise InputFault for rows of other types than the sink's."""
        ...

    def write(self, frame: Any) -> int:
        """Write the rows where nobody sees them yet; returns how many there were."""
        ...

    def compute(self, frame: Any) -> int:
        """The digests that a write of these rows would have, without the write; returns how many there are."""
        ...

    def moves(self) -> tuple[int, int]:
        """How many rows the commit would add and remove, by what was written."""
        ...

    def promised(self) -> Effect:
        """What the commit is to do to the sink, by what was computed."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the commit says of the rows."""
        ...

    def commit(self, version: int, metadata: str) -> int | None:
        """Have the rows seen, and the writer's version recorded, at once. None where another writer came between."""
        ...

    def held(self, commit: int) -> Digest:
        """The digest of the rows that commit `commit` has brought, read back. Raises HistoryGone without them."""
        ...


class Sink(Protocol):
    """What an epoch writes to, as one writer."""

    def recorded(self) -> int | None:
        """The largest version that the writer has recorded; None: none, or there is no such sink."""
        ...

    def begin(self, frame: Any, where: str) -> Transaction:
        """A transaction for these rows. `where`: what errors begin with."""
        ...

    def committed(self, version: int) -> Committed:
        """What the writer's `version` did. Raises HistoryGone where the sink no longer knows."""
        ...

    def committed_at(self, commit: int, version: int) -> Committed | None:
        """The same of commit `commit`; None where that is another's."""
        ...

    def presence(self, commit: int) -> Presence:
        """Where the rows are that a commit brought. Raises HistoryGone where that cannot be told."""
        ...

    def lacks_files(self, commit: int) -> bool:
        """Whether what a commit wrote cannot be read back, for others have put its rows elsewhere since."""
        ...

    def settle(self, commit: int) -> None:
        """Have a commit survive the loss of power."""
        ...
