"""Read the status of one rule from its ledger and its tables, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from floodmark.connectors.backlog.retention import limits
from floodmark.connectors.ports.registry import sources
from floodmark.connectors.ports.source import Backlog
from floodmark.connectors.relay.alone import relays_at_work
from floodmark.connectors.relay.backlogs import Undelivered, target_lag, undelivered, undelivered_of_removed
from floodmark.core.lifecycle.corrections import commits_of
from floodmark.core.lifecycle.freshness import Fresh, fresh, late_of
from floodmark.core.lifecycle.life import UNFINISHED
from floodmark.core.lifecycle.retention import Limit
from floodmark.core.lifecycle.zones import zoned
from floodmark.core.protocol.expectations import ExpectationResult, counted_in, expectation_results
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import ENDS, Row
from floodmark.core.protocol.recovery import opened_at_qos
from floodmark.core.protocol.tally import COUNTS, counts_of
from floodmark.core.protocol.watermark import silent
from floodmark.core.rules.rule import Rule
from floodmark.core.rules.sinks.delivery import SinkDelivery, delivery
from floodmark.errors import FloodmarkError, RunFailed, message
from floodmark.ledger.delta.datafiles import values_of
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader, ledger_in
from floodmark.views.contents.openwindows import OpenWindows, open_windows, state_table
from floodmark.views.contents.statetables import state_tables
from floodmark.views.contents.waiting import Waiting, waiting
from floodmark.views.extents import extent, words
from floodmark.views.formats import duration, iso, size
from floodmark.views.status.refusals import refused


@dataclass(frozen=True)
class StateSize:
    """The size of a state table on disk, including rows that are no longer needed."""

    rows: int
    bytes: int
    files: int


@dataclass(frozen=True)
class RuleStatus:
    """Everything that `status` reports of a rule. `fault`: why it cannot report.

    `excused`: the streams that the watermark does not wait for, and the recorded clock since when they are silent.
    `target_lags`: how old the newest row of each target is, in seconds; None: unknown. `removed`: targets that the file
    no longer has, and that have not got all. `refused`: why the next run will stop.
    """

    rule: str
    head: Head | None = None
    newest: Row | None = None
    holder: str | None = None
    corrector: str | None = None
    relays: dict[str, str] = field(default_factory=dict)
    lag: dict[str, Backlog | str] = field(default_factory=dict)
    limits: dict[str, Limit] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    expected: list[ExpectationResult] = field(default_factory=list)
    state: dict[str, StateSize] = field(default_factory=dict)
    windows: OpenWindows | None = None
    waiting: Waiting | None = None
    excused: dict[str, int] = field(default_factory=dict)
    delivery: list[SinkDelivery] = field(default_factory=list)
    targets: list[Undelivered] = field(default_factory=list)
    target_lags: dict[str, float | None] = field(default_factory=dict)
    removed: list[Undelivered] = field(default_factory=list)
    refused: str | None = None
    fresh: Fresh | None = None
    zoned: bool = True
    fault: FloodmarkError | None = None

    def facts(self) -> dict[str, Any]:
        """For --json."""
        if self.fault is not None:
            return {"error": {"type": type(self.fault).__name__, "message": str(self.fault)}}
        head, newest = self.head, self.newest
        return {
            "error": None,
            "generation": head.generation if head else None,
            "epoch": head.epoch if head else None,
            "at": newest.at if newest else None,
            "run": newest.run if newest else None,
            "watermark": iso(head.watermark, self.zoned) if head else None,
            "open": {"epoch": head.epoch + 1, "attempts": head.attempt} if head and head.open else None,
            "backfills": _backfills(head, self.zoned) if head else [],
            "corrections": head.corrections if head else 0,
            "deferred": {name: commits_of(ones) for name, ones in head.deferred.items()} if head else {},
            "skipped_commits": head.skipped if head else {},
            "open_backfill": {"backfill": head.backfill.number, "attempts": head.attempt}
            if head and head.backfill
            else None,
            "unfinished": _unfinished(head) if head else None,
            "retired": head.retired if head else None,
            "renamed_to": self._renamed(),
            "dropping": sorted(head.dropping.tables) if head and head.dropping else [],
            "holder": self.holder,
            "corrector": self.corrector,
            "relays": self.relays,
            "lag": {
                name: {"error": lag} if isinstance(lag, str) else dict(lag.facts) for name, lag in self.lag.items()
            },
            "unread": {name: _unread(limit) for name, limit in self.limits.items()},
            "failed_check": head.failed if head else None,
            "lost_epochs": lost_of(head) if head else [],
            "abandoned_epochs": list(head.abandoned) if head else [],
            "totals": self.totals,
            "expected": [one.facts() for one in self.expected],
            "state": {name: asdict(found) for name, found in self.state.items()},
            "excused": {name: {"silent_since": iso(at)} for name, at in self.excused.items()},
            "open_windows": self.windows.facts() if self.windows else None,
            "waiting": self.waiting.facts() if self.waiting else None,
            "freshness": self.fresh.facts() if self.fresh else None,
            "delivery": [sink.facts() for sink in self.delivery],
            "targets": [{**one.facts(), "lag_seconds": self.target_lags[one.target]} for one in self.targets],
            "removed_targets": [one.facts() for one in self.removed],
            "refused": self.refused,
            "kept_output": head.kept_output if head else False,
        }

    def text(self) -> str:
        """For people: the rule's name, and below it a line for each fact."""
        if self.fault is not None:
            return f"{self.rule}\n  error: " + str(self.fault).replace("\n", "\n  ")
        lines = [self.rule, *(f"  {name:<11} {said}" for name, said in self._lines() if said)]
        return "\n".join(lines)

    def _lines(self) -> list[tuple[str, str | None]]:
        to = self._renamed()
        return [
            ("epoch", self._epoch()),
            ("refused", f"the next run stops: {self.refused}" if self.refused else None),
            ("retired", self._retired()),
            ("renamed", f"to {to}: `floodmark rename {self.rule} {to}` continues it" if to else None),
            ("watermark", iso(self.head.watermark, self.zoned) if self.head else None),
            ("stale" if self.fresh and self.fresh.exceeded else "fresh", self.fresh.text() if self.fresh else None),
            ("windows", self.windows.text() if self.windows else None),
            ("waiting", self.waiting.text() if self.waiting else None),
            *(
                (
                    "excused",
                    f"stream {name}: idle since {iso(at)}; the watermark does not wait for it until it has new rows",
                )
                for name, at in self.excused.items()
            ),
            ("open", describe_open(self.head) if self.head else None),
            ("backfilled", self._backfilled()),
            ("corrected", self._corrected()),
            *(("correcting", said) for said in (describe_deferred(self.head) if self.head else ())),
            *(("skipped", f"stream {name}: {count} commits that remove rows") for name, count in self._skipped()),
            ("held by", self.holder),
            ("corrector", self.corrector),
            *(("relay", said) for said in self.relays.values()),
            *(("behind", behind(name, lag)) for name, lag in self.lag.items()),
            *(("warning", limit.text()) for limit in self.limits.values() if limit.warns),
            ("rows", self._totals()),
            *(("expect", one.text()) for one in self.expected),
            ("lost", _shown(lost_of(self.head), " (qos 0)") if self.head else None),
            ("abandoned", _shown(self.head.abandoned, ": taken back") if self.head else None),
            *(
                ("state", f"{name}: {s.rows} rows, {size(s.bytes)} in {s.files} files")
                for name, s in self.state.items()
            ),
            *(("target", self._target(one)) for one in self.targets),
            *(("target", one.removed(self.rule)) for one in self.removed),
            *(("delivery", _delivered(sink, bool(self.head and self.head.kept_output))) for sink in self.delivery),
        ]

    def _epoch(self) -> str:
        if self.head is None or self.newest is None:
            return "has not run yet"
        return f"{self.head.epoch} of generation {self.head.generation}, {self.newest.at} by {self.newest.run}"

    def _renamed(self) -> str | None:
        """The rule's new name, if its home does not have it yet."""
        name = self.head.name if self.head else None
        return None if name == self.rule else name

    def _retired(self) -> str | None:
        if self.head is None or self.head.retired is None:
            return None
        if self.head.dropping is not None:
            return f"{self.head.retired}: it no longer runs; {UNFINISHED}"
        return f"{self.head.retired}: it no longer runs; `floodmark retire {self.rule} --undo` brings it back"

    def _backfilled(self) -> str | None:
        found = _backfills(self.head, self.zoned) if self.head else []
        if not found:
            return None
        last = words({"keys": None, **found[-1]}) or "by key"
        return f"{last} (the last of {len(found)} in this generation)"

    def _corrected(self) -> str | None:
        count = self.head.corrections if self.head else 0
        return f"{count} times in this generation, after rows of a source were removed or changed" if count else None

    def _skipped(self) -> list[tuple[str, int]]:
        return sorted(self.head.skipped.items()) if self.head else []

    def _target(self, one: Undelivered) -> str:
        lag = self.target_lags[one.target]
        return one.text() if lag is None else f"{one.text()}; its newest row is {duration(lag)} old"

    def _totals(self) -> str | None:
        found = [f"{self.totals[name]} {name}" for name in COUNTS if self.totals.get(name)]
        return ", ".join(found) or None


