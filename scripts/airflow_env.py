"""The settings of the embedded Airflow: one machine, SQLite, LocalExecutor, everything below one folder.

Only names and values; nothing here imports Airflow, which reads its settings when it is imported.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
BIN = CHECKOUT / ".venv" / "bin"
# Settings of another Airflow or Spark that the shell may carry must not reach this one.
FOREIGN = ("AIRFLOW_", "AIRFLOW__", "SPARK_HOME", "SPARK_CONF_DIR")


@dataclass(frozen=True)
class Ports:
    """Where the embedded Airflow listens, on this machine only."""

    api: int = 8080
    worker_logs: int = 8793
    trigger_logs: int = 8794


def environment(folder: Path, rules: Path, home: Path, lake: Path, ports: Ports, secret: str) -> dict[str, str]:
    """The whole environment of an Airflow that lives in `folder`. All paths are absolute."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    python = str(BIN / "python")
    return {
        **kept,
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
        "PYTHONPATH": _python_path(),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "TZ": "UTC",
        "FLOODMARK_RULES": str(rules),
        "FLOODMARK_HOME": str(home),
        "LAKE": str(lake),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        **_airflow(folder, ports, secret),
    }


def _python_path() -> str:
    """Our paths first, then the shell's, for modules that settings name. Another Spark's Python is left out."""
    ours = [str(CHECKOUT / "jobs"), str(CHECKOUT / "plugins")]
    named = [Path(place).absolute() for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    others = [str(place) for place in named if not ((place / "pyspark").exists() or place.name.startswith("py4j-"))]
    return os.pathsep.join(dict.fromkeys([*ours, *others]))


def _airflow(folder: Path, ports: Ports, secret: str) -> dict[str, str]:
    """Airflow's own settings. `secret` signs its tokens: whoever knows it may do everything."""
    return {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",  # as many idle workers are forked at once
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{ports.api}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords_file(folder)),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(ports.api),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{ports.api}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": secret,
        "AIRFLOW__API_AUTH__JWT_SECRET": secret,
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(ports.worker_logs),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports.trigger_logs),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    }


def passwords_file(folder: Path) -> Path:
    return folder / "passwords.json"
