"""The names of the DAGs of rules and groups."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

from floodmark.core.rules.environments import prefix

RUN = "run"  # the task that runs rules
OUTCOME = "outcome"  # the task that fails if another has failed
MOST_OF_LABEL = 150  # characters of a target's name in a task's id, of which Airflow takes 250


def dag_id(rule: str) -> str:
    """`rule.NAME`; in an environment `ENVIRONMENT.rule.NAME`."""
    return f"{prefix(os.environ)}rule.{rule}"


def group_id(group: str) -> str:
    """`group.NAME`; in an environment `ENVIRONMENT.group.NAME`."""
    return f"{prefix(os.environ)}group.{group}"


def relay_id(before: str, label: str) -> str:
    """The id of a target's task: its name, with a hash if Airflow takes no such id."""
    plain = re.sub(r"[^\w.-]", "_", label)[:MOST_OF_LABEL]
    return f"{before}.{plain}" if plain == label else f"{before}.{plain}-{sha256(label.encode()).hexdigest()[:6]}"


def upkeep_id() -> str:
    """`upkeep`; in an environment `ENVIRONMENT.upkeep`."""
    return f"{prefix(os.environ)}upkeep"


def broken_dag_id(file: str, taken: Collection[str]) -> str:
    """The DAG id of an invalid file: from its stem, with a hash if the stem is no valid id or is taken."""
    stem = Path(file).stem
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", stem)[:200]
    if plain == stem and dag_id(plain) not in taken:
        return dag_id(plain)
    return dag_id(f"{plain}-{sha256(stem.encode()).hexdigest()[:6]}")
