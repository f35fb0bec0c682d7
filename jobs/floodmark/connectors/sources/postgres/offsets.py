"""Offsets in a table of PostgreSQL: places in the log of changes, and numbers of transactions. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from floodmark.connectors.sources.postgres.decoding.pgoutput import lsn_of, lsn_text

# A row keeps 32 bits of its transaction's number, which a new transaction has again 2**32 transactions later.
WRAP, RENEWED_AFTER, MOST_AHEAD = 1 << 32, 1 << 29, 1 << 31


@dataclass(frozen=True)
class Place:
    """system: the identifier of the cluster. table: its oid."""

    system: str
    database: str
    table: int

    @property
    def text(self) -> str:
        return f"{self.system}/{self.database}/{self.table}"

    def difference(self, now: Place) -> str | None:
        """Why this is another table."""
        if now.system != self.system:
            return f"expected the database cluster with identifier {self.system}, found {now.system}"
        if now.database != self.database:
            return f"expected database {self.database}, found {now.database}"
        if now.table != self.table:
            return f"the table was made anew: expected the one with oid {self.table}, found {now.table}"
        return None


FULL_ROWS, KEYS = "full", "keys"  # what the log has of a row that is removed


@dataclass(frozen=True)
class Form:
    """A table when an offset was taken. Offsets of older versions have none.

    before: all transactions with a lower number had ended. columns: of each its number in the table, and the
    transaction that wrote its row of the catalog. files: by the oid of the table, or of each partition that has rows of
    its own, its file (empty if it had no page), and the transactions that attached it. identity: FULL_ROWS, KEYS; empty
    if it is unknown. key: with KEYS, columns that each row that is removed has a value of; None if that is unknown.
    """

    before: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    identity: str = ""
    key: list[str] | None = None

    def said(self) -> dict[str, object]:
        """What it adds to an offset's line: nothing if it is unknown."""
        unknown = {"identity": "", "key": None}
        found = {name: one for name, one in asdict(self).items() if name not in unknown or one != unknown[name]}
        return {"form": found} if self.before else {}

    @property
    def has_whole_rows(self) -> bool:
        """Whether deletes that were made since then have all values of their rows, or the identity has changed."""
        return self.identity == FULL_ROWS

    def with_identity_of(self, other: Form) -> Form:
        return replace(self, identity=other.identity, key=other.key)

    def lost_key(self, now: Form) -> list[str]:
        """Columns that rows that are removed no longer have a value of."""
        if self.key is None or now.key is None:
            return []
        return [name for name in self.key if name in now.columns and name not in now.key]

    def replaced(self, now: Form) -> list[str]:
        """Columns of which another has the name now."""
        return [name for name in self._kept(now) if _first(self.columns[name]) != _first(now.columns[name])]

    def altered(self, now: Form) -> list[str]:
        """Columns that a statement has altered since, be it only their default."""
        return [name for name in self._kept(now) if self.columns[name] != now.columns[name]]

    def _kept(self, now: Form) -> Iterator[str]:
        return (name for name in self.columns if name in now.columns)

    def gone(self, now: Form) -> list[str]:
        """Partitions with rows that are no longer there."""
        return [oid for oid, file in self.files.items() if oid not in now.files and _first(file)]

    def come(self, now: Form) -> list[str]:
        return [oid for oid in now.files if oid not in self.files]

    def attached_again(self, now: Form) -> list[str]:
        return [oid for oid, file in self.files.items() if oid in now.files and _rest(file) != _rest(now.files[oid])]

    def written_anew(self, now: Form) -> list[str]:
        """What has another file than the one with the rows that were read."""
        found = ((oid, _first(file)) for oid, file in self.files.items() if oid in now.files)
        return [oid for oid, file in found if file and file != _first(now.files[oid])]


def _first(text: str) -> str:
    return text.partition(" ")[0]


def _rest(text: str) -> str:
    return text.partition(" ")[2]


