"""Addresses of tables."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse


def location(address: str) -> str:
    """One spelling for one place: local paths absolute and without a scheme; other URIs as they are."""
    parsed = urlparse(address)
    if parsed.scheme in ("", "file"):
        return str(Path(parsed.path or address).absolute())
    return address.rstrip("/")
