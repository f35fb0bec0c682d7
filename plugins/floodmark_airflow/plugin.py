"""The Airflow plugin: registers the pages in the UI and the priority strategy of runs.

The DAGs come from a file in Airflow's DAGs folder. An installed package names this module by an entry point; in a
checkout, Airflow finds it through `plugins/floodmark_plugin.py`.
"""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from floodmark_airflow.pages.web import Web
from floodmark_airflow.tasks import connections as _connections  # noqa: F401 - so that pages find them
from floodmark_airflow.tasks.priority import LiveFirst

PREFIX = "floodmark"  # of the pages' addresses; those of external views are relative to Airflow's


class FloodmarkPlugin(AirflowPlugin):
    """A page of all rules in the navigation, and a tab on each DAG."""

    name = "floodmark"
    priority_weight_strategies: list[Any] = [LiveFirst]
    fastapi_apps: list[Any] = [{"app": Web(), "url_prefix": f"/{PREFIX}", "name": "Floodmark"}]
    external_views: list[Any] = [
        {
            "name": "Floodmark",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "floodmark",
        },
        {
            "name": "Floodmark",
            "href": f"{PREFIX}/dags/{{DAG_ID}}",
            "destination": "dag",
            "url_route": "floodmark-rule",
        },
    ]
