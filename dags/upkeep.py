"""One Airflow DAG, `upkeep`, with a task for each rule: joins small files, and removes unneeded ones."""

from __future__ import annotations

from floodmark_airflow.dags.upkeep import build_upkeep

found = build_upkeep()
if found is not None:
    globals()[found.dag_id] = found
