"""When each version of a Delta table was committed, by the rule of Spark's `timestampAsOf` and `startingTimestamp`.

That is: the time of the log entry's file, each at least a millisecond after the one before. Where the table has
in-commit timestamps, the entry's own time counts, from the version on at which they were enabled. Milliseconds since
1970.
"""

from __future__ import annotations

from collections.abc import Mapping

# A commit's own time, by its writer's clock, is a little before its file's. Far before: the file is a copy.
COPIED_MS = 3_600_000


def in_commit_from(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """From which version and time on the table has in-commit timestamps; None where it has none."""
    told = {name.lower(): value for name, value in properties.items()}
    if told.get("delta.enableincommittimestamps", "false").lower() != "true":
        return None
    version = told.get("delta.incommittimestampenablementversion", "0")
    return int(version), int(told.get("delta.incommittimestampenablementtimestamp", "0"))


def committed(files: Mapping[int, int], own: Mapping[int, int], since: tuple[int, int] | None) -> dict[int, int]:
    """Version → when it was committed, oldest first. `files`: times of the entries' files; `own`: of those from `since`
    on, in-commit timestamps."""
    first, began = since or (max(files, default=0) + 1, 0)
    found: dict[int, int] = {}
    last = None
    for version in sorted(version for version in files if version < first):
        last = files[version] if last is None else max(files[version], last + 1)
        found[version] = min(last, began) if since else last
    return found | {version: own[version] for version in sorted(files) if version >= first}


def first_from(times: Mapping[int, int], moment: int) -> int | None:
    """The first version committed at or after a moment; None where all are older."""
    return min((version for version, time in times.items() if time >= moment), default=None)


def copied(files: Mapping[int, int], said: Mapping[int, int]) -> int | None:
    """The first version whose file is much younger than its writer says (`said`); None where there is none."""
    return next((version for version in sorted(said) if files[version] - said[version] > COPIED_MS), None)
