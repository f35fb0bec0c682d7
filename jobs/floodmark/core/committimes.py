"""Computes when each version of a Delta table was committed, as Spark's `timestampAsOf` and `startingTimestamp` do.

That is the time of the log entry's file, each at least a millisecond after the one before. If the table has in-commit
timestamps, the entry's own time counts, from the version that enabled them. Milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping

# A commit's own time, by its writer's clock, is a little earlier than its file's. If it is far earlier, the file is a
# copy.
COPIED_MS = 3_600_000
# A copy writes one entry right after the other.
TOGETHER_MS = 60_000
# Of an entry without its writer's time, so many older ones are asked. Some writers name it in none.
MOST_ASKED = 64


def in_commit_from(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """The version and time from which the table has in-commit timestamps; None if it has none."""
    told = {name.lower(): value for name, value in properties.items()}
    if told.get("delta.enableincommittimestamps", "false").lower() != "true":
        return None
    version = told.get("delta.incommittimestampenablementversion", "0")
    return int(version), int(told.get("delta.incommittimestampenablementtimestamp", "0"))


def committed(files: Mapping[int, int], own: Mapping[int, int], since: tuple[int, int] | None) -> dict[int, int]:
    """Version -> commit time, oldest first.

    files: times of the entries' files. own: in-commit timestamps of those from `since` on.
    """
    first, began = since or (max(files, default=0) + 1, 0)
    found: dict[int, int] = {}
    last = None
    for version in sorted(version for version in files if version < first):
        last = files[version] if last is None else max(files[version], last + 1)
        found[version] = min(last, began) if since else last
    return found | {version: own[version] for version in sorted(files) if version >= first}


def first_from(times: Mapping[int, int], moment: int) -> int | None:
    """The first version committed at or after a moment; None if all are older."""
    return min((version for version, time in times.items() if time >= moment), default=None)


def copied(files: Mapping[int, int], written: Mapping[int, int]) -> int | None:
    """The first version whose file is much younger than its writer says (`written`); None if there is none."""
    return next((version for version in sorted(written) if files[version] - written[version] > COPIED_MS), None)


def copied_with(files: Mapping[int, int], version: int) -> list[int]:
    """The version and those before it whose files a copy may have written together with its own, newest first."""
    near = (one for one in files if one <= version and files[version] - files[one] <= TOGETHER_MS)
    return sorted(near, reverse=True)[:MOST_ASKED]
