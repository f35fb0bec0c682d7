"""A Spark application for the duration of one command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from floodmark.core.rules.rule import Rule

T = TypeVar("T")


def with_spark(rule: Rule, master: str, work: Callable[[SparkSession], T]) -> T:
    """The result of the work; the session is stopped even if it raises."""
    from floodmark.spark.session.session import root_session

    session = root_session(master, [rule])
    try:
        return work(session)
    finally:
        session.stop()
