"""One Airflow DAG for each rule file, `rule.NAME`. An invalid file keeps its DAG, which fails with the reason."""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from floodmark_airflow.dags.dag_factory import all_dags

for dag in all_dags(get_parsing_context().dag_id):
    globals()[dag.dag_id] = dag
