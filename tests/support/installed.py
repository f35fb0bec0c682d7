"""Floodmark's wheel, and Python environments with an Airflow that it is installed into."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from floodmark.core.health.machine import locked

CHECKOUT = Path(__file__).parents[2]
LOCKED = locked((CHECKOUT / "requirements.txt").read_text())
DAG = "from airflow.sdk import DAG\n\nwith DAG('mine', schedule=None):\n    pass\n"
PLUGIN = "from airflow.plugins_manager import AirflowPlugin\n\n\nclass Mine(AirflowPlugin):\n    name = 'mine'\n"


def built(root: Path, to: Path) -> Path:
    """The wheel of the checkout at `root`, in the folder `to`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(to)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (wheel,) = to.glob("*.whl")
    return wheel


class Installed:
    """A Python environment with Airflow, in a folder of its own; the machine's settings of Airflow do not reach it."""

    def __init__(self, root: Path, python: str):
        self.root, self.bin = root, root / "env" / "bin"
        root.mkdir(parents=True, exist_ok=True)
        subprocess.run([python, "-m", "venv", str(root / "env")], check=True)
        own = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "FLOODMARK", "PY"))}
        self.env = {**own, "AIRFLOW_HOME": str(root / "airflow"), "PATH": f"{self.bin}:/usr/bin:/bin", "TZ": "UTC"}
        self.env |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        for name, text in (("dags/mine.py", DAG), ("plugins/mine.py", PLUGIN)):
            file = root / "airflow" / name
            file.parent.mkdir(parents=True)
            file.write_text(text)

    def call(self, *words: str) -> str:
        """What a program of this environment prints. Raises AssertionError with its last lines if it fails."""
        done = subprocess.run([self.bin / words[0], *words[1:]], env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def files(self) -> set[str]:
        """What is in the environment and in Airflow's folders of DAGs and plugins, without compiled files."""
        roots = (self.root / "env", self.root / "airflow" / "dags", self.root / "airflow" / "plugins")
        found = (path for root in roots for path in root.rglob("*") if "__pycache__" not in path.parts)
        return {str(path) for path in found}
