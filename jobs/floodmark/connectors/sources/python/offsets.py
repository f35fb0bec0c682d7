"""Offsets of a source of one's own: JSON values that have an order. No clock, no file, no class."""

from __future__ import annotations

import json
from typing import Any

from floodmark.core.process.values import short

FORM = (
    "a whole number, text, a list of them (the first difference decides), or a mapping of them by text (each may only "
    "grow)"
)


def checked(value: Any) -> Any:
    """The same offset as JSON has it. Raises ValueError for a value without an order, or that JSON lacks."""
    if isinstance(value, str):
        value.encode("utf-8")  # half a surrogate pair cannot be stored
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, list | tuple):
        return [checked(one) for one in value]
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return {name: checked(value[name]) for name in sorted(value)}
    raise ValueError(f"expected {FORM}, found {short(value)}")


def line(of: str, at: Any) -> str:
    """The text of an offset. `of`: the identity of the source."""
    return json.dumps({"of": of, "at": at})


def parsed(offset: str) -> tuple[str, Any]:
    """Identity and offset of a line."""
    found = json.loads(offset)
    return found["of"], found["at"]


def reaches(low: Any, high: Any) -> bool:
    """Whether `high` is at or beyond `low`. Raises ValueError for two that cannot be compared."""
    if isinstance(low, dict) and isinstance(high, dict):
        return low.keys() <= high.keys() and all(reaches(low[name], high[name]) for name in low)
    if isinstance(low, list) and isinstance(high, list):
        for one, other in zip(low, high, strict=False):
            if one != other:
                return reaches(one, other)
        return len(low) <= len(high)
    if type(low) is not type(high) or not isinstance(low, int | str):
        raise ValueError(f"expected offsets of one form, found {short(low)} and {short(high)}")
    return bool(low <= high)


def beyond(low: Any, high: Any) -> bool:
    """Whether `high` is beyond `low`."""
    return low != high and reaches(low, high)
