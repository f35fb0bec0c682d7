"""The documentation's tables of types are those that the tests of types go by."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError
from support.types import KINDS, REFUSED, ROLES, page, refusals

from floodmark.core.rules.sinks.storable import WAYS, why_not
from floodmark.errors import TableBroken
from floodmark.ledger.delta import tables

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"


def test_the_page_has_the_tables_that_are_tested() -> None:
    text = PAGE.read_text()
    for lines in (page(), refusals()):
        assert "\n".join(["", *lines, ""]) in text, "write them anew: print('\\n'.join(page()))"


def test_what_a_type_cannot_be_is_a_place_of_a_rule() -> None:
    assert {role for kind in KINDS for role in kind.cannot} <= set(ROLES)


def test_a_type_of_deltas_is_let_pass_and_another_is_told_with_a_way_out() -> None:
    assert why_not("x", "bigint", "long") is None
    assert why_not("x", "void", "void") == (
        "expected types that a Delta table has, found x of type void. In the SQL write CAST(x AS TYPE), because "
        "its type is not known"
    )
    assert str(why_not("max(b - a)", "interval day", "daytimeinterval", "Do this")).endswith("interval day. Do this")
    assert {one.instead for one in REFUSED} <= {
        way.format("x").split(",")[0] + end for way in WAYS.values() for end in ("", ", or a number")
    }


def test_a_table_with_text_that_python_has_not_is_not_called_harmed() -> None:
    """For then nobody should remove its folder."""
    with pytest.raises(TableBroken, match=r"cannot be shown: .*nothing is corrupt") as raised, tables.delta_errors("t"):
        raise DeltaError("Parquet error: encountered non UTF-8 data: invalid utf-8 sequence of 1 bytes from index 4")
    assert "remove" not in str(raised.value)
