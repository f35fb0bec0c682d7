"""`floodmark reset`: start over from the beginning of the input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from floodmark.cli.shared import options, output, rulechange
from floodmark.cli.shared.withspark import with_run
from floodmark.core.rules.kinds import durable_sinks
from floodmark.core.text.tablenames import last_part
from floodmark.errors import Refused

if TYPE_CHECKING:
    from floodmark.core.protocol.records.head import Head
    from floodmark.core.rules.model import Sink
    from floodmark.core.rules.rule import Rule


def reset(
    name: options.RuleName,
    keep_output: Annotated[
        bool,
        typer.Option("--keep-output", help="Keep the sinks' rows; delivery is at least once from then on."),
    ] = False,
    *,
    change: rulechange.Change,
    master: options.Master = options.MASTER,
) -> None:
    """Start a new generation of a rule from the beginning of its input. Its state and its sinks are emptied.

    The old generation is sealed: none of its runs can write any more. If the command is killed, the next run
    completes the reset.

    Example: `floodmark reset departure_delays --dry-run`
    """
    from floodmark.cli.shared.selection import rule_named

    rule, root = rule_named(change.rules, name), change.root
    head = _head(rule, root, keep_output)
    readers = rulechange.downstream(_sinks(rule), change.rules, name)
    if not change.as_json:
        _announce(rule, head, keep_output)
        for said in _never_shipped(rule, head, root):
            output.say(f"  never shipped: {said}")
        readers.describe(*_becomes(keep_output))
    if change.dry_run:
        return output.print_json(_facts(rule, head, keep_output, readers) | {"done": False}) if change.as_json else None
    rulechange.confirm(change.yes, "reset asks for confirmation before it empties tables")
    after = _reset(rule, root, master, change.run, keep_output)
    facts = _facts(rule, head, keep_output, readers) | {"done": True, "generation": after.generation}
    if change.as_json:
        return output.print_json(facts)
    output.say(
        f"{rule.rule}: generation {after.generation} starts at the beginning of the input; generation "
        f"{head.generation} is sealed. `floodmark run {rule.rule}` processes the input again"
    )


def _head(rule: Rule, root: Path, keep_output: bool) -> Head:
    """Where the rule stands. Raises what a reset would refuse before it writes."""
    from floodmark.connectors.backlog.landings import check_sources_go_on
    from floodmark.connectors.ports.registry import sinks
    from floodmark.core.lifecycle.life import check_living, check_same_reset
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    home = Home(root, rule.rule)
    ledger = LedgerReader.load(home.ledger)
    if ledger is None or ledger.head is None:
        raise Refused(f"rule {rule.rule} has not run yet: there is nothing to reset")
    check_living(ledger.head, rule.rule)
    check_same_reset(ledger.head, rule.rule, keep_output)
    for sink in () if keep_output else sinks(rule, home).values():
        sink.check_can_be_emptied()
    check_sources_go_on(rule, home)
    return ledger.head


def _becomes(keep_output: bool) -> tuple[str | rulechange.Effect, str, str]:
    """Effects on a rule that reads a sink as a stream, on one that looks rows up in it, and on readers of the first."""
    if keep_output:
        return "it gets all results a second time", "it finds old and new rows side by side", "the same"
    from floodmark.views.rules.cascade import after_reset

    return (
        after_reset,
        "it finds no rows until this rule has processed its input again",
        "its own `on_rewrite` says what it does, once that rule was reset or has corrected its results",
    )


def _announce(rule: Rule, head: Head, keep_output: bool) -> None:
    output.say(f"{rule.rule}: reset ends generation {head.generation} at epoch {head.epoch} and starts a new one")
    if head.open is not None:
        output.say(f"  epoch {head.epoch + 1} is open and is discarded")
    if head.backfill is not None:
        output.say(f"  backfill {head.backfill.number} is open and is discarded")
    for table in _emptied(rule, keep_output):
        output.say(f"  emptied: {_with_name(table)}")
    for sink in (one for one in rule.sinks if one.on_reset == "keep" and not keep_output):
        output.say(f"  kept: the rows of target {sink.label} (`on_reset: keep`); it gets all results a second time")
    if keep_output:
        output.say("  the sinks keep their rows and get all results a second time: at least once from then on")


def _never_shipped(rule: Rule, head: Head, root: Path) -> list[str]:
    """What targets have not got that the rule no longer has."""
    from floodmark.core.rules.kinds import targets
    from floodmark.ledger.home import Home
    from floodmark.ledger.ledger import LedgerReader

    here = {sink.address for sink in rule.sinks}
    gone = {sink.label for sink in targets(head.rule) if sink.address not in here}
    home = Home(root, rule.rule)
    reader = LedgerReader.load(home.ledger) if gone else None
    found = {} if reader is None else rulechange.left_behind(head, home, reader)
    return [said for target, said in found.items() if target in gone]


def _with_name(table: str) -> str:
    return f"sink {last_part(table)}, {table}" if "/" in table else table


def _facts(rule: Rule, head: Head, keep_output: bool, readers: rulechange.Downstream) -> dict[str, Any]:
    return {
        "rule": rule.rule,
        "ended_generation": head.generation,
        "ended_epoch": head.epoch,
        "discarded_epoch": head.epoch + 1 if head.open else None,
        "keep_output": keep_output,
        "emptied": _emptied(rule, keep_output),
        "downstream": readers.facts(),
    }


def _emptied(rule: Rule, keep_output: bool) -> list[str]:
    kept = [] if keep_output else [one for one in durable_sinks(rule) if one.on_reset != "keep"]
    return ["state", "late", "dead", *_places(kept)]


def _sinks(rule: Rule) -> list[str]:
    return _places(durable_sinks(rule))


def _places(sinks: Sequence[Sink]) -> list[str]:
    from floodmark.connectors.ports.registry import place_of

    return [place_of(one) for one in sinks]


def _reset(rule: Rule, root: Path, master: str, run: str, keep_output: bool) -> Head:
    from floodmark.connectors.preflight import check_without_jvm

    check_without_jvm(rule, root)
    return with_run(rule, root, master, run, lambda one: one.reset(keep_output))
