"""A function that is told of failures, as FLOODMARK_ON_FAILURE names one."""

from __future__ import annotations

from typing import Any

CONTEXTS: list[Any] = []


def note(context: Any) -> None:
    CONTEXTS.append(context)
