"""Tables as Airflow assets: one spelling for one place, so that a rule's sink wakes the rules that read it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, urlparse

from airflow.sdk import Asset

from floodmark.core.rules.kinds import tables_read, tables_written
from floodmark.core.text.addresses import identity

if TYPE_CHECKING:
    from floodmark.core.rules.rule import Rule


def asset(address: str) -> Asset:
    """The asset of a table; a local path becomes `file:///…`, for Airflow wants a URI, and keeps ASCII ones alone."""
    place = _quoted(identity(address))
    return Asset(place if urlparse(place).scheme else f"file://{place}")


def _quoted(place: str) -> str:
    """Letters beyond ASCII as `%C3%BC`; so are # and ?, which no other address has, for Airflow cuts off what follows.

    All else stays as it is written, for it is the asset's name so far.
    """
    return re.sub(r"[^\x00-\x7f]+|[#?]", lambda found: quote(found[0], errors="surrogateescape"), place)


def inlets(rule: Rule) -> list[Asset]:
    """One asset for each table that the rule reads: Airflow's graph of assets shows them, and so does OpenLineage."""
    read = [*tables_read(rule).values(), *(table.address for table in rule.lookups.values())]
    return [asset(address) for address in dict.fromkeys(read)]


def outlets(rule: Rule) -> list[Asset]:
    """One asset for each table that the rule writes."""
    return [asset(sink.address) for sink in tables_written(rule) if sink.address]
