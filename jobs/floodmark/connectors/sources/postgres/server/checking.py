"""Checks before a table is read: what its server and its login allow, and whether its slot still has what is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from floodmark.connectors.sources.postgres.decoding.pgoutput import lsn_text
from floodmark.connectors.sources.postgres.offsets import FULL_ROWS, KEYS
from floodmark.connectors.sources.postgres.server.catalog import published
from floodmark.errors import HistoryGone, NotOwned, Refused

if TYPE_CHECKING:
    import psycopg

    from floodmark.connectors.sources.postgres.offsets import Form
    from floodmark.connectors.sources.postgres.server.catalog import Published, Table
    from floodmark.connectors.sources.postgres.server.slots import State

RESET = "start over with `floodmark reset`"
_ABLE = """
SELECT current_setting('wal_level'), rolreplication OR rolsuper, pg_is_in_recovery(),
  pg_has_role(c.relowner, 'USAGE') AND has_database_privilege(current_database(), 'CREATE')
FROM pg_roles, pg_class c WHERE rolname = current_user AND c.oid = %s"""


def check_able(connection: psycopg.Connection[Any], about: str, of: Table, makes: bool) -> None:
    """Raise Refused if no slot can be made for the table. `makes`: whether its publication is to be made, too."""
    row = connection.execute(_ABLE, (of.oid,)).fetchone()
    assert row is not None
    level, replicates, is_standby, owns = row
    login = connection.info.user
    if level != "logical":
        raise Refused(
            f"{about}: expected wal_level = logical, found {level}: ALTER SYSTEM SET wal_level = logical, and restart "
            "the server; or read new rows alone with `by: snapshots`"
        )
    if is_standby:
        raise Refused(f"{about}: expected a primary server, found a standby: name the primary in the connection")
    if not replicates:
        raise Refused(f"{about}: expected the right to make a slot, found none: ALTER ROLE {login} REPLICATION")
    if makes and not owns:
        raise Refused(
            f"{about}: expected the right to publish {of.title}, which its owner has (with CREATE in the database), "
            f"found none for {login}: CREATE PUBLICATION a_name FOR TABLE {of.title}, and name it with `publication`"
        )
    if makes and not of.tells_rows_apart:
        raise Refused(
            f"{about}: expected a primary key or replica identity of {of.title}, found none: PostgreSQL would refuse "
            f"its updates and deletes. ALTER TABLE {of.title} REPLICA IDENTITY FULL; or publish inserts alone, and "
            "name the publication with `publication`"
        )


def find_published(about: str, connection: psycopg.Connection[Any], of: Table, named: str) -> Published:
    found = published(connection, named, of)
    if found is None:
        raise Refused(
            f"{about}: expected a publication {named} with table {of.title}, found none: make it, or ALTER PUBLICATION "
            f"{named} ADD TABLE {of.title}. Changes made without it are not sent: if there were any, {RESET}"
        )
    return found


def check_published(about: str, named: str, of: Table, had: Published, found: Published) -> None:
    """Raise HistoryGone if the publication no longer sends what it did. had: without kinds, if that is unknown."""
    if not had.kinds or (set(had.kinds) <= set(found.kinds) and had.where == found.where):
        return
    raise HistoryGone(
        f"{about}: expected publication {named} to send {_sent(had)} of {of.title}, as before, found {_sent(found)}. "
        f"Changes made meanwhile are not sent: if there were any, {RESET}. Else "
        + "; ".join(_again(named, of, had, found))
    )


def _sent(one: Published) -> str:
    return (", ".join(one.kinds) or "nothing") + _condition(one)


def _condition(one: Published) -> str:
    return f" WHERE ({one.where})" if one.where else ""


def _again(named: str, of: Table, had: Published, found: Published) -> Iterator[str]:
    """The statements by which it sends what it did."""
    if not set(had.kinds) <= set(found.kinds):
        yield f"ALTER PUBLICATION {named} SET (publish = '{', '.join(had.kinds)}')"
    if had.where != found.where:
        yield f"ALTER PUBLICATION {named} DROP TABLE {of.title}"
        yield f"ALTER PUBLICATION {named} ADD TABLE {of.title}{_condition(had)}"


def check_old_rows(about: str, of: Table, had: Form, found: Form, kinds: Collection[str]) -> None:
    """Raise HistoryGone if deletes no longer come with the values that they had. An update of the key is one, too."""
    if not {"update", "delete"} & set(kinds):
        return
    parts = " and of each of its partitions" if of.kind == "p" else ""
    what, come = ("deletes", "") if "delete" in kinds else ("updates of the key", ", or plain updates")
    again = f"and run again: {what} that were made meanwhile are malformed rows{come}. To read {what} with"
    if (had.identity, found.identity) == (FULL_ROWS, KEYS):
        raise HistoryGone(
            f"{about}: expected REPLICA IDENTITY FULL of {of.title}{parts}, as before, found another: {what} would "
            f"come with old values of the key alone. ALTER TABLE ... REPLICA IDENTITY FULL, {again} those alone, "
            f"{RESET}"
        )
    lost = ", ".join(had.lost_key(found))
    if lost:
        raise HistoryGone(
            f"{about}: expected a replica identity of {of.title}{parts} with {lost}, as before, found one without: "
            f"{what} would lack its old value. Make it as it was, or REPLICA IDENTITY FULL, {again} the new one, "
            f"{RESET}"
        )


_LOST = {
    "wal_removed": "more log waited than max_slot_wal_keep_size allows",
    "idle_timeout": "nobody read it for longer than idle_replication_slot_timeout allows",
    "wal_level_insufficient": "wal_level was below logical",
}


def check_slot(about: str, slot: str, found: State | None, of: Table, lsn: int) -> None:
    """Raise HistoryGone unless the slot has all changes from `lsn` on."""
    since = lsn_text(lsn)
    if found is None:
        raise HistoryGone(
            f"{about}: expected replication slot {slot} with the changes of {of.title} from LSN {since} on, found "
            f"none: it was dropped. Changes since then cannot be read: {RESET}"
        )
    if found.wal_status == "lost":
        raise HistoryGone(
            f"{about}: expected the changes of {of.title} from LSN {since} on, found that the server has removed them: "
            f"replication slot {slot} is lost, because {_LOST.get(found.why or 'wal_removed', found.why)}. {RESET}, "
            "correct that setting, and run the rule more often"
        )
    if (found.plugin, found.database) != ("pgoutput", of.database):
        raise Refused(
            f"{about}: expected replication slot {slot} with plugin pgoutput in database {of.database}, found "
            f"{found.plugin} in {found.database}: name another one with `slot`"
        )
    if found.confirmed > lsn:
        raise HistoryGone(
            f"{about}: expected replication slot {slot} at LSN {since} or before, found {lsn_text(found.confirmed)}: "
            f"another reader has advanced it, or it was made anew. Changes between are gone: {RESET}"
        )


def check_own(about: str, slot: str, found: State | None, lsn: int | None) -> None:
    """Raise NotOwned if the slot is beyond `lsn`, the end of the home's landing (0: of nothing yet)."""
    if found is not None and lsn and found.confirmed > lsn:
        raise NotOwned(
            f"{about}: expected replication slot {slot} at LSN {lsn_text(lsn)} or before, which this home has landed, "
            f"found {lsn_text(found.confirmed)}: the home is an older copy. If the rule goes on in another home, "
            "remove this copy of the home by hand"
        )
