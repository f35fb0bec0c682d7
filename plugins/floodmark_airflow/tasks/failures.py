"""The failure callback: a function that the operator of this Airflow names, for all rules.

It is called when a run has failed permanently. A rule file can't name one, as it would run in Airflow's own process.
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
    """The callback after a task's last try; None unless `FLOODMARK_ON_FAILURE=module:function` is set."""
    return notify if os.environ.get(SETTING) else None


def notify(context: Context) -> None:
    """Call the function with Airflow's context. Its module is imported only here, never while a DAG is parsed."""
    module, _, name = os.environ[SETTING].partition(":")
    getattr(import_module(module), name)(context)
