"""Decides whether an open epoch may be taken back, and what each sink has to undo. Pure.

Before the ledger announces it, everything that forbids it is checked, and nothing is written. After that the epoch
cannot end otherwise, so each step can be repeated: the version that a sink has recorded shows which steps it has done.

In state, `late` and `dead` nothing is undone: their rows carry the number of the epoch, and readers skip them. A sink
has other readers. There one commit removes what the epoch's commits added and restores what they removed. A sink
without commits of the epoch gets it, too: its version is above that of every attempt, so none can write any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from floodmark.core.lifecycle.life import check_living
from floodmark.core.protocol.presence import FileId, file_id
from floodmark.core.protocol.records.head import Head
from floodmark.core.protocol.records.rows import Abandoned, Undone
from floodmark.core.protocol.recovery import ATTEMPTS, SEAL, undo_version
from floodmark.core.text.tablenames import about_sink, last_part
from floodmark.errors import LedgerBroken, Refused, Sealed

Action = Mapping[str, Any]  # of a log entry


class Undo(Enum):
    """What a sink needs."""

    FENCE = "nothing of the epoch was written: record that nothing of it can be written later"
    TAKE_BACK = "undo what the epoch's commits did"
    DONE = "already undone: compare, do not write"


def before_undo(recorded: int | None, epoch: int) -> Undo:
    """What a sink needs, given the version it has recorded. Raises Sealed or LedgerBroken."""
    if recorded == SEAL:
        raise Sealed("this generation was sealed by a newer one; nothing was written")
    if recorded is not None and recorded > undo_version(epoch):
        raise LedgerBroken(f"a sink has recorded version {recorded}, while epoch {epoch} is being undone")
    if recorded == undo_version(epoch):
        return Undo.DONE
    return Undo.FENCE if recorded is None or recorded < epoch * ATTEMPTS else Undo.TAKE_BACK


def is_of(epoch: int, version: int) -> bool:
    """Whether a version that an app has recorded is that of an attempt at the epoch."""
    return epoch * ATTEMPTS <= version < undo_version(epoch)


def is_first(epoch: int, version: int) -> bool:
    """Whether the commit that recorded this version is the epoch's oldest; attempts are counted from 1."""
    return version <= epoch * ATTEMPTS + 1


@dataclass(frozen=True)
class Net:
    """The net effect of several commits on a table's files. `added`, `removed`: the log's action for each."""

    added: Mapping[FileId, Action] = field(default_factory=dict)
    removed: Mapping[FileId, Action] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        return {path for path, _ in (*self.added, *self.removed)}

    @property
    def is_nothing(self) -> bool:
        return not self.added and not self.removed


def net_of(commits: Iterable[Sequence[Action]]) -> Net:
    """The net effect of commits, given their actions, the oldest first; a file added and later removed has none."""
    added: dict[FileId, Action] = {}
    removed: dict[FileId, Action] = {}
    for actions in commits:
        for one in (action["remove"] for action in actions if "remove" in action):
            if added.pop(file_id(one), None) is None:
                removed[file_id(one)] = one
        for one in (action["add"] for action in actions if "add" in action):
            if removed.pop(file_id(one), None) is None:
                added[file_id(one)] = one
    return Net(added, removed)


def is_undone(done: Net, undone: Net) -> bool:
    """Whether a commit reversed exactly what others had done, and nothing else."""
    return (set(done.added), set(done.removed)) == (set(undone.removed), set(undone.added))


@dataclass(frozen=True)
class SinkState:
    """The state of one sink at an open epoch.

    commits: versions that the epoch's attempts have committed. net: their effect. touched: the first later version, by
    another writer, that moved one of these files. absent: a file to restore that is gone. only_grows: the property that
    forbids removing files from the table. readers: its readers. target: of the outbox of one, the target's name.
    """

    name: str
    address: str
    undo: Undo
    commits: tuple[int, ...] = ()
    net: Net = Net()
    touched: int | None = None
    absent: str | None = None
    only_grows: str | None = None
    readers: tuple[str, ...] = ()
    target: str | None = None

    @property
    def label(self) -> str:
        """For people."""
        return f"sink {last_part(self.address)}" if self.target is None else f"outbox of target {self.target}"

    @property
    def text(self) -> str:
        """What will happen to it, for people."""
        if self.undo is Undo.FENCE or self.net.is_nothing:
            return "has nothing of the epoch"
        shown = ", ".join(map(str, self.commits))
        return f"commit {shown} is undone" if len(self.commits) == 1 else f"commits {shown} are undone"


