"""The port of sources: what the engine can ask a source, and how it reads the rows.

An offset is a source's own text: one line of JSON, as `json.dumps` writes it. Only the source parses it: all other code
stores it, compares it as a whole, and passes it back.

A kind of source is a class that is a `Source`, and its `SourceKind` (`core.rules.kinds`). `conformance` under `tests`
checks what every kind promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from floodmark.core.protocol.records.backfills import Rewrite
from floodmark.core.text.tablenames import about
from floodmark.errors import HistoryGone, NotThereYet, RunFailed

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from floodmark.core.lifecycle.retention import Limit
    from floodmark.core.rules.rule import EpochLimits

# All frames of a source may have this text column more. In a row that could be read it is null; else it says where the
# record is, and how it begins. Such a row is dead, or stops the run.
MALFORMED = "_floodmark_malformed"
SHOWN = 200  # characters of a record in it


class Moved(HistoryGone):
    """Input that is to be read was changed or removed since it was listed. `found`: the message without a remedy."""

    def __init__(self, found: str, remedy: str):
        super().__init__(f"{found}. {remedy}")
        self.found = found


def check_passed(stream: str, moment: datetime, now: datetime) -> None:
    """Raise NotThereYet for a stream that is to start at a time to come: nobody knows yet what is committed before."""
    if moment > now:
        raise NotThereYet(
            f"stream {stream}: expected a `start` that has passed, found {moment.isoformat()}, and it is "
            f"{now.isoformat(timespec='seconds')}: where the rows from then on begin is not known yet. Wait for that "
            "time (a retry checks again), or name an earlier one"
        )


@contextmanager
def unrecorded() -> Iterator[None]:
    """For a read of input that no epoch has read, not even an open one: the next run lists it as it is then."""
    try:
        yield
    except Moved as fault:
        raise RunFailed(f"{fault.found}. No epoch has read it: run again, to read what is there then") from fault


@dataclass(frozen=True)
class Backlog:
    """A source's input that is not folded yet: how many `unit`s, and the same for people. `facts`: for programs."""

    amount: int
    unit: str
    text: str
    facts: Mapping[str, object]


