"""Decides what to do after a crash, as one pure table: ledger × tables × qos → action. The running code obeys it.

Every table records, for each app id, the largest version it has seen. An epoch's version is `epoch * 2**20`, plus the
attempt if a retry writes again (user sinks at qos 1). A backfill's version is larger than those of the epoch that it
follows: `epoch * 2**20 + 2**19` plus its number in the generation. Number 0 belongs to the commit that takes the epoch
back. 2**63 - 1 seals an app id for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Row
from floodmark.core.rules.rule import Rule
from floodmark.core.text.tablenames import about_named
from floodmark.errors import Fenced, FloodmarkError, HistoryGone, LedgerBroken, Sealed, VerifyFailed

ATTEMPTS = 1 << 20
BACKFILLS = ATTEMPTS >> 1  # from here on, an epoch's versions are those of the backfills that follow it
SEAL = (1 << 63) - 1


class Gate(Enum):
    """The first action of a run."""

    BEGIN = "begin the first generation"
    CHANGE_GENERATION = "go on with the generation change that a seal row announced"
    ABANDON = "go on with taking the open epoch back, which a row announced"
    FINISH_BACKFILL = "finish the open backfill"
    FINISH_EPOCH = "finish the open intent"
    LOSE_EPOCH = "drop the open intent and count its rows as lost"
    PLAN = "plan what is new"


class Step(Enum):
    """The action of a write site for an epoch."""

    WRITE = "write, unless there are no rows"
    COMPARE = "already written: compare, do not write"


def at_the_gate(head: Head | None) -> Gate:
    """The first action, from the ledger alone."""
    if head is None:
        return Gate.BEGIN
    if head.seal is not None:
        return Gate.CHANGE_GENERATION
    if head.backfill is not None:
        return Gate.FINISH_BACKFILL
    if head.open is None:
        return Gate.PLAN
    if head.abandoning:
        return Gate.ABANDON
    return Gate.LOSE_EPOCH if opened_at_qos(head) == 0 else Gate.FINISH_EPOCH


def check_unfailed(head: Head) -> None:
    """Raise VerifyFailed if the open epoch or backfill has failed a check and nobody has decided on it yet."""
    if head.failed is not None:
        raise VerifyFailed(head.failed)


def failure_message(head: Head, rule: str, problem: str) -> str:
    """The ledger's message about a failed check, with the ways out. No run retries before one is taken."""
    what = f"epoch {head.epoch + 1}" if head.backfill is None else f"backfill {head.backfill.number}"
    abandon = f"or undo the epoch with `floodmark abandon {rule}`; " if head.backfill is None else ""
    return (
        f"rule {rule}, {what}: a check failed, and no run continues until you decide. {problem}. Ways out: undo the "
        f"change, then `floodmark recheck {rule}` and run again; {abandon}or start over with `floodmark reset {rule}`"
    )


def opened_at_qos(head: Head) -> int:
    """qos of the rule text in the open intent: that text finishes the epoch, whatever the rule file says now."""
    assert head.open is not None
    return Rule.from_json(head.open.rule).qos


def app_id(ledger: str, generation: int, token: str, role: str) -> str:
    """Identifies a writer: the ledger's table id, the generation with its token, and the write site's role."""
    return f"floodmark/{ledger}/g{generation}-{token}/{role}"


def earlier_apps(ledger: str, rows: Iterable[Row], head: Head) -> frozenset[str]:
    """The app ids under which generations before the head's wrote sinks, by the ledger's rows."""
    before = {(row.generation, row.token) for row in rows if row.generation < head.generation}
    return frozenset(app_id(ledger, generation, token, "sink") for generation, token in before)


def version_of(epoch: int, attempt: int, writes_again: bool) -> int:
    """The version of the app transaction by which a site writes an epoch."""
    return epoch * ATTEMPTS + (attempt if writes_again else 0)


def undo_version(epoch: int) -> int:
    """The version by which a sink takes an epoch back: above all of its attempts, below everything that follows it."""
    return epoch * ATTEMPTS + BACKFILLS


