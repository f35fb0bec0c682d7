"""Looks connections up by their name: in the environment first, then where the program around it keeps them."""

from __future__ import annotations

import os
from collections.abc import Callable

from floodmark.core.application.connections import Connection, connection_in, connection_of, variables
from floodmark.errors import Refused

Keeper = Callable[[str], str | None]
_KEEPERS: dict[str, Keeper] = {}


def ask_also(place: str, keeper: Keeper) -> None:
    """Look also there: `keeper` returns a connection's text, or None if it has none. `place`: its name for messages."""
    _KEEPERS[place] = keeper


def connection(name: str) -> Connection:
    """The connection of this name. Raises Refused if there is none, or its text cannot be read."""
    found = connection_in(name, os.environ)
    if found is not None:
        return found
    for place, keeper in _KEEPERS.items():
        text = keeper(name)
        if text:
            return connection_of(name, text, place)
    places = ", or in ".join([" or ".join(variables(name)), *_KEEPERS])
    raise Refused(f"connection {name}: expected it in {places}; found none. The rule file names it, and never holds it")
