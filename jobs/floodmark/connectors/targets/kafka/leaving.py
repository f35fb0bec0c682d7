"""The keys whose rows leave a topic.

A topic is never rewritten: the row of a key leaves it by a newer record without a value. So the topic is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from floodmark.connectors.targets.kafka.forms import Columns, Form
from floodmark.core.relay.portions import Replaced, micros_of


def keys_held(
    messages: Iterable[Any], form: Form, columns: Columns, replaced: Replaced | None
) -> dict[bytes | None, None]:
    """The keys whose newest record is a row that is replaced, in their order; `replaced`: None for all rows.

    messages: all of the topic, each partition in its order. Raises ValueError for a record that no rule has written.
    """
    found: dict[bytes | None, None] = {}
    for message in messages:
        if _is_held(message, form, columns, replaced):
            found[message.key()] = None
        else:
            found.pop(message.key(), None)
    return found


def _is_held(message: Any, form: Form, columns: Columns, replaced: Replaced | None) -> bool:
    value = message.value()
    if value is None or replaced is None:
        return value is not None
    try:
        row = form.row_in(value, dict(message.headers() or ()), columns)
    except ValueError as fault:
        raise ValueError(f"partition {message.partition()}, offset {message.offset()}: {fault}") from None
    return replaced.holds(micros_of(row[replaced.column]))
