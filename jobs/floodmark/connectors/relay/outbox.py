"""The outbox of a target: a Delta table in the rule's home, to which epochs append what the target is to get.

Each commit that the ledger names is one portion. It holds the rows that come. With a key, it holds one row for each key
that changes, and `DELETE_COLUMN` is true in those that take the key's row away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.connectors.ports.sink import Account, Sink
from floodmark.core.rules.kinds import can_of, sink_kind
from floodmark.core.text.tablenames import about_sink
from floodmark.errors import NotOwned, Refused
from floodmark.ledger.delta import tablelog, tables
from floodmark.ledger.landings import FIRST, OUTBOX, app_of, cut_at

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from floodmark.core.rules import model


class OutboxSink(Sink):
    """The outbox in `folder`; None in a look without a home. The auditor reads its log itself."""

    def __init__(self, sink: model.Sink, folder: Path | None):
        self.address, self.sink, self.folder = str(sink.address), sink, folder

    @property
    def _place(self) -> str | None:
        return None if self.folder is None else str(self.folder)

    def id(self) -> str | None:
        table = None if self._place is None else tables.open_table(self._place)
        return None if table is None else tables.table_id(table)

    def check(self, owner: str | None) -> None:
        table = None if self._place is None else tables.open_table(self._place)
        found = None if table is None else tables.owner_of(table)
        if table is not None and found != owner:
            raise NotOwned(
                about_sink(
                    self.address,
                    f"expected an outbox of this rule's ledger ({owner or 'none yet'}) at {self._place}, found one of "
                    f"{found}: the home was mixed with another. Restore the home",
                )
            )

    def check_no_old_rows(self, app: str, rule: str, earlier: Collection[str] = ()) -> None:
        """The target has rows that upkeep has removed from the outbox, too."""
        table = None if self._place is None else tables.open_table(self._place)
        if table is None or tablelog.recorded_in(table, app) is not None:
            return
        shipped = app_of(str(tables.owner_of(table)), str(self._place).rpartition("/")[2], OUTBOX)
        if not tables.is_empty(table) or cut_at(str(self._place), shipped) > FIRST:
            raise Refused(
                about_sink(
                    self.address,
                    "expected a target without results, found an outbox with rows from before the last reset, which "
                    f"did not empty the target because rule {rule} did not have this sink then. Start over with "
                    f"`floodmark reset {rule}`, or name another sink",
                )
            )

    def check_changeable(self) -> None:
        """Rows are only added to an outbox; the target follows."""

    def check_replaceable(self) -> None:
        """Likewise."""

    def check_can_be_emptied(self) -> None:
        """Raise Refused unless a relay can take the target's rows away, or they are to stay."""
        if self.sink.on_reset != "keep" and not can_of(self.sink).empties:
            lacks = sink_kind(self.sink.kind).lacks.get("empties")
            raise Refused(
                about_sink(
                    self.address,
                    f"expected a target whose rows a reset can take away, found {self.sink.kind}"
                    f"{f' without {lacks}' if lacks else ''}. Write `on_reset: keep` in the sink: its rows then stay, "
                    "and those of the new generation follow them",
                )
            )

    def account(self, deep: bool) -> Account | None:
        """The auditor never asks for it."""
        raise LookupError(f"{self.address}: an outbox is audited by its log")
