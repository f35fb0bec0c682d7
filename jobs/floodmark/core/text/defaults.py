"""Reads `_defaults.yaml`: settings that apply to all rules of a folder unless a rule's own file overrides them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from floodmark.core.text.problems import Problems, Source, read_source
from floodmark.errors import RuleInvalid

FILES = ("_defaults.yaml", "_defaults.yml")
# Keys that only a rule's own file may have: its streams, what it computes from them, and its sinks.
OF_RULES = ("rule", "description", "streams", "lookups", "sql", "process", "key", "sinks")


def read_defaults(folder: Path) -> Source | None:
    """The defaults of a folder of rules; None if it has none. Raises RuleInvalid."""
    there = [folder / name for name in FILES if os.path.lexists(folder / name)]  # a link to nowhere, too
    if not there:
        return None
    if len(there) > 1:
        raise RuleInvalid(f"{there[1]}: expected one file of defaults, found {there[0].name}, too")
    found = read_source(there[0], "settings of all rules (`timezone: ...`, `airflow: ...`)")
    problems = Problems(found)
    for key in found.tree.value:
        if key in OF_RULES:
            problems.add((key,), "belongs in each rule; expected settings such as qos, timezone, spark or airflow")
    problems.raise_any()
    return found


def merged(own: Any, defaults: Any) -> Any:
    """A rule's settings over the defaults: mappings are merged key by key, other values replaced; a null is kept."""
    if not isinstance(own, dict) or not isinstance(defaults, dict):
        return own
    return {**defaults, **{key: merged(value, defaults.get(key)) for key, value in own.items()}}
