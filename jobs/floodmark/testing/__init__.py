"""Test a process class without Spark (`Harness`), rules by cases with the real engine (`cases`, `check`), and a source
or target of one's own (`check_source`, `check_target`).
"""

from floodmark.testing.cases import Case, cases
from floodmark.testing.checking import check
from floodmark.testing.harness import Harness
from floodmark.testing.sources import check_source
from floodmark.testing.targets import check_target

__all__ = ["Case", "Harness", "cases", "check", "check_source", "check_target"]
