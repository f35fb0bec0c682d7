"""Who is told when a run has failed for good: a function that whoever runs this Airflow names, for all rules alike.

A rule file cannot name one: it would run in Airflow's own process.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

SETTING = "FLOODMARK_ON_FAILURE"


def on_failure() -> Callable[[Context], None] | None:
    """The callback after a task's last try; None where `FLOODMARK_ON_FAILURE=module:function` is not set."""
    return tell if os.environ.get(SETTING) else None


def tell(context: Context) -> None:
    """Call the function with Airflow's context. Parsing a DAG imports nothing of it."""
    module, _, name = os.environ[SETTING].partition(":")
    getattr(import_module(module), name)(context)
