"""Airflow's configuration as one JSON document: `python -m floodmark_airflow.facts`, for `floodmark doctor`.

It holds no secret. A fact that can't be determined is `{"error": text}`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.core.application.distribution import checkout

if TYPE_CHECKING:
    from collections.abc import Callable

# Secrets in Airflow's own examples and documentation.
MAKES_DAGS = b"from floodmark_airflow.dags."
URLS = "sqlalchemy.engine.url"
MISREAD = (
    "sql_alchemy_conn of [database] cannot be read as an address: in its password, write @ as %40, : as %3A, / as %2F "
    "and % as %25"
)
PRINTED = ("airflow_jwt_secret", "airflow", "secret", "changeme", "change-me", "your-secret-key")


def main() -> None:
    os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"  # as `airflow connections` does: includes the database's
    with contextlib.redirect_stdout(sys.stderr):  # Airflow's log lines are no part of the document
        found = facts()
    print(json.dumps(found))  # noqa: T201 - the document


def facts() -> dict[str, Any]:
    try:
        from airflow import __version__
    except Exception as fault:  # Airflow reads its settings, and opens its database, when it is imported
        return {"error": _not_started(fault)}

    tellers: dict[str, Callable[[], dict[str, Any]]] = {
        "spark_default": connection,
        "dags_folder": dags_folder,
        "plugins_folder": plugins_folder,
        "jwt_secret": jwt_secret,
        "database": database,
        "spark_submit": spark_submit,
    }
    return {"version": __version__, **{name: _reported(teller) for name, teller in tellers.items()}}


def _reported(teller: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        return teller()
    except Exception as fault:  # any error of Airflow is the answer, and hides no other
        return {"error": _first_line(fault)}


def _first_line(fault: BaseException) -> str:
    """Only the first line: in SQLAlchemy's errors, the others hold statements and parameters.

    Airflow shows what the command of a `*_CMD` setting has printed, which is a secret.
    """
    from floodmark.redaction import redacted

    kind = type(fault).__name__
    if str(fault).startswith("Cannot execute "):
        return f"{kind}: a command that a setting names (*_CMD) failed"
    return redacted(f"{kind}: {fault}".partition("\n")[0])


def _not_started(fault: Exception) -> str:
    """Why Airflow cannot be imported. Where it reads an address, its error quotes what may be part of a password."""
    if any(frame.f_globals.get("__name__") == URLS for frame, _ in traceback.walk_tb(fault.__traceback__)):
        return f"{type(fault).__name__}: {MISREAD}"
    told = isinstance(fault, ImportError) or type(fault).__name__ == "AirflowConfigException"
    return _first_line(fault) if told else type(fault).__name__


def connection() -> dict[str, Any]:
    """Where a task would start Spark."""
    from floodmark_airflow.tasks.submit import CONNECTION, RuleSubmitHook, check_kubernetes, spark_connection

    found = spark_connection()
    if found is not None:
        check_kubernetes(str(found.host or ""))
    resolved = RuleSubmitHook(env_vars={}, conn_id=CONNECTION)._connection
    return {"found": found is not None, "master": resolved["master"], "deploy_mode": resolved["deploy_mode"]}


def dags_folder() -> dict[str, Any]:
    """Whether one of Airflow's DAG bundles has a file that makes the DAGs of rules."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    bundles = DagBundlesManager().get_all_dag_bundles()  # type: ignore[no-untyped-call]
    places = [Path(bundle.path) for bundle in bundles]
    root = checkout()
    return {
        "path": ", ".join(map(str, places)),
        "expected": str(root / "dags") if root else None,
        "ours": any(MAKES_DAGS in file.read_bytes() for place in places for file in place.rglob("*.py")),
    }


def plugins_folder() -> dict[str, Any]:
    """Whether Airflow loads our plugin: that of an installed package, or the plugin file and only that."""
    from airflow.configuration import conf

    root = checkout()
    installed = bool(entry_points(group="airflow.plugins", name="floodmark"))
    place = Path(conf.get("core", "plugins_folder"))
    ignore = place / ".airflowignore"
    return {
        "path": str(place),
        "expected": str(root / "plugins") if root else None,
        "installed": installed,
        "ours": (place / "floodmark_plugin.py").is_file(),
        "ignored": ignore.is_file() and "floodmark_airflow/" in ignore.read_text().split(),
    }


def jwt_secret() -> dict[str, Any]:
    """The secret's source and length; a key pair instead of a secret is as good."""
    from airflow.configuration import conf

    if conf.get("api_auth", "jwt_private_key_path", fallback=None):
        return {"source": "a private key", "length": 4096, "known": False}
    secret = conf.get("api_auth", "jwt_secret", fallback="")
    shown = conf.as_dict(display_source=True, display_sensitive=False)["api_auth"]["jwt_secret"]
    return {"source": shown[1], "length": len(secret), "known": secret in PRINTED}


def database() -> dict[str, Any]:
    """Whether the metadata database answers and has this version's tables."""
    from airflow import settings
    from airflow.utils.db import check_migrations
    from sqlalchemy.engine import make_url

    url = make_url(settings.SQL_ALCHEMY_CONN or "")
    kind = url.get_backend_name()
    if kind != "sqlite" and "@" in f"{url.host}{url.database}":
        return {"kind": kind, "host": None, "fault": MISREAD}
    if kind == "sqlite" and url.database and not Path(url.database).exists():  # a query would create an empty one
        return {"kind": kind, "host": None, "fault": f"there is no file {url.database}"}
    try:
        check_migrations(1)  # type: ignore[no-untyped-call]
    except Exception as fault:
        return {"kind": kind, "host": url.host, "fault": _first_line(fault)}
    return {"kind": kind, "host": url.host, "fault": None}


def spark_submit() -> dict[str, Any]:
    """The spark-submit that a task would start."""
    found, own = shutil.which("spark-submit"), Path(sys.executable).parent
    return {"path": found, "expected": str(own), "ours": found is not None and Path(found).parent.samefile(own)}


if __name__ == "__main__":
    main()