@dataclass(frozen=True)
class SlotOffset:
    """All transactions whose commit lies before `lsn` are read; 0: nothing is, not even the first snapshot.

    form: of the table, before the offset was taken. kinds, where: of changes that its publication sent by then, and of
    which rows; none in offsets of older versions. following: a number above those of all transactions that had ended
    once it was taken; 0: unknown, as in offsets of older versions.
    """

    place: Place
    lsn: int = 0
    form: Form = Form()
    kinds: tuple[str, ...] = ()
    where: str | None = None
    following: int = 0

    @classmethod
    def parse(cls, line: str) -> SlotOffset:
        said = json.loads(line)
        lsn, form = said.pop("lsn"), Form(**said.pop("form", {}))
        kinds, where, following = said.pop("kinds", ()), said.pop("where", None), said.pop("following", 0)
        return cls(Place(**said), lsn_of(lsn), form, tuple(kinds), where, following)

    def line(self) -> str:
        sent = {"kinds": self.kinds, "where": self.where, "following": self.following}
        more = {**self.form.said(), **{name: one for name, one in sent.items() if one}}
        return json.dumps({**asdict(self.place), "lsn": lsn_text(self.lsn), **more})

    def at(self, lsn: int) -> SlotOffset:
        return replace(self, lsn=lsn)

    def step(self, read: SlotOffset, lsn: int) -> SlotOffset:
        """Where a step ends on the way to it. Changes behind it may be older than the replica identity is now."""
        found = self.at(lsn)
        return found if lsn >= self.lsn else replace(found, form=self.form.with_identity_of(read.form))

    def of_unknown_identity(self) -> SlotOffset:
        return replace(self, form=self.form.with_identity_of(Form()))


@dataclass(frozen=True)
class RowsOffset:
    """The rows of all transactions with a number below `before` are read; 0: none.

    updated: rows of the table that were updated since the server began to count, also where that was rolled back.
    Numbers have 64 bits. storage, layout: as of `Table`; empty in offsets of older versions, which did not know them,
    nor the form.
    era: when the server began to count. deleted: as `updated`. rows: how many rows of such transactions the table had;
    None: unknown, as in offsets of older versions.
    """

    place: Place
    before: int = 0
    updated: int = 0
    storage: str = ""
    layout: str = ""
    form: Form = Form()
    era: str = ""
    deleted: int = 0
    rows: int | None = None

    @classmethod
    def parse(cls, line: str) -> RowsOffset:
        said = json.loads(line)
        form = Form(**said.pop("form", {}))
        place = Place(*(said.pop(name) for name in ("system", "database", "table")))
        return cls(place, form=form, **said)

    def line(self) -> str:
        more = {"storage": self.storage, "layout": self.layout, "era": self.era, "deleted": self.deleted}
        own = {"before": self.before, "updated": self.updated, **{name: one for name, one in more.items() if one}}
        rows = {} if self.rows is None else {"rows": self.rows}
        return json.dumps({**asdict(self.place), **own, **rows, **self.form.said()})

    def may_be_written_anew(self, now: RowsOffset) -> bool:
        """Whether a statement that alters the table may have written its rows anew since, under new numbers."""
        is_known = bool(self.before and self.storage)
        return is_known and self.storage != now.storage and self.layout != now.layout

    def is_counted_anew(self, now: RowsOffset) -> bool:
        """Whether the server has forgotten its counts since: by a crash, a failover or a reset."""
        return bool(self.before) and (now.updated < self.updated or (bool(self.era) and self.era != now.era))

    def may_be_updated(self, now: RowsOffset) -> bool:
        """Whether the server has counted updates since; also those that were rolled back, and of rows not yet read."""
        return bool(self.before) and now.updated > self.updated

    def lacks(self, now: RowsOffset, left: int) -> int:
        """How many rows are gone, and nobody is known to have deleted them. left: how many that were read are there.

        The server may count an update seconds later; that the old row is gone is seen at once.
        """
        is_emptied = not left and self.storage != now.storage
        if self.rows is None or is_emptied:
            return 0
        return max(0, self.rows - left - max(0, now.deleted - self.deleted))

    def is_touched(self, now: RowsOffset) -> bool:
        return self.may_be_updated(now) or self.is_counted_anew(now)

    def is_stale(self, now: RowsOffset, left: int) -> bool:
        """Whether rows are gone since they were counted, so that a later check would take them for updated ones."""
        return self.lacks(now, left) > 0 or (self.is_touched(now) and left != self.rows)

    def at(self, before: int) -> RowsOffset:
        return replace(self, before=before, rows=None)

    def step(self, before: int, behind: int) -> RowsOffset:
        """Where a step ends on the way to it. behind: how many of its rows come after the step."""
        return replace(self.at(before), rows=None if self.rows is None else max(0, self.rows - behind))


def safe_until(now: int, distance: int | None) -> int:
    """The number up to which rows can be told apart.

    now: the number that the next transaction gets. distance: how many numbers lie between its low 32 bits and those of
    the next row (None: of no row), around the wrap.
    """
    return now + min(MOST_AHEAD, WRAP if distance is None else distance)


def is_due(safe: int, now: int) -> bool:
    """Whether the check of what can be told apart is to be renewed."""
    return safe - now < RENEWED_AFTER
