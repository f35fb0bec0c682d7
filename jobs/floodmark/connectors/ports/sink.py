"""A sink as the engine knows it: one place that a rule writes to, its writers, and one transaction of a writer.

A writer has an app id (ledger, generation, table) and one way of writing: rows are added, merged by a key, or put in
the place of others. `spark.write.sites` has the steps by which an epoch, a retry or a twin writes once.

A kind of sink is a class that is a `Sink`, and its `SinkKind` (`core.rules.kinds`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from floodmark.core.text.tablenames import about_sink
from floodmark.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from floodmark.core.protocol.digests import Digest
    from floodmark.core.protocol.presence import Presence
    from floodmark.core.rules.sinks.upserts import Effect
    from floodmark.ledger.comparing import Committed


class Transaction(Protocol):
    """One write. It sees the sink as it was at the start; another write by the same writer since then makes it fail.

    `digest`: of the rows written; `results`: of the rows that are merged, or that replace those of a span.
    """

    digest: Digest
    results: Digest | None

    def check_types(self, name: str, frame: Any) -> None:
        """Raise InputFault for rows of other types than the sink's."""
        ...

    def write(self, frame: Any) -> int:
        """Write the rows without making them visible; returns the number of rows."""
        ...

    def compute(self, frame: Any) -> int:
        """Compute the digests that a write of these rows would have, without writing; returns the number of rows."""
        ...

    def moves(self) -> tuple[int, int]:
        """How many rows the commit would add and remove, according to what was written."""
        ...

    def expected_effect(self) -> Effect:
        """The computed effect of the commit on the sink."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the commit's metadata says about the rows: `digest`, `results` if there are any, and of a merge or a
        replacement the fields of its `Effect`."""
        ...

    def commit(self, version: int, metadata: str) -> int | None:
        """Make the rows visible and record the writer's version, atomically. None if another writer came between."""
        ...

    def digest_of_commit(self, commit: int) -> Digest:
        """The digest of the rows that commit `commit` added, read back. Raises HistoryGone if they are gone."""
        ...


@dataclass(frozen=True)
class Status:
    """What is at a sink's address. `id`: another one where another sink was put in its place.

    `recorded`: the largest version that a writer has recorded; `adopted`: of a table that held rows before it was the
    rule's, the version from which on it is. `owner`: of a table, the ledger that owns it, "" for nobody; None: sinks of
    that kind have no owner.
    """

    id: str
    recorded: int | None
    adopted: int | None = None
    owner: str | None = None


class Writer(Protocol):
    """A sink as one writer sees it."""

    def status(self) -> Status | None:
        """None: there is no such sink."""
        ...

    def faults(self) -> Iterable[str]:
        """What is wrong with it, whatever the ledger says."""
        return ()

    def recorded_version(self) -> int | None:
        """The largest version that the writer has recorded; None: none, or the sink does not exist."""
        ...

    def begin(self, frame: Any, where: str) -> Transaction:
        """A transaction for these rows. `where`: the prefix of error messages."""
        ...

    def seal(self, spark: SparkSession, version: int, metadata: str) -> int | None:
        """Record a version without rows. None where another writer came between."""
        ...

    def committed(self, version: int) -> Committed:
        """What the writer's `version` did. Raises HistoryGone if the sink no longer records it."""
        ...

    def committed_at(self, commit: int, version: int) -> Committed | None:
        """The same for commit `commit`; None if that is another's."""
        ...

    def presence(self, commit: int) -> Presence:
        """Where the rows that a commit added are now. Raises HistoryGone if that is unknown."""
        ...

    def lacks_files(self, commit: int) -> bool:
        """Whether what a commit wrote cannot be read back, because others have moved its rows since."""
        ...

    def settle(self, commit: int) -> None:
        """Make a commit survive a power loss."""
        ...


