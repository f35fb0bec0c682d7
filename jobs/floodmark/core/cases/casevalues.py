"""Converts values of test cases: from YAML to a column's value, and from that to text for comparison and display.

Two values of a column are equal if and only if their texts are; the text of null is None.
"""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from floodmark.core.process.values import BITS, converter, short
from floodmark.core.text.ddl import Type

_WORDS = {"nan": "nan", "infinity": "inf", "-infinity": "-inf"}


def value_of(kind: Type, written: Any, zone: ZoneInfo) -> Any:
    """The value as Python and Arrow have it; a map as pairs. Raises ValueError: what was expected, what was found.

    zone: that of timestamps without an offset.
    """
    if written is None:
        return None
    if kind.name == "array":
        return [value_of(kind.parts[0].type, one, zone) for one in _listed(written)]
    if kind.name == "map":
        key, of = (part.type for part in kind.parts)
        pairs = _mapping(written).items()
        return [(value_of(key, _key(key, name), zone), value_of(of, one, zone)) for name, one in pairs]
    if kind.name == "struct":
        return _struct(kind, _mapping(written), zone)
    return converter(kind)(_plain(kind, written, zone))


def text_of_value(kind: Type, value: Any, zone: ZoneInfo) -> str | None:
    """The text of a value, as people would write it; the same for equal values."""
    if value is None:
        return None
    if kind.parts:
        return json.dumps(_nested(kind, value, zone), ensure_ascii=False)
    if isinstance(value, str):  # also a time of a year that Python lacks
        return value
    if kind.name == "timestamp":
        return str(value.astimezone(zone).isoformat()).replace("+00:00", "Z")
    if kind.name in ("float", "double"):
        return repr(value + 0.0)  # drops the sign of a zero
    if kind.name == "binary":
        return bytes(value).hex()
    if kind.name == "boolean":
        return str(value).lower()
    return value.isoformat() if isinstance(value, date) else str(value)


def _nested(kind: Type, value: Any, zone: ZoneInfo) -> Any:
    if value is None:
        return None
    if kind.name == "array":
        return [_nested(kind.parts[0].type, one, zone) for one in value]
    if kind.name == "struct":
        return {part.name: _nested(part.type, value[part.name], zone) for part in kind.parts}
    if kind.name == "map":
        key, element = (part.type for part in kind.parts)
        pairs = value.items() if isinstance(value, dict) else value
        return dict(sorted((str(_nested(key, one, zone)), _nested(element, of, zone)) for one, of in pairs))
    if kind.name in ("float", "double"):
        return value + 0.0
    return value if kind.name in ("boolean", "string", *BITS) else text_of_value(kind, value, zone)


def _plain(kind: Type, written: Any, zone: ZoneInfo) -> Any:
    if kind.name in ("timestamp", "timestamp_ntz", "date"):
        return _time(kind, written, zone)
    if kind.name == "decimal":
        return _decimal(written)
    if kind.name == "binary":
        return _binary(written)
    if kind.name in ("float", "double") and isinstance(written, str):
        return _float(written)
    return written


def _time(kind: Type, written: Any, zone: ZoneInfo) -> Any:
    examples = {"date": "2001-01-31", "timestamp": "2001-01-31T12:00", "timestamp_ntz": "2001-01-31T12:00"}
    try:
        if not isinstance(written, str):
            raise ValueError
        if kind.name == "date":
            return date.fromisoformat(written)
        found = datetime.fromisoformat(written)
    except ValueError:
        expected = f"a {kind.name} as text such as {examples[kind.name]}"
        raise ValueError(f"expected {expected}, found {short(written)}") from None
    if kind.name == "timestamp_ntz" and found.tzinfo is not None:
        raise ValueError(f"expected a time without a zone, because the column is TIMESTAMP_NTZ, found {short(written)}")
    return found if found.tzinfo or kind.name == "timestamp_ntz" else found.replace(tzinfo=zone)


def _decimal(written: Any) -> Any:
    if isinstance(written, bool) or not isinstance(written, (int, float, str)):
        return written
    try:
        return Decimal(str(written))
    except InvalidOperation:
        raise ValueError(f"expected a decimal number, found {short(written)}") from None


def _float(written: str) -> float:
    if written.lower() not in _WORDS:
        raise ValueError(f"expected a number, NaN, Infinity or -Infinity, found {short(written)}")
    return float(_WORDS[written.lower()])


def _binary(written: Any) -> bytes:
    try:
        return bytes.fromhex(written)
    except (TypeError, ValueError):
        raise ValueError(f"expected bytes as hexadecimal text such as '00ff', found {short(written)}") from None


def _listed(written: Any) -> list[Any]:
    if not isinstance(written, list):
        raise ValueError(f"expected a list, found {short(written)}")
    return written


def _mapping(written: Any) -> dict[str, Any]:
    if not isinstance(written, dict):
        raise ValueError(f"expected a mapping (key: value), found {short(written)}")
    return written


def _key(kind: Type, written: str) -> Any:
    """A map's key: YAML gives text, the map's type may need a number or boolean."""
    if kind.name in ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double"):
        try:
            return json.loads(written)
        except json.JSONDecodeError:
            return written  # reported when the value is converted
    return written


def _struct(kind: Type, written: dict[str, Any], zone: ZoneInfo) -> dict[str, Any]:
    names = [part.name for part in kind.parts]
    odd = next((name for name in written if name not in names), None)
    if odd is not None:
        raise ValueError(f"expected fields among {', '.join(names)}, found {odd!r}")
    return {part.name: value_of(part.type, written.get(part.name), zone) for part in kind.parts}
