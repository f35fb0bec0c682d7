"""All of Floodmark's DAGs and the reasons of invalid rule files, for the files that `floodmark airflow init` writes."""

from __future__ import annotations

from airflow.sdk import DAG

from floodmark_airflow.dags.dag_factory import all_dags, load_catalog
from floodmark_airflow.dags.upkeep import build_upkeep
from floodmark_airflow.naming import upkeep_id


def every_dag(wanted: str | None = None) -> list[DAG]:
    """A DAG for each rule file, one for each group, and `upkeep`; or only the DAG `wanted`. Raises Refused if there is
    no folder of rules."""
    upkeep = build_upkeep() if wanted in (None, upkeep_id()) else None
    return [*all_dags(wanted), *([upkeep] if upkeep is not None else [])]


def check_rule_files() -> None:
    """Raise ValueError with the reasons of all rule files that cannot be used: Airflow shows an import's error."""
    errors = load_catalog().errors
    if errors:
        reasons = "\n".join(f"- {file}: {reason}" for file, reason in errors.items())
        raise ValueError(f"rule files that cannot be used:\n{reasons}")
