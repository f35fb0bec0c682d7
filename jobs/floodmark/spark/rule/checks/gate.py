"""Check tables before a run plans: they are the ledger's, at the addresses that it knows, and undamaged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from floodmark.core.lifecycle.cleanup import check_forgets
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import app_id, check_tables
from floodmark.core.text.tablenames import about_named
from floodmark.errors import TableBroken
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.damage import repair_log, restore_log
from floodmark.spark.rule.generation import ids_of, statuses
from floodmark.spark.write.sites import Site
from floodmark.spark.write.tablesink import status_of


def check(head: Head, ledger: str, known: Sequence[Site]) -> None:
    """Raises TableBroken, HistoryGone, Sealed or LedgerBroken.

    ledger: its id. known: the sites of the head's generation.
    """
    own = [site for site in known if site.role != "sink"]  # sinks were looked after before Spark started
    for site in own:
        restore_log(Path(site.address), must_go=False)
        repair_log(site.address, head.commits.get(site.name, 0))
    for site in known:
        _refuse(site, site.writer.faults())
    opened = {site: table for site in own if (table := tables.open_table(site.address)) is not None}
    seen = {site.name: status_of(table, site.app) for site, table in opened.items()}
    seen |= statuses(site for site in known if site.role == "sink")
    rewritten = {
        site.name: datafiles.rewritten_after(site.address, head.commits.get(site.name, 0), table.version())
        for site, table in opened.items()
        if site.role == "state"
    }
    check_tables(head, {name: status.recorded for name, status in seen.items()}, ids_of(seen), rewritten)
    forgets = app_id(ledger, head.generation, head.token, "forget")
    check_forgets(
        head, {site.name: (tablelog.recorded_in(table, forgets), table.version()) for site, table in opened.items()}
    )
    for site, table in opened.items():  # a sink's files are its reader's, and the auditor's, to look after
        _refuse(site, datafiles.file_faults(table))


def _refuse(site: Site, faults: Iterable[str]) -> None:
    for fault in faults:
        raise TableBroken(about_named(site.name, f"{fault}; {way_out(site)}"))


def way_out(site: Site) -> str:
    """How to recover from a damaged table. A reset abandons state, and continues with the other tables."""
    first = "restore the file from a copy"
    if site.role == "state":
        return f"{first}, or start over with `floodmark reset`"
    return f"{first}; or remove {site.address} with everything in it, and start over with `floodmark reset`"