class Way(Protocol):
    """How a writer writes, as `spark.write.sites.Site` has it. None of them: rows are added."""

    @property
    def app(self) -> str:
        """The writer."""
        ...

    @property
    def upsert(self) -> Any:
        """By which key rows are merged."""
        ...

    @property
    def span(self) -> Any:
        """Which rows are replaced: those whose `column` is in [`low`, `high`), and in none of `gaps`, microseconds.

        All, if its `column` is None. In a table of state also those with certain keys.
        """
        ...

    @property
    def whole(self) -> bool:
        """Whether all rows are replaced."""
        ...

    @property
    def exact(self) -> bool:
        """Whether floating point in the rows is a copy of the input, so that each attempt has the same."""
        ...

    @property
    def adds_columns(self) -> bool:
        """Whether the sink gets the columns that the rows have and it has not."""
        ...


@dataclass(frozen=True)
class Layout:
    """How a sink holds rows: its columns, and what a rule says of its table."""

    columns: StructType
    partitions: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    adds_columns: bool = False


@dataclass(frozen=True)
class Write:
    """One write in a sink's account, by whomever. `commit`: its number; those of later writes are larger.

    `app`, `version`: by which its writer recorded it, None where it recorded none. `metadata`: what the write says of
    itself. `added`, `removed`: rows that came and went. `held`: the digest of the rows that came, read back; None where
    some have gone since, or where nobody asked.
    """

    commit: int
    app: str | None
    version: int | None
    metadata: Mapping[str, Any]
    added: int
    removed: int
    held: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Account:
    """What a sink says for itself to the auditor: which it is, and all its writes, oldest first."""

    id: str
    writes: Sequence[Write]


class Sink(Protocol):
    """What a rule writes to, as far as it can be asked without a JVM.

    What has a body here is true of a sink that takes any columns, and that its rule alone writes.
    """

    address: str

    def id(self) -> str | None:
        """Of what is there: another one where another sink was put in its place. None: nothing is there."""
        ...

    def check(self, owner: str | None) -> None:
        """Raise NotOwned for one that is not `owner`'s (a ledger's id; None: no ledger yet), nor free."""
        ...

    def check_no_old_rows(self, app: str, rule: str, earlier: Collection[str] = ()) -> None:
        """Raise Refused for rows of an earlier generation, in a sink that joins the one whose `app` this is.

        `earlier`: the apps of those generations.
        """

    def check_changeable(self) -> None:
        """Raise Refused where no row of it can be replaced or taken away."""

    def check_replaceable(self) -> None:
        """Raise Refused or NotOwned where some row of it must not be taken away."""

    def check_can_be_emptied(self) -> None:
        """The same, before a reset."""


class Writable(Sink, Protocol):
    """A sink, with a session."""

    def writer(self, way: Way) -> Writer:
        """It, as one writer sees it."""
        ...

    def check_columns(self, spark: SparkSession, layout: Layout) -> None:
        """Raise WrongColumn where it cannot hold such rows. It may not be there yet."""

    def make(self, spark: SparkSession, layout: Layout, owner: str) -> None:
        """Make it, `owner`'s, or take over an empty one. Raises as `check`. One that is there already stays."""
        ...

    def lay_out(self, spark: SparkSession, layout: Layout) -> None:
        """Give it what it lacks of a layout beside columns."""

    def empty(self, spark: SparkSession, layout: Layout, app: str, metadata: str) -> None:
        """Take all rows away, as the writer's version 0, unless it has recorded that."""
        ...

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows that it holds."""
        ...


class Accounted(Writable, Protocol):
    """A sink that is no Delta table. Of those the auditor reads the log itself."""

    def account(self, deep: bool) -> Account | None:
        """All its writes, if `deep` with the digests of the rows that it holds; None where there is no such sink."""
        ...

    def check_no_old_rows(self, app: str, rule: str, earlier: Collection[str] = ()) -> None:
        found = self.account(deep=False)
        writes = () if found is None else found.writes
        if sum(one.added - one.removed for one in writes) and all(one.app != app for one in writes):
            raise Refused(
                about_sink(
                    self.address,
                    f"expected no rows, found rows from before the last reset, which did not empty "
                    f"it because rule {rule} did not have this sink then. Start over with `floodmark reset {rule}`, or "
                    "name another sink",
                )
            )
