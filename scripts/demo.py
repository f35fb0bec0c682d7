"""The demo: real flights, the real Airflow scheduler, a run killed in the middle of an epoch, and its recovery.

1. Some flights are there. Airflow starts and runs the example rule every minute.
2. More flights arrive. In the middle of an epoch everything that the task started is killed with SIGKILL.
3. Still more arrive. Airflow tries again after seconds; the run finishes the open epoch first.
4. A run finds nothing new and exits without a JVM.
5. The sink's rows are compared with DuckDB's result from the source file. A report shows all of it.

With `--source kafka`, the flights come through a topic of a real broker, which gets more partitions after the kill.
With `--target postgres`, the results also go to a real PostgreSQL. It is killed while the last epoch is folded, which
is committed all the same. Once it is up again, the task that ships the epoch is killed between its rows and its commit.

Exit code 0 only if every check of the report holds. Everything is below `.demo/`, which is recreated each time.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from demo_kills import Kill, kill_run
from demo_report import RULE, Report, counts
from demo_sources import Source, source
from demo_targets import TASK, KilledRelay, Postgres, target
from flights import Portion
from local_airflow import Failed, LocalAirflow, ended_by_signals

from floodmark.core.protocol.records.rows import Row
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / ".demo"
DAG = f"rule.{RULE}"
SCHEDULE = "* * * * *"
RETRY = {"retries": 3, "retry_delay": "3 seconds"}
LIMIT = 900.0  # seconds for the whole demo; about 200 on two quiet cores, 270 with a target
LOOK_EVERY = 0.005  # an epoch continues for more than a second after its intent


@dataclass
class Demo:
    """One run of the demo. `begun` is on the monotonic clock."""

    airflow: LocalAirflow
    begun: float
    source: Source
    target: Postgres | None = None
    arrived: list[Portion] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    killed_relay: KilledRelay | None = None
    known: list[Row] = field(default_factory=list)
    log_entries: int = 0

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text}", flush=True)

    def play(self) -> None:
        first, second, last = self.source.arrivals
        self.let_arrive(first)
        self.say("starting Airflow (API server, scheduler, DAG processor) …")
        self.airflow.prepare()
        self.airflow.start()
        self.airflow.wait_healthy()
        self.say(f"Airflow is healthy; its scheduler runs {DAG} every minute")
        self.wait_until_processed()
        self.kill_in_mid_epoch(second)
        if text := self.source.grow():
            self.say(text)
        self.say("waiting for Airflow's retry, 3 seconds after it sees the failure")
        if self.target is not None:
            self.wait_until_processed()
            self.kill_while_relaying(self.target, last)
        self.let_arrive(last)
        self.wait_until_processed()
        self.say("everything is processed; waiting for the next run, which has nothing to do")
        self.wait(lambda: "skipped" in [task["state"] for task in self.tasks("run")])

    # --- Arriving, waiting

    @property
    def came_in(self) -> int:
        return sum(portion.table.num_rows for portion in self.arrived)

    def let_arrive(self, upto: int) -> None:
        for portion in self.source.portions[len(self.arrived) : upto]:
            self.source.arrive(portion)
            self.arrived.append(portion)
            self.say(f"portion {portion.number} arrives: {portion.table.num_rows} flights, {portion.span}")

    def wait_until_processed(self) -> None:
        """Wait until all flights that came in are committed, and until every task of Airflow has ended well."""
        self.wait(lambda: sum(counts(row).read for row in self.commits()) == self.came_in)
        self.wait(lambda: all(task["state"] in ("success", "skipped", None) for task in self.tasks()))

    def wait(self, holds: Callable[[], bool], every: float = 0.5) -> None:
        while not holds():
            self.airflow.check_alive()
            if self.killed_relay is not None and self.target is not None:
                self.target.go_on()  # the retry comes to the same place
            if time.monotonic() - self.begun > LIMIT:
                raise Failed(f"not done within {LIMIT:.0f} s; see the task's log in {self.airflow.folder / 'logs'}")
            time.sleep(every)

    # --- The ledger

    def ledger(self) -> list[Row]:
        """The ledger's rows. Prints new ones; costs next to nothing while there are none."""
        address = Home(self.airflow.home, RULE).ledger
        entries = len(list((Path(address) / "_delta_log").glob("*.json")))
        if entries > self.log_entries and (ledger := LedgerReader.load(address)):
            for row in ledger.rows[len(self.known) :]:
                if row.epoch:
                    self.say(progress(row))
            self.known, self.log_entries = ledger.rows, entries
        return self.known

    def commits(self) -> list[Row]:
        return [row for row in self.ledger() if row.kind == "commit" and row.epoch > 0]

    def open_intent(self) -> Row | None:
        rows = self.ledger()
        return rows[-1] if rows and rows[-1].kind == "intent" else None

    def is_committed(self, epoch: int) -> bool:
        return epoch in [row.epoch for row in self.commits()]

    # --- Killing

    @property
    def kill(self) -> Kill:
        """The kill that left its epoch open."""
        return self.kills[-1]

    def kill_in_mid_epoch(self, upto: int) -> None:
        """Let flights arrive, and kill all processes of a run while its ledger shows an open epoch; repeat if the
        epoch had just ended."""
        self.let_arrive(upto)
        while not any(not self.is_committed(kill.epoch) for kill in self.kills):
            self.wait(lambda: self.open_intent() is not None, LOOK_EVERY)
            intent = self.open_intent()
            if intent is None:
                continue
            victims = kill_run(self.airflow.processes(), intent.run)
            self.kills.append(Kill(intent.run, intent.epoch, victims))
            self.say(f"KILLED with SIGKILL, in the middle of epoch {intent.epoch}: {', '.join(victims)}")

    def kill_while_relaying(self, target: Postgres, upto: int) -> None:
        """Let the last flights arrive, and kill the target in the middle of their epoch. Once it is up again, kill
        the relay that ships it."""
        last = self.source.epochs
        self.let_arrive(upto)
        self.wait(lambda: self.open_intent() is not None, LOOK_EVERY)
        target.kill()
        self.say(f"KILLED with SIGKILL: PostgreSQL, in the middle of epoch {last}")
        self.wait(lambda: self.is_committed(last))
        self.say("the run went on without its target; waiting for the relay, which fails")
        self.wait(lambda: "up_for_retry" in [task["state"] for task in self.tasks(TASK)])
        target.start()
        self.say("PostgreSQL is up again; Airflow tries the relay again")
        while self.killed_relay is None:
            self.wait(target.waits, LOOK_EVERY)
            self.killed_relay = target.kill_relay(self.airflow.processes())
        self.say(f"KILLED with SIGKILL, between its rows and its commit: the relay, process {self.killed_relay.pid}")

    # --- Airflow

    def tasks(self, name: str | None = None) -> list[dict[str, Any]]:
        """Airflow's task instances of the rule, oldest first; those of the task `name`, or all."""
        found = self.airflow.find("dags", DAG, "dagRuns", "~", "taskInstances") or {"task_instances": []}
        wanted = [task for task in found["task_instances"] if name in (None, task["task_id"])]
        return sorted(wanted, key=lambda task: str(task["dag_run_id"]))

    def tries(self, run: str, task: str) -> list[str]:
        """How each try of a task of an Airflow run ended."""
        found = self.airflow.get("dags", DAG, "dagRuns", run, "taskInstances", task, "tries")
        return [str(one["state"]) for one in sorted(found["task_instances"], key=lambda one: int(one["try_number"]))]


