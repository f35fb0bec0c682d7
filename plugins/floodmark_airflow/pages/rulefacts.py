"""The data of the pages: gathered from ledgers and tables by `floodmark.views`, and cached while it is valid."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from floodmark.audit.certificate import audit
from floodmark.connectors.ports.registry import account
from floodmark.core.protocol.records.head import Head
from floodmark.core.rules.rule import Lookup, Rule, Sink, Stream
from floodmark.ledger.delta import tables
from floodmark.ledger.holder import holder_pid, holder_text
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark.views.contents.openwindows import OpenWindows, open_windows
from floodmark.views.contents.quarantine import quarantined
from floodmark.views.contents.statetables import state_tables
from floodmark.views.contents.waiting import Waiting, waiting
from floodmark.views.history import History, read_history
from floodmark.views.ruleplan import plan_of
from floodmark.views.rules.rulefiles import Catalog, RuleFiles
from floodmark.views.status.glance import Glance, glance
from floodmark_airflow.naming import broken_dag_id, dag_id
from floodmark_airflow.pages.cache import Answer, Cache, Request

PATIENCE = 0.6  # seconds that a page waits for facts; later ones are shown as soon as they arrive
ELSEWHERE = 15  # seconds for which facts of tables on no local file system stay valid
SAMPLE = 50  # rows of a late or dead table
FINDINGS = 50  # of an audit
RECENT = 60  # seconds for which an audit counts as current


@dataclass(frozen=True)
class LockHolder:
    """The holder of a rule's lock, as text; None: nobody. `fault`: why the holder can't be determined."""

    by: str | None = None
    fault: str | None = None


@dataclass(frozen=True)
class Pending:
    """Pending results and what they wait for, as in `floodmark status`."""

    windows: OpenWindows | None
    rows: Waiting | None


@dataclass(frozen=True)
class Quarantine:
    """Late or dead rows: their number, and the newest of them."""

    count: int
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Audited:
    """A certificate's facts, with the first of its findings; `at`: time of the audit, in seconds since 1970."""

    facts: dict[str, Any]
    findings: int
    at: float

    @property
    def generation(self) -> int | None:
        """The newest generation of the certificate."""
        return max((one["generation"] for one in self.facts["generations"]), default=None)


