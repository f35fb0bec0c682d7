"""A source as the engine knows it: what can be asked of it, and what its rows are.

An offset is a text of the source's own: one line of JSON, as `json.dumps` writes it. Nobody else looks into one: it is
stored, compared as a whole, and handed back.

A kind of source is a class that is a `Source`, and its `SourceKind` (`core.rules.kinds`). `conformance` under `tests`
holds what every one of them promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from floodmark.errors import HistoryGone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.lifecycle.retention import Limit
    from floodmark.core.rules.rule import EpochLimits


@dataclass(frozen=True)
class Backlog:
    """What of a source is not folded yet: how many `unit`s, and the same for people. `facts`: for programs, by name."""

    amount: int
    unit: str
    text: str
    facts: Mapping[str, object]


class Source(Protocol):
    """A stream of a rule. All but the last two methods are answered without a JVM.

    What has a body here is true of a source that only ever grows, and that nobody can put another one in the place of.
    """

    name: str
    address: str

    def columns(self) -> dict[str, str]:
        """Column name → type name, as Delta spells it."""
        ...

    def start(self) -> str:
        """The offset at which a generation begins."""
        ...

    def end(self) -> str:
        """The offset at which all that is there now is read."""
        ...

    def news(self, since: str, upto: str | None = None) -> bool:
        """Whether there is input beyond `since` (and not beyond `upto`, where that is given)."""
        ...

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        """What is beyond `since`. `rebuilt`: the rule reads all of it again in each run. Raises as `check_appended`."""
        ...

    def identity(self, offset: str) -> str:
        """Of which source the offset is: another text, another source, whatever its address."""
        return self.address

    def in_snapshot(self, offset: str) -> bool:
        """Whether what is read from there on comes in no order of time, so that the watermark waits."""
        return False

    def waiting(self, since: str | None) -> int:
        """Bytes beyond `since`; None: of all that is there. 0 where nobody can tell."""
        return 0

    def bytes_a_row(self) -> float | None:
        """About; None where nobody can tell."""
        return None

    def check_appended(self, since: str) -> None:
        """Raise HistoryGone where rows were taken out of it that are folded, or about to be."""

    def check_identity(self, offset: str, log_sum: str | None) -> None:
        """Raise HistoryGone where it is another one than was read up to `offset`, or lacks what was read.

        `log_sum`: as it was then, if that is known.
        """
        if self.is_another(offset, log_sum):
            raise HistoryGone(
                f"stream {self.name}: {self.address} is another source than the one that was read up to {offset}, or "
                "lacks what was read. Put it back, or begin anew with `floodmark reset`"
            )

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        """Whether `check_identity` would raise."""
        return False

    def log_sum(self, offset: str) -> str | None:
        """What tells what was read last from something else in its place; None where nothing does."""
        return None

    def forgets(self, since: str, now_us: int) -> list[Limit]:
        """In which ways input beyond `since` may go before it is read, at `now_us` microseconds since 1970."""
        return []

    def say(self, offset: str) -> str:
        """An offset for people."""
        return offset

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        """Exactly the rows from `begin` to `end`, in batch: the same again whenever it is asked."""
        ...

    def whole(self, spark: SparkSession) -> DataFrame:
        """All that is there now, with every column."""
        return self.frame(spark, self.start(), self.end())


class Planned(Source, Protocol):
    """A source for which Spark has one of its own (`SourceCan.planned`): Spark plans what each epoch reads."""

    def stream(self, spark: SparkSession, limits: EpochLimits) -> DataFrame:
        """What Spark plans epochs by."""
        ...


class Stepped(Source, Protocol):
    """Any other source: it says itself where epochs end."""

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        """Where an epoch that begins at `since` ends, within its limits and not beyond `upto`; never at `since`."""
        ...
