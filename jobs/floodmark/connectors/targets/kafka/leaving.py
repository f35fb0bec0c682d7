"""The keys whose rows leave a topic.

A topic is never rewritten: the row of a key leaves it by a newer record without a value. So the topic is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from floodmark.core.relay.portions import Replaced, micros_of


def keys_held(messages: Iterable[Any], replaced: Replaced | None) -> dict[bytes, None]:
    """The keys with a row that is replaced, in their order; `replaced`: None for all rows.

    messages: all of the topic, each partition in its order. Where an interval is replaced, its column is one of the
    key. So values are not read: older ones may have columns that the rule no longer has. A record without a key is
    another writer's, and a compacted topic takes no tombstone for it.
    """
    found: dict[bytes, None] = {}
    for message in messages:
        key = message.key()
        if key is None:
            continue
        if message.value() is None:
            found.pop(key, None)
        elif replaced is None or replaced.holds(_time_in(key, replaced.column)):
            found[key] = None
    return found


def _time_in(key: bytes, column: str) -> int | None:
    """The time of a record by its key, which is a JSON object; None of another record."""
    try:
        return micros_of(datetime.fromisoformat(json.loads(key)[column]))
    except (ValueError, KeyError, TypeError):
        return None
