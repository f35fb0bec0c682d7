"""What a run looks at in its tables before it plans: they are the ledger's, where it knows them, and unharmed."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.records import Head
from floodmark.core.recovery import check_tables
from floodmark.errors import TableBroken
from floodmark.ledger import tables
from floodmark.ledger.damage import log_faults, mend
from floodmark.spark.sites import Site


def check(head: Head, known: Sequence[Site]) -> None:
    """Raises TableBroken, HistoryGone, Sealed or LedgerBroken. `known`: the sites of the head's generation."""
    for site in known:
        if site.role != "sink":  # those were looked after before Spark started
            mend(site.address, head.commits.get(site.name, 0))
        _refuse_harmed(site)
    opened = {site.name: tables.open_table(site.address) for site in known}
    recorded = {site.name: tables.recorded_version(site.address, site.app) for site in known}
    ids = {name: None if table is None else tables.table_id(table) for name, table in opened.items()}
    state = [site for site in known if site.role == "state" and opened[site.name] is not None]
    rewritten = {site.name: tables.rewritten_after(site.address, head.commits.get(site.name, 0)) for site in state}
    check_tables(head, recorded, ids, rewritten)
    for site in known:
        if site.role != "sink":  # a sink's files are its reader's, and the auditor's, to look after
            _refuse_lost_files(site)


def _refuse_harmed(site: Site) -> None:
    for fault in log_faults(site.address):
        raise TableBroken(f"{site.name}: {fault}; {way_out(site)}")


def _refuse_lost_files(site: Site) -> None:
    table = tables.open_table(site.address)
    for fault in tables.file_faults(table) if table else []:
        raise TableBroken(f"{site.name}: {fault}; {way_out(site)}")


def way_out(site: Site) -> str:
    """What can be done about a table that is harmed. A reset leaves state behind, and goes on with the other tables."""
    first = "put the file back from a copy"
    if site.role == "state":
        return f"{first}, or begin anew with `floodmark reset`"
    return f"{first}; or remove {site.address}, with all that it holds, and begin anew with `floodmark reset`"
