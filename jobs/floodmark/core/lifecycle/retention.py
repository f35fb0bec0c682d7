"""Decides for how long a source keeps unread input, and when to warn. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from floodmark.core.text.durations import DAY, HOUR, MINUTE, parse_duration
from floodmark.core.text.tablenames import about_table
from floodmark.errors import Refused

LOG, FILES = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
RECORDS = "retention.ms"  # of Kafka's topics
WAL = "max_slot_wal_keep_size"  # of a PostgreSQL server; in bytes
DEFAULTS = {LOG: "interval 30 days", FILES: "interval 7 days"}  # Delta's own
_WHAT = {LOG: "log entries", FILES: "replaced files", RECORDS: "records", WAL: "log"}


@dataclass(frozen=True)
class Limit:
    """One way in which a source may remove unread input. Microseconds: how long it has waited, its minimum retention.

    setting: the source table's property for it. lost: it has been removed. in_bytes: both are bytes, not microseconds.
    unread: whether it is rows that wait; else it is commits without rows, of which only the log says so.
    """

    stream: str
    setting: str
    waited_us: int
    retention_us: int
    lost: bool = False
    in_bytes: bool = False
    unread: bool = True

    @property
    def left_us(self) -> int:
        return 0 if self.lost else max(0, self.retention_us - self.waited_us)

    @property
    def used(self) -> float:
        """The share of the retention for which the input has waited: from 1 on, the source may remove it, or has."""
        return 1.0 if self.lost or not self.retention_us else self.waited_us / self.retention_us

    @property
    def warns(self) -> bool:
        """Whether more than half of the time has passed."""
        return self.lost or 2 * self.waited_us > self.retention_us

    def text(self) -> str:
        """For people: what is at risk, and what to do."""
        if self.lost:
            return (
                f"stream {self.stream}: the source has lost {_WHAT[self.setting]} of unread input, so the next run "
                "stops; restore them, or start over with `floodmark reset`"
            )
        if self.in_bytes:
            return self._text_in_bytes()
        waited, kept = _rough(self.waited_us), _rough(self.retention_us)
        subject = "input that is not read yet has" if self.unread else "commits without new rows have"
        what = f"{subject} waited for {waited}; the source keeps {_WHAT[self.setting]} for {kept}"
        if not self.left_us:
            return f"stream {self.stream}: {what} and may remove them at any time: run the rule now"
        return (
            f"stream {self.stream}: {what}: run the rule within {_rough(self.left_us)}, or raise {self.setting} of the "
            "source"
        )

    def _text_in_bytes(self) -> str:
        return (
            f"stream {self.stream}: {self.waited_us:,} bytes of log wait to be read, and the server removes them "
            f"beyond {self.retention_us:,}: run the rule now, or raise {self.setting} of the server"
        )

    def late(self) -> str:
        """The same, for input that has been read since."""
        if self.in_bytes:
            return (
                f"stream {self.stream}: {self.waited_us:,} bytes of log waited when it was read; the server keeps "
                f"{self.retention_us:,}: run the rule more often, or raise {self.setting} of the server"
            )
        subject = "its input" if self.unread else "a commit without new rows"
        return (
            f"stream {self.stream}: {subject} had waited for {_rough(self.waited_us)} when it was read; the source "
            f"keeps {_WHAT[self.setting]} for {_rough(self.retention_us)}: run the rule more often, or raise "
            f"{self.setting} "
            "of the source"
        )


def is_to_pass(waited_us: int, kept_us: int) -> bool:
    """Whether a run is due to pass commits without new rows. It comes before `Limit` warns."""
    return 3 * waited_us > kept_us


def retention_us(address: str, name: str, value: str) -> int:
    """A table's retention in microseconds, from its property `name`. A number may be in quotes, as in SQL.

    Raises Refused if the property is no length of time.
    """
    try:
        return parse_duration(re.sub(r"'\s*([+-]?\d+)\s*'", r"\1", value))
    except ValueError as fault:
        raise Refused(
            about_table(address, f"{name} of the table cannot be read: {fault}. Set a valid value with ALTER TABLE")
        ) from None


def nearest(limits: list[Limit]) -> Limit | None:
    """The limit with the least time left."""
    return min(limits, key=lambda one: one.left_us, default=None)


def _rough(us: int) -> str:
    """A duration in the largest unit of which there are at least two."""
    units = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"))
    return next((f"{us // unit} {word}" for unit, word in units if us >= 2 * unit), "less than 2 minutes")
