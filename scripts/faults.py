"""Plant faults into copies of the engine, one at a time, and check whether the tests notice.

    scripts/faults.py run [--some N] [--only NAME ...] [--unit] [--keep]   plant them; exits 1 if one is not noticed
    scripts/faults.py reach DATA...                                        take recordings of `support.reaching`
    scripts/faults.py page                                                 rewrite the list in the documentation

`tests/faults/planted.toml` has the faults: the file, the original text, its replacement, and what a user would lose.
`tests/faults/reached.json` has the tests that reach each of these lines, the quickest first, and the test that noticed
the fault last: that one runs first.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
FAULTS, REACHED = ROOT / "tests/faults/planted.toml", ROOT / "tests/faults/reached.json"
PAGE, LIST = ROOT / "docs/reference/faults.md", "<!-- list -->"
NOTICED = ROOT / ".cache/faults.json"  # new contents of `REACHED` after a run: `--keep` copies them there
SCRATCH = ROOT / ".cache/faults"
COPIED = ("jobs", "plugins", "tests")
OWN = (*COPIED, ".git", ".cache", ".hypothesis", ".pytest_cache", "home", "lake")  # all else is linked
FETCHED = ("jars", "classes", "kafka", "hadoop-aws")  # below `.cache`: a copy downloads none of it again
UNIT = "tests/unit/"
MOST_TESTS = 60  # that are recorded for each fault
MOST_SECONDS = 600.0  # of one fault's tests
UNENDED, NO_TESTS = 124, 5  # exit codes of `timeout`, and of pytest


@dataclass(frozen=True)
class Fault:
    """One edit. `file`: below jobs/floodmark; `lost`: what a user would lose; `tests`: that reach it in a child
    process, where no recording sees them."""

    name: str
    file: str
    what: str
    by: str
    lost: str
    tests: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return Path("jobs/floodmark") / self.file

    @cached_property
    def text(self) -> str:
        """The file with the fault. Raises ValueError unless its place is found once."""
        before = (ROOT / self.path).read_text()
        if before.count(self.what) != 1:
            raise ValueError(
                f"{self.name}: expected {self.what!r} once in {self.path}, found {before.count(self.what)}"
            )
        after = before.replace(self.what, self.by)
        ast.parse(after)
        return after

    @property
    def lines(self) -> set[int]:
        """The lines of the statement in which it begins; of one with a body, the lines before the body."""
        before = (ROOT / self.path).read_text()
        at = before.index(self.what) + len(self.what) - len(self.what.lstrip())
        line = before.count("\n", 0, at) + 1
        around = [one for one in ast.walk(ast.parse(before)) if isinstance(one, ast.stmt) and _holds(one, line)]
        found = max(around, key=lambda one: one.lineno)
        body = getattr(found, "body", None)
        return set(range(found.lineno, body[0].lineno if body else (found.end_lineno or found.lineno) + 1))


def _holds(one: ast.stmt, line: int) -> bool:
    return one.lineno <= line <= (one.end_lineno or one.lineno)


def planted() -> list[Fault]:
    """The faults, each checked against the present sources. Raises ValueError for those that are not found there."""
    found = [
        Fault(**{**one, "tests": tuple(one.get("tests", ()))}) for one in tomllib.loads(FAULTS.read_text())["fault"]
    ]
    wrong = []
    for fault in found:
        try:
            _ = fault.text
        except (ValueError, SyntaxError) as problem:
            wrong.append(str(problem))
    if wrong:
        raise ValueError("\n".join(wrong))
    return found


# --- which tests reach which fault


def reach(data: Sequence[str]) -> None:
    """Add recordings to `reached.json`; its entries for other tests stay."""
    from coverage import CoverageData

    known = {"noticed": {}, **(json.loads(REACHED.read_text()) if REACHED.exists() else {})}
    seconds: dict[str, float] = dict(known.get("seconds", {}))
    tests: dict[str, set[str]] = defaultdict(set)
    for path in data:
        timed: dict[str, float] = defaultdict(float)
        for case, one in json.loads(Path(f"{path}.seconds").read_text()).items():
            timed[_test_of(case)] += one
        seconds |= {test: round(one, 2) for test, one in timed.items()}
        recorded = CoverageData(path)
        recorded.read()
        for fault in planted():
            contexts = recorded.contexts_by_lineno(str(ROOT / fault.path))
            reaching = {_test_of(case) for line in fault.lines for case in contexts.get(line, ())}
            tests[fault.name] |= reaching & timed.keys()
    for name, before in known.get("tests", {}).items():
        tests[name] |= set(before)
    kept = {name: _quickest(found, seconds) for name, found in sorted(tests.items())}
    used = {test for found in kept.values() for test in found}
    _save({**known, "tests": kept, "seconds": {test: seconds[test] for test in sorted(used)}})


def _test_of(case: str) -> str:
    """The test without its parameters, whose names may change."""
    return case.partition("[")[0]


def _quickest(tests: set[str], seconds: dict[str, float]) -> list[str]:
    """Unit tests first, because other levels need a JVM; then the quicker before the longer."""
    return sorted(tests, key=lambda test: (not test.startswith(UNIT), seconds.get(test, 0.0), test))[:MOST_TESTS]


def _save(reached: dict[str, object]) -> None:
    REACHED.write_text(json.dumps(reached, indent=0, sort_keys=True, ensure_ascii=False) + "\n")


# --- planting


@dataclass(frozen=True)
class Outcome:
    """`by`: the test that noticed the fault; None: none has. `broken`: why pytest reached no verdict."""

    fault: Fault
    by: str | None
    seconds: float
    tests: int
    broken: str = ""


class Copy:
    """A copy of the project in which faults are planted, one after the other."""

    def __init__(self, number: int):
        self._passing: set[tuple[str, str]] = set()
        self.root = SCRATCH / f"copy{number}"
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        for name in COPIED:  # with compiled modules: only changed ones are compiled again
            shutil.copytree(ROOT / name, self.root / name)
        for path in ROOT.iterdir():
            if path.name not in OWN:
                (self.root / path.name).symlink_to(path)
        (self.root / ".cache").mkdir()
        for name in FETCHED:
            if (ROOT / ".cache" / name).exists():
                (self.root / ".cache" / name).symlink_to(ROOT / ".cache" / name)

    def plant(self, fault: Fault, tests: Sequence[str], level: str) -> Outcome:
        """Run the tests with the fault in its place, up to the first that fails."""
        begun, path = time.monotonic(), self.root / fault.path
        sound = path.read_text()
        try:
            self._put(path, fault.text)
            said, code, marks = self._in_turn(tests)
        finally:
            self._put(path, sound)
        spent = time.monotonic() - begun
        if code == 1:
            return self._noticed(Outcome(fault, _first_failed(said, tests), spent, len(tests)), marks)
        if code in (0, NO_TESTS):
            return Outcome(fault, None, spent, len(tests))
        return Outcome(fault, None, spent, len(tests), f"{level}: pytest ended with {code}\n{said[-1500:]}")

    def _in_turn(self, tests: Sequence[str]) -> tuple[str, int, str]:
        """Run the variants that `make test` runs. Of tests that are named one by one, then the long variants."""
        each = all("::" in test for test in tests)
        for marks in ("not prove", "prove") if each else ("not prove",):
            said, code = self._pytest(tests, marks)
            if code not in (0, NO_TESTS):
                break
        return said, code, marks

    def _noticed(self, found: Outcome, marks: str) -> Outcome:
        """The same outcome if the test passes without the fault: a test that always fails notices nothing."""
        assert found.by is not None
        if (found.by, marks) not in self._passing:
            said, code = self._pytest([found.by], marks)
            if code != 0:
                return replace(found, by=None, broken=f"{found.by} fails without the fault, too\n{said[-1500:]}")
            self._passing.add((found.by, marks))
        return found

    def close(self) -> None:
        """Stop the processes of this copy."""
        self._end("_server")
        self._end("_jvm")

    def _end(self, name: str) -> None:
        process = self.__dict__.pop(name, None)
        if process is not None:
            process.stdin.close()
            process.wait()

    def _put(self, path: Path, text: str) -> None:
        """Write a module and remove its compiled file, because Python identifies that only by time and size."""
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()

    def _pytest(self, tests: Sequence[str], marks: str) -> tuple[str, int]:
        asked = ["-x", "-q", "-p", "no:cacheprovider", "-m", marks, *tests]
        if all(test.startswith(UNIT) for test in tests):
            return self._warm(asked)
        command = [self._python, "-m", "pytest", "-p", "support.warm_jvm", *asked]
        env = {**self._env, "FLOODMARK_JVM": self._jvm.told}
        try:
            ended = subprocess.run(
                command, cwd=self.root, env=env, capture_output=True, text=True, timeout=MOST_SECONDS
            )
        except subprocess.TimeoutExpired as fault:  # slow tests decide nothing
            self._end("_jvm")
            return f"it did not end within {MOST_SECONDS:.0f} s\n{_text(fault.stdout)[-1000:]}", UNENDED
        if ended.returncode == 1:  # leftovers of a failed test in a JVM make the next one fail
            self._end("_jvm")
        return ended.stdout + ended.stderr, ended.returncode

    @property
    def _python(self) -> str:
        return f"{self.root}/.venv/bin/python"

    @property
    def _env(self) -> dict[str, str]:
        paths = {"PYTHONPATH": _paths(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        spark = {"PYSPARK_PYTHON": self._python, "PYSPARK_DRIVER_PYTHON": self._python}
        return {**os.environ, **paths, **spark, "FLOODMARK_SEED": "1", "TZ": "UTC"}

    def _warm(self, asked: list[str]) -> tuple[str, int]:
        """Run pytest in a process that has imported others' packages, which takes most of a unit test's time."""
        server = self._server
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(json.dumps(asked) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline() or "3")
        return (self.root / "said").read_text(), code

    @cached_property
    def _jvm(self) -> Jvm:
        """A JVM that runs the checkout's code, without any fault."""
        return Jvm([self._python, "-m", "support.warm_jvm"], ROOT)

    @cached_property
    def _server(self) -> subprocess.Popen[str]:
        command = [self._python, __file__, "serve"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.root, env=self._env, stdin=pipe, stdout=pipe, text=True)


