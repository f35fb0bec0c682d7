"""Opens a catalogue by pyiceberg, with limits on how long a silent server is waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.catalog import PY_CATALOG_IMPL, Catalog, load_catalog
from sqlalchemy.engine import make_url

from floodmark.connectors.sources.iceberg.properties import CONNECT, SILENCE

if TYPE_CHECKING:
    from floodmark.connectors.sources.iceberg.properties import Catalogue

# For libpq. A host that is gone answers no probe.
_LIBPQ = {
    "connect_timeout": str(CONNECT),
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": str((SILENCE - 30) // 10),
    "tcp_user_timeout": str(SILENCE * 1000),
}


def opened(said: Catalogue) -> Catalog:
    if said.kind == "rest" and PY_CATALOG_IMPL not in said.properties:  # pyiceberg refuses a class beside a type
        from floodmark.connectors.sources.iceberg.rest import Bounded

        return Bounded.of(said)
    return load_catalog(said.name, **{**said.properties, "uri": bounded(said.properties["uri"])})


def bounded(uri: str) -> str:
    """The address of a database, with limits for those that it does not name itself."""
    url = make_url(uri)
    if url.drivername not in ("postgresql+psycopg", "postgresql+psycopg2"):
        return uri
    return url.set(query={**_LIBPQ, **url.query}).render_as_string(hide_password=False)
