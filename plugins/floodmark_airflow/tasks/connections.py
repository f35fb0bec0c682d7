"""Airflow's connections, for rules that name one: those of its database and secret backends, too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from floodmark.connectors.ports.connections import ask_also
from floodmark.core.application.connections import connection_in, variables


def text_of(name: str) -> str | None:
    """A connection's text, as JSON; None if Airflow has none. Airflow masks its secrets in the task's log from then."""
    try:
        found = BaseHook.get_connection(name)
    except AirflowNotFoundException:
        return None
    said = ("conn_type", "host", "port", "login", "password", "schema", "extra")
    return json.dumps({key: value for key in said if (value := getattr(found, key)) is not None})


def environment(names: Iterable[str]) -> dict[str, str]:
    """Variables by which a job finds the connections of its rules that are not in this process's environment."""
    missing = (name for name in names if connection_in(name, os.environ) is None)
    texts = {variables(name)[0]: text_of(name) for name in missing}
    return {variable: text for variable, text in texts.items() if text is not None}


ask_also("Airflow's connections", text_of)  # for checks without a JVM, which run in Airflow's own processes
