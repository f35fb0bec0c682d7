"""The demo: real flights, the real Airflow scheduler, a run killed in the middle of an epoch, and its recovery.

1. Some flights are in the lake. Airflow starts and runs the example rule every minute.
2. More flights arrive. In the middle of an epoch everything that the task started is killed with SIGKILL.
3. Still more arrive. Airflow tries again after seconds; the run finishes the open epoch first.
4. A run finds nothing new and exits without a JVM.
5. The sink's rows are compared with DuckDB's result from the source file. A report shows all of it.

Exit code 0 only if every check of the report holds. Everything is below `.demo/`, which is recreated each time.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import yaml
from flights import Comparison, Portion, arrive, compare, portions
from local_airflow import Failed, LocalAirflow, ended_by_signals

from floodmark.core.protocol.records.rows import Commit, Counts, Row, total
from floodmark.ledger.home import Home
from floodmark.ledger.ledger import LedgerReader
from floodmark_airflow.tasks.processtree import kill_tree

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / ".demo"
RULE = "departure_delays"
DAG = f"rule.{RULE}"
PORTIONS = 5
FIRST, SECOND = 2, 4  # portions in the lake before the first run, and before the killed run
# Below a minute beside the schedule: one portion is one file, so it becomes one epoch.
SETTINGS = {"schedule": "* * * * *", "epoch": {"max_files": 1}}
RETRY = {"retries": 3, "retry_delay": "3 seconds"}
LIMIT = 600.0  # seconds for the whole demo; about 200 on two quiet cores
ENDED = "ended"
LOOK_EVERY = 0.005  # an epoch continues for more than a second after its intent


@dataclass
class Kill:
    """One kill: the run as the ledger names it, the open epoch, and the killed processes by id and name."""

    run: str
    epoch: int
    victims: list[str]


@dataclass
class Demo:
    """One run of the demo. `begun` is on the monotonic clock."""

    airflow: LocalAirflow
    begun: float
    waiting: list[Portion]
    arrived: list[Portion] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    known: list[Row] = field(default_factory=list)
    log_entries: int = 0

    @property
    def lake(self) -> Path:
        return self.airflow.lake

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.begun:5.0f} s] {text}", flush=True)

    def play(self) -> None:
        self.let_arrive(FIRST)
        self.say("starting Airflow (API server, scheduler, DAG processor) …")
        self.airflow.prepare()
        self.airflow.start()
        self.airflow.wait_healthy()
        self.say(f"Airflow is healthy; its scheduler runs {DAG} every minute")
        self.wait_for_epoch(FIRST)
        self.let_arrive(SECOND)
        self.kill_in_mid_epoch()
        self.let_arrive(PORTIONS)
        self.say("waiting for Airflow's retry, 3 seconds after it sees the failure")
        self.wait_for_epoch(PORTIONS)
        self.say("everything is processed; waiting for the next run, which has nothing to do")
        self.wait(lambda: "skipped" in [task["state"] for task in self.tasks()])

    def let_arrive(self, upto: int) -> None:
        while len(self.arrived) < upto:
            portion = self.waiting.pop(0)
            arrive(portion, self.lake / "flights")
            self.arrived.append(portion)
            self.say(f"portion {portion.number} arrives: {portion.table.num_rows} flights, {portion.span}")

    def wait_for_epoch(self, epoch: int) -> None:
        """Wait until the epoch is committed, and until its run has ended well in Airflow."""
        self.wait(lambda: any(row.kind == "commit" and row.epoch == epoch for row in self.ledger()))
        self.wait(lambda: all(task["state"] in ("success", "skipped", None) for task in self.tasks()))

    def wait(self, holds: Callable[[], bool], every: float = 0.5) -> None:
        while not holds():
            self.airflow.check_alive()
            if time.monotonic() - self.begun > LIMIT:
                raise Failed(f"not done within {LIMIT:.0f} s; see the task's log in {self.airflow.folder / 'logs'}")
            time.sleep(every)

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

    def kill_in_mid_epoch(self) -> None:
        """Kill all processes of a run while its ledger shows an open epoch; repeat if the epoch had just ended."""
        while not any(self.is_open(kill.epoch) for kill in self.kills):
            self.wait(lambda: bool(self.open_intent()), LOOK_EVERY)
            intent = self.open_intent()
            if intent is None:
                continue
            victims = kill_run(self.airflow.processes(), intent.run)
            self.kills.append(Kill(intent.run, intent.epoch, victims))
            self.say(f"KILLED with SIGKILL, in the middle of epoch {intent.epoch}: {', '.join(victims)}")

    def open_intent(self) -> Row | None:
        rows = self.ledger()
        return rows[-1] if rows and rows[-1].kind == "intent" and rows[-1].epoch > FIRST else None

    def is_open(self, epoch: int) -> bool:
        return not any(row.kind == "commit" and row.epoch == epoch for row in self.ledger())

    def tasks(self) -> list[dict[str, Any]]:
        """Airflow's task instances of the rule, oldest first."""
        found = self.airflow.find("dags", DAG, "dagRuns", "~", "taskInstances") or {"task_instances": []}
        return sorted(found["task_instances"], key=lambda task: str(task["dag_run_id"]))

    def tries(self, run: str) -> list[str]:
        """How each try of an Airflow run's task ended."""
        found = self.airflow.get("dags", DAG, "dagRuns", run, "taskInstances", "run", "tries")
        return [str(one["state"]) for one in sorted(found["task_instances"], key=lambda one: int(one["try_number"]))]


