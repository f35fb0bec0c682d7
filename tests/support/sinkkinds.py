"""Kinds of sink under test, and what every one of them promises: one body of tests for all.

An epoch is written by attempts, as `spark.write.sites` has them: FILES, then the commit. Each attempt dies before the
commit, dies after it, or comes to its end; whatever comes first, the sink has the rows of each epoch once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from floodmark.core.protocol.records.rows import Written
from floodmark.spark.write import sites
from floodmark.spark.write.sites import Attempt, Site, Work

DIES_BEFORE, DIES_AFTER, ENDS = "dies before its commit", "dies after its commit", "ends"
Row = tuple[int, str]
EPOCHS: tuple[tuple[Row, ...], ...] = (((1, "a"), (2, "b")), ((2, "c"), (3, "d")), ())


@dataclass(frozen=True)
class SinkUnderTest:
    """`frame`: rows as the kind takes them; `rows`: all that it holds; `add`, `take`: by somebody else, beside us."""

    site: Site
    frame: Callable[[Sequence[Row]], Any]
    rows: Callable[[], list[Row]]


def courses(most: int) -> Iterator[tuple[str, ...]]:
    """What becomes of the attempts at one epoch, the last of which ends."""
    for count in range(most):
        for before in product((DIES_BEFORE, DIES_AFTER), repeat=count):
            yield (*before, ENDS)


def written_once(sink: SinkUnderTest, plans: Sequence[tuple[str, ...]]) -> list[Written | None]:
    """Write the epochs, each by a course of attempts; what the ledger gets of each."""
    found = list[Written | None]()
    for epoch, (rows, course) in enumerate(zip(EPOCHS, plans, strict=True), 1):
        for number, end in enumerate(course, 1):
            attempt = Attempt(epoch, number, f"intent {epoch}")
            prepared = sites.prepare(Work(sink.site, sink.frame(rows)), attempt)
            if end == DIES_BEFORE:
                continue
            written = sites.finish(prepared, attempt)
            if end == ENDS:
                found.append(written)
    return found


def expected(site: Site, plans: Sequence[tuple[str, ...]]) -> list[Row]:
    """What the sink is to hold, by the way it is written; at qos 1 once for each attempt that committed."""
    held = list[Row]()
    for rows, course in zip(EPOCHS, plans, strict=True):
        times = sum(end != DIES_BEFORE for end in course) if site.writes_again else 1
        for _ in range(times if not (site.upsert or site.whole) else 1):
            if site.whole:
                held = []
            if site.upsert:
                held = [row for row in held if row[0] not in {one[0] for one in rows}]
            held += rows
    return sorted(held)


def ways(site: Site) -> dict[str, Site]:
    """The same sink, written in each way."""
    return {
        "added": site,
        "replaced": replace(site, whole=True),
        "added at least once": replace(site, writes_again=True),
    }
