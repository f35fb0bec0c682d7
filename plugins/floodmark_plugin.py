"""The Airflow plugin: registers the pages in the UI and the priority strategy of runs.

The DAGs come from the DAG files, through floodmark_airflow.
"""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from floodmark_airflow.pages.web import Web
from floodmark_airflow.tasks.priority import LiveFirst

PREFIX = "floodmark"  # of the pages' addresses; those of external views are relative to Airflow's


class FloodmarkPlugin(AirflowPlugin):
    """A page of all rules in the navigation, and a tab on each DAG."""

    name = "floodmark"
    priority_weight_strategies: ClassVar[list[Any]] = [LiveFirst]
    fastapi_apps: ClassVar[list[Any]] = [{"app": Web(), "url_prefix": f"/{PREFIX}", "name": "Floodmark"}]
    external_views: ClassVar[list[Any]] = [
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
