"""A REST catalogue whose requests do not wait for ever for a server that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyiceberg.catalog.rest import SIGV4_MAX_RETRIES, RestCatalog
from pyiceberg.utils.config import Config, merge_config

from floodmark.connectors.sources.iceberg.properties import CONNECT, SILENCE

if TYPE_CHECKING:
    from floodmark.connectors.sources.iceberg.properties import Catalogue


class Bounded(RestCatalog):
    """pyiceberg's sessions have no limit, and pyiceberg has no setting for one."""

    @classmethod
    def of(cls, said: Catalogue) -> Bounded:
        """As `load_catalog` does, with the settings of pyiceberg's own files; it takes no class beside a type.

        Requests signed for AWS would be repeated ten times, each up to its limit.
        """
        own = Config().get_catalog_config(said.name) or {}
        told = cast("dict[str, str]", merge_config(own, dict(said.properties)))
        return cls(said.name, **{SIGV4_MAX_RETRIES: "0", **told})

    def _config_headers(self, session: Any) -> None:
        """pyiceberg calls it with each new session before the first request, which may ask for a token."""
        super()._config_headers(session)
        session.request = partial(_requested, session.request)


def _requested(request: Callable[..., Any], *args: Any, **more: Any) -> Any:
    return request(*args, timeout=(CONNECT, SILENCE), **more)
