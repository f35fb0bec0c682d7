"""Defines no Airflow DAG: it fails to import while a rule file cannot be used, so that the reason shows in the UI."""

from __future__ import annotations

from floodmark_airflow.dags.dag_factory import load_catalog

errors = load_catalog().errors
if errors:
    reasons = "\n".join(f"- {file}: {reason}" for file, reason in errors.items())
    raise ValueError(f"rule files that cannot be used:\n{reasons}")