def progress(row: Row) -> str:
    again = f", attempt {row.attempt}" if row.attempt > 1 else ""
    if row.kind == "intent":
        return f"  ledger: epoch {row.epoch} intended{again}"
    return f"  ledger: epoch {row.epoch} committed{again}: {counts(row).read} rows read"


def commit(row: Row) -> Commit:
    return Commit.model_validate_json(row.body)


def counts(row: Row) -> Counts:
    return total(commit(row).counts)


def kill_run(processes: list[psutil.Process], run: str) -> list[str]:
    """Kill the spark-submit tree of one run, and nothing of Airflow's. Returns names and ids, parents first."""
    ours = {process.pid: process for process in processes if names_run(process, run)}
    roots = [process for process in ours.values() if parent_of(process) not in ours]
    named = {one.pid: kind(one) for root in roots for one in tree(root)}
    killed = [pid for root in roots for pid in kill_tree(root.pid)]
    return [f"{named.get(pid, 'process')} {pid}" for pid in killed if named.get(pid) != ENDED]


def names_run(process: psutil.Process, run: str) -> bool:
    """Whether it was started by spark-submit for this run."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return run in words and any(word.endswith("run_rule.py") for word in words)


def parent_of(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def kind(process: psutil.Process) -> str:
    """The kind of a run's process; ENDED for one that only waits to be reaped, as spark-submit's own shell does."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ENDED
    if Path(words[0]).name == "java":
        return "JVM"
    return "Python worker" if "pyspark.daemon" in words else "driver's Python"