def rule_status(rule: Rule, root: Path) -> RuleStatus:
    """The status of a rule. Does not raise the rule's errors: `fault` holds them."""
    home = Home(root, rule.rule)
    try:
        ledger = ledger_in(home)
        head = ledger.head if ledger else None
        rows = [row for row in ledger.each() if row.kind in ENDS] if ledger else []
        lacking, now = undelivered(rule, home, ledger), datetime.now(UTC)
        return RuleStatus(
            rule.rule,
            head=head,
            newest=newest_end(rows),
            holder=_holder(home.lock),
            corrector=_holder(home.correcting),
            relays=relays_at_work(rule, home),
            lag=lag_by_stream(rule, home, head),
            limits=limits_of(rule, home, head),
            totals=_totals(rows, head),
            expected=expectation_results(rule, counted_in(rows, head.generation) if head else {}),
            state=state_sizes(rule, head, root),
            windows=open_windows(rule, head, root) if head else None,
            waiting=waiting(rule, head, root) if head else None,
            excused=excused(rule, head) if head else {},
            delivery=delivery(
                rule, head.kept_output if head else False, repeating(rule, root), head.generation if head else 1
            ),
            targets=lacking,
            target_lags={one.target: target_lag(rule, head, one, now) for one in lacking},
            removed=undelivered_of_removed(rule, home, ledger),
            refused=stop.said if head and (stop := refused(rule, head)) else None,
            fresh=fresh(rule, head, late_of(rows) if rows and rule.freshness else None, now),
            zoned=zoned(rule, head),
        )
    except FloodmarkError as fault:
        return RuleStatus(rule.rule, fault=fault)
    except Exception as fault:  # a failing disk, a file with an unforeseen edit: it affects this rule alone
        return RuleStatus(rule.rule, fault=RunFailed(f"rule {rule.rule}: {message(fault)}"))


