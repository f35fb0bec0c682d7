"""Tables as datasets of OpenLineage. Airflow's provider asks each task for them; without it, nobody does.

The provider by itself would translate assets, but leaves out each scheme whose own provider is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from floodmark.core.text.addresses import unquoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Asset

SPELT = {"abfs": "abfss", "wasb": "wasbs"}  # OpenLineage's spelling of schemes, where an asset has another
BY_PATH = ("hdfs",)  # where a name begins with a slash: a path, not the key of an object


def tables(inputs: Iterable[Asset], outlets: Iterable[Asset]) -> OperatorLineage:
    """What a task reads and writes. Only for the provider: raises ImportError without it."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset

    read, written = ([Dataset(*place) for place in places(assets)] for assets in (inputs, outlets))
    return OperatorLineage(inputs=read, outputs=written)


def places(assets: Iterable[Asset]) -> list[tuple[str, str]]:
    """Namespace and name of each asset's table."""
    return [place_of(one.uri) for one in assets]


def place_of(uri: str) -> tuple[str, str]:
    """Namespace and name of a table, by OpenLineage's rules for names; from the URI of its asset."""
    place = urlsplit(uri)
    path = unquoted(place.path)
    if place.scheme == "file":
        return "file", path
    scheme = SPELT.get(place.scheme, place.scheme)
    return f"{scheme}://{place.netloc}", path if scheme in BY_PATH else path.lstrip("/")