class Facts:
    """The facts of all rules in a folder, whose ledgers are in one home. Safe to use from many threads."""

    home: Path  # set once there is a catalog

    def __init__(self, rules: Path, home: Callable[[], Path], env: Mapping[str, str] = os.environ):
        """`home`: raises Refused while the home can't be determined."""
        self._find_home, self._rules = home, rules
        self._files = RuleFiles(rules, env)
        self._reader = ThreadPoolExecutor(1, "floodmark-rules")
        self._read: Future[Catalog] | None = None
        self._reading: Future[Catalog] | None = None
        self._one_at_a_time = threading.Lock()
        self._glances = Cache(2000, 2, "glances")
        self._depths = Cache(40, 2, "depths")  # a history of 10,000 epochs has some MB
        self._audits = Cache(200, 1, "audits")

    def catalog(self, until: float) -> Catalog | None:
        """The rules as their files are now; if that takes too long, as they were at the last reading.

        None during the first reading. Raises Refused.
        """
        with self._one_at_a_time:
            if self._reading is None or self._reading.done():
                self._read, self._reading = self._reading, self._reader.submit(self._catalog)
            read, reading = self._read, self._reading
        if wait([reading], seconds_left(until)).done:
            return reading.result()
        return read.result() if read else None

    def _catalog(self) -> Catalog:
        self.home = self._find_home()
        return self._files.catalog()

    def glances(self, rules: Iterable[Rule], until: float) -> list[Answer]:
        """The Glance of each rule."""
        return self._glances.get(map(self._glance, rules), seconds_left(until))

    def depth(self, rule: Rule, until: float) -> list[Answer]:
        """A rule's Glance, History, Pending and Plan."""
        [seen] = self._glances.get([self._glance(rule)], seconds_left(until))
        return [
            seen,
            *self._depths.get([self._history(rule), self._waits(rule), self._plan(rule)], seconds_left(until)),
        ]

    def history(self, rule: Rule, seconds: float = 10) -> Answer:
        [found] = self._depths.get([self._history(rule)], seconds)
        return found

    def quarantined(self, rule: Rule) -> dict[str, Answer]:
        """The Apart of late and of dead rows."""
        kinds = ("late", "dead")
        return dict(
            zip(kinds, self._depths.get([self._quarantined(rule, kind) for kind in kinds], PATIENCE), strict=True)
        )

    def audited(self, rule: Rule, *, begin: bool) -> tuple[Answer, bool]:
        """The last Audited, and whether it is still current. `begin`: audit again if it isn't.

        A running rule changes during its audit. So a repeated request within RECENT seconds gets the last result.
        """
        wanted = self._audit(rule)
        found, fresh = self._audits.peek(wanted), self._audits.is_fresh(wanted)
        if begin and not fresh and not (found.value and time.time() - found.value.at < RECENT):
            [found] = self._audits.get([wanted], PATIENCE)
        return found, self._audits.is_fresh(wanted)

    def held(self, rule: Rule) -> LockHolder:
        lock = Home(self.home, rule.rule).lock
        try:
            return LockHolder(by=holder_text(lock) if holder_pid(lock) is not None else None)
        except OSError as fault:
            return LockHolder(fault=f"unknown: {lock}: {fault.strerror}")

    def _glance(self, rule: Rule) -> Request:
        sources, home = addresses(rule.streams.values()), Home(self.home, rule.rule)
        named = [stream.rule for stream in rule.streams.values() if stream.rule]
        outboxes = {folder.parent for sink in rule.sinks if (folder := home.outbox(sink))}  # with what relays remember
        above = [Path(Home(self.home, one).ledger) / "_delta_log" for one in named]

        def on(found: Glance | None) -> list[Path]:
            head = found.head if found else None
            own = self._own(rule, head.generation if head else None)
            return [*own, *above, *outboxes, *filter(None, map(log_of, sources))]

        away = not all(map(log_of, sources))
        return Request(("glance", rule.rule), lambda _: glance(rule, self.home), on, (rule, now_and_then(away)), away)

    def _history(self, rule: Rule) -> Request:
        def gather(before: History | None) -> History | None:
            table = tables.open_table(Home(self.home, rule.rule).ledger)
            return None if table is None else read_history(table, before)

        return Request(("history", rule.rule), gather, lambda _: self._own(rule, None))

    def _waits(self, rule: Rule) -> Request:
        def gather(_: object) -> Pending:
            head = self._head(rule)
            if head is None:
                return Pending(None, None)
            return Pending(open_windows(rule, head, self.home), waiting(rule, head, self.home))

        return Request(("waits", rule.rule), gather, lambda _: self._own(rule, None), rule)

    def _plan(self, rule: Rule) -> Request:
        seen = self._glance(rule)  # both depend on the ledger and the sources
        looked_up = addresses(rule.lookups.values()) if rule.rebuild else []  # others don't run for lookups
        away = seen.away or not all(map(log_of, looked_up))
        given = (rule, now_and_then(away or hangs_on_the_clock(rule)))

        def on(_: object) -> list[Path]:
            return [*seen.on(None), *filter(None, map(log_of, looked_up))]

        return Request(("plan", rule.rule), lambda _: plan_of(rule, self._rules, self.home), on, given, away)

    def _quarantined(self, rule: Rule, kind: str) -> Request:
        def gather(_: object) -> Quarantine:
            head = self._head(rule)
            return (
                Quarantine(0, [])
                if head is None
                else Quarantine(*quarantined(kind, rule.rule, head, self.home, SAMPLE))
            )

        return Request((kind, rule.rule), gather, lambda _: self._own(rule, None), rule)

    def _audit(self, rule: Rule) -> Request:
        def gather(_: object) -> Audited | None:
            found = audit(rule.rule, self.home, deep=False, accounts=account)
            if found is None:
                return None
            facts = found.facts()
            return Audited({**facts, "findings": facts["findings"][:FINDINGS]}, len(facts["findings"]), time.time())

        home = Home(self.home, rule.rule)
        written = [home.late, home.dead, *addresses(rule.sinks)]
        places, away = list(filter(None, map(log_of, written))), not all(map(log_of, written))

        def on(found: Audited | None) -> list[Path]:
            return [*self._own(rule, found.generation if found else None), *places]

        return Request(("audit", rule.rule), gather, on, (rule, now_and_then(away)), away)

    def _head(self, rule: Rule) -> Head | None:
        ledger = LedgerReader.load(Home(self.home, rule.rule).ledger)
        return ledger.head if ledger else None

    def _own(self, rule: Rule, generation: int | None) -> list[Path]:
        """The logs of a rule's ledger, and of a generation's state tables."""
        home = Home(self.home, rule.rule)
        state = [home.state(generation, name) for name in state_tables(rule)] if generation is not None else []
        return [Path(address) / "_delta_log" for address in (home.ledger, *state)]


def patience() -> float:
    """Deadline, on the monotonic clock, until which a page that starts now waits for facts."""
    return time.monotonic() + PATIENCE


def seconds_left(until: float) -> float:
    """Seconds until the deadline; never 0, because most facts arrive at once."""
    return max(0.05, until - time.monotonic())


def glance_of(got: Answer) -> Glance:
    """The Glance that was gathered; an empty one if there is none yet."""
    return got.value if isinstance(got.value, Glance) else Glance(fault=got.fault)


def now_and_then(hangs: bool) -> int | None:
    """A number that changes every ELSEWHERE seconds, for facts that depend on more than local folders."""
    return int(time.time() / ELSEWHERE) if hangs else None


def hangs_on_the_clock(rule: Rule) -> bool:
    """Whether the passing of time alone can make a run necessary."""
    return rule.close_idle_after_us is not None or any(one.idle_after_us is not None for one in rule.streams.values())


def addresses(of: Iterable[Stream | Lookup | Sink]) -> list[str]:
    return [one.address for one in of if one.address]


@lru_cache(maxsize=10_000)
def log_of(address: str) -> Path | None:
    """The log of a table on a local file system."""
    parsed = urlparse(address)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path)) / "_delta_log"
    return None if "://" in address else Path(address) / "_delta_log"


def dags_of(catalog: Catalog) -> tuple[dict[str, Rule], dict[str, tuple[str, str]]]:
    """The rules by DAG id; and by DAG id, file and reason of each invalid file."""
    rules = {dag_id(name): rule for name, rule in catalog.rules.items()}
    broken: dict[str, tuple[str, str]] = {}
    for file, reason in catalog.errors.items():
        broken[broken_dag_id(file, {*rules, *broken})] = (file, reason)
    return rules, broken
