"""Defines no Airflow DAG. Its import fails while a rule file is invalid, so that Airflow's UI shows the reason."""

from __future__ import annotations

from floodmark_airflow.dags.dag_factory import load_catalog

errors = load_catalog().errors
if errors:
    reasons = "\n".join(f"- {file}: {reason}" for file, reason in errors.items())
    raise ValueError(f"rule files that cannot be used:\n{reasons}")