def before_write(recorded: int | None, epoch: int, attempt: int, writes_again: bool) -> Step:
    """The action of a site, given the version that its table has recorded.

    Raises Sealed, Fenced or LedgerBroken if a newer writer has written to it.
    """
    mine = version_of(epoch, attempt, writes_again)
    if recorded == SEAL:
        raise Sealed("this generation was sealed by a newer one; nothing was written")
    if recorded is not None and recorded >= (epoch + 1) * ATTEMPTS:
        raise LedgerBroken(f"a table has recorded epoch {recorded // ATTEMPTS}, while epoch {epoch} is being written")
    if recorded == undo_version(epoch):
        raise Fenced(f"epoch {epoch} was abandoned after attempt {attempt} began; nothing was written")
    if recorded is None or recorded < epoch * ATTEMPTS or (writes_again and recorded < mine):
        return Step.WRITE
    if recorded > mine:
        raise Fenced(f"attempt {recorded % ATTEMPTS} of epoch {epoch} has written after attempt {attempt} began")
    return Step.COMPARE


def backfill_version(epoch: int, number: int) -> int:
    """The app transaction's version of a backfill that follows `epoch`."""
    return epoch * ATTEMPTS + BACKFILLS + number


def before_backfill(recorded: int | None, epoch: int, number: int) -> Step:
    """The action of a sink for a backfill, given the version it has recorded. Raises Sealed or LedgerBroken."""
    mine = backfill_version(epoch, number)
    if recorded == SEAL:
        raise Sealed("this generation was sealed by a newer one; nothing was written")
    if recorded is not None and recorded > mine:
        raise LedgerBroken(f"a sink has recorded version {recorded}, while backfill {number} is to be version {mine}")
    return Step.COMPARE if recorded == mine else Step.WRITE


def check_tables(
    head: Head, recorded: Mapping[str, int | None], ids: Mapping[str, str | None], rewritten: Mapping[str, int]
) -> None:
    """Raise an error if a table and the ledger contradict each other.

    recorded, ids: for each table that the head knows, its recorded version and its id now (None: missing). rewritten:
    for each state table, the epoch by whose watermark it was rewritten since the head's commit (0: none).
    """
    for name, epoch in rewritten.items():
        if epoch > head.epoch:
            raise LedgerBroken(
                about_named(
                    name,
                    f"the table was rewritten after epoch {epoch}, the ledger ends at epoch {head.epoch}: its "
                    "newest rows are gone; restore the newest ledger, or start over with `floodmark reset`",
                )
            )
    for name, known in head.table_ids.items():
        fault = fault_of(name, known, ids.get(name), head.written.get(name), recorded.get(name))
        fault = fault or _ahead(name, head, recorded.get(name) or 0)
        if fault is not None:
            raise fault


def _ahead(name: str, head: Head, recorded: int) -> LedgerBroken | None:
    """The error if a table has recorded an epoch or backfill that this ledger cannot have written yet.

    After the head's epoch come the finished backfills and the open one. An open epoch follows these, and no backfill
    follows it before it is committed.
    """
    newest = backfill_version(head.epoch, len(head.backfills) + (head.backfill is not None))
    if head.open is not None and recorded >= (head.epoch + 1) * ATTEMPTS:
        newest = undo_version(head.epoch + 1) - (not head.abandoning)
    if recorded <= newest:
        return None
    return LedgerBroken(
        about_named(
            name,
            f"the table is ahead of the ledger (version {recorded}, expected {newest} at most): the home was "
            "restored from an older copy; restore the newest ledger, or start over with `floodmark reset`",
        )
    )


def overtaken(name: str, head: Head, recorded: int | None) -> str | None:
    """How a table shows that a newer copy of the ledger goes on with it; None if nothing shows so."""
    if recorded == SEAL:
        return None if head.seal is not None else "a generation that this ledger does not know goes on with it"
    if _ahead(name, head, recorded or 0) is None:
        return None
    return f"it is ahead of this ledger, which ends at epoch {head.epoch} (version {recorded} of its writes)"


def fault_of(
    name: str, known: str, found: str | None, written: int | None, recorded: int | None
) -> FloodmarkError | None:
    """The problem with a table, if its id or recorded version differs from what the ledger knows."""
    ways = "restore the right table, or start over with `floodmark reset`"
    if found is None:
        return HistoryGone(about_named(name, f"the table that the ledger has written to is gone; {ways}"))
    if found != known:
        return HistoryGone(
            about_named(name, f"expected the table with id {known}, found another with id {found}; {ways}")
        )
    if recorded == SEAL:
        return Sealed(
            about_named(name, f"this generation was sealed by a newer one that the ledger does not know; {ways}")
        )
    if written is not None and (recorded is None or recorded < written):
        return HistoryGone(
            about_named(name, f"the ledger wrote version {written}, but the table has recorded {recorded}; {ways}")
        )
    return None
