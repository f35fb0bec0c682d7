"""Decides what upkeep may remove from a table, and when it is due; and the steps by which rows are forgotten. Pure.

A file can go once no needed version has it, and a log entry once a checkpoint repeats it. If it is old enough,
everything before the first needed version goes. When rows are forgotten, everything before the newest version goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum

from floodmark.core.lifecycle.life import UNFINISHED, check_not_forgetting, check_unsealed
from floodmark.core.process.declaration import OWN_TABLES
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import SEAL
from floodmark.core.rules.model import CleanUp, Rule
from floodmark.core.text.durations import HOUR
from floodmark.core.text.tablenames import about_named
from floodmark.errors import HistoryGone, LedgerBroken, Refused

MAX_FILES = 24  # of state; a scan opens every file; at some 5 ms each this bounds it to about a tenth of a second
WORTH_ROWS = 1_000_000  # files of dead rows are never opened: only the space that they take is worth a rewrite
CHECKPOINT_AFTER = 10  # commits: reading that many log entries is faster than writing and reading a checkpoint of them
# What delta-rs writes as Spark does; Spark's own OPTIMIZE and VACUUM must maintain a table that needs more.
PLAIN_WRITERS = 4
PLAIN_FEATURES = frozenset({"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "timestampNtz"})
# For these types delta-rs writes the same text into a log as Spark, or one that Spark reads as the same value. It
# writes a TIMESTAMP without a zone, which Spark reads in the session's zone, and -0.05 of a DECIMAL as `0.-5`.
PLAIN_PARTITIONS = frozenset({"string", "boolean", "byte", "short", "integer", "long", "date", "timestamp_ntz"})


@dataclass(frozen=True)
class Need:
    """What others need of a table beside its newest version.

    since: all versions from it on, one by one (None: none). versions: these, each as a whole. everything: its whole
    history. who: those who need it, for people.
    """

    since: int | None = None
    versions: frozenset[int] = frozenset()
    all_versions: bool = False
    readers: tuple[str, ...] = ()

    def merged(self, other: Need) -> Need:
        """What both need."""
        starts = [one for one in (self.since, other.since) if one is not None]
        everything = self.all_versions or other.all_versions
        who = tuple(dict.fromkeys((*self.readers, *other.readers)))
        return Need(min(starts, default=None), self.versions | other.versions, everything, who)

    @property
    def oldest(self) -> int | None:
        """The first version that is needed; None if only the newest is."""
        if self.all_versions:
            return 0
        return min([*self.versions, *([] if self.since is None else [self.since])], default=None)


def log_begins(checkpoints: Iterable[int], entries: Mapping[int, float], before: float, need: Need) -> int:
    """The version with which a log can start: a checkpoint at or before everything young or needed; 0: unchanged.

    entries: version -> when it was written. before: entries written earlier are old. Seconds since 1970.
    """
    young = [version for version, at in entries.items() if at >= before]
    first = min([max(entries, default=0), *young, *([] if need.oldest is None else [need.oldest])])
    return max((one for one in checkpoints if one <= first), default=0)


def first_kept(written: Mapping[int, int | None], begins: int, folded: int, before: int) -> int:
    """The version with which a landing begins once old chunks are removed: the first that is young or not folded.

    written: version -> when, in microseconds since 1970; None: unknown. before: chunks written earlier are old.
    """
    first = begins
    while first < folded and (at := written.get(first)) is not None and at < before:
        first += 1
    return first


def readable(version: int, checkpoints: Iterable[int], entries: Iterable[int]) -> bool:
    """Whether the log can still reconstruct a version."""
    return min(entries, default=1) == 0 or any(one <= version for one in checkpoints)


def is_plain(min_writer: int, features: Iterable[str] | None) -> bool:
    """Whether a table needs no writer feature that delta-rs lacks."""
    return set(features) <= PLAIN_FEATURES if features else min_writer <= PLAIN_WRITERS


def strange_partitions(columns: Mapping[str, str], partitions: Iterable[str]) -> str:
    """The partition columns whose values delta-rs would write differently; '' for none. `columns`: name -> type."""
    found = (f"partitions by {name}, a {columns[name]}" for name in partitions if columns[name] not in PLAIN_PARTITIONS)
    return ", ".join(found)


def hours(us: int) -> int:
    """Hours, rounded up, so that nothing is removed too early."""
    return -(-us // HOUR)


def is_due(maintained: str | None, how: CleanUp, now: datetime) -> bool:
    """Whether nine tenths of the interval have passed, so that a daily upkeep stays daily if it starts minutes earlier.

    maintained: when it was last done, ISO 8601. A time to come counts as none: it is of a clock that was ahead.
    """
    if maintained is None:
        return True
    since = now - datetime.fromisoformat(maintained).astimezone(UTC)
    return since < timedelta() or since >= timedelta(microseconds=how.every_us * 9 // 10)


def check_maintainable(head: Head, name: str) -> None:
    """Refuse a rule during a change of generation or a drop, which change its tables."""
    check_unsealed(head, name)
    if head.dropping is not None:
        raise Refused(f"rule {name}: {UNFINISHED}")
    check_not_forgetting(head, name)


def awaited(head: Head, recorded: Mapping[str, int | None]) -> dict[str, str]:
    """The tables that hold uncommitted writes, each with the message; these are still compared, file by file.

    recorded: by table, the largest version of the generation's app.
    """
    if head.open is None and head.backfill is None:
        return {}
    what = f"epoch {head.epoch + 1}" if head.backfill is None else f"backfill {head.backfill.number}"
    ahead = {name for name, version in recorded.items() if (version or 0) > head.written.get(name, 0)}
    return {
        name: f"{what} is open and has written to it; `floodmark run` finishes that first"
        for name in ahead
        if recorded[name] != SEAL
    }


def is_rewrite_due(files: int, rows: int, dead: int, left: int = 0) -> bool:
    """Whether to rewrite a state table. `rows`: in its files; `dead`: of them, those no longer needed, at least.

    left: how many files the newest rewrite left. Many live rows fill many files, which another rewrite cannot lessen:
    only files that came since then count against the limit.
    """
    return files >= MAX_FILES + max(left - 1, 0) or (dead >= WORTH_ROWS and 2 * dead >= rows)


class ForgetStep(Enum):
    """The next step by which rows leave a table. Each leads to the one below it."""

    REWRITE = "commit the rows that stay in place of all rows"
    MARK = "commit an entry without rows, with which the log can start"
    PURGE = "write a checkpoint of the newest version, and remove all older files and log entries"


def forget_step(recorded: int | None, number: int, rows: int) -> ForgetStep:
    """The step that a table is at, given the version that it has recorded for the app of forgets.

    number: of the forget in the generation; rows: how many match. Without any, the table is not rewritten.
    """
    if recorded is not None and recorded >= mark_version(number):
        return ForgetStep.PURGE
    return ForgetStep.MARK if rows == 0 or recorded == rewrite_version(number) else ForgetStep.REWRITE


def rewrite_version(number: int) -> int:
    """The app transaction's version of the commit without the forgotten rows."""
    return 2 * number - 1


