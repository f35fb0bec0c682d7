"""Handles the keys by which a stream or a sink names its kind; they are known only when a file is read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, create_model

from floodmark.core.rules.kinds import SinkKind, SourceKind

KIND = "\0kind"  # the field that holds them; no key in a file can have this name
Known = Callable[[str], SourceKind | SinkKind]


def group_kind_keys(value: object, kinds: Collection[str], unless_empty: bool = False) -> object:
    """The same mapping with the kinds' keys moved under one. `unless_empty`: a key without a value counts as absent."""
    if not isinstance(value, dict):
        return value
    found = {key: one for key, one in value.items() if key in kinds and not (unless_empty and one is None)}
    others = {key: one for key, one in value.items() if key not in kinds}
    return {**others, KIND: found} if found else others


def read_kind(value: object, known: Known) -> dict[str, Any]:
    """The values under the kinds' keys, by kind."""
    assert isinstance(value, dict)
    found = _model(known, tuple(value)).model_validate(value)
    return {kind: getattr(found, kind) for kind in value}


@lru_cache
def _model(known: Known, kinds: tuple[str, ...]) -> type[BaseModel]:
    """A model with a field for each of these kinds, so that a problem is reported at the kind's key."""
    fields: dict[str, Any] = {kind: (known(kind).written, ...) for kind in kinds}
    return create_model("Kinds", **fields)


def add_to_schema(schema: dict[str, Any], kinds: Collection[str], known: Known) -> None:
    """Add to a JSON Schema a key for each kind."""
    keys = {}
    for name in kinds:
        written = TypeAdapter(known(name).written).json_schema()
        keys[name] = {"anyOf": [written, {"type": "null"}], "default": None, "title": name.title()}
        keys[name]["description"] = known(name).summary
    schema["properties"] = keys | schema["properties"]


def options_of(written: object) -> dict[str, Any]:
    """What a kind has beside an address, as the rule stores it."""
    return written.model_dump(mode="json") if isinstance(written, BaseModel) else {}
