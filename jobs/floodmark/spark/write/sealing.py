"""The write sites of a generation that ends: which they are, and which of them get a seal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from floodmark.connectors.ports.registry import place_of
from floodmark.connectors.ports.sink import Status, Writer
from floodmark.core.protocol.places import TableName, name_at, other_sinks
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import app_id
from floodmark.core.rules.rule import Sink
from floodmark.errors import FloodmarkError, TableBroken
from floodmark.ledger.delta.damage import log_faults
from floodmark.ledger.dropping import address_of
from floodmark.ledger.home import Home
from floodmark.spark.write import sites
from floodmark.spark.write.outboxes import writable
from floodmark.spark.write.sites import Site

_LOG = logging.getLogger(__name__)


def opens(sink: Sink, home: Home | None) -> Callable[[Site], Writer]:
    return writable(sink, home).writer


def old_sites(head: Head, home: Home, ledger: str) -> list[Site]:
    """All write sites of the head's generation, from what its ledger rows name."""
    others = other_sinks(head)

    def site(name: str) -> Site:
        table = TableName.parse(name)
        app = app_id(ledger, head.generation, head.token, table.role)
        if name in others:
            return _site_of(others[name], home, name, app)
        return Site(name, table.role, address_of(home, table.in_generation(head.generation), head), app)

    return [site(name) for name in head.table_ids]


def _site_of(sink: Sink, home: Home, name: str, app: str) -> Site:
    return Site(name, "sink", place_of(sink), app, opens=opens(sink, home))


def sites_to_seal(head: Head, home: Home, ledger: str, remain: Collection[str]) -> list[Site]:
    """All tables that a driver of the head's generation may still write to.

    `remain`: the ledger's names of the sinks that the rule's file still has. A sink that it no longer has, and that
    cannot be asked, gets no seal: its store may be gone for good.
    """
    return [site for site in _writable_sites(head, home, ledger) if _gets_a_seal(site, head, ledger, remain)]


def _writable_sites(head: Head, home: Home, ledger: str) -> list[Site]:
    """The first commit after a sink is added to the rule names it. Until then only intents do."""
    app = app_id(ledger, head.generation, head.token, "sink")
    added = {name_at(head, place_of(sink)): sink for sink in head.announced_sinks}
    fresh = [_site_of(sink, home, name, app) for name, sink in added.items() if name not in head.table_ids]
    return [*old_sites(head, home, ledger), *fresh]


def _gets_a_seal(site: Site, head: Head, ledger: str, remain: Collection[str]) -> bool:
    found = False
    with _or_left(site, remain):
        found = can_be_sealed(site, head, ledger)
    return found


def seal(session: SparkSession, site: Site, remain: Collection[str]) -> None:
    """Seal one of the `sites_to_seal`. `remain`: as there; a store may be readable, and refuse to be written."""
    with _or_left(site, remain):
        sites.seal(session, site)


@contextmanager
def _or_left(site: Site, remain: Collection[str]) -> Iterator[None]:
    """Leave a sink as it is, with a warning, if it cannot be used and the rule's file no longer has it."""
    try:
        yield
    except (FloodmarkError, OSError, DeltaError, PySparkException, Py4JJavaError) as fault:
        if site.role != "sink" or site.name in remain:
            raise
        _LOG.warning(
            "%s: the rule's file no longer has this sink, and it cannot be read or written now, so the reset leaves it "
            "as it is. If it comes back into the rule with old rows, a run refuses it. %s",
            site.name, fault,
        )  # fmt: skip


def can_be_sealed(site: Site, head: Head, ledger: str) -> bool:
    """Whether there is a table to seal, and it is this ledger's: another one may lie there by now.

    Nobody reads the old generation's state again, so that may be damaged.
    """
    try:
        status = site.writer.status()
        if status is None or not is_own(status, head.table_ids.get(site.name), ledger):
            return False
        return site.role != "state" or not log_faults(site.address)
    except TableBroken:
        if site.role != "state":
            raise
        return False


def is_own(found: Status, known: str | None, ledger: str) -> bool:
    """Whether what is there is the ledger's. `known`: the id in the ledger; None: no commit names the sink yet."""
    return known == found.id or found.owner == ledger or (known is None and found.owner is None)
