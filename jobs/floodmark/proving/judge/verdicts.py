"""What a case shows: single checks, each with a verdict and the figures behind it. Pure, and without the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.proving.judge.compared import Difference, Row, difference, like_one_of

Verdict = Literal["proven", "unknown", "unfinished", "broken"]
WORST_FIRST: tuple[Verdict, ...] = ("broken", "unfinished", "unknown", "proven")
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "unknown": 1, "unfinished": 1, "broken": 3}


@dataclass(frozen=True)
class Check:
    """`what` was looked at, and what was found: a sentence with figures."""

    what: str
    verdict: Verdict
    found: str


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict over all: nothing looked at proves nothing."""
    there = set(verdicts)
    return next((one for one in WORST_FIRST if one in there), "unknown")


def fired(reached: int, planned: int, stray: dict[str, object] | None = None) -> Check:
    """`stray`: how the run ended that did not come to its point."""
    what, found = "the faults fired", f"{reached} of {planned} crash points reached"
    if reached == planned:
        return Check(what, "proven", found)
    why = f"; the run ended before with exit code {stray['code']}: {stray.get('error', 'done')}" if stray else ""
    return Check(what, "unfinished", found + why)


def ended(told: dict[str, object], what: str = "the last run ended well") -> Check:
    """A run after the fault must be able to finish: that it may be tried again (1) settles nothing yet."""
    if told["code"] == 0:
        return Check(what, "proven", "exit code 0")
    verdict: Verdict = "unfinished" if told["code"] == 1 else "broken"
    return Check(what, verdict, f"exit code {told['code']}: {told.get('error')}")


def refused(told: dict[str, object] | None) -> Check:
    """The retry beside a driver that is stopped, not dead."""
    what = "the retry was refused while the stopped driver lived"
    if told is None:
        return Check(what, "unfinished", "no retry was seen")
    if (told["code"], told.get("type")) == (1, "Busy"):
        return Check(what, "proven", "exit code 1, another run holds the rule")
    return Check(what, "broken", f"exit code {told['code']}: {told.get('error', 'it worked')}")


def equal(what: str, found: Sequence[Row] | None, expected: Sequence[Row] | None, to: str) -> Check:
    """Two multisets must be one."""
    return delivered(what, found, expected, to, 2)


def delivered(
    what: str, found: Sequence[Row] | None, expected: Sequence[Row] | None, to: str, qos: int, attempts: bool = False
) -> Check:
    """What a sink of that qos holds, against what it should. `attempts`: whether an epoch had several of them.

    At qos 1 a row may be there again, at qos 0 one may be missing where an epoch had several attempts.
    """
    if found is None or expected is None:
        side = "the table" if found is None else "what it is compared with"
        return Check(what, "broken" if found is None and expected else "unknown", f"{side} is not there")
    unequal = difference(found, expected)
    if not unequal:
        return Check(what, "proven", f"{len(found)} rows, equal to {to}")
    return _unequal(what, unequal, expected, to, qos if attempts or qos == 2 else 2, len(found))


def _unequal(what: str, unequal: Difference, expected: Sequence[Row], to: str, qos: int, rows: int) -> Check:
    if qos == 1 and not unequal.missing:
        wrong = like_one_of(unequal.extra, expected)
        if not wrong:
            return Check(what, "proven", f"{rows} rows, of which {len(unequal.extra)} again: none of {to} is missing")
        return Check(what, "broken", f"unlike {to}: {Difference([], wrong).text()}")
    if qos == 0 and not unequal.extra:
        lost = len(unequal.missing)
        return Check(what, "proven", f"{rows} rows, none twice and none wrong; {lost} of {to} are not there (qos 0)")
    return Check(what, "broken", f"unlike {to}: {unequal.text()}")


def beside_lost(
    what: str, found: Sequence[Row] | None, of_each: Mapping[int, Sequence[Row] | None], lost: Collection[int]
) -> Check:
    """At qos 0, where epochs were lost: the results of all others are there, and besides only a lost epoch's own.

    `of_each`: what plain batch gives for each epoch, beside the committed ones before it.
    """
    results = {epoch: rows for epoch, rows in of_each.items() if rows is not None}
    if found is None or len(results) < len(of_each):
        return Check(what, "unknown", "not compared: epochs were lost, and there is no answer in batch for each epoch")
    kept = [row for epoch, rows in results.items() if epoch not in lost for row in rows]
    unequal = difference(found, kept)
    odd = difference(unequal.extra, [row for epoch in lost for row in results[epoch]]).extra
    if unequal.missing or odd:
        told = Difference(unequal.missing, odd).text()
        return Check(what, "broken", f"unlike batch over the rows that each epoch folded: {told}")
    more = f", {len(unequal.extra)} of them of lost epochs" if unequal.extra else ""
    return Check(
        what, "proven", f"{len(found)} rows, none twice, none wrong and none of a committed epoch missing{more}"
    )


def balanced(read: dict[str, int], sampled: dict[str, int]) -> Check:
    """Every row of the sample was read once, in epochs that were committed or lost."""
    what = "every row of the sample was read once"
    if read == sampled:
        return Check(what, "proven", ", ".join(f"{name}: {rows} rows" for name, rows in sorted(read.items())))
    return Check(what, "broken", f"expected {sampled}, the ledger has read {read}")


def certified(verdict: str | None, findings: Sequence[str]) -> Check:
    """What `floodmark audit --deep` says."""
    what = "floodmark audit --deep"
    if verdict is None:
        return Check(what, "broken", "there is no ledger")
    known: dict[str, Verdict] = {"proven": "proven", "broken": "broken"}
    return Check(what, known.get(verdict, "unknown"), "; ".join([verdict.upper(), *findings[:3]]))


def not_compared(what: str, why: str) -> Check:
    return Check(what, "unknown", f"not compared: {why}")
