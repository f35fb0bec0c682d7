"""Values as Spark compares them. Pure."""

from __future__ import annotations

import math
from typing import Any


def rank(value: Any) -> Any:
    """A value that is equal, and ordered, as Spark has it: NULL is the smallest, NaN the largest. It has a hash."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (2,)
    if isinstance(value, dict):
        return (1, *map(rank, value.values()))
    return (1, *map(rank, value)) if isinstance(value, list | tuple) else (1, value)
