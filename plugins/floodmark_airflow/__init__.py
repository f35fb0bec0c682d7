"""The Airflow side of Floodmark: a DAG for each rule, and the operator that runs it. It never imports Spark."""
