"""Decides which of Spark's errors are caused by row data; those recur in every retry.

It judges the causes of an error by the SQLSTATE that Spark gives each. Some of Spark's functions raise plain Java
errors without one; then the place that raised the error decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Classes of SQLSTATE: cardinality (a scalar subquery with two rows), data, constraints (a duplicate key of a map).
_CLASSES = ("21", "22", "23")
# raise_error and assert_true; and an array or text that grows beyond Spark's limit.
_STATES = ("P0001", "54000", "54006")
# Also class 22, but about places, versions and settings; and values that a serialiser cannot hold.
_OTHERS = re.compile(r"DELTA_|\w*KRYO_|UNRESOLVED_TABLE_PATH|INVALID_CONF_VALUE|\w*NOT_LOADED")
# An unreadable file: no error raised within says anything about a row.
_READING = re.compile(r"FAILED_READ_FILE|DELTA_|CANNOT_READ_FILE")
_RAISED = "java.lang.RuntimeException"
_SPARKS = re.compile(r"org\.apache\.spark\.(?!sql\.errors\.)")  # not the code that builds errors, but its caller
_BY_EXPRESSIONS = re.compile(r"org\.apache\.spark\.(sql\.catalyst\.(expressions|util)|unsafe\.types|types)\.")
_NAMED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] .*?SQLSTATE: (\w{5})", re.DOTALL)


@dataclass(frozen=True)
class Cause:
    """One exception of a chain.

    kinds: its class and its superclasses. state: SQLSTATE. frames: its stack, the innermost first.
    """

    message: str
    kinds: tuple[str, ...] = ()
    condition: str = ""
    state: str = ""
    frames: tuple[str, ...] = ()

    @property
    def is_of_data(self) -> bool:
        """Whether a row's data caused it."""
        if _OTHERS.match(self.condition):
            return False
        return self.state.startswith(_CLASSES) or self.state in _STATES or self._is_of_an_expression

    @property
    def _is_of_an_expression(self) -> bool:
        if _RAISED not in self.kinds:
            return False
        first = next((frame for frame in self.frames if _SPARKS.match(frame)), "")
        return _BY_EXPRESSIONS.match(first) is not None

    @property
    def line(self) -> str:
        """Its message, as one line; if Spark has no name for the error, with Java's."""
        first = self.message.strip().split("\n", 1)[0]
        return first if self.condition or not self.kinds else f"{self.kinds[0].rsplit('.', 1)[-1]}: {first}"


def of_data(causes: Sequence[Cause]) -> Cause | None:
    """The cause that is a row's data, if that is the root of a chain of causes, the outermost first."""
    if any(_READING.match(cause.condition) for cause in causes):
        return None
    return next((cause for cause in causes if cause.is_of_data), None)


def causes_in(text: str) -> Iterator[Cause]:
    """The causes that a text names, if only the text is available."""
    for found in _NAMED.finditer(text):
        yield Cause(found[0], (), found[1], found[2])
