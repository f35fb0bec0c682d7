"""`floodmark airflow`: make an existing Airflow show Floodmark's DAGs, by one file in its DAGs folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.shared import output
from floodmark.errors import Refused

FILE = "floodmark_dags.py"
TEXT = '''"""Airflow DAGs of Floodmark: `rule.NAME` for each rule file, and `upkeep`.

`floodmark airflow init` wrote this file. Rule files are read from FLOODMARK_RULES, or AIRFLOW_HOME/floodmark/rules if
that is not set.
"""

from airflow.sdk import get_parsing_context

from floodmark_airflow.dags.everything import every_dag

for dag in every_dag(get_parsing_context().dag_id):
    globals()[dag.dag_id] = dag
'''
PATIENCE = 120  # seconds for Airflow to say where its DAGs are
Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DAGS]", help="Airflow's DAGs folder. Default: the one that Airflow reports.", show_default=False
    ),
]


def init(dags: Folder = None) -> None:
    """Write the file that makes the DAGs of rules into Airflow's DAGs folder, and a first rule.

    Nothing else of Airflow changes: your DAGs, plugins and settings stay. Rules are in `AIRFLOW_HOME/floodmark/rules`,
    ledgers and state in `AIRFLOW_HOME/floodmark/home`; `FLOODMARK_RULES` and `FLOODMARK_HOME` name other folders.
    A second call changes nothing.

    Example: `floodmark airflow init`, `floodmark airflow init /opt/airflow/dags`
    """
    from floodmark.cli.commands import init as first_rule
    from floodmark.core.application.distribution import airflow_home, place_under_airflow

    _write(_file(dags))
    rules = Path(os.environ.get("FLOODMARK_RULES") or place_under_airflow("rules"))
    if rules.is_dir():
        output.say(f"rules are in {rules}")
    else:
        first_rule.write(rules, str(airflow_home() / "floodmark" / "lake"))
    output.say(
        f"\nAirflow shows the DAGs of the rules in {rules} once it has parsed its DAGs folder again (some minutes, or "
        "run `airflow dags reserialize`). The pages under Browse > Floodmark appear after a restart of its API server."
    )


def remove(dags: Folder = None) -> None:
    """Delete the file that `floodmark airflow init` wrote. Rules, ledgers, state and tables stay.

    Example: `floodmark airflow remove`, then `floodmark jars --remove` and `pip uninstall floodmark`
    """
    file = _file(dags)
    if not file.exists():
        output.say(f"there is no {file}")
    elif file.read_text(encoding="utf-8") != TEXT:
        raise Refused(f"not deleted: {file} has different content from what `init` writes")
    else:
        file.unlink()
        output.say(f"deleted {file}")


def _file(dags: Path | None) -> Path:
    folder = dags or _dags_folder()
    if not folder.is_dir():
        raise Refused(f"expected Airflow's DAGs folder at {folder}, found none: create it, or name another one")
    return folder / FILE


def _dags_folder() -> Path:
    """As Airflow's own command prints it, with its settings. Raises Refused if there is no Airflow here."""
    command = [sys.executable, "-m", "airflow", "config", "get-value", "core", "dags_folder"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)  # noqa: S603
    lines = asked.stdout.strip().splitlines()
    if asked.returncode != 0 or not lines:
        reason = (asked.stderr.strip().splitlines() or ["no output"])[-1]
        raise Refused(
            f"expected the Airflow next to {sys.executable} to print its DAGs folder, found: {reason}. Install "
            "Floodmark into Airflow's own Python environment, or name the folder: `floodmark airflow init DAGS`"
        )
    return Path(lines[-1])


def _write(file: Path) -> None:
    if not file.exists():
        file.write_text(TEXT, encoding="utf-8")
        output.say(f"wrote {file}")
    elif file.read_text(encoding="utf-8") == TEXT:
        output.say(f"{file} already exists")
    else:
        raise Refused(
            f"not overwritten: {file} has different content. Move it away, or delete it if Floodmark wrote it"
        )
