"""Values at a bound and one unit beside it, drawn more often than any others: there the mistakes are."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def beside(*bounds: int, unit: int = 1, others: SearchStrategy[int] | None = None) -> SearchStrategy[int]:
    """Each bound, `unit` below and `unit` above it; one in four draws is out of `others`."""
    near = st.sampled_from(sorted({bound + off for bound in bounds for off in (-unit, 0, unit)}))
    return near if others is None else near | near | near | others
