"""Decides which commits of a sink a rule had committed; readers see these, and none of a half-done epoch."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import ATTEMPTS, BACKFILLS, SEAL

_APP = re.compile(r"floodmark/(?P<ledger>[^/]+)/g(?P<generation>\d+)-(?P<token>[^/]+)/")
_NAME = re.compile(r"(?!sink\d+$)[A-Za-z_]\w*", re.ASCII)


def is_visible(transactions: Iterable[tuple[str, int]], ledger: str, head: Head) -> bool:
    """Whether a commit with these app transactions belongs to `head`; one by another writer does.

    ledger: the id of the rule's ledger.
    """
    return all(_is_committed(app, version, ledger, head) for app, version in transactions)


def _is_committed(app: str, version: int, ledger: str, head: Head) -> bool:
    found = _APP.match(app)
    if found is None or found["ledger"] != ledger or version == SEAL:
        return True
    generation = int(found["generation"])
    if generation != head.generation or found["token"] != head.token:
        return generation < head.generation  # the rows that a reset kept
    epoch, place = divmod(version, ATTEMPTS)
    return place - BACKFILLS in head.backfills if place > BACKFILLS else epoch <= head.epoch


def short_names(addresses: Collection[str], given: Mapping[str, str]) -> dict[str, str]:
    """Name in SQL -> address: the name `given` to the sink by the rule, else the last part of its address.

    If that is not a unique valid name, it is `sinkN` by position.
    """
    lasts = [given.get(address, address.rstrip("/").rpartition("/")[2]) for address in addresses]
    plain = [last if _NAME.fullmatch(last) and lasts.count(last) == 1 else None for last in lasts]
    named = enumerate(zip(plain, addresses, strict=True))
    return {given.get(address) or name or f"sink{i}": address for i, (name, address) in named}


def is_query(sql: str) -> bool:
    """Whether a statement only reads. `sql`: one statement; whoever runs it refuses several."""
    text = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    first = re.match(r"[\s(]*(\w+)", text)
    return first is not None and first[1].lower() in ("select", "with", "values")


def newest_named(bodies: Iterable[Mapping[str, Mapping[str, object]]], table: str) -> int | None:
    """The Delta version of the newest write to a table that the ledger's rows name. `bodies`: their `tables`."""
    versions = [one[table]["commit"] for one in bodies if table in one]
    return max((int(str(version)) for version in versions), default=None)
