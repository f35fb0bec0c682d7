"""Which results a backfill or a correction recomputes, as facts for JSON and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from floodmark.views.formats import iso

if TYPE_CHECKING:
    from floodmark.core.protocol.records.backfills import Restated


def extent(of: Restated, zone: bool) -> dict[str, Any]:
    """The interval of event time; null where there is none, because all results are recomputed, or some keys'.

    zone: whether event times have a zone.
    """
    begin, end = (iso(at, zone) if of.is_bounded else None for at in (of.begin, of.end))
    return {"from": begin, "to": end, "all": of.whole}


def words(facts: Mapping[str, Any]) -> str:
    """The same facts, with `keys`, as people read them; empty if no result is touched."""
    if facts["all"]:
        return "everything"
    times = f"{facts['from']} to {facts['to']}" if facts["from"] else ""
    keys = f"{facts['keys']} keys" if facts["keys"] is not None else ""
    return f"{times} ({keys})" if times and keys else times or keys