def _paths(root: Path) -> str:
    return f"{root}/jobs:{root}/plugins:{root}/tests"


class Jvm(subprocess.Popen[str]):
    """A JVM for the Spark sessions of several processes, one after the other (`support.warm_jvm`)."""

    def __init__(self, command: Sequence[str], root: Path):
        env = {**os.environ, "PYTHONPATH": _paths(root), "TZ": "UTC"}
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        super().__init__(command, cwd=root, env=env, stdin=pipe, stdout=pipe, stderr=quiet, text=True)
        assert self.stdout is not None
        self.told = self.stdout.readline().strip()
        if not self.told:
            raise RuntimeError(f"{' '.join(command)}: expected a port and a secret, found none: no JVM was started")


WARM = (
    "duckdb hypothesis jsonschema pandas pyarrow pydantic pyspark.sql pytest rich sqlglot typer.testing yaml deltalake"
)


def serve() -> int:
    """For each line of input, a list of arguments, run pytest in a process of its own and print its exit code."""
    for name in WARM.split():
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become_pytest(json.loads(line))
        print(os.waitstatus_to_exitcode(_waited(child)), flush=True)
    return 0


def _become_pytest(asked: list[str]) -> NoReturn:
    import pytest

    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    code = 3
    try:
        code = int(pytest.main(asked))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _waited(child: int) -> int:
    """How the process ended. Unit tests that exceed the limit are treated as endless, which counts as noticed."""
    until = time.monotonic() + MOST_SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return 1 << 8


