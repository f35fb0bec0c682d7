"""What is said of Spark's own errors."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from floodmark.errors import InputFault, RunFailed
from floodmark.spark.faults import explained, of_open_epoch


def fault(text: str) -> PySparkException:
    return PySparkException(text)


def test_a_row_that_fails_before_its_epoch_is_open_is_mended_in_the_sql() -> None:
    with pytest.raises(InputFault, match=r"DIVIDE_BY_ZERO.*try_divide") as met, explained("r"):
        raise fault("[DIVIDE_BY_ZERO] Division by zero.")
    assert "reset" not in str(met.value)


def test_a_row_that_fails_in_an_open_epoch_asks_for_a_reset_too() -> None:
    """The epoch is finished by the text that it began with, which fails alike."""
    said = r"DIVIDE_BY_ZERO.*try_divide.*Epoch 4 is open.*only with `floodmark reset r`"
    with pytest.raises(InputFault, match=said), explained("r"), of_open_epoch("r", 4):
        raise fault("[DIVIDE_BY_ZERO] Division by zero.")
    with pytest.raises(RunFailed) as met, explained("r"), of_open_epoch("r", 4):
        raise fault("Job aborted due to stage failure")
    assert "reset" not in str(met.value)
