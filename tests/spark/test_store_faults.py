"""What Spark raises, as errors of Floodmark's own: no JVM is asked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyspark.errors import PySparkException

from floodmark.errors import RunFailed, TableBroken
from floodmark.spark.session.faults import explained


class Kind:
    """A class of Java's that says no more than its name."""

    def getName(self) -> str:  # noqa: N802 - Java's names
        return "java.io.IOException"

    def getSuperclass(self) -> None:  # noqa: N802
        return None

    def getInterfaces(self) -> list[Kind]:  # noqa: N802
        return []


@dataclass
class Thrown:
    """Of the JVM."""

    message: str
    cause: Thrown | None = None

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self.message

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self.cause

    def getStackTrace(self) -> list[str]:  # noqa: N802
        return []

    def getClass(self) -> Kind:  # noqa: N802
        return Kind()


@pytest.mark.parametrize(
    ("cause", "kind"),
    [("Checksum error: file:/a at 0", TableBroken), ("Stale file handle", RunFailed), ("null", RunFailed)],
)
def test_what_spark_says_of_a_file_is_sorted_by_its_causes(cause: str, kind: type[Exception]) -> None:
    fault = PySparkException("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///a.")
    fault._origin = Thrown("while reading", Thrown(cause))  # type: ignore[attr-defined]
    with pytest.raises(kind), explained("r"):
        raise fault
