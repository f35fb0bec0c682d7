"""Why a rule failed, as one program tells another: a file with a line of JSON for each rule that has."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from floodmark.errors import Final, Refused, exit_code, message


@dataclass(frozen=True)
class Failure:
    """`exit_code`: that of `floodmark run` for this rule alone."""

    rule: str
    exit_code: int
    message: str

    @classmethod
    def of(cls, rule: str, fault: Exception) -> Failure:
        return cls(rule, exit_code(fault), message(fault))

    @property
    def hopeless(self) -> bool:
        """Whether no retry can help."""
        return self.exit_code in (Refused.exit_code, Final.exit_code)


class FailureFile:
    """Written by several threads, a line as soon as a rule has failed: a kill takes none of them along."""

    def __init__(self, path: Path):
        self.path, self._one_at_a_time = path, threading.Lock()

    def add(self, failure: Failure) -> None:
        with self._one_at_a_time, self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(failure)) + "\n")

    def read(self) -> dict[str, Failure]:
        """By rule; a line that a kill cut off is none."""
        text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return {found["rule"]: Failure(**found) for found in whole}
