"""The names of the DAGs of rules and groups, and of targets in ids of tasks and in metrics."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

from floodmark.core.rules.environments import prefix

RUN = "run"  # the task that runs rules
OUTCOME = "outcome"  # the task that fails if another has failed
MOST_OF_LABEL = 100  # characters of a target's name
MOST_OF_METRIC = 250  # characters of a metric's name: Airflow sends none with more
OF_HASH = 6


def dag_id(rule: str) -> str:
    """`rule.NAME`; in an environment `ENVIRONMENT.rule.NAME`."""
    return f"{prefix(os.environ)}rule.{rule}"


def group_id(group: str) -> str:
    """`group.NAME`; in an environment `ENVIRONMENT.group.NAME`."""
    return f"{prefix(os.environ)}group.{group}"


def relay_id(dag: str, before: str, label: str) -> str:
    """The id of a target's task in a DAG: its name, with a hash if Airflow takes no such id, or sends no metric of it.

    before: what comes before the name.
    """
    plain = re.sub(r"[^\w.-]", "_", label, flags=re.ASCII)[:MOST_OF_LABEL]
    room = MOST_OF_METRIC - len(f"ti.finish.{_in_metric(dag)}.{_in_metric(f'{before}.')}.up_for_reschedule")
    if plain == label and len(_in_metric(plain)) <= room:
        return f"{before}.{plain}"
    while len(_in_metric(plain)) > room - 1 - OF_HASH:
        plain = plain[:-1]
    return f"{before}.{_with_hash(plain, label)}"


def _in_metric(name: str) -> str:
    """The id of a DAG or task in the name of one of Airflow's own metrics."""
    return name.replace(".", "__")


def metric_part(label: str) -> str:
    """The part of a metric's name that is a target's: `__` for a dot, as Airflow has it for its own tasks.

    It has a hash if the name cannot be read from it, because another target could have the same part.
    """
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", _in_metric(label))[:MOST_OF_LABEL]
    return plain if plain.replace("__", ".") == label else _with_hash(plain, label)


def _with_hash(plain: str, whole: str) -> str:
    return f"{plain}-{sha256(whole.encode()).hexdigest()[:OF_HASH]}"


def upkeep_id() -> str:
    """`upkeep`; in an environment `ENVIRONMENT.upkeep`."""
    return f"{prefix(os.environ)}upkeep"


def broken_dag_id(file: str, taken: Collection[str]) -> str:
    """The DAG id of an invalid file: from its stem, with a hash if the stem is no valid id or is taken."""
    stem = Path(file).stem
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", stem)[:200]
    if plain == stem and dag_id(plain) not in taken:
        return dag_id(plain)
    return dag_id(_with_hash(plain, stem))