def _text(said: bytes | str | None) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said or ""


def _first_failed(said: str, tests: Sequence[str]) -> str:
    found = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", said, re.MULTILINE)
    return _test_of(found[1] if found else tests[0])


def asked(fault: Fault, reached: dict[str, dict[str, object]]) -> Iterator[tuple[str, list[str]]]:
    """The fault's tests in the order in which they run: the one that noticed it last, unit tests, others that it names,
    and then recorded ones."""
    tests = [*fault.tests, *(str(test) for test in reached["tests"].get(fault.name, ()))]  # type: ignore[attr-defined]
    last = reached["noticed"].get(fault.name)
    if last is not None:
        yield "who noticed it last", [str(last)]
    unit = [test for test in tests if test.startswith(UNIT) and test != last]
    if unit:
        yield "unit", unit
    others = [test for test in tests if not test.startswith(UNIT) and test != last]
    for level, found in (
        ("named", [test for test in others if test in fault.tests]),
        ("recorded", [test for test in others if test not in fault.tests]),
    ):
        if found:
            yield level, found


def outcome(copy: Copy, fault: Fault, reached: dict[str, dict[str, object]], unit: bool) -> Outcome:
    seconds, tests, found = 0.0, 0, Outcome(fault, None, 0.0, 0)
    for level, asking in asked(fault, reached):
        if unit and not asking[0].startswith(UNIT):
            continue
        found = copy.plant(fault, asking, level)
        seconds, tests = seconds + found.seconds, tests + found.tests
        if found.by is not None:
            break
    return Outcome(fault, found.by, seconds, tests, found.broken)


