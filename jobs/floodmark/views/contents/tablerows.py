"""Helpers for queries of a rule's own tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head


def committed(head: Head) -> str:
    """The condition that excludes rows of open, lost and abandoned epochs."""
    lost = f" AND _epoch NOT IN ({', '.join(map(str, head.lost))})" if head.lost else ""
    return f"_epoch <= {head.epoch}{lost}"


def quoted(column: str) -> str:
    doubled = column.replace('"', '""')
    return f'"{doubled}"'


def plain(value: Any) -> Any:
    """A value for JSON: times in ISO 8601, as everywhere else."""
    if isinstance(value, dict):
        return {str(plain(key)): plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else value
