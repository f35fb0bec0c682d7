"""Shows Airflow the plugin where `plugins/` of a checkout is its plugins folder."""

from floodmark_airflow.plugin import FloodmarkPlugin as FloodmarkPlugin
