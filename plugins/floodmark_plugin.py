"""What Airflow loads of Floodmark. It has no pages yet; the DAGs come from the DAG files, through floodmark_airflow."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin


class FloodmarkPlugin(AirflowPlugin):
    """Lists Floodmark under Admin → Plugins."""

    name = "floodmark"
