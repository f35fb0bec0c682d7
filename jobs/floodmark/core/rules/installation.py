"""Applies settings of an installation from environment variables; rule files and `_defaults.yaml` override them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from floodmark.core.rules.file.epochs import WrittenCleanUp, WrittenEpoch
from floodmark.core.rules.file.rule import WrittenRule
from floodmark.core.text.defaults import merged
from floodmark.core.text.problems import describe_detail
from floodmark.core.text.yamltree import Path as Field
from floodmark.errors import RuleInvalid

VARIABLES: dict[str, tuple[str, ...]] = {
    "FLOODMARK_EPOCH_MAX_FILES": ("epoch", "max_files"),
    "FLOODMARK_EPOCH_MAX_BYTES": ("epoch", "max_bytes"),
    "FLOODMARK_EPOCH_MAX_SECONDS": ("epoch", "max_seconds"),
    "FLOODMARK_REBUILD": ("rebuild",),
    "FLOODMARK_MAX_ROWS_PER_WINDOW": ("max_rows_per_window",),
    "FLOODMARK_CLEANUP_EVERY": ("cleanup", "every"),
    "FLOODMARK_CLEANUP_KEEP": ("cleanup", "keep"),
    "FLOODMARK_CLEANUP_KEEP_LOG": ("cleanup", "keep_log"),
}


def variable_of(field: Field, env: Mapping[str, str]) -> str | None:
    """The variable that sets a field of a rule; None if none does."""
    return next((name for name, place in VARIABLES.items() if place == field and env.get(name)), None)


def over_installation(text: Any, env: Mapping[str, str]) -> Any:
    """A rule's text over the installation's settings. Raises RuleInvalid, naming the variable."""
    given = {place: _value(name, env[name]) for name, place in VARIABLES.items() if env.get(name)}
    if not given or not isinstance(text, dict):
        return text
    rebuild = given.pop(("rebuild",), False) and not {"epoch", "rebuild"} & text.keys()
    nested: dict[str, Any] = {"epoch": "none", "rebuild": True} if rebuild else {}
    for (key, *rest), value in given.items():
        if not rest:
            nested[key] = value
        elif nested.get(key) != "none":
            nested[key] = {**nested.get(key, {}), rest[0]: value}
    return merged(text, nested)


def _value(name: str, text: str) -> Any:
    """The value as a rule file would have it, once validated."""
    *parents, key = VARIABLES[name]
    value = text.strip()
    try:
        valid = _adapter(parents[0] if parents else "", key).validate_python(value)
    except ValidationError as error:
        problem = describe_detail(error.errors(include_url=False)[0])
        raise RuleInvalid(
            f"the environment variable {name}: {problem.replace('Input should be', 'expected')}"
        ) from None
    return valid if isinstance(valid, bool) else value  # `no` and `off`, too: as a text, each would be true


@cache
def _adapter(parent: str, key: str) -> TypeAdapter[Any]:
    """The type of one field by itself."""
    models: dict[str, type[BaseModel]] = {"": WrittenRule, "epoch": WrittenEpoch, "cleanup": WrittenCleanUp}
    return TypeAdapter(models[parent].model_fields[key].rebuild_annotation())
