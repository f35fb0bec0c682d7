"""The report of a demo: what came in, what was killed, and whether the results are right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from demo_targets import TABLE, TASK
from flights import Comparison, compare, rows_of

from floodmark.core.protocol.records.rows import Commit, Counts, Row, total

if TYPE_CHECKING:
    from demo import Demo

RULE = "departure_delays"


def commit(row: Row) -> Commit:
    return Commit.model_validate_json(row.body)


def counts(row: Row) -> Counts:
    return total(commit(row).counts)


@dataclass(frozen=True)
class Audit:
    """What `floodmark audit --deep` says: its verdict, and the lines that it prints."""

    verdict: str
    lines: list[str]

    @classmethod
    def of(cls, demo: Demo) -> Audit:
        verdict = json.loads(demo.airflow.floodmark("audit", RULE, "--deep", "--json").stdout)["verdict"]
        lines = demo.airflow.floodmark("audit", RULE, "--deep").stdout.splitlines()
        return cls(str(verdict), [line for line in lines if line.strip()])


@dataclass
class Report:
    """The facts of a demo, gathered while Airflow still ran; the checks decide the exit code.

    tries: of each run, how the tries of its task ended; relay_tries: the same of the relay that was killed.
    compared: each sink by its name.
    """

    demo: Demo
    rows: list[Row]
    states: list[str | None]
    tries: dict[str, list[str]]
    relay_tries: list[str]
    compared: dict[str, Comparison]
    audit: Audit

    @classmethod
    def of(cls, demo: Demo) -> Report:
        rows, runs, relays = demo.ledger(), demo.tasks("run"), demo.tasks(TASK)
        tries = {str(task["dag_run_id"]): demo.tries(str(task["dag_run_id"]), "run") for task in runs}
        again = max(relays, key=lambda task: int(task["try_number"]), default=None)
        relayed = demo.tries(str(again["dag_run_id"]), TASK) if again else []
        states = [task["state"] for task in (*runs, *relays)]
        return cls(demo, rows, states, tries, relayed, _compared(demo, rows), Audit.of(demo))

    @property
    def commits(self) -> list[Row]:
        return [row for row in self.rows if row.kind == "commit" and row.epoch > 0]

    @property
    def killed_run(self) -> str:
        return self.demo.kill.run.rpartition(".try")[0]

    # --- What must hold

    def checks(self) -> Iterator[tuple[bool, str]]:
        yield from self._about_the_kill()
        yield from self._about_input()
        for name, found in self.compared.items():
            yield found.equal, f"the {found.found} rows in {name} equal DuckDB's {found.expected} from the source file"
        yield from self._about_the_relay()
        yield self.audit.verdict == "proven", f"floodmark audit --deep: {self.audit.verdict.upper()}"

    def _about_the_kill(self) -> Iterator[tuple[bool, str]]:
        kill, tries = self.demo.kill, self.tries.get(self.killed_run, [])
        again = next((row for row in self.commits if row.epoch == kill.epoch), None)
        yield bool(kill.victims), f"the kill left epoch {kill.epoch} open"
        yield (
            again is not None and again.attempt > 1,
            f"epoch {kill.epoch} was committed by a later attempt, from the same offsets",
        )
        yield (
            len(tries) > 1 and tries[0] in ("failed", "up_for_retry") and tries[-1] == "success",
            f"Airflow tried the killed run again: {', then '.join(tries)}",
        )
        yield (
            set(self.states) <= {"success", "skipped", "running", "queued", "scheduled", None}
            and "skipped" in [task["state"] for task in self.demo.tasks("run")],
            "all runs succeeded, one of them without a JVM because there was nothing to do",
        )

    def _about_input(self) -> Iterator[tuple[bool, str]]:
        came_in, epochs = self.demo.came_in, self.demo.source.epochs
        sums = [counts(row) for row in self.commits]
        numbers = [row.epoch for row in self.commits]
        yield numbers == list(range(1, epochs + 1)), f"epochs 1 to {epochs} are committed, each once"
        yield sum(one.read for one in sums) == came_in, f"all {came_in} flights that came in were read, each once"
        yield sum(one.folded for one in sums) == came_in, "all of them were processed: none late, none dead"

    def _about_the_relay(self) -> Iterator[tuple[bool, str]]:
        killed = self.demo.killed_relay
        if killed is None:
            return
        tries = self.relay_tries
        yield killed.had_sent_all, "the relay was killed once its rows were sent, and before its commit"
        yield (
            killed.epoch == self.demo.source.epochs - 1,
            f"PostgreSQL showed nothing of its transaction to others: the position was at epoch {killed.epoch}",
        )
        yield (
            len(tries) > 2 and tries[-1] == "success" and "success" not in tries[:-1],
            f"Airflow tried the relay again: {', then '.join(tries)}",
        )

    # --- What is shown

    def show(self, checks: list[tuple[bool, str]]) -> None:
        print("\nWHAT CAME IN")
        for portion in self.demo.arrived:
            print(f"  portion {portion.number}: {portion.table.num_rows} flights, {portion.span}")
        for line in self.demo.source.facts():
            print(f"  {line}")
        print("\nWHICH EPOCHS WERE COMMITTED")
        for row in self.commits:
            print(f"  epoch {row.epoch}: {epoch_line(row)}")
        print("\nWHICH RUN WAS KILLED, AND RESUMED")
        print(f"  run {self.killed_run}, in the middle of epoch {self.demo.kill.epoch}: {self._victims}")
        print(f"  its tries, by Airflow: {', then '.join(self.tries.get(self.killed_run, ['unknown']))}")
        self._show_relay()
        for name, found in self.compared.items():
            print(f"\nFIRST ROWS OF {name}")
            print(f"  {'hour':<18}{'origin':<8}{'flights':>8}{'mean delay (minutes)':>23}")
            for hour, origin, flights, delay in found.first:
                print(f"  {hour:%Y-%m-%d %H:%M}  {origin:<8}{flights:>8}{delay:>23.2f}")
        print("\nWHAT floodmark audit --deep SAYS")
        for line in self.audit.lines:
            print(f"  {line}")
        print("\nCHECKS")
        for holds, text in checks:
            print(f"  {'yes' if holds else 'NO '}  {text}")

    @property
    def _victims(self) -> str:
        return ", ".join(self.demo.kill.victims)

    def _show_relay(self) -> None:
        killed = self.demo.killed_relay
        if killed is None:
            return
        print("\nWHICH RELAY WAS KILLED, AND RETRIED")
        print(f"  PostgreSQL was killed in the middle of epoch {self.demo.source.epochs}, which the run committed")
        print(f"  then task {TASK}, process {killed.pid}, was killed in its transaction, after the statement")
        print(f"    {' '.join(killed.statement.split())}")
        print(f"  what others saw in PostgreSQL then: {killed.rows} rows, position at epoch {killed.epoch}")
        print(f"  its tries, by Airflow: {', then '.join(self.relay_tries)}")


def _compared(demo: Demo, rows: list[Row]) -> dict[str, Comparison]:
    watermark = commit(rows[-1]).watermark or 0
    found = {f"the Delta table {RULE}": compare(rows_of(demo.airflow.lake / RULE), watermark)}
    if demo.target is not None:
        found[f"the table {TABLE} of PostgreSQL"] = compare(demo.target.rows(), watermark)
    return found


def epoch_line(row: Row) -> str:
    found = commit(row)
    sums = total(found.counts)
    mark = "-" if found.watermark is None else f"{datetime.fromtimestamp(found.watermark / 1e6, UTC):%d %b %H:%M}"
    return (
        f"attempt {row.attempt}, {sums.read} rows read, {sums.folded} folded, {sums.late} late, {sums.dead} dead, "
        f"{found.output_rows} out, watermark {mark}"
    )
