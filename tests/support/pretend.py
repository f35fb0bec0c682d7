"""Drivers, a ledger and tables in memory: the engine's own decisions, with every interleaving of what they cause.

What is real: the ledger's client and records, the recovery table, the watermark, the check of edits. What stands in for
Spark and Delta is small: a store that takes a ledger row only if it is the next, and tables that take a commit only if
no other of the same app id came since it was begun. A driver is a generator that can be left standing between any two
steps, for good (a crash) or for a while (a process that was stopped).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from floodmark.core.lifecycle.abandoning import Undo, abandoned_row, before_undo, is_of
from floodmark.core.lifecycle.changes import check_edit
from floodmark.core.protocol.entry import Entry
from floodmark.core.protocol.records.following import read_head
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Commit, Counts, Intent, Lost, Row, Seal, Undone, Written, total
from floodmark.core.protocol.recovery import (
    SEAL,
    Gate,
    Step,
    at_the_gate,
    before_write,
    check_tables,
    undo_version,
    version_of,
)
from floodmark.core.protocol.watermark import advance, merge
from floodmark.core.rules.file.rule import WrittenRule
from floodmark.core.rules.rule import Rule
from floodmark.errors import Busy, Fenced, Refused, ReplayDiffers
from floodmark.ledger.ledger import Ledger
from support.flow import TUMBLING
from support.model import Event
from support.oracle import tumbling

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
Steps = Iterator[str]


class MemoryLedger(Ledger):
    """The ledger's client on a list. Like a Delta table, the list takes a row only from who has seen all before it."""

    def __init__(self, store: list[Row], run: str):
        self.address, self.id, self._run, self._store = "memory", "memory", run, store
        self.rows = list(store)
        self.head = read_head(self.rows)

    def _append(self, row: Row) -> None:
        if len(self._store) != row.seq - 1:
            raise Fenced(f"row {row.seq} is there already")
        self._store.append(row)


@dataclass(frozen=True)
class TableCommit:
    app: str
    version: int
    intent: str
    rows: tuple[Any, ...]


@dataclass
class Table:
    """`commits`: since the table was emptied last; `recorded`: the newest version by app id, of all times."""

    commits: list[TableCommit] = field(default_factory=list)
    recorded: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)  # app ids of all commits there ever were

    def undo(self, since: int, app: str, epoch: int) -> bool:
        """The same, of a commit that takes an epoch back."""
        if app in self.log[since:]:
            return False
        self.log.append(app)
        self.recorded[app] = undo_version(epoch)
        self.commits = [one for one in self.commits if one.app != app or not is_of(epoch, one.version)]
        return True

    def commit(self, since: int, one: TableCommit) -> bool:
        """Whether the commit took; `since`: how many commits there were when it was begun."""
        if one.app in self.log[since:]:
            return False
        self.log.append(one.app)
        self.recorded[one.app] = one.version
        if one.intent == "empty":
            self.commits.clear()
        elif one.rows:
            self.commits.append(one)
        return True


@dataclass
class World:
    """What outlives every driver. `files`: the source's commits, in order."""

    qos: int
    files: list[list[Event]] = field(default_factory=list)
    store: list[Row] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    changing: set[str] = field(default_factory=set)

    def table(self, name: str) -> Table:
        return self.tables.setdefault(name, Table())

    def rule(self, sinks: int, files_an_epoch: int, lateness: str = "30 seconds") -> Rule:
        stream = {"delta": "/lake/events", "event_time": "at", "lateness": lateness}
        written = {
            "rule": "counted",
            "streams": {"events": stream},
            "sql": TUMBLING,
            "sinks": [{"delta": f"/lake/out{i}"} for i in range(sinks)],
            "qos": self.qos,
            "epoch": {"max_files": files_an_epoch},
        }
        return WrittenRule.model_validate(written).resolved("hash")


def at(head: Head | Entry) -> int:
    """How many of the source's commits are read."""
    entry = head if isinstance(head, Entry) else head.entry
    return int(entry.offsets[0])


