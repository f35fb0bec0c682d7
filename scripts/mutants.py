"""Mutate the modules that decide without Spark, with mutmut, and run the unit tests on each mutant.

    scripts/mutants.py [--children N]     exits 1 if fewer are noticed than required

`tests/faults/mutants.toml` lists the modules and tests, and the equivalent mutants with the reason why no test can
notice them: those do not count. mutmut works in a copy, because it needs the sources in `src/`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests/faults/mutants.toml"
SCRATCH = ROOT / ".cache/mutants"
NOTICED = {1, 3, 24, 36, -24, 152, 255, -11, -9}  # the tests failed, could not be collected, or did not end
COPIED = ("tests", "plugins")
LINKED = (".venv", "docs", "examples", "rules", "scripts", "dags", "README.md", "CHANGELOG.md", "ARCHITECTURE.md")


@dataclass(frozen=True)
class Mutants:
    """`modules`: below jobs/floodmark; `equivalent`: by the mutant's change (see `change_of`), why it is equivalent."""

    modules: list[str]
    tests: list[str]
    least: float
    equivalent: dict[str, str]

    @classmethod
    def read(cls) -> Mutants:
        found = tomllib.loads(DATA.read_text())
        return cls(
            found["modules"],
            found["tests"],
            found["least"],
            {one["change"]: one["why"] for one in found.get("equivalent", [])},
        )


def lay_out(what: Mutants) -> None:
    """Copy the project into the layout that mutmut needs."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    (SCRATCH / "src").mkdir(parents=True)
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "jobs/floodmark", SCRATCH / "src/floodmark", ignore=unneeded)
    for name in COPIED:
        shutil.copytree(ROOT / name, SCRATCH / name, ignore=unneeded)
    mutated = [f"src/floodmark/{module}" for module in what.modules]
    (SCRATCH / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\n"
        'pythonpath = ["src", "plugins", "tests"]\n'
        'addopts = ["-m", "not prove", "-p", "no:cacheprovider"]\n'
        'markers = ["prove: the full crash matrix"]\n'
        "timeout = 900\n"
        "[tool.mutmut]\n"
        'source_paths = ["src"]\n'
        f"only_mutate = {json.dumps(mutated)}\n"
        'also_copy = ["plugins"]\n'
        "use_git_change_detection = false\n"
        "track_dependencies = false\n"
        f"pytest_add_cli_args_test_selection = {json.dumps(what.tests)}\n"
    )


def mutate(children: int) -> dict[str, int | None]:
    """Run mutmut. Returns the exit code of each mutant's tests, by the mutant's name."""
    env = {**os.environ, "TZ": "UTC", "FLOODMARK_SEED": "1"}
    env["PYTHONPATH"] = os.environ.get("FLOODMARK_TOOLS", "")
    command = [str(ROOT / ".venv/bin/python"), "-m", "mutmut", "run", "--max-children", str(children)]
    with (SCRATCH / "log").open("w") as log:
        subprocess.run(command, cwd=SCRATCH, env=env, stdout=log, stderr=subprocess.STDOUT)
    found: dict[str, int | None] = {}
    for path in (SCRATCH / "mutants/src").rglob("*.py.meta"):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    if not found or all(code is None for code in found.values()):
        raise SystemExit(f"mutmut has run no mutant; it said:\n{(SCRATCH / 'log').read_text()[-3000:]}")
    return found


def change_of(name: str) -> str:
    """The change of a mutant, as two lines: `module.function: - before / + after`."""
    env = {**os.environ, "PYTHONPATH": os.environ.get("FLOODMARK_TOOLS", "")}
    shown = subprocess.run(
        [str(ROOT / ".venv/bin/python"), "-m", "mutmut", "show", name],
        cwd=SCRATCH,
        env=env,
        capture_output=True,
        text=True,
    )
    lines = [line for line in shown.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("---", "+++")]
    where = name.rpartition("__mutmut_")[0].replace("floodmark.", "", 1)
    return f"{where}: " + " / ".join(f"{line[0]} {' '.join(line[1:].split())}" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutate the modules that decide without Spark.")
    parser.add_argument("--children", type=int, default=2)
    given = parser.parse_args()
    what, begun = Mutants.read(), time.monotonic()
    lay_out(what)
    ended = mutate(given.children)
    left = {name: change_of(name) for name, code in sorted(ended.items()) if code not in NOTICED}
    alike = {name: change for name, change in left.items() if change in what.equivalent}
    counted = len(ended) - len(alike)
    share = (len(ended) - len(left)) / counted
    print(f"{len(ended)} mutants, {len(alike)} of them equivalent, in {time.monotonic() - begun:.0f} s")
    print(f"{share:.1%} of the others noticed, at least {what.least:.0%} expected; {dict(Counter(ended.values()))}")
    for name in sorted(left.keys() - alike.keys()):
        print(f"  not noticed ({ended[name]}): {left[name]}")
    gone = what.equivalent.keys() - set(left.values())
    for change in sorted(gone):
        print(f"  listed as equivalent, and not found: {change}")
    return int(share < what.least)


if __name__ == "__main__":
    sys.exit(main())
