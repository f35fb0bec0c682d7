"""What every query of a rule's own tables needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from floodmark.core.records import Head


def committed(head: Head) -> str:
    """The condition that leaves out what an open or a lost epoch wrote."""
    lost = f" AND _epoch NOT IN ({', '.join(map(str, head.lost))})" if head.lost else ""
    return f"_epoch <= {head.epoch}{lost}"


def quoted(column: str) -> str:
    doubled = column.replace('"', '""')
    return f'"{doubled}"'
