"""Test rules: a process class without Spark (`Harness`); test cases with the real engine (`cases`, `check`)."""

from floodmark.testing.cases import Case, cases
from floodmark.testing.checking import check
from floodmark.testing.harness import Harness

__all__ = ["Case", "Harness", "cases", "check"]
