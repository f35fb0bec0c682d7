"""Which of Spark's errors are of the rows that it computes with: those come again however often one tries.

Judged by the causes of an error, each with the SQLSTATE that Spark gives it. Some of Spark's functions raise what Java
raises, without one: there it counts where that was raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Classes of SQLSTATE: cardinality (a scalar subquery with two rows), data, constraints (a map's key that comes twice).
_CLASSES = ("21", "22", "23")
# raise_error and assert_true; and an array or a text that grows beyond what Spark can hold.
_STATES = ("P0001", "54000", "54006")
# 22 as well, yet of places, versions and settings; and what a serialiser cannot hold.
_OTHERS = re.compile(r"DELTA_|\w*KRYO_|UNRESOLVED_TABLE_PATH|INVALID_CONF_VALUE|\w*NOT_LOADED")
# A file that cannot be read: whatever was raised within, it is no word about a row.
_READING = re.compile(r"FAILED_READ_FILE|DELTA_|CANNOT_READ_FILE")
_RAISED = "java.lang.RuntimeException"
_SPARKS = re.compile(r"org\.apache\.spark\.(?!sql\.errors\.)")  # not who makes Spark's errors, but who asked for one
_BY_EXPRESSIONS = re.compile(r"org\.apache\.spark\.(sql\.catalyst\.(expressions|util)|unsafe\.types|types)\.")
_NAMED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] .*?SQLSTATE: (\w{5})", re.DOTALL)


@dataclass(frozen=True)
class Cause:
    """One of the exceptions of a chain. `kinds`: its class and those above; `state`: SQLSTATE; `frames`: where it was
    raised, the innermost first."""

    said: str
    kinds: tuple[str, ...] = ()
    condition: str = ""
    state: str = ""
    frames: tuple[str, ...] = ()

    @property
    def is_of_data(self) -> bool:
        """Whether it is raised for what a row holds."""
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
        """What it says, in a line; where Spark has no name for it, with Java's."""
        first = self.said.strip().split("\n", 1)[0]
        return first if self.condition or not self.kinds else f"{self.kinds[0].rsplit('.', 1)[-1]}: {first}"


def of_data(causes: Sequence[Cause]) -> Cause | None:
    """The cause that is of a row's data, if that is what a chain of causes, the outermost first, comes down to."""
    if any(_READING.match(cause.condition) for cause in causes):
        return None
    return next((cause for cause in causes if cause.is_of_data), None)


def causes_in(text: str) -> Iterator[Cause]:
    """The causes that a text names, where nothing but the text is there."""
    for found in _NAMED.finditer(text):
        yield Cause(found[0], (), found[1], found[2])