def abandonable(head: Head | None, name: str) -> Head:
    """The head of a rule with an epoch that can be taken back. Raises Refused, or Retired."""
    check_living(head, name)
    if head is None:
        raise Refused(f"rule {name} has not run yet: there is nothing to abandon")
    if head.seal is not None:
        raise Refused(f"rule {name}: a {head.seal.why} has not finished; `floodmark run {name}` continues it")
    if head.backfill is not None:
        raise Refused(
            f"rule {name}: expected an open epoch, found backfill {head.backfill.number} open, which has to end: "
            f"`floodmark run {name}` finishes it, or start over with `floodmark reset {name}`"
        )
    if head.open is None:
        raise Refused(
            f"rule {name}: expected an open epoch, found none: epoch {head.epoch} has ended, and there is nothing to "
            "abandon"
        )
    return head


def check_sink(rule: str, epoch: int, seen: Iterable[SinkState]) -> None:
    """Raise Refused if the epoch cannot be taken back out of a sink, with all reasons."""
    found = [about_sink(one.address, why) for one in seen if (why := _against(one))]
    if found:
        raise Refused(
            f"rule {rule}: epoch {epoch} cannot be abandoned, and nothing was written. {'. '.join(found)}. "
            f"`floodmark run {rule}` finishes the epoch, if possible; otherwise, start over with `floodmark reset "
            f"{rule}`"
        )


def _against(seen: SinkState) -> str | None:
    if seen.undo is not Undo.TAKE_BACK or seen.net.is_nothing:
        return None
    if seen.readers:
        return (
            f"commit {seen.commits[0]} of the epoch was written, and others read this table, so rows that they have "
            f"read cannot be undone ({'; '.join(seen.readers)})"
        )
    return undoable(seen)


def undoable(seen: SinkState) -> str | None:
    """Why the epoch's effect on a sink cannot be undone; None if it can."""
    if seen.touched is not None:
        return (
            f"expected the files of the epoch's commit {seen.commits[0]} unchanged, found that version "
            f"{seen.touched}, by another writer, has moved one of them"
        )
    if seen.absent is not None:
        return f"the epoch replaced the file {seen.absent}, which is gone (VACUUM), so it cannot be restored"
    if seen.only_grows is not None and seen.net.added:
        return f"{seen.only_grows} is set, so its rows cannot be removed; set it to false in the table"
    return None


def still_undoable(rule: str, epoch: int, seen: SinkState) -> None:
    """Raise Refused if it can no longer be undone; since the ledger has announced it, new readers do not matter."""
    why = undoable(seen)
    if seen.undo is Undo.TAKE_BACK and why is not None:
        changed = about_sink(seen.address, f"the table was changed meanwhile: {why}")
        raise Refused(
            f"rule {rule}: epoch {epoch} was being abandoned. {changed}. Undo that change (RESTORE of the table to the "
            f"version before it), or start over with `floodmark reset {rule}`"
        )


def abandoned_row(head: Head, tables: Mapping[str, Undone]) -> Abandoned:
    """The row that completes it.

    A sink that the epoch was the first to write is recorded by the next epoch's commit.
    """
    assert head.open is not None
    return Abandoned(
        intent=head.open.digest,
        entry=head.entry.text(),
        watermark=head.watermark,
        maxima=head.maxima,
        heard=head.heard,
        lost_epochs=(*head.lost, head.epoch + 1),
        tables=dict(tables),
    )


def undoing(entries: Iterable[tuple[int, Sequence[Action]]], mine: Collection[int]) -> tuple[Net, int | None]:
    """The net effect of the commits `mine`, and the first version by others that moved one of these files since.

    The version is None if all files are as they were left, including after a move that was undone. entries: version and
    actions of each log entry from the first of them on, the oldest first.
    """
    entries = list(entries)
    net = net_of(actions for version, actions in entries if version in mine)
    others = [(version, actions) for version, actions in entries if version not in mine]
    if not net_of(actions for _, actions in others).paths & net.paths:
        return net, None
    return net, next(version for version, actions in others if net_of([actions]).paths & net.paths)
