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


def is_spare(field: Field, text: Any, env: Mapping[str, str]) -> bool:
    """Whether a field is a limit that only a variable sets: a rule that cannot have the limit goes without it."""
    return variable_of(field, env) is not None and field[0] in ("epoch", "max_rows_per_window") and _lacks(text, field)


def blame(text: Any, env: Mapping[str, str], field: Field, problem: str) -> str:
    """What to add to a problem of a field that variables have set, or one of its keys; empty if the file has it.

    `text`: the rule's own, with the folder's defaults.
    """
    names = [name for name, place in VARIABLES.items() if env.get(name) and _lacks(text, place)]
    to_blame = [name for name in names if field and VARIABLES[name][: len(field)] == field]
    if "FLOODMARK_REBUILD" in names and "epoch" not in text and "with `rebuild: true`" in problem:
        to_blame = ["FLOODMARK_REBUILD"]
    keys = " and ".join(f"`{'.'.join(VARIABLES[name])}`" for name in to_blame)
    which = " and ".join(to_blame)
    return f"; {keys} is from {which} of the environment: change that, or write the key in the rule" if keys else ""


def _lacks(text: Any, place: Field) -> bool:
    """Whether a variable sets the field at this place, because the text does not have it."""
    for part in place:
        if not isinstance(text, dict):
            return False
        if part not in text:
            return True
        text = text[part]
    return False


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
