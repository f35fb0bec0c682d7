"""Whether Avro's own parser takes a schema, so that a rule is refused and no run fails. Pure.

Readers of files are less strict: a file's schema is not looked at here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_PLAIN = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_NAME = re.compile(r"[^\W\d]\w*")
_NUMBER = re.compile(r"[+-]?(NaN|Infinity|[0-9]+(\.[0-9]*)?)")
_ORDERS = ("ascending", "descending", "ignore")


def _is_int(value: Any, bits: int) -> bool:
    return type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1


def _is_number(value: Any) -> bool:
    """Texts, too: "NaN" has no other form."""
    return type(value) in (int, float) or (isinstance(value, str) and _NUMBER.fullmatch(value) is not None)


_DEFAULTS: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda one: one is None,
    "boolean": lambda one: isinstance(one, bool),
    "int": lambda one: _is_int(one, 32),
    "long": lambda one: _is_int(one, 64),
    **dict.fromkeys(("float", "double"), _is_number),
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), lambda one: isinstance(one, str)),
}


def check_well_formed(schema: Any) -> None:
    """Raise ValueError for a schema that Avro refuses, in which `schemas` finds columns."""
    _Checker().check(schema, "", "the schema")


class _Checker:
    """Looks at one schema; knows the types that were defined so far."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def check(self, schema: Any, namespace: str, what: str) -> None:
        if isinstance(schema, list):
            self._check_union(schema, namespace, what)
        if not isinstance(schema, dict):
            return
        kind = schema["type"]
        if not isinstance(kind, str):
            raise ValueError(f'expected the name of a type as "type" for {what}, found {_shown(kind)}')
        if kind in ("record", "error", "enum", "fixed"):
            self._check_defined(schema, namespace, what)
        for key in ("items", "values") if kind in ("array", "map") else ():
            self.check(schema.get(key), namespace, what)

    def _check_union(self, union: list[Any], namespace: str, what: str) -> None:
        if any(isinstance(one, list) for one in union) or union.count("null") > 1:
            raise ValueError(f"expected each type once in the union for {what}, found {_shown(union)}")
        for one in union:
            self.check(one, namespace, what)

    def _check_defined(self, schema: Mapping[str, Any], namespace: str, what: str) -> None:
        full = _full_name(schema, namespace, what)
        if _said(self._named.get(full, schema)) != _said(schema):
            raise ValueError(f"expected each type defined once, found {full} defined anew for {what}")
        self._named[full] = schema
        aliases = schema.get("aliases", [])
        if not isinstance(aliases, list) or not all(map(_is_name, aliases)):
            raise ValueError(f"expected a list of names as aliases of {full}, found {_shown(aliases)}")
        if schema["type"] == "enum":
            _check_enum(schema, full)
        elif schema["type"] == "fixed":
            _check_size(schema.get("size"), full)
        else:
            for one in schema["fields"]:
                self._check_field(one, full.rpartition(".")[0])

    def _check_field(self, field: Mapping[str, Any], namespace: str) -> None:
        what = f"field {field['name']}"
        self.check(field["type"], namespace, what)
        order = field.get("order", "ignore")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise ValueError(f"expected {' or '.join(_ORDERS)} as order of {what}, found {_shown(order)}")
        if "default" in field and not self._is_default(field["default"], field["type"], namespace):
            raise ValueError(f"expected a default of the type of {what}, found {_shown(field['default'])}")

    def _is_default(self, value: Any, schema: Any, namespace: str) -> bool:
        if isinstance(schema, list):
            return any(self._is_default(value, one, namespace) for one in schema)
        if isinstance(schema, str) and schema not in _PLAIN:
            return self._is_default(value, self._named.get(f"{namespace}.{schema}", self._named.get(schema)), namespace)
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in _DEFAULTS:
            return _DEFAULTS[kind](value)
        if kind == "array":
            return isinstance(value, list) and all(self._is_default(one, schema["items"], namespace) for one in value)
        if kind == "map":
            held = value.values() if isinstance(value, dict) else [value]
            return isinstance(value, dict) and all(self._is_default(one, schema["values"], namespace) for one in held)
        return isinstance(value, dict) and all(
            self._is_field(value, one, schema, namespace) for one in schema["fields"]
        )

    def _is_field(self, value: Mapping[str, Any], field: Mapping[str, Any], record: Any, namespace: str) -> bool:
        """Whether a record's default has a valid value of the field, or the field a default."""
        if field["name"] not in value:
            return "default" in field
        inner = _full_name(record, namespace, "the schema").rpartition(".")[0]
        return self._is_default(value[field["name"]], field["type"], inner)


def _full_name(schema: Mapping[str, Any], namespace: str, what: str) -> str:
    name, own = schema.get("name"), schema.get("namespace")
    if not isinstance(name, str):
        raise ValueError(f"expected a name of the type for {what}, found {_shown(name)}")
    outer = own if isinstance(own, str) else namespace
    full = name.removeprefix(".") if "." in name or not outer else f"{outer}.{name}"
    if not _is_name(full) or full in _PLAIN:
        raise ValueError(f"expected a name of letters, digits and _, none of Avro's, for {what}, found {full!r}")
    return full


def _said(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A definition may be repeated, with other words about it."""
    return {key: value for key, value in schema.items() if key != "doc"}


def _is_name(value: object) -> bool:
    return isinstance(value, str) and all(_NAME.fullmatch(part) for part in value.split("."))


def _check_enum(schema: Mapping[str, Any], full: str) -> None:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list) or not all(_is_name(one) and "." not in one for one in symbols):
        raise ValueError(f"expected symbols of letters, digits and _ for the enum {full}, found {_shown(symbols)}")
    if len(set(symbols)) < len(symbols):
        raise ValueError(f"expected each symbol of the enum {full} once, found {_shown(symbols)}")
    if isinstance(schema.get("default"), str) and schema["default"] not in symbols:
        raise ValueError(f"expected a symbol as default of the enum {full}, found {_shown(schema['default'])}")


def _check_size(size: object, full: str) -> None:
    if type(size) is not int or not 0 <= size < 1 << 31:
        raise ValueError(f"expected a number of bytes as size of {full}, found {_shown(size)}")


def _shown(value: object) -> str:
    return "none" if value is None else json.dumps(value)[:60]
