"""Which windows are final, and which rows a window not yet final still needs. Times are microseconds since 1970.

A window of size S and slide D starts at every `offset + k * D` and holds [start, start + S).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.core.sql import WindowSpec


def needed_from(specs: Iterable[WindowSpec], watermark: int) -> int:
    """Rows before this event time belong to no window that ends after `watermark`."""
    return min(live_from(spec, watermark) for spec in specs)


def live_from(spec: WindowSpec, watermark: int) -> int:
    """Rows at or after this event time belong to a window that ends after `watermark`; rows before it do not."""
    steps = (watermark - spec.size_us - spec.offset_us) // spec.slide_us + 1
    return spec.offset_us + steps * spec.slide_us


def newest_final_end(spec: WindowSpec, watermark: int) -> int:
    """End of the newest window that is final at `watermark`."""
    return live_from(spec, watermark) - spec.slide_us + spec.size_us


def any_becomes_final(spec: WindowSpec, before: int | None, after: int | None) -> bool:
    """Whether a window ends in (before, after]."""
    if after is None:
        return False
    return before is None or newest_final_end(spec, after) > before