def mark_version(number: int) -> int:
    """The same of the commit with which the log starts afterwards."""
    return 2 * number


def check_forgets(head: Head, seen: Mapping[str, tuple[int | None, int]]) -> None:
    """Raise an error if a table, or the ledger, was restored from a copy of before rows were forgotten.

    seen: of each of the rule's own tables, the version that it has recorded for the app of forgets, and its newest one.
    """
    newest = mark_version(head.forgets + (head.forgetting is not None))
    for name, (recorded, version) in seen.items():
        if (recorded or 0) > newest:
            problem = (
                "the table is ahead of the ledger, which does not know how often rows of it were forgotten: the home "
                "was restored from an older copy; restore the newest ledger"
            )
            raise LedgerBroken(about_named(name, f"{problem}, or start over with `floodmark reset`"))
        if version < head.forgotten.get(name, 0):
            problem = (
                f"expected version {head.forgotten[name]}, by which rows were forgotten, or a later one, found "
                f"{version}: the table was restored from an older copy; restore the newest table"
            )
            raise HistoryGone(about_named(name, f"{problem}, or start over with `floodmark reset`"))


def newest_by(rule: Rule, state: str) -> tuple[str, ...] | None:
    """The columns of which a state table holds the newest row alone; None for a table in which every row counts.

    Without its newest row, such a key would have an older one again. So rows that newer ones replaced go as well: also
    of a state that the class has dropped, because it may declare the state again.
    """
    if rule.process is not None:
        names = ("name",) if state in OWN_TABLES else ()
        return None if state in rule.streams else (*rule.process.key, *names)
    collected = rule.query.collected
    return tuple(collected.keys) if collected is not None and state == collected.held else None
