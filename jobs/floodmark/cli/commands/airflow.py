"""`floodmark airflow`: make an existing Airflow show Floodmark's DAGs, by two files in its DAGs folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from floodmark.cli.shared import output
from floodmark.errors import Refused

FILE, ERRORS = "floodmark_dags.py", "floodmark_errors.py"
TEXT = '''"""Airflow DAGs of Floodmark: `rule.NAME` for each rule file, and `upkeep`.

`floodmark airflow init` wrote this file. Rule files are read from FLOODMARK_RULES, or AIRFLOW_HOME/floodmark/rules if
that is not set.
"""

from airflow.sdk import get_parsing_context

from floodmark_airflow.dags.everything import every_dag

for dag in every_dag(get_parsing_context().dag_id):
    globals()[dag.dag_id] = dag
'''
ERRORS_TEXT = '''"""No Airflow DAG. The import fails while a rule file is invalid: Airflow's UI shows the reason.

`floodmark airflow init` wrote this file.
"""

from floodmark_airflow.dags.everything import check_rule_files

check_rule_files()
'''
TEXTS = {FILE: TEXT, ERRORS: ERRORS_TEXT}
PATIENCE = 120  # seconds for Airflow to say where its DAGs are
Folder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DAGS]", help="Airflow's DAGs folder. Default: the one that Airflow reports.", show_default=False
    ),
]


def init(dags: Folder = None) -> None:
    """Write the file that makes the DAGs of rules into Airflow's DAGs folder, one that shows errors, and a first rule.

    Nothing else of Airflow changes: your DAGs, plugins and settings stay. Rules are in `AIRFLOW_HOME/floodmark/rules`,
    ledgers and state in `AIRFLOW_HOME/floodmark/home`; `FLOODMARK_RULES` and `FLOODMARK_HOME` name other folders.
    A second call changes nothing.

    Example: `floodmark airflow init`, `floodmark airflow init /opt/airflow/dags`
    """
    from floodmark.cli.commands import init as first_rule
    from floodmark.core.application.distribution import airflow_home, place_under_airflow

    rules = Path(os.environ.get("FLOODMARK_RULES") or place_under_airflow("rules"))
    with _faults_in_words():
        folder = _folder(dags)
        for name in TEXTS:
            _check_ours(folder / name, "not overwritten", "Move it away, or delete it if Floodmark wrote it")
        for name, text in TEXTS.items():
            _write(folder / name, text)
        if rules.is_dir():
            output.say(f"rules are in {rules}")
        else:
            first_rule.write(rules, str(airflow_home() / "floodmark" / "lake"))
    output.say(
        "\nRestart all of Airflow's processes: each loads Floodmark's plugin when it starts, and without the plugin it "
        f"refuses the DAGs. Airflow shows the DAGs of the rules in {rules} once it has parsed its DAGs folder again "
        "(some minutes, or run `airflow dags reserialize`), and the pages under Browse > Floodmark."
    )


def remove(dags: Folder = None) -> None:
    """Delete the files that `floodmark airflow init` wrote. Rules, ledgers, state and tables stay.

    Example: `floodmark airflow remove`, then `floodmark jars --remove` and `pip uninstall floodmark`
    """
    with _faults_in_words():
        folder = _folder(dags)
        for name in TEXTS:
            _check_ours(folder / name, "not deleted", "`init` did not write it: delete it if nobody needs it")
        for name in TEXTS:
            _remove(folder / name)


@contextmanager
def _faults_in_words() -> Iterator[None]:
    """Refused for what the system does not let this user read or write."""
    try:
        yield
    except BrokenPipeError:  # of the standard output
        raise
    except OSError as fault:
        at = f" at {fault.filename}" if fault.filename else ""
        raise Refused(
            f"expected a place that can be read and written{at}, found: {fault.strerror}. Call this as the user who "
            "owns it, or name another folder"
        ) from fault


def _folder(dags: Path | None) -> Path:
    folder = dags or _dags_folder()
    if not folder.is_dir():
        raise Refused(f"expected Airflow's DAGs folder at {folder}, found none: create it, or name another one")
    return folder


def _dags_folder() -> Path:
    """By Airflow's settings. Raises Refused if there is no Airflow here, or if it does not read its DAGs folder."""
    folder = Path(_setting("core", "dags_folder").splitlines()[-1])
    text = _setting("dag_processor", "dag_bundle_config_list")
    names = _other_bundles(folder, text[text.find("[") :])  # Airflow may print warnings first
    if names is not None:
        raise Refused(
            f"expected Airflow to read its DAGs folder, {folder}, found only other DAG bundles: {', '.join(names)} "
            "(dag_bundle_config_list of [dag_processor]). Name a folder of one of these: `floodmark airflow init DAGS`"
        )
    return folder


def _other_bundles(folder: Path, bundles: str) -> list[str] | None:
    """The names of Airflow's DAG bundles, if none of them reads the folder: Airflow looks for DAGs in the folders below
    a bundle's, too. None also for what Airflow itself refuses."""
    try:
        found = {str(one["name"]): (str(one["classpath"]), one.get("kwargs") or {}) for one in json.loads(bundles)}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    local = [about.get("path") or folder for kind, about in found.values() if kind.endswith(".LocalDagBundle")]
    is_read = any(folder.resolve().is_relative_to(Path(one).resolve()) for one in local)
    return None if is_read or not found else list(found)


def _setting(section: str, key: str) -> str:
    """As Airflow's own command prints it. Raises Refused if there is no Airflow here."""
    command = [sys.executable, "-m", "airflow", "config", "get-value", section, key]
    try:
        asked = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        raise Refused(
            f"expected the Airflow next to {sys.executable} to print its DAGs folder within {PATIENCE} seconds, found "
            "no answer. Name the folder: `floodmark airflow init DAGS`"
        ) from None
    said = asked.stdout.strip()
    if asked.returncode != 0 or not said:
        reason = (asked.stderr.strip().splitlines() or ["no output"])[-1]
        raise Refused(
            f"expected the Airflow next to {sys.executable} to print its DAGs folder, found: {reason}. Install "
            "Floodmark into Airflow's own Python environment, or name the folder: `floodmark airflow init DAGS`"
        )
    return said


def _write(file: Path, text: str) -> None:
    if file.exists():
        output.say(f"{file} already exists")
        return
    unfinished = file.with_suffix(".part")  # Airflow may read a file of Python as soon as it is there
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    output.say(f"wrote {file}")


def _remove(file: Path) -> None:
    if not file.exists():
        output.say(f"there is no {file}")
        return
    file.unlink()
    output.say(f"deleted {file}")


def _check_ours(file: Path, refused: str, way: str) -> None:
    """Raise Refused if something else has the file's place."""
    differs = _differs(file)
    if differs is not None:
        raise Refused(f"{refused}: {file} {differs}. {way}")


def _differs(file: Path) -> str | None:
    """How what is there differs from what `init` writes; None if it does not, or if nothing is there."""
    if not os.path.lexists(file):
        return None
    if not file.is_file():
        return "is no plain file"  # a folder, or a link that leads nowhere
    return None if file.read_bytes() == TEXTS[file.name].encode() else "has different content"