def _holder(lock: Path) -> str | None:
    return None if holder_pid(lock) is None else holder_text(lock)


def repeating(rule: Rule, root: Path) -> list[str]:
    """The streams that are sinks of rules which were reset with --keep-output: rows of these sinks recur."""
    named = {name: stream.rule for name, stream in rule.streams.items() if stream.rule is not None}
    ledgers = {name: LedgerReader.load(Home(root, one).ledger) for name, one in named.items()}
    return [name for name, ledger in ledgers.items() if ledger and ledger.head and ledger.head.kept_output]


def describe_open(head: Head) -> str | None:
    """A message about work that an earlier run left open, and how it continues; None if there is none."""
    if head.seal is not None:
        return f"a {head.seal.why} has not finished; the next run continues it"
    if head.forgetting is not None:
        return "a forget has not finished; no run starts until `floodmark forget` is repeated with the same condition"
    if head.failed is not None:
        return head.failed
    if head.backfill is not None:
        what = "correction" if head.backfill.rewrites else "backfill"
        return f"{what} {head.backfill.number} is open (attempt {head.attempt}); the next run finishes it"
    if head.open is None:
        return None
    if head.abandoning:
        return f"epoch {head.epoch + 1} is being abandoned; the next run finishes that"
    does = "finishes it" if opened_at_qos(head) else "counts it as lost, because its qos is 0"
    return f"epoch {head.epoch + 1} is open (attempt {head.attempt}); the next run {does}"


def describe_deferred(head: Head) -> list[str]:
    """For each stream with rewrites that are to be corrected, a message with their commits."""
    whats = ((name, ", ".join(commits_of(ones))) for name, ones in head.deferred.items())
    return [f"stream {name}: {what}; results do not follow yet" for name, what in whats]


