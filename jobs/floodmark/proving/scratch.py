"""The scratch folder of a proof, and the rule's copies, which write nowhere else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from floodmark.core.rules.rule import EpochLimits, Rule, Sink, StartAt, Stream
from floodmark.core.sql.words.clock import at_clock
from floodmark.ledger.home import check_home

FIRST = StartAt(version=1)  # version 0 of a sampled table is empty, so that no epoch is one of a first snapshot
CLOCK_OF_A_CLASS = re.compile(r"\.\s*now\b")


@dataclass(frozen=True)
class Scratch:
    """ROOT/input/STREAM, home/CASE, sinks/CASE/N, expected/CASE/N, rules; and the runs' marks, outcomes and log."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    def input(self, stream: str) -> str:
        return str(self.root / "input" / stream)

    def sink(self, case: str, number: int) -> str:
        return str(self.root / "sinks" / case / str(number))

    def expected(self, case: str, number: int, epoch: int | None = None) -> str:
        """Address of the batch results for a sink, of all epochs or of one."""
        return str(self.root / "expected" / case / (str(number) if epoch is None else f"{number}.{epoch}"))

    def marks(self, name: str) -> Path:
        return self.root / "marks" / name

    def mark(self, name: str, case: str, point: str) -> Path:
        """The file that a run leaves at a crash point."""
        return self.marks(name) / f"{case}.{point.partition('@')[0]}"

    def outcome(self, name: str, case: str) -> Path:
        return self.root / "outcomes" / name / f"{case}.json"

    def write_rule(self, rule: Rule) -> None:
        path = self._rule(rule.rule)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rule.to_json())

    def rule(self, case: str) -> Rule:
        return Rule.from_json(self._rule(case).read_text())

    def _rule(self, case: str) -> Path:
        return self.root / "rules" / f"{case}.json"

    def read_outcome(self, name: str, case: str) -> dict[str, Any] | None:
        """A run's report on a case when it ended; None if it has not ended."""
        path = self.outcome(name, case)
        return json.loads(path.read_text()) if path.exists() else None

    def write_outcome(self, name: str, case: str, facts: Mapping[str, Any]) -> None:
        """Write a report atomically: a reader may read the file as soon as it exists."""
        path = self.outcome(name, case)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(facts))
        unfinished.replace(path)


@contextmanager
def scratch_folder(parent: Path, name: str, qos: int, keep: bool = False) -> Iterator[Path]:
    """A new folder below `parent`, which must be fit for homes; it is removed at the end, unless `keep` is set.

    Raises HomeUnfit.
    """
    root = parent.absolute() / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}"
    there = root.parent.exists()
    check_home(root.parent, qos)
    root.mkdir()
    try:
        yield root
    finally:
        if not keep:
            shutil.rmtree(root, ignore_errors=True)
            if not there and not any(root.parent.iterdir()):
                root.parent.rmdir()


def copy_of(rule: Rule, name: str, scratch: Scratch, files: int | None) -> Rule:
    """The rule as a case: other addresses, and epochs of so many commits. All else stays the same, except for settings
    that depend on the time of day: how long a stream or the input may be silent."""
    found = placed(rule, name, scratch, files)
    streams = {stream: one.model_copy(update={"idle_after_us": None}) for stream, one in found.streams.items()}
    return found.model_copy(update={"streams": streams, "close_idle_after_us": None})


def placed(rule: Rule, name: str, scratch: Scratch, files: int | None) -> Rule:
    """The unchanged rule, over streams and sinks of the scratch folder."""
    return rule.model_copy(
        update={
            "rule": name,
            "streams": {stream: _stream(one, scratch.input(stream)) for stream, one in rule.streams.items()},
            "sinks": tuple(_sink(sink, scratch.sink(name, i)) for i, sink in enumerate(rule.sinks)),
            "epoch": EpochLimits(max_files=files),
            "schedule": None,
        }
    )


def _stream(stream: Stream, address: str) -> Stream:
    own = {"kind": "delta", "address": address, "options": {}, "start": FIRST, "landing": None, "changes": False}
    return stream.model_copy(update=own)


def _sink(sink: Sink, address: str) -> Sink:
    return sink if sink.address is None else sink.model_copy(update={"address": address})


def clocked(rule: Rule) -> bool:
    """Whether a result may hold the time of day at which its epoch was folded: two runs may then differ."""
    times = [stream.event_time.expr for stream in rule.streams.values() if stream.event_time and stream.event_time.expr]
    if any(at_clock(text, 0) != text for text in (rule.sql, *times)):
        return True
    process = rule.process
    return process is not None and (process.clock_timers or bool(CLOCK_OF_A_CLASS.search(process.source)))


def omitted(rule: Rule) -> list[str]:
    """The parts of the rule that the copies lack, as messages."""
    found = []
    if rule.close_idle_after_us is not None:
        found.append("close_idle_after: it depends on the time of day, so the copies do not have it")
    found += [
        f"idle_after of stream {name}: it depends on the time of day, so the copies do not have it"
        for name, stream in rule.streams.items()
        if stream.idle_after_us is not None
    ]
    return found


def not_in_batch(rule: Rule) -> str | None:
    """Why plain batch cannot compute the rule's results; None if it can."""
    if rule.process is not None:
        return "a class has no SQL that batch could run"
    if rule.query.collected is not None:
        return "Spark's SQL has no windows of rows"
    return "the results contain the epoch's clock" if clocked(rule) else None


def by_epoch(rule: Rule) -> bool:
    """Whether batch, if it can run the rule, can compute each epoch's results: its rows, or those that become final."""
    return rule.amend_us is None and not (rule.query.running or rule.query.top)


def replaces(rule: Rule, sink: Sink) -> bool:
    """Whether a sink's rows replace each other by a key that may occur several times in the batch results."""
    query = rule.query
    by_group = rule.process is None and (query.running or query.top or rule.amend_us is not None)
    return bool(sink.key) and not by_group
