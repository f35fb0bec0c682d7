"""Check what the ledger's commits contain, and that the ledger names every commit that it must."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from floodmark.audit.effects.sinktables import Sinks
from floodmark.audit.evidence import Finding, LogEntry
from floodmark.audit.ledger.generations import Backfill, Epoch
from floodmark.audit.ledger.named import ATTEMPTS, BACKFILLS, Named

OWN = ("late", "dead")
DIGESTS = ("digest", "results")  # of a commit's rows, in its metadata


def carried(named: Named, entry: LogEntry, of_table: bool = True) -> Iterator[Finding]:
    """What a commit of the log must have in it. A sink that is not `of_table` has digests of its own."""
    if (named.app, named.version) not in entry.transactions:
        yield named.finding(f"the commit does not record version {named.version} of {named.app}")
        return
    if named.version // ATTEMPTS != named.epoch:
        yield named.finding(f"the commit's version is of epoch {named.version // ATTEMPTS}")
    if named.backfill is not None:
        yield from _carried_backfill(named, named.backfill, entry, ("rows", "high", "low") if of_table else ("rows",))
    if entry.metadata.get("intent") != named.intent:
        yield named.finding("the commit carries another intent's hash than the ledger has")
    for name in () if is_undigested(named, entry) else DIGESTS:
        if entry.metadata.get(name) != named.written.get(name):
            yield named.finding(f"`{name}` in the commit's metadata is not the ledger's")


def is_undigested(named: Named, entry: LogEntry) -> bool:
    """Whether the commit names no digest because the code of its attempt had none. The ledger may have one that a later
    attempt computed."""
    return 0 < entry.metadata.get("attempt", 0) <= named.undigested and not entry.metadata.keys() & {*DIGESTS}


def _carried_backfill(named: Named, backfill: Backfill, entry: LogEntry, parts: Sequence[str]) -> Iterator[Finding]:
    """What the commit of a backfill must have in it besides."""
    if named.version % ATTEMPTS != BACKFILLS + backfill.number:
        yield named.finding(f"the commit's version is not of backfill {backfill.number}")
    expected = _results_for(backfill, named.table)
    if any((named.written.get("results") or {}).get(name) != expected[name] for name in parts):
        yield named.finding(f"its results are not those of the intent of backfill {backfill.number}")
    if entry.metadata.get("deleted") != backfill.end["removed"][named.table]:
        yield named.finding(f"the ledger says {backfill.end['removed'][named.table]} rows were removed, the commit "
                            f"{entry.metadata.get('deleted')}")  # fmt: skip


def complete(epoch: Epoch, sinks: Sinks | None) -> Iterator[Finding]:
    """Tables that must have rows of a committed epoch, and are not named with them. `sinks`: None if unknown."""
    if epoch.result != "committed":
        return
    tables, counts = epoch.end["tables"], epoch.end["counts"].values()
    expected = {name: sum(one[name] for one in counts) for name in OWN}
    expected["dead"] += sum(epoch.end.get("rejected", {}).values())
    if epoch.rule.get("late") == "drop":
        expected["late"] = 0
    due = {table: sink for table, sink in (sinks or {}).items() if not (sink["qos"] == 0 and epoch.attempts > 1)}
    choosy = {table for table, sink in due.items() if sink.get("where") and not sink.get("key")}
    for table, rows in {**expected, **dict.fromkeys(due, epoch.end["output_rows"])}.items():
        found = tables[table]["rows"] if table in tables else 0
        if found > rows or (found < rows and table not in choosy):
            what = (
                f"the epoch has {rows} rows for it, the ledger names {'a commit of ' if found else ''}{found or 'none'}"
            )
            yield Finding("broken", what, epoch.generation, epoch.number, table)


def complete_backfill(backfill: Backfill, sinks: Sinks | None, known: Collection[str]) -> Iterator[Finding]:
    """Tables that are not named by a backfill or lack some of its results. `sinks`: None if unknown; `known`: tables
    that the ledger knew then."""
    if backfill.result != "committed":
        return
    found = {table: written["rows"] for table, written in backfill.end["tables"].items()}
    own = backfill.intent.get("state", {}).keys() | _state_in(backfill.keys)
    own |= _state_in(backfill.intent.get("taken", {})) if backfill.is_whole else set()
    expected = {*(found if sinks is None else sinks), *own}
    if backfill.rewrites:  # a sink that no epoch had written to yet has nothing to correct
        expected -= {table for table in expected if table.startswith("sink/") and table not in known}
    if sinks is None:
        what = f"which sinks backfill {backfill.number} had to write to is unknown from their addresses"
        yield Finding("unknown", what, backfill.generation, backfill.epoch)
    for table in sorted(found.keys() ^ expected):
        what = f"backfill {backfill.number} names {'a commit' if table in found else 'none'} of it"
        yield Finding("broken", what, backfill.generation, backfill.epoch, table)
    for table, rows in found.items():
        wanted = _results_for(backfill, table)["rows"]
        if backfill.keys and table.startswith("sink/") and wanted != backfill.keys.get(table):
            what = f"backfill {backfill.number} has {wanted} rows for {backfill.keys.get(table)} keys"
            yield Finding("broken", what, backfill.generation, backfill.epoch, table)
        if rows != wanted:
            what = f"backfill {backfill.number} has {wanted} rows for it, the commit {rows}"
            yield Finding("broken", what, backfill.generation, backfill.epoch, table)


def _state_in(tables: Iterable[str]) -> set[str]:
    return {name for name in tables if name.startswith("state/")}


def _results_for(backfill: Backfill, table: str) -> Mapping[str, Any]:
    """The digest of the backfill's results that a sink takes: all of them, unless the intent says otherwise."""
    found: Mapping[str, Any] = backfill.intent.get("taken", {}).get(table, backfill.intent["results"])
    return found
