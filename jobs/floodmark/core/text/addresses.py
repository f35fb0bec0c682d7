"""Addresses of tables."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

_ALIKE = {"s3a": "s3", "abfss": "abfs", "wasbs": "wasb"}  # schemes by which one store has two names
# Stores that both Delta's log store and delta-rs can write.
SCHEMES = ("file", "s3", "s3a", "abfs", "abfss", "gs", "hdfs", "wasb", "wasbs", "adl")


def location(address: str) -> str:
    """One spelling for one place: local paths absolute, links followed, without a scheme; other URIs tidied."""
    parsed = urlparse(address)
    if parsed.scheme == "file":
        return _followed(unquote(parsed.path))
    if parsed.scheme and "://" in address:
        path = "/".join(part for part in parsed.path.split("/") if part not in ("", "."))
        return f"{parsed.scheme}://{parsed.netloc}/{path}"
    return _followed(address)


def _followed(path: str) -> str:
    """A loop of links leads nowhere, as Python 3.13 has it, too: who opens the table is told."""
    try:
        return str(Path(path).resolve())
    except RuntimeError:
        return str(Path(path).absolute())


def unfit(address: str) -> str | None:
    """Why no table can have this address; None where one can."""
    if address != address.strip() or re.search(r"[\r\n\t]", address):
        return "without space around it or line breaks"
    if "${" in address:  # written as $${
        return "without ${: Spark would put a variable there"
    if address[:1] in ("~", "$"):
        return f"{address[0]} is not expanded; ${{HOME}} is, and so is any ${{NAME}} of the environment"
    scheme, mark, _ = address.partition(":")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return strange_path(address)
    return _unfit_uri(address, scheme)


def _unfit_uri(address: str, scheme: str) -> str | None:
    if scheme not in SCHEMES:
        return f"of a store out of {', '.join(SCHEMES)}"
    try:
        parsed = urlparse(address)
    except ValueError as fault:
        return str(fault)
    if scheme == "file":
        host = "a file URI has three slashes, for it names no host" if parsed.netloc else None
        return host or strange_path(unquote(parsed.path))
    if not address.startswith(f"{scheme}://") or not parsed.netloc:
        return f"{scheme}:// with two slashes, then a bucket or container"
    return "without .." if ".." in parsed.path.split("/") else None


def strange_path(path: str, but: str = "[]|^") -> str | None:
    """Why a local path leads delta-rs to another place, or nowhere; None where it does not. `but`: characters."""
    if decoded := re.search(r"%[0-9A-Fa-f]{2}", path):
        return f"without % before two hex digits, found {decoded[0]!r}: another place would be read"
    found = next((one for one in path if one in but), None)
    return found and f"without {' '.join(but)}, found {found!r}: Delta's client, or Spark, reads no such path"


def same_address(one: str, other: str) -> bool:
    """Whether two addresses name one place, as far as their spelling tells (tables are compared by id later)."""
    return identity(one) == identity(other)


def within(one: str, other: str) -> bool:
    """Whether the first lies below the second: the outer table's clean-up would take the inner one's files."""
    return identity(one).startswith(identity(other).rstrip("/") + "/")


def identity(address: str) -> str:
    """What all addresses of one place have in common: `s3` and `s3a` name the same objects, `abfs` and `abfss` too."""
    place = location(address)
    scheme, mark, rest = place.partition("://")
    return f"{_ALIKE[scheme]}://{rest}" if mark and scheme in _ALIKE else place