def run(faults: Sequence[Fault], workers: int, unit: bool) -> int:
    """Plant all faults. Returns 1 if one is not noticed. `unit`: run unit tests only."""
    reached = json.loads(REACHED.read_text())
    begun, copies = time.monotonic(), queue.Queue[Copy]()
    for number in range(workers):
        copies.put(Copy(number))
    made = list(copies.queue)
    found: list[Outcome] = []

    def one(fault: Fault) -> None:
        copy = copies.get()
        try:
            told = outcome(copy, fault, reached, unit)
        finally:
            copies.put(copy)
        found.append(told)
        by = told.by or (f"BROKEN {told.broken}" if told.broken else f"NOT NOTICED by {told.tests} tests")
        print(f"{len(found):3}/{len(faults)} {told.seconds:5.0f} s  {fault.name}: {by}", flush=True)
        if told.by is not None and told.by != reached["noticed"].get(fault.name):
            reached["noticed"][fault.name] = told.by
        reached.setdefault("took", {})[fault.name] = round(told.seconds)
        NOTICED.write_text(json.dumps(reached))

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, faults))
    for copy in made:
        copy.close()
    shutil.rmtree(SCRATCH, ignore_errors=True)
    _tell(found, time.monotonic() - begun)
    return int(any(one.by is None for one in found))


def _tell(found: Sequence[Outcome], seconds: float) -> None:
    survivors = [one for one in found if one.by is None]
    print(f"{len(found) - len(survivors)} of {len(found)} faults noticed, in {seconds:.0f} s")
    for one in survivors:
        print(f"  not noticed: {one.fault.name} ({one.fault.path}): {one.fault.lost}")


def page() -> None:
    """Write the list of faults into the documentation, with the test that notices each, and its seconds."""
    before = PAGE.read_text().partition(LIST)[0]
    PAGE.write_text(f"{before}{LIST}\n\n{_listed(planted(), json.loads(REACHED.read_text()))}\n")


def _listed(faults: Sequence[Fault], reached: dict[str, dict[str, object]]) -> str:
    noticed, seconds = reached["noticed"], reached.get("took", {})
    known = sum(fault.name in noticed for fault in faults)
    total = sum(float(str(one)) for one in seconds.values()) / 60
    lines = [
        f"{len(faults)} faults; {known} were noticed when this was written, by tests of {total:.0f} minutes in all.",
        "",
        "| fault | file | what a user would lose | noticed by | s |",
        "|---|---|---|---|---|",
    ]
    for fault in faults:
        by = str(noticed.get(fault.name, "")).removeprefix("tests/").partition("[")[0].replace("::", " ")
        took = seconds.get(fault.name, "")
        lines.append(
            f"| {fault.name} | `{fault.file}` | {fault.lost} | {f'`{by}`' if by else 'not run yet'} | {took} |"
        )
    return "\n".join(lines)


def some(faults: Sequence[Fault], count: int) -> list[Fault]:
    """`count` faults that a unit test notices, other ones for each commit."""
    noticed = json.loads(REACHED.read_text())["noticed"]
    quick = [fault for fault in faults if str(noticed.get(fault.name, "")).startswith(UNIT)]
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    at = int(said.stdout.strip()[:8] or "0", 16)
    return [quick[(at + i * len(quick) // count) % len(quick)] for i in range(min(count, len(quick)))]


def main() -> int:
    parser = argparse.ArgumentParser(description="Plant faults and see whether the tests notice them.")
    ways = parser.add_subparsers(dest="way", required=True)
    recorded = ways.add_parser("reach")
    recorded.add_argument("data", nargs="+")
    ways.add_parser("page")
    ways.add_parser("serve")
    running = ways.add_parser("run")
    running.add_argument("--some", type=int)
    running.add_argument("--only", nargs="*")
    running.add_argument("--workers", type=int, default=2)
    running.add_argument("--unit", action="store_true", help="ask unit tests only, which takes no JVM")
    running.add_argument("--keep", action="store_true", help="remember who noticed, in tests/faults/reached.json")
    given = parser.parse_args()
    if given.way == "reach":
        reach(given.data)
        return 0
    if given.way == "serve":
        return serve()
    if given.way == "page":
        page()
        return 0
    try:
        faults = planted()
    except ValueError as problem:
        print(f"{problem}\nThe sources have changed: put the fault where it belongs now (tests/faults/planted.toml)")
        return 2
    if given.only:
        faults = [fault for fault in faults if fault.name in given.only]
    if given.some:
        faults = some(faults, given.some)
    code = run(faults, given.workers, given.unit)
    if given.keep:
        _save(json.loads(NOTICED.read_text()))
        page()
    return code


if __name__ == "__main__":
    sys.exit(main())
