"""Addresses of tables."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse


def location(address: str) -> str:
    """One spelling for one place: local paths absolute, links followed, without a scheme; other URIs tidied."""
    parsed = urlparse(address)
    if parsed.scheme == "file":
        return str(Path(unquote(parsed.path)).resolve())
    if parsed.scheme and "://" in address:
        path = "/".join(part for part in parsed.path.split("/") if part not in ("", "."))
        return f"{parsed.scheme}://{parsed.netloc}/{path}"
    return str(Path(address).resolve())


def same_address(one: str, other: str) -> bool:
    """Whether two addresses name one place, as far as their spelling tells (tables are compared by id later)."""
    return _same_scheme(location(one)) == _same_scheme(location(other))


def _same_scheme(place: str) -> str:
    """The three schemes of S3 clients name the same objects."""
    scheme, mark, rest = place.partition("://")
    return "s3://" + rest if mark and scheme in ("s3a", "s3n") else place
