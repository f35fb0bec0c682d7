"""The certificate: what the ledger and the table logs of one rule prove, and what they do not."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from floodmark.audit import logreader
from floodmark.audit.effects.accounts import Accounts, account_log, others_in, outboxes, targets_in
from floodmark.audit.effects.effects import Effects
from floodmark.audit.evidence import Finding, Row, Since, TableLog, Tally, Verdict, decided_since, worst
from floodmark.audit.forgotten import forgotten
from floodmark.audit.ledger.balance import balanced, deferred, excess_rejections, refilled, repeated_offsets
from floodmark.audit.ledger.chain import chained, counted_rows, misshapen
from floodmark.audit.ledger.generations import Generation, forgot_in
from floodmark.audit.ledger.named import address_of, ids_of, named_in
from floodmark.audit.ledger.story import Story
from floodmark.audit.targets import Books, TargetCheck, Targets
from floodmark.redaction import redacted

BEGINNING = Since(1, 0)
ENDS = ("commit", "lost", "abandoned")  # rows that end an epoch, or begin a generation
LOOKS = 5  # at a rule that works meanwhile
PARTS = ("read", "filtered", "dropped", "folded", "late", "dead")


class NotEnded(ValueError):
    """A verdict was asked for since an epoch that has not ended."""


@dataclass
class Certificate:
    """`head`: hash of the ledger's newest row. Save it to detect later whether the ledger was rewritten.

    since: the first epoch that the verdict is about; None: all are. newest: the newest one that has ended.
    """

    rule: str
    deep: bool
    ledger: str
    rows: int
    head: str
    findings: list[Finding]
    generations: list[Generation] = field(default_factory=list)
    tables: dict[str, Tally] = field(default_factory=dict)
    undelivered: dict[str, int] = field(default_factory=dict)  # rows that a target refused and lacks, by its name
    behind: dict[str, int | None] = field(
        default_factory=dict
    )  # by target: what is not shipped; None: it was not asked
    since: Since | None = None
    newest: Since = BEGINNING

    @property
    def verdict(self) -> Verdict:
        return worst([one for one in self.findings if not self.leaves_out(one)])

    @property
    def decided_since(self) -> Since | None:
        """The epoch from which on everything is proven, where that cannot be decided of earlier ones."""
        return decided_since(self.findings, self.newest)

    def leaves_out(self, finding: Finding) -> bool:
        """Whether the verdict does not depend on a finding, because it is about epochs before `since`."""
        return self.since is not None and self.since.leaves_out(finding)

    def facts(self) -> dict[str, Any]:
        """The whole certificate, as values for JSON."""
        return {
            "rule": self.rule,
            "verdict": self.verdict,
            "deep": self.deep,
            "since": self.since and asdict(self.since),
            "ledger": {"id": self.ledger, "rows": self.rows, "head": self.head},
            "generations": [_generation(one) for one in self.generations],
            "tables": {name: asdict(tally) for name, tally in sorted(self.tables.items())},
            "undelivered": self.undelivered,
            "behind": self.behind,
            "findings": [{**asdict(one), "counts": not self.leaves_out(one)} for one in self.findings],
        }


def _generation(one: Generation) -> dict[str, Any]:
    ended = [epoch for epoch in one.epochs if epoch.result != "open"]
    committed = [epoch for epoch in ended if epoch.result == "committed"]
    counts = [counts for epoch in committed for counts in epoch.end["counts"].values()]
    return {
        "generation": one.number,
        "epochs": len(ended),
        "open": len(one.epochs) - len(ended),
        "backfills": sum(backfill.result == "committed" for backfill in one.backfills),
        "attempts": sum(epoch.attempts for epoch in one.epochs),
        "sealed": one.seal is not None,
        "deferred": 0 if one.seal is not None else len(one.outstanding),
        "abandoned_epochs": [epoch.number for epoch in ended if epoch.result == "abandoned"],
        "lost_epochs": [epoch.number for epoch in ended if epoch.result == "lost"],
        "rows": {part: sum(one.get(part, 0) for one in counts) for part in PARTS}
        | {"lost": sum(epoch.end["lost"] for epoch in ended if epoch.result == "lost")},
        "output": sum(epoch.end["output_rows"] for epoch in committed),
    }


def audit(
    rule: str,
    home: Path,
    deep: bool,
    accounts: Accounts | None = None,
    targets: Targets | None = None,
    since: int | datetime | None = None,
) -> Certificate | None:
    """The certificate of a rule whose ledger lies in `home`; None where it has none. Reads, and writes nothing.

    `accounts`: ask a sink that is no Delta table for the account of its writes. Without them such a sink is unknown.
    `targets`: ask a target outside of the lake what it has, if `deep`. Without them only its outbox is checked.
    `since`: an epoch of the newest generation, or a time, with a zone: then the last epoch that had ended by then. The
    verdict is about it and later ones. Raises NotEnded for an epoch that has not ended.
    """
    for left in reversed(range(LOOKS)):
        try:
            return _audit(rule, home, deep, accounts, targets, since, bool(left))
        except _Moved:
            continue
    raise AssertionError("the last look takes what it finds")


class _Moved(Exception):
    """The rule has worked on while its tables were read: they may have commits that the ledger did not have yet."""


def _audit(
    rule: str,
    home: Path,
    deep: bool,
    accounts: Accounts | None,
    targets: Targets | None,
    since: int | datetime | None,
    again: bool,
) -> Certificate | None:
    """`again`: raise _Moved if it should look again."""
    root = str(home / rule)
    try:
        found = logreader.read_ledger(f"{root}/ledger")
    except logreader.Unreadable as fault:
        what = f"the ledger at {root}/ledger cannot be read ({fault})"
        return Certificate(rule, deep, "", 0, "", [Finding(fault.verdict, what)])
    if found is None:
        left = [name for name in ("late", "dead", "state") if (home / rule / name).exists()]
        what = f"there is no ledger at {root}/ledger, though the rule has written: {', '.join(left)}"
        return Certificate(rule, deep, "", 0, "", [Finding("broken", what)]) if left else None
    odd = list(misshapen(found.rows))
    if odd:
        return Certificate(rule, deep, found.id, len(found.rows), "", odd)
    head = found.rows[-1].hash if found.rows else ""
    certificate = Certificate(rule, deep, found.id, len(found.rows), head, [], newest=ended_by(found.rows))
    if since is not None:
        certificate.since = _since(certificate, found.rows, since)
    certificate.findings += [*_nothing(found.rows), *chained(found.rows), *counted_rows(found.rows, found.counted)]
    try:
        effects = _follow(certificate, found, root, accounts, again)
        certificate.behind = dict.fromkeys(targets_in(effects.story))
        if deep and targets is not None:
            certificate.findings += _of_targets(certificate, found, root, effects, targets)
    except _Moved:
        raise
    except logreader.Unanswered as fault:  # the ledger, when it was to be read again
        certificate.findings.append(Finding(fault.verdict, f"the ledger at {root}/ledger cannot be read ({fault})"))
    except Exception as fault:  # whatever forged rows or metadata lead to: it is never the end of an audit
        what = redacted(f"ledger and logs cannot be followed ({type(fault).__name__}: {fault})")
        certificate.findings.append(Finding("broken", what))
    return certificate


def _since(certificate: Certificate, rows: list[Row], wanted: int | datetime) -> Since:
    if isinstance(wanted, datetime):
        return ended_by(rows, wanted)
    newest = certificate.newest
    if not 0 <= wanted <= newest.epoch:
        expected = f"expected an epoch from 0 to {newest.epoch}, the newest"
        raise NotEnded(f"rule {certificate.rule}: {expected}, found {wanted}")
    return replace(newest, epoch=wanted)


def ended_by(rows: Iterable[Row], moment: datetime | None = None) -> Since:
    """The last epoch that had ended by then; without a moment by now."""
    found = (one for one in rows if one.kind in ENDS and (moment is None or _is_by(one, moment)))
    return max((Since(one.generation, one.epoch) for one in found), default=BEGINNING)


def _is_by(row: Row, moment: datetime) -> bool:
    try:
        return datetime.fromisoformat(row.at) <= moment
    except (ValueError, TypeError):  # a forged row, which the chain of hashes reports
        return False


def _follow(
    certificate: Certificate, found: logreader.LedgerRead, root: str, accounts: Accounts | None, again: bool
) -> Effects:
    """What the rows tell, held against the tables."""
    story = Story(found.rows)
    certificate.findings += [*story.findings, *(one for epoch in story.epochs for one in balanced(epoch))]
    for generation in story.generations:
        certificate.findings += [*repeated_offsets(generation), *excess_rejections(generation), *refilled(generation)]
        certificate.findings += deferred(generation)
    certificate.generations = story.generations
    story.moved = {**story.moved, **outboxes(story, root)}
    logs, unread = _logs(story, root, accounts, certificate.deep)
    certificate.findings += unread
    certificate.findings += _moved(story, found, root, again)
    effects = Effects(story, found.id, root, logs)
    certificate.tables = effects.notes.tallies
    effects.check()
    certificate.findings += effects.notes.findings
    certificate.findings += forgotten(effects.tables, certificate.deep)
    if certificate.deep:
        certificate.findings += _recomputed(effects, story, found.id)
    return effects


def _moved(story: Story, found: logreader.LedgerRead, root: str, again: bool) -> Iterator[Finding]:
    """Each commit of an epoch stands between two rows of the ledger. So without a new row, all is of one moment."""
    if logreader.counted_in(f"{root}/ledger") == found.counted:
        return
    if again:
        raise _Moved
    story.beyond = True
    what = f"the rule has worked on while its tables were read, {LOOKS} times: what came after row {len(found.rows)} "
    yield Finding("unknown", f"{what}of its ledger could not be checked. Audit again")


def _of_targets(
    certificate: Certificate, found: logreader.LedgerRead, root: str, effects: Effects, targets: Targets
) -> Iterator[Finding]:
    """What the targets of the newest text have, and what they refused."""
    newest = effects.story.generations[-1].number
    for table, sink in targets_in(effects.story).items():
        books = partial(_books, found, root, str(sink["outbox"]), effects.tables.address(table, newest))
        yield from TargetCheck(table, sink, found.id, targets, books).findings(
            certificate.undelivered, certificate.behind
        )


def _books(found: logreader.LedgerRead, root: str, outbox: str, address: str) -> Books:
    """As they are now. The ledger comes last: a forget is announced there before an outbox loses rows to it."""
    aside = Path(f"{root}/{outbox}".replace("/outbox/", "/undelivered/"))
    older = sorted(one for one in aside.parent.glob(f"{glob.escape(aside.name)}-until-*") if one.is_dir())
    refused = [logreader.read_table(str(one)) for one in (*older, aside)]
    log, now = logreader.read_table(address), logreader.read_ledger(f"{root}/ledger")
    rows = [*found.rows, *(one for one in (now.rows if now else ()) if one.seq > len(found.rows))]
    return Books(rows, log, refused, forgot_in(Story(rows).generations, outbox))


def _nothing(rows: list[Row]) -> Iterator[Finding]:
    if not rows:
        yield Finding("unknown", "the ledger is empty: there is nothing to prove")


def _logs(story: Story, root: str, accounts: Accounts | None, deep: bool) -> tuple[dict[str, TableLog], list[Finding]]:
    """The log of every table that the ledger knows, by address; of other sinks the account."""
    logs, unread = dict[str, TableLog](), list[Finding]()
    for table, sink in others_in(story).items():
        log, why = account_log(table, sink, accounts, deep)
        logs[log.address] = log
        if why is not None:
            unread.append(Finding("unknown", f"it is a {sink['kind']} sink: {why}", table=table))
    for generation in reversed(story.generations):  # a verdict on it alone depends on all tables that it has
        for table, id_ in ids_of(generation).items():
            address = address_of(table, generation.number, root, id_, story.moved)
            if address in logs:
                continue
            try:
                logs[address] = logreader.read_table(address)
            except logreader.Unreadable as fault:
                logs[address] = TableLog(address, None, readable=False)
                what = f"the table at {address} cannot be read ({fault})"
                unread.append(Finding(fault.verdict, what, generation.number, table=table))
    return logs, unread


def _recomputed(effects: Effects, story: Story, ledger: str) -> Iterator[Finding]:
    """Check rows of all generations: with `--keep-output`, a sink holds rows of older ones."""
    from floodmark.audit.content.recomputing import recompute

    yield from recompute(effects, [one for generation in story.generations for one in named_in(generation, ledger)])
