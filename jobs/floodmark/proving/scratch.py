"""The scratch folder of a proof, and the rule's copies, which write nowhere else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from floodmark.connectors.ports.target import ScratchPlaces
from floodmark.core.rules.checks.recomputing import of_class, why_not_corrected
from floodmark.core.rules.kinds import sink_kind, stream_can, targets
from floodmark.core.rules.rule import EpochLimits, Rule, Sink, StartAt, Stream
from floodmark.core.rules.sinks.outboxes import outbox_of
from floodmark.core.sql.words.clock import at_clock
from floodmark.errors import FloodmarkError
from floodmark.ledger.home import check_home

UNDECIDED_DAYS = 2  # longer than a play takes
FIRST = StartAt(version=1)  # version 0 of a sampled table is empty, so that no epoch is one of a first snapshot


@dataclass(frozen=True)
class Scratch:
    """ROOT/input/STREAM, home/CASE, sinks/CASE/N, expected/CASE/N, rules; and the runs' marks, outcomes and log.

    Of corrections: rewritten/CASE/STREAM, made of fresh/STREAM, and coming/STREAM, files that come with the rewrite.
    """

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def word(self) -> str:
        """A word that no other proof has."""
        return sha256(str(self.root).encode()).hexdigest()[:8]

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    def input(self, stream: str) -> str:
        return str(self.root / "input" / stream)

    def fresh(self, stream: str) -> Path:
        """The input of a copy that is to be rewritten."""
        return self.root / "fresh" / stream

    def coming(self, stream: str) -> Path:
        return self.root / "coming" / stream

    def rewritten(self, case: str, stream: str) -> str:
        """A copy's own input, which no other copy reads."""
        return str(self.root / "rewritten" / case / stream)

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
    sinks = tuple(_sink(sink, scratch, name, i) for i, sink in enumerate(rule.sinks))
    return found.model_copy(update={"streams": streams, "sinks": sinks, "close_idle_after_us": None})


def corrected_copy(rule: Rule, name: str, scratch: Scratch, files: int | None) -> Rule:
    """A copy that corrects its results after rewrites of inputs of its own, which are made here."""
    found, streams = copy_of(rule, name, scratch, files), {}
    for stream in correctable(rule):
        shutil.copytree(scratch.fresh(stream), scratch.rewritten(name, stream))
        own = {"address": scratch.rewritten(name, stream), "on_rewrite": "correct", "start": "earliest"}
        streams[stream] = found.streams[stream].model_copy(update=own)
    return found.model_copy(update={"streams": {**found.streams, **streams}})


def placed(rule: Rule, name: str, scratch: Scratch, files: int | None) -> Rule:
    """The unchanged rule, over streams of the scratch folder. Its sinks are still the rule's own: the caller places
    them."""
    return rule.model_copy(
        update={
            "rule": name,
            "streams": {stream: _stream(one, scratch.input(stream)) for stream, one in rule.streams.items()},
            "epoch": EpochLimits(max_files=files),
            "schedule": None,
        }
    )


def _stream(stream: Stream, address: str) -> Stream:
    own = {"kind": "delta", "address": address, "options": {}, "start": FIRST, "landing": None, "changes": False}
    return stream.model_copy(update=own)


def _sink(sink: Sink, scratch: Scratch, case: str, number: int) -> Sink:
    places = places_of(sink, scratch)
    if places is not None:
        return _target(sink, places.options(f"{case}_{number}"))
    return sink if sink.address is None else sink.model_copy(update={"address": scratch.sink(case, number)})


def _target(sink: Sink, options: Mapping[str, Any]) -> Sink:
    """The sink with other options. A copy that is stopped at a point of its relay has nothing shipped, however long it
    waits: so its outbox has no limit."""
    kind = sink_kind(sink.kind)
    address = kind.address(kind.written.model_validate(options))
    assert address is not None
    own = {"options": options, "address": address, "outbox": outbox_of(address), "outbox_bytes": None}
    return sink.model_copy(update=own)


def places_of(sink: Sink, scratch: Scratch) -> ScratchPlaces | None:
    """Places for copies of a sink that is a target; None if its kind has none."""
    made = sink_kind(sink.kind).scratch
    found: ScratchPlaces | None = made and made(sink, scratch.root / "targets", scratch.word)
    return found


@contextmanager
def target_places(rule: Rule, scratch: Scratch, keep: bool, tell: Callable[[str], None]) -> Iterator[None]:
    """Places for the copies of the rule's targets, which are removed at the end, unless `keep` is set.

    tell: gets a message about each target, and about places that could not be removed. Raises as the targets do.
    """
    found = [places for sink in targets(rule) if (places := places_of(sink, scratch)) is not None]
    try:
        for one in found:
            tell(f"copies of a target are in {one.place}")
            one.make()
        yield
    finally:
        for one in () if keep else found:
            try:
                one.remove()
            except FloodmarkError as fault:
                tell(f"{one.place} could not be removed. Remove it by hand. {fault}")


def clocked(rule: Rule) -> bool:
    """Whether a result may hold the time of day at which its epoch was folded: two runs may then differ."""
    times = [stream.event_time.expr for stream in rule.streams.values() if stream.event_time and stream.event_time.expr]
    if any(at_clock(text, 0) != text for text in (rule.sql, *times)):
        return True
    return rule.process is not None and next(of_class(rule.process), None) is not None


def omitted(rule: Rule) -> list[str]:
    """The parts of the rule, and of its input, that the copies lack, as messages."""
    found = []
    if rule.close_idle_after_us is not None:
        found.append("close_idle_after: it depends on the time of day, so the copies do not have it")
    found += [
        f"idle_after of stream {name}: it depends on the time of day, so the copies do not have it"
        for name, stream in rule.streams.items()
        if stream.idle_after_us is not None
    ]
    if any(stream.max_ahead_us is not None for stream in rule.streams.values()):
        found.append(
            f"rows with an event time up to {UNDECIDED_DAYS} days beyond `max_ahead`: whether they are dead depends on "
            "when a run reads them, so the sample does not have them"
        )
    return found


def not_in_batch(rule: Rule) -> str | None:
    """Why plain batch cannot compute the rule's results; None if it can."""
    if rule.process is not None:
        return "a class has no SQL that batch could run"
    if rule.query.collected is not None:
        return "Spark's SQL has no windows of rows"
    return "the results contain the epoch's clock" if clocked(rule) else None


def correctable(rule: Rule) -> list[str]:
    """The streams of which the rule can follow a rewrite."""
    return [name for name in rule.streams if next(_not_corrected(rule, name), None) is None]


def not_corrected(rule: Rule) -> str | None:
    """Why the rule can follow a rewrite of none of its streams; None if it can."""
    if correctable(rule):
        return None
    return "; ".join(dict.fromkeys(next(_not_corrected(rule, name)) for name in rule.streams))


def _not_corrected(rule: Rule, name: str) -> Iterator[str]:
    if not stream_can(rule.streams[name]).rewrites:
        yield f"stream {name}: its source cannot say which rows were removed or changed"
    yield from (f"it cannot follow a rewrite: {why}" for why in why_not_corrected(rule, name))


def by_epoch(rule: Rule) -> bool:
    """Whether batch, if it can run the rule, can compute each epoch's results: its rows, or those that become final."""
    return rule.amend_us is None and not (rule.query.running or rule.query.top)


def replaces(rule: Rule, sink: Sink) -> bool:
    """Whether a sink's rows replace each other by a key that may occur several times in the batch results."""
    query = rule.query
    by_group = rule.process is None and (query.running or query.top or rule.amend_us is not None)
    return bool(sink.key) and not by_group
