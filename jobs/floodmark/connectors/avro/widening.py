"""A schema whose decimals have room for all that their bytes can say, so that too wide ones are seen. Pure.

Of a decimal of up to 18 digits, Spark's decoder reads the last 64 bits, whatever stands before them: another number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NARROW, _MOST = 18, 38  # digits: of a long, and of a decimal
_LONG = 8  # bytes


def widened(schema: Any) -> Any:
    """The schema, as JSON has it, with wide decimals in place of those of up to 18 digits."""
    if isinstance(schema, list):
        return [widened(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema["type"]
    if kind in ("record", "error"):
        return {**schema, "fields": [{**one, "type": widened(one["type"])} for one in schema["fields"]]}
    for inner in ("items", "values") if kind in ("array", "map") else ():
        schema = {**schema, inner: widened(schema[inner])} if inner in schema else schema
    if isinstance(kind, (dict, list)):
        return {**schema, "type": widened(kind)}
    return {**schema, "precision": _room(schema)} if _is_cut(schema) else schema


def _is_cut(schema: Mapping[str, Any]) -> bool:
    """Whether Spark's decoder may cut a value off."""
    is_long = schema["type"] == "bytes" or (schema["type"] == "fixed" and schema["size"] > _LONG)
    # Columns beside those that are read may be of no valid type, such as a decimal without a precision.
    return is_long and schema.get("logicalType") == "decimal" and schema.get("precision", _MOST) <= NARROW


def _room(schema: Mapping[str, Any]) -> int:
    """The most digits of which each number has room."""
    if schema["type"] == "bytes":
        return _MOST
    largest = (1 << (8 * min(schema["size"], 2 * _LONG) - 1)) - 1
    return len(str(largest)) - 1
