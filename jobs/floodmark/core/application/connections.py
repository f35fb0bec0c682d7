"""Connections: a name in a rule file for an address and its secrets, which are elsewhere.

The text of a connection is Airflow's: a URI (`kafka://login:password@host:9092`) or JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from floodmark.errors import Refused

NAME = re.compile(r"[A-Za-z_]\w{0,62}", re.ASCII)
PREFIXES = ("FLOODMARK_CONN_", "AIRFLOW_CONN_")  # the first that is set counts
FORMS = 'a URI (TYPE://LOGIN:PASSWORD@HOST:PORT) or JSON ({"conn_type": ..., "host": ...}), as Airflow writes it'
_EXTRA = "__extra__"
_UNQUOTED = "an address that is no URI: write special characters of login and password as %XX, such as # as %23"
_HOST = re.compile(
    r"(?:[^:\[\]]*|\[[^\[\]]*\])(?::\d*)?|[0-9A-Fa-f.]*(?::[0-9A-Fa-f.]*){2,}(?:%.*)?"
)  # also an IPv6 one
_KEYS = ("conn_type", "host", "port", "login", "password", "schema", "extra", "description")


@dataclass(frozen=True)
class Connection:
    """Where a server is, and how to log in. `extra`: settings of its own kind. No secret is in its `repr`."""

    name: str
    kind: str = ""
    host: str = ""
    port: int | None = None
    login: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    schema: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


def variables(name: str) -> tuple[str, ...]:
    """The environment variables that can hold the connection."""
    return tuple(f"{prefix}{name.upper()}" for prefix in PREFIXES)


def connection_in(name: str, environment: Mapping[str, str]) -> Connection | None:
    """The connection that the environment has by this name. Raises Refused if its text cannot be read."""
    for variable in variables(name):
        if environment.get(variable):
            return connection_of(name, environment[variable], variable)
    return None


def connection_of(name: str, text: str, place: str) -> Connection:
    """The connection that a text describes. Raises Refused, which names `place` and repeats nothing of the text."""
    try:
        return _of_json(name, text) if text.lstrip().startswith("{") else _of_uri(name, text)
    except ValueError as fault:
        raise Refused(f"connection {name}: expected {FORMS} in {place}, found {fault}") from None


def _of_json(name: str, text: str) -> Connection:
    try:
        said = json.loads(text)
    except ValueError:
        raise ValueError("text that is neither") from None
    unknown = [key for key in said if key not in _KEYS]
    if unknown:
        raise ValueError(f"a key that is none of {', '.join(_KEYS)}")
    return Connection(
        name,
        str(said.get("conn_type") or ""),
        str(said.get("host") or ""),
        _port(said.get("port")),
        str(said.get("login") or ""),
        str(said.get("password") or ""),
        str(said.get("schema") or ""),
        _settings(said.get("extra")),
    )


def _of_uri(name: str, text: str) -> Connection:
    try:
        parts = urlsplit(text)
    except ValueError:  # which repeats parts of the password
        raise ValueError(_UNQUOTED) from None
    if not parts.scheme or "://" not in text:
        raise ValueError("text that is neither")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    extra = _settings(query.pop(_EXTRA)) if _EXTRA in query else query
    place = parts.netloc.rpartition("@")[2]
    cut = _cut(text, parts.netloc, parts.path, query)
    if cut is not None:
        raise ValueError(cut)
    host, colon, port = place.rpartition(":") if re.search(r":\d+$", place) else (place, "", "")
    return Connection(
        name,
        parts.scheme.replace("-", "_"),
        unquote(host),
        _port(port if colon else None),
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        unquote(parts.path.strip("/")),
        extra,
    )


def _cut(text: str, place: str, path: str, query: Mapping[str, str]) -> str | None:
    """The character that may have ended login or password too early, so that messages would show a rest; None if there
    is none. An @ in the path is no such one where nothing before it looks like a password."""
    if "#" in text:
        return "a #: write it as %23"
    if "@" in path and (":" in place or "@" in place):
        return "an @ in the path: write it as %40, and each / of login and password as %2F"
    if any("@" in key for key in query):
        return "an @ in the name of a setting: write it as %40, and each ? of login and password as %3F"
    hosts = place.rpartition("@")[2].split(",")
    return None if all(map(_HOST.fullmatch, hosts)) else _UNQUOTED


def _port(value: object) -> int | None:
    if value in (None, ""):
        return None
    if not re.fullmatch(r"\d{1,5}", str(value)):
        raise ValueError("a port that is no number")
    return int(str(value))


def _settings(value: object) -> Mapping[str, Any]:
    """The extra of a connection: a mapping, or its JSON."""
    if not value:
        return {}
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("an `extra` that is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("an `extra` that is no mapping")
    return found
