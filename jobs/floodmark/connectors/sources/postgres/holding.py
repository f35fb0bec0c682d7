"""The slot of a stream: made with the first snapshot, adopted, advanced, released. Its name is in the rule's home."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.server import kept, slots
from floodmark.connectors.sources.postgres.server.checking import check_own
from floodmark.connectors.sources.postgres.server.kept import Kept
from floodmark.errors import HistoryGone, Refused, RunFailed

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.sources.postgres.options import WrittenPostgres
    from floodmark.connectors.sources.postgres.server.catalog import Table
    from floodmark.connectors.sources.postgres.server.database import Database


class Holder:
    """`keep`: the folder in the rule's home; None for a look without one."""

    def __init__(self, about: str, said: WrittenPostgres, keep: Path | None):
        self._about, self._said, self._keep = about, said, keep

    @cached_property
    def kept(self) -> Kept | None:
        """None before the first run."""
        return kept.load(self._keep)

    @property
    def names(self) -> slots.Names:
        if self.kept is None:
            raise HistoryGone(
                f"{self._about}: expected the name of its replication slot in {self._keep}, found none. Restore the "
                "rule's home, or start over with `floodmark reset`"
            )
        for key, had in (("slot", self.kept.slot), ("publication", self.kept.publication)):
            said = getattr(self._said, key)
            if said not in (None, had):
                raise Refused(
                    f"{self._about}: expected `{key}: {had}`, with which the stream began, found {said}: write {had}, "
                    "or have a rule with another name begin with it"
                )
        return slots.Names(self.kept.slot, self.kept.publication)

    @property
    def made_publication(self) -> bool:
        return self.kept is not None and self.kept.made_publication

    def publication(self, asked: psycopg.Connection[Any]) -> str | None:
        """None if it is yet to be made: before the first run, or because it failed before it made the slot."""
        if self.kept is None:
            return self._said.publication
        named = self.names.publication
        return None if self.kept.made_publication and self.state(asked) is None else named

    def state(self, asked: psycopg.Connection[Any]) -> slots.State | None:
        return slots.state(asked, self.names.slot)

    def taken(self, database: Database) -> slots.Exported | None:
        """The first snapshot, if this process took it and still has it."""
        return None if self.kept is None else slots.exported(database, self.kept.slot)

    def snapshot(self, database: Database) -> slots.Exported:
        found = self.taken(database)
        if found is None:
            raise RunFailed(
                f"{self._about}: expected the first snapshot that this process took, found none: it ended with its "
                "connection. Nothing of it was kept; retry"
            )
        return found

    def make(self, database: Database, asked: psycopg.Connection[Any], of: Table) -> slots.Exported | None:
        """Make the slot, in place of one that a killed run has left: nothing of that was kept.

        None: it is one that the rule names, and that was there already.
        """
        known = self.kept or self._choose(asked)
        if not known.made_slot:
            return None
        slots.forget_exported(database, known.slot)
        slots.drop(asked, known.slot)
        if known.made_publication:
            slots.publish(asked, known.publication, of)
        return slots.create(database, known.slot, of)

    def forget_adopted(self) -> None:
        """Forget the name of a slot that was there already, for a stream that has read nothing: it may have another."""
        if self.kept is not None and self._keep is not None and not self.kept.made_slot:
            kept.remove(self._keep)
            self.kept = None

    def check_is_new(self, asked: psycopg.Connection[Any], advice: str) -> None:
        """Raise Refused before anything is kept if the rule names a slot that is there already."""
        said = self._said.slot
        if self.kept is None and said is not None and slots.state(asked, said) is not None:
            raise Refused(
                f"{self._about}: expected `start: latest` beside `slot: {said}`, because a slot that exists has no "
                f"snapshot of the rows before it, found `start: earliest`: {advice}"
            )

    def _choose(self, asked: psycopg.Connection[Any]) -> Kept:
        """Choose the names, and write them down before the server has them."""
        assert self._keep is not None, "a look makes nothing"
        own, said = kept.new_name(self._keep), self._said
        exists = said.slot is not None and slots.state(asked, said.slot) is not None
        if exists and said.publication is None:
            raise Refused(
                f"{self._about}: expected `publication` beside `slot: {said.slot}`, because a slot that exists sends "
                "changes of publications that were there before them, found none. Name it, or another slot"
            )
        found = Kept(said.slot or own, said.publication or own, not exists, said.publication is None)
        kept.save(self._keep, found)
        self.kept = found
        return found

    def adopted(self, asked: psycopg.Connection[Any]) -> int:
        """Where the slot begins that was there already."""
        slot, found = self.names.slot, self.state(asked)
        if found is None:
            raise Refused(f"{self._about}: expected replication slot {slot}, found none: it was dropped. Make it again")
        return found.confirmed

    def advance(self, database: Database, lsn: int) -> None:
        names = self.names
        slots.forget_exported(database, names.slot)
        with database.connected() as asked:
            slots.advance(asked, names.slot, lsn)

    def check_release(self, database: Database, lsn: int | None) -> None:
        """Raise NotOwned if `release` would."""
        if self.kept is not None and self.kept.made_any:
            with database.connected() as asked:
                check_own(self._about, self.kept.slot, slots.state(asked, self.kept.slot), lsn)

    def release(self, database: Database, lsn: int | None) -> None:
        """Drop what was made in the database. Raises NotOwned if the slot is beyond what this home has landed.

        lsn: up to which it has; None: unknown.
        """
        known, keep = self.kept, self._keep
        if known is None or keep is None:
            return
        slots.forget_exported(database, known.slot)
        if known.made_any:
            self._drop(database, known, lsn)
        kept.remove(keep)

    def _drop(self, database: Database, known: Kept, lsn: int | None) -> None:
        with database.connected() as asked:
            check_own(self._about, known.slot, slots.state(asked, known.slot), lsn)
            if known.made_slot:
                slots.drop(asked, known.slot)
            if known.made_publication:
                slots.unpublish(asked, known.publication)
