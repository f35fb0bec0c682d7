"""A real driver process: it runs many copies of a rule in one Spark application, each in its own thread.

Usage: python -m floodmark.proving.play.worker ORDERS   (a JSON file: `Orders`). It writes the outcome of each copy to a
file of its own at once, because this process is meant to be killed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from floodmark.connectors.relay.shipping import Shipping, shipping
from floodmark.core.rules.rule import Rule
from floodmark.errors import FloodmarkError
from floodmark.ledger.home import Home
from floodmark.proving.faultplan import CORRECTED, REFERENCE, undisturbed
from floodmark.proving.play.inbatch import write_expected
from floodmark.proving.play.orders import REWRITES, SAMPLE, STARTED, Orders
from floodmark.proving.play.rewriting import prepare, rewrite
from floodmark.proving.play.sampling import sample
from floodmark.proving.scratch import Scratch, copy_of, corrected_copy, not_in_batch
from floodmark.redaction import redacted
from floodmark.spark.rule.run import RuleRun
from floodmark.spark.session.faults import explained
from floodmark.spark.session.jvm import jvm_class
from floodmark.spark.session.session import root_session

LOOK_EVERY = 1.0  # seconds between two checks of the parent


class Worker:
    """Carries out `orders`."""

    def __init__(self, orders: Orders):
        self._orders, self._scratch = orders, Scratch(Path(orders.scratch))

    def work(self) -> None:
        begun = time.monotonic()
        names = [self._orders.sampled] if self._orders.sampled else self._orders.cases
        # The sample is taken from all data; the play after it reads little.
        backlog = None if self._orders.sampled else 0
        session = root_session(self._orders.master, [self._scratch.rule(name) for name in names], backlog)
        java = jvm_class(session, "java.lang.System").getProperty("java.version")
        versions = {"spark": session.version, "java": str(java)}
        self._write_outcome(STARTED, {"seconds": time.monotonic() - begun, **versions})
        cases = self._undisturbed(session) if self._orders.sampled else self._orders.cases
        if cases:
            with ThreadPoolExecutor(min(self._orders.threads, len(cases))) as pool:
                list(pool.map(lambda case: self._case(session, case), cases))
        if cases and CORRECTED in self._orders.corrections:
            self._corrected(session)
        session.stop()

    def _undisturbed(self, session: SparkSession) -> Sequence[str]:
        """Take the sample and write the copies without a fault; none if there is no sample."""
        rule = self._scratch.rule(self._orders.sampled)
        try:
            found = sample(session, rule, self._scratch, self._orders.rows)
        except Exception as fault:
            traceback.print_exc()
            self._write_outcome(SAMPLE, _fault(fault))
            return ()
        copies = undisturbed(max(one.rows for one in found), self._orders.replays)
        for name, files in copies.items():
            self._scratch.write_rule(copy_of(rule, name, self._scratch, files))
        self._write_outcome(SAMPLE, {"code": 0, "streams": [one.facts() for one in found]})
        return list(copies)

    def _corrected(self, session: SparkSession) -> None:
        """Prepare the rewrites of inputs, and play one without a fault."""
        rule = self._scratch.rule(self._orders.sampled)
        try:
            found = prepare(session, rule, self._scratch)
            files = self._scratch.rule(REFERENCE).epoch.max_files
            self._scratch.write_rule(corrected_copy(rule, CORRECTED, self._scratch, files))
        except Exception as fault:
            traceback.print_exc()
            self._write_outcome(REWRITES, _fault(fault))
            return
        self._write_outcome(REWRITES, {"code": 0, "streams": [one.facts() for one in found]})
        self._case(session, CORRECTED)

    def _case(self, session: SparkSession, case: str) -> None:
        begun = time.monotonic()
        try:
            rule = self._scratch.rule(case)
            epochs = self._run(session, rule)
            if case in self._orders.resets:
                self._of(session, rule).reset(keep_output=False)
            if case in self._orders.corrections:
                rewrite(rule, self._scratch)
                epochs += self._run(session, rule)
            found: dict[str, Any] = {"code": 0, "epochs": epochs, "batch": self._batch(session, rule)}
        except Exception as fault:
            traceback.print_exc()
            found = _fault(fault)
        self._write_outcome(case, {**found, "seconds": time.monotonic() - begun})

    def _run(self, session: SparkSession, rule: Rule) -> int:
        """Run a copy to its end, with relays beside it. Raises what a relay raises, too."""
        ships = Shipping()
        with shipping(rule, Home(self._scratch.home, rule.rule), ships):
            epochs = len(self._of(session, rule, ships.wake).run().epochs)
        for fault in (one.fault for one in ships.delivered if one.fault is not None):
            raise fault
        return epochs

    def _of(self, session: SparkSession, rule: Rule, committed: Callable[[], None] = lambda: None) -> RuleRun:
        until = self._orders.close_until
        close = datetime.fromisoformat(until) if until else None
        return RuleRun(session, rule, self._scratch.home, f"prove-{self._orders.name}", lambda _: committed(), close)

    def _batch(self, session: SparkSession, rule: Rule) -> dict[str, str] | None:
        """Write the results in batch. Returns None if they are written, or not wanted; else the error."""
        if not self._orders.batch or not_in_batch(rule) is not None:
            return None
        try:
            with explained(rule.rule):
                write_expected(session, rule, self._scratch)
        except FloodmarkError as fault:
            return _fault(fault)
        return None

    def _write_outcome(self, case: str, facts: dict[str, Any]) -> None:
        self._scratch.write_outcome(self._orders.name, case, facts)


def _fault(fault: Exception) -> dict[str, Any]:
    code = fault.exit_code if isinstance(fault, FloodmarkError) else 1
    return {"code": code, "type": type(fault).__name__, "error": redacted(str(fault))}


def _end_with(parent: int) -> None:
    """Exit when the proof has exited: a driver that waits at its point would wait forever."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(LOOK_EVERY)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    Worker(Orders.read(Path(sys.argv[1]))).work()
