"""What a run did for each of its rules, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from floodmark.core.application.failure import Failure
from floodmark.errors import exit_code, message, worst
from floodmark.views.formats import iso

if TYPE_CHECKING:
    from floodmark.connectors.relay.shipping import Delivered
    from floodmark.core.lifecycle.freshness import Fresh
    from floodmark.core.lifecycle.retention import Limit
    from floodmark.core.protocol.records.head import Head
    from floodmark.spark.rule.epochs.reports import CorrectionReport, EpochReport
    from floodmark.views.contents.openwindows import OpenWindows
    from floodmark.views.contents.waiting import Waiting


@dataclass
class Outcome:
    """What a run did for one rule. `retired`: why it was skipped, unless it was selected by name.

    `limits`: how long the sources would have kept the unread input when the run started. `landed`: rows, by stream.
    """

    rule: str
    idle: bool = False
    epochs: list[EpochReport] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    abandoned: list[int] = field(default_factory=list)
    corrections: list[CorrectionReport] = field(default_factory=list)
    landed: Counter[str] = field(default_factory=Counter)
    head: Head | None = None
    windows: OpenWindows | None = None
    limits: dict[str, Limit] = field(default_factory=dict)
    waiting: Waiting | None = None
    fresh: Fresh | None = None
    zoned: bool = True
    seconds: float = 0.0
    fault: Exception | None = None
    retired: str | None = None
    delivered: list[Delivered] = field(default_factory=list)
    notices: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return 0 if self.fault is None else exit_code(self.fault)

    @property
    def failure(self) -> Failure | None:
        return None if self.fault is None else Failure.of(self.rule, self.fault)

    def text(self) -> str:
        """The rule's line in the summary."""
        if self.fault is not None:
            said = message(self.fault)
            done = f" ({self._done()} before that)" if self.epochs or self.lost or self.corrections else ""
            line = f"{said}{done}" if self.rule in said else f"rule {self.rule}: {said}{done}"
            return f"{line}{self._targets()}{self._warnings()}"
        if self.retired is not None:
            return self.retired
        epoch = self.head.epoch if self.head else 0
        if self.idle:
            idle = f"{self.rule}: nothing new since epoch {epoch}"
            return f"{idle}{self._open()}{self._fresh()}{self._targets()}{self._warnings()}"
        done = f"{self.rule}: {self._done()}; at epoch {epoch}, {self.seconds:.1f} s"
        return f"{done}{self._open()}{self._fresh()}{self._targets()}{self._warnings()}"

    def _done(self) -> str:
        out = sum(epoch.output for epoch in self.epochs)
        read = sum(epoch.read for epoch in self.epochs)
        lost = f", {_epochs(len(self.lost))} lost (qos 0): {', '.join(map(str, self.lost))}" if self.lost else ""
        lost += f", epoch {', '.join(map(str, self.abandoned))} abandoned" if self.abandoned else ""
        lost += "".join(f", {_corrected(one)}" for one in self.corrections)
        passed_over = sum(len(commits) for epoch in self.epochs for commits in epoch.skipped.values())
        lost += f", {passed_over} commits skipped that remove rows" if passed_over else ""
        failed: Counter[str] = sum((Counter(epoch.failed) for epoch in self.epochs), Counter())
        said = "".join(f", {count} failed {name}" for name, count in failed.items())
        landed = f"{sum(self.landed.values())} rows landed, " if self.landed else ""
        return f"{landed}{_epochs(len(self.epochs))} committed, {read} rows read, {out} out{said}{lost}"

    def _open(self) -> str:
        """Results that are not written yet, and what they wait for."""
        return "".join(f"\n  {found.text()}" for found in (self.windows, self.waiting) if found)

    def _fresh(self) -> str:
        if self.fresh is None or not self.fresh.text():
            return ""
        return f"\n  {'warning: ' if self.fresh.exceeded else ''}{self.fresh.text()}"

    def _targets(self) -> str:
        said = ((one.text(), one.fault or one.lost.epochs) for one in self.delivered)
        return "".join(f"\n  {'warning: ' if wrong else ''}{text}" for text, wrong in said if text)

    def _warnings(self) -> str:
        return "".join(f"\n  warning: {warning}" for warning in self.warnings)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the sources, and input that had waited long when the run started; after a failed run it still
        waits."""
        found = [limit for limit in self.limits.values() if limit.warns]
        return [*(limit.text() if self.fault else limit.late() for limit in found), *self.notices]

    def facts(self) -> dict[str, Any]:
        """For --json."""
        return {
            "result": "failed" if self.fault else "retired" if self.retired else "idle" if self.idle else "done",
            "exit_code": self.exit_code,
            "epoch": self.head.epoch if self.head else None,
            "generation": self.head.generation if self.head else None,
            "watermark": iso(self.head.watermark, self.zoned) if self.head else None,
            "epochs": [self._epoch(epoch) for epoch in self.epochs],
            "lost": self.lost,
            "abandoned": self.abandoned,
            "corrections": [vars(one) for one in self.corrections],
            "landed": self.landed,
            "open_windows": self.windows.facts() if self.windows else None,
            "waiting": self.waiting.facts() if self.waiting else None,
            "freshness": self.fresh.facts() if self.fresh else None,
            "targets": [one.facts() for one in self.delivered],
            "warnings": self.warnings,
            "seconds": round(self.seconds, 3),
            "error": {"type": type(self.fault).__name__, "message": message(self.fault)} if self.fault else None,
        }

    def _epoch(self, epoch: EpochReport) -> dict[str, Any]:
        found = {key: value for key, value in vars(epoch).items() if key != "rule"}
        return {**found, "watermark": iso(epoch.watermark, self.zoned), "seconds": round(epoch.seconds, 3)}


@dataclass
class Drained:
    """All outcomes, in the order of the selection; `signal`: the one that ended the run early, if any."""

    outcomes: list[Outcome]
    signal: int | None = None

    @property
    def exit_code(self) -> int:
        return worst([outcome.exit_code for outcome in self.outcomes]) if self.signal is None else 128 + self.signal


def _corrected(one: CorrectionReport) -> str:
    return f"correction {one.number} after {', '.join(one.commits)}: {one.left} rows left the source, {one.came} came"


def _epochs(count: int) -> str:
    return "1 epoch" if count == 1 else f"{count} epochs"
