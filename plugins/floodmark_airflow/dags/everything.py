"""All of Floodmark's DAGs, for one file in Airflow's DAGs folder; `floodmark airflow init` writes that file."""

from __future__ import annotations

from airflow.sdk import DAG

from floodmark_airflow.dags.dag_factory import all_dags
from floodmark_airflow.dags.upkeep import build_upkeep
from floodmark_airflow.naming import upkeep_id


def every_dag(wanted: str | None = None) -> list[DAG]:
    """A DAG for each rule file, one for each group, and `upkeep`; or only the DAG `wanted`. Raises Refused if there is
    no folder of rules."""
    upkeep = build_upkeep() if wanted in (None, upkeep_id()) else None
    return [*all_dags(wanted), *([upkeep] if upkeep is not None else [])]
