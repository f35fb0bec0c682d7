"""Checks, from facts that Airflow reports, whether it finds rules and plugin, and starts Spark as it should."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from floodmark.core.health.checks import Check, failed, ok, warning

MASTERS = re.compile(r"local(\[(\*|\d+)(,\d+)?\])?|spark://[^/:]+:\d+(,[^/:]+:\d+)*|yarn|k8s://.+")
SPARK_DEFAULT = """AIRFLOW_CONN_SPARK_DEFAULT='{"conn_type": "spark", "host": "local[*]"}'"""
SHORT = 32  # minimum characters of a secret that signs tokens
NOT_CONFIGURED = warning(
    "Airflow",
    "the settings of Airflow's processes (AIRFLOW_HOME, AIRFLOW__…)",
    "none in this environment: Airflow was not checked",
    "run `floodmark doctor` in the scheduler's environment",
)


def airflow(facts: Mapping[str, Any]) -> list[Check]:
    """The checks of `facts`, as `floodmark_airflow.facts` returns them; a fact that is missing is `{"error": text}`."""
    if "error" in facts:
        fix = "check that `airflow info` works in this environment"
        return [failed("Airflow", "an Airflow that responds", facts["error"], fix)]
    decided: dict[str, Callable[[Any], Check]] = {
        "spark_default": _connection,
        "dags_folder": _dags,
        "plugins_folder": _plugins,
        "jwt_secret": _jwt,
        "database": _database,
        "spark_submit": _spark_submit,
    }
    return [ok("Airflow", facts["version"]), *(_decided(name, facts[name], decide) for name, decide in decided.items())]


def last_words(code: int, text: str) -> str:
    """How a process of Airflow ended, from its code and what it wrote. The text of an error may hold a secret: only
    its type is told, and which module is missing."""
    last = text.strip().rpartition("\n")[2]
    missing = re.search(r"No module named [\w.']+$", last)
    kind = re.match(r"[\w.]+(?=: |$)", last)
    return missing[0] if missing else f"{f'{kind[0]}, ' if kind else ''}exit code {code}"


def _decided(name: str, fact: Mapping[str, Any], decide: Callable[[Any], Check]) -> Check:
    if "error" in fact:
        return failed(name, "an answer from Airflow", fact["error"], "see Airflow's log")
    return decide(fact)


def _connection(fact: Mapping[str, Any]) -> Check:
    name = "spark_default"
    master, mode = fact["master"], fact["deploy_mode"] or "client"
    if not fact["found"]:
        return ok(name, f"none: tasks run Spark on their own machine, {master}")
    if not MASTERS.fullmatch(master):
        forms = "local[*], spark://HOST:PORT, yarn or k8s://…"
        return failed(name, forms, master, f"write the connection as JSON: {SPARK_DEFAULT}")
    if mode != "client":
        said = f"deploy-mode {mode} on {master}"
        return failed(name, "client mode: the task is the driver's parent", said, "remove deploy-mode from its extra")
    return ok(name, master)


def _dags(fact: Mapping[str, Any]) -> Check:
    if fact["ours"]:
        return ok("dags_folder", fact["path"])
    if fact["expected"] is None:
        return failed(
            "dags_folder", "a file that creates the rules' DAGs", fact["path"], "run `floodmark airflow init`"
        )
    fix = f"set AIRFLOW__CORE__DAGS_FOLDER={fact['expected']}, or add that folder as a bundle in [dag_processor]"
    return failed("dags_folder", fact["expected"], fact["path"], fix)


def _plugins(fact: Mapping[str, Any]) -> Check:
    if fact["installed"]:
        return ok("plugins", "Floodmark's plugin, installed with its package")
    if not fact["ours"]:
        fix = f"set AIRFLOW__CORE__PLUGINS_FOLDER={fact['expected']}"
        return failed("plugins_folder", fact["expected"], fact["path"], fix)
    if not fact["ignored"]:
        expected = (
            "the line `floodmark_airflow/` in its .airflowignore; otherwise, Airflow loads each module as a plugin"
        )
        return failed("plugins_folder", expected, f"none in {fact['path']}", "add the line")
    return ok("plugins_folder", fact["path"])


def _jwt(fact: Mapping[str, Any]) -> Check:
    name = "jwt_secret"
    fix = "set AIRFLOW__API_AUTH__JWT_SECRET to one random string, the same for all of Airflow's processes"
    if fact["source"] == "default":
        return failed(name, "one secret for all processes", "not set: every process generates its own", fix)
    if fact["known"]:
        return failed(name, "a secret", "a value from Airflow's own examples", fix)
    if fact["length"] < SHORT:
        return warning(name, f"at least {SHORT} characters", f"{fact['length']} characters", fix)
    return ok(name, f"{fact['length']} characters, from {fact['source']}")


def _database(fact: Mapping[str, Any]) -> Check:
    if fact["fault"]:
        fix = "check that it runs, and that `airflow db migrate` was run"
        return failed(
            "metadata database", "a database that responds, with this Airflow version's schema", fact["fault"], fix
        )
    if fact["kind"] == "sqlite":
        return ok("metadata database", "sqlite: for one machine")
    return ok("metadata database", f"{fact['kind']} at {fact['host']}")


def _spark_submit(fact: Mapping[str, Any]) -> Check:
    expected = f"the spark-submit of {fact['expected']} first on PATH"
    if fact["path"] is None:
        return failed("spark-submit", expected, "none on PATH", f"put {fact['expected']} on PATH")
    if not fact["ours"]:
        return warning("spark-submit", expected, fact["path"], f"put {fact['expected']} first on PATH")
    return ok("spark-submit", fact["path"])
