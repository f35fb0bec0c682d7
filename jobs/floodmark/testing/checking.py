"""Run one test case as an assertion, for pytest.

@pytest.mark.parametrize("case", cases("rules"), ids=str)
def test_rules(case: Case) -> None:
    check(case)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.core.rules.environments import folder_at
from floodmark.testing.cases import SCRATCH, Case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(case: Case, session: SparkSession | None = None, home: str | Path | None = None) -> None:
    """Run a case. Raises AssertionError with the differences, and any error of the rule's run.

    `session`: a Spark session with Delta; without one, Floodmark starts its own and keeps it for the next case.
    `home`: the folder for the scratch folder (default: FLOODMARK_HOME, else `./home`); not in a temporary directory,
    where no rule's home can be.
    """
    from floodmark.proving.scratch import scratch_folder
    from floodmark.spark.session.session import root_session
    from floodmark.testing.playing import play

    root = session or root_session(os.environ.get("FLOODMARK_MASTER", "local[*]"), [case.rule], backlog=0)
    parent = folder_at(home or os.environ.get("FLOODMARK_HOME") or "home") / SCRATCH
    with scratch_folder(parent, case.rule.rule, case.rule.qos) as folder:
        result = play(root, case, folder)
    if result.fault is not None:
        raise result.fault
    assert result.passed, f"{case.place}\n{result.text()}"
