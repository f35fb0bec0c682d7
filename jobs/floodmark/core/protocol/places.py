"""Matches the Delta sinks of a rule with the tables in its ledger. A table's id identifies it; its address does not.

The ledger's name of a sink is `sink/` and the address at which its table was first found. That name never changes. If a
run finds the table at another address, a row of the ledger records it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple
from urllib.parse import unquote, urlparse

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import SEAL, fault_of
from floodmark.core.rules.kinds import sinks_beside_tables, tables_written
from floodmark.core.rules.rule import Rule, Sink
from floodmark.core.text.tablenames import about_named, about_sink
from floodmark.errors import HistoryGone

PREFIX = "sink/"


class TableName(NamedTuple):
    """A table of a rule, as its ledger names it: `late`, `dead`, `state/NAME` or `sink/ADDRESS`."""

    role: str
    rest: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        role, _, rest = text.partition("/")
        return cls(role, rest)

    @property
    def is_sink(self) -> bool:
        return self.role == "sink"

    @property
    def is_state(self) -> bool:
        return self.role == "state"

    @property
    def is_written_by_runs(self) -> bool:
        """Whether only runs rewrite its files: state, and landings and outboxes, whose commits are read one by one."""
        return self.role in ("state", "landing", "outbox")

    def in_generation(self, number: int) -> str:
        """The name with the generation, in which each state table has a folder of its own."""
        return f"state/g{number}/{self.rest}" if self.is_state else "/".join(part for part in self if part)


def places_of(head: Head) -> dict[str, str]:
    """Where each Delta sink of the generation lies, by the ledger's name, as far as the ledger, or this run, knows."""
    return _lying(head, head.places)


def _lying(head: Head, moved: Mapping[str, str]) -> dict[str, str]:
    """Where each Delta sink lay while `moved` was where the moved ones did."""
    others = other_sinks(head)
    sinks = (name for name in head.table_ids if TableName.parse(name).is_sink and name not in others)
    return {name: moved.get(name, name.removeprefix(PREFIX)) for name in sinks}


def other_sinks(head: Head) -> dict[str, Sink]:
    """The sinks of the head's text that keep what they got and are no Delta tables, by the ledger's name. They never
    move."""
    return {PREFIX + str(sink.address): sink for sink in sinks_beside_tables(head.rule)}


def name_at(head: Head | None, address: str) -> str:
    """The ledger's name of the sink at an address, or the name that a new sink there will get.

    `address`: a location.
    """
    known = {place: name for name, place in places_of(head).items()} if head else {}
    return known.get(address, PREFIX + address)


def relocated(head: Head, found: Mapping[str, str], recorded: Mapping[str, int | None] | None) -> Head:
    """The head, with its sinks' addresses updated to where their tables were found.

    found: for each of the rule's sinks that exists, by location, the table's id. recorded: the version that each has
    recorded; None if it is not checked. Raises HistoryGone in two cases:

    - A sink's table is at another address, in an older state.
    - A new sink is at the address of another sink of the ledger.
    """
    names = {head.table_ids[name]: name for name in places_of(head)}
    now = {names[id_]: place for place, id_ in found.items() if id_ in names}
    moved = {name: place for name, place in now.items() if places_of(head)[name] != place}
    for name, place in moved.items():
        id_, written = head.table_ids[name], head.written.get(name)
        version = recorded.get(place) if recorded else written
        if version == SEAL and head.seal is not None:  # by the reset that the ledger has announced
            continue
        fault = fault_of(f"{name}, now at {place}", id_, id_, written, version)
        if fault is not None:
            raise fault
    _refuse_taken_names(head, [place for place, id_ in found.items() if id_ not in names], now)
    return replace(head, places={**head.places, **moved})


def moves(head: Head, now: Head) -> dict[str, str]:
    """The sinks whose address has changed between the two heads, by the ledger's name, with the new address."""
    known = places_of(head)
    return {name: place for name, place in places_of(now).items() if known[name] != place}


def _refuse_taken_names(head: Head, others: Sequence[str], now: Mapping[str, str]) -> None:
    """Raise HistoryGone for a new sink at an address that names a table in the ledger that has moved since."""
    for place in others:
        name = PREFIX + place
        if now.get(name, place) != place:
            raise HistoryGone(
                about_sink(
                    place,
                    f"the ledger knows the table with id {head.table_ids[name]} by this address, which is "
                    f"at {now[name]} now. Name another address for the new sink",
                )
            )


