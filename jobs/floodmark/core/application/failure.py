"""Reports why rules failed from one program to another: a file with a line of JSON for each failed rule.

It also reports how a job ended, as its last line of output, because an exit code may be that of whatever started it.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from floodmark.errors import Final, NotThereYet, Refused, exit_code, message


def ending(code: int) -> str:
    """The last line that a job prints: it shows that the exit code is its own, not that of a process around it."""
    return f"floodmark ends with exit code {code}"


def ending_in(line: str) -> int | None:
    """The exit code in a job's last line; None in all others. Output of a rule's class may precede it on the line."""
    found = re.search(r"floodmark ends with exit code (\d+)\s*$", line)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Failure:
    """`exit_code`: that of `floodmark run` for this rule alone.

    `waits`: whether it waits for a table that does not exist yet.
    """

    rule: str
    exit_code: int
    message: str
    waits: bool = False

    @classmethod
    def of(cls, rule: str, fault: Exception) -> Failure:
        return cls(rule, exit_code(fault), message(fault), isinstance(fault, NotThereYet))

    @property
    def is_final(self) -> bool:
        """Whether no retry can help."""
        return self.exit_code in (Refused.exit_code, Final.exit_code)


class FailureFile:
    """A file to which several threads add a line as soon as a rule has failed, so that a kill loses none of them."""

    def __init__(self, path: Path):
        self.path, self._one_at_a_time = path, threading.Lock()

    def check(self) -> None:
        """Raise Refused if no line can be added."""
        try:
            with self.path.open("a", encoding="utf-8"):
                pass
        except OSError as fault:
            raise Refused(
                f"--failures: expected a file that can be appended to at {self.path}, found: {fault.strerror}. Name "
                "another file, or create its folder"
            ) from None

    def add(self, failure: Failure) -> None:
        with self._one_at_a_time, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(failure)) + "\n")

    def read(self) -> dict[str, Failure]:
        """The failures by rule, without a line that a kill cut off."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return {found["rule"]: Failure(**found) for found in whole}
