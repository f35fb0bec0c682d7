"""Finds folders that a target of files writes: its relay replaces files there, whose rows would be read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from floodmark.core.relay.manifests import DATA, MANIFESTS, Manifest, manifest_name
from floodmark.core.text.addresses import is_object
from floodmark.errors import Refused

_FIRST = f"{MANIFESTS}/{manifest_name(0)}"  # no relay changes or removes it


def refuse_delivered(what: str, address: str, paths: Iterable[str]) -> None:
    """Raise Refused for a stream whose files are those of a target. `paths`: of its files, below the address.

    A folder that cannot be read counts as none: the listing of the stream tells why.
    """
    for place in dict.fromkeys(places(address, paths)):
        if _is_target(what, place):
            raise Refused(
                f"{what}: expected another source, such as a Delta sink of the same rule (`rule: NAME`), found "
                f"{address} with files of {place}, a target of a rule: its relay puts corrected files in place of "
                "others, so rows would count twice"
            )


def places(address: str, paths: Iterable[str]) -> Iterator[str]:
    """Where a target may lie whose files the stream reads: its files are in the folder `data` below."""
    yield address
    for folder in (address, *(f"{address}/{path.rpartition('/')[0]}" for path in paths if "/" in path)):
        outer, _, name = folder.rpartition("/")
        if name == DATA:
            yield outer


def _is_target(what: str, place: str) -> bool:
    try:
        return bool(Manifest.parse(_content(what, place)).position.ledger)
    except (OSError, ValueError):
        return False


def _content(what: str, place: str) -> str:
    """'' of an object that cannot be read."""
    if not is_object(place):
        return (Path(place) / _FIRST).read_text()
    import obstore
    from obstore.exceptions import BaseError

    from floodmark.connectors.sources.files.objects import store_at

    with suppress(BaseError, FileNotFoundError):
        return bytes(obstore.get(store_at(what, place), _FIRST).bytes()).decode()
    return ""
