"""Sinks that are no Delta tables: the account that each gives of itself, as a log.

The auditor cannot read such a sink. So it is given `accounts`, which ask the sink's own kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from floodmark.audit.effects.sinktables import PREFIX, Sink, other_sinks
from floodmark.audit.evidence import Base, File, Finding, LogEntry, TableLog, Tally
from floodmark.audit.ledger.named import Named, ids_of
from floodmark.audit.ledger.story import Story
from floodmark.redaction import redacted


class Write(Protocol):
    """One write, by whomever. `commit`: its number; those of later writes are larger. `app`, `version`: by which its
    writer recorded it; `metadata`: what it says of itself; `added`, `removed`: rows that came and went; `held`: the
    digest of those that came, read back, None where some have gone since."""

    @property
    def commit(self) -> int: ...
    @property
    def app(self) -> str | None: ...
    @property
    def version(self) -> int | None: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def added(self) -> int: ...
    @property
    def removed(self) -> int: ...
    @property
    def held(self) -> Mapping[str, Any] | None: ...


class Account(Protocol):
    """Which sink it is, and all its writes, oldest first."""

    @property
    def id(self) -> str: ...
    @property
    def writes(self) -> Sequence[Write]: ...


Accounts = Callable[[Sink, bool], Account | None]  # `True`: with what it holds


def others_in(story: Story) -> dict[str, Sink]:
    """The sinks of all texts of a ledger that are no Delta tables, by the ledger's name, by the newest text of each.

    Those with an outbox are left out: that is a Delta table.
    """
    return {name: sink for name, sink in _others(story).items() if not sink.get("outbox")}


def outboxes(story: Story, root: str) -> dict[str, str]:
    """Where the outboxes of a ledger's targets are, by the id of each. `root`: the rule's home."""
    places = {name: f"{root}/{sink['outbox']}" for name, sink in _others(story).items() if sink.get("outbox")}
    ids = [(name, id_) for one in story.generations for name, id_ in ids_of(one).items()]
    return {id_: places[name] for name, id_ in ids if name in places}


def cut_apps(story: Story, ledger: str, table: str) -> frozenset[str]:
    """The app ids under which upkeep takes old portions out of the outbox of a sink; none if it never had one."""
    sinks = (sinks.get(table, {}) for sinks in _texts(story))
    return frozenset(f"floodmark/{ledger}/{sink['outbox']}/cut" for sink in sinks if sink.get("outbox"))


def targets_in(story: Story) -> dict[str, Sink]:
    """The sinks of the newest text that are targets, by the ledger's name."""
    last = story.generations[-1] if story.generations else None
    bodies = [] if last is None else [last.begun, *(epoch.intent for epoch in last.epochs)]
    text = next((body["rule"] for body in reversed(bodies) if "rule" in body), None)
    sinks = {} if text is None else other_sinks(json.loads(text)["sinks"])
    return {name: sink for name, sink in sinks.items() if sink.get("outbox")}


def _others(story: Story) -> dict[str, Sink]:
    return {name: sink for sinks in _texts(story) for name, sink in sinks.items()}


def _texts(story: Story) -> list[dict[str, Sink]]:
    """The sinks that are no Delta tables, of each text of a ledger, the newest last."""
    bodies = [body for one in story.generations for body in (one.begun, *(epoch.intent for epoch in one.epochs))]
    newest_last = {str(body["rule"]): i for i, body in enumerate(bodies) if "rule" in body}
    texts = sorted(newest_last, key=newest_last.__getitem__)
    return [other_sinks(json.loads(text)["sinks"]) for text in texts]


def account_log(name: str, sink: Sink, accounts: Accounts | None, deep: bool) -> tuple[TableLog, str | None]:
    """The account of a sink as a log, and why it cannot be had; the log is then not readable."""
    address = name.removeprefix(PREFIX)
    if accounts is None:
        return TableLog(address, None, readable=False), "this audit has no way to read its writes"
    try:
        account = accounts(sink, deep)
    except Exception as fault:  # of a kind that the auditor does not know: a server that is down, a missing module
        return TableLog(address, None, readable=False), redacted(
            f"it cannot be asked ({type(fault).__name__}: {fault})"
        )
    return TableLog(address, None) if account is None else _log(address, account), None


def _log(address: str, account: Account) -> TableLog:
    writes = account.writes
    return TableLog(
        address,
        account.id,
        tuple(_entry(one) for one in writes),
        checkpoint=Base(),
        version=writes[-1].commit if writes else -1,
        moves={one.commit: (one.added, one.removed) for one in writes},
        held={one.commit: one.held for one in writes},
    )


def _entry(one: Write) -> LogEntry:
    mine = () if one.app is None or one.version is None else ((one.app, one.version),)
    rows = (File(f"write {one.commit}", 0, one.added),) if one.added else ()
    changes = bool(one.added or one.removed)
    return LogEntry(one.commit, mine, one.metadata, str(one.metadata.get("operation", "")), rows, changes=changes)


def differing(named: Sequence[Named], log: TableLog, tally: Tally) -> Iterator[Finding]:
    """The writes whose rows, read back, are not those that the ledger names."""
    last_removal = max((commit for commit, (_, removed) in (log.moves or {}).items() if removed), default=-1)
    for one in named:
        written = one.written.get("digest")
        if written is None or log.at(one.commit) is None:
            continue
        held = log.held.get(one.commit)
        if held is not None:
            tally.recomputed += 1
            if dict(held) != written:
                yield one.finding("the rows that it wrote, read back, are not those that the ledger names")
        elif last_removal <= one.commit:
            yield one.finding("some of the rows that it wrote are gone, and no later write removed them")
