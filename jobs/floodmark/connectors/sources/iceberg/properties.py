"""The properties of an Iceberg catalogue, from a connection. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from floodmark.core.application.connections import Connection
from floodmark.errors import Refused

EXAMPLE = (
    '{"conn_type": "iceberg", "extra": {"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": '
    '"file:///data/warehouse"}}'
)
TYPES = ("sql", "rest")
CONNECT = 10  # seconds to connect to a catalogue
SILENCE = 120  # seconds without a byte of an answer
_NAME = "catalog_name"  # a key of ours in the extra
_SECRET = re.compile(r"secret|token|password|credential|key|authorization|signer|connection.?string", re.IGNORECASE)
_SHORTEST = 4  # characters of a secret that is removed from messages


@dataclass(frozen=True)
class Catalogue:
    """How pyiceberg opens a catalogue. `name`: under which its tables are kept; `secrets`: not for messages."""

    name: str
    properties: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def kind(self) -> str:
        return self.properties["type"]

    def without_secrets(self, said: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            said = said.replace(secret, "***")
        return said


def catalogue_of(one: Connection) -> Catalogue:
    """Raises Refused for a connection of another kind, without an address, or to a type of catalogue that is not known
    here."""
    about = f"connection {one.name}"
    if one.kind not in ("iceberg", ""):
        raise Refused(f"{about}: expected the kind iceberg, such as {EXAMPLE}, found the kind {one.kind}")
    found = {str(key): str(value) for key, value in one.extra.items()}
    name, uri = found.pop(_NAME, one.name), found.get("uri") or _host(one)
    if not uri:
        raise Refused(f"{about}: expected the catalogue's address as `uri` in its extra, such as {EXAMPLE}, found none")
    kind = found.get("type", "").lower() or ("rest" if uri.startswith("http") else "sql")
    if kind not in TYPES:
        raise Refused(f"{about}: expected a catalogue of type {' or '.join(TYPES)}, found {kind}")
    found |= {"type": kind, "uri": _sql(uri, one) if kind == "sql" else uri}
    if kind == "sql":
        found.setdefault("init_catalog_tables", "false")  # a look makes nothing
    elif one.password:
        found.setdefault("credential", f"{one.login}:{one.password}" if one.login else one.password)
    return Catalogue(name, found, tuple(_secrets(one, found)))


def _host(one: Connection) -> str:
    """The address of a REST catalogue, as Airflow's own connections to Iceberg have it."""
    if not one.host:
        return ""
    port = "" if one.port is None else f":{one.port}"
    return f"{one.host if '://' in one.host else f'https://{one.host}'}{port}"


def _sql(uri: str, one: Connection) -> str:
    """The address for SQLAlchemy: with our driver, and with the connection's login unless it has one."""
    scheme, _, rest = uri.partition("://")
    scheme = "postgresql+psycopg" if scheme in ("postgres", "postgresql") else scheme
    if one.login and "@" not in rest and not scheme.startswith("sqlite"):
        rest = f"{quote(one.login, safe='')}:{quote(one.password, safe='')}@{rest}"
    return f"{scheme}://{rest}"


def _secrets(one: Connection, properties: Mapping[str, str]) -> Iterator[str]:
    named = (value for key, value in properties.items() if _SECRET.search(key))
    in_uri = list(_passwords(properties["uri"]))
    for found in (one.password, *named, *in_uri, *map(unquote, in_uri)):
        if len(found) >= _SHORTEST:
            yield found
            yield from (part for part in found.split(":") if len(part) >= _SHORTEST)


def _passwords(uri: str) -> Iterator[str]:
    """What may be the password of an address. It may have /, ? or # in it for SQLAlchemy, and an @."""
    rest = uri.partition("://")[2]
    yield from {user.partition(":")[2] for user in (rest.partition("@")[0], rest.rpartition("@")[0]) if "@" in rest}