def progress(row: Row) -> str:
    again = f", attempt {row.attempt}" if row.attempt > 1 else ""
    if row.kind == "intent":
        return f"  ledger: epoch {row.epoch} intended{again}"
    return f"  ledger: epoch {row.epoch} committed{again}: {counts(row).read} rows read"


def write_rule(folder: Path, source: Source, target: Postgres | None) -> None:
    """Write the example rule over this source and target, run every minute and retried after seconds."""
    text = source.rule(yaml.safe_load((CHECKOUT / "rules" / f"{RULE}.yaml").read_text()))
    if target is not None:
        text = target.rule(text)
    folder.mkdir(parents=True)
    changed = {**text, "schedule": SCHEDULE, "airflow": {**text["airflow"], **RETRY}}
    (folder / f"{RULE}.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))


def where_next(servers: bool) -> str:
    """`servers`: whether the rule needs some that are stopped now; its ledger and its tables need none."""
    at = FOLDER.relative_to(CHECKOUT)
    look = f"audit {RULE}" if servers else f"status --rules {at}/rules"
    return f"""
WHERE TO LOOK NEXT
  make up                          the same Airflow, to stay, with its UI
  LAKE=$PWD/{at}/lake .venv/bin/floodmark {look} --home {at}/home
  README.md                        what is guaranteed, and how to write your first rule
"""


def run(kind: str, kept_in: str) -> bool:
    """Play the demo with a kind of source and of target, and report. Returns whether every check holds."""
    begun = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    with ExitStack() as servers:
        source_ = servers.enter_context(source(kind, FOLDER))
        target_ = servers.enter_context(target(kept_in, FOLDER, RULE, source_.epochs))
        write_rule(FOLDER / "rules", source_, target_)
        more = {**source_.env, **(target_.env if target_ else {})}
        folders = (FOLDER / "rules", FOLDER / "home", FOLDER / "lake")
        with LocalAirflow(FOLDER / "airflow", *folders, more=more) as airflow:
            demo = Demo(airflow, begun, source_, target_)
            demo.play()
            report = Report.of(demo)
            checks = list(report.checks())
            demo.say("stopping Airflow")
    checks.append((not airflow.processes(), "no process is left behind"))
    report.show(checks)
    print(where_next(bool(more)))
    return all(holds for holds, _ in checks)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__.splitlines()[0])
    parser.add_argument("--source", choices=("lake", "kafka"), default="lake", help="where the flights come from")
    parser.add_argument("--target", choices=("none", "postgres"), default="none", help="where the results go, too")
    wanted = parser.parse_args()
    try:
        with ended_by_signals():
            good = run(wanted.source, wanted.target)
    except Failed as fault:
        print(f"demo: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything it started is stopped", file=sys.stderr)
        return 130
    print("demo: everything above holds" if good else "demo: FAILED, see the checks that say NO")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