def _unfinished(head: Head) -> str | None:
    """Why a generation ends, or that rows are being forgotten."""
    if head.seal is not None:
        return head.seal.why
    return None if head.forgetting is None else "forget"


def lost_of(head: Head) -> list[int]:
    """The epochs that were lost at qos 0."""
    return [epoch for epoch in head.lost if epoch not in head.abandoned]


def _shown(epochs: Sequence[int], what: str) -> str | None:
    return f"epochs {', '.join(map(str, epochs))}{what}" if epochs else None


def _backfills(head: Head, zone: bool) -> list[dict[str, Any]]:
    found = []
    for number, span in sorted(head.backfills.items()):
        found.append({"backfill": number, **extent(span, zone), "upto": span.upto})
    return found


def excused(rule: Rule, head: Head) -> dict[str, int]:
    """The streams that the watermark does not wait for, and the recorded clock since when they are silent."""
    names = silent(rule, head.heard, head.entry.clock_ms * 1000)
    return {name: at for name, at in head.heard.items() if name in names}


def newest_end(rows: list[Row]) -> Row | None:
    """The newest row that ended an epoch."""
    return next((row for row in reversed(rows) if row.kind in ENDS), None)


def lag_by_stream(rule: Rule, home: Home, head: Head | None) -> dict[str, Backlog | str]:
    """How far each stream is behind its source, or why that is unknown."""
    found: dict[str, Backlog | str] = {}
    lines, log_sums = (head.lines, head.log_sums) if head else ({}, {})
    for name, source in ((name, source) for name, source in sources(rule, home).items() if name in lines):
        line = lines[name]
        try:
            if rule.rebuild and source.is_another(line, log_sums.get(name)):
                found[name] = "another table is there now; the next run reads it from the start"
                continue
            source.check_identity(line, log_sums.get(name))
            found[name] = source.backlog(line, rule.rebuild)
        except FloodmarkError as fault:
            found[name] = str(fault)
    return found


def limits_of(rule: Rule, home: Home, head: Head | None) -> dict[str, Limit]:
    """How long sources keep data that is not read yet. If that is unknown, the lag reports why."""
    try:
        return limits(rule, home, head) if head else {}
    except FloodmarkError:
        return {}


def _unread(limit: Limit) -> dict[str, Any]:
    if limit.in_bytes:
        sizes = {"waited_bytes": limit.waited_us, "kept_bytes": limit.retention_us, "left_bytes": limit.left_us}
        return {**sizes, "setting": limit.setting, "warning": limit.text() if limit.warns else None}
    seconds = {"waited_seconds": limit.waited_us, "kept_seconds": limit.retention_us, "left_seconds": limit.left_us}
    said = {name: us // 1_000_000 for name, us in seconds.items()}
    return {**said, "setting": limit.setting, "warning": limit.text() if limit.warns else None}


def _totals(rows: list[Row], head: Head | None) -> dict[str, int]:
    """Counts over the epochs of the newest generation."""
    found = dict.fromkeys(COUNTS, 0)
    for row in rows:
        if head is None or row.generation != head.generation or row.kind not in ("commit", "lost"):
            continue
        for name, count in counts_of(row.kind, json.loads(row.body)).items():
            found[name] += count
    return found


def state_sizes(rule: Rule, head: Head | None, root: Path) -> dict[str, StateSize]:
    """Sizes of the newest generation's state tables; missing tables are left out."""
    if head is None:
        return {}
    found = {name: state_table(rule, head, root, name) for name in state_tables(rule)}
    return {name: _size(table) for name, table in found.items() if table}


def _size(table: DeltaTable) -> StateSize:
    files = table.get_add_actions(flatten=True)
    rows, sizes = values_of(files["num_records"]), values_of(files["size_bytes"])
    return StateSize(sum(count or 0 for count in rows), sum(sizes), len(sizes))


def behind(name: str, lag: Backlog | str) -> str:
    """For people: how far a stream is behind."""
    if isinstance(lag, str):
        return lag
    return f"{name}: {lag.text}"


def _delivered(sink: SinkDelivery, kept_output: bool) -> str:
    kept = " (since `reset --keep-output`)" if kept_output and sink.delivery != sink.rule else ""
    return f"sink {sink.label}: {sink.delivery}{kept}"
