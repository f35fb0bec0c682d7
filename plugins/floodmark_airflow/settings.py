"""Paths from environment variables, read at each call and never at import."""

from __future__ import annotations

import os
from pathlib import Path

from floodmark.core.application.distribution import SOURCES, place_under_airflow
from floodmark.core.rules.environments import home_of

JOBS = SOURCES
APPLICATION = JOBS / "floodmark" / "cli" / "applications" / "run_rule.py"
OPERATE = APPLICATION.with_name("operate_rule.py")


def rules_folder() -> Path:
    """FLOODMARK_RULES, or `rules/` of the checkout, or AIRFLOW_HOME/floodmark/rules; absolute."""
    return Path(os.environ.get("FLOODMARK_RULES") or place_under_airflow("rules")).absolute()


def home_folder() -> Path:
    """FLOODMARK_HOME, or the environment's own, or the default place; absolute. Raises RuleInvalid if the environment
    has no file."""
    return home_of(rules_folder(), os.environ, place_under_airflow("home")).absolute()
