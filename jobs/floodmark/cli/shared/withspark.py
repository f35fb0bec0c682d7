"""A Spark application for the duration of one command."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule
    from floodmark.spark.rule.epochs.reports import RunReport
    from floodmark.spark.rule.run import RuleRun

T = TypeVar("T")


def with_spark(rule: Rule, master: str, work: Callable[[SparkSession], T], others: Iterable[Rule] = ()) -> T:
    """The result of the work; the session is stopped even if it raises. others: rules that share the application."""
    from floodmark.spark.session.session import root_session

    session = root_session(master, [rule, *others])
    try:
        return work(session)
    finally:
        session.stop()


def with_run(rule: Rule, root: Path, master: str, run: str, work: Callable[[RuleRun], RunReport]) -> Head:
    """The last committed epoch when the work on the rule is done."""
    from floodmark.spark.rule.run import RuleRun

    report = with_spark(rule, master, lambda session: work(RuleRun(session, rule, root, run, lambda epoch: None)))
    assert report.head is not None
    return report.head
