"""Check the ledger's counts of expectations: some expectation accounts for each dropped or dead row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

Counts = Mapping[str, Any]
TAKE = ("drop", "dead")  # `on_fail` that takes a row out; others keep it, or stop the run


def misled(rule: Mapping[str, Any], streams: Mapping[str, Counts], dead: bool = True) -> Iterator[str]:
    """Faults in the counts of each stream. `dead`: whether an expectation can still make a row dead."""
    for name, counts in streams.items():
        declared, found = _declared(rule, name), counts.get("expected", {})
        total = counts["folded"] + counts.get("dropped", 0) + _taken(declared, found, "dead")
        for what in (*_each(declared, found, total, TAKE if dead else TAKE[:1]), *_sums(declared, found, counts)):
            yield f"stream {name}: {what}"


def _declared(rule: Mapping[str, Any], stream: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = rule["streams"].get(stream, {}).get("expect", {})
    return found


def misled_results(rule: Mapping[str, Any], found: Mapping[str, Counts]) -> Iterator[str]:
    """The same for the results; the ledger does not record how many there were before some were dropped."""
    declared = rule.get("expect", {})
    yield from (f"results: {what}" for what in _each(declared, found, None, TAKE[:1]))


def _each(
    declared: Mapping[str, Any], found: Mapping[str, Counts], total: int | None, take: Sequence[str]
) -> Iterator[str]:
    """Faults of each expectation. `total`: how many rows it checked; None: unknown."""
    if declared.keys() != found.keys():
        yield f"expectations {_names(found)} are counted, the rule has {_names(declared)}"
        return
    by_takers = sum(one["taken"] for one in found.values())
    for name, one in found.items():
        on_fail, failed, taken = declared[name]["on_fail"], one["failed"], one["taken"]
        if not 0 <= taken <= failed or (total is not None and failed > total):
            yield f"expect {name}: {failed} rows failed and {taken} were taken, of {'some' if total is None else total}"
        if taken and on_fail not in take:
            yield f"expect {name}: {taken} rows were taken by an expectation that takes none (on_fail: {on_fail})"
        if on_fail in take and failed > by_takers:
            yield f"expect {name}: {failed} rows failed, yet only {by_takers} were dropped or made dead"
        if failed and (on_fail == "fail" or (on_fail == "dead" and on_fail not in take)):
            yield f"expect {name}: {failed} rows failed, and the epoch continued (on_fail: {on_fail})"


def _sums(declared: Mapping[str, Any], found: Mapping[str, Counts], counts: Counts) -> Iterator[str]:
    """Faults of all expectations of a stream together."""
    dropped, dead = (_taken(declared, found, on_fail) for on_fail in TAKE)
    if dropped != counts.get("dropped", 0):
        yield f"{counts.get('dropped', 0)} rows were dropped, but by its expectations {dropped}"
    if dead > counts["dead"]:
        yield f"{counts['dead']} rows were dead, but by its expectations {dead}"


def _taken(declared: Mapping[str, Any], found: Mapping[str, Counts], on_fail: str) -> int:
    return sum(one["taken"] for name, one in found.items() if declared.get(name, {}).get("on_fail") == on_fail)


def _names(of: Mapping[str, Any]) -> str:
    return ", ".join(sorted(of)) or "none"


def misfiled(rule: Mapping[str, Any], streams: Mapping[str, Counts], rows: pa.Table) -> Iterator[str]:
    """Differences between an epoch's dead rows and its counts, by stream and by expectation that made them dead."""
    reasons = zip(rows["_stream"].to_pylist(), rows["_reason"].to_pylist(), strict=True)
    found = Counter((stream, _by(reason)) for stream, reason in reasons)
    for name, counts in streams.items():
        declared = _declared(rule, name)
        for expectation, one in counts.get("expected", {}).items():
            if declared.get(expectation, {}).get("on_fail") == "dead" and found[name, expectation] != one["taken"]:
                yield (
                    f"stream {name}: expect {expectation} has made {one['taken']} rows dead, its files hold "
                    f"{found[name, expectation]} with that reason"
                )


def _by(reason: str | None) -> str | None:
    """The expectation that a reason names."""
    head, _, _ = (reason or "").partition(" fails: ")
    return head.removeprefix("expect ") if head.startswith("expect ") else None
