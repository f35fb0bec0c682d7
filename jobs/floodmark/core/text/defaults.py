"""`_defaults.yaml`: settings that all rules of a folder have, unless their own files say otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from floodmark.core.text.problems import Problems, Source, read_source
from floodmark.errors import RuleInvalid

FILES = ("_defaults.yaml", "_defaults.yml")
# What a rule is, its own file says: its streams, what it makes of them, and where to.
OF_RULES = ("rule", "description", "streams", "lookups", "sql", "process", "key", "sinks")


def read_defaults(folder: Path) -> Source | None:
    """The defaults of a folder of rules; None where there are none. Raises RuleInvalid."""
    there = [folder / name for name in FILES if (folder / name).exists()]
    if not there:
        return None
    if len(there) > 1:
        raise RuleInvalid(f"{there[1]}: expected one file of defaults, found {there[0].name}, too")
    found = read_source(there[0], "settings of all rules (`timezone: ...`, `airflow: ...`)")
    problems = Problems(found)
    for key in found.tree.value:
        if key in OF_RULES:
            problems.add((key,), "is each rule's own; expected settings such as qos, timezone, spark or airflow")
    problems.raise_any()
    return found


def merged(own: Any, defaults: Any) -> Any:
    """What a rule says, over the defaults: mappings key by key, everything else whole; null stays what it is."""
    if not isinstance(own, dict) or not isinstance(defaults, dict):
        return own
    return {**defaults, **{key: merged(value, defaults.get(key)) for key, value in own.items()}}