def write_rule(folder: Path) -> None:
    """Write the example rule, run every minute and retried after seconds."""
    text = yaml.safe_load((CHECKOUT / "rules" / f"{RULE}.yaml").read_text())
    folder.mkdir(parents=True)
    changed = {**text, **SETTINGS, "airflow": {**text["airflow"], **RETRY}}
    (folder / f"{RULE}.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))


@dataclass
class Report:
    """The facts of a demo, gathered while Airflow still ran; the checks decide the exit code."""

    demo: Demo
    rows: list[Row]
    tasks: list[dict[str, Any]]
    tries: dict[str, list[str]]
    comparison: Comparison

    @classmethod
    def of(cls, demo: Demo) -> Report:
        rows, tasks = demo.ledger(), demo.tasks()
        tries = {str(task["dag_run_id"]): demo.tries(str(task["dag_run_id"])) for task in tasks}
        watermark = commit(rows[-1]).watermark or 0
        return cls(demo, rows, tasks, tries, compare(demo.lake / RULE, watermark))

    @property
    def commits(self) -> list[Row]:
        return [row for row in self.rows if row.kind == "commit" and row.epoch > 0]

    @property
    def kill(self) -> Kill:
        """The kill that left its epoch open."""
        return self.demo.kills[-1]

    @property
    def killed_run(self) -> str:
        return self.kill.run.rpartition(".try")[0]

    def checks(self) -> Iterator[tuple[bool, str]]:
        came_in = sum(portion.table.num_rows for portion in self.demo.arrived)
        sums = [counts(row) for row in self.commits]
        epochs = [row.epoch for row in self.commits]
        again = next((row for row in self.commits if row.epoch == self.kill.epoch), None)
        tries = self.tries.get(self.killed_run, [])
        states = [task["state"] for task in self.tasks]
        found = self.comparison
        yield bool(self.kill.victims), f"the kill left epoch {self.kill.epoch} open"
        yield (
            again is not None and again.attempt > 1,
            f"epoch {self.kill.epoch} was committed by a later attempt, from the same offsets",
        )
        yield (
            len(tries) > 1 and tries[0] in ("failed", "up_for_retry") and tries[-1] == "success",
            f"Airflow tried the killed run again: {', then '.join(tries)}",
        )
        yield (
            set(states) <= {"success", "skipped", "running", "queued", "scheduled", None} and "skipped" in states,
            "all runs succeeded, one of them without a JVM because there was nothing to do",
        )
        yield epochs == list(range(1, PORTIONS + 1)), f"epochs 1 to {PORTIONS} are committed, each once"
        yield sum(one.read for one in sums) == came_in, f"all {came_in} flights that came in were read, each once"
        yield sum(one.folded for one in sums) == came_in, "all of them were processed: none late, none dead"
        yield found.equal, f"the sink's {found.found} rows equal DuckDB's {found.expected} from the source file"

    def show(self, checks: list[tuple[bool, str]]) -> None:
        print("\nWHAT CAME IN")
        for portion in self.demo.arrived:
            print(f"  portion {portion.number}: {portion.table.num_rows} flights, {portion.span}")
        print("\nWHICH EPOCHS WERE COMMITTED")
        for row in self.commits:
            print(f"  epoch {row.epoch}: {epoch_line(row)}")
        print("\nWHICH RUN WAS KILLED, AND RESUMED")
        print(f"  run {self.killed_run}, in the middle of epoch {self.kill.epoch}: {', '.join(self.kill.victims)}")
        print(f"  its tries, by Airflow: {', then '.join(self.tries.get(self.killed_run, ['unknown']))}")
        print(f"\nFIRST ROWS OF {self.demo.lake.relative_to(CHECKOUT) / RULE}")
        print(f"  {'hour':<18}{'origin':<8}{'flights':>8}{'mean delay (minutes)':>23}")
        for hour, origin, flights, delay in self.comparison.first:
            print(f"  {hour:%Y-%m-%d %H:%M}  {origin:<8}{flights:>8}{delay:>23.2f}")
        print("\nCHECKS")
        for holds, text in checks:
            print(f"  {'yes' if holds else 'NO '}  {text}")


def epoch_line(row: Row) -> str:
    found = commit(row)
    sums = total(found.counts)
    mark = "-" if found.watermark is None else f"{datetime.fromtimestamp(found.watermark / 1e6, UTC):%d %b %H:%M}"
    return (
        f"attempt {row.attempt}, {sums.read} rows read, {sums.folded} folded, {sums.late} late, {sums.dead} dead, "
        f"{found.output_rows} out, watermark {mark}"
    )


def where_next() -> str:
    at = FOLDER.relative_to(CHECKOUT)
    return f"""
WHERE TO LOOK NEXT
  make up                          the same Airflow, to stay, with its UI
  LAKE=$PWD/{at}/lake .venv/bin/floodmark status --rules {at}/rules --home {at}/home
  README.md                        what is guaranteed, and how to write your first rule
"""


def run() -> bool:
    """Play the demo and report. Returns whether every check holds."""
    begun = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    write_rule(FOLDER / "rules")
    with LocalAirflow(FOLDER / "airflow", FOLDER / "rules", FOLDER / "home", FOLDER / "lake") as airflow:
        demo = Demo(airflow, begun, portions(PORTIONS))
        demo.play()
        report = Report.of(demo)
        demo.say("stopping Airflow")
    checks = [*report.checks(), (not airflow.processes(), "no process is left behind")]
    report.show(checks)
    print(where_next())
    return all(holds for holds, _ in checks)


def main() -> int:
    try:
        with ended_by_signals():
            good = run()
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
