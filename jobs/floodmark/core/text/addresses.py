"""Compares and checks addresses of tables, and makes URIs of assets of them."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote, unquote, urlparse

_ALIKE = {"s3a": "s3", "abfss": "abfs", "wasbs": "wasb"}  # schemes that name the same store
MOST_OF_ASSET = 1500  # characters of an asset's URI: the column in Airflow's database
FILES = "files"  # the scheme of a target that is a folder of files
# Stores that both Delta's log store and delta-rs can write to.
SCHEMES = ("file", "s3", "s3a", "abfs", "abfss", "gs", "hdfs", "wasb", "wasbs", "adl")


def location(address: str) -> str:
    """One spelling for each place: local paths absolute, links resolved, without scheme; other URIs normalised."""
    if address.startswith(f"{FILES}://"):
        return location(address.removeprefix(f"{FILES}://"))
    parsed = urlparse(address)
    if parsed.scheme == "file":
        return _followed(unquote(parsed.path))
    if parsed.scheme and "://" in address:
        path = "/".join(part for part in parsed.path.split("/") if part not in ("", "."))
        return f"{parsed.scheme}://{parsed.netloc}/{path}"
    return _followed(address)


def is_object(address: str) -> bool:
    """Whether the address, spelt as `location` does, is of an object store that speaks S3."""
    return address.startswith(("s3://", "s3a://"))


def _followed(path: str) -> str:
    """The path with its links resolved.

    As in Python 3.13, a loop of links is no error here; opening the table reports it.
    """
    try:
        return str(Path(path).resolve())
    except RuntimeError:
        return str(Path(path).absolute())


def unfit(address: str) -> str | None:
    """Why no table can have this address; None if one can."""
    if address != address.strip() or re.search(r"[\r\n\t]", address):
        return "without space around it or line breaks"
    if "${" in address:  # written as $${
        return "without ${: Spark would substitute a variable there"
    if "{{" in address:
        return "without {{…}}: a rule file has no templates; ${NAME} is a variable of the environment"
    if address[:1] in ("~", "$"):
        return f"{address[0]} is not expanded; ${{HOME}} is, and so is any ${{NAME}} of the environment"
    scheme, mark, _ = address.partition(":")
    if not mark or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return strange_path(address)
    return _unfit_uri(address, scheme)


def _unfit_uri(address: str, scheme: str) -> str | None:
    if scheme not in SCHEMES:
        return f"of one of the stores {', '.join(SCHEMES)}"
    try:
        parsed = urlparse(address)
    except ValueError as fault:
        return str(fault)
    if scheme == "file":
        host = "a file URI has three slashes, because it names no host" if parsed.netloc else None
        return host or strange_path(unquote(parsed.path))
    if not address.startswith(f"{scheme}://") or not parsed.netloc:
        return f"{scheme}:// with two slashes, then a bucket or container"
    return "without .." if ".." in parsed.path.split("/") else None


def unfit_table(address: str) -> str | None:
    """Why Delta's client and Spark would have the table in two places; None if it is in one.

    Links and the working directory count: Delta's client resolves a path before it decodes it.
    """
    place = location(address)
    why = decoded(place)
    return f"{why}, at {place}" if why and place not in address else why


def decoded(place: str) -> str | None:
    """Why Delta's client would read another place, because it decodes what looks encoded; None if nothing does."""
    found = re.search(r"%[0-9A-Fa-f]{2}", place)
    return found and f"without % before two hex digits, found {found[0]!r}: Spark would read another place"


def strange_path(path: str, but: str = "[]|^") -> str | None:
    """Why delta-rs would read another place or none at this local path; None if it reads it.

    `but`: refused characters.
    """
    if (why := decoded(path)) is not None:
        return why
    found = next((one for one in path if one in but), None)
    return found and f"without {' '.join(but)}, found {found!r}: Delta's client, or Spark, reads no such path"


def same_address(one: str, other: str) -> bool:
    """Whether two addresses name one place, as far as their spelling shows; later, tables are compared by id."""
    return identity(one) == identity(other)


def within(one: str, other: str) -> bool:
    """Whether the first lies below the second, where the outer table's clean-up would delete its files."""
    return identity(one).startswith(identity(other).rstrip("/") + "/")


def identity(address: str) -> str:
    """The address in a spelling that all addresses of a place share: `s3` and `s3a` are one, `abfs` and `abfss` too."""
    place = location(address)
    scheme, mark, rest = place.partition("://")
    return f"{_ALIKE[scheme]}://{rest}" if mark and scheme in _ALIKE else place


def asset_uri(address: str) -> str:
    """The URI of a table's asset. A local path becomes `file:///…`, because Airflow requires a URI, in ASCII."""
    place = _quoted(identity(address))
    return place if urlparse(place).scheme else f"file://{place}"


def target_uri(rule: str, label: str) -> str:
    """The same of a target, by the names of rule and sink: its server is known by a connection's name only."""
    return f"floodmark://{rule}/{_quoted(label)}"


def _quoted(place: str) -> str:
    """Quote characters beyond ASCII, as `%C3%BC`; also # and ?, because Airflow cuts off what follows them.

    Everything else stays as written, because it is the asset's name so far.
    """
    return re.sub(r"[^\x00-\x7f]+|[#?]", lambda found: quote(found[0], errors="surrogateescape"), place)


def unquoted(uri: str) -> str:
    """What `_quoted` made of it, as it was. Bytes that are not UTF-8 stay quoted: no JSON has them."""
    return re.sub(r"(?:%[89A-F][0-9A-F])+|%23|%3F", _as_it_was, uri)


def _as_it_was(found: re.Match[str]) -> str:
    try:
        return unquote(found[0], errors="strict")
    except UnicodeDecodeError:
        return found[0]