def check_same_tables(head: Head, rule: Rule, where: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise HistoryGone if a sink with an unchanged address is another table than before, or none.

    This happens if a link above it was switched or the working directory differs. where: the location of each address
    in the rule. found: for each location the id of the table there, '' for none.
    """
    places, now = places_of(head), set(where.values())
    for address, name in names_in_rule(head).items():
        place = where.get(address)
        if name is None or place is None or places[name] in now:
            continue
        there = f"another table, with id {found[place]}," if found.get(place) else "no table"
        raise HistoryGone(
            about_sink(
                address,
                f"expected the table with id {head.table_ids[name]}, which was at {places[name]}, found "
                f"{there} at {place}, to which the address now leads (a link or the working directory was changed). "
                f"Restore the link or the table, or start over with `floodmark reset {rule.rule}`",
            )
        )


def named(head: Head, rule: Rule, where: Mapping[str, str]) -> tuple[Rule, Rule]:
    """The rule texts of the last epoch and of today, with Delta sinks under the ledger's names, so that they compare.

    where: the location of each address in today's text. A sink whose ledger name is unknown is the same if its address
    is spelled the same.
    """
    now = {address: name_at(head, place) for address, place in where.items()}
    then = {address: name or now.get(address) for address, name in names_in_rule(head).items()}
    return _readdressed(head.rule, then), _readdressed(rule, now)


def check_all_present(head: Head, rule: Rule, where: Mapping[str, str]) -> None:
    """Raise HistoryGone if a table that the ledger knows as a sink is at none of the rule's addresses."""
    now = set(where.values())
    for name, place in places_of(head).items():
        if place not in now:
            raise HistoryGone(
                about_named(
                    name,
                    f"the table with id {head.table_ids[name]}, which was at {place}, is at none of the "
                    f"addresses of the sinks of rule {rule.rule}. Name its current address, or start over with "
                    f"`floodmark reset {rule.rule}`",
                )
            )


def relocated_text(text: Rule, head: Head) -> Rule:
    """The rule text of what is open, with each sink's address replaced by its table's current one. Others stay."""
    places, names = places_of(head), names_of(text, _lying(head, head.open_places))
    return _readdressed(text, {address: name and places[name] for address, name in names.items()})


def _readdressed(rule: Rule, addresses: Mapping[str, str | None]) -> Rule:
    """The rule with other addresses of its sinks; None: that sink keeps its own."""
    found = [(sink, addresses.get(str(sink.address))) for sink in rule.sinks]
    sinks = tuple(sink if address is None else sink.model_copy(update={"address": address}) for sink, address in found)
    return rule.model_copy(update={"sinks": sinks})


def names_in_rule(head: Head) -> dict[str, str | None]:
    """The ledger's name of each Delta sink in the text of the last epoch, as `names_of`."""
    return names_of(head.rule, _lying(head, head.text_places))


def names_of(text: Rule, places: Mapping[str, str]) -> dict[str, str | None]:
    """The ledger's name of each Delta sink in a rule text from the ledger; None if it has none or is ambiguous.

    places: where each sink lay when the text was written, by the ledger's name. The text has addresses as written at
    the time; what links or the working directory mean now does not matter. An address matches the place that is spelled
    the same, else the one with the longest equal ending, else the only one left.
    """
    addresses = [sink.address for sink in tables_written(text) if sink.address]
    found = _clear(_ranked(addresses, places, whole=True), {})
    ranked = _ranked(addresses, places, whole=False)
    for rank in sorted({rank for rank in ranked.values() if rank}, reverse=True):
        found |= _clear({pair: one for pair, one in ranked.items() if one == rank}, found)
    left, open_ = [name for name in places if name not in found.values()], [a for a in addresses if a not in found]
    if len(left) == len(open_) == 1:
        found[open_[0]] = left[0]
    return {address: found.get(address) for address in addresses}


def _ranked(addresses: Sequence[str], places: Mapping[str, str], whole: bool) -> dict[tuple[str, str], int]:
    """(address, name) -> how many trailing path parts agree; with `whole`, only pairs that agree in all."""
    found = {}
    for address in addresses:
        for name, place in places.items():
            one, other = _parts(address), _parts(place)
            if not whole:
                found[address, name] = sum(1 for _ in takewhile(bool, _agreeing(one, other)))
            elif one == other:
                found[address, name] = 1
    return found


def _agreeing(one: Sequence[str], other: Sequence[str]) -> Iterator[bool]:
    return (a == b for a, b in zip(reversed(one), reversed(other), strict=False))


def _clear(pairs: Mapping[tuple[str, str], int], found: Mapping[str, str]) -> dict[str, str]:
    """The pairs whose two sides are both unmatched and have no other partner."""
    free = [(one, name) for one, name in pairs if one not in found and name not in found.values()]
    ones, names = [one for one, _ in free], [name for _, name in free]
    return {one: name for one, name in free if ones.count(one) == 1 == names.count(name)}


def _parts(address: str) -> list[str]:
    """The parts of a table's path; an absolute address also has the root as its first."""
    parsed = urlparse(address)
    place = unquote(parsed.path) if parsed.scheme == "file" else address
    return ["/"] * place.startswith("/") + [name for name in place.split("/") if name not in ("", ".")]
