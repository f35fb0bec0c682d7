"""A Delta table as a sink."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from floodmark.core.protocol.places import places_of
from floodmark.core.rules.kinds import tables_written
from floodmark.core.rules.sinks.sinkcolumns import appends_only
from floodmark.core.rules.sinks.tableproperties import REFUSED, STATISTICS, forgetful, lacks_statistics
from floodmark.core.text.addresses import location
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import NotOwned, Refused
from floodmark.ledger.delta import tablelog, tables

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule, Sink


class DeltaSink:
    """A Delta table that a rule writes. It records each app id's last version, so a repeated write has no effect."""

    def __init__(self, address: str):
        self.address = location(address)

    def id(self) -> str | None:
        """Of the table; None where there is none."""
        table = tables.open_table(self.address)
        return None if table is None else tables.table_id(table)

    def check(self, owner: str | None) -> None:
        """Refuse a table that `owner` does not own (a ledger's id; None: no ledger yet). Writes nothing."""
        table = tables.open_table(self.address)
        if table is None:
            return
        found = tables.owner_of(table)
        if found is not None and found != owner:
            raise NotOwned(
                about_sink(
                    self.address,
                    f"it belongs to another rule's ledger (id {found}; this rule's ledger: "
                    f"{owner or 'none yet'}). This happens when a rule was renamed, lost its home or runs from a "
                    "second home. Rename the home, too (`floodmark rename OLD NEW`), restore the old home or name, or "
                    "name another sink",
                )
            )
        if found is None and not tables.is_empty(table):
            raise NotOwned(
                about_sink(
                    self.address,
                    f"it has rows that no ledger accounts for. Name an empty or a new table, or "
                    f"take it over with its rows: `floodmark adopt RULE {self.address}`",
                )
            )
        self.check_keeps_transactions(table)

    def check_keeps_transactions(self, table: DeltaTable) -> None:
        """Refuse a table that would forget the recorded versions of an app, or whose log is stored elsewhere."""
        if name := forgetful(table.metadata().configuration):
            raise Refused(
                about_sink(
                    self.address,
                    f"{name} is set in the table, so no rule can write to it: {REFUSED[name]}. Unset "
                    f"it (`ALTER TABLE ... UNSET TBLPROPERTIES ('{name}')`)",
                )
            )

    def check_statistics(self) -> None:
        """Refuse a table whose checkpoints hold no statistics; a rule that replaces rows needs those of its files."""
        if lacks_statistics(tables.properties_of(self.address)):
            raise Refused(
                about_sink(
                    self.address,
                    f"{' and '.join(STATISTICS)} are false in the table, and replacing rows needs one of them. "
                    f"Set one to true (`ALTER TABLE ... SET TBLPROPERTIES ('{STATISTICS[0]}' = 'true')`)",
                )
            )

    def check_no_old_rows(self, app: str, rule: str, earlier: Collection[str] = ()) -> None:
        """Refuse rows of an earlier generation in a sink that is added to the generation of this `app`.

        Rows of an adopted table may be older than the rule. They are not if one of the `earlier` apps wrote to it.
        """
        table = tables.open_table(self.address)
        if table is None or tables.is_empty(table) or tablelog.recorded_in(table, app) is not None:
            return
        if tables.adopted_at(table) is None:
            raise Refused(
                about_sink(
                    self.address,
                    f"expected an empty table, found rows from before the last reset, which did not "
                    f"empty it because rule {rule} did not have this sink then. Start over with `floodmark reset "
                    f"{rule}`, or name another sink",
                )
            )
        if any(tablelog.recorded_in(table, one) is not None for one in earlier):
            raise Refused(
                about_sink(
                    self.address,
                    f"expected an adopted table without results of rule {rule}, found one that was its sink before "
                    "the last reset, which took no row away. The same results would follow them. Name another sink; "
                    f"or keep both with `floodmark reset {rule} --keep-output`",
                )
            )

    def check_partitions(self, wanted: Sequence[str]) -> None:
        """Refuse a table with other partitions than its sink declares; its files would have to be rewritten."""
        table = tables.open_table(self.address)
        found = None if table is None else tables.partitions_of(table)
        if found is not None and [name.lower() for name in found] != [name.lower() for name in wanted]:
            said = f"write `partition_by: [{', '.join(found)}]`" if found else "remove `partition_by`"
            raise Refused(
                about_sink(
                    self.address,
                    f"expected a table partitioned by {', '.join(wanted) or 'nothing'} "
                    f"(`partition_by`), found one partitioned by {', '.join(found) or 'nothing'}: {said}, or name "
                    "another sink; if the table is the rule's own, `floodmark reset` recreates it with the new layout",
                )
            )

    def check_replaceable(self) -> None:
        """Refuse a table whose rows may not be taken away."""
        self._check_own("those could be among the replaced rows; name another sink")

    def check_changeable(self) -> None:
        """Refuse an append-only table."""
        table = tables.open_table(self.address)
        if table is not None and (name := appends_only(table.metadata().configuration)):
            raise Refused(
                about_sink(
                    self.address,
                    f"{name} is set, so its rows cannot be replaced or removed; set it to false in "
                    "the table (ALTER TABLE ... SET TBLPROPERTIES)",
                )
            )

    def check_can_be_emptied(self) -> None:
        """Refuse a table whose rows a reset may not take away."""
        self._check_own(
            "a reset would remove them. Name another sink, or keep all rows of the sinks with --keep-output"
        )

    def _check_own(self, why: str) -> None:
        """Refuse a table that only grows, or with rows that were there before the rule. `why`: not, and what to do."""
        self.check_changeable()
        table = tables.open_table(self.address)
        if table is not None and tables.adopted_at(table) is not None:
            raise NotOwned(about_sink(self.address, f"it was adopted with rows that are not the rule's, and {why}"))


def check_partitions(rule: Rule, made_by: str | None = None, fresh: Collection[str] = ()) -> None:
    """Refuse sinks whose tables exist, keep their layout, and have other partitions than the rule declares.

    `made_by`: a ledger whose own tables don't keep their layout as long as they are empty; `fresh`: tables, by
    location, that get the layout of today.
    """
    for address, sink in delta_sinks(rule).items():
        if address in fresh:
            continue
        table = tables.open_table(address) if made_by else None
        if table is None or tables.owner_of(table) != made_by:
            DeltaSink(address).check_partitions(sink.partition_by)


def refitted(rule: Rule, head: Head | None, owner: str | None) -> set[str]:
    """The rule's tables, by location, that the next run gives the layout of today.

    Runs of this `owner`, a ledger, have made them; no commit names them, and they hold nothing.
    """
    listed = set(places_of(head).values()) if head else set()
    opened = {address: tables.open_table(address) for address in delta_sinks(rule) if address not in listed}
    return {address for address, table in opened.items() if owner and table and tables.is_unused(table, owner)}


def delta_sinks(rule: Rule) -> dict[str, Sink]:
    """The rule's Delta sinks by location, in the rule's order."""
    return {location(str(sink.address)): sink for sink in tables_written(rule)}
