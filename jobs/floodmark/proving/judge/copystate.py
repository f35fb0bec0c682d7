"""Read what a copy has written: its ledger as the auditor reads it, its own tables, its sinks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

from floodmark.audit.ledger.balance import places
from floodmark.audit.ledger.generations import Epoch, Generation
from floodmark.audit.ledger.story import Story
from floodmark.audit.logreader import read_ledger
from floodmark.connectors.relay.holding import held_by
from floodmark.core.rules.sinks.sinkcolumns import STAMPS
from floodmark.ledger.home import Home
from floodmark.proving.judge.compared import Row, as_rows, rows_of
from floodmark.proving.play.played import Played


class CopyState:
    """The ledger and tables of one copy; every table is read once."""

    def __init__(self, played: Played, case: str):
        self._played, self.case = played, case
        self.home = played.scratch.home / case
        self._known: dict[str, list[Row] | None] = {}

    @cached_property
    def generation(self) -> Generation | None:
        """The newest generation, as the auditor reads it."""
        found = read_ledger(str(self.home / "ledger"))
        generations = Story(found[1]).generations if found else []
        return generations[-1] if generations else None

    @property
    def epochs(self) -> list[Epoch]:
        return [epoch for epoch in self.generation.epochs if epoch.result != "open"] if self.generation else []

    @property
    def was_reset(self) -> bool:
        return self.generation is not None and self.generation.number > 1

    @property
    def lost(self) -> list[int]:
        return [epoch.number for epoch in self.epochs if epoch.result == "lost"]

    @property
    def again(self) -> bool:
        """Whether an epoch had several attempts."""
        return any(epoch.attempts > 1 for epoch in self.epochs)

    def counted(self, part: str) -> dict[str, int]:
        """Rows of each stream over all epochs."""
        streams = self._played.rule.streams
        return {name: sum(epoch.intent["counts"][name][part] for epoch in self.epochs) for name in streams}

    @property
    def late(self) -> int:
        return sum(self.counted("late").values())

    def facts(self) -> list[Row]:
        """The ledger's facts of each epoch, without time, run and attempt."""
        return [
            (
                epoch.number,
                epoch.result,
                str(places(epoch.intent, ())),
                epoch.intent["watermark"],
                tuple(str(sorted(counts.items())) for counts in epoch.intent["counts"].values()),
                epoch.end["output_rows"],
            )
            for epoch in self.epochs
        ]

    @property
    def deferred(self) -> int:
        """Rewrites of its input that no correction has followed."""
        return len(self.generation.outstanding) if self.generation else 0

    @property
    def corrections(self) -> list[Mapping[str, Any]]:
        """The intents of committed corrections."""
        backfills = self.generation.backfills if self.generation else []
        return [one.intent for one in backfills if one.result == "committed" and one.rewrites]

    def rewritten(self, side: str) -> int:
        """Rows that left or came, over all corrections and streams. `side`: left or came."""
        return sum(one[side]["rows"] for intent in self.corrections for one in intent["rewrites"].values())

    def corrected(self) -> list[Row]:
        """The ledger's facts of each correction: what changed in its sources, what it read, how many results it has."""
        return [
            (
                str({name: (one["left"], one["came"]) for name, one in sorted(intent["rewrites"].items())}),
                *(str(intent.get(name)) for name in ("begin", "end", "gaps", "upto", "watermark", "maxima")),
                *(str(intent.get(name)) for name in ("counts", "restated", "digests")),
                intent["results"]["rows"],
            )
            for intent in self.corrections
        ]

    def sink(self, number: int) -> list[Row] | None:
        """A sink's rows without epoch numbers, which differ if epochs have other sizes."""
        sink = self._played.rule.sinks[number]
        if sink.outbox is not None:
            return self._held(number)
        return self._rows(self._played.scratch.sink(self.case, number), STAMPS if sink.epoch_columns else ())

    def _held(self, number: int) -> list[Row] | None:
        """What a target has; None if it has no position."""
        name = f"target {number}"
        if name not in self._known:
            copied = self._played.scratch.rule(self.case).sinks[number]
            held = held_by(Home(self._played.scratch.home, self.case), copied.model_dump())
            rows = None if held.position is None else [row for batch in held.rows() for row in batch.to_pylist()]
            self._known[name] = None if rows is None else as_rows(rows)
        return self._known[name]

    def own(self, table: str) -> list[Row] | None:
        return self._rows(str(self.home / table))

    def state(self) -> dict[str, list[Row] | None]:
        """State tables of the newest generation, by name."""
        folder = self.home / "state" / f"g{self.generation.number if self.generation else 0}"
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        return {name: self._rows(str(folder / name)) for name in names}

    def batch(self, number: int, epoch: int | None = None) -> list[Row] | None:
        """The results of plain batch for a sink, of all epochs or of one."""
        return self._rows(self._played.scratch.expected(self.case, number, epoch))

    def _rows(self, address: str, without: Collection[str] = ()) -> list[Row] | None:
        if address not in self._known:
            found = rows_of(address)
            plain = [{name: row[name] for name in row if name not in without} for row in found or ()]
            self._known[address] = None if found is None else as_rows(plain)
        return self._known[address]
