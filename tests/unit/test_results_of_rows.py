"""Whose order equal rows have where Spark cannot order them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException

from floodmark.spark.read.lookuprows import UNORDERED, results_of_rows


def results(condition: str, top: object = None) -> Any:
    """What Spark computes in place of SQL that it refuses for this reason."""

    def sql(text: str) -> str:
        if text == "ordered":
            raise AnalysisException("refused", errorClass=condition, messageParameters={})
        return text

    rule: Any = SimpleNamespace(sql="as written", query=SimpleNamespace(sql="ordered", top=top))
    session: Any = SimpleNamespace(sql=sql)
    return results_of_rows(session, rule)


def test_rows_without_an_order_have_that_of_the_sql_as_written() -> None:
    assert results(f"DATATYPE_MISMATCH.{UNORDERED}") == "as written"


@pytest.mark.parametrize(("condition", "top"), [("UNRESOLVED_COLUMN", None), (UNORDERED, object())])
def test_another_fault_and_first_rows_that_an_epoch_could_not_fold_are_told(condition: str, top: object) -> None:
    with pytest.raises(AnalysisException):
        results(condition, top)