def entry(read: int) -> str:
    return Entry(0, (str(read),)).text()


def micros(event: Event) -> int:
    return int((event["at"] - EPOCH) / MICROSECOND)


class Driver:
    """One run of a rule: the steps of the engine's, in its order."""

    def __init__(self, world: World, rule: Rule, name: str):
        self.world, self.asked, self.name = world, rule, name

    def run(self) -> Steps:
        ledger = MemoryLedger(self.world.store, self.name)
        while True:
            gate = at_the_gate(ledger.head)
            yield gate.name
            if gate is Gate.BEGIN:
                yield from self._alone(self._begin(ledger))
            elif gate is Gate.CHANGE_GENERATION:
                yield from self._alone(self._change(ledger))
            elif gate is Gate.LOSE_EPOCH:
                self._lose(ledger)
            elif gate is Gate.ABANDON:
                yield from self._take_back(ledger)
            elif gate is Gate.FINISH_EPOCH:
                yield from self._epoch(ledger)
            elif not self._has_news(ledger):
                return
            else:
                yield from self._epoch(ledger)

    def abandon(self) -> Steps:
        """Take the open epoch back, if there is one."""
        ledger = MemoryLedger(self.world.store, self.name)
        gate = at_the_gate(ledger.head)
        yield "look"
        if gate in (Gate.FINISH_EPOCH, Gate.LOSE_EPOCH):
            ledger.abandon()
            yield "announced"
        if gate in (Gate.FINISH_EPOCH, Gate.LOSE_EPOCH, Gate.ABANDON):
            yield from self._take_back(ledger)

    def _take_back(self, ledger: MemoryLedger) -> Steps:
        head = ledger.head
        assert head is not None and head.open is not None
        epoch, done = head.epoch + 1, dict[str, Undone]()
        names = self._names(Rule.from_json(head.open.rule), head.generation).items()
        for site, name in ((site, name) for site, name in names if site.startswith("sink")):
            table, app = self.world.table(name), self._app(head, site)
            since = len(table.log)
            yield f"{site}.undoing"
            if before_undo(table.recorded.get(app), epoch) is not Undo.DONE:
                yield f"{site}.looked"
                if not table.undo(since, app, epoch):
                    raise Fenced(f"{site}: another writer came between")
            done[site] = Undone(version=undo_version(epoch), commit=len(table.log))
        yield "abandon.commit"
        ledger.take_back(abandoned_row(head, done))

    def reset(self) -> Steps:
        ledger = MemoryLedger(self.world.store, self.name)
        head = ledger.head
        if head is None:
            return
        yield "reset"
        yield from self._alone(self._reset(ledger, head))

    def _alone(self, steps: Steps) -> Steps:
        """A generation is made by who holds the rule's lock."""
        if self.world.changing:
            raise Busy("another driver makes a generation")
        self.world.changing.add(self.name)
        try:
            yield from steps
        finally:
            self.world.changing.discard(self.name)

    # ------------------------------------------------------------------------------------------- generations

    def _app(self, head: Head | Seal, site: str) -> str:
        number = head.successor if isinstance(head, Seal) else head.generation
        return f"{number}-{head.token}/{site}"

    def _names(self, rule: Rule, generation: int) -> dict[str, str]:
        """Table by site; a state table is of one generation."""
        sinks = {f"sink{i}": f"sink{i}" for i in range(len(rule.sinks))}
        return {"state": f"state{generation}", "late": "late", **sinks}

    def _first(self, rule: Rule) -> Commit:
        names = self._names(rule, 0)
        return Commit(
            entry=entry(0), watermark=None, maxima={}, table_ids={site: site for site in names}, rule=rule.to_json()
        )

    def _begin(self, ledger: MemoryLedger) -> Steps:
        yield "begin"
        ledger.begin(1, f"of {self.name}", self._first(self.asked))

    def _reset(self, ledger: MemoryLedger, head: Head) -> Steps:
        if head.seal is None:
            open_one = head.epoch + 1 if head.open else None
            ledger.seal(
                Seal(
                    why="reset",
                    successor=head.generation + 1,
                    token=f"of {self.name}",
                    keep_output=False,
                    discarded=open_one,
                )
            )
        yield from self._change(ledger)

    def _change(self, ledger: MemoryLedger) -> Steps:
        head = ledger.head
        assert head is not None and head.seal is not None
        added = [f"sink{i}" for i in range(len(head.announced_sinks)) if f"sink{i}" not in head.table_ids]
        for site in [*head.table_ids, *added]:
            yield f"seal {site}"
            yield from self._seal(self.world.table(self._names(head.rule, head.generation).get(site, site)),
                                  self._app(head, site))  # fmt: skip
        for site, name in self._names(self.asked, head.seal.successor).items():
            yield f"empty {site}"
            table, app = self.world.table(name), self._app(head.seal, site)
            if app not in table.recorded:
                table.commit(len(table.log), TableCommit(app, 0, "empty", ()))
        yield "start the new generation"
        ledger.begin(head.seal.successor, head.seal.token, self._first(self.asked))

    def _seal(self, table: Table, app: str) -> Steps:
        if table.recorded.get(app) == SEAL:
            return
        since = len(table.log)
        yield "sealing"
        table.commit(since, TableCommit(app, SEAL, "seal", ()))
        if table.recorded.get(app) != SEAL:
            raise Fenced("the seal did not take")

    # ------------------------------------------------------------------------------------------------ epochs

    def _has_news(self, ledger: MemoryLedger) -> bool:
        head = ledger.head
        assert head is not None
        check_edit(head.rule, self.asked)
        for site in self._names(self.asked, head.generation).keys() - head.table_ids.keys():
            if self.world.table(site).commits and self._app(head, site) not in self.world.table(site).recorded:
                raise Refused(f"{site}: rows from before a reset that did not empty it")
        names = self._names(head.rule, head.generation)
        recorded = {site: self.world.table(names.get(site, site)).recorded.get(self._app(head, site))
                    for site in head.table_ids}  # fmt: skip
        check_tables(head, recorded, head.table_ids, {})  # nothing is rewritten here
        return at(head) < len(self.world.files)

    def _lose(self, ledger: MemoryLedger) -> None:
        head = ledger.head
        assert head is not None and head.open is not None
        intent, counts = head.open, total(head.open.counts)
        ledger.lose(
            Lost(
                intent=intent.digest,
                entry=intent.entry,
                watermark=intent.watermark,
                maxima=intent.maxima,
                heard={},
                counts=intent.counts,
                lost=counts.read,
                lost_epochs=(*head.lost, head.epoch + 1),
                due=(intent.watermark_before, intent.watermark),
            )
        )

    def _epoch(self, ledger: MemoryLedger) -> Steps:
        head = ledger.head
        assert head is not None
        rule = Rule.from_json(head.open.rule) if head.open else self.asked
        end = at(Entry.parse(head.open.entry)) if head.open else self._end(head, rule)
        if head.open:
            yield "intent.before"
            ledger.intend(head.open)
        batch = [event for file in self.world.files[at(head) : end] for event in file]
        limit = head.watermark
        late = [event for event in batch if limit is not None and micros(event) < limit]
        folded = [event for event in batch if event not in late]
        intent = self._intent(head, rule, end, late, folded)
        if head.open and head.open.digest != intent.digest:
            raise ReplayDiffers("read again, the input is another")
        if not head.open:
            yield "intent.before"
            ledger.intend(intent)
        yield "intent.after"
        yield from self._effects(ledger, rule, intent, late, folded)

    def _end(self, head: Head, rule: Rule) -> int:
        assert rule.epoch.max_files is not None
        return min(at(head) + rule.epoch.max_files, len(self.world.files))

    def _intent(self, head: Head, rule: Rule, end: int, late: list[Event], folded: list[Event]) -> Intent:
        maxima = merge(head.maxima, {"events": max(map(micros, folded), default=None)})
        return Intent(
            entry=entry(end),
            watermark_before=head.watermark,
            watermark=advance(head.watermark, maxima, {"events": 30_000_000}, in_snapshot=False),
            maxima=maxima,
            heard={},
            counts={"events": Counts(read=len(late + folded), late=len(late), folded=len(folded))},
            rule=rule.to_json(),
            rule_hash=rule.hash,
            zone="UTC",
            ansi=True,
        )

    def _effects(
        self, ledger: MemoryLedger, rule: Rule, intent: Intent, late: list[Event], folded: list[Event]
    ) -> Steps:
        head = ledger.head
        assert head is not None
        written: dict[str, Written] = {}
        for site, name in self._names(rule, head.generation).items():
            yield f"{site}.before"
            again = rule.qos == 1 and site.startswith("sink")
            if rule.qos == 0 and head.attempt > 1:
                raise AssertionError("an epoch of qos 0 is never tried again")
            rows = {"state": folded, "late": late}.get(site)
            if rows is None:
                rows = self._output(head, intent, folded)
            done = yield from self._write(self.world.table(name), head, site, intent, tuple(map(plain, rows)), again)
            if done is not None:
                written[site] = done
        yield "commit.before"
        sites = self._names(rule, head.generation)
        ledger.commit(
            Commit(
                intent=intent.digest,
                entry=intent.entry,
                watermark=intent.watermark,
                maxima=intent.maxima,
                heard={},
                counts=intent.counts,
                tables=written,
                table_ids={site: site for site in sites if site not in head.table_ids},
                lost_epochs=head.lost,
            )
        )
        yield "commit.after"

    def _output(self, head: Head, intent: Intent, folded: list[Event]) -> list[tuple[Any, ...]]:
        """The windows that become final, over the batch and what state holds of committed epochs."""
        state = self.world.table(f"state{head.generation}")
        counted = set(range(1, head.epoch + 1)) - set(head.lost)
        rows = [dict(row) for one in state.commits if one.version >> 20 in counted for row in one.rows] + folded
        if intent.watermark is None:
            return []
        found = tumbling(rows, EPOCH + intent.watermark * MICROSECOND)
        return [one for one in found if intent.watermark_before is None
                or micros({"at": one[0]}) + 60_000_000 > intent.watermark_before]  # fmt: skip

    def _write(
        self, table: Table, head: Head, site: str, intent: Intent, rows: tuple[Any, ...], again: bool
    ) -> Generator[str, None, Written | None]:
        app, epoch = self._app(head, site), head.epoch + 1
        since = len(table.log)
        yield f"{site}.begun"
        step = before_write(table.recorded.get(app), epoch, head.attempt, again)
        version = version_of(epoch, head.attempt, again)
        if step is Step.COMPARE:
            return self._compared(table, app, version, intent, rows)
        if not rows:
            return None
        yield f"{site}.written"
        if table.commit(since, TableCommit(app, version, intent.digest, rows)):
            return Written(version=version, commit=len(table.log), rows=len(rows))
        if table.recorded.get(app) == version:
            return self._compared(table, app, version, intent, rows)
        raise Fenced(f"{site}: another writer came between")

    def _compared(self, table: Table, app: str, version: int, intent: Intent, rows: tuple[Any, ...]) -> Written:
        (found,) = [one for one in table.commits if (one.app, one.version) == (app, version)]
        if found.intent != intent.digest or sorted(map(repr, found.rows)) != sorted(map(repr, rows)):
            raise ReplayDiffers(f"{app}: computed again, the rows are others")
        return Written(version=version, commit=len(table.log), rows=len(rows))


def plain(row: Any) -> Any:
    """A row that can be kept: events as pairs."""
    return tuple(row.items()) if isinstance(row, dict) else row
