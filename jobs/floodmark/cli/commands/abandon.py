"""`floodmark abandon`: take back an open epoch that no run can finish."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from floodmark.cli.shared import options, output, rulechange
from floodmark.cli.shared.withspark import with_run
from floodmark.core.rules.kinds import sink_can

if TYPE_CHECKING:
    from floodmark.connectors.abandoning import Readers
    from floodmark.core.lifecycle.abandoning import SinkState
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.rule import Rule


def abandon(
    name: options.RuleName,
    *,
    change: rulechange.Change,
    master: options.Master = options.MASTER,
) -> None:
    """Take back the open epoch of a rule if no run can finish it: bad input, SQL corrected since, a missing source.

    Runs finish an open epoch by the rule text it started with, so an edit of the rule file doesn't help. An abandoned
    epoch has no effect: its writes to the sinks are undone, and its rows of state, `late` and `dead` are ignored. The
    next run reads the same input again, by the current rule file. All earlier epochs stay, unlike with
    `floodmark reset`.

    The command refuses, and writes nothing, if the epoch wrote to a sink that another rule reads, or if somebody
    changed the files since. If it is killed, the next run completes it.

    Example: `floodmark abandon departure_delays --dry-run`
    """
    from floodmark.cli.shared.selection import rule_named

    rule, root = rule_named(change.rules, name), change.root
    readers = _readers(change.rules, name)
    head, seen = _look(rule, root, readers)
    if not change.as_json:
        _announce(rule, head, seen)
    if change.dry_run:
        return output.print_json(_facts(rule, head, seen) | {"done": False}) if change.as_json else None
    rulechange.confirm(change.yes, "abandon asks for confirmation before it takes an epoch back")
    after = _abandon(rule, root, master, change.run, readers)
    if change.as_json:
        return output.print_json(_facts(rule, head, seen) | {"done": True})
    output.say(
        f"{name}: epoch {after.epoch} is abandoned. `floodmark run {name}` reads its input again, as epoch "
        f"{after.epoch + 1}, with the current rule file"
    )


def _readers(folder: Path, name: str) -> Readers:
    """The other rules of the folder that read each table, as text."""
    from floodmark.views.rules.downstream import readers

    known = readers(rulechange.good_rules(folder)).items()
    return {table: [one.text() for one in found if one.rule != name] for table, found in known}


def _look(rule: Rule, root: Path, readers: Readers) -> tuple[Head, list[SinkState]]:
    """The head, and what the sinks hold of the open epoch. Raises the error that refuses an abandon."""
    from floodmark.connectors.abandoning import inspect_sinks
    from floodmark.connectors.places import head_now
    from floodmark.core.lifecycle.abandoning import abandonable, check_sink
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    ledger = LedgerReader.load(Home(root, rule.rule).ledger)
    head = abandonable(ledger.head if ledger else None, rule.rule)
    assert ledger is not None
    seen = inspect_sinks(head_now(head, rule, ledger.id), rule, Home(root, rule.rule), ledger.id, readers)
    if not head.abandoning:
        check_sink(rule.rule, head.epoch + 1, seen)
    return head, seen


def _announce(rule: Rule, head: Head, seen: list[SinkState]) -> None:
    verb = "continues to take back" if head.abandoning else "takes back"
    output.say(f"{rule.rule}: abandon {verb} epoch {head.epoch + 1} of generation {head.generation}")
    for one in seen:
        output.say(f"  {one.label}: {one.text}")
    output.say("  state, late, dead: rows of the epoch are ignored from now on")
    if not all(sink_can(sink.kind).stores_rows for sink in rule.sinks):
        output.say("  console: output that was already printed remains")


def _facts(rule: Rule, head: Head, seen: list[SinkState]) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "generation": head.generation,
        "epoch": head.epoch + 1,
        "attempts": head.attempt,
        "sinks": [{"sink": one.address, "undoes": list(one.commits)} for one in seen],
    }


def _abandon(rule: Rule, root: Path, master: str, run: str, readers: Readers) -> Head:
    from floodmark.connectors.abandoning import check_before

    check_before(rule, root)
    return with_run(rule, root, master, run, lambda one: one.abandon(readers))