class Source(Protocol):
    """A stream of a rule. All but the methods that take a session work without a JVM.

    Methods with a body here are right for a source that only grows, and that nobody can replace by another one.
    """

    name: str
    address: str

    @property
    def origin(self) -> Source:
        """The source that has the columns with which a generation begins: of a landing, the one that it copies."""
        return self

    def columns(self) -> dict[str, str]:
        """Column name → type name, as Delta spells it."""
        ...

    def start(self) -> str:
        """The offset at which a generation starts."""
        ...

    def end(self) -> str:
        """The offset at which all present data is read."""
        ...

    def take_start(self) -> str:
        """`start`, for the generation that begins now. Only the holder of the rule's lock takes it.

        A source that lists its input itself first makes the list durable; likewise `take_end`.
        """
        return self.start()

    def take_end(self, since: str) -> str:
        """`end`, as an end of epochs to be planned now, from `since` on. Only the holder of the rule's lock takes it.

        No epoch, not even an open one, has read beyond `since`.
        """
        return self.end()

    @property
    def splits(self) -> bool:
        """Whether `after` can end before `upto`; where not, a landing copies all present input at once."""
        return True

    def landed(self, offset: str) -> None:
        """All rows up to the offset are in the stream's landing, durably: the source may forget them.

        Only the holder of the rule's lock calls it, after each copy and at the start of each run: maybe again.
        """
        return None

    def check_copied(self, end: str) -> None:
        """Raise RunFailed if rows up to there may have changed while they were landed. Asked before the commit."""
        return

    def remains(self) -> str | None:
        """What the source keeps outside of the rule's home, and for how long, for people; None if there is nothing."""
        return None

    def check_release(self, read: str | None = None) -> None:
        """Raise what `release` would, before any stream has let go of anything: NotOwned for another copy's."""
        return None

    def release(self, read: str | None = None) -> None:
        """Remove that, because the rule is dropped. Only the holder of the rule's lock calls it: maybe again.

        read: the offset up to which the home's landing has the rows; None: unknown. Raises NotOwned if another copy of
        the home has read on.
        """
        return None

    def news(self, since: str, upto: str | None = None) -> bool:
        """Whether there is input beyond `since` (and not beyond `upto`, if given)."""
        ...

    def backlog(self, since: str, rebuilt: bool = False) -> Backlog:
        """The input beyond `since`. `rebuilt`: every run of the rule reads all of it. Raises as `check_appended`."""
        ...

    def notices(self, since: str) -> tuple[str, ...]:
        """What people should know of a source that was read up to an offset, and that stops no run."""
        return ()

    def cautions(self) -> tuple[str, ...]:
        """What people should know of the source as it is now, whatever was read of it."""
        return ()

    def identity(self, offset: str) -> str:
        """The identity of the offset's source: a different text means a different source, whatever its address.

        Raises as `check_spelt` for an offset of another kind, unless the text is the address.
        """
        return self.address

    def check_spelt(self, offset: str) -> None:
        """Raise KeyError, TypeError, ValueError or AttributeError for an offset of another kind of source."""
        if self.identity(offset) == self.address:  # offsets of its kind do not name it
            self.describe(offset)

    def in_snapshot(self, offset: str) -> bool:
        """Whether input from the offset on is in no order of time, so that the watermark waits."""
        return False

    def waiting(self, since: str | None, enough: int | None = None) -> int:
        """Bytes beyond `since` (None: of all present data); 0 if unknown. enough: from so many on, any such number."""
        return 0

    def bytes_a_row(self) -> float | None:
        """An estimate; None if unknown."""
        return None

    def check_appended(self, since: str) -> None:
        """Raise HistoryGone if rows were removed from the source that are folded or pending."""

    def check_readable(self, since: str, upto: str | None = None) -> None:
        """Raise HistoryGone if input beyond `since` (and not beyond `upto`) does not fit the present columns."""
        return

    def check_kept(self, begin: str, end: str) -> None:
        """Raise HistoryGone if rows from `begin` to `end`, which epochs have read, may be gone without a trace.

        A retry does not ask: what it reads has to equal the epoch's intent.
        """
        return

    def rewrite(self, since: str, upto: str | None = None) -> Rewrite | None:
        """The first rewrite beyond `since` (and not beyond `upto`, if given); None if rows were only added.

        For kinds with `SourceCan.rewrites`.
        """
        return None

    def passed_over(self, begin: str, end: str) -> tuple[str, ...]:
        """The commits from `begin` to `end` whose rows are not read, because they remove or change rows; for people."""
        return ()

    def changes(self, spark: SparkSession, rewrite: Rewrite) -> tuple[DataFrame, DataFrame]:
        """The rows that left the source by a rewrite, and those that came. A row may be in both."""
        raise LookupError(f"stream {self.name}: a source of its kind has no rewrites")

    def check_identity(self, offset: str, log_sum: str | None) -> None:
        """Raise HistoryGone if it is another source than was read up to `offset`, or lacks what was read.

        `log_sum`: its value at that time, if known.
        """
        if self.is_another(offset, log_sum):
            problem = (
                f"it is not the source that was read up to {offset}, or lacks rows that were read. Restore it, or "
                "start over with `floodmark reset`"
            )
            raise HistoryGone(about(f"stream {self.name}", self.address, problem))

    def check_columns(self, offset: str, read: Iterable[str]) -> None:
        """Raise HistoryGone if a name of the columns `read`, up to an offset, is that of another column by now."""
        return

    def is_another(self, offset: str, log_sum: str | None = None) -> bool:
        """Whether `check_identity` would raise."""
        return False

    def log_sum(self, offset: str) -> str | None:
        """A checksum that distinguishes what was read last from anything in its place; None if there is none."""
        return None

    def forgets(self, since: str, now_us: int) -> list[Limit]:
        """In which ways input beyond `since` may expire before it is read, at `now_us` microseconds since 1970."""
        return []

    def is_to_follow(self, since: str, now_us: int) -> bool:
        """Whether the offset is to pass commits that hold nothing unread, before it is forgotten what they held.

        A run that finds nothing else to do then ends at `take_end`. `news` does not count these commits.
        """
        return False

    def describe(self, offset: str) -> str:
        """An offset for people."""
        return offset

    def frame(self, spark: SparkSession, begin: str, end: str) -> DataFrame:
        """Exactly the rows from `begin` to `end`, in batch, and the same rows on every call.

        After a rewrite that was corrected: as of `end`, if `begin` is the start of a generation.
        """
        ...

    def whole(self, spark: SparkSession) -> DataFrame:
        """All present rows, with every column."""
        return self.frame(spark, self.start(), self.end())

    def typed(self, spark: SparkSession) -> DataFrame:
        """A frame with every column, whose rows nobody reads. A kind that `lands` must not read for it, either."""
        return self.whole(spark)


class Planned(Source, Protocol):
    """A source for which Spark has its own source (`SourceCan.planned`): Spark plans what each epoch reads."""

    def stream(self, spark: SparkSession, limits: EpochLimits) -> DataFrame:
        """The streaming frame by which Spark plans epochs."""
        ...


class Stepped(Source, Protocol):
    """Any other source: it decides itself where epochs end."""

    def after(self, since: str, upto: str, limits: EpochLimits) -> str:
        """Where an epoch that starts at `since` ends, within its limits and not beyond `upto`; never at `since`."""
        ...
