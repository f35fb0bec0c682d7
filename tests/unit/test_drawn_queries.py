"""What `support.queries` and `support.matrix` draw: forms that rules may have, the same again from its number."""

from __future__ import annotations

import re

import pytest
from support.matrix import drawn
from support.queries import FORMS, LENIENT_SUMS, MERGED, RANKED, WHOLE, case_of

from floodmark.core.sql import analyse
from floodmark.core.sql.words.function_names import AGGREGATES

# Of bitmaps, which other aggregates make.
LEFT_OUT = {"bitmap_and_agg", "bitmap_or_agg"}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_one_that_a_rule_may_have(form: str) -> None:
    for number in range(8):
        case = case_of(str(number), form)
        found = analyse(case.sql, {"events": "at"}, lookups={"t"}, unbounded=bool(case.settings.get("unbounded")))
        assert found.stateful == (form not in ("stateless", "looked up")), case.sql
        assert repr(case_of(str(number), form)) == repr(case)


def test_every_aggregate_is_drawn() -> None:
    named = set(re.findall(r"[a-z_0-9]+(?=\()", " ".join([*MERGED, *LENIENT_SUMS, *WHOLE, *RANKED])))
    assert AGGREGATES - named == LEFT_OUT


def test_rows_lie_at_the_watermark_and_one_microsecond_beside_it() -> None:
    apart = set()
    for number in range(40):
        case = case_of(str(number), "window")
        kept = [row for row in case.epochs[0] if row["at"] is not None]
        if kept:
            mark = max(row["at"] for row in kept).timestamp() - 30
            apart |= {round((row["at"].timestamp() - mark) * 1e6) for row in case.epochs[1] if row["at"] is not None}
    assert {-1, 0, 1} <= apart


def test_two_values_of_two_axes_meet_soon() -> None:
    """Of a hundred cases nearly all bring pairs that have not met, and each form is there."""
    cases = drawn("1", 100)
    assert {case.form for case in cases} == {case.form for case in drawn("2", 100)}
    assert len({(case.form, case.sink) for case in cases}) > 80
