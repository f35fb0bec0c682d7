"""Defines a check: what was inspected, what was expected and found, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from floodmark.errors import Refused

Verdict = Literal["ok", "warning", "failed"]
VERDICTS: tuple[Verdict, ...] = ("ok", "warning", "failed")


@dataclass(frozen=True)
class Check:
    """`warning`: rules run, but perhaps not as expected. `failed`: they do not run, or not safely.

    `expected` and `fix` are empty if the verdict is ok.
    """

    name: str
    verdict: Verdict
    found: str
    expected: str = ""
    fix: str = ""


def ok(name: str, found: str) -> Check:
    return Check(name, "ok", found)


def warning(name: str, expected: str, found: str, fix: str) -> Check:
    return Check(name, "warning", found, expected, fix)


def failed(name: str, expected: str, found: str, fix: str) -> Check:
    return Check(name, "failed", found, expected, fix)


def exit_code(checks: Iterable[Check]) -> int:
    """The exit code of a refusal if any check failed; else 0."""
    return Refused.exit_code if any(check.verdict == "failed" for check in checks) else 0
