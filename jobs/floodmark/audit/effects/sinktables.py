"""Match tables with sinks: a rule has addresses as its user wrote them, the ledger has what they resolved to then.

What they resolve to now, from another working directory or after a link was changed, does not matter.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlparse

Sink = Mapping[str, Any]
Sinks = Mapping[str, Sink]  # by the ledger's name of the table
PREFIX = "sink/"


def tables_of(sinks: Sequence[Sink], ids: Mapping[str, str], moved: Mapping[str, str] | None = None) -> Sinks | None:
    """The ledger's name of the table → the sink, of those sinks that keep rows; None where it cannot be told.

    `ids`: of the tables that the ledger knew by then, by name; `moved`: where those of them lay that had been moved, by
    id. Tables may have exchanged their addresses, so a name says only where its table was at first.
    """
    wanted, others = [sink for sink in sinks if sink["kind"] == "delta"], other_sinks(sinks)
    known = [table for table in ids if table.startswith(PREFIX) and table not in others]
    named = {(moved or {}).get(ids[table], table.removeprefix(PREFIX)): table for table in known}
    addresses = tuple(str(sink["address"]) for sink in wanted)
    found = matched(addresses, tuple(named))
    if found is None:
        return None
    return {named.get(place, PREFIX + place): sink for place, sink in zip(found, wanted, strict=True)} | others


def other_sinks(sinks: Sequence[Sink]) -> dict[str, Sink]:
    """The sinks that are no Delta tables and are somewhere, by the ledger's name."""
    return {PREFIX + str(sink["address"]): sink for sink in sinks if sink["kind"] != "delta" and sink["address"]}


@functools.lru_cache(maxsize=256)
def matched(addresses: tuple[str, ...], places: tuple[str, ...]) -> tuple[str, ...] | None:
    """The place of each address: the one with the same spelling, else with the same ending, else the next in order.

    Once each place has its address, the addresses that are left are those of new sinks. None: it cannot be told.
    """
    alike = {(one, place): _alike(one, place) for one in addresses for place in places}
    found: dict[str, str] = {}
    for least in sorted({rank for rank in alike.values() if rank > (0, 0)}, reverse=True):
        found |= _clear({pair for pair, rank in alike.items() if rank == least}, found)
    left = [place for place in places if place not in found.values()]
    open_ = [one for one in addresses if one not in found]
    if left and open_ and len(left) != len(open_):
        return None
    found |= zip(open_, left or open_, strict=False)  # none is open where some are left of addresses that are gone
    return tuple(found[one] for one in addresses)


def _clear(pairs: set[tuple[str, str]], found: Mapping[str, str]) -> dict[str, str]:
    """The pairs, of sides without a match so far, in which neither side has another partner."""
    free = [(one, place) for one, place in pairs if one not in found and place not in found.values()]
    ones, places = [one for one, _ in free], [place for _, place in free]
    return {one: place for one, place in free if ones.count(one) == 1 == places.count(place)}


def _alike(address: str, place: str) -> tuple[int, int]:
    """Whether they are spelled alike, and how many of their last names agree."""
    one, other = _names(address), _names(place)
    same = next((i for i, (a, b) in enumerate(zip(one[::-1], other[::-1], strict=False)) if a != b), None)
    return int(one == other), min(len(one), len(other)) if same is None else same


def _names(address: str) -> list[str]:
    """The parts of a table's path; those of an absolute address begin with `/`."""
    parsed = urlparse(address)
    place = unquote(parsed.path) if parsed.scheme == "file" else address
    return ["/"] * place.startswith("/") + [name for name in place.split("/") if name not in ("", ".")]
