"""Orders a row's expectations, and counts and reports their failures. Pure.

A row meets an expectation if its check is true. If the check is false, null or an error, the row fails it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.core.protocol.records.rows import Commit, Counts, Failed, Row
from floodmark.core.rules.model import ACTIONS, Action, Expectation, Rule

RESULTS = "results"
SHOWN = 200  # characters of a check in a reason


def ordered(expect: Mapping[str, Expectation]) -> tuple[tuple[str, Expectation], ...]:
    """The expectations in the order in which they decide: the strictest first, ties by name."""
    return tuple(sorted(expect.items(), key=lambda item: (ACTIONS.index(item[1].on_fail), item[0])))


def reason(name: str, check: str) -> str:
    """The reason that is recorded for a row that fails an expectation."""
    text = " ".join(check.split())
    return f"expect {name} fails: {text if len(text) <= SHOWN else f'{text[: SHOWN - 3]}...'}"


@dataclass(frozen=True)
class ExpectationResult:
    """The results of one expectation.

    stream: None for one of the results. on_fail, check: None if the rule no longer has the expectation. failed: rows
    that failed it. taken: those of them that it dropped or made dead.
    """

    stream: str | None
    name: str
    on_fail: Action | None
    check: str | None
    failed: int
    taken: int

    @property
    def of(self) -> str:
        return RESULTS if self.stream is None else f"stream {self.stream}"

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {"of": self.of, "name": self.name, "check": self.check, "on_fail": self.on_fail,
                "failed": self.failed, "taken": self.taken}  # fmt: skip

    def text(self) -> str:
        """For people."""
        check = " ".join(self.check.split()) if self.check else "no longer in the rule"
        return f"{self.of}: {self.name} ({check}){f', {self.on_fail}' if self.on_fail else ''}: {self._rows()}"

    def _rows(self) -> str:
        if not self.failed:
            return "no rows failed"
        word = {"drop": "dropped", "dead": "dead"}.get(self.on_fail or "")
        taken = f", {self.taken} of them {word or 'dropped or dead'} by it" if word or self.taken else ""
        return f"{self.failed} {'row' if self.failed == 1 else 'rows'} failed{taken}"


def failing(commit: Commit) -> dict[str, int]:
    """The rows that failed each expectation in an epoch, if any did: by `STREAM.NAME`, or `results.NAME`."""
    found = {(name, of): one for of, counts in commit.counts.items() for name, one in counts.expected.items()}
    found |= {(name, RESULTS): one for name, one in commit.expected.items()}
    return {f"{of}.{name}": one.failed for (name, of), one in found.items() if one.failed}


Counted = dict[tuple[str | None, str], Failed]  # by stream (None: of the results) and name


def counted(body: Mapping[str, Any]) -> Counted:
    """The counts of each expectation in a record of the ledger, given as parsed JSON."""
    found: Counted = {}
    for stream, counts in body["counts"].items():
        found |= {(stream, name): Failed(**one) for name, one in counts.get("expected", {}).items()}
    return found | {(None, name): Failed(**one) for name, one in body.get("expected", {}).items()}


def added(one: Counted, other: Counted) -> Counted:
    """The sums of both counts."""
    return {key: one.get(key, Failed()) + other.get(key, Failed()) for key in {**one, **other}}


def counted_in(rows: Iterable[Row], generation: int) -> Counted:
    """The counts over a generation's committed epochs; for a lost one, it is unknown which rows reached a table."""
    found: Counted = {}
    for row in rows:
        if row.generation == generation and row.kind == "commit" and '"expected":' in row.body:
            found = added(found, counted(json.loads(row.body)))
    return found


def expectation_results(rule: Rule, found: Counted) -> list[ExpectationResult]:
    """The report on each expectation of the rule and on others that were counted, streams before results."""
    streams: list[tuple[str | None, Mapping[str, Expectation]]] = [(n, s.expect) for n, s in rule.streams.items()]
    declared = {(of, name): one for of, expect in [*streams, (None, rule.expect)] for name, one in ordered(expect)}
    keys = [*declared, *sorted((key for key in found if key not in declared), key=lambda key: (key[0] or "", key[1]))]
    return [_result(key, declared.get(key), found.get(key, Failed())) for key in keys]


def uncommitted_results(
    rule: Rule, counts: Mapping[str, Counts], results: Mapping[str, Failed]
) -> list[ExpectationResult]:
    """The report on each expectation of the rule, from counts that have not been committed."""
    found: Counted = {(of, name): one for of, counted in counts.items() for name, one in counted.expected.items()}
    return expectation_results(rule, found | {(None, name): one for name, one in results.items()})


def _result(key: tuple[str | None, str], one: Expectation | None, count: Failed) -> ExpectationResult:
    return ExpectationResult(*key, one.on_fail if one else None, one.check if one else None, count.failed, count.taken)
