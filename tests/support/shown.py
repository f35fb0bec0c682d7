"""The rules that pages show, as files: a part of a rule is put over a rule that is whole."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from support.snippets import CHECKOUT, Snippet, of_page

# Pages whose commands need a server of another system, which `tests/spark/test_shown_systems.py` starts.
SYSTEMS = ("kafka.md", "own-source.md", "own-target.md", "postgres-source.md", "targets.md")
WHOLE = {
    "rule": "whole",
    "streams": {"flights": {"delta": "${LAKE}/flights", "event_time": "date", "lateness": "30 minutes"}},
    "sql": "SELECT window.start AS hour, origin, order_id, updated_at, status, count(*) AS flights, "
    "avg(delay) AS mean_delay FROM flights GROUP BY window(date, '1 hour'), origin, order_id, updated_at, status",
    "sinks": [{"delta": "${LAKE}/whole"}],
}


def call(folder: Path, command: str, **more: str) -> tuple[int, str]:
    """The exit code of a command in bash, and what it printed. `more`: of its environment."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}  # of other tests
    env = {**own, "LAKE": "lake", "PYTHONPATH": str(CHECKOUT / "jobs"), "FLOODMARK_MASTER": "local[2]", **more}
    env["PATH"] = f"{CHECKOUT / '.venv' / 'bin'}:{env['PATH']}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def without_comment(line: str) -> str:
    return re.sub(r"\s+#.*", "", line)


def write_rule(one: Snippet, folder: Path, **more: Any) -> Path:
    """The rule of a snippet of YAML or SQL, beside the classes and the rules that it may name. `more`: further keys."""
    said = yaml.safe_load(one.text) if one.kind == "yaml" else {"sql": one.text}
    whole = {**(said if "rule" in said else {**WHOLE, **said}), **more}
    _classes_beside(one, folder)
    _rules_beside(one, folder)
    path = folder / f"{whole['rule']}.yaml"
    path.write_text(yaml.safe_dump(whole, sort_keys=False))
    return path


def _rules_beside(one: Snippet, folder: Path) -> None:
    """The rules that a stream of the snippet may name: the checkout's, and those of the page."""
    for rule in (CHECKOUT / "rules").glob("[a-z]*.yaml"):
        shutil.copy(rule, folder)
    for other in of_page(one.page):
        name = re.match(r"rule: (\w+)\n", other.text) if other.kind == "yaml" else None
        if name:
            (folder / f"{name[1]}.yaml").write_text(other.text)


def _classes_beside(one: Snippet, folder: Path) -> None:
    """The modules that the page shows, by the name of their class."""
    for other in of_page(one.page):
        for name in re.findall(r"^class (\w+):", other.text, re.M) if other.kind == "python" else ():
            (folder / f"{name.lower()}s.py").write_text(other.text)
