"""The checks of a case, each with a verdict and its figures. Pure, and without the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from floodmark.proving.judge.compared import Difference, Row, difference, like_one_of

Verdict = Literal["proven", "unknown", "unfinished", "broken"]
WORST_FIRST: tuple[Verdict, ...] = ("broken", "unfinished", "unknown", "proven")
BUSY, NO_RETRY = "exit code 1, another run holds the rule", "no retry was seen"
EXIT_CODES: dict[Verdict, int] = {"proven": 0, "unknown": 1, "unfinished": 1, "broken": 3}


@dataclass(frozen=True)
class Check:
    """`what`: the subject of the check; `found`: the result, a sentence with figures."""

    what: str
    verdict: Verdict
    found: str


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The overall verdict; `unknown` without any checks."""
    there = set(verdicts)
    return next((one for one in WORST_FIRST if one in there), "unknown")


def fired(reached: int, planned: int, stray: dict[str, object] | None = None) -> Check:
    """Whether all faults fired. `stray`: how the run ended that did not reach its point."""
    what, found = "the faults fired", f"{reached} of {planned} crash points reached"
    if reached == planned:
        return Check(what, "proven", found)
    why = f"; the run ended before with exit code {stray['code']}: {stray.get('error', 'done')}" if stray else ""
    return Check(what, "unfinished", found + why)


def ended(outcome: dict[str, object], what: str = "the last run succeeded") -> Check:
    """A run after the fault must be able to finish. Exit code 1 (a retry may help) decides nothing."""
    if outcome["code"] == 0:
        return Check(what, "proven", "exit code 0")
    verdict: Verdict = "unfinished" if outcome["code"] == 1 else "broken"
    return Check(what, verdict, f"exit code {outcome['code']}: {outcome.get('error')}")


def refused(outcome: dict[str, object] | None) -> Check:
    """Whether a retry was refused while the driver was stopped, not dead."""
    what = "the retry was refused while the stopped driver lived"
    if outcome is None:
        return Check(what, "unfinished", NO_RETRY)
    if _is_busy(outcome):
        return Check(what, "proven", BUSY)
    return Check(what, "broken", f"exit code {outcome['code']}: {outcome.get('error', 'it worked')}")


def shipped_beside(outcome: dict[str, object] | None) -> Check:
    """Whether a retry did its work, or was refused, while a relay was stopped. A relay holds no lock."""
    what = "the retry while the stopped relay lived"
    if outcome is not None and _is_busy(outcome):
        return Check(what, "proven", BUSY)
    return _worked_beside(outcome, what, "it shipped in place of the stopped relay")


def left_beside(outcome: dict[str, object] | None) -> Check:
    """Whether a retry worked while a run was stopped that had computed a correction, which needs no lock."""
    what = "the retry while the stopped run was about to correct"
    return _worked_beside(outcome, what, "it left the correction to the stopped run")


def _worked_beside(outcome: dict[str, object] | None, what: str, how: str) -> Check:
    if outcome is None:
        return Check(what, "unfinished", NO_RETRY)
    return Check(what, "proven", f"exit code 0: {how}") if outcome["code"] == 0 else ended(outcome, what)


def _is_busy(outcome: dict[str, object]) -> bool:
    return (outcome["code"], outcome.get("type")) == (1, "Busy")


def corrected(done: int, left: int, came: int, deferred: int) -> Check:
    """Whether all rewrites were corrected. `done`: corrections; `deferred`: rewrites without one."""
    what, found = "the rewrite was corrected", f"{done} corrections of {left} rows that left and {came} that came"
    if deferred or not done:
        return Check(what, "broken", f"{found}; {deferred} rewrites are not corrected")
    return Check(what, "proven", found)


def equal(what: str, found: Sequence[Row] | None, expected: Sequence[Row] | None, to: str) -> Check:
    """Two multisets must be equal."""
    return delivered(what, found, expected, to, 2)


def delivered(
    what: str, found: Sequence[Row] | None, expected: Sequence[Row] | None, to: str, qos: int, attempts: bool = False
) -> Check:
    """Compare the rows of a sink of that qos with the expected ones. `attempts`: whether an epoch had several.

    If an epoch had several attempts, a row may be duplicated at qos 1, and missing at qos 0.
    """
    if found is None or expected is None:
        side = "the table" if found is None else "what it is compared with"
        return Check(what, "broken" if found is None and expected else "unknown", f"{side} is missing")
    unequal = difference(found, expected)
    if not unequal:
        return Check(what, "proven", f"{len(found)} rows, equal to {to}")
    return _unequal(what, unequal, expected, to, qos if attempts or qos == 2 else 2, len(found))


def _unequal(what: str, unequal: Difference, expected: Sequence[Row], to: str, qos: int, rows: int) -> Check:
    if qos == 1 and not unequal.missing:
        wrong = like_one_of(unequal.extra, expected)
        if not wrong:
            return Check(
                what, "proven", f"{rows} rows, of which {len(unequal.extra)} are duplicates: none of {to} is missing"
            )
        return Check(what, "broken", f"unlike {to}: {Difference([], wrong).text()}")
    if qos == 0 and not unequal.extra:
        lost = len(unequal.missing)
        return Check(what, "proven", f"{rows} rows, none duplicated and none wrong; {lost} of {to} are missing (qos 0)")
    return Check(what, "broken", f"unlike {to}: {unequal.text()}")


def beside_lost(
    what: str, found: Sequence[Row] | None, of_each: Mapping[int, Sequence[Row] | None], lost: Collection[int]
) -> Check:
    """At qos 0, if epochs were lost: the sink has the results of all other epochs, and besides only of lost epochs.

    `of_each`: the results of plain batch for each epoch, given the committed ones before it.
    """
    results = {epoch: rows for epoch, rows in of_each.items() if rows is not None}
    if found is None or len(results) < len(of_each):
        return Check(what, "unknown", "not compared: epochs were lost, and there is no batch result for each epoch")
    kept = [row for epoch, rows in results.items() if epoch not in lost for row in rows]
    unequal = difference(found, kept)
    odd = difference(unequal.extra, [row for epoch in lost for row in results[epoch]]).extra
    if unequal.missing or odd:
        told = Difference(unequal.missing, odd).text()
        return Check(what, "broken", f"unlike batch over the rows that each epoch folded: {told}")
    more = f", {len(unequal.extra)} of them of lost epochs" if unequal.extra else ""
    return Check(
        what, "proven", f"{len(found)} rows, none duplicated, none wrong and none of a committed epoch missing{more}"
    )


def balanced(read: dict[str, int], sampled: dict[str, int]) -> Check:
    """Every row of the sample was read once, in epochs that were committed or lost."""
    what = "every row of the sample was read once"
    if read == sampled:
        return Check(what, "proven", ", ".join(f"{name}: {rows} rows" for name, rows in sorted(read.items())))
    return Check(what, "broken", f"expected {sampled}, the ledger has read {read}")


def certified(verdict: str | None, findings: Sequence[str]) -> Check:
    """The result of `floodmark audit --deep`."""
    what = "floodmark audit --deep"
    if verdict is None:
        return Check(what, "broken", "there is no ledger")
    known: dict[str, Verdict] = {"proven": "proven", "broken": "broken"}
    return Check(what, known.get(verdict, "unknown"), "; ".join([verdict.upper(), *findings[:3]]))


def not_compared(what: str, why: str) -> Check:
    return Check(what, "unknown", f"not compared: {why}")
