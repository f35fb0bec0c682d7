"""Defines no Airflow DAG. Its import fails while a rule file is invalid, so that Airflow's UI shows the reason."""

from __future__ import annotations

from floodmark_airflow.dags.everything import check_rule_files

check_rule_files()
