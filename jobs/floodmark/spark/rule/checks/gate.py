"""What a run looks at in its tables before it plans: they are the ledger's, where it knows them, and unharmed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.recovery import check_tables
from floodmark.errors import TableBroken
from floodmark.ledger.delta import datafiles, tablelog, tables
from floodmark.ledger.delta.damage import log_faults, mend
from floodmark.spark.write.sites import Site


def check(head: Head, known: Sequence[Site]) -> None:
    """Raises TableBroken, HistoryGone, Sealed or LedgerBroken. `known`: the sites of the head's generation."""
    for site in known:
        if site.role != "sink":  # those were looked after before Spark started
            mend(site.address, head.commits.get(site.name, 0))
        _refuse(site, log_faults(site.address))
    there = {site: table for site in known if (table := tables.open_table(site.address)) is not None}
    recorded = {site.name: tablelog.recorded_in(table, site.app) for site, table in there.items()}
    ids = {site.name: tables.table_id(table) for site, table in there.items()}
    state = [site for site in there if site.role == "state"]
    rewritten = {
        site.name: datafiles.rewritten_after(site.address, head.commits.get(site.name, 0), there[site].version())
        for site in state
    }
    check_tables(head, recorded, ids, rewritten)
    for site, table in there.items():
        if site.role != "sink":  # a sink's files are its reader's, and the auditor's, to look after
            _refuse(site, datafiles.file_faults(table))


def _refuse(site: Site, faults: Iterable[str]) -> None:
    for fault in faults:
        raise TableBroken(f"{site.name}: {fault}; {way_out(site)}")


def way_out(site: Site) -> str:
    """What can be done about a table that is harmed. A reset leaves state behind, and goes on with the other tables."""
    first = "put the file back from a copy"
    if site.role == "state":
        return f"{first}, or begin anew with `floodmark reset`"
    return f"{first}; or remove {site.address}, with all that it holds, and begin anew with `floodmark reset`"
