"""The report of a proof: facts for --json, and the words and figures that the page and the terminal share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from floodmark.core.rules.rule import Rule
from floodmark.proving.faultplan import FAULTS, KINDS, NOT_ASKED, Fault, counted, plan_cases, points
from floodmark.proving.judge.judging import Judged, Matrix
from floodmark.proving.judge.verdicts import EXIT_CODES
from floodmark.proving.scratch import not_in_batch, omitted, replaces

MEANING = {
    "proven": "each fault fired, and after each the rule had the contents of an undisturbed run",
    "broken": "a promise was broken: the findings show which and where",
    "unknown": "no contradiction found, but something could not be compared",
    "unfinished": "a planned fault did not fire, or a run did not finish: try again",
}
SIGNS = {"proven": "✓", "broken": "✗", "unknown": "?", "unfinished": "!", "skipped": "-"}
NOT_TESTED = (
    "backfills that are asked for, replays of dead rows, and `maintain`, `retire`, `rename`, `drop` and `adopt`",
    "power loss: SIGKILL keeps the page cache, and neither Spark, Delta nor delta-rs syncs files on a local disk",
    "the death of the JVM alone, or of Python alone: here all processes of a run die at once",
    "the storage of the rule's own tables: scratch tables are on a local disk, where a lock separates two drivers; on "
    "an object store it is a conditional put",
    "torn, edited or deleted files, and a full disk",
    "rows beyond the sample: `floodmark audit` checks what the rule itself has done",
)


def facts(matrix: Matrix) -> dict[str, Any]:
    """The whole report, as values for JSON."""
    played = matrix.played
    return {
        "rule": played.rule.rule,
        "verdict": matrix.verdict,
        "exit_code": EXIT_CODES[matrix.verdict],
        "qos": played.rule.qos,
        "restricted": restricted(matrix),
        "sample": played.streams,
        "rewrites": played.rewrites,
        "epochs": played.ground.epochs,
        "fault_epoch": played.ground.target,
        "faults": {"planned": matrix.planned, "fired": matrix.fired, "processes_signalled": played.killed},
        "copies": [_copy(one) for one in matrix.copies],
        "skipped": [asdict(one) for one in played.skipped],
        "not_tested": not_tested(matrix),
        "versions": played.versions,
        "seconds": round(played.seconds, 1),
    }


def not_tested(matrix: Matrix) -> list[str]:
    """What the verdict does not cover."""
    rule = matrix.played.rule
    return [*NOT_TESTED, *omitted(rule), *_without_batch(rule)]


def _without_batch(rule: Rule) -> Iterator[str]:
    """Results that are not compared with plain batch, though with everything else."""
    why = not_in_batch(rule)
    if why:
        yield f"the results compared with plain batch: {why}"
        return
    for i, sink in enumerate(rule.sinks):
        if replaces(rule, sink):
            yield f"sink {i} compared with plain batch: rows of one key replace each other"
    if rule.late == "drop":
        yield "runs with late rows compared with plain batch: with `late: drop` these rows are not kept"


def _copy(one: Judged) -> dict[str, Any]:
    return {
        "name": one.name,
        "point": one.point or None,
        "fault": one.fault,
        "verdict": one.verdict,
        "planned": one.planned,
        "fired": one.fired,
        "epochs": one.epochs,
        "attempts": one.attempts,
        "seconds": round(one.seconds, 1),
        "checks": [asdict(check) for check in one.checks],
    }


def restricted(matrix: Matrix) -> bool:
    """Whether --only or --fault left out points or faults of the whole matrix."""
    played = matrix.played
    whole, _ = plan_cases(played.ground, (), KINDS)
    return len(played.cases) < len(whole) or not played.replays or played.ground.uncorrected == NOT_ASKED


def grid(matrix: Matrix) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Crash points in the protocol's order, each with a cell for each fault: the verdict and its reasons."""
    there = {case.point for case in matrix.played.cases} | {one.point for one in matrix.played.skipped}
    for point in (point for point in points(matrix.played.ground.sinks) if point in there):
        yield point, [_cell(matrix, point, fault) for fault in FAULTS]


def _cell(matrix: Matrix, point: str, fault: Fault) -> tuple[str, str]:
    for one in matrix.copies:
        if (one.point, one.fault) == (point, fault):
            return one.verdict, "; ".join(f"{check.what}: {check.found}" for check in _decisive_checks(one))
    why = next((one.why for one in matrix.played.skipped if (one.point, one.fault) == (point, fault)), NOT_ASKED)
    return "skipped", why


def _decisive_checks(one: Judged) -> Iterator[Any]:
    """The checks that decide the verdict; all checks if it is proven."""
    yield from (check for check in one.checks if one.verdict == "proven" or check.verdict != "proven")


def figures(one: Judged) -> str:
    """The number of a copy's epochs and of their attempts."""
    return f"{counted(one.epochs, 'epoch')} in {counted(one.attempts, 'attempt')}"


def findings(matrix: Matrix) -> list[str]:
    """Everything that is not proven, as messages with their place."""
    return [
        f"{check.verdict.upper()} {title(one)}: {check.what}: {check.found}"
        for one in matrix.copies
        for check in one.checks
        if check.verdict != "proven"
    ]


def title(one: Judged) -> str:
    """A copy's title for people."""
    if one.fault == "undisturbed":
        return "undisturbed run"
    if one.fault == "corrected":
        return "correction of a rewritten sample"
    words = {"killed": "killed at", "twice": "killed twice at", "stopped": "stopped at", "replayed": "replayed with"}
    return f"{words[one.fault]} {one.point}"


def summary(matrix: Matrix) -> list[str]:
    """The first lines of the report."""
    played = matrix.played
    rows = ", ".join(f"{one['rows']} rows of {one['stream']}" for one in played.streams)
    part = ", for a part of the matrix" if restricted(matrix) else ""
    return [
        f"{played.rule.rule}: {matrix.verdict.upper()}{part}: {MEANING[matrix.verdict]}",
        f"{counted(len(played.cases), 'case')} at qos {played.rule.qos}; faults: {matrix.planned} planned, "
        f"{matrix.fired} fired; {played.killed} processes killed",
        f"sample: {rows}; {played.ground.epochs} epochs, faults in epoch {played.ground.target}; "
        f"{counted(len(played.replays), 'replay')} with other epochs; {played.seconds:.0f} s",
    ]
