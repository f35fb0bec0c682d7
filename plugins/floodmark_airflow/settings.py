"""Paths from environment variables, read at each call and never at import."""

from __future__ import annotations

import os
from pathlib import Path

from floodmark.core.rules.environments import home_of

CHECKOUT = Path(__file__).parents[2]
JOBS = CHECKOUT / "jobs"
APPLICATION = JOBS / "run_rule.py"
OPERATE = JOBS / "operate_rule.py"


def rules_folder() -> Path:
    """FLOODMARK_RULES, or `rules/` of the checkout; absolute."""
    return Path(os.environ.get("FLOODMARK_RULES") or CHECKOUT / "rules").absolute()


def home_folder() -> Path:
    """FLOODMARK_HOME, or `./home`, or the environment's own; absolute. Raises RuleInvalid if that has no file."""
    return home_of(rules_folder(), os.environ, Path("home")).absolute()
